use std::io::Write as _;

use proptest::prelude::*;

use super::*;
use crate::timeline::{
    CellTime, FIRST_SLICE, MAX_MOMENTS, MAX_REQUESTS, MAX_ROWS, RouteCell, RouteRow, TimelineNode,
    TreeFunction, WorkerRow,
};

/// A timeline with one of everything.
fn timeline() -> Timeline {
    let cells = vec![TimelineCell {
        step: 3,
        busy: 20,
        waiting: 30,
        heap: 0,
    }];
    let moment = |begin| Moment {
        begin,
        duration: 10,
        node: 1,
        waits: false,
    };
    let node = |parent| TimelineNode {
        parent,
        function: 0,
        line: 4,
    };
    let request = |end, moments| TimelineRequest {
        end,
        pid: 7,
        samples: 2,
        moments,
        ..TimelineRequest::default()
    };
    Timeline {
        version: VERSION_WITH_CELLS,
        began_unix_nanoseconds: 1_700_000_000_000_000_000,
        duration_nanoseconds: 30_000_000_000,
        step_nanoseconds: 4 * FIRST_STEP,
        workers: vec![WorkerRow {
            pid: 7,
            cells: cells.clone(),
            ..WorkerRow::default()
        }],
        routes: vec![RouteRow {
            route: "/".to_owned(),
            cells,
        }],
        requests: vec![request(80, vec![moment(0), moment(10)]), request(9, vec![])],
        cells: Some(cell_table()),
        functions: vec![TreeFunction::default()],
        nodes: vec![node(None), node(Some(0))],
        ..Timeline::default()
    }
}

fn cell_table() -> CellTable {
    CellTable {
        slice_nanoseconds: 2 * FIRST_SLICE,
        pods: vec!["web".to_owned()],
        routes: vec!["/".to_owned()],
        functions: vec![TreeFunction::default()],
        cells: vec![RouteCell {
            requests: 3,
            samples: 9,
            times: 1,
            ..RouteCell::default()
        }],
        times: vec![CellTime {
            function: 0,
            wall: 20,
            cpu: 10,
        }],
        other_nanoseconds: 0,
    }
}

#[track_caller]
fn check_cells_refused(change: impl Fn(&mut CellTable), expected: &str) {
    check_refused(|it| it.cells.iter_mut().for_each(&change), expected);
}

#[test]
fn cells_that_are_not_whole_are_refused() {
    check_cells_refused(|it| it.slice_nanoseconds = 3 * FIRST_SLICE, "cells");
    check_cells_refused(|it| it.slice_nanoseconds = 0, "cells");
    check_cells_refused(|it| it.cells[0].pod = 1, "cells");
    check_cells_refused(|it| it.cells[0].route = 1, "cells");
    check_cells_refused(|it| it.cells[0].times = 2, "cells");
    check_cells_refused(|it| it.cells[0].requests = (1 << 32) + 1, "cells");
    check_cells_refused(|it| it.cells[0].samples = u64::MAX, "cells");
    check_cells_refused(|it| it.cells.push(it.cells[0]), "cells");
    check_cells_refused(|it| it.times[0].function = 1, "cells");
    check_cells_refused(|it| it.times[0].wall = -1, "cells");
    check_cells_refused(|it| it.other_nanoseconds = -1, "cells");
    check_cells_refused(|it| it.pods[0] = "x".repeat(513), "name in its table");
    check_cells_refused(
        |it| it.times = vec![it.times[0]; (1 << 16) + 1],
        "more than",
    );
}

#[test]
fn bad_cells_cost_only_the_cells() {
    let mut bad = timeline();
    bad.cells.iter_mut().for_each(|it| it.cells[0].pod = 1);
    let (read, fault) = decode_without_bad_cells(&encode(&bad).unwrap()).unwrap();
    assert_eq!(fault, Some("its table of cells"));
    let without = Timeline {
        cells: None,
        ..timeline()
    };
    assert_eq!(read, without);
    let file = encode(&timeline()).unwrap();
    let whole = decode_without_bad_cells(&file).unwrap();
    assert_eq!(whole, (timeline(), None));
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn what_was_written_is_read() {
    let file = encode(&timeline()).unwrap();
    assert_eq!(decode(&file).unwrap(), timeline());
}

fn json(change: impl Fn(&mut serde_json::Value)) -> Result<Timeline, TimelineError> {
    let mut json = serde_json::to_value(timeline()).unwrap();
    change(&mut json);
    decode(&gzip(json.to_string().as_bytes()))
}

#[test]
fn newer_version_is_said_whatever_it_has() {
    let newer = |json: &mut serde_json::Value| {
        json["version"] = 3.into();
        json["unknown"] = "new".into();
        json["cells"] = "another form".into();
    };
    let error = json(newer).unwrap_err().to_string();
    let expected = "the file has version 3, but this phpprof reads versions 1 to 2";
    assert_eq!(error, expected);
    assert!(matches!(
        json(|it| it["version"] = 0.into()),
        Err(TimelineError::Version(0))
    ));
}

#[test]
fn version_says_whether_cells_are_written() {
    let version = |change: fn(&mut Timeline)| {
        let mut list = timeline();
        change(&mut list);
        decode(&encode(&list).unwrap()).unwrap().version
    };
    assert_eq!(version(|it| it.version = VERSION), VERSION_WITH_CELLS);
    assert_eq!(version(|it| it.cells = None), VERSION);
    // Builds before the second version wrote cells in the first one.
    let old = json(|it| it["version"] = VERSION.into()).unwrap();
    assert_eq!(old.cells, timeline().cells);
}

#[track_caller]
fn check_refused(change: impl Fn(&mut Timeline), expected: &str) {
    let mut changed = timeline();
    change(&mut changed);
    let error = decode(&encode(&changed).unwrap()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_is_not_whole_is_refused() {
    check_refused(|it| it.step_nanoseconds = 50_000_000, "its step");
    check_refused(|it| it.step_nanoseconds = 0, "its step");
    check_refused(|it| it.duration_nanoseconds = -1, "its times");
    check_refused(|it| it.workers[0].cells[0].busy = -1, "cells");
    check_refused(|it| it.routes[0].cells[0].step = 600, "cells");
    check_refused(
        |it| it.routes[0].cells.push(TimelineCell::default()),
        "cells",
    );
    check_refused(|it| it.routes[0].route = "x".repeat(1025), "name of a row");
    check_refused(|it| it.requests[0].end = -1, "times of a request");
    check_refused(|it| it.requests.reverse(), "order of its requests");
    check_refused(|it| it.requests[0].trace_id = "x".repeat(1025), "text");
    check_refused(|it| it.requests[0].moments[0].node = 2, "moments");
    check_refused(|it| it.requests[0].moments[0].duration = 11, "moments");
    check_refused(|it| it.nodes[1].parent = Some(1), "call tree");
    check_refused(|it| it.nodes[1].function = 1, "call tree");
    check_refused(
        |it| it.functions[0].file = "x".repeat(crate::MAX_STRING + 1),
        "function",
    );
}

#[test]
fn lists_that_are_too_long_are_refused() {
    let check = |change: fn(&mut Timeline)| check_refused(change, "more than");
    check(|it| it.workers = vec![it.workers[0].clone(); MAX_ROWS + 1]);
    check(|it| it.requests = vec![it.requests[1].clone(); MAX_REQUESTS + 1]);
    check(|it| it.requests[0].moments = vec![Moment::default(); MAX_MOMENTS + 1]);
    check(|it| it.nodes = vec![TimelineNode::default(); super::super::MAX_NODES + 1]);
    check_refused(
        |it| it.requests = vec![it.requests[0].clone(); MAX_RECORDED + 1],
        "recorded",
    );
}

#[test]
fn a_too_large_file_is_refused_while_reading() {
    let file = vec![0; MAX_BYTES + 1];
    assert!(matches!(decode(&file), Err(TimelineError::TooLarge)));
    let bomb = gzip(&vec![b' '; 40 << 20]);
    assert!(matches!(
        decode(&bomb),
        Err(TimelineError::InflatedTooLarge)
    ));
}

#[test]
fn a_too_large_file_loses_the_fastest_first() {
    let whole = encode(&timeline()).unwrap();
    let file = encode_within(timeline(), whole.len() - 1).unwrap();
    let read = decode(&file).unwrap();
    assert_eq!((read.cut, read.requests.len(), read.nodes.len()), (1, 2, 0));
    assert_eq!(read.functions, []);
    let file = encode_within(timeline(), 0).unwrap();
    let read = decode(&file).unwrap();
    assert_eq!((read.cut, read.unlisted_requests), (1, 2));
    assert_eq!(read.routes, timeline().routes);
}

#[test]
fn a_file_too_large_when_decompressed_is_cut() {
    let mut long = timeline();
    let name = "x".repeat(crate::MAX_STRING);
    let function = |number| TreeFunction {
        name: format!("{number}"),
        file: name.clone(),
    };
    long.functions = (0..1_040).map(function).collect();
    let whole = encode(&long).unwrap();
    assert!(whole.len() < MAX_BYTES);
    assert!(matches!(
        decode(&whole),
        Err(TimelineError::InflatedTooLarge)
    ));
    let read = decode(&encode_within(long, MAX_BYTES).unwrap()).unwrap();
    assert_eq!((read.cut, read.requests.len()), (1, 2));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
        let _ = decode(&bytes);
        let mut json = serde_json::to_vec(&timeline()).unwrap();
        let at = at.index(json.len());
        json[at] = byte;
        if let Ok(read) = decode(&gzip(&json)) {
            prop_assert!(fault(&read).is_none());
            prop_assert!(read.cells.as_ref().and_then(fault_of_cells).is_none());
        }
    }
}
