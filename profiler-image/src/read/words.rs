//! The single words of the engine that a read takes with the stack: the phase without a frame, the
//! request, the JIT.
//!
//! Invariant: all words are of the read whose pieces they were.

use phpprof_zend::Layout;
use phpprof_zend::jit::JitBuffer;
use phpprof_zend::memory::Piece;
use phpprof_zend::phase::{MomentBytes, Phase, PhaseGlobals};

use super::globals::Globals;
use crate::target::process::Process;

/// Where the words of a worker are.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordAddresses {
    pub layout: &'static Layout,
    pub executor_globals: u64,
    pub phase: PhaseGlobals,
    jit: Option<JitBuffer>,
    request_time: Option<u64>,
}

impl WordAddresses {
    pub fn new(process: &Process) -> Self {
        Self {
            layout: process.engine.layout,
            executor_globals: process.engine.executor_globals,
            phase: process.engine.phase_globals,
            jit: process.jit,
            request_time: process.engine.request_time,
        }
    }

    /// Whether the JIT has compiled code, before the first read of a stack.
    pub fn has_jit_code(&self) -> Option<bool> {
        match self.jit {
            Some(_) => None,
            None => Some(false),
        }
    }

    /// A read of [`Globals`].
    pub fn globals<'a>(&self, bytes: &'a mut [u8; Globals::SIZE]) -> Piece<'a> {
        let (offset, length) = Globals::slice(self.layout);
        Piece {
            address: self.executor_globals + offset,
            bytes: &mut bytes[..length],
        }
    }
}

/// The bytes of the words.
#[derive(Debug)]
pub(super) struct WordBytes {
    moment: MomentBytes,
    gc: [u8; 2],
    last: [u8; Globals::SIZE],
    jit: [u8; 16],
    request_time: [u8; 8],
}

impl WordBytes {
    pub fn new() -> Self {
        Self {
            moment: MomentBytes::default(),
            gc: [0; 2],
            last: [0; Globals::SIZE],
            jit: [0; 16],
            request_time: [0; 8],
        }
    }

    /// The pieces that tell the phase without a frame, and if that is asked, the request.
    pub fn of_phase(
        &mut self,
        at: &WordAddresses,
        asks_request: bool,
    ) -> impl Iterator<Item = Piece<'_>> {
        let moment = self
            .moment
            .pieces(&at.phase, at.layout, at.executor_globals);
        let time = at.request_time.filter(|_| asks_request);
        moment.chain(piece(time, &mut self.request_time))
    }

    /// The pieces of all words, in the order in which a read with a stack takes them.
    pub fn of_stack(&mut self, at: &WordAddresses) -> impl Iterator<Item = Piece<'_>> {
        let moment = self
            .moment
            .pieces(&at.phase, at.layout, at.executor_globals);
        moment
            .chain(piece(at.phase.gc_enabled(at.layout), &mut self.gc))
            .chain([at.globals(&mut self.last)])
            .chain(piece(at.jit.map(JitBuffer::marks), &mut self.jit))
            .chain(piece(at.request_time, &mut self.request_time))
    }

    /// The phase without a frame; `None` if a word's address is not known.
    pub fn phase(&self, at: &WordAddresses) -> Option<Phase> {
        self.moment.phase(&at.phase, at.layout)
    }

    /// `CG(in_compilation)`; false if it is not known.
    pub fn in_compilation(&self) -> bool {
        self.moment.in_compilation()
    }

    /// Whether the request is being ended; false if that is not known.
    pub fn in_shutdown(&self, at: &WordAddresses) -> bool {
        self.moment.in_shutdown(at.layout)
    }

    /// `GC_G(gc_active)`; false if it is not known. `gc_collect_cycles` also runs while the
    /// collector is disabled.
    pub fn gc_active(&self) -> bool {
        matches!(self.gc, [0 | 1, 1])
    }

    /// The top frame at the end of the read.
    pub fn last(&self, at: &WordAddresses) -> Globals {
        Globals::parse(at.layout, &self.last)
    }

    /// Whether the JIT has compiled code; `None` if that is unknown.
    pub fn has_jit_code(&self, at: &WordAddresses) -> Option<bool> {
        match at.jit {
            Some(buffer) => buffer.has_code(&self.jit),
            None => Some(false),
        }
    }

    /// `SG(global_request_time)`; 0 if it is not known.
    pub fn request_time(&self) -> u64 {
        u64::from_le_bytes(self.request_time)
    }
}

fn piece(address: Option<u64>, bytes: &mut [u8]) -> Option<Piece<'_>> {
    address.map(|address| Piece { address, bytes })
}
