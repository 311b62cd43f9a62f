//! Splits one sample type of a profile into as many profiles as a receiver with limits needs.
//!
//! It does not send them. It drops sample labels, because receivers such as Pyroscope make a series
//! of each value.
//!
//! Invariant: the values of all pieces add up to the total of the samples with the given labels. No
//! piece exceeds a bound unless a single stack does.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;

use crate::builder::{Builder, FrameRef, Settings};
use crate::lookup::{Lookup, SampleFrame};
use crate::proto::Profile;
use crate::source::SampleSource;
use crate::stacks::View;

/// The limits of a receiver for one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceBounds {
    /// Bytes before compression.
    pub bytes: usize,
    /// Samples in one profile.
    pub samples: usize,
}

/// Name and unit of a sample type.
pub type SampleType = (&'static str, &'static str);

/// The numbers of the frames, leaf first, and the value.
type PieceStack = (Box<[usize]>, i64);

/// The samples with these labels, with only this sample type, which also becomes the period's type.
/// Empty if the profile does not have the type, or has no value of it.
pub fn pieces<S: SampleSource + ?Sized>(
    source: &S,
    kind: SampleType,
    labels: &[(String, String)],
    bounds: &PieceBounds,
) -> Vec<Profile> {
    let profile = source.head();
    let Some(index) = profile.value_index(kind.0) else {
        return Vec::new();
    };
    let (frames, stacks) = stacks(source, index, labels);
    let mut pieces = Vec::new();
    // A piece that does not fit is halved. So the number of waiting pieces is at most logarithmic.
    let mut waiting = vec![stacks.as_slice()];
    while let Some(stacks) = waiting.pop() {
        let one = stacks.len() == 1;
        let made =
            (one || stacks.len() <= bounds.samples).then(|| build(profile, kind, &frames, stacks));
        match made {
            _ if stacks.is_empty() => {}
            Some(piece) if one || piece.encoded_len() <= bounds.bytes => pieces.push(piece),
            _ => {
                let (left, right) = stacks.split_at(stacks.len() / 2);
                waiting.extend([right, left]);
            }
        }
    }
    pieces
}

/// The frames of all stacks, and the stacks.
fn stacks<'a, S: SampleSource + ?Sized>(
    source: &'a S,
    index: usize,
    labels: &[(String, String)],
) -> (Vec<SampleFrame<'a>>, Vec<PieceStack>) {
    let view = View {
        sample_type: None,
        labels: labels.to_vec(),
    };
    let profile = source.head();
    let lookup = Lookup::new(profile);
    let mut frames: Vec<SampleFrame<'a>> = Vec::new();
    // By the id of the function's row, because names may be long, and there are far more frames
    // than rows.
    let mut numbers: HashMap<(u64, i64), usize> = HashMap::new();
    let mut sums: BTreeMap<Box<[usize]>, i64> = BTreeMap::new();
    source.each(&mut |sample| {
        let value = sample.value.get(index).copied().unwrap_or(0);
        if value == 0 || !view.has_labels(profile, sample) {
            return;
        }
        let stack = lookup.lines(sample).map(|(function, line)| {
            *numbers.entry((function.id, line)).or_insert_with(|| {
                frames.push(lookup.frame(function, line));
                frames.len() - 1
            })
        });
        let sum = sums.entry(stack.collect()).or_default();
        *sum = sum.saturating_add(value);
    });
    (frames, sums.into_iter().collect())
}

fn build(
    profile: &Profile,
    kind: SampleType,
    frames: &[SampleFrame<'_>],
    stacks: &[PieceStack],
) -> Profile {
    let mut builder = Builder::new(Settings {
        sample_types: vec![kind],
        default_sample_type: kind.0,
        period_type: kind,
        period: profile.period,
        time_nanos: profile.time_nanos,
        duration_nanos: profile.duration_nanos,
        ..Settings::default()
    });
    for (stack, value) in stacks {
        let frames: Vec<FrameRef<'_>> = stack
            .iter()
            .filter_map(|number| frames.get(*number))
            .map(|frame| FrameRef {
                name: frame.name,
                file: frame.file,
                start_line: frame.start_line,
                line: frame.line,
            })
            .collect();
        builder.add(&frames, &[*value], &[]);
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SampleTag, total};

    const WIDE: PieceBounds = PieceBounds {
        bytes: 4 << 20,
        samples: 16_000,
    };
    const CPU: SampleType = ("cpu", "nanoseconds");

    /// This many stacks, each in two pods with one sample: 10 ns of wall time and 3 ns of CPU time.
    fn profile(stacks: usize) -> Profile {
        let mut builder = Builder::new(Settings::default());
        for stack in 0..stacks {
            let names = [format!("leaf{stack}"), "main".to_owned()];
            let frames = names.each_ref().map(|name| FrameRef {
                name,
                file: "/app/index.php",
                ..FrameRef::default()
            });
            for pod in ["web-1", "web-2"] {
                builder.add(&frames, &[1, 3, 10], &[SampleTag::Str("pod", pod)]);
            }
        }
        builder.finish()
    }

    #[track_caller]
    fn check(pieces: &[Profile], count: usize, sum: i64) {
        assert_eq!(pieces.len(), count);
        let sums = pieces.iter().map(|piece| total(piece, "cpu"));
        assert_eq!(sums.sum::<i64>(), sum);
        for piece in pieces {
            assert_eq!(piece.sample_types().collect::<Vec<_>>(), [CPU]);
            assert!(piece.sample.iter().all(|sample| sample.label.is_empty()));
        }
    }

    #[test]
    fn pieces_sum_pods_up_and_drop_labels() {
        let pieces = pieces(&profile(5), CPU, &[], &WIDE);
        check(&pieces, 1, 30);
        assert_eq!(pieces[0].sample.len(), 5);
        let period = pieces[0].period_type.unwrap();
        assert_eq!(pieces[0].string(period.r#type), "cpu");
    }

    #[test]
    fn one_pod_alone_has_its_own_part() {
        let labels = [("pod".to_owned(), "web-2".to_owned())];
        check(&pieces(&profile(5), CPU, &labels, &WIDE), 1, 15);
        let nobody = [("pod".to_owned(), "web-3".to_owned())];
        check(&pieces(&profile(5), CPU, &nobody, &WIDE), 0, 0);
    }

    #[test]
    fn a_profile_over_bounds_is_split_without_loss() {
        let profile = profile(100);
        let few = PieceBounds {
            samples: 30,
            ..WIDE
        };
        check(&pieces(&profile, CPU, &[], &few), 4, 600);
        let small = PieceBounds {
            bytes: 1000,
            ..WIDE
        };
        let small_pieces = pieces(&profile, CPU, &[], &small);
        check(&small_pieces, small_pieces.len(), 600);
        assert!(small_pieces.len() > 4);
        assert!(small_pieces.iter().all(|piece| piece.encoded_len() <= 1000));
    }

    #[test]
    fn a_stack_over_a_bound_goes_alone() {
        let none = PieceBounds {
            bytes: 1,
            samples: 0,
        };
        check(&pieces(&profile(3), CPU, &[], &none), 3, 18);
    }

    #[test]
    fn a_missing_sample_type_has_no_pieces() {
        assert!(pieces(&profile(3), ("alloc", "bytes"), &[], &WIDE).is_empty());
    }
}
