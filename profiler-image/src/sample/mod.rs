//! One sample of one worker: read, unwind, identify, prove.
//!
//! A stack is accepted when every edge in it is proven, not when nothing moved: from another CPU
//! the top moves during most reads of call-heavy code. So one read looks at the part around the top
//! several times, a microsecond apart, and at the pointer to the top in between. The sample is the
//! first of these moments that shows a whole stack ([`follow`], [`climb`]). A later read would
//! favour calls that last longer, so none is used: if no moment is whole, the callers that stood
//! are kept, and the stack ends in `[unstable]`. Edges that no call site names wait for a proof
//! ([`standing`]). A new call path that only the first look shows waits for a sample that proves it
//! ([`candidate`]).
//! Invariant: a frame is named only below proven or open edges, so no time is attributed to a wrong
//! caller.

mod ask;
mod candidate;
mod climb;
mod collector;
mod first_look;
mod follow;
mod frameless;
mod moment;
mod op;
mod outermost;
mod phase;
mod proof;
mod quiescent;
mod standing;
pub mod suspended;
mod told;

use phpprof_zend::closure::is_closure;
use phpprof_zend::memory::{MemoryFault, is_in};
use phpprof_zend::unwind::{Copy, Frame};
use rustc_hash::FxHashMap;

use crate::read::globals::Globals;
use crate::read::lasting::WorkerMemory;
use crate::read::place::OwnCpu;
use crate::read::reader::{Reader, Reading};
use crate::read::worker::Worker;
use crate::stack::call_tree::{CallTree, PathId};
use crate::stack::edges::Edges;
use crate::stack::functions::{FunctionId, Functions, Gather, Map, StackPlace};
use crate::stack::names::FunctionNames;
use crate::stack::trace::{Ending, SummedStack, Trace};

use climb::Climb;
use follow::MOST_UNWOUND;
use moment::{Followed, MomentIndex, is_elsewhere};
use standing::Standing;

/// Reads for a sample of which nothing is known, or of which a part is in memory that needs a call
/// of its own.
const READS: usize = 4;

/// What happened to the samples of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleQuality {
    /// Turns that the schedule requested.
    pub due: u64,
    /// Turns in which a worker was read, or still slept since its last read.
    pub taken: u64,
    /// Turns that came too late to be used.
    pub late: u64,
    /// Quiescent reads, by the quiescent reader or of a sleeping worker.
    pub quiescent: u64,
    /// Turns in which the kernel refused the read or the worker had ended.
    pub denied: u64,
    /// Turns between requests.
    pub idle: u64,
    /// Turns in which a worker was stopped or frozen in a request.
    pub stopped: u64,
    /// Samples with an edge that had no proof when they were taken.
    pub open: u64,
    /// Reads of busy workers during which the top moved. A sample takes up to four.
    pub moved: u64,
    /// Samples that show a recursion shorter than it was.
    pub folded: u64,
    /// Samples that end below a frame whose name no rule of PHP's hash confirms.
    pub unnamed: u64,
    /// Functions whose name only a second read has confirmed.
    pub unchecked_names: u64,
}

/// The result of one turn.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// Between requests.
    Idle,
    /// A stack.
    Sample(SampledStack),
    /// The read failed.
    Failed(MemoryFault),
}

/// The stack of a worker that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledStack {
    /// The stack under which it is summed.
    pub stack: SummedStack,
    /// An edge of it is not proven yet.
    pub is_open: bool,
    /// The leaf is not user code that runs: the worker may sleep in it.
    pub may_sleep: bool,
}

/// What samplers know, shared by all workers.
#[derive(Debug, Default)]
pub struct StackSampler {
    /// The known functions.
    pub functions: Functions,
    /// The known edges.
    pub edges: Edges,
    /// The call paths so far.
    pub tree: CallTree,
    /// The counts so far.
    pub quality: SampleQuality,
    /// Whether a sample that is hard to prove may cost more: not if the CPU budget has no room.
    pub has_room: bool,
    /// Whether the quiescent reader cannot read workers that run: then a call that no site names is
    /// not proven soon either.
    pub is_without_quiescent_reads: bool,
    /// The CPU that this thread is bound to, while it is the workers'.
    pub own_cpu: Option<OwnCpu>,
    /// Functions in the memory that the processes of a family share.
    families: FxHashMap<usize, Map>,
    /// The last trace, whose memory the next one reuses.
    trace: Trace,
    climb: Climb,
    /// The climb to a candidate.
    aside: Climb,
    /// The functions of frames that are identified beside those of a trace; reused memory.
    ids: Vec<Option<FunctionId>>,
    standing: Standing,
    /// How many call sites this read has asked.
    asked: usize,
    /// How many frames this sample has unwound, in all moments of its reads.
    unwound: usize,
    /// The buffer of the last read: the workers are read one after the other.
    copy: Copy,
}

impl StackSampler {
    /// A sampler that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            has_room: true,
            ..Self::default()
        }
    }

    /// Forgets what the processes of a family shared, because all of them have ended.
    pub fn forget_family(&mut self, family: usize) {
        if let Some(mut map) = self.families.remove(&family) {
            self.functions.forget(&mut map);
        }
    }

    /// Takes one sample.
    pub fn sample(&mut self, worker: &mut Worker, now: u64) -> TurnOutcome {
        let own = self.own_cpu.map(|own| own.number);
        let is_here = own.is_some() && worker.place.cpu == own;
        (worker.reader.has_room, worker.reader.is_here) = (self.has_room, is_here);
        if let Some(request) = &mut worker.reader.request {
            request.begin();
        }
        self.standing.begin(self.has_room);
        self.unwound = 0;
        std::mem::swap(&mut self.copy, &mut worker.reader.copy);
        let (mut trace, mut climb) = (
            std::mem::take(&mut self.trace),
            std::mem::take(&mut self.climb),
        );
        let (mut outcome, mut is_elsewhere) = self.read(worker, &mut trace, &mut climb, now);
        for _ in 1..READS {
            let is_doubtful = |sampled: &SampledStack| {
                let SummedStack { path, ending, .. } = sampled.stack;
                let is_cut = ending == Ending::Cut;
                (is_cut && path == PathId::NONE) || (is_elsewhere && (is_cut || sampled.is_open))
            };
            let may_read_on = self.has_room && self.unwound < MOST_UNWOUND;
            if !matches!(&outcome, TurnOutcome::Sample(sampled) if may_read_on && is_doubtful(sampled))
            {
                break;
            }
            let (later, is_later_elsewhere) = self.read(worker, &mut trace, &mut climb, now);
            // The worker was busy a moment ago, and between two fibers there is no frame for a
            // moment.
            if let TurnOutcome::Sample(_) = later {
                (outcome, is_elsewhere) = (later, is_later_elsewhere);
            }
        }
        (self.trace, self.climb) = (trace, climb);
        std::mem::swap(&mut self.copy, &mut worker.reader.copy);
        let is_cut = |sampled: &SampledStack| sampled.stack.ending == Ending::Cut;
        if matches!(&outcome, TurnOutcome::Sample(sampled) if is_cut(sampled)) {
            self.quality.unnamed += u64::from(self.functions.has_refused_name());
        }
        self.quality.unchecked_names = self.functions.unchecked_names();
        if !matches!(outcome, TurnOutcome::Idle | TurnOutcome::Failed(_)) {
            self.functions
                .check(&mut place(worker, &mut self.families, now));
        }
        outcome
    }

    /// Reads a worker once. Also returns whether frames of the stack were outside the page that was
    /// read.
    fn read(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> (TurnOutcome, bool) {
        if let Some(outcome) = self.read_here(worker, trace, climb, now) {
            return (outcome, false);
        }
        worker.reader.is_here = false;
        let (tops, last) = match worker.reader.read() {
            Ok(Reading::Busy { tops, last }) => (tops, last),
            Ok(Reading::NoFrame(phase)) => {
                self.functions.forget(&mut worker.local);
                return (phase::without_frame(phase), false);
            }
            Ok(Reading::Elsewhere) => return (cut(PathId::NONE, false), true),
            Err(fault) => return (TurnOutcome::Failed(fault), false),
        };
        let has_moved = tops.iter().chain([&last]).any(|top| {
            (top.current_execute_data, top.top) != (tops[0].current_execute_data, tops[0].top)
        });
        self.quality.moved += u64::from(has_moved);
        let (followed, candidate) = self.follow(worker, &tops, trace, climb, now);
        // More looks cannot show more of the others.
        let is_shown =
            matches!(followed, Followed::Whole) || climb.is_full || self.stays_unknown(climb);
        worker.reader.window.showed(is_shown);
        let mut outcome = match followed {
            Followed::Whole => {
                self.count_calls(worker, trace, climb);
                let outcome = self.accepted(worker, trace, climb, has_moved);
                if self.has_room && !climb.open.is_empty() {
                    self.learn(worker, &tops, trace, climb, now);
                }
                outcome
            }
            Followed::Part(path) => cut(path, climb.is_full),
        };
        if let TurnOutcome::Sample(SampledStack { stack, .. }) = &mut outcome {
            // A later look may have shown the same call path; a sum of its own would show nothing
            // else.
            let is_shown = (stack.path, stack.ending) == (candidate, Ending::Whole);
            if stack.phase.is_none() && !is_shown {
                stack.candidate = candidate;
            }
        }
        worker.reader.note_beside(&tops);
        let copy = &worker.reader.copy;
        (outcome, copy.fetches() > 0 || is_elsewhere(&tops, copy))
    }

    /// Climbs the newest moment of this read for its proofs alone, because further calls of the
    /// kernel are closest to it. It makes calls of its own.
    fn learn(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) {
        let Some(newest) = tops.len().checked_sub(1) else {
            return;
        };
        self.standing.begin(true);
        let moment = MomentIndex {
            top: newest,
            look: newest + 1,
        };
        self.follow_one(worker, tops, moment, trace, climb, now);
    }

    fn identify(&mut self, worker: &mut Worker, trace: &mut Trace, now: u64) {
        let generation = worker.reader.request_time;
        if generation != worker.generation {
            self.functions.forget(&mut worker.local);
            worker.generation = generation;
        }
        let (mut place, reader) = place_and_reader(worker, &mut self.families, now);
        let (frames, standing) = (&trace.frames, &mut self.standing);
        let since = &mut trace.stands_since;
        let look_again = |lowest: usize, gather: Gather<'_>| {
            let frame = frames.len().checked_sub(lowest);
            let frame = frame.and_then(|index| frames.get(index));
            let lowest = frame.map_or(u64::MAX, |frame| frame.address);
            *since.insert(standing.stand_in(reader, frames, lowest, gather))
        };
        self.functions
            .identify(&mut place, frames, &mut trace.ids, look_again);
        let (layout, shared) = (worker.process.engine.layout, &worker.process.shared_ranges);
        let may_be_freed =
            |frame: &Frame| is_closure(layout, frame) && !is_in(shared, frame.opline);
        if worker.reader.compiler.is_none() && trace.frames.iter().any(may_be_freed) {
            worker.reader.watch_compiler();
        }
    }

    /// The outcome for a stack whose edges are all proven or open.
    fn accepted(
        &mut self,
        worker: &mut Worker,
        trace: &Trace,
        climb: &Climb,
        has_moved: bool,
    ) -> TurnOutcome {
        let phase = self.phase(worker, trace, has_moved);
        if phase == Some(FunctionNames::IDLE) {
            return TurnOutcome::Idle;
        }
        self.quality.folded += u64::from(climb.is_folded);
        let may_sleep = phase.is_some() || self.may_sleep(worker, trace);
        let mut open = climb.open.iter();
        TurnOutcome::Sample(SampledStack {
            stack: SummedStack {
                path: climb.path(),
                ending: Ending::Whole,
                phase,
                candidate: PathId::NONE,
            },
            is_open: open.any(|&edge| !self.edges.is_settled(edge)),
            may_sleep,
        })
    }
}

/// The outcome for a stack of which only a part is known.
fn cut(path: PathId, is_full: bool) -> TurnOutcome {
    TurnOutcome::Sample(SampledStack {
        stack: SummedStack {
            path,
            ending: if is_full { Ending::Full } else { Ending::Cut },
            phase: None,
            candidate: PathId::NONE,
        },
        is_open: false,
        // Its leaf is not known.
        may_sleep: true,
    })
}

fn place<'a>(
    worker: &'a mut Worker,
    families: &'a mut FxHashMap<usize, Map>,
    now: u64,
) -> StackPlace<'a, WorkerMemory> {
    place_and_reader(worker, families, now).0
}

fn place_and_reader<'a>(
    worker: &'a mut Worker,
    families: &'a mut FxHashMap<usize, Map>,
    now: u64,
) -> (StackPlace<'a, WorkerMemory>, &'a Reader) {
    let request_time = Some(worker.reader.request_time).filter(|&time| time != 0);
    let place: StackPlace<'a, WorkerMemory> = StackPlace {
        memory: &worker.reader.memory,
        layout: worker.process.engine.layout,
        executor_globals: worker.process.engine.executor_globals,
        shared_ranges: &worker.process.shared_ranges,
        restarts: worker.reader.memory.restarts(),
        request: worker.process.engine.request_time.zip(request_time),
        shared: families.entry(worker.process.family).or_default(),
        local: &mut worker.local,
        // On the command line the end of a request is not visible; elsewhere its time changes, once
        // it is known.
        request_ends: worker.generation != 0 && worker.process.engine.sapi != "cli",
        arena: worker.reader.arena().copied(),
        now,
    };
    (place, &worker.reader)
}

#[cfg(test)]
pub(crate) mod tests;
