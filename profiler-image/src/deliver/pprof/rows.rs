//! The frames and the labels of one row.
//!
//! Invariant: a label says only what the sampler knows, not what a leaf's name says.

use phpprof_profile::dump::DumpFrame;
use phpprof_profile::labels::{OF_ENGINES, OF_WORKERS};
use phpprof_profile::waiting;
use phpprof_profile::{FrameRef, SampleTag};
use smallvec::SmallVec;

use crate::run::snapshot::Snapshot;
use crate::stack::names::{KeptName, NameId, PiecedText};
use crate::target::process::held::Held;

/// The frames of a stack, the leaf first. `texts` is memory for their names.
pub(super) fn frames<'a>(
    snapshot: &Snapshot,
    lines: &[(NameId, u32)],
    texts: &'a mut String,
) -> Vec<FrameRef<'a>> {
    let names = &snapshot.samples.names;
    texts.clear();
    for &(id, _) in lines {
        let KeptName { name, file, .. } = names.get(id);
        texts.extend(name.pieces());
        texts.extend(file.pieces());
    }
    let mut rest: &'a str = texts;
    let mut take = |text: PiecedText<'_>| {
        let length = text.pieces().iter().map(|piece| piece.len()).sum();
        let (taken, after) = rest.split_at(length);
        rest = after;
        taken
    };
    let frame = |&(id, line): &(NameId, u32)| {
        let kept = names.get(id);
        FrameRef {
            name: take(kept.name),
            file: take(kept.file),
            start_line: kept.start_line.into(),
            line: line.into(),
        }
    };
    let mut frames: Vec<_> = lines.iter().map(frame).collect();
    frames.reverse();
    frames
}

/// The frame of a worker's stack in a snapshot.
pub(super) fn frame_of(frame: &DumpFrame) -> FrameRef<'_> {
    FrameRef {
        name: &frame.function,
        file: &frame.file,
        start_line: 0,
        line: frame.line,
    }
}

/// The labels of a worker. A container may run several PHP versions, so each sample has its own.
pub(super) fn of_worker(snapshot: &Snapshot, tid: i32) -> Option<SmallVec<[SampleTag<'_>; 4]>> {
    let worker = snapshot.facts.seen.get(&tid)?;
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

/// The label of a worker that cannot go on, or waits for a CPU. A leaf that names what it waits for
/// says more than that it waits for a disk.
pub(super) fn waits(held: Held, leaf: Option<&FrameRef<'_>>) -> Option<SampleTag<'static>> {
    let says = || leaf.is_some_and(|leaf| waiting::kind(leaf.name).is_some());
    match held {
        Held::Stopped => Some(SampleTag::Str(waiting::LABEL, waiting::STOPPED)),
        Held::Disk if !says() => Some(SampleTag::Str(waiting::LABEL, waiting::DISK)),
        Held::Cpu => Some(SampleTag::Str(waiting::LABEL, waiting::CPU)),
        Held::Disk | Held::No => None,
    }
}
