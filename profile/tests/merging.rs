//! What a merge keeps of each profile, and what it does without enough room.

use phpprof_profile::{
    Builder, DecodeLimits, FrameRef, MergeLimits, Merged, Merger, OTHER, Packed, Profile,
    SampleSource, SampleTag, Settings, TrustedMetadata, View, decode, encode_gzip, merge, top,
    total,
};

const FOLDS: &[&str] = &["pid"];

/// This many stacks of a pod in each of its workers. Stack `n` took `n + 1` ms.
fn pod(stacks: usize, workers: i64) -> Profile {
    let mut builder = Builder::new(Settings::default());
    for stack in 0..stacks {
        let leaf = format!("leaf{stack}");
        let frames = [leaf.as_str(), "{main}"].map(|name| FrameRef {
            name,
            file: "/app/index.php",
            start_line: 1,
            line: 1,
        });
        let wall = (stack as i64 + 1) * 1_000_000;
        for pid in 0..workers {
            let labels = [
                SampleTag::Str("pod", "forged"),
                SampleTag::Num("pid", pid, ""),
            ];
            builder.add(&frames, &[1, 0, wall], &labels);
        }
    }
    builder.comment("{\"workers\":1}");
    builder.finish()
}

fn known(name: &'static str) -> TrustedMetadata<'static> {
    TrustedMetadata {
        labels: vec![("pod", name), ("namespace", "shop")],
        time_nanos: 1_790_000_000_000_000_000,
        duration_nanos: 1_000_000_000,
    }
}

fn merged(profiles: &[(&'static str, Profile)], limits: MergeLimits) -> (Merged, Profile) {
    let mut merger = Merger::new(&Settings::default(), profiles.len(), limits, FOLDS);
    for (name, profile) in profiles {
        let added = merger.add(profile, &known(name));
        added.expect("our own types");
    }
    let merged = merger.finish().expect("something to merge");
    let profile = decode(&merged.file, &DecodeLimits::default()).expect("a whole profile");
    for (index, name) in ["samples", "cpu", "wall"].into_iter().enumerate() {
        assert_eq!(total(&profile, name), merged.totals[index]);
        let all = profiles.iter().map(|(_, profile)| total(profile, name));
        assert_eq!(merged.totals[index], all.sum::<i64>());
    }
    (merged, profile)
}

fn rows(count: usize) -> MergeLimits {
    MergeLimits {
        rows: count,
        ..MergeLimits::default()
    }
}

fn values_of(profile: &Profile, label: [&str; 2]) -> Vec<i64> {
    let [key, value] = label;
    let view = View {
        sample_type: None,
        labels: vec![(key.to_owned(), value.to_owned())],
    };
    let kept = view.filtered(profile);
    kept.sample.iter().map(|sample| sample.value[2]).collect()
}

#[test]
fn a_merged_profile_has_only_the_known_labels() {
    let (merged, profile) = merged(&[("web-1", pod(2, 2)), ("web-2", pod(2, 2))], rows(100));
    assert_eq!((merged.cut, &merged.other), (0, &vec![0, 0, 0]));
    assert_eq!(profile.sample.len(), 8);
    assert!(values_of(&profile, ["pod", "forged"]).is_empty());
    assert_eq!(values_of(&profile, ["pod", "web-2"]).len(), 4);
    assert_eq!(values_of(&profile, ["namespace", "shop"]).len(), 8);
    assert_eq!(values_of(&profile, ["pid", "1"]).len(), 4);
}

#[test]
fn short_room_adds_up_workers_first() {
    let (merged, profile) = merged(&[("web", pod(10, 8))], rows(20));
    assert_eq!(merged.cut, 0);
    assert_eq!(profile.sample.len(), 10);
    assert!(values_of(&profile, ["pid", "1"]).is_empty());
    assert_eq!(values_of(&profile, ["pod", "web"]).len(), 10);
}

#[test]
fn then_each_pods_smallest_rows_become_one() {
    let (merged, profile) = merged(&[("small", pod(3, 1)), ("large", pod(100, 1))], rows(20));
    assert_eq!(merged.cut, 1);
    assert_eq!(values_of(&profile, ["pod", "small"]).len(), 3);
    let large = values_of(&profile, ["pod", "large"]);
    assert_eq!(large.len(), 17);
    // The sixteen largest stacks, and the rest.
    let rest: i64 = (1..=84).map(|wall| wall * 1_000_000).sum();
    assert_eq!(large.iter().max(), Some(&rest));
    assert_eq!(merged.other[2], rest);
    let row = top(&profile, "wall")
        .into_iter()
        .find(|row| row.name == OTHER);
    assert_eq!(row.unwrap().flat, rest);
}

#[test]
fn a_pod_of_many_rows_leaves_others_room() {
    let hostile = ("hostile", pod(20_000, 1));
    let honest = ["a", "b", "c"].map(|name| (name, pod(50, 1)));
    let [a, b, c] = honest;
    let (merged, profile) = merged(&[hostile, a, b, c], rows(800));
    assert_eq!(merged.cut, 1);
    for name in ["a", "b", "c"] {
        assert_eq!(values_of(&profile, ["pod", name]).len(), 50);
    }
}

#[test]
fn a_pod_of_long_names_leaves_others_room() {
    let mut builder = Builder::new(Settings::default());
    for stack in 0..400 {
        let name = format!("{stack}{}", "x".repeat(12_000));
        let frame = FrameRef {
            name: &name,
            ..FrameRef::default()
        };
        builder.add(&[frame], &[1, 0, 1], &[]);
    }
    let limits = MergeLimits {
        rows: 1000,
        bytes: 1 << 20,
    };
    let (merged, profile) = merged(
        &[("hostile", builder.finish()), ("web", pod(50, 1))],
        limits,
    );
    assert_eq!(merged.cut, 1);
    assert_eq!(values_of(&profile, ["pod", "web"]).len(), 50);
    let names: usize = profile.string_table.iter().map(String::len).sum();
    assert!(names < 1 << 20, "{names}");
}

#[test]
fn merging_adds_values_and_keeps_each_first_comment() {
    let later = Profile {
        time_nanos: 1_790_000_000_000_000_009,
        duration_nanos: 2_000_000_000,
        ..pod(3, 1)
    };
    let mut two = pod(3, 1);
    two.time_nanos = 1_790_000_000_000_000_000;
    two.comment.push(two.comment[0]);
    let merged = merge(&[later, two]).unwrap();
    assert_eq!((total(&merged, "samples"), merged.sample.len()), (6, 3));
    assert_eq!(merged.comments().count(), 2);
    assert_eq!(
        (merged.time_nanos, merged.duration_nanos),
        (1_790_000_000_000_000_000, 2_000_000_000)
    );
    assert!(decode(&encode_gzip(&merged), &DecodeLimits::default()).is_ok());
}

#[test]
fn heap_changes_are_summed_where_asked_and_known() {
    let of_heap = |values: &[i64]| {
        let mut builder = Builder::new(Settings::default().with_heap());
        builder.add(&[FrameRef::default()], values, &[]);
        builder.finish()
    };
    let (with, without) = (of_heap(&[1, 50, -20, 2, 3]), pod(1, 1));
    let totals = |settings: &Settings| {
        let mut merger = Merger::new(settings, 2, MergeLimits::default(), FOLDS);
        for profile in [&with, &without] {
            merger.add(profile, &known("one")).expect("our own types");
        }
        merger.finish().expect("something to merge").totals
    };
    let [plain, asked] = [Settings::default(), Settings::default().with_heap()];
    let (plain, asked) = (totals(&plain), totals(&asked));
    assert_eq!(asked[..3], [plain[0], 50, -20]);
    assert_eq!(asked[3..], plain[1..]);
}

#[test]
fn merging_needs_the_same_sample_types() {
    let mut other = pod(1, 1);
    other.sample_type.pop();
    let mut twice = pod(1, 1);
    twice.sample_type[1] = twice.sample_type[2];
    assert_eq!(
        merge(&[pod(1, 1), other]).unwrap_err().to_string(),
        "sample types differ: samples/count, cpu/nanoseconds, wall/nanoseconds and samples/count, cpu/nanoseconds"
    );
    assert!(merge(&[twice, pod(1, 1)]).is_err());
    assert_eq!(merge(&[]).unwrap_err().to_string(), "nothing to merge");
}

#[test]
fn a_packed_profile_reads_as_one_in_memory() {
    let profile = pod(40, 3);
    let file = encode_gzip(&profile);
    let packed = Packed::open(&file, &DecodeLimits::default()).unwrap();
    assert_eq!(packed.count(), 120);
    for _ in 0..2 {
        let mut samples = Vec::new();
        packed.each(&mut |sample| samples.push(sample.clone()));
        assert_eq!(samples, profile.sample);
    }
    assert_eq!(total(&packed, "wall"), total(&profile, "wall"));
    let page = |source: &dyn SampleSource| {
        phpprof_profile::page::page(source, &View::default(), "shop/first", None).unwrap()
    };
    assert_eq!(page(&packed), page(&profile));
}

#[test]
fn packed_profiles_are_refused_like_plain_ones() {
    let mut dangling = pod(2, 1);
    dangling.sample[1].location_id[0] = 99;
    let file = encode_gzip(&dangling);
    let error = Packed::open(&file, &DecodeLimits::default()).unwrap_err();
    assert_eq!(error.to_string(), "location 99 does not exist");
    let limits = DecodeLimits {
        samples: 3,
        ..DecodeLimits::default()
    };
    let file = encode_gzip(&pod(4, 1));
    let error = Packed::open(&file, &limits).unwrap_err();
    assert_eq!(error.to_string(), "the profile has more than 3 samples");
}
