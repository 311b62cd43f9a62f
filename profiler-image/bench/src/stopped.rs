//! The stack of a process that is stopped: nothing moves while it is read, so it is true.
//!
//! It is read frame by frame, with nothing from the sampler except its way to read memory.
//! Invariant: the process continues when a [`Stopped`] is dropped.

use std::collections::HashMap;
use std::fs::{read_link, read_to_string};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_zend::Memory;
use phpprof_zend::engine::{Engine, find};
use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction};
use phpprof_zend::unwind::{Copy, Frame, UnwindEnd, unwind};

/// A child of this process that runs PHP, and is stopped now and then.
pub struct Stopper {
    pid: Pid,
    memory: ProcessMemory,
    engine: Engine,
    names: HashMap<FunctionKey, String>,
}

/// A child that is stopped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Result<Self> {
        kill(pid, Signal::SIGSTOP)?;
        let stopped = Self(pid);
        let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
        ensure!(
            matches!(status, WaitStatus::Stopped(..)),
            "the target has ended: {status:?}"
        );
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

impl Stopper {
    pub fn of(pid: Pid) -> Result<Self> {
        let executable = read_link(format!("/proc/{pid}/exe"))?;
        let maps = read_to_string(format!("/proc/{pid}/maps"))?;
        let maps = maps::parse(&maps, &executable.to_string_lossy());
        let memory = ProcessMemory::open(pid.as_raw())?;
        let engine = find(&memory, &maps.modules)
            .map_err(|refusal| anyhow::anyhow!("no engine: {refusal:?}"))?;
        Ok(Self {
            pid,
            memory,
            engine,
            names: HashMap::new(),
        })
    }

    /// The names of the functions on its stack, root first; `None` if the stack does not hold
    /// together: the engine makes a generator's frame the top, and only then writes the caller into
    /// it.
    pub fn stack(&mut self) -> Result<Option<Vec<String>>> {
        let _stopped = Stopped::stop(self.pid)?;
        let top = self.memory.word(self.engine.current_execute_data())?;
        let mut frames = Vec::new();
        // The copy is empty, so unwinding fetches each frame.
        let mut copy = Copy::default();
        let end = unwind(
            &self.memory,
            self.engine.layout,
            &mut copy,
            top,
            &mut frames,
        );
        if end != UnwindEnd::Root {
            return Ok(None);
        }
        let mut names = Vec::new();
        for frame in frames.iter().rev() {
            names.extend(self.name(frame)?);
        }
        Ok(Some(names))
    }

    /// `None` for a frame that is only there until `__call` is called: it has no code of its own.
    fn name(&mut self, frame: &Frame) -> Result<Option<String>> {
        let layout = self.engine.layout;
        let mut head = [0; HEAD];
        self.memory.read(frame.func, &mut head)?;
        let Some(key) = FunctionKey::parse(layout, &head) else {
            return Ok(None);
        };
        if let Some(name) = self.names.get(&key) {
            return Ok(Some(name.clone()));
        }
        let function = NamedFunction::resolve(&self.memory, layout, key).context("no name")?;
        self.names.insert(key, function.name().to_owned());
        Ok(Some(function.name().to_owned()))
    }
}
