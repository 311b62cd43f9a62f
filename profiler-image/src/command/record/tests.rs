//! What the command line of `record` takes, and what it refuses.

use clap::Parser as _;

use super::*;
use crate::{SamplerCli, SamplerCommand};

fn parsed(arguments: impl IntoIterator<Item = impl Into<String>>) -> RecordArguments {
    let arguments = arguments.into_iter().map(Into::into);
    let words = std::iter::once("phpprof".to_owned()).chain(arguments);
    match SamplerCli::try_parse_from(words).unwrap().command {
        SamplerCommand::Record(record) => *record,
        _ => panic!("another command"),
    }
}

#[test]
fn the_arguments_of_the_contract_are_understood() {
    let arguments: Vec<String> =
        serde_json::from_str(include_str!("../../../../contract/args.json")).unwrap();
    let record = parsed(arguments);
    assert_eq!(
        record.label[1],
        ("pod".to_owned(), "web-7d9f5c6b8-x2x4z".to_owned())
    );
    assert!(matches!(scope(&record), Ok(Some(Scope::Container(id))) if id.len() == 64));
}

#[test]
fn relays_arguments_for_a_resident_are_understood() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../contract/runs.json")).unwrap();
    let arguments = golden["answer"]["runs"][0]["arguments"].as_array().unwrap();
    let record = parsed(arguments.iter().map(|word| word.as_str().unwrap()));
    assert!(record.grants_on_stdin && record.output.is_none());
    assert_eq!(record.receipt.unwrap().as_os_str(), "-");
}

#[test]
fn host_may_ask_10000_hz_without_budget() {
    let record = parsed(["record", "--all", "-F", "10000", "--cpu-budget-percent=0"]);
    assert_eq!(record.samples_per_second, 10_000);
    assert_eq!(
        options(
            &record,
            10,
            StopSwitch::default(),
            None,
            RequestSettings::default()
        )
        .cpu_budget_percent,
        None
    );
}

#[test]
fn bad_arguments_are_refused() {
    for arguments in [
        &["record", "--all", "--pid=1"][..],
        &["record", "--all", "-d", "1d"],
        &["record", "--all", "-d", "25h"],
        &["record", "--all", "-d", "-1"],
        &["record", "--all", "-F", "0"],
        &["record", "--all", "-F", "10001"],
        &["record", "--all", "--cpu-budget-percent=-1"],
        &["record", "--all", "--grants-on-stdin", "-o", "x"],
        &["record", "--all", "--heap-snapshot", "--snapshot"],
    ] {
        assert!(
            SamplerCli::try_parse_from([&["phpprof"], arguments].concat()).is_err(),
            "{arguments:?}"
        );
    }
}

#[track_caller]
fn check_time(text: &str, expected: u64) {
    assert_eq!(time(&parsed(["record", "--all", "-d", text])), expected);
}

#[test]
fn a_time_has_a_unit_or_is_seconds() {
    check_time("30", 30);
    check_time("30s", 30);
    check_time("2m", 120);
    check_time("24h", 86_400);
    check_time("0", ENDLESS);
    check_time("0s", ENDLESS);
    assert_eq!(time(&parsed(["record", "--all"])), 10);
    let named = |name| time(&parsed(["record", "--all", name, "7"]));
    assert_eq!([named("--duration"), named("--duration-seconds")], [7, 7]);
}

#[test]
fn missing_target_lists_the_choices() {
    let failure = scope(&parsed(["record"])).unwrap_err();
    assert_eq!(failure.reason, Reason::Usage);
    assert!(failure.message.contains("--pid"), "{failure}");
}

#[test]
fn sha256_is_written_as_base64url() {
    let empty = digest::digest(&digest::SHA256, b"");
    assert_eq!(
        base64url(empty.as_ref()),
        "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    );
}

#[test]
fn arguments_of_a_heap_snapshot_are_understood() {
    let arguments: Vec<String> =
        serde_json::from_str(include_str!("../../../../contract/args_heap.json")).unwrap();
    let record = parsed(arguments);
    assert!(record.heap_snapshot && record.is_moment());
    let options = options(
        &record,
        1,
        StopSwitch::default(),
        None,
        RequestSettings::default(),
    );
    assert_eq!(options.duration, now::TAKES);
    assert!(options.include_idle && !options.heap);
}
