//! What each worker's memory is made of: its heap by the memory manager's own structures
//! (`zend::heap::account`), its process by the kernel, and opcache's shared memory.
//!
//! It is read once, after the sampling loop, and only if somebody asked for it. Invariants: nothing
//! but sizes and counts comes out; a heap is said to be of one moment only if the kernel's counts
//! prove that its worker did not run while it was read.

mod moment;
mod place;
mod process;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use phpprof_profile::dump::{
    BinReport, DumpWorker, HeapReport, LostReport, MemoryReport, OpcacheReport,
};
use phpprof_zend::heap::account::{self, MmAccount, MmLosses, MmRefusal};
use phpprof_zend::heap::bins;
use phpprof_zend::opcache::accelerator;

use crate::run::WorkerLabels;
use crate::target::process::{ProcessMemory, maps, text};
use moment::OffCpu;

/// How long the memory of all workers may take together; that of further ones is not read.
const MOST_TIME: Duration = Duration::from_secs(10);
/// How often a heap is read until one read is of one moment.
const TRIES: usize = 3;

/// Reads the memory of these workers, and returns for how many there was no time.
pub fn add_memory(workers: &mut [DumpWorker], seen: &HashMap<i32, WorkerLabels>) -> usize {
    let until = Instant::now() + MOST_TIME;
    let mut left_out = 0;
    for worker in workers {
        let tid = i32::try_from(worker.thread.unwrap_or(worker.pid)).unwrap_or(0);
        let Some(labels) = seen.get(&tid) else {
            continue;
        };
        if Instant::now() >= until {
            left_out += 1;
            continue;
        }
        worker.memory = Some(report(tid, labels, until));
    }
    left_out
}

fn report(tid: i32, seen: &WorkerLabels, until: Instant) -> MemoryReport {
    let pid = seen.pid;
    let maps = text(&format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut report = MemoryReport {
        process: process::read(pid),
        ..MemoryReport::default()
    };
    let memory = match ProcessMemory::open(pid) {
        Ok(memory) => memory,
        Err(fault) => {
            report.without_heap = Some(fault.to_string());
            return report;
        }
    };
    match heap(&memory, tid, seen, &maps, until) {
        Ok(heap) => report.heap = Some(heap),
        Err(refusal) => report.without_heap = Some(refusal.to_string()),
    }
    let shared = maps::parse(&maps, "").shared;
    let filling = accelerator(&memory, &shared).and_then(|found| found.filling);
    report.opcache = filling.map(|filling| OpcacheReport {
        size: filling.size,
        used: filling.used(),
        free: filling.free,
        wasted: filling.wasted,
    });
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
        let account = found.and_then(|heap| account::read(memory, layout, heap));
        let stayed = off.is_some_and(|off| off.stayed());
        let report = account.map(|account| heap_report(&account, stayed));
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
        let account = account::read(image.memory(), &ROWS[0], image.heap()).unwrap();
        heap_report(&account, stayed)
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

    #[test]
    fn ended_workers_have_a_reason_instead() {
        let seen = WorkerLabels {
            pid: i32::MAX,
            engine: Scene::frameless("strpos", IS_NULL).process().engine,
        };
        let report = report(i32::MAX, &seen, Instant::now() + MOST_TIME);
        let reason = "the process has ended";
        assert_eq!(report.without_heap.as_deref(), Some(reason));
        assert_eq!((report.heap, report.process), (None, None));
    }
}
