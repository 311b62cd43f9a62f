//! From the root of a stack towards its leaf, until an edge is refuted: each frame becomes a
//! node of the call tree.
//!
//! A known node costs one look-up. The sampler looks for a proof when it first sees an edge, and
//! rarely again until it finds one ([`super::proof`]). Invariant: no edge of a path is refuted.

use std::sync::Arc;

use phpprof_zend::closure::is_closure;
use phpprof_zend::function::ZendFunction;
use phpprof_zend::site::Relation;
use phpprof_zend::unwind::{Frame, UnwindEnd};

use super::moment::next_to;
use super::op::{AtOp, NO_OP, op_index};
use super::phase::autoloads;
use super::{StackSampler, collector};
use crate::read::worker::Worker;
use crate::stack::call_tree::{CallPath, PathId};
use crate::stack::edges::{Edge, EdgeId, EdgeKnowledge};
use crate::stack::functions::{FunctionId, stands};
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::{GcPosition, Trace};

/// The result of a climb.
#[derive(Debug, Default)]
pub(super) struct Climb {
    /// The path to each frame, the root first.
    pub(super) paths: Vec<PathId>,
    /// All frames have a path.
    pub is_whole: bool,
    /// It ended at a frame that its caller's op does not call: it has ended, or is not made yet.
    pub is_refuted: bool,
    /// It ended at two frames that the looks next to the word do not show together: the upper may
    /// be a remainder.
    is_apart: bool,
    /// It ended at a call that nothing contradicts but whose edge is open, or at a nameless
    /// closure.
    pub is_unknown: bool,
    /// It ended at a call that the program makes, but that only one look shows by this call path.
    pub is_seen_once: bool,
    /// It continues at such a call, to a candidate.
    pub takes_candidates: bool,
    /// The tree had no room for the rest.
    pub is_full: bool,
    /// A recursion is shorter in the path than in the stack.
    pub is_folded: bool,
    /// The open edges.
    pub open: Vec<EdgeId>,
    /// How many calls, from the root, are made at the ops of their nodes.
    calls_at_nodes: usize,
}

/// The current position of the climb.
struct At {
    path: PathId,
    /// The innermost user function so far, and the index of its op.
    site: Option<(NameId, u32)>,
    /// A caller has moved to another op since the moment, so only known calls may follow.
    has_gone_on: bool,
    /// When the climb is made.
    now: u64,
}

impl Climb {
    pub(super) fn begin(&mut self) {
        self.paths.clear();
        self.open.clear();
        self.calls_at_nodes = usize::MAX;
        (self.is_whole, self.is_refuted, self.is_apart) = (false, false, false);
        (self.is_unknown, self.is_full, self.is_folded) = (false, false, false);
        (self.is_seen_once, self.takes_candidates) = (false, false);
    }

    /// How many frames, from the root, have a path.
    pub(super) fn proven(&self) -> usize {
        self.paths.len()
    }

    /// The path to the leaf, or as far as the climb came.
    pub(super) fn path(&self) -> PathId {
        self.path_of(self.proven())
    }

    /// The path of this many frames from the root.
    pub(super) fn path_of(&self, frames: usize) -> PathId {
        frames
            .checked_sub(1)
            .and_then(|index| self.paths.get(index).copied())
            .unwrap_or(PathId::NONE)
    }
}

impl StackSampler {
    /// Climbs the trace.
    pub(super) fn climb(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) {
        trace.collector = self.collector(worker, trace);
        let autoloaders = self.autoloaders(worker, trace);
        let mut are_loading = None;
        let mut at = At {
            path: PathId::NONE,
            site: None,
            has_gone_on: false,
            now,
        };
        let root = if trace.end == UnwindEnd::TooDeep {
            self.root_of_cut(worker, trace, climb, now)
        } else if self.ends_request(worker, trace) {
            self.mark(at.path, FunctionNames::SHUTDOWN)
        } else {
            Some(at.path)
        };
        let Some(root) = root else {
            climb.is_full = true;
            return;
        };
        at.path = root;
        for index in (0..trace.frames.len()).rev() {
            if autoloaders.contains(&index)
                && (self.has_autoloaded(trace, index, at.path)
                    || *are_loading.get_or_insert_with(|| autoloads(worker, autoloaders.len())))
            {
                at.path = self
                    .mark(at.path, FunctionNames::AUTOLOAD)
                    .unwrap_or(at.path);
            }
            if trace.collector == GcPosition::Calls(index) {
                at.path = self
                    .mark(at.path, FunctionNames::COLLECTING)
                    .unwrap_or(at.path);
            }
            if self.step(worker, trace, index, &mut at, climb).is_none() {
                return;
            }
            climb.paths.push(at.path);
        }
        climb.is_whole = true;
    }

    /// Whether the call of this frame by that path was an autoloader's before.
    fn has_autoloaded(&mut self, trace: &Trace, index: usize, path: PathId) -> bool {
        let id = trace.ids.get(index).copied().flatten();
        let name = id.map(|id| self.functions.name(id, false));
        let mark = self.tree.child(path, FunctionNames::AUTOLOAD, NO_OP);
        mark.zip(name)
            .is_some_and(|(mark, name)| self.tree.call_of(mark, name).is_some())
    }

    /// A node that is not a function.
    pub(super) fn mark(&mut self, parent: PathId, name: NameId) -> Option<PathId> {
        let known = self.tree.child(parent, name, NO_OP);
        known.or_else(|| self.tree.add(parent, name, NO_OP, 0, CallPath::default()))
    }

    /// Takes one frame; `None` if the climb ends below it.
    fn step(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        at: &mut At,
        climb: &mut Climb,
    ) -> Option<()> {
        let process = Arc::clone(&worker.process);
        let engine = &process.engine;
        let frame = trace.frames[index];
        let is_root = index + 1 == trace.frames.len();
        let Some(id) = trace.ids.get(index).copied().flatten() else {
            climb.is_unknown = is_closure(engine.layout, &frame);
            return None;
        };
        let name = self.functions.name(id, is_root);
        let code = self.functions.get(id)?;
        let (key, is_hidden) = (code.function.key, is_of_engine(&code.function));
        let op = op_index(engine.layout, engine.executor_globals, &key, frame.opline);
        if key.is_user() && op.is_none() && index > 0 {
            // A caller's opline is inside its code. The leaf's proves nothing.
            return None;
        }
        let found = AtOp { id, name, key, op };
        let mut call = match self.call(worker, trace, index, at, &found, climb) {
            Some(call) => call,
            None if trace.may_have_gone_on => self.call_before(worker, &frame, at, name, climb)?,
            None => return None,
        };
        call.is_hidden = is_hidden;
        let caller = trace.frames.get(index + 1);
        let depth = trace.frames.len() - index;
        // A frame that stood needs no check: the variable may have been assigned since. Remains of
        // an ended call also stand.
        let needs_check = depth > trace.stood || at.has_gone_on;
        if needs_check
            && caller
                .is_some_and(|caller| call.check.contradicted(&worker.reader.copy, caller, &frame))
        {
            climb.is_refuted = at.has_gone_on;
            return None;
        }
        let path = self.node(worker, at.path, &found, call, climb)?;
        // The engine's own nameless frames are the same for every fiber.
        let is_told = op.is_some() || is_hidden || key.is_named();
        if !is_told && !is_still_there(worker, &frame) {
            return None;
        }
        at.path = path;
        if let Some(op) = op.filter(|_| key.is_user()) {
            at.site = Some((name, op));
        }
        Some(())
    }

    /// The node of a function at one of its ops, below a path; `None` without room.
    pub(super) fn node(
        &mut self,
        worker: &mut Worker,
        below: PathId,
        found: &AtOp,
        call: CallPath,
        climb: &mut Climb,
    ) -> Option<PathId> {
        let (name, own) = (found.name, found.op.unwrap_or(NO_OP));
        // An open edge is the path's own until it is proven.
        let is_settled = call.edge.is_none_or(|edge| self.edges.is_settled(edge));
        let is_known = !climb.is_folded && self.tree.child(below, name, own).is_some();
        let may_fold = is_settled && !is_known;
        let folded = may_fold.then(|| self.tree.folded(below, name)).flatten();
        climb.is_folded |= folded.is_some();
        let (below, call) = folded.unwrap_or((below, call));
        let path = match self.tree.child(below, name, own) {
            Some(path) => path,
            None => {
                let line = self.line(worker, found);
                let added = self.tree.add(below, name, own, line, call);
                climb.is_full = added.is_none();
                added?
            }
        };
        self.tree.note(path, call);
        Some(path)
    }

    /// The call that the caller made at another op, before it moved on. `None` if it may still run.
    fn call_before(
        &self,
        worker: &Worker,
        frame: &Frame,
        at: &mut At,
        name: NameId,
        climb: &mut Climb,
    ) -> Option<CallPath> {
        if !climb.is_refuted && !climb.is_apart {
            return None;
        }
        let before = self.tree.nearest_op_that_calls(at.path, name)?;
        let call = *self.tree.call_of(before, name)?;
        if !call.edge.is_none_or(|edge| self.edges.is_settled(edge)) {
            climb.is_unknown = true;
            return None;
        }
        let tells_by_object = matches!(call.check, Relation::SameThis | Relation::ThisIn(_));
        if tells_by_object && may_be_two_calls(worker, frame) {
            return None;
        }
        (at.path, at.has_gone_on) = (before, true);
        (climb.is_refuted, climb.is_apart, climb.is_unknown) = (false, false, false);
        climb.is_seen_once = false;
        if let Some(path) = climb.paths.last_mut() {
            *path = before;
        }
        climb.calls_at_nodes = climb.calls_at_nodes.min(climb.paths.len());
        Some(call)
    }

    /// Counts a sample for its calls in doubt: one stands if two looks in a row show its frame, and
    /// all callers at their ops. The callers of a trusted call are trusted as well.
    pub(super) fn count_calls(&mut self, worker: &Worker, trace: &Trace, climb: &Climb) {
        let (layout, copy) = (worker.process.engine.layout, &worker.reader.copy);
        let mut stand = None;
        for (index, &path) in climb.paths.iter().enumerate().rev() {
            if self.tree.is_trusted(path) {
                return;
            }
            let stand = *stand.get_or_insert_with(|| {
                (1..copy.looks.len())
                    .map(|look| copy.not_denied(layout, &trace.frames, look - 1..look + 1))
                    .max()
                    .unwrap_or(0)
                    .min(climb.calls_at_nodes)
            });
            self.tree.count(path, index < stand);
        }
    }

    /// What is known of the call of frame `index`; `None` if it is refuted.
    fn call(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        at: &At,
        function: &AtOp,
        climb: &mut Climb,
    ) -> Option<CallPath> {
        let (id, name) = (function.id, function.name);
        let known = self.tree.call_of(at.path, name).copied();
        let open = known.and_then(|call| call.edge);
        if let Some(call) = known
            && open.is_none_or(|edge| self.edges.is_settled(edge))
        {
            return Some(call);
        }
        if at.has_gone_on {
            climb.is_refuted = true;
            return None;
        }
        if trace.frames[index..]
            .get(1)
            .is_some_and(|it| it.is_delegating)
        {
            let edge = self.edge_at(trace, index, at.site, name)?;
            if self.is_delegation(worker, trace, index, edge) {
                self.edges.prove(edge, Relation::Nothing);
                return Some(CallPath::default());
            }
        }
        // An unproven call may mix two moments: a look can show remains of an earlier call.
        if trace.together < trace.frames.len() - index {
            let edge = self.edge_at(trace, index, at.site, name)?;
            return self.told_apart(worker, trace, index, edge, climb);
        }
        let found = if index + 1 == trace.frames.len() {
            self.root(worker, trace, id, name, at.now)?
        } else {
            let edge = self.edge_at(trace, index, at.site, name)?;
            self.edge(worker, trace, index, edge, at.now)?
        };
        let mut call = known.unwrap_or_default();
        match found {
            EdgeKnowledge::Refuted => {
                climb.is_refuted = true;
                return None;
            }
            EdgeKnowledge::Proven(check) => (call.edge, call.check) = (None, check),
            EdgeKnowledge::Open(edge) => {
                climb.open.push(edge);
                call.edge = Some(edge);
            }
        }
        Some(call)
    }

    /// The call of frame `index`, which the looks next to the word do not show together with its
    /// caller: only the caller's op can tell that call. `None` if it does not, and candidates are
    /// not taken; the climb then says whether the call can have ended.
    fn told_apart(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        edge: Edge,
        climb: &mut Climb,
    ) -> Option<CallPath> {
        let told = self.told_by_caller(worker, trace, index, edge);
        let (caller, frame) = (trace.frames.get(index + 1)?, &trace.frames[index]);
        // What is left from another caller may have calls above it that this one does not make.
        let is_confirmed = |check: Relation| check.confirmed(&worker.reader.copy, caller, frame);
        if let Some(EdgeKnowledge::Proven(check)) = told
            && is_confirmed(check)
        {
            return Some(CallPath {
                check,
                ..CallPath::default()
            });
        }
        climb.is_refuted = match told {
            Some(known) => known == EdgeKnowledge::Refuted,
            None => self.refutes(worker, trace, index, edge),
        };
        climb.is_unknown = !climb.is_refuted && self.edges.is_open(&edge);
        // The engine marks a generator like a call, but several callers resume it in turn.
        let kind = &worker.process.engine.layout.call_info;
        climb.is_apart = frame.call_info & (kind.top | kind.generator) == kind.top;
        let is_possible = |check: &Relation| !climb.is_refuted && is_confirmed(*check);
        let check = self.edges.check_of(&edge).filter(is_possible)?;
        climb.is_seen_once = true;
        climb.takes_candidates.then_some(CallPath {
            check,
            is_candidate: true,
            ..CallPath::default()
        })
    }

    /// Whether the caller's op refutes the call of frame `index`.
    fn refutes(&mut self, worker: &Worker, trace: &Trace, index: usize, edge: Edge) -> bool {
        match self.edges.known(&edge) {
            Some(known) => known == EdgeKnowledge::Refuted,
            None => self.denies(worker, trace, index, edge),
        }
    }

    /// What is known of a stack's root. The engine begins with a script. For anything else that it
    /// calls, such as a shutdown function or an output callback, a quiescent read is needed: in a
    /// torn chain any frame can look like its end. A generator's frame, which is on the heap, has
    /// no caller for a moment while it is resumed; it is never a root.
    fn root(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        id: FunctionId,
        name: NameId,
        now: u64,
    ) -> Option<EdgeKnowledge> {
        let key = self.functions.get(id)?.function.key;
        if trace.end == UnwindEnd::TooDeep || key.is_top_level() {
            return Some(EdgeKnowledge::Proven(Relation::Nothing));
        }
        let root = trace.frames.len().checked_sub(1)?;
        let (copy, address) = (&worker.reader.copy, trace.frames[root].address);
        if !copy.inside(address) {
            return None;
        }
        // A fiber's nameless bottom frame is linked to its caller only after it was pushed.
        let is_first = !key.is_nameless() && copy.is_first(worker.process.engine.layout, address);
        let edge = Edge::of_root(name);
        if let Some(known) = self.edges.known(&edge) {
            return Some(known);
        }
        Some(if is_first || self.stand(worker, trace, root, now) {
            self.edges.prove(edge, Relation::Nothing)
        } else {
            self.edges.open(edge)
        })
    }

    /// The edge to frame `index` from the one that called it.
    pub(super) fn edge_at(
        &self,
        trace: &Trace,
        index: usize,
        site: Option<(NameId, u32)>,
        callee: NameId,
    ) -> Option<Edge> {
        let caller = trace.ids.get(index + 1).copied().flatten()?;
        let caller = self.functions.get(caller)?;
        Some(Edge {
            // Without user code above, the internal caller is the site.
            site: site.unwrap_or((caller.name, 0)),
            via: (!caller.function.key.is_user()).then_some(caller.name),
            callee,
        })
    }
}

/// Whether a function is the engine's own, which users do not see: at the bottom of a fiber, or of
/// the fiber of the collector.
pub(super) fn is_of_engine(function: &ZendFunction) -> bool {
    function.key.is_nameless() || function.internal_name() == Some(collector::IN_FIBER)
}

/// Whether a frame is as it was read. Its function was read after it, and that address may be
/// reused: an opline in the function's code shows that it was not. Without one, the frame must
/// still be there.
fn is_still_there(worker: &Worker, frame: &Frame) -> bool {
    let engine = &worker.process.engine;
    stands(
        &worker.reader.memory,
        engine.layout,
        engine.current_execute_data(),
        frame,
    )
}

/// Whether a frame that an ended method call has left can have words of two calls: the next one has
/// been pushed over it meanwhile. The function of one call on the object of the other satisfies a
/// [`Relation`] that neither of the two calls does.
fn may_be_two_calls(worker: &Worker, frame: &Frame) -> bool {
    let layout = worker.process.engine.layout;
    let copy = &worker.reader.copy;
    frame.has_this() && copy.shows_another(layout, frame, next_to(0))
}
