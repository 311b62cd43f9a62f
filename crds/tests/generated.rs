//! The generated files in the repository are what the types generate today.

use std::{fs, path::Path};

fn check(path: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    let actual = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        actual == expected,
        "{path} is stale; run `make generate` and commit it"
    );
}

#[test]
fn the_committed_crd_is_generated_from_the_types() {
    check(
        "crds/profilerequest.yaml",
        &phpprof_crds::crd_yaml().unwrap(),
    );
}

#[test]
fn the_charts_crd_is_the_same() {
    check(
        "charts/phpprof/files/profilerequest.yaml",
        &phpprof_crds::crd_yaml().unwrap(),
    );
}

#[test]
fn the_reference_page_is_generated_from_the_types() {
    check(
        "docs/reference/profilerequest.md",
        &phpprof_crds::reference::markdown().unwrap(),
    );
}

#[test]
fn the_exit_codes_are_those_of_the_contract() {
    let contract =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../contract/README.md"))
            .unwrap();
    let rows: Vec<&str> = contract
        .lines()
        .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
        .collect();
    let ours: Vec<String> = phpprof_crds::EXIT_CODES
        .iter()
        .map(|row| format!("| {} | {} | {} |", row.code, row.reasons, row.meaning))
        .collect();
    assert_eq!(rows, ours);
}
