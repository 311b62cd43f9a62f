//! What a hostile profile can cost its readers: a small file must not become a large page or much
//! work.
//!
//! Invariant: the files here are a few hundred KiB at most.

use phpprof_profile::page::{differential_within, page, page_within};
use phpprof_profile::proto::{Function, Label, Line, Location, Profile, Sample};
use phpprof_profile::{
    Builder, DecodeLimits, MAX_FRAMES, MAX_STRING, MergeLimits, Merger, NoiseScale, Packed,
    PieceBounds, Settings, TrustedMetadata, View, ViewError, decode, encode_gzip, pieces,
};

/// The longest string that is decoded.
const LONG: usize = MAX_STRING;

/// A profile with this many functions, which share their file and differ only in their start lines.
/// Each has its own sample.
fn shared(functions: i64, file: &str) -> Profile {
    let mut profile = Builder::new(Settings::default()).finish();
    let begin = profile.string_table.len() as i64;
    profile
        .string_table
        .extend(["f".to_owned(), file.to_owned()]);
    for number in 1..=functions {
        let id = number as u64;
        profile.function.push(Function {
            id,
            name: begin,
            filename: begin + 1,
            start_line: number,
            ..Function::default()
        });
        profile.location.push(Location {
            id,
            line: vec![line(id)],
            ..Location::default()
        });
        profile.sample.push(Sample {
            location_id: vec![id],
            value: vec![1, 1, 1],
            label: Vec::new(),
        });
    }
    profile
}

fn line(function_id: u64) -> Line {
    Line {
        function_id,
        ..Line::default()
    }
}

#[track_caller]
fn refused(profile: &Profile, expected: &str) {
    let file = encode_gzip(profile);
    assert!(file.len() < 100 << 10, "{}", file.len());
    let limits = DecodeLimits::default();
    let whole = decode(&file, &limits).map_err(|error| error.to_string());
    assert_eq!(whole.err().as_deref(), Some(expected));
    let packed = Packed::open(file, &limits).map_err(|error| error.to_string());
    assert_eq!(packed.err().as_deref(), Some(expected));
}

#[test]
fn an_overlong_string_is_refused() {
    let profile = |length| shared(4_000, &"x".repeat(length));
    refused(&profile(LONG + 1), "a string has more than 16384 bytes");
    let file = encode_gzip(&profile(LONG));
    assert!(decode(&file, &DecodeLimits::default()).is_ok());
}

#[test]
fn inlined_calls_count_as_frames_of_a_sample() {
    let mut profile = shared(2, "/a.php");
    profile.location[0].line = vec![line(1); MAX_FRAMES - 1];
    profile.sample[0].location_id = vec![1, 2];
    let file = encode_gzip(&profile);
    assert!(decode(&file, &DecodeLimits::default()).is_ok());
    profile.sample[0].location_id = vec![1, 2, 2];
    refused(
        &profile,
        &format!("a sample has more than {MAX_FRAMES} frames"),
    );
}

#[test]
fn a_file_of_many_functions_is_stored_once() {
    let length = |file: &str| {
        let html = page(&shared(4_000, file), &View::default(), "shared", None);
        html.unwrap().len()
    };
    assert_eq!(length(&"x".repeat(LONG)), length("x") + LONG - 1);
}

#[test]
fn a_page_is_never_longer_than_its_room() {
    let (profile, view) = (shared(100, "/<a>.php"), View::default());
    let length = page(&profile, &view, "room", None).unwrap().len();
    let within = |room| page_within(&profile, &view, "room", None, room);
    assert_eq!(within(length).map(|html| html.len()), Ok(length));
    assert_eq!(within(length - 1), Err(ViewError::PageTooLarge(length - 1)));
    assert_eq!(within(0), Err(ViewError::PageTooLarge(0)));
    let compared = differential_within(
        &profile,
        &profile,
        &view,
        "room",
        NoiseScale::BY_SAMPLES,
        1_000,
    );
    assert_eq!(compared, Err(ViewError::PageTooLarge(1_000)));
}

/// Deep stacks and many labels, all with long texts.
fn long_texts() -> Profile {
    let mut profile = shared(1, &"f".repeat(LONG));
    let begin = profile.string_table.len() as i64;
    let texts = ["n", "k", "v"].map(|text| text.repeat(LONG));
    profile.string_table.extend(texts);
    profile.function[0].name = begin;
    // With its receipt, the page also looks for findings.
    let receipt = include_str!("../../contract/comment.json");
    profile.string_table.push(receipt.to_owned());
    profile.comment.push(begin + 3);
    let label = Label {
        key: begin + 1,
        str: begin + 2,
        ..Label::default()
    };
    profile.sample = vec![
        Sample {
            location_id: vec![1; 800],
            value: vec![1, 1, 1],
            label: vec![label; 64],
        };
        500
    ];
    profile
}

#[test]
fn long_texts_are_cut_once() {
    let file = encode_gzip(&long_texts());
    assert!(file.len() < 500 << 10, "{}", file.len());
    let profile = Packed::open(file, &DecodeLimits::default()).unwrap();
    let html = page(&profile, &View::default(), "long", None).unwrap();
    // 400,000 frames with all bytes of their names would be gigabytes, and take minutes.
    assert!(html.len() < 2 << 20, "{}", html.len());
    let bounds = PieceBounds {
        bytes: 2_000_000,
        samples: 16_000,
    };
    let pieces = pieces(&profile, ("wall", "nanoseconds"), &[], &bounds);
    let [piece] = &pieces[..] else {
        panic!("{} pieces", pieces.len());
    };
    let text: usize = piece.string_table.iter().map(String::len).sum();
    assert!(text < 1 << 20, "{text}");
    let limits = MergeLimits::default();
    let mut merger = Merger::new(&Settings::default(), 1, limits, &[]);
    merger.add(&profile, &TrustedMetadata::default()).unwrap();
    assert_eq!(merger.finish().unwrap().cut, 0);
}
