//! The stack of a process that is stopped: nothing moves while it is read, so it is true.
//!
//! It is read frame by frame, with nothing from the sampler except its way to read memory. Invariant: the process continues when
//! a [`Stopped`] is dropped.

use std::collections::HashMap;
use std::fs::{read_link, read_to_string};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof::target::process::stat::Stat;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_zend::Memory;
use phpprof_zend::engine::{Engine, find};
use phpprof_zend::function::{HEAD, Key, NamedFunction};
use phpprof_zend::unwind::{Copy, End, Frame, unwind};

/// How long a process may take to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// A process that runs PHP, and is stopped now and then.
pub struct Stopper {
    pid: Pid,
    memory: ProcessMemory,
    engine: Engine,
    names: HashMap<Key, String>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub name: String,
    /// It is a function of the engine or of an extension.
    pub is_internal: bool,
}

/// A process that is stopped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Result<Self> {
        kill(pid, Signal::SIGSTOP)?;
        let stopped = Self(pid);
        let begun = Instant::now();
        loop {
            let state = Stat::of(pid.as_raw()).map(|stat| stat.state);
            match state {
                Some('T') => return Ok(stopped),
                None | Some('Z' | 'X') => anyhow::bail!("the target {pid} has ended"),
                Some(_) => ensure!(begun.elapsed() < STOPS_WITHIN, "{pid} does not stop"),
            }
        }
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

    /// The functions on its stack, root first; none between two requests. `None` if the stack does not hold together, as in the instant in
    /// which the engine switches from one stack to another.
    pub fn stack(&mut self) -> Result<Option<Vec<Called>>> {
        let _stopped = Stopped::stop(self.pid)?;
        let top = self.memory.word(self.engine.current_execute_data())?;
        if top == 0 {
            return Ok(Some(Vec::new()));
        }
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
        if end != End::Root {
            return Ok(None);
        }
        let mut calls = Vec::new();
        for frame in frames.iter().rev() {
            calls.extend(self.called(frame)?);
        }
        Ok(Some(calls))
    }

    /// `None` for a frame that is only there until `__call` is called: it has no code of its own.
    fn called(&mut self, frame: &Frame) -> Result<Option<Called>> {
        let layout = self.engine.layout;
        let mut head = [0; HEAD];
        self.memory.read(frame.func, &mut head)?;
        let Some(key) = Key::parse(layout, &head) else {
            return Ok(None);
        };
        let is_internal = !key.is_user();
        let called = |name: &str| Called {
            name: name.to_owned(),
            is_internal,
        };
        if let Some(name) = self.names.get(&key) {
            return Ok(Some(called(name)));
        }
        let function = NamedFunction::resolve(&self.memory, layout, key).context("no name")?;
        // Other code can take a user function's addresses in the next request.
        if is_internal || self.engine.sapi == "cli" {
            self.names.insert(key, function.name().to_owned());
        }
        Ok(Some(called(function.name())))
    }
}
