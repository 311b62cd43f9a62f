//! Profiles, converted to OTLP and read back by the meaning of its tables.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::ProfilesDictionary;
use phpprof_profile::{
    Builder, DecodeLimits, FrameRef, Lookup, SampleTag, Settings, decode, total,
};

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";
/// A profile of a real PHP process.
const RECORDED: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profile/tests/findings/query-loop-has.pb.gz"
));

/// A sample type, the names of frames with their files and lines, attributes, and a link.
type ReadBack = (String, String, Vec<(String, String)>, String);

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attributes(dictionary: &ProfilesDictionary, indexes: &[i32]) -> Vec<(String, String)> {
    let attribute = |index: &i32| {
        let attribute = &dictionary.attribute_table[*index as usize];
        let key = &dictionary.string_table[attribute.key_strindex as usize];
        (key.clone(), text(attribute.value.as_ref()))
    };
    let mut all: Vec<_> = indexes.iter().map(attribute).collect();
    all.sort();
    all
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The samples of a message, as their indexes say.
fn read(message: &ExportProfilesServiceRequest) -> Vec<(ReadBack, i64)> {
    let dictionary = message.dictionary.as_ref().unwrap();
    let string = |index: i32| dictionary.string_table[index as usize].clone();
    let frame = |index: &i32| {
        let location = &dictionary.location_table[*index as usize];
        let frame_type = [("profile.frame.type".to_owned(), "php".to_owned())];
        assert_eq!(
            attributes(dictionary, &location.attribute_indices),
            frame_type
        );
        let line = |line: &otlp::Line| {
            let function = &dictionary.function_table[line.function_index as usize];
            let (name, file) = (function.name_strindex, function.filename_strindex);
            let start = function.start_line;
            format!("{} {}:{start}:{}", string(name), string(file), line.line)
        };
        location
            .lines
            .iter()
            .map(line)
            .collect::<Vec<_>>()
            .join(";")
    };
    let mut all = Vec::new();
    for profile in &message.resource_profiles[0].scope_profiles[0].profiles {
        let sample_type = profile.sample_type.unwrap();
        let kind = [sample_type.type_strindex, sample_type.unit_strindex];
        for sample in &profile.samples {
            let stack = &dictionary.stack_table[sample.stack_index as usize];
            let frames: Vec<_> = stack.location_indices.iter().map(frame).collect();
            let link = &dictionary.link_table[sample.link_index as usize];
            let link = format!("{} {}", hex(&link.trace_id), hex(&link.span_id));
            let attributes = attributes(dictionary, &sample.attribute_indices);
            let whole = (
                kind.map(string).join("/"),
                frames.join(";"),
                attributes,
                link,
            );
            all.push((whole, sample.values.iter().sum()));
        }
    }
    all
}

fn converted(profile: &Profile, bounds: &PieceBounds) -> Vec<ExportProfilesServiceRequest> {
    let of_engine = |engine: ProfiledEngine| {
        let facts = EngineFacts {
            engine,
            ..EngineFacts::default()
        };
        messages(profile, &facts, bounds, |message, _| message).unwrap()
    };
    let engines = engines(profile).unwrap();
    engines.into_iter().flat_map(of_engine).collect()
}

/// The sums of a sample type in all messages.
fn sum(messages: &[ExportProfilesServiceRequest], kind: &str) -> i64 {
    let samples = messages.iter().flat_map(read);
    let of_kind = samples.filter(|((of, ..), _)| of.split('/').next() == Some(kind));
    of_kind.map(|(_, value)| value).sum()
}

/// Two pods with this many stacks each, of 10 ms of wall time, and 3 ms of CPU time in every
/// second.
fn profile(stacks: usize) -> Profile {
    let mut builder = Builder::new(Settings::default());
    for stack in 0..stacks {
        let names = [format!("leaf{stack}"), "main".to_owned()];
        let frames = names.each_ref().map(|name| FrameRef {
            name,
            file: "/app/index.php",
            start_line: 3,
            line: 7,
        });
        let cpu = 3_000_000 * (stack as i64 % 2);
        for pod in ["web-1", "web-2"] {
            let labels = [
                SampleTag::Str("pod", pod),
                SampleTag::Str("namespace", "shop"),
                SampleTag::Str("container", "fpm"),
                SampleTag::Str("php", "8.4.11"),
                SampleTag::Str("sapi", "fpm-fcgi"),
                SampleTag::Num("pid", 17, ""),
                SampleTag::Str("method", "GET"),
                SampleTag::Str("route", "/shop/{id}"),
                SampleTag::Str("request_age", "<50ms"),
                SampleTag::Str("trace_id", TRACE),
                SampleTag::Str("span_id", SPAN),
            ];
            builder.add(&frames, &[1, cpu, 10_000_000], &labels);
        }
    }
    builder.finish()
}

#[test]
fn each_engine_is_a_resource_with_its_totals() {
    let profile = profile(5);
    let found = engines(&profile).unwrap();
    let expected = ["web-1", "web-2"].map(|pod| ProfiledEngine {
        pod: pod.to_owned(),
        container: "fpm".to_owned(),
        version: "8.4.11".to_owned(),
        sapi: "fpm-fcgi".to_owned(),
    });
    assert_eq!(found, expected);
    let messages = converted(&profile, &BOUNDS);
    assert_eq!(messages.len(), 2);
    for message in messages {
        let one = [message];
        let sums = ["samples", "cpu", "wall"].map(|kind| sum(&one, kind));
        assert_eq!(sums, [5, 6_000_000, 50_000_000]);
    }
}

#[test]
fn profiles_have_one_type_the_default_first() {
    let messages = converted(&profile(3), &BOUNDS);
    let message = &messages[0];
    let strings = &message.dictionary.as_ref().unwrap().string_table;
    let scope = &message.resource_profiles[0].scope_profiles[0];
    assert_eq!(scope.scope.as_ref().unwrap().name, "phpprof");
    let kind = |profile: &otlp::Profile| {
        assert!(
            profile
                .samples
                .iter()
                .all(|sample| sample.values.len() == 1)
        );
        strings[profile.sample_type.unwrap().type_strindex as usize].clone()
    };
    let kinds: Vec<_> = scope.profiles.iter().map(kind).collect();
    assert_eq!(kinds, ["wall", "samples", "cpu"]);
    // Only one stack has CPU time.
    assert_eq!(scope.profiles[2].samples.len(), 1);
}

#[test]
fn labels_become_attributes_and_a_link() {
    let messages = converted(&profile(1), &BOUNDS);
    let samples = read(&messages[0]);
    let ((kind, frames, attributes, link), value) = &samples[0];
    assert_eq!((kind.as_str(), *value), ("wall/nanoseconds", 10_000_000));
    assert_eq!(frames, "leaf0 /app/index.php:3:7;main /app/index.php:3:7");
    let expected = [
        ("http.request.method", "GET"),
        ("http.route", "/shop/{id}"),
        ("phpprof.request_age", "<50ms"),
        ("process.pid", "17"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(attributes, &expected);
    assert_eq!(link, &format!("{TRACE} {SPAN}"));
}

#[test]
fn an_incomplete_trace_stays_an_attribute() {
    let no_link = format!("{} {}", "0".repeat(32), "0".repeat(16));
    for labels in [
        vec![("trace_id", TRACE)],
        vec![("trace_id", "(other)")],
        vec![("span_id", "xyz"), ("trace_id", TRACE)],
    ] {
        let mut builder = Builder::new(Settings::default());
        let tags: Vec<_> = labels
            .iter()
            .map(|(key, value)| SampleTag::Str(key, value))
            .collect();
        builder.add(&[FrameRef::default()], &[1, 0, 1], &tags);
        let messages = converted(&builder.finish(), &BOUNDS);
        let (_, _, attributes, link) = &read(&messages[0])[0].0;
        let expected = labels.iter().map(|(key, value)| {
            let key = format!("phpprof.{key}");
            (key, (*value).to_owned())
        });
        assert_eq!(attributes, &expected.collect::<Vec<_>>());
        assert_eq!(link, &no_link);
    }
}

#[test]
fn a_recorded_profile_reads_back_the_same() {
    let recorded = decode(RECORDED, &DecodeLimits::default()).unwrap();
    let lookup = Lookup::new(&recorded);
    let types: Vec<_> = recorded.sample_types().collect();
    let mut expected: BTreeMap<(String, String), i64> = BTreeMap::new();
    for sample in &recorded.sample {
        let frame = |frame: phpprof_profile::SampleFrame<'_>| {
            let (name, file) = (frame.name, frame.file);
            format!("{name} {file}:{}:{}", frame.start_line, frame.line)
        };
        let frames: Vec<_> = lookup.frames(sample).map(frame).collect();
        for ((kind, unit), value) in types.iter().zip(&sample.value) {
            let key = (format!("{kind}/{unit}"), frames.join(";"));
            *expected.entry(key).or_default() += value;
        }
    }
    expected.retain(|_, value| *value != 0);
    let messages = converted(&recorded, &BOUNDS);
    let mut found: BTreeMap<(String, String), i64> = BTreeMap::new();
    for ((kind, frames, ..), value) in messages.iter().flat_map(read) {
        *found.entry((kind, frames)).or_default() += value;
    }
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
}

#[test]
fn a_message_over_bounds_is_split_without_loss() {
    let profile = profile(100);
    for bounds in [
        PieceBounds {
            samples: 30,
            ..BOUNDS
        },
        PieceBounds {
            bytes: 2500,
            ..BOUNDS
        },
    ] {
        let messages = converted(&profile, &bounds);
        assert!(messages.len() > 4);
        for kind in ["samples", "cpu", "wall"] {
            assert_eq!(sum(&messages, kind), total(&profile, kind), "{kind}");
        }
        let fits = |message: &ExportProfilesServiceRequest| message.encoded_len() <= bounds.bytes;
        assert!(messages.iter().all(fits));
    }
    let facts = EngineFacts {
        engine: engines(&profile).unwrap().swap_remove(0),
        ..EngineFacts::default()
    };
    let one = PieceBounds {
        bytes: 1,
        samples: 1,
    };
    let many = profile_of_many();
    let refused = messages(&many, &EngineFacts::default(), &one, |_, _| ());
    assert!(matches!(refused, Err(NotConverted::Messages(_))));
    assert_eq!(
        messages(&profile, &facts, &one, |_, it| it).unwrap().len(),
        100
    );
}

/// More samples than messages are sent, without labels.
fn profile_of_many() -> Profile {
    let mut builder = Builder::new(Settings::default());
    for line in 0..200 {
        let frame = FrameRef {
            line,
            ..FrameRef::default()
        };
        builder.add(&[frame], &[1, 0, 1], &[]);
    }
    builder.finish()
}

#[test]
fn tables_begin_with_zero_and_repeat_nothing() {
    for message in converted(&profile(20), &BOUNDS) {
        let tables = message.dictionary.unwrap();
        assert_eq!(tables.string_table[0], "");
        assert_eq!(tables.mapping_table, [otlp::Mapping::default()]);
        assert_eq!(tables.location_table[0], otlp::Location::default());
        assert_eq!(tables.function_table[0], otlp::Function::default());
        assert_eq!(tables.stack_table[0], otlp::Stack::default());
        assert_eq!(tables.attribute_table[0], otlp::KeyValueAndUnit::default());
        assert_eq!(tables.link_table[0].trace_id, [0; 16]);
        assert_eq!(tables.link_table[0].span_id, [0; 8]);
        let texts = [
            tables.string_table.clone(),
            shown(&tables.location_table),
            shown(&tables.function_table),
            shown(&tables.link_table),
            shown(&tables.attribute_table),
            shown(&tables.stack_table),
        ];
        for mut table in texts {
            let all = table.len();
            table.sort();
            table.dedup();
            assert_eq!(table.len(), all);
        }
    }
}

fn shown<T: std::fmt::Debug>(table: &[T]) -> Vec<String> {
    table.iter().map(|it| format!("{it:?}")).collect()
}

#[test]
fn too_many_engines_are_not_sent() {
    let mut builder = Builder::new(Settings::default());
    for version in 0..=MOST_ENGINES {
        let version = version.to_string();
        let labels = [SampleTag::Str("php", &version)];
        builder.add(&[FrameRef::default()], &[1, 0, 1], &labels);
    }
    assert_eq!(engines(&builder.finish()), Err(NotConverted::Engines));
}
