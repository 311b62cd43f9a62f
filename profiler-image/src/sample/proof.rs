//! Proves an edge: its frames stand, or its call site names the callee.
//!
//! The cheapest check comes first: an op that pushes no frame refutes an edge without a read; a
//! call site takes two reads if its inline cache has the callee, else three; frames that stand take
//! five ([`super::standing`]). Calls by the engine itself begin with the frames, because such a
//! call may end soon.
//! Invariant: an edge is proven by words of one moment, or by such as hold whenever the frames were
//! read; what is neither proven nor refuted stays open.

use phpprof_zend::function::FunctionKey;
use phpprof_zend::op::{is_frameless, is_yield_from, may_push_frame};
use phpprof_zend::site::callable::callable_argument;
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::site::{Evidence, Relation, Words};
use phpprof_zend::unwind::Frame;
use phpprof_zend::zval::ZVAL;

use super::StackSampler;
use super::ask::{SiteAnswer, is_shared};
use super::op::UNWINDING;
use super::standing::{IDENTITY, PROOF, WORDS};
use super::told::{caller_stood, is_plain, tells};
use crate::read::worker::Worker;
use crate::stack::edges::{Edge, EdgeKnowledge};
use crate::stack::functions::FunctionId;
use crate::stack::stand::Stand;
use crate::stack::trace::Trace;

impl StackSampler {
    /// What is known of that edge.
    pub(super) fn edge(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        edge: Edge,
        now: u64,
    ) -> Option<EdgeKnowledge> {
        let kind = &worker.process.engine.layout.call_info;
        let call_info = trace.frames[index].call_info;
        match self.edges.known(&edge) {
            // What a freed generator has left on the heap stands until that is used again, below
            // any other resumer. So its call site is asked in each sample until the edge is proven.
            Some(EdgeKnowledge::Open(_)) if call_info & kind.generator != 0 => {}
            Some(known) => return Some(known),
            None => {}
        }
        if self.pushes_no_frame(worker, trace, index, edge) {
            return Some(self.edges.refute(edge));
        }
        let is_started = call_info & kind.top != 0;
        let may_be_autoloader = is_started && self.looks_up_class(worker, trace, index + 1);
        if may_be_autoloader
            && self.edges.is_autoloader(edge.callee)
            && self.is_one_moment(worker, trace, index, Words::Frames)
        {
            return Some(self.edges.prove(edge, Relation::Nothing));
        }
        // Hardly any site names the callees of the engine itself. In code of the JIT, frames of two
        // calls can stand together between two instructions: there the site must not refute the
        // edge.
        if is_started
            && worker.reader.is_interpreted()
            && !self.calls_argument(trace, index + 1)
            && self.stand(worker, trace, index, now)
        {
            if may_be_autoloader && self.names_callee(worker, trace, index, edge) {
                self.edges.note_autoloader(edge.callee);
            }
            return Some(self.edges.prove(edge, Relation::Nothing));
        }
        self.edge_by_site(worker, trace, index, edge, may_be_autoloader, now)
    }

    /// Whether the tree of generators tells that the one of the caller delegates to that of frame
    /// `index`, by the op before its own.
    pub(super) fn is_delegation(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        edge: Edge,
    ) -> bool {
        let Some([callee, caller]) = trace.frames.get(index..index + 2) else {
            return false;
        };
        let id = trace.ids.get(index + 1).copied().flatten();
        let Some((id, op)) = id.zip(edge.site.1.checked_sub(1)) else {
            return false;
        };
        let (memory, layout) = (&worker.reader.memory, worker.process.engine.layout);
        edge.via.is_none()
            && worker.reader.copy.delegates(caller, callee)
            && self
                .functions
                .op(memory, layout, id, op)
                .is_some_and(|(opcode, _)| is_yield_from(opcode))
    }

    /// What is known of an edge by its call site, or by frames that stand where that says nothing.
    fn edge_by_site(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        edge: Edge,
        may_be_autoloader: bool,
        now: u64,
    ) -> Option<EdgeKnowledge> {
        if self.may_be_another_closure(worker, trace, index) {
            self.look_since(worker, trace, index, now);
        }
        let answer = self.ask(worker, trace, index, edge)?;
        if let Some((address, length)) = answer.left
            && worker.reader.copy.beside.at(address).is_none()
            && worker.reader.expect_beside(address, length as u64)
        {
            self.edges.ask_again(&edge);
        }
        Some(match answer.evidence {
            Evidence::Refuted => self.edges.refute(edge),
            Evidence::Proven(check, words)
                if answer.is_steady && self.is_one_moment(worker, trace, index, words) =>
            {
                if may_be_autoloader {
                    self.edges.note_autoloader(edge.callee);
                }
                let has_told = tells(check, words);
                if has_told && is_plain(worker, trace, index, &edge) {
                    self.edges.prove_by_caller(edge, check)
                } else {
                    self.edges.prove(edge, check)
                }
            }
            _ if self.stand(worker, trace, index, now) => self.edges.prove(edge, Relation::Nothing),
            _ => self.edges.open(edge),
        })
    }

    /// Whether the call site of an edge that stands names the callee by words in memory, such as an
    /// autoloader by its argument.
    fn names_callee(&mut self, worker: &Worker, trace: &Trace, index: usize, edge: Edge) -> bool {
        !self.edges.is_autoloader(edge.callee)
            && matches!(
                self.ask(worker, trace, index, edge),
                Some(SiteAnswer {
                    evidence: Evidence::Proven(..),
                    is_steady: true,
                    ..
                })
            )
    }

    /// Whether the call site refutes an unknown edge; it is refuted from then on.
    pub(super) fn denies(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        edge: Edge,
    ) -> bool {
        if self.pushes_no_frame(worker, trace, index, edge) {
            self.edges.refute(edge);
            return true;
        }
        let Some(answer) = self.ask(worker, trace, index, edge) else {
            return false;
        };
        match answer.evidence {
            Evidence::Refuted => _ = self.edges.refute(edge),
            Evidence::Proven(check, words)
                if answer.is_steady && are_of_any_moment(worker, trace, index, words) =>
            {
                _ = self.edges.prove(edge, check);
            }
            _ => {}
        }
        answer.evidence == Evidence::Refuted
    }

    /// Whether user code above the callee stands at an op that has not called it: the two frames
    /// are of different moments.
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
                .op(&worker.reader.memory, layout, caller, edge.site.1)
                .is_some_and(|(opcode, _)| {
                    // A frameless op pushes no frame; frames of callbacks, which the engine pushes
                    // for it, are excluded above.
                    let pushes_none = is_frameless(opcode) && !is_absent(&trace.frames[index]);
                    pushes_none || !may_push_frame(opcode)
                })
    }

    /// Whether the function of a frame is one that calls its argument, which then names the callee.
    fn calls_argument(&self, trace: &Trace, index: usize) -> bool {
        let id = trace.ids.get(index).copied().flatten();
        let code = id.and_then(|id| self.functions.get(id));
        let name = code.and_then(|code| code.function.internal_name());
        name.is_some_and(|name| callable_argument(name).is_some())
    }

    /// Whether the words that name the callee are of one moment.
    pub(super) fn is_one_moment(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        words: Words,
    ) -> bool {
        let callee = trace.frames.len() - index;
        // Memory on the heap, such as the body of a generator, was read after the looks of the
        // sample's own read.
        let ends = trace.frames.get(index..index + 2).unwrap_or_default();
        let on_page = ends
            .iter()
            .all(|frame| worker.reader.copy.inside(frame.address));
        // The looks of one read come at even intervals: they can be in step with a fast loop, and
        // code of the JIT is so fast that words of two calls then look like those of one.
        let may_be_in_step = trace.is_fast && !worker.reader.is_interpreted();
        let tells = on_page && !may_be_in_step;
        let operand = match words {
            Words::Code => return true,
            Words::Temporary(_) if worker.reader.is_interpreted() => return true,
            Words::Cache if tells && trace.stood + 1 >= callee => return true,
            Words::Frames | Words::Script if tells && trace.stood >= callee => return true,
            Words::Script if tells && are_in_two_looks(worker, trace, index) => return true,
            Words::Operand(address) | Words::Temporary(address)
                if tells
                    && trace.stood >= callee
                    && (worker.reader.copy.shows(address, trace.around.clone())
                        || ends
                            .first()
                            .is_some_and(|callee| is_below_looks(worker, callee, address))) =>
            {
                return true;
            }
            Words::Cache | Words::Frames | Words::Script => None,
            Words::Operand(address) | Words::Temporary(address) => Some(address),
        };
        // The caller's cache only depends on the caller.
        let caller = callee - 1;
        let top = if words == Words::Cache {
            caller
        } else {
            callee
        };
        let lowest = ends.last().map_or(u64::MAX, |caller| caller.address);
        let (standing, reader) = (&mut self.standing, &worker.reader);
        // Consecutive generators have the same addresses, and so have the words that hold them:
        // these words tell little.
        let calls = if on_page { WORDS } else { PROOF };
        let stand = standing.stand(reader, &trace.frames, lowest, top, calls);
        stand.holds_call(caller, top)
            && operand.is_none_or(|at| self.standing.shows(&worker.reader.copy, at))
    }

    /// Whether the call of frame `index` stands, and its functions are those that they were
    /// identified as.
    pub(super) fn stand(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        now: u64,
    ) -> bool {
        let callee = trace.frames.len() - index;
        let site = self.site_of(trace, index);
        let caller = trace.frames.len().saturating_sub(site).max(1);
        if !self
            .look_again(worker, trace, index)
            .holds_call(caller, callee)
        {
            return false;
        }
        let layout = worker.process.engine.layout;
        let is_sure = |(id, frame): (&Option<FunctionId>, &Frame)| {
            let code = id.and_then(|id| self.functions.get(id));
            let key = code.map(|code| code.function.key);
            let has_opline = |key: &FunctionKey| key.op_index(layout, frame.opline).is_some();
            key.is_some_and(|key| {
                key.is_named() || (is_shared(worker, key.code) && has_opline(&key))
            })
        };
        let ends = index..(site + 1).min(trace.ids.len());
        let mut ends = trace.ids[ends.clone()].iter().zip(&trace.frames[ends]);
        ends.all(is_sure)
            || self
                .look_since(worker, trace, index, now)
                .holds_call(caller, callee)
    }

    /// The index of the innermost user function that called frame `index`, or of the root.
    fn site_of(&self, trace: &Trace, index: usize) -> usize {
        let is_user = |id: &Option<FunctionId>| {
            let code = id.and_then(|id| self.functions.get(id));
            code.is_some_and(|code| code.function.key.is_user())
        };
        let callers = trace.ids.get(index + 1..).unwrap_or_default();
        let site = callers.iter().position(is_user);
        site.map_or(trace.frames.len().saturating_sub(1), |site| {
            index + 1 + site
        })
    }

    /// Which frames have stood since their functions were identified, and have the same ones:
    /// another closure may have taken an address before its code was read. They are looked at
    /// again, unless that was done for the call of frame `index`.
    fn look_since(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        index: usize,
        now: u64,
    ) -> Stand {
        let (lowest, depth) = self.lowest_of(trace, index);
        if let Some(stand) = trace.stands_since.filter(|stand| stand.has_seen(depth)) {
            return stand;
        }
        let frames = &trace.frames;
        let callee = frames.len() - index;
        let standing = &mut self.standing;
        let stand = standing.stand(&worker.reader, frames, lowest, callee, IDENTITY);
        *trace.stands_since.insert(if stand == Stand::default() {
            stand
        } else {
            stand.and(self.still_the_same(worker, trace, stand.below, now))
        })
    }

    /// Which frames stand: they are looked at again, unless that was done for the call of frame
    /// `index`.
    fn look_again(&mut self, worker: &Worker, trace: &mut Trace, index: usize) -> Stand {
        let (lowest, depth) = self.lowest_of(trace, index);
        match trace.stands {
            Some(stand) if stand.has_seen(depth) => stand,
            _ => *trace.stands.insert({
                let frames = &trace.frames;
                let callee = frames.len() - index;
                let standing = &mut self.standing;
                standing.stand(&worker.reader, frames, lowest, callee, PROOF)
            }),
        }
    }

    /// The lowest frame that the proof of the call of frame `index` needs: its address, and its
    /// place from the root.
    fn lowest_of(&self, trace: &Trace, index: usize) -> (u64, usize) {
        let site = self.site_of(trace, index);
        let lowest = trace.frames.get(site);
        (
            lowest.map_or(u64::MAX, |frame| frame.address),
            trace.frames.len().saturating_sub(site),
        )
    }

    /// The frames above `below` that have the same functions when they are identified again, up to
    /// the first that has another one.
    fn still_the_same(
        &mut self,
        worker: &mut Worker,
        trace: &Trace,
        below: usize,
        now: u64,
    ) -> Stand {
        let mut ids = Vec::new();
        let mut place = super::place(worker, &mut self.families, now);
        self.functions
            .identify(&mut place, &trace.frames, &mut ids, |_, _| Stand::default());
        let both = ids.iter().zip(&trace.ids).rev().skip(below);
        let same = both.take_while(|(again, id)| again == id).count();
        Stand {
            below,
            above: below + same,
        }
    }
}

/// Whether these words prove a call of which the looks show two moments. A caller that stood at its
/// op has a temporary of that op alone.
fn are_of_any_moment(worker: &Worker, trace: &Trace, index: usize, words: Words) -> bool {
    words == Words::Code
        || matches!(words, Words::Temporary(_))
            && worker.reader.is_interpreted()
            && caller_stood(worker, trace, index)
}

/// Whether a callee's frame and a zval lie below the looks: both were read with the caller, as one
/// piece, and what stood above them shows that the call went on.
fn is_below_looks(worker: &Worker, callee: &Frame, zval: u64) -> bool {
    let (copy, size) = (
        &worker.reader.copy,
        worker.process.engine.layout.execute_data.sizeof,
    );
    copy.is_below_looks(callee.address, size) && copy.is_below_looks(zval, ZVAL)
}

/// Whether both looks next to the top's word show frame `index` and its caller.
fn are_in_two_looks(worker: &Worker, trace: &Trace, index: usize) -> bool {
    let caller = trace.frames.get(index + 1);
    let is_looked_at = |frame: &Frame| worker.reader.copy.is_looked_at(frame.address);
    trace.together + index >= trace.frames.len() && caller.is_some_and(is_looked_at)
}
