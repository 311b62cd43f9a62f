//! One sample of one worker: read, unwind, identify, prove.
//!
//! A stack is accepted when every edge in it is proven, not when nothing moved: from another CPU the top moves during
//! most reads of call-heavy code. The read has two copies of the part around the top. What both agree on stood still
//! meanwhile, and so did what lies below; what lies above is proven by the call site of the last agreed frame
//! ([`climb`]). A call path that was not confirmed yet takes one more read ([`agreement`]). A stack that cannot be proven
//! keeps its proven part, and ends in `[unstable]`: a later read may only fill in what lies above callers that
//! stood in the first. Invariant: a frame is named only below proven or open edges, so no caller is wronged.

mod agreement;
mod climb;
mod frameless;
mod phase;
mod quiescent;

use phpprof_zend::memory::Fault;
use phpprof_zend::unwind::{Copy, End, Frame, unwind};
use rustc_hash::FxHashMap;

use crate::read::reader::{Globals, Reading};
use crate::read::worker::Worker;
use crate::stack::call_tree::{CallTree, PathId};
use crate::stack::edges::Edges;
use crate::stack::functions::{Functions, Map, Place};
use crate::stack::names::Names;
use crate::stack::trace::{Ending, Stack, Trace};
use crate::target::process::ProcessMemory;

use climb::Climb;

/// Further reads of a stack that is not whole.
const MORE_READS: usize = 3;

/// What happened to the samples of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quality {
    /// Turns that the schedule asked for.
    pub due: u64,
    /// Turns in which a worker was read.
    pub taken: u64,
    /// Turns that came too late to be used.
    pub late: u64,
    /// Quiescent reads, by the quiescent reader or of a sleeping worker.
    pub quiet: u64,
    /// Turns in which the kernel refused or the worker was gone.
    pub denied: u64,
    /// Turns between requests.
    pub idle: u64,
    /// Turns of workers that still slept as they did in the turn before; they were not read again.
    pub asleep: u64,
    /// Samples with an edge that had no proof when they were taken.
    pub open: u64,
    /// First reads of busy workers during which the top moved.
    pub moved: u64,
}

/// What one turn gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Between requests.
    Idle,
    Sample(Sampled),
    Failed(Fault),
}

/// The stack of a worker that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    pub stack: Stack,
    /// An edge of it is not proven yet.
    pub is_open: bool,
    /// The leaf is no user code that runs: the worker may sleep in it.
    pub may_sleep: bool,
}

/// What samplers know, shared by all workers.
#[derive(Debug, Default)]
pub struct Sampler {
    pub functions: Functions,
    pub edges: Edges,
    pub tree: CallTree,
    pub quality: Quality,
    /// Whether further reads may be taken to prove a sample: not while there is no room in the CPU budget.
    pub may_read_on: bool,
    /// Functions in the memory that the processes of a family share.
    families: FxHashMap<usize, Map>,
    /// The last trace, whose memory the next one uses.
    trace: Trace,
    climb: Climb,
    other: (Trace, Climb),
    again: Vec<Frame>,
    first_copy: Copy,
    /// State of the pauses between reads that must agree.
    pauses: u64,
}

impl Sampler {
    /// A sampler that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            may_read_on: true,
            ..Self::default()
        }
    }

    /// Forgets what the processes of a family shared: all of them have ended.
    pub fn forget_family(&mut self, family: usize) {
        if let Some(mut map) = self.families.remove(&family) {
            self.functions.forget(&mut map);
        }
    }

    /// Takes one sample.
    pub fn sample(&mut self, worker: &mut Worker, now: u64) -> Outcome {
        let (leading, trailing) = match worker.reader.read() {
            Ok(Reading::Busy { leading, trailing }) => (leading, trailing),
            Ok(Reading::NoFrame(phase)) => {
                self.functions.forget(&mut worker.local);
                return phase::without_frame(phase);
            }
            Err(fault) => return Outcome::Failed(fault),
        };
        let moved = has_moved(&leading, &trailing);
        self.quality.moved += u64::from(moved);
        let (mut trace, mut climb) = (
            std::mem::take(&mut self.trace),
            std::mem::take(&mut self.climb),
        );
        self.trace_either(worker, [&leading, &trailing], &mut trace, &mut climb, now);
        let outcome = if climb.is_whole {
            self.accepted(worker, &trace, &climb, moved, now)
        } else {
            self.completed(worker, &mut trace, &mut climb, now)
        };
        (self.trace, self.climb) = (trace, climb);
        self.functions
            .check(&mut place(worker, &mut self.families, now));
        outcome
    }

    /// Follows the stack of the read at hand from either of its two looks at the top, the first of them if that is whole.
    fn trace_either(
        &mut self,
        worker: &mut Worker,
        [leading, trailing]: [&Globals; 2],
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) {
        let [first, second] = [leading, trailing].map(|globals| globals.current_execute_data);
        self.follow(worker, first, second, trace, climb, now);
        if climb.is_whole || second == 0 {
            return;
        }
        let (mut other, mut other_climb) = std::mem::take(&mut self.other);
        worker.reader.copy.swap();
        self.follow(worker, second, first, &mut other, &mut other_climb, now);
        if other_climb.is_whole || other_climb.proven() > climb.proven() {
            std::mem::swap(trace, &mut other);
            std::mem::swap(climb, &mut other_climb);
        } else {
            worker.reader.copy.swap();
        }
        self.other = (other, other_climb);
    }

    /// Unwinds from `top` in the read at hand, identifies the frames, and climbs; `other_top` is what the other copy was read
    /// with.
    fn follow(
        &mut self,
        worker: &mut Worker,
        top: u64,
        other_top: u64,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) {
        let layout = worker.process.engine.layout;
        let memory = std::sync::Arc::clone(&worker.reader.memory);
        trace.end = unwind(
            &*memory,
            layout,
            &mut worker.reader.copy,
            top,
            &mut trace.frames,
        );
        trace.agreed = 0;
        climb.begin();
        if trace.end == End::Torn {
            // Without a root nothing tells which part of the chain is true.
            return;
        }
        self.identify(worker, trace, now);
        self.add_frameless(worker, trace, now);
        trace.agreed = worker.reader.copy.agreed(layout, &trace.frames, other_top);
        self.climb(worker, trace, climb);
    }

    fn identify(&mut self, worker: &mut Worker, trace: &mut Trace, now: u64) {
        let generation = worker.reader.request_time;
        if generation != worker.generation {
            self.functions.forget(&mut worker.local);
            worker.generation = generation;
        }
        let mut place = place(worker, &mut self.families, now);
        self.functions
            .identify(&mut place, &trace.frames, &mut trace.ids);
    }

    /// What becomes of a stack whose edges are all proven or open.
    fn accepted(
        &mut self,
        worker: &mut Worker,
        trace: &Trace,
        climb: &Climb,
        moved: bool,
        now: u64,
    ) -> Outcome {
        let phase = self.phase(worker, trace, moved);
        if phase == Some(Names::IDLE) {
            return Outcome::Idle;
        }
        let may_sleep = phase.is_some() || self.may_sleep(worker, trace);
        let ending = self.agreement(worker, trace, climb, now);
        let is_open = climb
            .open
            .iter()
            .any(|&(_, edge)| !self.edges.is_settled(edge));
        Outcome::Sample(Sampled {
            stack: Stack {
                path: climb.path(),
                ending,
                phase,
            },
            is_open,
            may_sleep,
        })
    }

    /// What becomes of a stack that is not whole.
    fn completed(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> Outcome {
        let (path, proven) = self.known_part(trace, climb);
        let ending = if climb.is_full {
            Ending::Full
        } else {
            Ending::Cut
        };
        let cut = |path: PathId| {
            Outcome::Sample(Sampled {
                stack: Stack {
                    path,
                    ending,
                    phase: None,
                },
                is_open: false,
                // Its leaf is not known.
                may_sleep: true,
            })
        };
        if climb.is_full || !self.may_read_on {
            return cut(path);
        }
        // The bytes of the first read stay, to hold the frames of later ones against them.
        std::mem::swap(&mut self.first_copy, &mut worker.reader.copy);
        let stood = trace.agreed.max(1);
        let (mut best, mut depth) = (path, proven);
        for _ in 0..MORE_READS {
            let Ok(Reading::Busy { leading, trailing }) = worker.reader.read() else {
                break;
            };
            self.trace_either(worker, [&leading, &trailing], trace, climb, now);
            let layout = worker.process.engine.layout;
            let held = self.first_copy.held(layout, &trace.frames);
            if held < stood {
                // Callers that stood in the first read have returned.
                break;
            }
            if climb.is_whole {
                let moved = has_moved(&leading, &trailing);
                return self.accepted(worker, trace, climb, moved, now);
            }
            let known = held.min(climb.proven());
            if known > depth {
                (best, depth) = (climb.path_of(known), known);
            }
        }
        cut(best)
    }

    /// The part of a stack that is proven: what agreed, and one frame above it by its caller's site.
    fn known_part(&self, trace: &Trace, climb: &Climb) -> (PathId, usize) {
        let proven = climb.proven().min(trace.agreed + 1);
        (climb.path_of(proven), proven)
    }
}

fn has_moved(leading: &Globals, trailing: &Globals) -> bool {
    (leading.current_execute_data, leading.top) != (trailing.current_execute_data, trailing.top)
}

fn place<'a>(
    worker: &'a mut Worker,
    families: &'a mut FxHashMap<usize, Map>,
    now: u64,
) -> Place<'a, ProcessMemory> {
    Place {
        memory: &worker.reader.memory,
        layout: worker.process.engine.layout,
        executor_globals: worker.process.engine.executor_globals,
        shared_ranges: &worker.process.shared_ranges,
        shared: families.entry(worker.process.family).or_default(),
        local: &mut worker.local,
        // On the command line no end of a request can be seen; elsewhere its time changes, once it is known.
        request_ends: worker.generation != 0 && worker.process.engine.sapi != "cli",
        now,
    }
}

#[cfg(test)]
mod tests;
