//! What a worker's memory is made of, in sizes and counts, with the classes of its objects: as a
//! label of its sample, as text and as JSON.
//!
//! Invariant: there is no value of the program in it; the only text is why there is no account, and
//! what the classes' report has.

use serde::{Deserialize, Serialize};

use super::classes::{ClassesReport, class_lines};
use super::{DumpState, DumpWorker, further, head};
use crate::text::{mebibytes, printable};

/// The bins in the text: those with the most bytes. JSON has all of them.
const BINS: usize = 5;
/// `ZEND_MM_PAGE_SIZE` and `ZEND_MM_CHUNK_SIZE`.
const PAGE_SIZE: u64 = 4096;
const CHUNK_SIZE: u64 = 2 << 20;

/// What a worker's memory is made of. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// The memory of PHP's memory manager: what `memory_limit` limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapReport>,
    /// Why the heap is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_heap: Option<String>,
    /// The memory of the whole process, by the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ResidentReport>,
    /// opcache's shared memory, which all workers of a pool have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opcache: Option<OpcacheReport>,
    /// The objects of the heap by class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassesReport>,
    /// Why they are not there, if the heap is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_classes: Option<String>,
}

/// A heap of PHP's memory manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeapReport {
    /// The worker did not run while its heap was read: all numbers are of one moment. Otherwise
    /// they are of several, and need not belong together.
    pub is_moment: bool,
    /// `memory_get_usage()`.
    pub size: u64,
    /// `memory_get_peak_usage()`.
    pub peak: u64,
    /// `memory_get_usage(true)`.
    pub real_size: u64,
    /// `memory_get_peak_usage(true)`.
    pub real_peak: u64,
    /// `memory_limit`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Elements of up to 3 KiB in use.
    pub small: u64,
    /// Blocks of whole pages, up to 2 MiB.
    pub large: u64,
    /// How many there are.
    pub large_blocks: u64,
    /// Larger blocks.
    pub huge: u64,
    /// How many there are.
    pub huge_blocks: u64,
    /// How much larger `size` is than all blocks together. In an account of one moment, it is 0, or
    /// a block that was just being allocated or freed.
    pub unaccounted: i64,
    /// Small elements that are free.
    pub free_in_bins: u64,
    /// What `gc_mem_caches()` would give back.
    pub reclaimable: u64,
    /// Pages of 4 KiB that are free.
    pub free_pages: u64,
    /// Chunks of 2 MiB in use.
    pub chunks: u64,
    /// Chunks that are kept for later.
    pub cached_chunks: u64,
    /// The sizes of small elements that have any.
    pub bins: Vec<BinReport>,
    /// What could not be followed, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostReport>,
}

/// The small elements of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinReport {
    /// Bytes of one element.
    pub size: u64,
    /// Pages of 4 KiB that these elements are in.
    pub pages: u64,
    /// Elements in use.
    pub used: u64,
    /// Elements that are free.
    pub free: u64,
}

/// What could not be followed in a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostReport {
    /// Chunks that the heap counts.
    pub chunks: u64,
    /// Pages whose use is not known.
    pub pages: u64,
    /// Sizes whose free elements could not all be counted: the others count as used.
    pub free_lists: u64,
    /// Lists of huge blocks that were cut.
    pub huge_lists: u64,
}

/// The memory of a process, by `/proc/PID/smaps_rollup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidentReport {
    /// Resident, with what other processes have too.
    pub rss: u64,
    /// Resident, with its part of what is shared.
    pub pss: u64,
    /// Resident, and no other process has it.
    pub private: u64,
    /// Swapped out.
    pub swap: u64,
}

/// opcache's shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpcacheReport {
    /// Its size, without the JIT's part.
    pub size: u64,
    /// Scripts, interned strings and opcache's own tables.
    pub used: u64,
    /// Not used yet.
    pub free: u64,
    /// Replaced scripts, whose memory comes back with a restart.
    pub wasted: u64,
}

impl MemoryReport {
    /// As the value of a label, which [`MemoryReport::parse`] reads again. The classes are not in
    /// it, because they have a label of their own ([`ClassesReport::label`]).
    #[must_use]
    pub fn label(&self) -> String {
        let without_classes = Self {
            classes: None,
            ..self.clone()
        };
        // Serialising strings and numbers cannot fail.
        serde_json::to_string(&without_classes).unwrap_or_default()
    }

    /// Reads a label's value; `None` if it is not a report.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        serde_json::from_str(label).ok()
    }
}

/// The values of the labels of a worker's memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryLabels {
    /// [`MemoryReport::label`].
    pub(super) memory: Option<String>,
    /// [`ClassesReport::label`].
    pub(super) classes: Option<String>,
}

impl MemoryLabels {
    /// Those of a worker with this memory.
    #[must_use]
    pub fn of(memory: Option<&MemoryReport>) -> Self {
        let classes = memory.and_then(|memory| memory.classes.as_ref());
        Self {
            memory: memory.map(MemoryReport::label),
            classes: classes.map(ClassesReport::label),
        }
    }

    /// The memory that they are of; `None` without it.
    pub(super) fn report(&self) -> Option<MemoryReport> {
        let classes = self.classes.as_deref().and_then(ClassesReport::parse);
        let memory = MemoryReport::parse(self.memory.as_deref()?)?;
        Some(MemoryReport { classes, ..memory })
    }
}

/// The memory of each worker, also of those that are idle, and the number of workers.
pub fn memory_text(workers: &[DumpWorker], without_sample: usize) -> String {
    let mut text = String::new();
    for worker in workers {
        text += &(head(worker) + "\n");
        match &worker.memory {
            Some(memory) => lines(memory, &mut text),
            None => text += "    its memory was not read\n",
        }
        text.push('\n');
    }
    let idle = workers.iter().filter(|it| it.state == DumpState::Idle);
    let count = match workers.len() {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let further = further(without_sample);
    text + &format!("{count}, {} idle{further}\n", idle.count())
}

fn lines(memory: &MemoryReport, text: &mut String) {
    let mut line = |what: &str, said: &str| *text += &format!("    {what:<8} {said}\n");
    if let Some(reason) = &memory.without_heap {
        line("heap", &printable(reason));
    }
    if let Some(heap) = &memory.heap {
        heap_lines(heap, &mut line);
    }
    if let Some(classes) = &memory.classes {
        let heap = memory.heap.as_ref().map_or(0, |heap| heap.size);
        class_lines(classes, heap, &mut line);
    }
    if let Some(reason) = &memory.without_classes {
        line("objects", &printable(reason));
    }
    if let Some(process) = &memory.process {
        let swap = match process.swap {
            0 => String::new(),
            swap => format!("; {} swapped out", mebibytes(swap)),
        };
        let said = format!(
            "{} resident, of which {} private; its share of all is {} (PSS){swap}",
            mebibytes(process.rss),
            mebibytes(process.private),
            mebibytes(process.pss)
        );
        line("process", &said);
    }
    if let Some(opcache) = &memory.opcache {
        let said = format!(
            "{} of {} used, {} wasted; shared by all workers",
            mebibytes(opcache.used),
            mebibytes(opcache.size),
            mebibytes(opcache.wasted)
        );
        line("opcache", &said);
    }
}

fn heap_lines(heap: &HeapReport, line: &mut impl FnMut(&str, &str)) {
    let limit = heap.limit.map_or("no memory_limit".to_owned(), |limit| {
        format!("memory_limit {}", mebibytes(limit))
    });
    let said = format!(
        "{} in use, {} at its peak; from the system {}, {} at its peak; {limit}",
        mebibytes(heap.size),
        mebibytes(heap.peak),
        mebibytes(heap.real_size),
        mebibytes(heap.real_peak)
    );
    line("heap", &said);
    let said = format!(
        "{} small, {} in {} large, {} in {} huge",
        mebibytes(heap.small),
        mebibytes(heap.large),
        heap.large_blocks,
        mebibytes(heap.huge),
        heap.huge_blocks
    );
    line("blocks", &said);
    let said = format!(
        "{} of small sizes, of which gc_mem_caches() gives {} back; {} in pages; {} in kept chunks",
        mebibytes(heap.free_in_bins),
        mebibytes(heap.reclaimable),
        mebibytes(heap.free_pages.saturating_mul(PAGE_SIZE)),
        mebibytes(heap.cached_chunks.saturating_mul(CHUNK_SIZE))
    );
    line("free", &said);
    let mut bins = heap.bins.clone();
    bins.sort_by_key(|bin| std::cmp::Reverse(bin.size.saturating_mul(bin.used)));
    for bin in bins.iter().take(BINS).filter(|bin| bin.used > 0) {
        let said = format!(
            "{} B: {} in use ({}), {} free",
            bin.size,
            bin.used,
            mebibytes(bin.size.saturating_mul(bin.used)),
            bin.free
        );
        line("", &said);
    }
    if !heap.is_moment {
        line(
            "Torn",
            "the worker ran while its heap was read: these numbers need not belong together",
        );
    } else if heap.unaccounted != 0 {
        line("rest", &format!("{} B are in no block", heap.unaccounted));
    }
    if let Some(lost) = heap.lost {
        let said = format!(
            "{} chunks, {} pages, {} lists of free elements, {} lists of huge blocks",
            lost.chunks, lost.pages, lost.free_lists, lost.huge_lists
        );
        line("lost", &said);
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::{ClassKind, ClassReport};
    use super::*;

    fn report(is_moment: bool) -> MemoryReport {
        let bins = (1..=7).map(|number| BinReport {
            size: number * 8,
            pages: number,
            used: 100 * number,
            free: number,
        });
        MemoryReport {
            heap: Some(HeapReport {
                is_moment,
                size: 45 << 20,
                peak: 60 << 20,
                real_size: 48 << 20,
                real_peak: 62 << 20,
                limit: is_moment.then_some(128 << 20),
                small: 30 << 20,
                large: 10 << 20,
                large_blocks: 23,
                huge: 5 << 20,
                huge_blocks: 1,
                unaccounted: i64::from(is_moment) * 24,
                free_in_bins: 1 << 20,
                reclaimable: 400 << 10,
                free_pages: 150,
                chunks: 21,
                cached_chunks: 2,
                bins: bins.collect(),
                lost: (!is_moment).then_some(LostReport {
                    free_lists: 3,
                    ..LostReport::default()
                }),
            }),
            without_heap: None,
            process: Some(ResidentReport {
                rss: 71 << 20,
                pss: 52 << 20,
                private: 40 << 20,
                swap: 0,
            }),
            opcache: Some(OpcacheReport {
                size: 128 << 20,
                used: 23 << 20,
                free: 104 << 20,
                wasted: 1 << 20,
            }),
            classes: is_moment.then(|| ClassesReport {
                is_moment,
                objects: 1,
                bytes: 56,
                by_class: vec![ClassReport {
                    name: "Shop\\Order".to_owned(),
                    kind: ClassKind::Class,
                    place: None,
                    instances: 1,
                    bytes: 56,
                    held_by: Vec::new(),
                }],
                ..ClassesReport::default()
            }),
            without_classes: (!is_moment).then(|| "the table is gone".to_owned()),
        }
    }

    fn worker(pid: i64, state: DumpState, memory: Option<MemoryReport>) -> DumpWorker {
        DumpWorker {
            pid,
            memory,
            ..DumpWorker::of_state(state)
        }
    }

    #[test]
    fn text_says_where_each_workers_memory_is() {
        let refused = MemoryReport {
            without_heap: Some("PHP runs without\u{1b} its memory manager".to_owned()),
            ..MemoryReport::default()
        };
        insta::assert_snapshot!(memory_text(
            &[
                worker(7, DumpState::Waiting, Some(report(true))),
                worker(8, DumpState::Running, Some(report(false))),
                worker(9, DumpState::Idle, Some(refused)),
                worker(10, DumpState::Idle, None),
            ],
            0
        ));
    }

    #[test]
    fn programs_get_all_numbers() {
        let worker = worker(7, DumpState::Waiting, Some(report(true)));
        insta::assert_snapshot!(super::super::json(&[worker], 0));
    }

    #[test]
    fn label_is_read_again_without_classes() {
        for mut report in [report(true), report(false), MemoryReport::default()] {
            let read = MemoryReport::parse(&report.label());
            report.classes = None;
            assert_eq!(read, Some(report));
        }
        assert_eq!(MemoryReport::parse("[1"), None);
    }

    #[test]
    fn label_of_all_sizes_fits_a_string() {
        let mut report = report(true);
        let bin = BinReport {
            size: u64::MAX,
            pages: u64::MAX,
            used: u64::MAX,
            free: u64::MAX,
        };
        if let Some(heap) = &mut report.heap {
            heap.bins = vec![bin; 30];
        }
        assert!(report.label().len() < crate::bounds::MAX_STRING / 2);
        let worker = worker(7, DumpState::Waiting, Some(report));
        assert!(!memory_text(&[worker], 0).is_empty());
    }
}
