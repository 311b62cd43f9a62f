//! `describe`: a request and each of its pods, in words.
//!
//! It is pure, except for the caller's `get`.
//!
//! Invariant: every failure is shown with its remedy.

use jiff::Timestamp;
use phpprof_crds::{RequestReason, TargetReason};
use phpprof_profile::Finding;

use crate::duration::age;
use crate::explain::named;
use crate::findings;
use crate::request::{RequestView, TargetView};
use crate::suggest::Suggest;
use crate::table::{Table, cut, printable};

pub fn text(
    request: &RequestView<'_>,
    found: &[Finding],
    suggest: &Suggest,
    width: Option<usize>,
    now: Timestamp,
) -> String {
    let mut text = facts(request, now);
    text.push_str("\nConditions:\n");
    let mut conditions = Table::new(&["TYPE", "STATUS", "REASON", "AGE", "~MESSAGE"]);
    for condition in request.conditions() {
        let words = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let since: Option<Timestamp> = words("lastTransitionTime").parse().ok();
        conditions.row(vec![
            words("type"),
            words("status"),
            words("reason"),
            since.map_or_else(
                || "-".to_owned(),
                |since| age(now.as_second() - since.as_second()),
            ),
            words("message"),
        ]);
    }
    text.push_str(&indented(
        &conditions.text(width.map(|width| width.saturating_sub(2))),
    ));
    let targets: Vec<_> = request.targets().collect();
    if !targets.is_empty() {
        text.push_str("\nPods:\n");
        text.push_str(&indented(
            &pods(&targets, is_of_heaps(request)).text(width.map(|width| width.saturating_sub(2))),
        ));
    }
    text.push_str(&rates(request, &targets, width));
    text.push_str(&not_sampled(&targets, width));
    text.push_str(&unseen(&targets, width));
    text.push_str(&remedies(request, &targets, width));
    text.push_str(&findings::brief(found, &request.name(), suggest, width));
    text
}

fn facts(request: &RequestView<'_>, now: Timestamp) -> String {
    let count = |field: &str| request.number(&format!("/status/{field}"));
    let container = container(request);
    let profile = match request.words("/status/profile/url") {
        "" => "none".to_owned(),
        url => format!(
            "{url} ({} {}, {} bytes)",
            request.number("/status/profile/samples"),
            if is_of_heaps(request) {
                "objects, arrays and strings"
            } else {
                "samples"
            },
            request.number("/status/profile/sizeBytes")
        ),
    };
    let sampling = if is_of_heaps(request) {
        "once, of what is in the heaps".to_owned()
    } else {
        format!(
            "{}s, {} samples per second",
            request.number("/spec/durationSeconds"),
            request.number("/spec/samplesPerSecond")
        )
    };
    let rows = [
        ("Name", request.name()),
        ("Namespace", request.namespace()),
        ("Age", age(request.age(now))),
        (
            "Target",
            format!("{}, container {container}", request.target_words()),
        ),
        ("Sampling", sampling),
        (
            "Pods",
            format!(
                "{} matched, {} selected, {} active, {} done, {} failed",
                count("matched"),
                count("selected"),
                count("active"),
                count("succeeded"),
                count("failed")
            ),
        ),
        ("Profile", profile),
    ];
    rows.iter()
        .map(|(key, value)| format!("{:<11}{}\n", format!("{key}:"), printable(value)))
        .collect()
}

/// The container that the request names, else the one that the operator has chosen, and why.
fn container(request: &RequestView<'_>) -> String {
    let named = request.words("/spec/target/containerName");
    let Some(target) = request.targets().next().filter(|_| named.is_empty()) else {
        return match named {
            "" => "not chosen yet".to_owned(),
            name => name.to_owned(),
        };
    };
    let why = match target.words("/containerChoice") {
        "Annotation" => ", by the pod's annotation",
        "Name" => ", by its name",
        "Image" => ", by its image",
        _ => "",
    };
    format!("{}{why}", target.words("/containerName"))
}

/// Whether it is of what is in heaps, so that nothing was sampled over time.
fn is_of_heaps(request: &RequestView<'_>) -> bool {
    request.words("/spec/mode") == "Heap"
}

fn pods(targets: &[TargetView<'_>], is_of_heaps: bool) -> Table {
    let counted = if is_of_heaps { ">OBJECTS" } else { ">SAMPLES" };
    let mut table = Table::new(&[
        "POD",
        "?NODE",
        "STATE",
        "REASON",
        "~PHP",
        ">WORKERS",
        counted,
        ">?LATE",
        ">?UNSTABLE",
    ]);
    let number =
        |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let or_dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    for target in targets {
        let version = target.words("/php/version");
        let php = match version {
            "" => "-".to_owned(),
            version => format!("{version} {}", target.words("/php/sapi")),
        };
        table.row(vec![
            target.pod().to_owned(),
            or_dash(target.words("/nodeName")),
            target.state().to_owned(),
            or_dash(target.reason()),
            php,
            number(target.number("/workers")),
            number(target.number("/samples")),
            number(target.number("/quality/late")),
            unstable(target).unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

/// As a share of the busy samples, because an idle worker's sample cannot be unstable.
fn unstable(target: &TargetView<'_>) -> Option<String> {
    let quality = |field: &str| target.number(&format!("/quality/{field}"));
    let busy = quality("taken")?.saturating_sub(quality("idle")?);
    let share = 100.0 * quality("unstable")? as f64 / busy as f64;
    (busy > 0).then(|| format!("{share:.2} %"))
}

/// The pods whose sampler could not keep the requested rate, with a tolerance of five percent:
/// single turns come late on each node.
fn rates(request: &RequestView<'_>, targets: &[TargetView<'_>], width: Option<usize>) -> String {
    let asked = request.number("/spec/samplesPerSecond");
    let slow = targets.iter().filter_map(|target| {
        let kept = target.decimal("/effectiveSamplesPerSecond")?;
        (kept < 0.95 * asked as f64).then(|| {
            let pod = printable(target.pod());
            let line = format!("  {pod}: {kept:.1} samples per second instead of {asked}");
            cut(&line, width.unwrap_or(usize::MAX)) + "\n"
        })
    });
    let slow: String = slow.collect();
    if slow.is_empty() {
        return slow;
    }
    format!(
        "\nSampled less often than requested:\n{slow}    {}\n",
        "The sampler reached its CPU budget (limits.samplerCPUPercent in the chart), or its node had no CPU left: set a lower --samples-per-second, or raise the budget."
    )
}

/// The pods with workers that are in no sample.
fn not_sampled(targets: &[TargetView<'_>], width: Option<usize>) -> String {
    let missing = targets.iter().filter_map(|target| {
        let missing = target.number("/workersNotSampled")?;
        let line = format!("  {}: {missing} workers", printable(target.pod()));
        Some(cut(&line, width.unwrap_or(usize::MAX)) + "\n")
    });
    let missing: String = missing.collect();
    if missing.is_empty() {
        return missing;
    }
    format!(
        "\nNot sampled:\n{missing}    {}\n",
        "The sampler's limit of open files is too low: raise it on the node (LimitNOFILE of the container runtime), or profile a container with fewer workers."
    )
}

/// The pods with processes that lived too briefly for a sample.
fn unseen(targets: &[TargetView<'_>], width: Option<usize>) -> String {
    let missed = targets.iter().filter_map(|target| {
        let processes = target.number("/missed/processes")?;
        let milliseconds = target.number("/missed/cpuMilliseconds")?;
        let pod = printable(target.pod());
        let line = format!("  {pod}: up to {processes} processes, {milliseconds} ms of CPU time");
        Some(cut(&line, width.unwrap_or(usize::MAX)) + "\n")
    });
    let missed: String = missed.collect();
    if missed.is_empty() {
        return missed;
    }
    format!(
        "\nToo short-lived for a sample:\n{missed}    {}\n",
        "They came and went between two samples, or are other programs that PHP has run. A higher --samples-per-second sees more of them."
    )
}

/// Each reason once, with its meaning here and its remedy.
fn remedies(request: &RequestView<'_>, targets: &[TargetView<'_>], width: Option<usize>) -> String {
    let mut seen = Vec::new();
    let mut text = String::new();
    let of_targets = targets.iter().filter(|target| !target.reason().is_empty());
    let of_request = named(request.reason()).and_then(RequestReason::remedy);
    let all = std::iter::once((request.reason(), "", of_request)).chain(of_targets.map(|target| {
        let of_pod = named(target.reason()).map(TargetReason::remedy);
        (target.reason(), target.words("/message"), of_pod)
    }));
    for (reason, message, remedy) in all {
        let Some(remedy) = remedy.filter(|_| !seen.contains(&reason)) else {
            continue;
        };
        seen.push(reason);
        // A message ends with the remedy, which is shown completely below it.
        let found = message.strip_suffix(remedy).unwrap_or(message);
        let line = format!("  {reason}: {}", printable(found));
        text.push_str(&cut(line.trim_end(), width.unwrap_or(usize::MAX)));
        text.push_str(&format!("\n    {remedy}\n"));
    }
    if text.is_empty() {
        return text;
    }
    format!("\nWhat to do:\n{text}")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
