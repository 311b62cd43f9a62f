//! What quiescent reads prove: every edge of the stack that they show, and its path.
//!
//! They come from the quiescent reader, or from a worker that sleeps. What this module does not do: count them as samples.

use phpprof_zend::Layout;
use phpprof_zend::site::Check;
use phpprof_zend::unwind::MAX_FRAMES;

use super::{Sampler, UNWINDING, place};
use crate::read::quiescent::Observation;
use crate::read::worker::Worker;
use crate::stack::call_tree::CallTree;
use crate::stack::edges::Edge;
use crate::stack::names::NameId;
use crate::stack::trace::Stack;

impl Sampler {
    /// Proves the edges of a sample that was taken while the worker slept: its frames are those at hand.
    pub fn prove_asleep(&mut self, worker: &Worker, stack: &Stack) {
        self.quality.quiet += 1;
        self.edges.note_quiescent_read();
        if stack.unstable || (stack.open.is_empty() && stack.unconfirmed.is_none()) {
            return;
        }
        let root = self.frames.last();
        let on_page = root.is_some_and(|root| worker.reader.copy.inside(root.address));
        self.prove_all(worker.process.engine.layout, on_page, true);
    }

    /// Proves what the quiescent reader saw.
    pub fn believe(&mut self, worker: &mut Worker, observation: Observation, now: u64) {
        self.quality.quiet += 1;
        self.edges.note_quiescent_read();
        let layout = worker.process.engine.layout;
        self.frames = observation.frames;
        for function in observation.functions {
            let mut place = place(worker, &mut self.families, now);
            self.functions.know(&mut place, function);
        }
        let mut place = place(worker, &mut self.families, now);
        self.functions
            .identify_keys(&mut place, &self.frames, &observation.keys, &mut self.ids);
        self.add_frameless(worker, now);
        let is_interpreted = worker.process.has_jit_code() == Some(false);
        self.prove_all(layout, observation.root_is_on_page, is_interpreted);
    }

    /// Proves every edge of the frames at hand: they come from a quiescent read. Their root is the engine's own call only on the
    /// VM stack's page: a generator that is being resumed has no caller yet. Between two instructions of the JIT's code
    /// frames of two calls can stand together (seen with tracing on 8.4 and 8.5): that is no witness of a path, and proves only
    /// what the call site leaves open.
    fn prove_all(&mut self, layout: &Layout, root_is_on_page: bool, can_confirm: bool) {
        let last = self.frames.len().saturating_sub(1);
        let is_cut = self.frames.len() >= MAX_FRAMES;
        let mut site: Option<(NameId, u32)> = None;
        let mut via: Option<NameId> = None;
        let mut caller: Option<NameId> = None;
        let (mut path, mut lines) = (Some(CallTree::NONE), 0);
        for index in (0..self.frames.len()).rev() {
            let Some(id) = self.ids.get(index).copied().flatten() else {
                // What is above an unknown frame has no known caller.
                (site, via, caller, path) = (None, None, None, None);
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
                if can_confirm {
                    self.edges.prove(edge, Check::Nothing);
                } else {
                    self.edges.prove_if_open(edge);
                }
            }
            let Some(code) = self.functions.get(id) else {
                return;
            };
            let key = code.function.key;
            lines += usize::from(!code.function.name.is_empty());
            path = path.map(|path| {
                self.call_tree
                    .child(path, site.map_or(0, |(_, op)| op), name, lines)
            });
            if let Some(path) = path.filter(|_| can_confirm) {
                self.call_tree.confirm(path);
            }
            if key.is_user() {
                // Outside its code the opline is that of the exception that unwinds, or none.
                site = Some((
                    name,
                    key.op_index(layout, self.frames[index].opline)
                        .unwrap_or(UNWINDING),
                ));
                via = None;
            } else {
                via = Some(name);
            }
            caller = Some(name);
        }
    }
}
