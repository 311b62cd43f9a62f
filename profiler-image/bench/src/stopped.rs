//! The stack of a process that is stopped: nothing moves while it is read, so it is true.
//!
//! It is read frame by frame, with nothing from the sampler except its way to read memory. A stop is
//! at no place more probable than at another: `PTRACE_INTERRUPT` interrupts the process's CPU, so
//! that it stops before its next instruction, or at the end of the system call that it is in. A call
//! of a function lasts while `EG(current_execute_data)` is its frame: what the caller does to prepare
//! a frame, and to free arguments and variables of one that has ended, is the caller's own time.
//! Invariant: the process continues when a [`Stopped`] is dropped, and is not traced any more when
//! its [`Stopper`] is.

use std::collections::HashMap;
use std::fs::{read_link, read_to_string};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_zend::Memory;
use phpprof_zend::engine::{Engine, find};
use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction};
use phpprof_zend::unwind::{Copy, Frame, UnwindEnd, unwind};

/// The event of a stop by `PTRACE_INTERRUPT` (`PTRACE_EVENT_STOP`, include/uapi/linux/ptrace.h).
const INTERRUPTED: i32 = 128;

/// With other programs on the machine.
const STARTED_WITHIN: Duration = Duration::from_secs(20);

/// A process that runs PHP, and is stopped now and then.
pub struct Stopper {
    traced: Traced,
    memory: ProcessMemory,
    engine: Engine,
    names: HashMap<FunctionKey, String>,
}

/// What a stop after some CPU time finds; with the CPU time then, in nanoseconds.
pub enum StoppedAfter {
    TooEarly(u64),
    Stack(Option<Vec<String>>, u64),
}

/// The kernel's counts of a process, which are exact while it does not run (`/proc/PID/schedstat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleCounts {
    /// Nanoseconds on a CPU.
    pub ran: u64,
    /// Nanoseconds of waiting for a CPU.
    pub waited: u64,
    /// How often it was put on a CPU.
    pub arrivals: u64,
}

impl ScheduleCounts {
    pub fn of(pid: Pid) -> Result<Self> {
        let text = read_to_string(format!("/proc/{pid}/schedstat"))?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next().context("a number is missing in schedstat");
        Ok(Self {
            ran: next()??,
            waited: next()??,
            arrivals: next()??,
        })
    }
}

/// A process that is traced, and runs.
struct Traced(Pid);

/// A process that is stopped.
struct Stopped(Pid);

impl Traced {
    fn begin(pid: Pid) -> Result<Self> {
        let options = ptrace::Options::empty();
        ptrace::seize(pid, options).with_context(|| format!("tracing process {pid}"))?;
        Ok(Self(pid))
    }

    fn stop(&self) -> Result<Stopped> {
        let pid = self.0;
        ptrace::interrupt(pid)?;
        loop {
            match waitpid(pid, Some(WaitPidFlag::__WALL))? {
                WaitStatus::PtraceEvent(_, _, INTERRUPTED) => return Ok(Stopped(pid)),
                // A signal of its own: it gets that, and stops next.
                WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
                status => bail!("the target has ended: {status:?}"),
            }
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Only a process that is stopped can be left.
        if let Ok(stopped) = self.stop() {
            std::mem::forget(stopped);
            let _ = ptrace::detach(self.0, None);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::cont(self.0, None);
    }
}

impl Stopper {
    /// It waits until the engine has started.
    pub fn of(pid: Pid) -> Result<Self> {
        let deadline = Instant::now() + STARTED_WITHIN;
        loop {
            match Self::try_of(pid) {
                Ok(stopper) => return Ok(stopper),
                Err(fault) if Instant::now() > deadline => return Err(fault),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn try_of(pid: Pid) -> Result<Self> {
        let executable = read_link(format!("/proc/{pid}/exe"))?;
        let maps = read_to_string(format!("/proc/{pid}/maps"))?;
        let maps = maps::parse(&maps, &executable.to_string_lossy());
        let memory = ProcessMemory::open(pid.as_raw())?;
        let mut engine = find(&memory, &maps.modules)
            .map_err(|refusal| anyhow::anyhow!("no engine: {refusal:?}"))?;
        if let Some(threads) = &engine.threads {
            let listed = threads.list(&memory, engine.layout).unwrap_or_default();
            let [thread] = listed.as_slice() else {
                bail!("{} threads run PHP, one can be stopped", listed.len());
            };
            engine = engine.of_thread(thread);
        }
        Ok(Self {
            memory,
            engine,
            names: HashMap::new(),
            traced: Traced::begin(pid)?,
        })
    }

    /// The names of the functions on its stack, root first; `None` if the stack does not hold
    /// together: the engine makes a generator's frame the top, and only then writes the caller into
    /// it.
    pub fn stack(&mut self) -> Result<Option<Vec<String>>> {
        let stopped = self.traced.stop()?;
        self.stack_of(&stopped)
    }

    /// The same, if the process has run for so many nanoseconds since `since`, its CPU time then. If
    /// it has waited for a CPU instead, it is where it was. The CPU time now comes second.
    pub fn stack_after(&mut self, since: u64, wanted: u64) -> Result<StoppedAfter> {
        let stopped = self.traced.stop()?;
        let pid = self.traced.0;
        let cpu = ScheduleCounts::of(pid)?.ran;
        if cpu < since + wanted {
            return Ok(StoppedAfter::TooEarly(cpu));
        }
        Ok(StoppedAfter::Stack(self.stack_of(&stopped)?, cpu))
    }

    fn stack_of(&mut self, _stopped: &Stopped) -> Result<Option<Vec<String>>> {
        let top = self.memory.word(self.engine.current_execute_data())?;
        if top == 0 {
            // Between two requests.
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
        if end != UnwindEnd::Root {
            return Ok(None);
        }
        let mut names = Vec::new();
        for frame in frames.iter().rev() {
            names.extend(self.name(frame)?);
        }
        // As profiles name the script that the engine has started.
        let is_script = |frame: &Frame| frame.is_script(self.engine.layout);
        if let (Some(first), true) = (names.first_mut(), frames.last().is_some_and(is_script)) {
            "{main}".clone_into(first);
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
