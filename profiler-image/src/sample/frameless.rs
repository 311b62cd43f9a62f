//! Internal functions that PHP calls without a frame, from 8.4 on. Their frames are inserted where
//! PHP's own backtraces have them: between a caller at such a call and the callee of the function;
//! at the top of a stack only while the call lasts.
//! Invariant: at most [`MAX_ABSENT`] are looked up in one stack, which is unknown from the next one
//! on.

use phpprof_zend::op::{Op, is_frameless};
use phpprof_zend::site::frameless::{frame, function_of, is_inside};
use phpprof_zend::unwind::Frame;

use super::{StackSampler, place};
use crate::read::worker::Worker;
use crate::stack::functions::FunctionId;
use crate::stack::stand::Stand;
use crate::stack::trace::Trace;

/// Such calls in one stack: each takes several reads.
pub(super) const MAX_ABSENT: usize = 64;

impl StackSampler {
    /// Inserts them into the identified frames of the trace.
    pub(super) fn add_frameless(&mut self, worker: &mut Worker, trace: &mut Trace, now: u64) {
        let Some(table) = worker.process.engine.frameless_functions else {
            return;
        };
        let top = worker.process.engine.layout.call_info.top;
        let mut left = MAX_ABSENT;
        for index in (0..trace.frames.len()).rev() {
            let has_called = match index
                .checked_sub(1)
                .and_then(|above| trace.frames.get(above))
            {
                Some(above) => above.call_info & top != 0,
                None => true,
            };
            // A generator that delegates has its opline after the op that does.
            let Some(op) = (has_called && !trace.frames[index].is_delegating)
                .then(|| self.frameless_op(worker, trace, index))
                .flatten()
            else {
                continue;
            };
            // The top frame's opline does not change when its call has ended; under the JIT it may
            // belong to an earlier frame.
            let frame_at = trace.frames[index];
            let may_be_over = || !is_inside(&worker.reader.copy, &frame_at, &op);
            if index == 0 && (may_be_over() || !worker.reader.is_interpreted()) {
                continue;
            }
            if left == 0 {
                // Without an id the climb ends there.
                trace.insert(index, frame(&frame_at, frame_at.func), None);
                return;
            }
            left -= 1;
            let Some(function) = function_of(&worker.reader.memory, table, &op) else {
                continue;
            };
            let absent = frame(&frame_at, function);
            let id = self.identify_one(worker, absent, now);
            trace.insert(index, absent, id);
        }
    }

    /// The op at a frame's opline, if it calls without a frame.
    fn frameless_op(&mut self, worker: &Worker, trace: &Trace, index: usize) -> Option<Op> {
        let layout = worker.process.engine.layout;
        let memory = &worker.reader.memory;
        let id = trace.ids.get(index).copied().flatten()?;
        let opline = trace.frames.get(index)?.opline;
        let op = self
            .functions
            .get(id)?
            .function
            .key
            .op_index(layout, opline)?;
        let (opcode, _) = self.functions.op(memory, layout, id, op)?;
        is_frameless(opcode)
            .then(|| Op::read(memory, layout, opline))
            .flatten()
    }

    fn identify_one(&mut self, worker: &mut Worker, frame: Frame, now: u64) -> Option<FunctionId> {
        let mut place = place(worker, &mut self.families, now);
        let mut ids = std::mem::take(&mut self.ids);
        self.functions
            .identify(&mut place, &[frame], &mut ids, |_, _| Stand::default());
        let id = ids.first().copied().flatten();
        self.ids = ids;
        id
    }
}
