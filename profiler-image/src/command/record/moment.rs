//! What a run delivers that looks at each worker once: where it is, or what is in its heap.

use phpprof::deliver::pprof::{HeapsProfile, OfSampler, ProfileFile, of_workers};
use phpprof::heap::{add_memory, each_heap};
use phpprof::now::{self, Begin};
use phpprof::run::snapshot::Snapshot;

use super::super::tell_unread_memory;
use super::RecordArguments;

/// The profile, with what the sampler has used at its end.
pub fn output(
    arguments: &RecordArguments,
    snapshot: &Snapshot,
    begin: &Begin,
    of_sampler: impl Fn() -> OfSampler,
) -> ProfileFile {
    let seen = &snapshot.facts.seen;
    if arguments.heap_snapshot {
        let mut heaps = HeapsProfile::begin(snapshot, &arguments.label);
        let late = each_heap(seen, &mut |tid, read| heaps.add(tid, read));
        tell_unread_memory(late);
        return heaps.finish(late, of_sampler());
    }
    let mut workers = now::workers(snapshot, &begin.look(seen));
    if arguments.heap {
        tell_unread_memory(add_memory(&mut workers, seen));
    }
    of_workers(snapshot, &workers, &arguments.label, of_sampler())
}
