//! What the engine does besides running PHP code, as frames of a stack.
//!
//! A phase is recognised from words that were read between the two reads of the stack's top
//! (`phpprof_zend::phase`), and only if both name the same frame. Each phase must also be possible
//! at the stack's leaf. Invariant: a phase never changes which edges are accepted.

use phpprof_zend::op::INCLUDE_OR_EVAL;
use phpprof_zend::phase::{
    self, Phase, can_wait, function_looks_up_class, is_inside_include, looks_up_class,
};
use phpprof_zend::unwind::{Frame, UnwindEnd};
use smallvec::SmallVec;

use super::op::{UNWINDING, op_index};
use super::{SampledStack, StackSampler, TurnOutcome};
use crate::read::worker::Worker;
use crate::stack::functions::FunctionId;
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::{GcPosition, SummedStack, Trace};
use crate::target::process::relay::Relay;

/// Internal functions in which a worker in a loop waits for its next request.
const WAITS_FOR_REQUEST: [&str; 1] = ["frankenphp_handle_request"];

/// The internal function in which RoadRunner's workers wait, but which they also use otherwise.
const READS: &str = "fread";

/// Internal functions that compile, and the one method that does.
const COMPILES: [&str; 4] = [
    "opcache_compile_file",
    "token_get_all",
    "create_function",
    "assert",
];
const COMPILING_METHOD: (&[u8], &[u8]) = (b"PhpToken", b"tokenize");

/// Whether exactly this many classes are being autoloaded, by the engine's count.
pub(super) fn autoloads(worker: &mut Worker, count: usize) -> bool {
    let (engine, known) = (&worker.process.engine, &mut worker.autoloaded);
    let memory = &worker.reader.memory;
    phase::autoloads(memory, engine.layout, engine.executor_globals, known) == Some(count)
}

/// The outcome for a worker without a frame.
pub(super) fn without_frame(phase: Option<Phase>) -> TurnOutcome {
    let name = match phase {
        None | Some(Phase::Idle) => return TurnOutcome::Idle,
        Some(Phase::Startup) => FunctionNames::STARTUP,
        Some(Phase::Compiling) => FunctionNames::COMPILING,
        Some(Phase::Shutdown) => FunctionNames::SHUTDOWN,
    };
    TurnOutcome::Sample(SampledStack {
        stack: SummedStack::of_phase(name),
        is_open: false,
        may_sleep: true,
    })
}

impl StackSampler {
    /// The engine's phase at the leaf of the trace's frames; `moved` tells that the top differed
    /// after the read.
    pub(super) fn phase(&mut self, worker: &Worker, trace: &Trace, moved: bool) -> Option<NameId> {
        let reader = &worker.reader;
        let (leaf, id) = trace.leaf()?;
        let function = &self.functions.get(id)?.function;
        let name = function.internal_name().unwrap_or_default();
        let relay = worker.process.relay.as_ref();
        let waits = || name == READS && relay.is_some_and(Relay::is_awaited);
        if WAITS_FOR_REQUEST.contains(&name) || waits() {
            return Some(FunctionNames::IDLE);
        }
        if moved {
            return None;
        }
        if trace.collector == GcPosition::AtLeaf {
            return Some(FunctionNames::COLLECTING);
        }
        let method = (&function.class[..], &function.function_name[..]);
        let is_compiler = COMPILES.contains(&name) || method == COMPILING_METHOD;
        let layout = worker.process.engine.layout;
        let includes = self.opcode(worker, &leaf, id) == Some(INCLUDE_OR_EVAL);
        if reader.in_compilation {
            return (includes || is_compiler).then_some(FunctionNames::COMPILING);
        }
        // Code of the JIT saves a leaf's opline only for calls.
        let is_inside =
            || reader.is_interpreted() && is_inside_include(&reader.memory, layout, leaf.opline);
        (includes && is_inside()).then_some(FunctionNames::LOADING)
    }

    /// Whether a worker can sleep in the leaf of the trace's frames: an internal function, or code
    /// at an op that can wait.
    pub(super) fn may_sleep(&mut self, worker: &Worker, trace: &Trace) -> bool {
        let Some((leaf, id)) = trace.leaf() else {
            return true;
        };
        let Some(key) = self.functions.get(id).map(|code| code.function.key) else {
            return true;
        };
        let layout = worker.process.engine.layout;
        let opcode = self.opcode(worker, &leaf, id);
        !key.is_user() || opcode.is_some_and(|opcode| can_wait(layout, opcode))
    }

    /// The opcode that the code of a frame is at.
    fn opcode(&mut self, worker: &Worker, frame: &Frame, id: FunctionId) -> Option<u8> {
        let layout = worker.process.engine.layout;
        let key = self.functions.get(id)?.function.key;
        let op = key.op_index(layout, frame.opline)?;
        let (opcode, _) = self.functions.op(&worker.reader.memory, layout, id, op)?;
        Some(opcode)
    }

    /// The indexes of the frames that may be autoloaders: each was called by code that looks up a
    /// class, and is neither a destructor nor the body of a generator.
    pub(super) fn autoloaders(&mut self, worker: &Worker, trace: &Trace) -> SmallVec<[usize; 4]> {
        let kind = &worker.process.engine.layout.call_info;
        let is_called = |callee: &Frame| {
            callee.call_info & kind.top != 0 && callee.call_info & kind.generator == 0
        };
        let callees = trace.frames.iter().enumerate();
        let callees = callees.filter(|(_, callee)| is_called(callee));
        callees
            .map(|(index, _)| index)
            .filter(|&index| {
                !self.is_destructor(trace, index) && self.looks_up_class(worker, trace, index + 1)
            })
            .collect()
    }

    /// Whether the engine called the root of the trace to end a request, as a shutdown function. A
    /// script is begun before that, and what is called in between, as the handler of an exception,
    /// ends before.
    pub(super) fn ends_request(&self, worker: &Worker, trace: &Trace) -> bool {
        let copy = &worker.reader.copy;
        let root = trace.ids.last().copied().flatten();
        let root = root.and_then(|id| self.functions.get(id));
        let looks = 0..copy.looks.len();
        worker.reader.in_shutdown
            && trace.end == UnwindEnd::Root
            && root.is_some_and(|code| !code.function.key.is_top_level())
            && copy.not_denied(worker.process.engine.layout, &trace.frames, looks) > 0
    }

    /// Whether a frame is at an op, or in an internal function, that looks up a class.
    pub(super) fn looks_up_class(&mut self, worker: &Worker, trace: &Trace, index: usize) -> bool {
        let engine = &worker.process.engine;
        let Some(id) = trace.ids.get(index).copied().flatten() else {
            return false;
        };
        let Some(code) = self.functions.get(id) else {
            return false;
        };
        let key = code.function.key;
        if !key.is_user() {
            let name = code.function.internal_name();
            return name.is_some_and(function_looks_up_class);
        }
        op_index(
            engine.layout,
            engine.executor_globals,
            &key,
            trace.frames[index].opline,
        )
        .filter(|&op| op != UNWINDING)
        .and_then(|op| {
            self.functions
                .op(&worker.reader.memory, engine.layout, id, op)
        })
        .is_some_and(|(opcode, _)| looks_up_class(opcode))
    }
}
