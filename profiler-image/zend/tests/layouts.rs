//! The rows against the JSON that they are generated from.

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

/// What is read before the version is known must lie at the same place in all of them.
#[test]
fn what_the_version_is_read_from_is_the_same_in_all_rows() {
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
fn the_opcodes_of_calls_are_those_of_each_version() {
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
