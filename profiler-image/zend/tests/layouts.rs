//! Compares the rows with the JSON from which they are generated.

use std::collections::BTreeSet;

use phpprof_zend::layouts::{Machine, ROWS, layout_of};
use phpprof_zend::op;

#[path = "../examples/layouts.rs"]
mod generate;

const JSON: &str = include_str!("../src/layouts/php-abi.json");

fn json() -> serde_json::Result<serde_json::Value> {
    serde_json::from_str(JSON)
}

#[test]
fn the_rows_are_those_of_the_json() {
    let rows = include_str!("../src/layouts/rows.rs");
    assert!(
        generate::rows(JSON).unwrap() == rows,
        "rows.rs is stale: run `make generate`"
    );
}

#[test]
fn each_version_has_a_row_for_each_machine() {
    let json = json().unwrap();
    let versions = json["rows"].as_array().unwrap();
    assert_eq!(ROWS.len(), versions.len() * 2);
    for row in versions {
        let (major, minor) = row["version"].as_str().unwrap().split_once('.').unwrap();
        let find =
            |machine| layout_of(machine, major.parse().unwrap(), minor.parse().unwrap()).unwrap();
        let fields = &row["fields"];
        let aarch64 = row["aarch64"].as_object().unwrap();
        for (layout, name, expected) in [
            (find(Machine::X86_64), "x86_64", fields),
            (find(Machine::Aarch64), "aarch64", fields),
        ] {
            let expected = |key: &str| {
                let own = aarch64.get(key).filter(|_| name == "aarch64");
                own.unwrap_or(&expected[key]).as_u64().unwrap()
            };
            assert_eq!(
                layout.executor_globals.current_execute_data as u64,
                expected("zend_executor_globals.current_execute_data")
            );
            assert_eq!(
                layout.execute_data.prev_execute_data as u64,
                expected("zend_execute_data.prev_execute_data")
            );
            assert_eq!(
                layout.sapi_globals.global_request_time,
                expected("sapi_globals_struct.global_request_time")
            );
        }
    }
}

/// Fields that are read before the version is known must have the same offsets in all rows.
#[test]
fn version_is_read_alike_in_all_rows() {
    for row in ROWS {
        assert_eq!(row.module_entry, ROWS[0].module_entry);
        assert_eq!(row.zend_string, ROWS[0].zend_string);
        assert_eq!(row.zend_op, ROWS[0].zend_op);
        let array = |row: &phpprof_zend::Layout| {
            let mut array = row.zend_array.clone();
            array.is_indirect = 0;
            array
        };
        assert_eq!(array(row), array(&ROWS[0]));
    }
}

#[test]
fn call_opcodes_are_each_versions() {
    for row in json().unwrap()["rows"].as_array().unwrap() {
        for (name, number) in op::CALL_OPCODES {
            let stated = row["opcodes"]
                .get(*name)
                .and_then(serde_json::Value::as_u64);
            assert!(
                stated.is_none_or(|stated| stated == u64::from(*number)),
                "{name} in {}",
                row["version"]
            );
        }
        let yield_from = row["opcodes"]["YIELD_FROM"].as_u64().unwrap();
        assert!(op::is_yield_from(u8::try_from(yield_from).unwrap()));
    }
}

/// All opcodes that push a frame and do not mark it as `zend_call_function` does: DO_* makes a call
/// that an INIT_* has prepared, the FRAMELESS_* replace it, an include runs a file, and from 8.4 on
/// a property's hook runs in place.
const PUSH_FRAMES: [&str; 11] = [
    "DO_FCALL",
    "DO_ICALL",
    "DO_UCALL",
    "DO_FCALL_BY_NAME",
    "INCLUDE_OR_EVAL",
    "FETCH_OBJ_R",
    "FETCH_OBJ_FUNC_ARG",
    "FRAMELESS_ICALL_0",
    "FRAMELESS_ICALL_1",
    "FRAMELESS_ICALL_2",
    "FRAMELESS_ICALL_3",
];

#[test]
fn frame_pushing_ops_are_each_versions() {
    let json = json().unwrap();
    let rows = json["rows"].as_array().unwrap();
    let mut named = BTreeSet::new();
    for row in rows {
        let opcodes = row["opcodes"].as_object().unwrap();
        let since = |name: &&&str| !name.starts_with("FRAMELESS") || row["version"] == "8.4";
        for name in PUSH_FRAMES.iter().filter(since) {
            assert!(opcodes.contains_key(*name), "{name} in {}", row["version"]);
        }
        for (name, number) in opcodes {
            let number = u8::try_from(number.as_u64().unwrap()).unwrap();
            let pushes = PUSH_FRAMES.contains(&name.as_str());
            let version = &row["version"];
            assert_eq!(op::may_push_frame(number), pushes, "{name} in {version}");
            named.extend(pushes.then_some(number));
        }
    }
    let ours: BTreeSet<u8> = (0..=u8::MAX).filter(|&op| op::may_push_frame(op)).collect();
    assert_eq!(ours, named);
}
