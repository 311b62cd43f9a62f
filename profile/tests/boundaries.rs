//! What `decode` accepts and refuses, what `merge` adds up, and how the table looks.

use phpprof_profile::proto::{Label as RawLabel, Line, Profile, Sample};
use phpprof_profile::{
    Builder, DecodeLimits, FrameRef, MappingInfo, SampleTag, Settings, View, decode, diff,
    encode_gzip, merge, top, total,
};
use prost::Message;

fn frame<'a>(name: &'a str, line: i64) -> FrameRef<'a> {
    FrameRef {
        name,
        file: "/srv/app/index.php",
        start_line: 1,
        line,
    }
}

/// One request: `{main}` calls `price` (twice nested) and `rank`, which calls an internal function.
fn shop(pod: &str) -> Profile {
    let mut builder = Builder::new(Settings {
        period: 10_101_010,
        time_nanos: 1_790_000_000_000_000_000,
        duration_nanos: 1_000_000_000,
        mapping: MappingInfo {
            filename: "/usr/sbin/php-fpm8.2".into(),
            build_id: "abc".into(),
        },
        ..Settings::default()
    });
    let labels = [SampleTag::Str("pod", pod), SampleTag::Num("pid", 7, "id")];
    let main = frame("{main}", 9);
    builder.add(
        &[frame("price", 3), frame("price", 4), main],
        &[6, 50_000_000, 60_000_000],
        &labels,
    );
    builder.add(
        &[frame("sort", 0), frame("rank", 8), main],
        &[3, 20_000_000, 25_000_000],
        &labels,
    );
    builder.add(&[main], &[1, 0, 15_000_000], &labels);
    builder.add(&[main], &[1, 0, 5_000_000], &labels);
    builder.comment(format!("{{\"pod\":\"{pod}\"}}"));
    builder.finish()
}

fn check(bytes: &[u8], expected: Result<(), &str>) {
    check_within(bytes, &DecodeLimits::default(), expected);
}

fn check_within(bytes: &[u8], limits: &DecodeLimits, expected: Result<(), &str>) {
    let outcome = decode(bytes, limits)
        .map(drop)
        .map_err(|error| error.to_string());
    assert_eq!(outcome, expected.map_err(str::to_owned));
}

fn broken(breakage: impl Fn(&mut Profile), expected: &str) {
    let mut profile = shop("a");
    breakage(&mut profile);
    check(&profile.encode_to_vec(), Err(expected));
}

#[test]
fn gzip_and_raw_files_are_read() {
    check(&encode_gzip(&shop("a")), Ok(()));
    check(&shop("a").encode_to_vec(), Ok(()));
}

#[test]
fn what_was_built_is_what_is_decoded() {
    let profile = shop("a");
    assert_eq!(
        decode(&encode_gzip(&profile), &DecodeLimits::default()).unwrap(),
        profile
    );
}

#[test]
fn files_that_are_no_profile_are_refused() {
    check(b"", Err("the profile has no sample type"));
    check(
        b"\x1f\x8bnot gzip at all",
        Err("not a gzip file: invalid gzip header"),
    );
    check(b"<html>", Err("unknown wire type 4"));
    check(&[0xff; 64], Err("a varint has more than ten bytes"));
    let whole = shop("a").encode_to_vec();
    check(
        &whole[..whole.len() - 1],
        Err("the file ends in the middle of a field"),
    );
}

#[test]
fn files_over_a_bound_are_refused() {
    let bound = |change: fn(&mut DecodeLimits)| {
        let mut limits = DecodeLimits::default();
        change(&mut limits);
        limits
    };
    let file = encode_gzip(&shop("a"));
    check_within(
        &file,
        &bound(|l| l.compressed_bytes = 99),
        Err("the file has more than 99 bytes"),
    );
    check_within(
        &file,
        &bound(|l| l.decompressed_bytes = 99),
        Err("the file has more than 99 bytes when decompressed"),
    );
    check_within(
        &file,
        &bound(|l| l.memory_bytes = 999),
        Err("the profile takes more than 999 bytes of memory"),
    );
    check_within(
        &file,
        &bound(|l| l.depth = 2),
        Err("a sample has more than 2 frames"),
    );
    check_within(
        &file,
        &bound(|l| l.labels = 1),
        Err("a sample has more than 1 labels"),
    );
    check_within(
        &file,
        &bound(|l| l.string = 19),
        Err("a string has more than 19 bytes"),
    );
}

#[test]
fn a_gzip_bomb_stops_at_the_cap() {
    let mut bomb = Profile {
        string_table: vec![String::new()],
        ..shop("a")
    };
    bomb.string_table
        .extend(std::iter::repeat_n("0".repeat(16_000), 5_000));
    check(
        &encode_gzip(&bomb),
        Err("the profile takes more than 41943040 bytes of memory"),
    );
    let limits = DecodeLimits {
        memory_bytes: usize::MAX,
        ..DecodeLimits::default()
    };
    check_within(
        &encode_gzip(&bomb),
        &limits,
        Err("the file has more than 67108864 bytes when decompressed"),
    );
}

#[test]
fn many_empty_samples_do_not_outgrow_their_bounds() {
    let many = [0x12, 0x00].repeat(1 << 20);
    check(&many, Err("the profile has more than 200000 samples"));
    let limits = DecodeLimits {
        samples: usize::MAX,
        ..DecodeLimits::default()
    };
    check_within(
        &many,
        &limits,
        Err("the profile takes more than 41943040 bytes of memory"),
    );
}

#[test]
fn a_huge_claimed_field_is_refused_before_reading() {
    check(
        &[0x12, 0xff, 0xff, 0xff, 0xff, 0x7f],
        Err("a field has more than 262144 bytes"),
    );
}

#[test]
fn dangling_ids_are_refused() {
    broken(
        |p| p.sample[0].location_id[0] = 99,
        "location 99 does not exist",
    );
    broken(
        |p| p.location[0].line[0].function_id = 99,
        "function 99 does not exist",
    );
    broken(
        |p| p.location[0].line.push(Line::default()),
        "function 0 does not exist",
    );
    broken(
        |p| p.location[0].mapping_id = 99,
        "mapping 99 does not exist",
    );
    broken(
        |p| p.sample[0].label[0].str = -1,
        "string -1 does not exist",
    );
    broken(
        |p| p.comment[0] = i64::MAX,
        "string 9223372036854775807 does not exist",
    );
    broken(
        |p| p.function[0].name = 1 << 40,
        "string 1099511627776 does not exist",
    );
}

#[test]
fn repeated_ids_and_misshapen_samples_are_refused() {
    broken(|p| p.function[0].id = 2, "function id 0 or used twice");
    broken(|p| p.location[0].id = 0, "location id 0 or used twice");
    broken(
        |p| p.sample[0].value.push(1),
        "a sample has 4 values for 3 sample types",
    );
    broken(|p| p.sample_type.clear(), "the profile has no sample type");
    broken(
        |p| p.string_table[0].push('x'),
        "the string table does not start with the empty string",
    );
}

#[test]
fn equal_stacks_with_equal_labels_are_one_sample() {
    let mut builder = Builder::new(Settings::default());
    builder.add(
        &[frame("f", 1)],
        &[1, 2, 3],
        &[SampleTag::Str("a", "1"), SampleTag::Str("b", "2")],
    );
    builder.add(
        &[frame("f", 1)],
        &[1, 2],
        &[SampleTag::Str("b", "2"), SampleTag::Str("a", "1")],
    );
    builder.add(&[frame("f", 2)], &[i64::MAX, 0, 0, 77], &[]);
    let profile = builder.finish();
    let values: Vec<_> = profile
        .sample
        .iter()
        .map(|sample| sample.value.clone())
        .collect();
    assert_eq!(values, [vec![2, 4, 3], vec![i64::MAX, 0, 0]]);
    check(&profile.encode_to_vec(), Ok(()));
}

/// The profile as samplers wrote it until wall time became the default.
fn older(profile: &Profile) -> Profile {
    let mut older = profile.clone();
    older.default_sample_type = older.sample_type[1].r#type;
    older.sample_type.swap(1, 2);
    for sample in &mut older.sample {
        sample.value.swap(1, 2);
    }
    older
}

#[test]
fn an_older_type_order_is_read_by_name() {
    let (profile, older) = (shop("a"), older(&shop("b")));
    let chosen = |profile: &Profile| View::default().index(profile).unwrap();
    assert_eq!(chosen(&profile), profile.value_index("wall").unwrap());
    assert_eq!(chosen(&older), older.value_index("cpu").unwrap());
    for name in ["samples", "cpu", "wall"] {
        assert_eq!(top(&older, name), top(&profile, name));
        for merged in [
            merge(&[profile.clone(), older.clone()]).unwrap(),
            merge(&[older.clone(), profile.clone()]).unwrap(),
        ] {
            assert_eq!(total(&merged, name), 2 * total(&profile, name), "{name}");
        }
        let view = View {
            sample_type: Some(name.to_owned()),
            ..View::default()
        };
        let diff = diff(&older, &profile, &view).unwrap();
        assert_eq!(diff.total_before, diff.total_after);
    }
}

#[test]
fn an_unchecked_profile_is_read_without_panic() {
    let mut profile = shop("a");
    profile.sample.push(Sample {
        location_id: vec![99],
        value: vec![1],
        label: vec![RawLabel {
            key: 99,
            ..RawLabel::default()
        }],
    });
    profile.location.clear();
    assert_eq!(top(&profile, "wall"), []);
    assert_eq!(merge(&[profile]).unwrap().location, []);
}

#[test]
fn the_table_reads_like_go_tool_pprof() {
    let profile = shop("a");
    let text = top::table(
        &top(&profile, "wall"),
        3,
        total(&profile, "wall"),
        "nanoseconds",
    );
    insta::assert_snapshot!(text);
}

#[test]
fn a_table_of_nothing_has_only_its_head() {
    insta::assert_snapshot!(top::table(&[], 10, 0, "nanoseconds"));
}
