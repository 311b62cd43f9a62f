//! The most memory that the operator can need, whatever others do.
//!
//! Invariant: the sum is below `resources.limits.memory` of the chart. A test checks this.

use phpprof_profile::{DecodeLimits as Bounds, MergeLimits, timeline};

use crate::http::{alerts, health, live, relay, results, tls, verdict};
use crate::reconcile::{calls, watches};
use crate::storage::{archive, collector, comparison, requests};

/// The largest object that an API server stores (etcd's `--max-request-bytes`).
const LARGEST_OBJECT: usize = 3 << 19;
/// An answer is in memory as received and as objects, which take up to twice as much.
const COPIES: usize = 3;
/// A row of a profile while the merge chooses the rows to keep.
const CHOSEN_ROW: usize = 80;
/// The buffers of TLS of a connection.
const TLS: usize = 32 << 10;
/// The file of a merged profile while it grows.
const MERGED_FILE: usize = 32 << 20;
/// The program, its tables of running requests, and memory that the allocator does not return.
const BASE: usize = 24 << 20;

/// Each part, in bytes.
#[must_use]
pub fn parts() -> Vec<(&'static str, usize)> {
    let upload: Bounds = collector::bounds();
    // An upload, or a merged profile from which a page is drawn, or its list of requests, or
    // alerts.
    let opened = (upload.compressed_bytes + upload.memory_bytes)
        .max(results::LARGEST_DRAWN + results::NAMES_DRAWN)
        .max(results::LIST_DRAWN)
        .max(alerts::PARSED);
    let merge = MergeLimits::default();
    let relay_room = relay::ROOM as usize * relay::UNIT;
    // A request for results has next to no body. Of an upload, two parts are in memory before they
    // have room.
    let plain = [health::BOUNDS, results::BOUNDS].map(|it| it.connections * it.buffer);
    let uploading = tls::BOUNDS.connections * (2 * tls::BOUNDS.buffer + TLS);
    vec![
        ("base", BASE),
        (
            "page of a watch",
            watches::PAGE as usize * LARGEST_OBJECT * COPIES,
        ),
        (
            "answers to calls",
            calls::OBJECTS as usize * LARGEST_OBJECT * COPIES,
        ),
        (
            "connections",
            plain.iter().sum::<usize>() + uploading + verdict::PAYLOADS + alerts::PAYLOADS,
        ),
        ("bodies of the relay", relay_room),
        (
            "live seconds",
            live::ROOM + results::LIVE_AT_ONCE * results::LARGEST_LIVE * 2,
        ),
        ("uploads", collector::AT_ONCE * opened),
        (
            "merging",
            // The lists of requests are merged after the profiles, and profiles are compared, under
            // the same permit.
            (merge.bytes + upload.samples * CHOSEN_ROW + MERGED_FILE)
                .max(requests::OPENED)
                .max(comparison::OPENED),
        ),
        (
            "archive",
            archive::REMEMBERED * archive::SUMMARY + archive::ROOM as usize,
        ),
        ("export", collector::LARGEST_TOLD),
        ("flame graph", results::LARGEST_PAGE + timeline::MAX_BYTES),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = include_str!("../../charts/phpprof/values.yaml");

    #[test]
    fn held_memory_fits_into_the_charts_limit() {
        let limit = VALUES.split("limits: {memory: ").nth(1);
        let limit = limit.and_then(|rest| rest.split("Mi}").next()?.parse::<usize>().ok());
        let limit = limit.expect("values.yaml has limits: {memory: …Mi}") << 20;
        let sum: usize = parts().iter().map(|(_, bytes)| bytes).sum();
        let mib: Vec<_> = parts()
            .iter()
            .map(|(what, bytes)| (*what, bytes >> 20))
            .collect();
        assert!(sum <= limit, "{} MiB: {mib:?}", sum >> 20);
        assert!(limit <= 512 << 20);
    }
}
