//! What each worker's memory is made of: its heap by the memory manager's own structures
//! (`zend::heap::account`), its objects by class (`zend::heap::objects`), its process by the
//! kernel, and opcache's shared memory.
//!
//! It is read once, after the sampling loop, and only if somebody asked for it. Invariants: nothing
//! but sizes, counts and names of classes and closures comes out; a heap is said to be of one
//! moment only if the kernel's counts prove that its worker did not run while it was read.

mod classes;
mod held;
mod moment;
mod place;
mod process;
mod shared;
mod tries;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use phpprof_profile::dump::{BinReport, DumpWorker, HeapReport, LostReport, MemoryReport};
use phpprof_zend::heap::account::{self, MmAccount, MmLosses, MmRefusal};
use phpprof_zend::heap::bins;
use phpprof_zend::heap::holders::HeldMemory;

use crate::run::WorkerLabels;
use crate::target::process::ProcessMemory;
pub use held::ReadHeld;
use moment::OffCpu;
use shared::{LastShared, SharedByThreads};
pub use tries::{HeapContents, HeapRead};
use tries::{HeapTry, best_try};

/// How long the memory of all workers may take together; that of further ones is not read.
const MOST_TIME: Duration = Duration::from_secs(10);
/// Why there are no classes if the time was over before the last try.
pub const NO_TIME: &str = "there was no time to count them";

/// What is read of a heap besides its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeapPart {
    /// The classes of its objects, and who holds those of the largest.
    Classes,
    /// All that is in it.
    All,
}

/// Reads the memory of these workers, and returns for how many there was no time.
pub fn add_memory(workers: &mut [DumpWorker], seen: &HashMap<i32, WorkerLabels>) -> usize {
    let until = Instant::now() + MOST_TIME;
    add_until(workers, seen, until, SharedByThreads::read)
}

fn add_until(
    workers: &mut [DumpWorker],
    seen: &HashMap<i32, WorkerLabels>,
    until: Instant,
    read: impl Fn(i32) -> SharedByThreads,
) -> usize {
    let mut left_out = 0;
    let mut last = LastShared::default();
    // Threads of a process follow each other.
    let mut by_process: Vec<&mut DumpWorker> = workers.iter_mut().collect();
    by_process.sort_by_key(|worker| worker.pid);
    for worker in by_process {
        let tid = i32::try_from(worker.thread.unwrap_or(worker.pid)).unwrap_or(0);
        let Some(labels) = seen.get(&tid) else {
            continue;
        };
        if Instant::now() >= until {
            left_out += 1;
            continue;
        }
        let shared = last.of(labels.pid, &read);
        worker.memory = Some(report(tid, labels, shared, until));
    }
    left_out
}

/// Reads all that is in the heaps of these workers, and hands each over with its thread's id, or
/// why it was not read. Returns for how many there was no time.
pub fn each_heap(
    seen: &HashMap<i32, WorkerLabels>,
    each: &mut dyn FnMut(i32, Result<HeapRead, String>),
) -> usize {
    let until = Instant::now() + MOST_TIME;
    let mut left_out = 0;
    let mut last = LastShared::default();
    // Threads of a process follow each other. Both ids are positive.
    let of_thread = |(&tid, it): (&i32, &WorkerLabels)| (it.pid as u64) << 32 | tid as u64;
    let mut by_process: Vec<u64> = seen.iter().map(of_thread).collect();
    by_process.sort_unstable();
    for ids in by_process {
        let (pid, tid) = ((ids >> 32) as i32, ids as u32 as i32);
        let Some(labels) = seen.get(&tid).filter(|_| Instant::now() < until) else {
            left_out += 1;
            continue;
        };
        let shared = last.of(pid, SharedByThreads::read);
        each(tid, of_worker(tid, labels, shared, until, HeapPart::All));
    }
    left_out
}

/// Reads a part of the heap of a worker of this process.
fn of_worker(
    tid: i32,
    seen: &WorkerLabels,
    shared: &SharedByThreads,
    until: Instant,
    part: HeapPart,
) -> Result<HeapRead, String> {
    let memory = shared.memory.as_ref().map_err(ToString::to_string)?;
    let read = heap(memory, tid, seen, &shared.maps, until, part);
    read.map_err(|refusal| refusal.to_string())
}

fn report(tid: i32, seen: &WorkerLabels, shared: &SharedByThreads, until: Instant) -> MemoryReport {
    let mut report = MemoryReport {
        process: shared.resident,
        opcache: shared.opcache,
        ..MemoryReport::default()
    };
    match of_worker(tid, seen, shared, until, HeapPart::Classes) {
        Ok(read) => {
            report.heap = Some(read.heap);
            match read.contents {
                Some(Ok(HeapContents::Classes(classes))) => {
                    report.classes = Some(classes.within_a_label());
                }
                Some(Err(refusal)) => report.without_classes = Some(refusal.to_string()),
                // Only classes are wanted here.
                Some(Ok(HeapContents::All { .. })) | None => {
                    report.without_classes = Some(NO_TIME.to_owned());
                }
            }
        }
        Err(refusal) => report.without_heap = Some(refusal),
    }
    report
}

/// Reads a heap and its objects until a read is of one moment, and returns the best read.
fn heap(
    memory: &ProcessMemory,
    tid: i32,
    seen: &WorkerLabels,
    maps: &str,
    until: Instant,
    part: HeapPart,
) -> Result<HeapRead, MmRefusal> {
    let engine = &seen.engine;
    let layout = engine.layout;
    let read = |is_last: bool| {
        let off = OffCpu::begin(seen.pid, tid);
        let stayed = || off.as_ref().is_some_and(OffCpu::stayed);
        let found = place::find(memory, engine, maps).ok_or(MmRefusal::NoHeap);
        let read = found.and_then(|heap| account::read(memory, layout, heap));
        let read = read.map(|read| {
            let heap = heap_report(&read.account, stayed());
            // They take most of the time: of accounts that are torn, only the last one has them.
            let has_contents = stayed() || is_last;
            let contents = has_contents.then(|| {
                let place = HeldMemory {
                    memory,
                    layout,
                    blocks: &read.blocks,
                    executor_globals: engine.executor_globals,
                    compiler_globals: engine.phase_globals.compiler_globals.unwrap_or(0),
                };
                let is_moment = || heap.is_moment && stayed();
                Ok(match part {
                    HeapPart::Classes => {
                        let read = classes::read(&place, until)?;
                        HeapContents::Classes(classes::report(read, is_moment()))
                    }
                    HeapPart::All => HeapContents::All {
                        held: Box::new(ReadHeld::read(&place, until)?),
                        is_moment: is_moment(),
                    },
                })
            });
            HeapRead { heap, contents }
        });
        let stayed = stayed();
        HeapTry { read, stayed }
    };
    best_try(read, until)
}

/// The report of an account.
fn heap_report(account: &MmAccount, stayed_off_cpu: bool) -> HeapReport {
    let MmLosses {
        chunks,
        pages,
        lists,
        huge,
    } = account.losses;
    let lost = LostReport {
        chunks,
        pages,
        free_lists: lists,
        huge_lists: huge,
    };
    let bins = account.bins.iter().zip(&bins::ALL);
    HeapReport {
        is_moment: stayed_off_cpu && account.is_steady,
        size: account.sizes.size,
        peak: account.sizes.peak,
        real_size: account.real_size,
        real_peak: account.sizes.real_peak,
        limit: account.sizes.limit,
        small: account.small_bytes(),
        large: account.large_bytes(),
        large_blocks: account.large_runs,
        huge: account.huge_bytes,
        huge_blocks: account.huge_blocks,
        unaccounted: account.unaccounted(),
        free_in_bins: account.free_bytes(),
        reclaimable: account.reclaimable(),
        free_pages: account.free_pages,
        chunks: account.chunks,
        cached_chunks: account.cached_chunks,
        bins: bins
            .filter(|(uses, _)| uses.runs > 0)
            .map(|(uses, bin)| BinReport {
                size: bin.size,
                pages: uses.runs * bin.pages as u64,
                used: uses.used,
                free: uses.free,
            })
            .collect(),
        lost: (lost != LostReport::default()).then_some(lost),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use phpprof_profile::dump::DumpState;
    use phpprof_zend::layouts::ROWS;
    use phpprof_zend::testing::IS_NULL;
    use phpprof_zend::testing::heap::HeapImage;

    use super::*;
    use crate::sample::tests::Scene;

    fn image() -> HeapImage {
        let mut image = HeapImage::new(&ROWS[0]);
        let run = image.small(6);
        image.free(6, &[(run, 3), (run, 5)]);
        image.large(10);
        image.huge(3 << 20);
        image.settle();
        image
    }

    fn report_of(image: &HeapImage, stayed: bool) -> HeapReport {
        let read = account::read(image.memory(), &ROWS[0], image.heap()).unwrap();
        heap_report(&read.account, stayed)
    }

    #[test]
    fn report_has_sizes_in_use_and_free() {
        let image = image();
        let report = report_of(&image, true);
        assert_eq!((report.size, report.unaccounted), (image.size(), 0));
        assert_eq!(report.small + report.large + report.huge, report.size);
        let of_objects = BinReport {
            size: 56,
            pages: 1,
            used: 71,
            free: 2,
        };
        assert_eq!(report.bins.last(), Some(&of_objects));
        // The other one has the huge block's entry.
        assert_eq!(report.bins.len(), 2);
        assert_eq!(report.lost, None);
    }

    #[test]
    fn moment_needs_a_worker_that_stayed_asleep() {
        assert!(report_of(&image(), true).is_moment);
        assert!(!report_of(&image(), false).is_moment);
    }

    /// Threads of these processes, one after the other, and what is known of them.
    fn threads(pids: &[i32]) -> (Vec<DumpWorker>, HashMap<i32, WorkerLabels>) {
        let engine = Scene::frameless("strpos", IS_NULL).process().engine;
        let mut seen = HashMap::new();
        let workers = pids.iter().zip(1..).map(|(&pid, tid)| {
            let engine = Arc::clone(&engine);
            seen.insert(tid, WorkerLabels { pid, engine });
            DumpWorker {
                pod: None,
                container: None,
                pid: pid.into(),
                thread: Some(tid.into()),
                pool: None,
                php: String::new(),
                sapi: String::new(),
                state: DumpState::Running,
                waits_for_cpu: false,
                system_call: None,
                method: None,
                route: None,
                script: None,
                request_seconds: None,
                stack: Vec::new(),
                memory: None,
                fibers: None,
            }
        });
        (workers.collect(), seen)
    }

    #[test]
    fn threads_have_their_process_read_once() {
        let (mut workers, seen) = threads(&[i32::MAX, 7, i32::MAX, 7]);
        let reads = RefCell::new(Vec::new());
        let read = |pid| {
            reads.borrow_mut().push(pid);
            SharedByThreads {
                pid,
                ..SharedByThreads::read(i32::MAX)
            }
        };
        let until = Instant::now() + MOST_TIME;
        assert_eq!(add_until(&mut workers, &seen, until, read), 0);
        assert_eq!(reads.into_inner(), [7, i32::MAX]);
        let gone = Some("the process has ended");
        for worker in workers {
            let memory = worker.memory.unwrap();
            assert_eq!(memory.without_heap.as_deref(), gone);
            assert_eq!((memory.heap, memory.process), (None, None));
        }
    }

    #[test]
    fn workers_without_time_are_counted() {
        let (mut workers, seen) = threads(&[1, 2]);
        let read = |_| unreachable!("there is no time");
        assert_eq!(add_until(&mut workers, &seen, Instant::now(), read), 2);
    }
}
