//! Threads, times and markers of the format, read back as JSON.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::firefox;
use crate::stacks::View;
use crate::timeline::{
    Moment, Timeline, TimelineNode, TimelineRequest, TreeFunction, VERSION as LIST_VERSION,
};
use crate::{Builder, FrameRef, Profile, SampleTag, Settings, total};

const MS: i64 = 1_000_000;

fn read(profile: &Profile, view: &View, timeline: Option<&Timeline>) -> Value {
    let file = firefox(profile, view, "shop", timeline).unwrap();
    let mut json = String::new();
    GzDecoder::new(&file[..]).read_to_string(&mut json).unwrap();
    serde_json::from_str(&json).unwrap()
}

fn frame<'a>(name: &'a str, file: &'a str, line: i64) -> FrameRef<'a> {
    FrameRef {
        name,
        file,
        line,
        start_line: 0,
    }
}

/// Two workers: one renders for 60 ms and waits for a query for 200 ms, the other renders for 40
/// ms.
fn profile() -> Profile {
    let mut builder = Builder::new(Settings {
        duration_nanos: 1_000 * MS,
        ..Settings::default()
    });
    let main = frame("{main}", "/srv/index.php", 3);
    let render = [frame("render", "/srv/view.php", 9), main];
    let query = [frame("PDO::exec", "<internal:pdo>", 0), main];
    let of = |pid, route| {
        [
            SampleTag::Num("pid", pid, ""),
            SampleTag::Str("route", route),
        ]
    };
    builder.add(&render, &[6, 60 * MS, 60 * MS], &of(7, "/shop"));
    builder.add(&query, &[20, 0, 200 * MS], &of(7, "/shop"));
    builder.add(&render, &[4, 40 * MS, 40 * MS], &of(8, "/blog"));
    builder.finish()
}

/// A request of worker 7, in which it rendered for 20 ms, collected garbage for 5 ms (which the
/// profile does not have) and waited for the query for 150 ms.
fn timeline() -> Timeline {
    let function = |name: &str, file: &str| TreeFunction {
        name: name.to_owned(),
        file: file.to_owned(),
    };
    let node = |parent, function, line| TimelineNode {
        parent,
        function,
        line,
    };
    let moment = |begin, duration, node, waits| Moment {
        begin: begin * MS,
        duration: duration * MS,
        node,
        waits,
    };
    Timeline {
        version: LIST_VERSION,
        began_unix_nanoseconds: 1_700_000_000_000 * MS,
        duration_nanoseconds: 1_000 * MS,
        functions: vec![
            function("{main}", "/srv/index.php"),
            function("render", "/srv/view.php"),
            function("PDO::exec", "<internal:pdo>"),
            function("[gc]", ""),
        ],
        nodes: vec![
            node(None, 0, 3),
            node(Some(0), 1, 9),
            node(Some(0), 2, 0),
            node(Some(0), 3, 0),
        ],
        requests: vec![TimelineRequest {
            begin: 100 * MS,
            end: 300 * MS,
            pid: 7,
            method: "GET".to_owned(),
            route: "/shop".to_owned(),
            samples: 18,
            moments: vec![
                moment(0, 20, 1, false),
                moment(20, 5, 3, false),
                moment(25, 100, 2, true),
                moment(125, 50, 2, true),
            ],
            ..TimelineRequest::default()
        }],
        ..Timeline::default()
    }
}

/// The sum of a thread's column.
fn sum(thread: &Value, column: &str) -> f64 {
    let values = thread["samples"][column].as_array().unwrap();
    values.iter().filter_map(Value::as_f64).sum()
}

fn sums(file: &Value, column: &str) -> i64 {
    let threads = file["threads"].as_array().unwrap();
    let all: f64 = threads.iter().map(|thread| sum(thread, column)).sum();
    all.round() as i64
}

/// Time, leaf and weight of each sample that has a stack.
fn samples(file: &Value, thread: usize) -> Vec<(f64, String, f64)> {
    let shared = &file["shared"];
    let index = |value: &Value| value.as_u64().unwrap() as usize;
    let columns = &file["threads"][thread]["samples"];
    let rows = columns["stack"].as_array().unwrap().iter().enumerate();
    let rows = rows.filter(|(_, stack)| !stack.is_null());
    rows.map(|(row, stack)| {
        let frame = index(&shared["stackTable"]["frame"][index(stack)]);
        let func = index(&shared["frameTable"]["func"][frame]);
        let name = index(&shared["funcTable"]["name"][func]);
        let number = |column: &str| columns[column][row].as_f64().unwrap();
        let name = shared["stringArray"][name].as_str().unwrap().to_owned();
        (number("time"), name, number("weight"))
    })
    .collect()
}

/// Type, beginning and end of each marker.
fn markers(file: &Value, thread: usize) -> Vec<(&str, f64, f64)> {
    let columns = &file["threads"][thread]["markers"];
    let data = columns["data"].as_array().unwrap().iter().enumerate();
    let number = |column: &str, row: usize| columns[column][row].as_f64().unwrap();
    data.map(|(row, data)| {
        let (begin, end) = (number("startTime", row), number("endTime", row));
        (data["type"].as_str().unwrap(), begin, end)
    })
    .collect()
}

fn of(name: &str) -> String {
    name.to_owned()
}

#[test]
fn each_worker_is_a_thread_with_its_samples() {
    let file = read(&profile(), &View::default(), None);
    let threads = file["threads"].as_array().unwrap().iter();
    let names: Vec<_> = threads
        .map(|thread| thread["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["worker 7", "worker 8"]);
    // Without a timeline, samples are in the order of their stacks.
    assert_eq!(
        samples(&file, 0),
        [(0.0, of("render"), 60.0), (60.0, of("PDO::exec"), 200.0)]
    );
    assert_eq!(samples(&file, 1), [(0.0, of("render"), 40.0)]);
    assert_eq!(markers(&file, 1), [("Untimed", 0.0, 40.0)]);
    assert_eq!(sums(&file, "threadCPUDelta"), total(&profile(), "cpu"));
}

#[test]
fn what_a_moment_saw_is_at_its_time() {
    let file = read(&profile(), &View::default(), Some(&timeline()));
    assert_eq!(
        samples(&file, 0),
        [
            (100.0, of("render"), 20.0),
            (125.0, of("PDO::exec"), 100.0),
            (225.0, of("PDO::exec"), 50.0),
            // The run is over.
            (1000.0, of("render"), 40.0),
            (1040.0, of("PDO::exec"), 50.0),
        ]
    );
    assert_eq!(sums(&file, "weight") * MS, total(&profile(), "wall"));
    assert_eq!(sums(&file, "threadCPUDelta"), total(&profile(), "cpu"));
    assert_eq!(file["meta"]["startTime"], 1_700_000_000_000.0);
}

#[test]
fn requests_waits_and_phases_are_markers() {
    let file = read(&profile(), &View::default(), Some(&timeline()));
    assert_eq!(
        markers(&file, 0),
        [
            ("Request", 100.0, 300.0),
            ("Phase", 120.0, 125.0),
            ("Wait", 125.0, 275.0),
            ("Untimed", 1000.0, 1090.0),
        ]
    );
    let data = &file["threads"][0]["markers"]["data"];
    assert_eq!(data[0]["route"], "/shop");
    assert_eq!(data[2]["kind"], "database");
    assert_eq!(markers(&file, 1), [("Untimed", 1000.0, 1040.0)]);
}

#[test]
fn each_marker_field_is_in_its_schema() {
    let file = read(&profile(), &View::default(), Some(&timeline()));
    let schemas = file["meta"]["markerSchema"].as_array().unwrap();
    for data in file["threads"][0]["markers"]["data"].as_array().unwrap() {
        let schema = schemas.iter().find(|schema| schema["name"] == data["type"]);
        let fields = schema.unwrap()["fields"].as_array().unwrap();
        for key in data
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "type")
        {
            assert!(fields.iter().any(|field| field["key"] == **key), "{key}");
        }
    }
}

#[test]
fn an_overstating_list_adds_no_time() {
    let mut list = timeline();
    for moment in &mut list.requests[0].moments {
        moment.duration = i64::MAX / 4;
    }
    let again = list.requests[0].clone();
    list.requests.push(again);
    let file = read(&profile(), &View::default(), Some(&list));
    assert_eq!(sums(&file, "weight") * MS, total(&profile(), "wall"));
    assert_eq!(sums(&file, "threadCPUDelta"), total(&profile(), "cpu"));
    let times = file["threads"][0]["samples"]["time"].as_array().unwrap();
    let times: Vec<_> = times.iter().filter_map(Value::as_f64).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_view_leaves_out_the_requests_of_others() {
    let view = View {
        sample_type: Some(of("cpu")),
        labels: vec![(of("route"), of("/blog"))],
    };
    let file = read(&profile(), &view, Some(&timeline()));
    assert_eq!(file["threads"].as_array().unwrap().len(), 1);
    assert_eq!(samples(&file, 0), [(1000.0, of("render"), 40.0)]);
    let counts = View {
        sample_type: Some(of("samples")),
        labels: Vec::new(),
    };
    let file = read(&profile(), &counts, Some(&timeline()));
    assert_eq!(sums(&file, "weight"), total(&profile(), "samples"));
    assert_eq!(file["threads"][0]["samples"]["weightType"], "samples");
}

#[test]
fn workers_added_up_give_to_each() {
    let mut merged = profile();
    for sample in &mut merged.sample {
        sample.label.clear();
    }
    let file = read(&merged, &View::default(), Some(&timeline()));
    let names = |index: usize| file["threads"][index]["name"].clone();
    assert_eq!([names(0), names(1)], ["workers", "worker 7"]);
    assert_eq!(samples(&file, 1).len(), 3);
    assert_eq!(sums(&file, "weight") * MS, total(&merged, "wall"));
}

#[test]
fn a_stack_without_frames_keeps_its_time() {
    let mut builder = Builder::new(Settings::default());
    builder.add(&[], &[1, MS, MS], &[]);
    let file = read(&builder.finish(), &View::default(), None);
    assert_eq!(samples(&file, 0), [(0.0, of("[unknown]"), 1.0)]);
}

#[test]
fn hostile_list_is_bounded_and_counted() {
    const DEPTH: u32 = 8_000;
    let f = |line: u32| frame("f", "/srv/f.php", i64::from(line));
    let frames: Vec<_> = (1..=DEPTH).rev().map(f).collect();
    let mut builder = Builder::new(Settings::default());
    builder.add(
        &frames,
        &[500, 0, 500 * MS],
        &[SampleTag::Num("pid", 7, "")],
    );
    let deep = builder.finish();
    let node = |line: u32| TimelineNode {
        parent: line.checked_sub(2),
        function: 0,
        line,
    };
    let moment = |leaf: u32| Moment {
        begin: i64::from(leaf % 500) * MS,
        duration: MS,
        node: leaf,
        waits: false,
    };
    let request = |index: u32| TimelineRequest {
        end: 500 * MS,
        pid: 7,
        moments: (0..500).map(|it| moment(index * 500 + it)).collect(),
        ..TimelineRequest::default()
    };
    let list = Timeline {
        functions: vec![TreeFunction {
            name: "f".to_owned(),
            file: "/srv/f.php".to_owned(),
        }],
        nodes: (1..=DEPTH).map(node).collect(),
        requests: (0..DEPTH / 500).map(request).collect(),
        ..timeline()
    };
    let file = read(&deep, &View::default(), Some(&list));
    let told = &file["meta"]["extra"][0]["entries"][0]["value"];
    assert!(told.as_u64().unwrap() > 1_000, "{told}");
    assert_eq!(sums(&file, "weight"), 500);
    let whole = read(&profile(), &View::default(), Some(&timeline()));
    assert_eq!(whole["meta"]["extra"], Value::Null);
}
