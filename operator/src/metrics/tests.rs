use phpprof_crds::{TargetReason, UploadRoute};

use super::*;
use crate::memory;

fn bounded() -> Metrics {
    Metrics::new(&MemoryBounds {
        parts: memory::parts(),
        limit: Some(512 << 20),
    })
}

#[test]
fn counters_have_conventional_names() {
    let metrics = bounded();
    metrics.ended("Complete");
    metrics.settled(&TargetStatus {
        state: TargetState::Uploaded,
        samples: Some(2970),
        quality: Some(phpprof_crds::ProfileQuality::default()),
        size_bytes: Some(12_345),
        upload_mode: Some(UploadRoute::Relay),
        ..TargetStatus::default()
    });
    // What heaps hold is no sample.
    metrics.settled(&TargetStatus {
        state: TargetState::Uploaded,
        samples: Some(1_000_000),
        ..TargetStatus::default()
    });
    metrics.settled(&TargetStatus {
        state: TargetState::Failed,
        reason: Some(TargetReason::NoPhpFound),
        ..TargetStatus::default()
    });
    metrics.injected("added", Duration::from_millis(20));
    metrics.called(None);
    let text = metrics.text(Now {
        running: 2,
        queued: 1,
        samplers: 7,
        is_halted: false,
        leads: true,
    });
    for line in [
        "phpprof_requests_total{reason=\"Complete\"} 1",
        "phpprof_requests_total{reason=\"MergeFailed\"} 0",
        "phpprof_requests_running 2",
        "phpprof_requests_queued 1",
        "phpprof_samplers_running 7",
        "phpprof_targets_total{reason=\"NoPhpFound\"} 1",
        "phpprof_samples_total 2970",
        "phpprof_uploads_total{route=\"Relay\"} 1",
        "phpprof_uploaded_bytes_total 12345",
        "phpprof_injections_total{result=\"added\"} 1",
        "phpprof_injection_duration_seconds_count 1",
        "phpprof_api_calls_total{code=\"0\"} 1",
        "phpprof_profiling_stopped 0",
        "phpprof_memory_most_bytes{part=\"uploads\"} 117440512",
        "phpprof_memory_limit_bytes 536870912",
        "phpprof_lease_held 1",
        "phpprof_store_errors_total{operation=\"put\",kind=\"throttled\"} 0",
        "phpprof_store_create_only -1",
        "phpprof_connections_open{port=\"relay\"} 0",
        "phpprof_connections_closed_total{port=\"health\",reason=\"refused\"} 0",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(text.ends_with("# EOF\n") && text.contains("process_resident_memory_bytes "));
}

/// The label names of a metric's first series.
fn labels(text: &str, name: &str) -> String {
    let mut series = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.split_once('{'));
    let Some((_, rest)) = series.next() else {
        return String::new();
    };
    let named = rest
        .split("\",")
        .filter_map(|label| label.split('=').next());
    let named = named.filter(|label| *label != "le");
    named
        .map(|label| format!("`{label}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Generates docs/reference/metrics.md from a scrape.
fn reference(text: &str) -> String {
    let mut page = String::from(
        "# Metrics of the operator\n\n`/metrics` on port 8081 ([how to scrape it](../guides/grafana.md#phpprof-itself)). \
         A test compares this page with the metrics.\n\n| name | type | labels | what |\n|---|---|---|---|\n",
    );
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
    for (name, words) in helps.filter_map(|help| help.split_once(' ')) {
        let kind = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")))
            .unwrap_or_default();
        let (end, labels) = match kind {
            "counter" => ("_total", labels(text, name)),
            "info" => ("_info", labels(text, name)),
            _ => ("", labels(text, name)),
        };
        let words = words.trim_end_matches('.');
        page += &format!("| `{name}{end}` | {kind} | {labels} | {words} |\n");
    }
    page
}

#[test]
fn the_reference_says_every_metric() {
    let text = bounded().text(Now::default());
    let page = reference(&text);
    assert_eq!(
        page,
        include_str!("../../../docs/reference/metrics.md"),
        "docs/reference/metrics.md shall be\n{page}"
    );
}
