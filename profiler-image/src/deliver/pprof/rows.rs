//! The frames and the labels of one row.
//!
//! Invariant: a label says only what the sampler knows, not what a leaf's name says.

use phpprof_profile::labels::{OF_ENGINES, OF_WORKERS};
use phpprof_profile::waiting;
use phpprof_profile::{FrameRef, SampleTag};
use smallvec::SmallVec;

use crate::run::snapshot::Snapshot;
use crate::stack::names::NameId;
use crate::target::process::held::Held;

/// The frames of a stack, the leaf first.
pub(super) fn frames<'a>(snapshot: &'a Snapshot, lines: &[(NameId, u32)]) -> Vec<FrameRef<'a>> {
    let frame = |&(id, line): &(NameId, u32)| {
        let name = snapshot.samples.names.get(id);
        FrameRef {
            name: name.name,
            file: name.file,
            start_line: name.start_line.into(),
            line: line.into(),
        }
    };
    lines.iter().rev().map(frame).collect()
}

/// The labels of a worker. A container may run several PHP versions, so each sample has its own.
pub(super) fn of_worker(snapshot: &Snapshot, tid: i32) -> Option<SmallVec<[SampleTag<'_>; 4]>> {
    let worker = snapshot.seen.get(&tid)?;
    let ([php, sapi], [pid, thread]) = (OF_ENGINES, OF_WORKERS);
    let mut labels = SmallVec::from_iter([
        SampleTag::Str(php, &worker.engine.version),
        SampleTag::Str(sapi, &worker.engine.sapi),
        SampleTag::Num(pid, i64::from(worker.pid), ""),
    ]);
    if worker.engine.is_thread_safe() {
        labels.push(SampleTag::Num(thread, i64::from(tid), ""));
    }
    Some(labels)
}

/// The label of a worker that cannot go on, or waits for a CPU. A leaf that names what it waits for says more than that
/// it waits for a disk.
pub(super) fn waits(held: Held, leaf: Option<&FrameRef<'_>>) -> Option<SampleTag<'static>> {
    let says = || leaf.is_some_and(|leaf| waiting::kind(leaf.name).is_some());
    match held {
        Held::Stopped => Some(SampleTag::Str(waiting::LABEL, waiting::STOPPED)),
        Held::Disk if !says() => Some(SampleTag::Str(waiting::LABEL, waiting::DISK)),
        Held::Cpu => Some(SampleTag::Str(waiting::LABEL, waiting::CPU)),
        Held::Disk | Held::No => None,
    }
}
