//! The stack of a process that does not run, because this one has its CPU: nothing moves while it
//! is read, so it is true.
//!
//! It is read frame by frame, with nothing from the sampler except its way to read memory. The
//! reader is bound to the process's CPU, whose timer wakes it and so takes the CPU from the process
//! at the instruction where it is. A signal, as from `ptrace` on another CPU, would not do: it is
//! pending before the interrupt that it causes arrives, and any system call that ends meanwhile
//! takes it, so that calls as short as `file_exists` are seen two or three times too often. A call
//! of a function lasts while `EG(current_execute_data)` is its frame: what the caller does to
//! prepare a frame, and to free arguments and variables of one that has ended, is the caller's own
//! time.
//! Invariant: a stack that moved while it was read is none.

use std::collections::HashMap;
use std::fs::{read_link, read_to_string};
use std::time::{Duration, Instant};

use crate::CPUS;
use crate::running::pin;
use anyhow::{Context, Result, bail};
use nix::unistd::Pid;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_zend::Memory;
use phpprof_zend::engine::{Engine, find};
use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction};
use phpprof_zend::unwind::{Copy, Frame, UnwindEnd, unwind};

/// With other programs on the machine.
const STARTED_WITHIN: Duration = Duration::from_secs(20);

/// A process that runs PHP on one CPU, and is stopped there now and then.
pub struct Stopper {
    pid: Pid,
    memory: ProcessMemory,
    engine: Engine,
    names: HashMap<FunctionKey, String>,
    _here: OnCpu,
}

/// This thread is bound to the target's CPU.
struct OnCpu;

impl OnCpu {
    fn bind() -> Result<Self> {
        pin(Pid::from_raw(0), CPUS[1])?;
        Ok(Self)
    }
}

impl Drop for OnCpu {
    fn drop(&mut self) {
        let _ = pin(Pid::from_raw(0), CPUS[0]);
    }
}

/// What a stop finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoppedStack {
    /// The names of the functions, root first; none between two requests.
    Names(Vec<String>),
    /// It does not hold together: the engine makes a generator's frame the top, and only then
    /// writes the caller into it.
    Torn,
    /// It moved, because the process had the CPU again.
    Moved,
}

/// How long the reader needs to sleep and to wake up.
const UNSEEN: Duration = Duration::from_micros(40);

/// How often a process was put on a CPU and taken off one: on none, both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SwitchCounts {
    arrivals: u64,
    departures: u64,
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

impl Stopper {
    /// It waits until the engine has started. The process has to be bound to the second CPU.
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
            pid,
            _here: OnCpu::bind()?,
        })
    }

    /// Its stack now.
    pub fn stack(&mut self) -> Result<StoppedStack> {
        let before = self.switches()?;
        // Its error counts only if the stack stood.
        let names = self.standing_stack();
        if before.arrivals != before.departures || self.switches()? != before {
            return Ok(StoppedStack::Moved);
        }
        Ok(names?.map_or(StoppedStack::Torn, StoppedStack::Names))
    }

    /// Its stack after this pause, if the process had the CPU for all of it: then only the end of
    /// the pause has stopped it. What takes a CPU from another one is no such moment.
    pub fn stack_after(&mut self, pause: Duration) -> Result<StoppedStack> {
        let ran = ScheduleCounts::of(self.pid)?.ran;
        let begin = Instant::now();
        std::thread::sleep(pause);
        let took = begin.elapsed();
        let ran = Duration::from_nanos(ScheduleCounts::of(self.pid)?.ran.saturating_sub(ran));
        if ran + UNSEEN + took / 50 < took {
            return Ok(StoppedStack::Moved);
        }
        self.stack()
    }

    fn switches(&self) -> Result<SwitchCounts> {
        let pid = self.pid;
        let arrivals = ScheduleCounts::of(pid)?.arrivals;
        let status = read_to_string(format!("/proc/{pid}/status"))?;
        let counts = status
            .lines()
            .filter_map(|line| line.split_once("ctxt_switches:"));
        let counts = counts.map(|(_, count)| count.trim().parse::<u64>());
        Ok(SwitchCounts {
            arrivals,
            departures: counts.sum::<Result<u64, _>>()?,
        })
    }

    /// The names on a stack that stands; `None` if it does not hold together.
    fn standing_stack(&mut self) -> Result<Option<Vec<String>>> {
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
