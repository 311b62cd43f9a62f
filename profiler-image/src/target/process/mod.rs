//! The target as the kernel shows it: its memory, and its files under `/proc`.
//!
//! Invariant: nothing here stops, signals or writes to a target.

use std::ops::Range;
use std::sync::Arc;

use phpprof_zend::engine::Engine;
use phpprof_zend::extensions::Extensions;
use phpprof_zend::jit::JitBuffer;

pub mod calls;
pub mod cpu_clock;
pub mod held;
pub mod last_pid;
pub mod maps;
mod memory;
pub mod relay;
pub mod stat;
mod text;
pub mod throttle;

pub(super) use memory::fault;
pub use memory::{IN_PLACE, ProcessMemory};
use relay::Relay;
pub use text::{bytes, proc_path, read_text, text};

/// An interpreter: that of a process, or of one of its threads.
#[derive(Debug)]
pub struct Process {
    /// In the sampler's PID namespace.
    pub pid: i32,
    /// The thread id of the thread that runs PHP; the PID itself if the engine is not thread-safe.
    pub tid: i32,
    /// Ticks since boot: with the PID it identifies a process for good.
    pub start_time: u64,
    /// Its parent is of the target, and gets its CPU time when it has waited for it.
    pub has_parent: bool,
    /// Its engine, or its thread's.
    pub engine: Arc<Engine>,
    /// Memory that it shares with its siblings: opcache's.
    pub shared_ranges: Arc<[Range<u64>]>,
    /// Where opcache counts its restarts, if there is an opcache.
    pub restarts_at: Option<u64>,
    /// Where the JIT puts code, if there is a JIT.
    pub jit: Option<JitBuffer>,
    /// Its memory.
    pub memory: Arc<ProcessMemory>,
    /// The pipe to RoadRunner, if that has started it.
    pub relay: Option<Relay>,
    /// Processes forked from one another have the same number: their shared data is learned once.
    pub family: usize,
    /// The word at [`Engine::fingerprint_at`], which differs between engines: another one means
    /// another program.
    pub fingerprint: u64,
    /// Target of `/proc/PID/exe`.
    pub executable: String,
}

impl Process {
    /// Its current extensions; `None` if they cannot be read, or it has not begun a request yet.
    #[must_use]
    pub fn extensions(&self) -> Option<Extensions> {
        let text = text(&format!("/proc/{}/maps", self.pid))?;
        let maps = maps::parse(&text, &self.executable);
        Extensions::read(&*self.memory, &self.engine, &maps.modules, &maps.shared)
    }
}

#[cfg(test)]
impl Process {
    /// The test's own process, as if this engine ran in it.
    pub(crate) fn of_this_test(engine: Engine, jit: Option<JitBuffer>) -> Self {
        let pid = i32::try_from(std::process::id()).unwrap();
        let memory = ProcessMemory::open(pid).unwrap();
        Self {
            pid,
            tid: pid,
            start_time: 0,
            has_parent: false,
            fingerprint: memory.bound_word(engine.fingerprint_at).unwrap_or(0),
            engine: Arc::new(engine),
            shared_ranges: Arc::new([]),
            restarts_at: None,
            jit,
            memory: Arc::new(memory),
            relay: None,
            family: 0,
            executable: String::new(),
        }
    }
}
