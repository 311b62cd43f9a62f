//! From the root of a stack towards its leaf, for as long as its edges are not refuted: each frame becomes a node of the
//! call tree.
//!
//! A known node costs one look-up. The call site is asked at an edge's first sight, and seldom again while it has not
//! proven it. Invariant: a path leads over proven and open edges only.

use phpprof_zend::Layout;
use phpprof_zend::function::{Function, Key};
use phpprof_zend::op::{Op, may_push_frame};
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::site::{Check, Evidence, Side, Site, Words};
use phpprof_zend::unwind::{End, Frame};

use super::Sampler;
use crate::read::worker::Worker;
use crate::stack::call_tree::{Call, PathId};
use crate::stack::edges::{Edge, EdgeId, Known};
use crate::stack::functions::{FunctionId, stands};
use crate::stack::names::{NameId, Names};
use crate::stack::trace::Trace;

/// The op index that stands for `EG(exception_op)`, where a caller's opline points while an exception unwinds.
pub(super) const UNWINDING: u32 = u32::MAX;
/// The op index of what has no op.
const NO_OP: u32 = u32::MAX - 1;

/// How far a climb came.
#[derive(Debug, Default)]
pub(super) struct Climb {
    /// The path to each frame, the root first.
    paths: Vec<PathId>,
    /// All frames are in it.
    pub is_whole: bool,
    /// The tree had no room for the rest.
    pub is_full: bool,
    /// The open edges, each with the index of its callee's frame.
    pub open: Vec<(usize, EdgeId)>,
}

/// Where the climb is.
struct At {
    path: PathId,
    /// The innermost user function so far, and the index of its op.
    site: Option<(NameId, u32)>,
}

impl Climb {
    pub(super) fn begin(&mut self) {
        self.paths.clear();
        self.open.clear();
        (self.is_whole, self.is_full) = (false, false);
    }

    /// How many frames, from the root, have a path.
    pub(super) fn proven(&self) -> usize {
        self.paths.len()
    }

    /// The path to the leaf, or as far as the climb came.
    pub(super) fn path(&self) -> PathId {
        self.path_of(self.proven())
    }

    /// The path of so many frames from the root.
    pub(super) fn path_of(&self, frames: usize) -> PathId {
        frames
            .checked_sub(1)
            .and_then(|index| self.paths.get(index).copied())
            .unwrap_or(PathId::NONE)
    }
}

impl Sampler {
    /// Climbs the trace.
    pub(super) fn climb(&mut self, worker: &Worker, trace: &Trace, climb: &mut Climb) {
        let autoloaders = self.autoloaders(worker, trace);
        let mut at = At {
            path: PathId::NONE,
            site: None,
        };
        if trace.end == End::TooDeep {
            let Some(path) = self.mark(at.path, Names::TRUNCATED) else {
                climb.is_full = true;
                return;
            };
            at.path = path;
        }
        for index in (0..trace.frames.len()).rev() {
            if autoloaders.contains(&index) {
                at.path = self.mark(at.path, Names::AUTOLOAD).unwrap_or(at.path);
            }
            if self.step(worker, trace, index, &mut at, climb).is_none() {
                return;
            }
            climb.paths.push(at.path);
        }
        climb.is_whole = true;
    }

    /// A node that is no function.
    fn mark(&mut self, parent: PathId, name: NameId) -> Option<PathId> {
        let known = self.tree.child(parent, name, NO_OP);
        known.or_else(|| self.tree.add(parent, name, NO_OP, 0, Call::default()))
    }

    /// Takes one frame; `None` where the climb ends below it.
    fn step(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        at: &mut At,
        climb: &mut Climb,
    ) -> Option<()> {
        let engine = &worker.process.engine;
        let frame = &trace.frames[index];
        let is_root = index + 1 == trace.frames.len();
        let id = trace.ids.get(index).copied().flatten()?;
        let name = self.functions.name(id, is_root);
        let code = self.functions.get(id)?;
        let (key, is_hidden) = (code.function.key, code.function.name.is_empty());
        let op = op_index(engine.layout, engine.executor_globals, &key, frame.opline);
        if key.is_user() && op.is_none() && index > 0 {
            // A caller's opline is inside its code; the leaf's own proves nothing, and nothing is built on it.
            return None;
        }
        let mut call = self.call(worker, trace, index, at, (id, name), climb)?;
        call.is_hidden = is_hidden;
        let caller = trace.frames.get(index + 1);
        let depth = trace.frames.len() - index;
        // What stood still needs no check: the caller's variable may have been assigned since the call.
        if depth > trace.stood
            && caller
                .is_some_and(|caller| call.check.contradicted(&worker.reader.copy, caller, frame))
        {
            return None;
        }
        let own = op.unwrap_or(NO_OP);
        let path = match self.tree.child(at.path, name, own) {
            Some(path) => path,
            None => {
                let line = self.line(worker, id, &key, op);
                let added = self.tree.add(at.path, name, own, line, call);
                climb.is_full = added.is_none();
                added?
            }
        };
        if call.edge.is_none() && self.tree.call(path).edge.is_some() {
            self.tree.prove(path, call.check);
        }
        // The function at an address that is reused was read after the frame: its code is that of the frame's opline, or the
        // frame must still be there. The nameless frames of the engine itself are the same for every fiber.
        let may_be_reused = op.is_none() && !is_hidden && !key.is_named();
        if may_be_reused
            && !stands(
                &*worker.reader.memory,
                engine.layout,
                engine.current_execute_data(),
                frame,
            )
        {
            return None;
        }
        at.path = path;
        if let Some(op) = op.filter(|_| key.is_user()) {
            at.site = Some((name, op));
        }
        Some(())
    }

    fn line(&mut self, worker: &Worker, id: FunctionId, key: &Key, op: Option<u32>) -> u32 {
        if !key.is_user() {
            return 0;
        }
        let layout = worker.process.engine.layout;
        op.filter(|&op| op != UNWINDING)
            .and_then(|op| self.functions.op(&*worker.reader.memory, layout, id, op))
            .map_or(key.line_start, |(_, line)| line)
    }

    /// What is known of the call of frame `index`; `None` where it is refuted.
    fn call(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        at: &At,
        (id, name): (FunctionId, NameId),
        climb: &mut Climb,
    ) -> Option<Call> {
        let known = self.tree.call_of(at.path, name).copied();
        let open = known.and_then(|call| call.edge);
        if let Some(call) = known
            && open.is_none_or(|edge| self.edges.is_settled(edge))
        {
            return Some(call);
        }
        let found = if index + 1 == trace.frames.len() {
            self.root(worker, trace, id, name)?
        } else {
            let edge = self.edge_at(trace, index, at.site, name)?;
            self.edge(worker, trace, index, edge)?
        };
        let mut call = known.unwrap_or_default();
        match found {
            Known::Refuted => return None,
            Known::Proven(check) => (call.edge, call.check) = (None, check),
            Known::Open(edge) => {
                climb.open.push((index, edge));
                call.edge = Some(edge);
            }
        }
        Some(call)
    }

    /// What is known of a stack's root. The engine begins with a script; what else it calls by itself, as a shutdown function
    /// or an output callback, a quiescent read must have seen: to a torn chain any frame can look like its end. A
    /// generator's frame, which lies on the heap, has no caller for a moment while it is resumed, and is never one.
    fn root(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        id: FunctionId,
        name: NameId,
    ) -> Option<Known> {
        if trace.end == End::TooDeep || self.functions.get(id)?.function.key.is_top_level() {
            return Some(Known::Proven(Check::Nothing));
        }
        if !worker.reader.copy.inside(trace.frames.last()?.address) {
            return None;
        }
        let edge = Edge::of_root(name);
        let known = self.edges.known(&edge);
        Some(known.unwrap_or_else(|| self.edges.open(edge)))
    }

    /// The edge to frame `index` from the one that called it.
    fn edge_at(
        &self,
        trace: &Trace,
        index: usize,
        site: Option<(NameId, u32)>,
        callee: NameId,
    ) -> Option<Edge> {
        let caller = trace.ids.get(index + 1).copied().flatten()?;
        let caller = self.functions.get(caller)?;
        Some(Edge {
            // Without user code above, as in a shutdown function that is internal, the internal caller is the site.
            site: site.unwrap_or((caller.name, 0)),
            via: (!caller.function.key.is_user()).then_some(caller.name),
            callee,
        })
    }

    /// Whether user code above the callee stands at an op that has not called it: the two frames are of different moments.
    fn pushes_no_frame(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        edge: Edge,
    ) -> bool {
        let layout = worker.process.engine.layout;
        let by_itself = layout.call_info.top | layout.call_info.generator;
        let Some(caller) = trace.ids.get(index + 1).copied().flatten() else {
            return false;
        };
        edge.via.is_none()
            && edge.site.1 != UNWINDING
            && trace.frames[index].call_info & by_itself == 0
            && self
                .functions
                .op(&*worker.reader.memory, layout, caller, edge.site.1)
                .is_some_and(|(opcode, _)| !may_push_frame(opcode))
    }

    /// What is known of that edge.
    fn edge(&mut self, worker: &Worker, trace: &Trace, index: usize, edge: Edge) -> Option<Known> {
        let id_at = |index: usize| trace.ids.get(index).copied().flatten();
        if let Some(known) = self.edges.known(&edge) {
            return Some(known);
        }
        let engine = &worker.process.engine;
        let memory = &*worker.reader.memory;
        if self.pushes_no_frame(worker, trace, index, edge) {
            return Some(Known::Refuted);
        }
        let caller = self.functions.get(id_at(index + 1)?)?;
        // A function without a frame calls on behalf of its caller's.
        let through = is_absent(&trace.frames[index + 1]).then_some(caller.function.name.as_str());
        let site_at = index + 1 + usize::from(through.is_some());
        let at_site = self.functions.get(id_at(site_at)?)?;
        let opline = trace.frames[site_at].opline;
        let set = ReadSet::new(memory);
        let key = &at_site.function.key;
        if key.is_named() {
            let size = engine.layout.zend_op.sizeof as u64;
            let first = key.code.max(opline.saturating_sub(OPS_TOGETHER * size));
            let length = opline.saturating_sub(first).saturating_add(size);
            set.fetch([(first, usize::try_from(length).unwrap_or(0))]);
        }
        let op = match edge.via {
            Some(_) if through.is_none() => None,
            None if edge.site.1 == UNWINDING => None,
            _ => Some(Op::read(&set, engine.layout, opline)?),
        };
        let side = |frame, function| side(worker, frame, function);
        let site = Site {
            memory: &set,
            layout: engine.layout,
            copy: &worker.reader.copy,
            executor_globals: engine.executor_globals,
            compiler_globals: engine.phase_globals.compiler_globals,
            frameless_functions: engine.frameless_functions,
            through,
            caller: side(&trace.frames[site_at], &at_site.function),
            callee: side(
                &trace.frames[index],
                &self.functions.get(id_at(index)?)?.function,
            ),
        };
        let evidence = site.judge(op.as_ref());
        // Frames that stood still were read as one; what lies elsewhere was not.
        let have_stood = trace.stood >= trace.frames.len() - index;
        let belong_together = |words: Words| match words {
            Words::Cache | Words::Frames if have_stood => true,
            words => site.stands(words),
        };
        Some(match evidence {
            Evidence::Proven(check, words)
                if belong_together(words) && site.is_steady(op.as_ref(), evidence) =>
            {
                self.edges.prove(edge, check)
            }
            Evidence::Proven(..) | Evidence::Open => self.edges.open(edge),
            Evidence::Refuted => self.edges.refute(edge),
        })
    }
}

fn side<'a>(worker: &Worker, frame: &'a Frame, function: &'a Function) -> Side<'a> {
    let key = &function.key;
    let is_shared = worker
        .process
        .shared_ranges
        .iter()
        .any(|range| range.contains(&key.code));
    Side {
        frame,
        function,
        is_passing: key.is_user() && !key.is_named() && !is_shared,
    }
}

/// Ops before a call that are read with it: most often the one that names the callee is among them.
const OPS_TOGETHER: u64 = 32;

/// Index of an opline in a function's code. While an exception unwinds, a caller's opline is that of the engine's own
/// op in `EG(exception_op)`.
pub(super) fn op_index(
    layout: &Layout,
    executor_globals: u64,
    key: &Key,
    opline: u64,
) -> Option<u32> {
    let row = &layout.executor_globals;
    let offset = opline.wrapping_sub(executor_globals + row.exception_op as u64);
    if offset < row.exception_op_size as u64 {
        return Some(UNWINDING);
    }
    key.op_index(layout, opline)
}
