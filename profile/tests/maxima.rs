//! Whatever is given to the writers, every reader takes the file.
//!
//! Invariant: each test reads by the limits that the sampler's host commands, the operator and the
//! plugin share.

use phpprof_profile::{
    Builder, DecodeLimits, Format, FrameRef, Lookup, MAX_FRAMES, MAX_FRAMES_OF_ALL, MAX_LABELS,
    MAX_STRING, MergeLimits, Merger, Packed, Profile, SampleSource, SampleTag, Settings, TRUNCATED,
    TrustedMetadata, View, Writer, decode, depth_within, encode_gzip, top, total,
};

fn frame(name: &str) -> FrameRef<'_> {
    FrameRef {
        name,
        file: "/srv/app/deep.php",
        start_line: 1,
        line: 2,
    }
}

/// Leaf first: `leaf`, the same function this many times, `outer`, `{main}`.
fn deep(below: usize) -> Vec<FrameRef<'static>> {
    let mut stack = vec![frame("descend"); below + 3];
    stack[0] = frame("leaf");
    stack[below + 1] = frame("outer");
    stack[below + 2] = frame("{main}");
    stack
}

/// The same sample by both writers, as every reader reads it.
#[track_caller]
fn written(stack: &[FrameRef<'_>], labels: &[SampleTag<'_>]) -> Profile {
    let (mut writer, mut builder) = (
        Writer::new(Settings::default()),
        Builder::new(Settings::default()),
    );
    writer.add(stack, &[1, 2, 3], labels);
    builder.add(stack, &[1, 2, 3], labels);
    let (file, built) = (writer.finish(), builder.finish());
    let limits = DecodeLimits::default();
    let profile = decode(&file, &limits).expect("the reader takes what the writer wrote");
    assert_eq!(profile, built);
    assert_eq!(Packed::open(&file, &limits).expect("as above").count(), 1);
    profile
}

fn names(profile: &Profile) -> Vec<String> {
    let lookup = Lookup::new(profile);
    let frames = lookup.frames(&profile.sample[0]);
    frames.map(|frame| frame.name.to_owned()).collect()
}

#[test]
fn stack_is_cut_in_its_middle() {
    for below in [0, 4_094, 6_000, MAX_FRAMES - 3, MAX_FRAMES - 2, 50_000] {
        let names = names(&written(&deep(below), &[]));
        let length = (below + 3).min(MAX_FRAMES);
        assert_eq!(names.len(), length, "{below}");
        assert_eq!(names[0], "leaf");
        assert_eq!(names[length - 2..], ["outer", "{main} /srv/app/deep.php"]);
        let marks: Vec<_> = (0..length).filter(|&at| names[at] == TRUNCATED).collect();
        let is_cut = below + 3 > MAX_FRAMES;
        assert_eq!(marks, if is_cut { vec![MAX_FRAMES / 2] } else { vec![] });
    }
}

#[test]
fn names_and_labels_are_cut() {
    let long = "é".repeat(100_000);
    let stack = [FrameRef {
        name: &long,
        file: &long,
        ..FrameRef::default()
    }];
    let profile = written(&stack, &vec![SampleTag::Str(&long, &long); 1_000]);
    let [name] = names(&profile).try_into().unwrap();
    assert!(name.len() <= MAX_STRING && name.ends_with("é…"), "{name}");
    assert_eq!(profile.sample[0].label.len(), MAX_LABELS);
    assert_eq!(total(&profile, "wall"), 3);
}

#[test]
fn formats_of_the_deepest_stack_are_written() {
    let profile = written(&deep(50_000), &[]);
    for name in Format::names().split(", ") {
        let format = Format::named(name).unwrap();
        let text = format.write(&profile, &View::default(), "deep", None);
        let text = String::from_utf8_lossy(&text.unwrap()).into_owned();
        let is_binary = matches!(format, Format::Pprof | Format::Firefox);
        let has = |name| is_binary || text.contains(name);
        assert!(has("outer") && has(TRUNCATED), "{name}");
    }
    let rows = top(&profile, "wall");
    let outer = rows.iter().find(|row| row.name == "outer").unwrap();
    assert_eq!(outer.cum, 3);
}

#[test]
fn merged_profiles_of_the_deepest_stacks_are_read() {
    let mut merger = Merger::new(&Settings::default(), 3, MergeLimits::default(), &[]);
    let of_pod = |pod| TrustedMetadata {
        labels: vec![("pod", pod), ("namespace", "shop"), ("container", "fpm")],
        ..TrustedMetadata::default()
    };
    let labels = vec![SampleTag::Str("route", "/"); MAX_LABELS];
    for pod in ["web-1", "web-2", "web-3"] {
        let file = encode_gzip(&written(&deep(50_000), &labels));
        let packed = Packed::open(file, &DecodeLimits::default()).unwrap();
        merger.add(&packed, &of_pod(pod)).unwrap();
    }
    let merged = merger.finish().unwrap();
    assert_eq!((merged.cut, merged.totals), (0, vec![3, 6, 9]));
    let profile = decode(&merged.file, &DecodeLimits::default()).unwrap();
    assert_eq!(profile.sample.len(), 3);
    let has_pod = |text: &str| profile.string_table.iter().any(|it| it == text);
    assert!(["web-1", "web-2", "web-3"].into_iter().all(has_pod));
}

/// Stacks that have more frames together than a profile may have: only the deepest are cut, and
/// every reader takes them.
#[test]
fn all_frames_together_are_bounded() {
    let deepest = MAX_FRAMES - 1;
    let count = MAX_FRAMES_OF_ALL / deepest + 200;
    let depths = std::iter::repeat_n(deepest, count).chain([3]);
    let depth = depth_within(depths);
    assert!(depth < deepest && depth > deepest / 2, "{depth}");
    let mut writer = Writer::new(Settings::default()).with_depth(depth);
    let stack = deep(deepest - 3);
    for pid in 0..count {
        writer.add(&stack, &[1, 2, 3], &[SampleTag::Num("pid", pid as i64, "")]);
    }
    writer.add(&deep(0), &[1, 2, 3], &[]);
    let file = writer.finish();
    let profile = decode(&file, &DecodeLimits::of_own()).unwrap();
    let frames = profile.sample.iter().map(|it| it.location_id.len());
    assert_eq!(frames.clone().max(), Some(depth));
    assert_eq!(frames.min(), Some(3));
    assert!(frames_of(&profile) <= MAX_FRAMES_OF_ALL);
    // The operator holds no samples, so its memory is for the tables alone.
    let limits = DecodeLimits {
        memory_bytes: 24 << 20,
        ..DecodeLimits::default()
    };
    assert_eq!(Packed::open(&file, &limits).unwrap().count(), count + 1);
}

fn frames_of(profile: &Profile) -> usize {
    let samples = profile.sample.iter();
    samples.map(|sample| sample.location_id.len()).sum()
}
