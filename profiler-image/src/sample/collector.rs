//! Where the collector of cycles stands in a stack: at its leaf, or below a destructor that it has
//! called.
//!
//! `GC_G(gc_active)` stays set while destructors run, so it tells only that the collector is
//! somewhere in the stack. It cannot be there twice.
//! Invariant: a frame is called by the collector only if its caller or its object tells that; where
//! they do not, the stack is without it.

use phpprof_zend::collector::{Destructor, called_by_collector};
use phpprof_zend::memory::word_at;
use phpprof_zend::unwind::Frame;

use super::StackSampler;
use crate::read::worker::Worker;
use crate::stack::functions::Code;
use crate::stack::trace::{GcPosition, Trace};

/// The function that runs the collector.
const COLLECTS: &str = "gc_collect_cycles";
/// The function of the fiber in which the collector calls destructors if it runs in a fiber itself,
/// from 8.4 on (Zend/zend_gc.c).
pub(super) const IN_FIBER: &str = "gc_destructor_fiber";
const DESTRUCTOR: &[u8] = b"__destruct";

impl StackSampler {
    /// Where the collector is in the trace.
    pub(super) fn collector(&self, worker: &Worker, trace: &Trace) -> GcPosition {
        let is_active = worker.reader.gc_active;
        let frames = (0..trace.frames.len()).rev();
        let by_call = frames
            .clone()
            .find(|&index| self.is_by_call(trace, index, is_active));
        if let Some(index) = by_call {
            return GcPosition::Calls(index);
        }
        if !is_active {
            return GcPosition::Absent;
        }
        let (indexes, destructors): (Vec<_>, Vec<_>) = frames
            .filter_map(|index| Some((index, self.destructor(worker, trace, index)?)))
            .unzip();
        if destructors.is_empty() {
            return GcPosition::AtLeaf;
        }
        let (reader, layout) = (&worker.reader, worker.process.engine.layout);
        let called = reader
            .gc_enabled_at()
            .and_then(|at| called_by_collector(&reader.memory, layout, at, &destructors));
        match called.as_deref() {
            Some([]) => GcPosition::AtLeaf,
            Some([one]) => indexes
                .get(*one)
                .map_or(GcPosition::Unknown, |&index| GcPosition::Calls(index)),
            _ => GcPosition::Unknown,
        }
    }

    /// Whether the caller of a frame tells that the collector has called it. A signal's handler is
    /// called from there too, from 8.4 on.
    fn is_by_call(&self, trace: &Trace, index: usize, is_active: bool) -> bool {
        let caller = self.code_at(trace, index + 1);
        let name = caller.and_then(|code| code.function.internal_name());
        if name == Some(COLLECTS) {
            return is_active || self.is_destructor(trace, index);
        }
        // A destructor that has suspended its fiber is resumed by the program.
        let runs_in_fiber = || {
            let above = index.checked_sub(1).and_then(|it| self.code_at(trace, it));
            above.is_some_and(|code| code.function.internal_name() == Some(IN_FIBER))
        };
        let is_resumed = || caller.is_some_and(|code| code.function.class[..] == *b"Fiber");
        is_active && runs_in_fiber() && !is_resumed()
    }

    /// Whether a frame runs a destructor.
    pub(super) fn is_destructor(&self, trace: &Trace, index: usize) -> bool {
        let is_method = |code: &Code| {
            let function = &code.function;
            !function.class.is_empty() && function.function_name.eq_ignore_ascii_case(DESTRUCTOR)
        };
        self.code_at(trace, index).is_some_and(is_method)
    }

    /// A frame that the engine has called to destroy an object, or may have.
    fn destructor(&self, worker: &Worker, trace: &Trace, index: usize) -> Option<Destructor> {
        let layout = worker.process.engine.layout;
        let frame: Frame = *trace.frames.get(index)?;
        let is_generator = frame.call_info & layout.call_info.generator != 0;
        if frame.call_info & layout.call_info.top == 0 || frame.is_delegating {
            return None;
        }
        if !is_generator {
            let destroys = frame.has_this() && self.is_destructor(trace, index);
            return destroys.then_some(Destructor {
                frame,
                object: frame.this,
                is_generator,
            });
        }
        let header = worker.reader.copy.at(frame.address)?;
        let object = word_at(header, layout.execute_data.return_value);
        Some(Destructor {
            frame,
            object,
            is_generator,
        })
    }

    fn code_at(&self, trace: &Trace, index: usize) -> Option<&Code> {
        let id = trace.ids.get(index).copied().flatten()?;
        self.functions.get(id)
    }
}
