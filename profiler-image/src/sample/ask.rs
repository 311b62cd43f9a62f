//! Asks a call site whether it names its callee.
//!
//! Invariant: a read asks at most [`MOST_ASKED`] sites, and what a site needs of the code is read
//! together.

use phpprof_zend::Layout;
use phpprof_zend::closure::{Holder, is_closure};
use phpprof_zend::function::{FunctionKey, ZendFunction};
use phpprof_zend::memory::{Memory, is_in};
use phpprof_zend::op::Op;
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::site::{EdgeSide, Evidence, Site, own_cache};
use phpprof_zend::unwind::Frame;

use super::StackSampler;
use super::op::UNWINDING;
use crate::read::worker::Worker;
use crate::stack::edges::Edge;
use crate::stack::functions::was_there;
use crate::stack::trace::Trace;

/// How many call sites one read may ask, in any of its moments: beyond that, the rest of the stack
/// waits for the next sample.
const MOST_ASKED: usize = 128;
/// Ops before a call that are read with it: the one that names the callee is usually among them.
const OPS_TOGETHER: u64 = 32;

/// What a call site says of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SiteAnswer {
    pub evidence: Evidence,
    /// It says the same each time.
    pub is_steady: bool,
    /// Memory that may tell more if it is read together with the frames, as an address and a
    /// length.
    pub left: Option<(u64, usize)>,
}

impl StackSampler {
    /// The call site's answer for an edge; `None` if it cannot be read, or this read has asked
    /// enough.
    pub(super) fn ask(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        edge: Edge,
    ) -> Option<SiteAnswer> {
        self.asked += 1;
        if self.asked > MOST_ASKED {
            return None;
        }
        let id_at = |index: usize| trace.ids.get(index).copied().flatten();
        let engine = &worker.process.engine;
        let caller = self.functions.get(id_at(index + 1)?)?;
        // If a function without a frame has called, the call site is in its caller.
        let through = is_absent(&trace.frames[index + 1])
            .then(|| caller.function.internal_name().unwrap_or_default());
        let site_at = index + 1 + usize::from(through.is_some());
        let at_site = self.functions.get(id_at(site_at)?)?;
        let set = ReadSet::new(&worker.reader.memory);
        let callee = self.functions.get(id_at(index)?)?;
        let frames = &trace.frames;
        let compiler_globals = engine.phase_globals.compiler_globals;
        fetch_site(
            &set,
            engine.layout,
            compiler_globals,
            frames,
            [(site_at, &at_site.function), (index, &callee.function)],
        );
        let op = match edge.via {
            Some(_) if through.is_none() => None,
            None if edge.site.1 == UNWINDING => None,
            _ => Some(Op::read(&set, engine.layout, frames[site_at].opline)?),
        };
        let holder = self.functions.holder_of(&frames[site_at]);
        let caller = match holder {
            Some(_) => without_cache(&frames[site_at]),
            None => frames[site_at],
        };
        // Of such a closure, the caller's variable tells the rest.
        let is_sure = is_closure(engine.layout, &frames[index])
            && !self.may_be_another_closure(worker, trace, index);
        let site = Site {
            memory: &set,
            layout: engine.layout,
            copy: &worker.reader.copy,
            executor_globals: engine.executor_globals,
            compiler_globals,
            frameless_functions: engine.frameless_functions,
            through,
            caller: side(worker, &set, &caller, holder.is_some(), &at_site.function),
            callee: EdgeSide {
                has_own_opline: is_sure || has_called(trace, index),
                ..side(worker, &set, &frames[index], is_sure, &callee.function)
            },
        };
        let evidence = site.judge(op.as_ref());
        let is_steady = site.is_steady(op.as_ref(), evidence)
            && holder.is_none_or(|holder| is_still_there(worker, holder));
        let is_open = evidence == Evidence::Open;
        Some(SiteAnswer {
            evidence,
            is_steady,
            left: op.filter(|_| is_open).and_then(|op| site.left_by(&op)),
        })
    }

    /// Whether frame `index` runs a closure of which nothing tells that its function is the one
    /// that was read after the frame. Another closure may have taken its place, of code that has
    /// replaced its own, or of any if no opline of its own tells the code.
    pub(super) fn may_be_another_closure(
        &self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
    ) -> bool {
        let frame = &trace.frames[index];
        let id = trace.ids.get(index).copied().flatten();
        let Some(code) = id.and_then(|id| self.functions.get(id)) else {
            return false;
        };
        let depth = trace.frames.len() - index;
        let has_stood = trace.stands_since.is_some_and(|stand| stand.holds(depth));
        is_closure(worker.process.engine.layout, frame)
            && (may_be_replaced(worker, &code.function.key) || !has_called(trace, index))
            && !has_stood
            && self.functions.holder_of(frame).is_none()
    }
}

/// The frame of a closure that has ended: its cache may have ended with it, its code has not.
fn without_cache(closure: &Frame) -> Frame {
    Frame {
        run_time_cache: 0,
        ..*closure
    }
}

/// Whether the code that a function holds has been in its place since the stack was read.
fn is_still_there(worker: &Worker, holder: &Holder) -> bool {
    let arena = worker.reader.arena();
    let (memory, layout) = (&worker.reader.memory, worker.process.engine.layout);
    let shared = &worker.process.shared_ranges;
    holder.has_stood(memory, layout, arena, |address| {
        was_there(arena, shared, address)
    })
}

/// Whether frame `index` has called something: then its opline is its own.
fn has_called(trace: &Trace, index: usize) -> bool {
    !trace.frames[..index].iter().all(is_absent)
}

/// Reads what a call site needs of the code in one call: its ops, what leads to its inline cache,
/// and the scopes of functions that are linked again in each request. `ends` are the indices and
/// functions of the caller and the callee.
fn fetch_site<M: Memory + ?Sized>(
    set: &ReadSet<'_, M>,
    layout: &Layout,
    compiler_globals: Option<u64>,
    frames: &[Frame],
    ends: [(usize, &ZendFunction); 2],
) {
    let [(caller, at_site), _] = ends;
    let (opline, key) = (frames[caller].opline, &at_site.key);
    if !key.is_named() {
        return;
    }
    let size = layout.zend_op.sizeof as u64;
    let first = key.code.max(opline.saturating_sub(OPS_TOGETHER * size));
    let length = opline.saturating_sub(first).saturating_add(size);
    let ops = (first, usize::try_from(length).unwrap_or(0));
    let scopes = ends
        .into_iter()
        .filter(|(_, function)| function.is_relinked())
        .map(|(index, _)| {
            let scope = layout.function.scope as u64;
            (frames[index].func.saturating_add(scope), 8)
        });
    let cache = own_cache(layout, compiler_globals, &frames[caller]);
    set.fetch([ops].into_iter().chain(cache).chain(scopes));
}

/// Whether other code can replace a function's at the same addresses within a request.
fn may_be_replaced(worker: &Worker, key: &FunctionKey) -> bool {
    key.is_user() && !key.is_named() && !is_shared(worker, key.code)
}

pub(super) fn is_shared(worker: &Worker, address: u64) -> bool {
    is_in(&worker.process.shared_ranges, address)
}

fn side<'a>(
    worker: &Worker,
    memory: &impl Memory,
    frame: &'a Frame,
    is_sure: bool,
    function: &'a ZendFunction,
) -> EdgeSide<'a> {
    let key = &function.key;
    let scope = worker.process.engine.layout.function.scope as u64;
    let scope = if function.is_relinked() {
        memory.word(frame.func.saturating_add(scope)).unwrap_or(0)
    } else {
        key.scope
    };
    EdgeSide {
        frame,
        function,
        scope,
        has_own_opline: true,
        is_passing: !is_sure && may_be_replaced(worker, key),
    }
}
