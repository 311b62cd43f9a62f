//! What is generated from `contract/reasons.yaml` is as the list says it today.

use std::fs;
use std::path::Path;

use phpprof_documents::reasons::{LIST, PAGES, Reasons};
use phpprof_documents::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}

fn reasons() -> Reasons {
    Reasons::parse(&read(LIST)).expect("contract/reasons.yaml is a list of reasons")
}

#[track_caller]
fn check(path: &str, expected: &str) {
    assert!(
        read(path) == expected,
        "{path} is stale; run `make generate` and commit it"
    );
}

#[test]
fn tables_in_rust_and_reference_are_generated() {
    let files = reasons().files();
    assert_eq!(files.len(), 4);
    for (path, text) in files {
        check(path, &text);
    }
}

#[test]
fn tables_of_pages_are_generated() {
    for path in PAGES {
        check(path, &reasons().tables(&read(path)).unwrap());
    }
}

/// All sources of the operator, without those of tests.
fn operator(folder: &Path) -> String {
    let mut sources = String::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" || name == "testing" {
            continue;
        }
        sources += &if path.is_dir() {
            operator(&path)
        } else {
            fs::read_to_string(&path).expect("a source")
        };
    }
    sources
}

#[test]
fn each_event_of_the_list_is_written() {
    let sources = operator(&root().join("operator/src"));
    let reasons = reasons();
    let unused: Vec<_> = reasons
        .of_events()
        .filter(|reason| !sources.contains(&format!("EventReason::{reason}")))
        .collect();
    assert!(unused.is_empty(), "the operator has no event {unused:?}");
}

#[test]
fn the_guide_has_every_failure_of_a_sampler() {
    let contract = read(PAGES[0]);
    let guide = read(PAGES[1]);
    let rows = contract.lines().filter_map(|line| {
        let (code, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let code: u8 = code.parse().ok()?;
        (code > 0).then(|| (code, rest.split(" |").next().unwrap_or_default()))
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 20, "{rows:?}");
    for (code, reason) in rows {
        let row = format!("\n| {reason} | {code} |");
        assert!(guide.contains(&row), "the guide lacks {reason}");
    }
}
