//! What each worker's memory is made of: its heap by the memory manager's own structures
//! (`zend::heap::account`), its process by the kernel, and opcache's shared memory.
//!
//! It is read once, after the sampling loop, and only if somebody asked for it. Invariants: nothing
//! but sizes and counts comes out; a heap is said to be of one moment only if the kernel's counts
//! prove that its worker did not run while it was read.

mod moment;
mod place;
mod process;
mod shared;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use phpprof_profile::dump::{BinReport, DumpWorker, HeapReport, LostReport, MemoryReport};
use phpprof_zend::heap::account::{self, MmAccount, MmLosses, MmRefusal};
use phpprof_zend::heap::bins;

use crate::run::WorkerLabels;
use crate::target::process::ProcessMemory;
use moment::OffCpu;
use shared::{LastShared, SharedByThreads};

/// How long the memory of all workers may take together; that of further ones is not read.
const MOST_TIME: Duration = Duration::from_secs(10);
/// How often a heap is read until one read is of one moment.
const TRIES: usize = 3;

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

fn report(tid: i32, seen: &WorkerLabels, shared: &SharedByThreads, until: Instant) -> MemoryReport {
    let mut report = MemoryReport {
        process: shared.resident,
        opcache: shared.opcache,
        ..MemoryReport::default()
    };
    let heap = match &shared.memory {
        Ok(memory) => heap(memory, tid, seen, &shared.maps, until).map_err(|it| it.to_string()),
        Err(fault) => Err(fault.to_string()),
    };
    match heap {
        Ok(heap) => report.heap = Some(heap),
        Err(refusal) => report.without_heap = Some(refusal),
    }
    report
}

/// Reads a heap until a read is of one moment, or the last one.
fn heap(
    memory: &ProcessMemory,
    tid: i32,
    seen: &WorkerLabels,
    maps: &str,
    until: Instant,
) -> Result<HeapReport, MmRefusal> {
    let layout = seen.engine.layout;
    let read = || {
        let off = OffCpu::begin(seen.pid, tid);
        let found = place::find(memory, &seen.engine, maps).ok_or(MmRefusal::NoHeap);
        let read = found.and_then(|heap| account::read(memory, layout, heap));
        let stayed = off.is_some_and(|off| off.stayed());
        let report = read.map(|read| heap_report(&read.account, stayed));
        HeapTry { report, stayed }
    };
    last_try(read, until)
}

/// A read of a heap, and whether its worker stayed off a CPU meanwhile.
struct HeapTry {
    report: Result<HeapReport, MmRefusal>,
    stayed: bool,
}

/// Tries until a read is of one moment, up to [`TRIES`] times; once the time is over, not again.
fn last_try(mut read: impl FnMut() -> HeapTry, until: Instant) -> Result<HeapReport, MmRefusal> {
    let mut last = read();
    for _ in 1..TRIES {
        if last.stayed || Instant::now() >= until {
            break;
        }
        last = read();
    }
    last.report
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

    #[test]
    fn tries_end_with_a_moment_or_the_time() {
        let now = Instant::now();
        let check = |until: Instant, stays_at: usize, expected: usize| {
            let mut tries = 0;
            let read = || {
                tries += 1;
                HeapTry {
                    report: Err(MmRefusal::NoHeap),
                    stayed: tries == stays_at,
                }
            };
            assert!(last_try(read, until).is_err());
            assert_eq!(tries, expected);
        };
        check(now + MOST_TIME, 2, 2);
        check(now + MOST_TIME, 9, TRIES);
        check(now, 9, 1);
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
