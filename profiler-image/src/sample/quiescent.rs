//! What quiescent reads prove: every edge of the stack that they show.
//!
//! They come from the quiescent reader, or from a sleeping worker. They are not counted as samples.

use phpprof_zend::site::Relation;
use phpprof_zend::unwind::{MAX_FRAMES, UnwindEnd, unwind};

use super::climb::Climb;
use super::op::{NO_OP, UNWINDING, op_index};
use super::{SampledStack, StackSampler, TurnOutcome, cut, place};
use crate::read::globals::Globals;
use crate::read::place::OwnCpu;
use crate::read::quiescent::Observation;
use crate::read::reader::Reading;
use crate::read::worker::Worker;
use crate::stack::call_tree::PathId;
use crate::stack::edges::Edge;
use crate::stack::names::NameId;
use crate::stack::trace::Trace;

impl StackSampler {
    /// Proves the edges of the last sample, which was taken while the worker slept.
    pub fn prove_asleep(&mut self, worker: &Worker, sampled: &SampledStack) {
        self.quality.quiescent += 1;
        if !sampled.is_open {
            return;
        }
        let trace = std::mem::take(&mut self.trace);
        let root = trace.frames.last();
        let on_page = root.is_some_and(|root| self.copy.inside(root.address));
        self.prove_all(worker, &trace, on_page, true);
        self.trace = trace;
    }

    /// Proves what the quiescent reader saw.
    pub fn believe(&mut self, worker: &mut Worker, observation: &mut Observation, now: u64) {
        let trace = self.observed(worker, observation, now);
        if observation.is_interpreted {
            self.trust_calls(worker, &trace);
        }
        self.trace = trace;
    }

    /// The trace of what was seen, with all its edges proven.
    fn observed(&mut self, worker: &mut Worker, observation: &mut Observation, now: u64) -> Trace {
        self.quality.quiescent += 1;
        self.functions.begin();
        self.asked = 0;
        // What is read from here on belongs to that stack.
        worker.reader.memory.follow(observation.restarts);
        let Trace { frames, ids, .. } = std::mem::take(&mut self.trace);
        let mut trace = Trace {
            frames,
            ids,
            end: if observation.is_cut {
                UnwindEnd::TooDeep
            } else {
                UnwindEnd::Root
            },
            ..Trace::default()
        };
        trace.frames.clone_from(&observation.frames);
        for function in observation.functions.drain(..) {
            let mut place = place(worker, &mut self.families, now);
            self.functions.know(&mut place, function);
        }
        let mut place = place(worker, &mut self.families, now);
        self.functions
            .identify_keys(&mut place, &trace.frames, &observation.keys, &mut trace.ids);
        self.add_frameless(worker, &mut trace, now);
        let is_interpreted = observation.is_interpreted;
        self.prove_all(worker, &trace, observation.root_is_on_page, is_interpreted);
        trace
    }

    /// The sample of a worker whose CPU this thread has taken; `None` if it has not.
    pub(super) fn read_here(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> Option<TurnOutcome> {
        worker.take_stands();
        let is_here = |own: &OwnCpu| worker.place.cpu == Some(own.number);
        let own = self.own_cpu.filter(is_here)?;
        let Ok(Reading::Busy { tops, last }) = worker.reader.read() else {
            return None;
        };
        let top = last.current_execute_data;
        let has_moved = |globals: &Globals| globals.current_execute_data != top;
        if tops.iter().any(has_moved) {
            let state = worker.watch().and_then(|watch| watch.state());
            worker.place.cpu = state.map(|(_, cpu)| cpu);
            return None;
        }
        // A function is read with a look at its frame. Nothing else needs one.
        self.standing.begin(true);
        self.functions.begin();
        self.asked = 0;
        let looks = worker.reader.copy.looks.len();
        let layout = worker.process.engine.layout;
        worker.reader.copy.take_look(looks.saturating_sub(1));
        let memory = worker.reader.memory.clone();
        let copy = &mut worker.reader.copy;
        *trace = Trace {
            frames: std::mem::take(&mut trace.frames),
            ids: std::mem::take(&mut trace.ids),
            around: 0..looks,
            ..Trace::default()
        };
        trace.end = unwind(&memory, layout, copy, top, &mut trace.frames);
        if trace.end == UnwindEnd::Torn {
            return None;
        }
        self.identify(worker, trace, now);
        self.add_frameless(worker, trace, now);
        self.standing.begin(false);
        worker.stands(own)?;
        worker.reader.note_beside(&tops);
        let root = trace.frames.last();
        let is_on_page = root.is_some_and(|root| worker.reader.copy.inside(root.address));
        let is_interpreted = worker.reader.is_interpreted();
        self.prove_all(worker, trace, is_on_page, is_interpreted);
        self.quality.quiescent += 1;
        Some(self.climbed(worker, trace, climb, is_interpreted, now))
    }

    /// The outcome for a trace of one moment.
    fn climbed(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        climb: &mut Climb,
        is_interpreted: bool,
        now: u64,
    ) -> TurnOutcome {
        let depth = trace.frames.len();
        (trace.together, trace.stood) = (depth, depth);
        climb.begin();
        self.climb(worker, trace, climb, now);
        if !climb.is_whole {
            return cut(climb.path(), climb.is_full);
        }
        for &path in &climb.paths {
            if is_interpreted {
                self.tree.trust(path);
            } else {
                self.tree.count(path, true);
            }
        }
        self.accepted(worker, trace, climb, false)
    }

    /// The sample of a stack that was true at one moment.
    pub fn sample_observed(
        &mut self,
        worker: &mut Worker,
        observation: &mut Observation,
        now: u64,
    ) -> TurnOutcome {
        self.standing.begin(false);
        self.unwound = 0;
        let generation = worker.reader.request_time;
        if generation != worker.generation {
            self.functions.forget(&mut worker.local);
            worker.generation = generation;
        }
        let looks = worker.reader.copy.looks.len();
        let mut trace = self.observed(worker, observation, now);
        trace.around = 0..looks;
        let mut climb = std::mem::take(&mut self.climb);
        let is_interpreted = observation.is_interpreted;
        let outcome = self.climbed(worker, &mut trace, &mut climb, is_interpreted, now);
        (self.trace, self.climb) = (trace, climb);
        outcome
    }

    /// Trusts the calls of a quiescent read, as far as their nodes are known.
    pub(super) fn trust_calls(&mut self, worker: &Worker, trace: &Trace) {
        let engine = &worker.process.engine;
        let mut path = PathId::NONE;
        for (index, frame) in trace.frames.iter().enumerate().rev() {
            let Some(id) = trace.ids.get(index).copied().flatten() else {
                return;
            };
            let name = self.functions.name(id, index + 1 == trace.frames.len());
            let op = self.functions.get(id).and_then(|code| {
                let key = &code.function.key;
                op_index(engine.layout, engine.executor_globals, key, frame.opline)
            });
            let Some(node) = self.tree.child(path, name, op.unwrap_or(NO_OP)) else {
                return;
            };
            self.tree.trust(node);
            path = node;
        }
    }

    /// Proves every edge of the trace's frames, which come from a quiescent read. Their root is
    /// only called by the engine if it is on the VM stack's page: a generator that is being resumed
    /// has no caller yet. Between two instructions of the JIT's code frames of two calls can stand
    /// together (observed with tracing on 8.4 and 8.5): that proves only what the call site leaves
    /// open.
    fn prove_all(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        root_is_on_page: bool,
        is_interpreted: bool,
    ) {
        let layout = worker.process.engine.layout;
        let last = trace.frames.len().saturating_sub(1);
        let is_cut = trace.frames.len() >= MAX_FRAMES;
        let mut site: Option<(NameId, u32)> = None;
        let mut via: Option<NameId> = None;
        let mut caller: Option<NameId> = None;
        for index in (0..trace.frames.len()).rev() {
            let Some(id) = trace.ids.get(index).copied().flatten() else {
                // A frame above an unknown one has no known caller.
                (site, via, caller) = (None, None, None);
                continue;
            };
            let name = self.functions.name(id, index == last);
            let edge = caller.map(|caller| Edge {
                site: site.unwrap_or((caller, 0)),
                via,
                callee: name,
            });
            let root = (index == last && !is_cut && root_is_on_page).then(|| Edge::of_root(name));
            if let Some(edge) = edge.or(root) {
                if is_interpreted {
                    self.edges.prove(edge, Relation::Nothing);
                } else {
                    self.edges.prove_if_open(edge);
                }
            }
            let Some(code) = self.functions.get(id) else {
                return;
            };
            let key = code.function.key;
            if key.is_user() {
                // Outside its code the opline is that of the exception that unwinds, or there is
                // none.
                let op = key.op_index(layout, trace.frames[index].opline);
                site = Some((name, op.unwrap_or(UNWINDING)));
                via = None;
            } else {
                via = Some(name);
            }
            caller = Some(name);
        }
    }
}
