//! The full receipt's counts of suspended fibers, and their rows in the profile of a snapshot:
//! pure.
//!
//! Invariant: a row of fibers has no value of a sample.

use phpprof_profile::dump::{DumpWorker, SUSPENDED, SuspendedFibers};
use phpprof_profile::{FrameRef, SampleTag, Writer};
use serde::Serialize;

use super::{frame_of, is_zero, values};
use crate::run::aggregate::StackSum;
use crate::run::fibers::FibersTold;
use crate::run::snapshot::Snapshot;

/// What was counted of suspended fibers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FiberCounts {
    pub visits: u64,
    pub most: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub unproven: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub workers_without_fibers: u64,
}

impl From<FibersTold> for FiberCounts {
    fn from(told: FibersTold) -> Self {
        Self {
            visits: told.visits,
            most: told.most,
            unproven: told.unproven,
            lost: told.lost,
            refused: told.refused,
            workers_without_fibers: told.without,
        }
    }
}

/// Adds the fibers of a worker, which are not samples.
pub(super) fn add_fibers(
    writer: &mut Writer,
    snapshot: &Snapshot,
    worker: &DumpWorker,
    labels: &[(String, String)],
) {
    for group in worker.fibers.iter().flatten() {
        let mut frames: Vec<_> = group.stack.iter().map(frame_of).collect();
        frames.push(FrameRef {
            name: SUSPENDED,
            ..FrameRef::default()
        });
        let given = labels.iter();
        let mut all: Vec<_> = given
            .map(|(key, value)| SampleTag::Str(key, value))
            .collect();
        all.extend(SuspendedFibers::labels(worker));
        let sum = StackSum {
            fibers: group.count,
            ..StackSum::default()
        };
        writer.add(&frames, &values(&sum, &snapshot.facts), &all);
    }
}
