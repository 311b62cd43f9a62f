//! The full receipt's data about heaps: pure.
//!
//! Invariant: it takes less than half of a receipt's maximum size, whatever the names are.

use serde::Serialize;

use crate::request::asked::SampleLabel;
use crate::run::aggregate::{ANY_WORKER, StackSum};
use crate::run::heap::{HeapPeak, HeapTold};
use crate::run::snapshot::Snapshot;

/// How many functions of the highest heap's stack are listed, and the longest name: at four bytes a
/// letter they take less than half a receipt.
const PEAK_DEPTH: usize = 4;
const PEAK_NAME: usize = 80;

/// The data about the workers' heaps, if it was requested.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeapData {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<Peak>,
    /// Reads with inconsistent numbers.
    pub refused: u64,
    /// Workers whose heap cannot be read.
    pub without_heap: u64,
}

/// The highest heap of all workers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peak {
    pub peak_bytes: u64,
    /// The memory that the heap has taken from the system, to which the limit applies.
    pub real_peak_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The innermost functions, leaf first; empty if the peak is older than the first sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
}

impl HeapData {
    pub fn of(snapshot: &Snapshot, told: &HeapTold) -> Self {
        Self {
            highest: told.highest.map(|highest| Peak::of(snapshot, &highest)),
            refused: told.refused,
            without_heap: told.without_heap,
        }
    }
}

impl Peak {
    fn of(snapshot: &Snapshot, highest: &HeapPeak) -> Self {
        let settled = &snapshot.samples.settled;
        let stack = settled.settlement_of(highest.sample, ANY_WORKER, StackSum::default());
        let mut lines = Vec::new();
        if highest.is_seen {
            settled.lines(&stack, &mut lines);
        }
        let names = &snapshot.samples.names;
        let innermost = lines.iter().rev().take(PEAK_DEPTH);
        let told = snapshot.facts.requests.as_ref().map(|told| &told.table);
        let route = told.and_then(|table| {
            let mut labels = table.labels(highest.sample.labels);
            labels.find(|(key, _)| *key == SampleLabel::Route.key())
        });
        Self {
            peak_bytes: highest.sizes.peak,
            real_peak_bytes: highest.sizes.real_peak,
            limit_bytes: highest.sizes.limit,
            route: route.map(|(_, route)| short(route)),
            stack: innermost
                .map(|&(id, _)| short(&names.get(id).name.to_string()))
                .collect(),
        }
    }
}

/// A name, cut to the room in a receipt.
fn short(name: &str) -> String {
    name.chars().take(PEAK_NAME).collect()
}
