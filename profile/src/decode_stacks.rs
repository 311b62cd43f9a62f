//! Decodes an untrusted pprof file into the sums of its stacks, with one label: for a comparison,
//! which needs who calls whom on which route, and not which worker did.
//!
//! Invariant: the file is never held as samples. Memory depends on the number of different stacks,
//! and is bounded: at most `limits.memory_bytes` for the tables, and as much for the stacks.

use std::collections::BTreeMap;

use crate::decode::{Checks, DecodeLimits, read};
use crate::error::DecodeError;
use crate::proto::{Label, Profile, Sample};

/// What a row of the sums takes in addition to its numbers: of the tree, whose nodes are at least
/// half full, of three allocations, and of the sample that it becomes.
const ROW: usize =
    2 * size_of::<(StackKey, Vec<i64>)>() + 3 * 16 + size_of::<Sample>() + size_of::<Label>();

/// The locations of a stack, and the index of its label's value; 0 without the label.
type StackKey = (Vec<u64>, i64);

/// The profile with one sample for each stack and value of this label. Sums saturate.
///
/// # Errors
/// A [`DecodeError`] if the file is not complete, or above a limit.
pub fn decode_stacks(
    file: &[u8],
    limits: &DecodeLimits,
    label: &str,
) -> Result<Profile, DecodeError> {
    // A file has its strings after its samples.
    let strings = read(file, limits, &mut |_| Ok(()))?.string_table;
    let key = strings.iter().position(|it| it == label);
    let key = key.and_then(|it| i64::try_from(it).ok());
    drop(strings);
    let mut stacks: BTreeMap<StackKey, Vec<i64>> = BTreeMap::new();
    let mut memory = 0_usize;
    let mut profile = read(file, limits, &mut |sample: Sample| {
        let mut labels = sample.label.iter();
        let found = labels.find(|it| Some(it.key) == key);
        let stack = (sample.location_id, found.map_or(0, |it| it.str));
        let Some(sums) = stacks.get_mut(&stack) else {
            let numbers = stack.0.len() + sample.value.len();
            memory = memory.saturating_add(ROW + numbers * size_of::<u64>());
            stacks.insert(stack, sample.value);
            return if memory > limits.memory_bytes {
                Err(DecodeError::MemoryExceeded(limits.memory_bytes))
            } else {
                Ok(())
            };
        };
        if sums.len() != sample.value.len() {
            return Err(DecodeError::Values {
                expected: sums.len(),
                actual: sample.value.len(),
            });
        }
        for (sum, value) in sums.iter_mut().zip(sample.value) {
            *sum = sum.saturating_add(value);
        }
        Ok(())
    })?;
    let checks = Checks::of(&profile, limits)?;
    let samples = stacks
        .into_iter()
        .map(|((location_id, text), value)| Sample {
            location_id,
            value,
            label: key
                .filter(|_| text != 0)
                .map(|key| Label {
                    key,
                    str: text,
                    ..Label::default()
                })
                .into_iter()
                .collect(),
        });
    profile.sample = samples.collect();
    let mut samples = profile.sample.iter();
    samples.try_for_each(|sample| checks.sample(&profile, sample))?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FrameRef, SampleTag, Settings, encode_gzip, total};

    fn file(pids: i64, names: &[&str]) -> Vec<u8> {
        let mut builder = Builder::new(Settings::default());
        for pid in 0..pids {
            for name in names {
                let frame = FrameRef {
                    name,
                    ..FrameRef::default()
                };
                let route = if pid % 2 == 0 { "/" } else { "/cart" };
                let tags = [
                    SampleTag::Num("pid", pid, ""),
                    SampleTag::Str("route", route),
                ];
                builder.add(&[frame], &[1, 2, 3], &tags);
            }
        }
        builder.comment("a receipt");
        encode_gzip(&builder.finish())
    }

    #[test]
    fn stacks_of_all_workers_become_one() {
        let limits = DecodeLimits::default();
        let file = file(50, &["a", "b"]);
        let profile = decode_stacks(&file, &limits, "route").unwrap();
        let route = |it: &Sample| profile.string(it.label[0].str).to_owned();
        let routes: Vec<String> = profile.sample.iter().map(route).collect();
        assert_eq!(routes, ["/", "/cart", "/", "/cart"]);
        assert!(profile.sample.iter().all(|it| it.label.len() == 1));
        assert_eq!(total(&profile, "samples"), 100);
        let profile = decode_stacks(&file, &limits, "method").unwrap();
        assert_eq!(profile.sample.len(), 2);
        assert!(profile.sample.iter().all(|it| it.label.is_empty()));
        assert_eq!(total(&profile, "samples"), 100);
        assert_eq!(profile.comments().collect::<Vec<_>>(), ["a receipt"]);
    }

    #[test]
    fn memory_depends_on_stacks_not_samples() {
        let limits = |memory_bytes| DecodeLimits {
            memory_bytes,
            ..DecodeLimits::default()
        };
        let many = file(500, &["a", "b"]);
        assert!(decode_stacks(&many, &limits(60 << 10), "route").is_ok());
        let names: Vec<String> = (0..500).map(|it| it.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let refused = decode_stacks(&file(1, &names), &limits(60 << 10), "route").unwrap_err();
        assert!(
            matches!(refused, DecodeError::MemoryExceeded(_)),
            "{refused}"
        );
    }

    #[test]
    fn broken_files_are_refused_as_elsewhere() {
        let limits = DecodeLimits::default();
        let whole = file(2, &["a"]);
        assert!(decode_stacks(&whole[..whole.len() / 2], &limits, "route").is_err());
        let few = DecodeLimits {
            samples: 1,
            ..DecodeLimits::default()
        };
        assert!(matches!(
            decode_stacks(&whole, &few, "route"),
            Err(DecodeError::TooManySamples(1))
        ));
    }
}
