//! Whether a profile is one of phpprof: its sample types, units and labels.
//!
//! Invariant: accepted profiles can be merged with each other, and no sum of up to a hundred of
//! them overflows.

use phpprof_profile::{HEAP, Profile, SampleSource, Settings, labels};

/// The most that a value may sum to: a hundred days of nanoseconds, far more than 64 workers in an
/// hour.
const LARGEST_SUM: i64 = 1 << 53;

/// The error says why it is not.
pub fn check(profile: &impl SampleSource) -> Result<(), String> {
    check_types(profile.head())?;
    let head = profile.head();
    let mut sums = vec![0i64; head.sample_type.len()];
    // A heap may hold less than before, so this value may be negative.
    let [_, change] = HEAP;
    let may_fall: Vec<bool> = head.sample_types().map(|kind| kind == change).collect();
    let mut fault = None;
    profile.each(&mut |sample| {
        let label = sample.label.iter().map(|label| head.string(label.key));
        let foreign = label
            .into_iter()
            .find(|key| labels::all().all(|it| it != *key));
        if let Some(key) = foreign {
            fault.get_or_insert_with(|| format!("no sampler writes the label {key:?}"));
        }
        for ((sum, value), may_fall) in sums.iter_mut().zip(&sample.value).zip(&may_fall) {
            if *value < 0 && !may_fall {
                fault.get_or_insert_with(|| "a sample has a negative value".to_owned());
            }
            *sum = sum.saturating_add(value.saturating_abs());
        }
    });
    if sums.iter().any(|sum| *sum > LARGEST_SUM) {
        fault.get_or_insert_with(|| format!("a sample type sums to more than {LARGEST_SUM}"));
    }
    fault.map_or(Ok(()), Err)
}

/// In any order, because older samplers had another order. With or without the sample types of
/// heaps, and those of fibers; or only those of what is in heaps.
fn check_types(head: &Profile) -> Result<(), String> {
    let ours = Settings::default().sample_types;
    let theirs: Vec<_> = head.sample_types().collect();
    let are = |ours: &[_]| theirs.len() == ours.len() && ours.iter().all(|it| theirs.contains(it));
    let [heap, fibers] = [
        Settings::default().with_heap(),
        Settings::default().with_fibers(),
    ];
    let both = heap.clone().with_fibers();
    let further = [heap, fibers, both, Settings::in_use()];
    let same = are(&ours) || further.iter().any(|it| are(&it.sample_types));
    let words = |types: &[(&str, &str)]| {
        let words: Vec<_> = types
            .iter()
            .map(|(name, unit)| format!("{name}/{unit}"))
            .collect();
        words.join(", ")
    };
    if same {
        Ok(())
    } else {
        Err(format!(
            "its sample types are {:?}, and ours are {:?}",
            words(&theirs),
            words(&ours)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::receivers;
    use phpprof_profile::{Builder, FrameRef, SampleTag};

    #[track_caller]
    fn check_profile(settings: Settings, values: &[i64], labels: &[SampleTag<'_>], expected: &str) {
        let mut builder = Builder::new(settings);
        builder.add(&[FrameRef::default()], values, labels);
        let said = check(&builder.finish()).err().unwrap_or_default();
        assert_eq!(said, expected);
    }

    #[test]
    fn what_samplers_write_is_ours() {
        let labels = [
            SampleTag::Str("namespace", "shop"),
            SampleTag::Str("pod", "web"),
            SampleTag::Str("container", "fpm"),
            SampleTag::Str("php", "8.2.1"),
            SampleTag::Str("sapi", "fpm-fcgi"),
            SampleTag::Str("route", "/shop/{id}/cart"),
            SampleTag::Num("pid", 7, ""),
            SampleTag::Num("thread", 7, ""),
        ];
        check_profile(Settings::default(), &[1, 2, 3], &labels, "");
        let mut older = Settings::default();
        older.sample_types.swap(1, 2);
        check_profile(older, &[1, 2, 3], &[], "");
        let of_heap = Settings::default().with_heap();
        check_profile(of_heap.clone(), &[1, 2, -3, 4, 5], &[], "");
        let of_fibers = Settings::default().with_fibers();
        check_profile(of_fibers.clone(), &[0, 2, 3, 0, 0], &[], "");
        check_profile(of_heap.with_fibers(), &[1, 2, -3, 4, 5, 6, 7], &[], "");
        check_profile(Settings::in_use(), &[2, 64], &[], "");
        let negative = "a sample has a negative value";
        check_profile(of_fibers, &[0, 2, -3, 0, 0], &[], negative);
        check_profile(Settings::in_use(), &[1, -64], &[], negative);
    }

    #[test]
    fn parca_takes_a_stored_profile_with_every_label() {
        let labels: Vec<_> = labels::all().map(|key| SampleTag::Str(key, "x")).collect();
        let mut builder = Builder::new(Settings::default().with_heap());
        builder.add(&[FrameRef::default()], &[1, 2, 3, 4, 5], &labels);
        let series = ["__name__", "namespace", "pod", "container"];
        let named = series.map(|name| (name.to_owned(), "phpprof".to_owned()));
        assert_eq!(receivers::parca(&named, &builder.finish()), Ok(()));
    }

    #[test]
    fn other_types_labels_and_values_are_not() {
        let mut other = Settings::default();
        other.sample_types[1] = ("inuse_space", "bytes");
        let types = "samples/count, inuse_space/bytes, wall/nanoseconds";
        let said = format!(
            "its sample types are {types:?}, and ours are \"samples/count, cpu/nanoseconds, wall/nanoseconds\""
        );
        check_profile(other, &[1, 2, 3], &[], &said);
        let foreign = [SampleTag::Str("le\nak", "x")];
        check_profile(
            Settings::default(),
            &[1, 2, 3],
            &foreign,
            "no sampler writes the label \"le\\nak\"",
        );
        check_profile(
            Settings::default(),
            &[1, -2, 3],
            &[],
            "a sample has a negative value",
        );
        check_profile(
            Settings::default().with_heap(),
            &[1, -2, 3, 4, 5],
            &[],
            "a sample has a negative value",
        );
        check_profile(
            Settings::default().with_heap(),
            &[1, 2, i64::MIN, 4, 5],
            &[],
            "a sample type sums to more than 9007199254740992",
        );
        check_profile(
            Settings::default(),
            &[1, 2, i64::MAX],
            &[],
            "a sample type sums to more than 9007199254740992",
        );
    }
}
