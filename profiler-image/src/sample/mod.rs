//! One sample of one worker: read, unwind, name, prove.
//!
//! A stack is accepted when every edge in it is proven, not when nothing moved: from another CPU the top moves during
//! most reads of call-heavy code. An edge that its call site leaves open is proven where it stands over many reads, or by a
//! quiescent read later. In this order: the leading `current_execute_data`; the trailing one over the same bytes;
//! some more reads; then the proven part from `{main}` upwards with a leaf `[unstable]`. Invariant: a frame is named only
//! below proven or open edges, so no caller is wronged.

mod call_path;
mod frameless;
mod phase;
mod quiescent;
mod standing;

use phpprof_zend::Layout;
use phpprof_zend::memory::Fault;
use phpprof_zend::op::Op;
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::site::{Check, Evidence, Side, Site};
use phpprof_zend::unwind::{End, Frame, unwind};
use rustc_hash::FxHashMap;

use crate::read::reader::{Globals, Reading};
use crate::read::worker::Worker;
use crate::run::aggregate::Aggregate;
use crate::stack::call_tree::{CallPathId, CallTree};
use crate::stack::edges::{Edge, EdgeId, Edges, Known};
use crate::stack::functions::{FunctionId, Functions, Map, Place, stands};
use crate::stack::names::{NameId, Names};
use crate::stack::trace::Stack;

/// Reads of one sample, the first included.
const READS: usize = 12;
/// Reads of a sample that meets an edge for the first time and finds no proof.
const NEW_EDGE_READS: usize = 4;
/// The op index that stands for `EG(exception_op)`, where a caller's opline points while an exception unwinds.
const UNWINDING: u32 = u32::MAX;

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
#[derive(Debug, PartialEq, Eq)]
pub struct Sampled {
    pub stack: Stack,
    /// The leaf is no user code that runs: the worker may sleep in it.
    pub may_sleep: bool,
}

/// What samplers know, shared by all workers.
#[derive(Debug, Default)]
pub struct Sampler {
    pub functions: Functions,
    pub edges: Edges,
    pub call_tree: CallTree,
    pub aggregate: Aggregate,
    pub quality: Quality,
    /// Whether further reads may be taken to prove a sample: not while there is no room in the CPU budget.
    pub may_read_on: bool,
    /// Functions in the memory that the processes of a family share.
    families: FxHashMap<usize, Map>,
    frames: Vec<Frame>,
    ids: Vec<Option<FunctionId>>,
    /// The frames of a read that is held against `frames`.
    again: Vec<Frame>,
    /// State of the pauses between such reads.
    pauses: u64,
    /// The path to each of `frames`, as far as the last climb came.
    paths: Vec<CallPathId>,
}

/// A stack as far as it was proven.
struct Candidate {
    stack: Stack,
    /// All frames are in it.
    whole: bool,
    /// The edge whose frames were read at different moments, if not a variable was assigned since the call.
    contradicted: Option<Edge>,
    /// The open edges, each with the index of its callee's frame.
    open: Vec<(usize, EdgeId)>,
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

    /// Checks some of the functions that outlive requests, in the memory of a worker that has just been read.
    pub fn check_functions(&mut self, worker: &mut Worker, now: u64) {
        let mut place = place(worker, &mut self.families, now);
        self.functions.check(&mut place);
    }

    /// Takes one sample.
    pub fn sample(&mut self, worker: &mut Worker, now: u64) -> Outcome {
        let mut best: Option<Candidate> = None;
        let mut contradictions: Vec<Option<Edge>> = Vec::new();
        let opened = self.edges.opened();
        let reads = if self.may_read_on { READS } else { 1 };
        for attempt in 0..reads {
            // An edge at its first sight took so long to look at that its words may have gone: the next reads are faster.
            let opened = if attempt < NEW_EDGE_READS {
                opened
            } else {
                usize::MAX
            };
            let (leading, trailing) = match worker.reader.read() {
                Ok(Reading::Busy { leading, trailing }) => (leading, trailing),
                Ok(Reading::NoFrame(phase)) if attempt == 0 => {
                    self.functions.forget(&mut worker.local);
                    return phase::without_frame(phase);
                }
                Err(fault) if attempt == 0 => return Outcome::Failed(fault),
                // It was busy a moment ago, and between two fibers it has no frame for another moment. If it stays so, what could
                // be proven then is what is known.
                Ok(Reading::NoFrame(_)) | Err(_) => continue,
            };
            let moved = (leading.current_execute_data, leading.top)
                != (trailing.current_execute_data, trailing.top);
            self.quality.moved += u64::from(moved && attempt == 0);
            for start in starts(&leading, &trailing) {
                let candidate = self.candidate(worker, start, now);
                let was_open = candidate.whole && !candidate.open.is_empty();
                if candidate.whole {
                    let phase = self.phase(worker, moved);
                    if self.may_read_on {
                        self.prove_standing(worker, &candidate.open, now);
                    }
                    if candidate.contradicted.is_none() && !self.is_doubtful(&candidate, opened) {
                        return self.accepted(worker, candidate.stack, phase);
                    }
                    contradictions.push(candidate.contradicted);
                }
                if best
                    .as_ref()
                    .is_none_or(|best| value(best) < value(&candidate))
                {
                    best = Some(candidate);
                }
                if was_open {
                    // The read at hand is a later one now.
                    break;
                }
            }
        }
        if let Some(&Some(edge)) = contradictions.first()
            && contradictions.len() >= READS
            && contradictions.iter().all(|other| *other == Some(edge))
        {
            // No mix lasts for so many reads: the variable was assigned.
            self.edges.uncheck(edge);
        }
        let (whole, stack) =
            best.map_or((false, Stack::default()), |best| (best.whole, best.stack));
        let stack = Stack {
            unstable: !whole || stack.lines.is_empty(),
            ..stack
        };
        // Its leaf is not known.
        Outcome::Sample(Sampled {
            stack,
            may_sleep: true,
        })
    }

    fn accepted(&mut self, worker: &mut Worker, stack: Stack, phase: Option<NameId>) -> Outcome {
        if phase == Some(Names::IDLE) {
            return Outcome::Idle;
        }
        let may_sleep = phase.is_some() || self.may_sleep(worker);
        let stack = self.confirmed(worker, stack);
        let stack = Stack {
            phase,
            autoloaders: self.autoloaders(worker),
            ..stack
        };
        Outcome::Sample(Sampled { stack, may_sleep })
    }

    /// Whether another read is likely to tell more: of an edge that quiescent reads do not have, one that is open only since
    /// there were `opened`, or an unproven root.
    fn is_doubtful(&self, candidate: &Candidate, opened: usize) -> bool {
        let mut open = candidate.open.iter();
        open.any(|&(index, edge)| {
            let is_root = index + 1 == self.frames.len();
            let is_unsettled = is_root || self.edges.is_new(edge, opened);
            self.edges.is_doubtful(edge) || (is_unsettled && !self.edges.is_settled(edge))
        })
    }

    fn identify(&mut self, worker: &mut Worker, now: u64) {
        let generation = worker.reader.request_time;
        if generation != worker.generation {
            self.functions.forget(&mut worker.local);
            worker.generation = generation;
        }
        let mut place = place(worker, &mut self.families, now);
        self.functions
            .identify(&mut place, &self.frames, &mut self.ids);
    }

    fn candidate(&mut self, worker: &mut Worker, start: u64, now: u64) -> Candidate {
        let layout = worker.process.engine.layout;
        let memory = std::sync::Arc::clone(&worker.reader.memory);
        let end = unwind(
            &*memory,
            layout,
            &mut worker.reader.copy,
            start,
            &mut self.frames,
        );
        let mut candidate = Candidate {
            stack: Stack::default(),
            whole: false,
            contradicted: None,
            open: Vec::new(),
        };
        if end == End::Torn {
            // Without a root nothing tells which part of the chain is true.
            return candidate;
        }
        self.identify(worker, now);
        self.add_frameless(worker, now);
        if end == End::TooDeep {
            candidate.stack.lines.push((Names::TRUNCATED, 0));
        }
        self.climb(worker, layout, &mut candidate);
        candidate
    }

    /// Follows the chain from the root towards the leaf for as long as its edges are not refuted.
    fn climb(&mut self, worker: &Worker, layout: &Layout, candidate: &mut Candidate) {
        let memory = &*worker.reader.memory;
        let last = self.frames.len().saturating_sub(1);
        let mut site: Option<(NameId, u32)> = None;
        let mut path = CallTree::NONE;
        self.paths.clear();
        for index in (0..self.frames.len()).rev() {
            let Some(id) = self.ids.get(index).copied().flatten() else {
                return;
            };
            let name = self.functions.name(id, index == last);
            let edge = self.edge_at(index, site, name);
            let known = match edge {
                Some(edge) => self.edge(worker, layout, index, edge),
                None if index < last => None,
                None => self.root(worker, id, name, &candidate.stack),
            };
            match known {
                None | Some(Known::Refuted) => return,
                Some(Known::Open(edge)) => {
                    let position = u32::try_from(candidate.stack.lines.len()).unwrap_or(u32::MAX);
                    candidate.stack.open.push((position, edge));
                    candidate.open.push((index, edge));
                }
                Some(Known::Proven(check)) => {
                    let callee = &self.frames[index];
                    let contradicted = self.frames.get(index + 1).is_some_and(|caller| {
                        check.contradicted(&worker.reader.copy, caller, callee)
                    });
                    candidate.contradicted =
                        candidate.contradicted.or(edge.filter(|_| contradicted));
                }
            }
            let Some(code) = self.functions.get(id) else {
                return;
            };
            let key = code.function.key;
            let (visible, start_line) = (!code.function.name.is_empty(), key.line_start);
            let op = op_index(
                layout,
                worker.process.engine.executor_globals,
                &key,
                self.frames[index].opline,
            );
            let line = op
                .filter(|&op| op != UNWINDING)
                .and_then(|op| self.functions.op(memory, layout, id, op))
                .map_or(start_line, |(_, line)| line);
            if visible {
                candidate
                    .stack
                    .lines
                    .push((name, if key.is_user() { line } else { 0 }));
            }
            let from = site.map_or(0, |(_, op)| op);
            path = self
                .call_tree
                .child(path, from, name, candidate.stack.lines.len());
            self.paths.push(path);
            if key.is_user() {
                match op {
                    Some(op) => site = Some((name, op)),
                    // The leaf's own opline proves nothing, and nothing is built on it.
                    None if index == 0 => {}
                    None => return,
                }
            }
            // The function at an address that is reused was read after the frame: its code is that of the frame's opline,
            // or the frame must still be there. The nameless frames of the engine itself are the same for every fiber.
            if op.is_none()
                && visible
                && !key.is_named()
                && !stands(
                    memory,
                    layout,
                    worker.process.engine.current_execute_data(),
                    &self.frames[index],
                )
            {
                return;
            }
        }
        candidate.whole = true;
    }

    /// What is known of a stack's root. The engine begins with a script; what else it calls by itself, as a shutdown function
    /// or an output callback, a quiescent read must have seen: to a torn chain any frame can look like its end. A generator's
    /// frame, which lies on the heap, has no caller for a moment while it is resumed, and is never one.
    fn root(
        &mut self,
        worker: &Worker,
        id: FunctionId,
        name: NameId,
        stack: &Stack,
    ) -> Option<Known> {
        let is_cut = !stack.lines.is_empty();
        if is_cut || self.functions.get(id)?.function.key.is_top_level() {
            return Some(Known::Proven(Check::Nothing));
        }
        if !worker.reader.copy.inside(self.frames.last()?.address) {
            return None;
        }
        let edge = Edge::of_root(name);
        let known = self.edges.known(&edge);
        Some(known.unwrap_or_else(|| self.edges.open(edge)))
    }

    /// The edge to frame `index` from the one that called it.
    fn edge_at(&self, index: usize, site: Option<(NameId, u32)>, callee: NameId) -> Option<Edge> {
        let caller = self
            .functions
            .get(self.ids.get(index + 1).copied().flatten()?)?;
        Some(Edge {
            // Without user code above, as in a shutdown function that is internal, the internal caller is the site.
            site: site.unwrap_or((caller.name, 0)),
            via: (!caller.function.key.is_user()).then_some(caller.name),
            callee,
        })
    }

    /// What is known of that edge.
    fn edge(
        &mut self,
        worker: &Worker,
        layout: &Layout,
        index: usize,
        edge: Edge,
    ) -> Option<Known> {
        let caller = self
            .functions
            .get(self.ids.get(index + 1).copied().flatten()?)?;
        let callee_id = self.ids.get(index).copied().flatten()?;
        if let Some(known) = self.edges.known(&edge) {
            return Some(known);
        }
        let memory = &*worker.reader.memory;
        // A function without a frame calls on behalf of its caller's.
        let through = is_absent(&self.frames[index + 1]).then_some(caller.function.name.as_str());
        let site_at = index + 1 + usize::from(through.is_some());
        let at_site = self
            .functions
            .get(self.ids.get(site_at).copied().flatten()?)?;
        let op = match edge.via {
            Some(_) if through.is_none() => None,
            None if edge.site.1 == UNWINDING => None,
            _ => Some(Op::read(memory, layout, self.frames[site_at].opline)?),
        };
        let site = Site {
            memory,
            layout,
            copy: &worker.reader.copy,
            executor_globals: worker.process.engine.executor_globals,
            compiler_globals: worker.process.engine.phase_globals.compiler_globals,
            frameless_functions: worker.process.engine.frameless_functions,
            through,
            caller: Side {
                frame: &self.frames[site_at],
                function: &at_site.function,
            },
            callee: Side {
                frame: &self.frames[index],
                function: &self.functions.get(callee_id)?.function,
            },
        };
        let evidence = site.judge(op.as_ref());
        Some(match evidence {
            Evidence::Proven(check, words)
                if site.stands(words) && site.is_steady(op.as_ref(), evidence) =>
            {
                self.edges.prove(edge, check)
            }
            Evidence::Proven(..) | Evidence::Open => self.edges.open(edge),
            Evidence::Refuted => self.edges.refute(edge),
        })
    }
}

/// Where unwinding one read begins: the trailing word only if it says something else.
fn starts(leading: &Globals, trailing: &Globals) -> impl Iterator<Item = u64> {
    let second = trailing.current_execute_data;
    let differs = second != 0 && second != leading.current_execute_data;
    std::iter::once(leading.current_execute_data).chain(differs.then_some(second))
}

fn value(candidate: &Candidate) -> (bool, usize) {
    (candidate.whole, candidate.stack.lines.len())
}

/// Index of an opline in a function's code. While an exception unwinds, a caller's opline is that of the engine's own
/// op in `EG(exception_op)`.
fn op_index(
    layout: &Layout,
    executor_globals: u64,
    key: &phpprof_zend::function::Key,
    opline: u64,
) -> Option<u32> {
    let row = &layout.executor_globals;
    let offset = opline.wrapping_sub(executor_globals + row.exception_op as u64);
    if offset < row.exception_op_size as u64 {
        return Some(UNWINDING);
    }
    key.op_index(layout, opline)
}

fn place<'a>(
    worker: &'a mut Worker,
    families: &'a mut FxHashMap<usize, Map>,
    now: u64,
) -> Place<'a, crate::target::process::ProcessMemory> {
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
