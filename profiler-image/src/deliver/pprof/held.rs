//! Builds the profile of heaps from what is read of one after the other: pure, apart from
//! compressing.
//!
//! Invariant: the sum of `inuse_objects` is the receipt's number of samples.

use phpprof_profile::dump::HeapReport;
use phpprof_profile::in_use::InHeap;
use phpprof_profile::room::Lost;
use phpprof_profile::{FrameRef, SampleTag, Settings, Writer, unnamed};
use serde::Serialize;

use super::rows::of_worker;
use super::{Comment, OfSampler, ProfileFile, Untold, comment, writer};
use crate::heap::{HeapContents, HeapRead, NO_TIME, ReadHeld};
use crate::run::snapshot::Snapshot;

/// How many workers have a comment of their own.
const MAX_COMMENTS: usize = 1000;
/// Bytes of a page, of which free ones are counted.
const PAGE: u64 = 4096;

/// The heap of one worker: a comment after the receipt, which a merged profile does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeapOfWorker {
    /// Its process.
    #[serde(rename = "heapOf")]
    pub pid: i64,
    /// Its thread, if PHP is thread-safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<i64>,
    /// Why there is nothing of it, or only its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// It did not run from before its heap was read until all paths were followed.
    pub is_moment: bool,
    /// All paths were followed.
    pub is_whole: bool,
    /// `memory_get_usage()`; absent if the heap could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_bytes: Option<u64>,
    /// `memory_limit`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The bytes that are in the profile.
    pub held_bytes: u64,
}

/// A profile of heaps that grows worker by worker.
pub struct HeapsProfile<'a> {
    snapshot: &'a Snapshot,
    labels: &'a [(String, String)],
    writer: Writer,
    /// The heaps so far, without those beyond a thousand.
    pub workers: Vec<HeapOfWorker>,
    counts: InHeap,
    things: u64,
}

impl<'a> HeapsProfile<'a> {
    /// An empty one of the workers that this run has seen. `labels` are added to each sample.
    pub fn begin(snapshot: &'a Snapshot, labels: &'a [(String, String)]) -> Self {
        Self {
            snapshot,
            labels,
            writer: writer(snapshot, Settings::in_use()),
            workers: Vec::new(),
            counts: InHeap::default(),
            things: 0,
        }
    }

    /// Adds the worker of this thread, or why its heap was not read.
    pub fn add(&mut self, tid: i32, read: Result<HeapRead, String>) {
        let Some(seen) = self.snapshot.facts.seen.get(&tid) else {
            return;
        };
        let mut worker = HeapOfWorker {
            pid: seen.pid.into(),
            thread: seen.engine.is_thread_safe().then_some(tid.into()),
            ..HeapOfWorker::default()
        };
        match read {
            Ok(HeapRead { heap, contents }) => {
                (worker.heap_bytes, worker.limit) = (Some(heap.size), heap.limit);
                match contents {
                    Some(Ok(HeapContents::All { held, is_moment })) => {
                        worker.is_moment = is_moment;
                        self.account(&heap);
                        self.held(tid, &held, &mut worker);
                    }
                    Some(Err(refusal)) => self.refuse(&mut worker, refusal.to_string()),
                    // Only all is wanted here.
                    Some(Ok(HeapContents::Classes(_))) | None => {
                        worker.refused = Some(NO_TIME.to_owned());
                        self.counts.late += 1;
                    }
                }
            }
            Err(why) => self.refuse(&mut worker, why),
        }
        self.counts.moments += u64::from(worker.is_moment);
        self.counts.held_bytes += worker.held_bytes;
        if self.workers.len() < MAX_COMMENTS {
            self.workers.push(worker);
        }
    }

    /// One whose heap, or the table of its objects, cannot be read.
    fn refuse(&mut self, worker: &mut HeapOfWorker, why: String) {
        worker.refused = Some(why);
        self.counts.without_heap += 1;
    }

    /// One of which there is something: its account counts.
    fn account(&mut self, heap: &HeapReport) {
        self.counts.workers += 1;
        self.counts.heap_bytes += heap.size;
        self.counts.free_bytes += heap.free_in_bins + heap.free_pages * PAGE;
    }

    fn held(&mut self, tid: i32, read: &ReadHeld, worker: &mut HeapOfWorker) {
        let labels = self.labels.iter();
        let mut tags: Vec<_> = labels
            .map(|(key, value)| SampleTag::Str(key, value))
            .collect();
        tags.extend(of_worker(self.snapshot, tid).into_iter().flatten());
        let (things, writer) = (&mut self.things, &mut self.writer);
        read.each(&mut |frames, count, bytes| {
            if count == 0 {
                return;
            }
            let frames = frames.iter().map(|name| FrameRef {
                name,
                ..FrameRef::default()
            });
            let frames: Vec<_> = frames.collect();
            let values = [count, bytes].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
            writer.add(&frames, &values, &tags);
            *things += count;
            worker.held_bytes += bytes;
        });
        worker.is_whole = read.is_whole();
        self.counts.cut += u64::from(!worker.is_whole);
        self.counts.drawn += u64::from(read.others.one_of > 1);
        self.counts.lost_objects += read.lost();
    }

    /// The file, with the workers for which there was no time.
    pub fn finish(mut self, late: usize, of_sampler: OfSampler) -> ProfileFile {
        self.counts.late += late as u64;
        let untold = Untold::default();
        let all = Lost {
            samples: i64::try_from(self.things).unwrap_or(i64::MAX),
            ..Lost::default()
        };
        let comment = Comment {
            in_heap: Some(self.counts),
            ..comment(self.snapshot, &all, 0, untold, of_sampler)
        };
        self.writer.comment(comment.text());
        for worker in self.workers {
            // Serialising strings and numbers cannot fail.
            self.writer
                .comment(serde_json::to_string(&worker).unwrap_or_default());
        }
        ProfileFile {
            bytes: self.writer.finish(),
            samples: self.things,
            untold,
            unnamed: unnamed::Counts::default(),
            lost: Lost::default(),
        }
    }
}
