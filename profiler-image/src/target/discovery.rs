//! Which processes are PHP workers of the target: looked at again ten times a second, from `/proc` and their memory.
//!
//! A process is looked at once for each (PID, start, command): `execve` changes the command or the engine, a reused PID the
//! start. One that is just starting is looked at again. A forked worker has its parent's addresses, so attaching to it
//! takes a few reads. In a thread-safe engine each of its threads is a worker ([`threads`]). What this module does not
//! do: look at files of the target, or assume anything of PID 1.

use std::collections::HashMap;
use std::fs::{read_dir, read_link};
use std::rc::Rc;
use std::sync::Arc;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use phpprof_zend::engine::{Refusal, find};
use phpprof_zend::memory::{Fault, Memory};

use super::Scope;
use super::diagnosis::Refused;
use super::process::relay::Relay;
use super::process::{Process, ProcessMemory, calls, maps, stat::Stat, text};
use super::threads::{Changes, Threads};

/// A process younger than this, in ticks of a hundredth of a second, may not have loaded or started its engine yet.
const YOUNG: u64 = 100;

/// What a process was found to be.
#[derive(Debug)]
enum Verdict {
    Php(Program),
    Not,
    /// To be looked at again: it is just starting.
    NotYet,
    OutOfScope,
}

/// A process with an engine.
#[derive(Debug)]
struct Program {
    process: Rc<Process>,
    /// The word that no other engine has at its place: another one there is another program.
    fingerprint: u64,
    threads: Threads,
}

#[derive(Debug)]
struct Seen {
    start_time: u64,
    comm: String,
    verdict: Verdict,
}

/// The processes seen so far.
#[derive(Debug)]
pub struct Discovery {
    scope: Scope,
    own_pid: i32,
    seen: HashMap<i32, Seen>,
    families: usize,
    /// The most telling refusal so far.
    refused: Option<Refused>,
}

impl Discovery {
    /// Begins without having looked.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        let own_pid = i32::try_from(std::process::id()).unwrap_or(0);
        Self {
            scope,
            own_pid,
            seen: HashMap::new(),
            families: 0,
            refused: None,
        }
    }

    /// The most telling reason why a process of the target was not taken.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// How many engines were found that share no memory.
    #[must_use]
    pub fn families(&self) -> usize {
        self.families
    }

    /// Looks at all processes.
    pub fn scan(&mut self) -> Changes {
        let mut changes = Changes::default();
        let current: HashMap<i32, Stat> = pids()
            .filter(|&pid| pid != self.own_pid)
            .filter_map(|pid| Some((pid, Stat::of(pid)?)))
            .filter(|(_, stat)| !matches!(stat.state, 'Z' | 'X'))
            .collect();
        self.seen.retain(|pid, seen| {
            let same = current
                .get(pid)
                .is_some_and(|stat| stat.start_time == seen.start_time && stat.comm == seen.comm);
            match &mut seen.verdict {
                Verdict::Php(program) if !same || !program.is_still_there() => {
                    program.threads.end(&mut changes);
                    false
                }
                Verdict::NotYet => false,
                _ => same,
            }
        });
        let now = boot_ticks();
        for (&pid, stat) in &current {
            if self.seen.contains_key(&pid) {
                continue;
            }
            let is_young = stat.start_time.saturating_add(YOUNG) > now;
            let seen = Seen {
                start_time: stat.start_time,
                comm: stat.comm.clone(),
                verdict: self.judge(pid, stat, &current, is_young),
            };
            self.seen.insert(pid, seen);
        }
        for seen in self.seen.values_mut() {
            if let Verdict::Php(program) = &mut seen.verdict {
                program.threads.follow(&program.process, &mut changes);
            }
        }
        changes
            .new
            .sort_by_key(|process| (process.pid, process.tid));
        changes
    }

    fn judge(
        &mut self,
        pid: i32,
        stat: &Stat,
        current: &HashMap<i32, Stat>,
        is_young: bool,
    ) -> Verdict {
        if !self.is_meant(pid, current) {
            return Verdict::OutOfScope;
        }
        match self.attach(pid, stat) {
            Ok(program) => Verdict::Php(program),
            Err(refusal) => {
                // What a young process does not have yet, or not whole, may only not be there yet.
                let refusal = match refusal {
                    Refusal::LayoutMismatch(_) | Refusal::Unreadable(Fault::Unmapped)
                        if is_young =>
                    {
                        Refusal::Starting
                    }
                    refusal => refusal,
                };
                let again =
                    refusal == Refusal::Starting || (is_young && refusal == Refusal::NoPhpFound);
                let comm = stat.comm.clone();
                self.note(Refused { pid, comm, refusal });
                if again { Verdict::NotYet } else { Verdict::Not }
            }
        }
    }

    fn note(&mut self, refused: Refused) {
        let is_news = self.scope != Scope::All || refused.is_news_among_all();
        if is_news && refused.tells_more_than(self.refused.as_ref()) {
            self.refused = Some(refused);
        }
    }

    fn is_meant(&self, pid: i32, current: &HashMap<i32, Stat>) -> bool {
        match &self.scope {
            Scope::All => true,
            // The path ends in the runtime's name for the container, with a prefix and suffix of its driver.
            Scope::Container(id) => {
                text(&format!("/proc/{pid}/cgroup")).is_some_and(|text| text.contains(id.as_str()))
            }
            Scope::Pids(pids) => {
                let mut ancestor = pid;
                // A chain of parents is as long as the process table at most.
                for _ in 0..current.len() {
                    if pids.contains(&ancestor) {
                        return true;
                    }
                    match current.get(&ancestor) {
                        Some(stat) if stat.parent > 0 => ancestor = stat.parent,
                        _ => return false,
                    }
                }
                false
            }
        }
    }

    fn attach(&mut self, pid: i32, stat: &Stat) -> Result<Program, Refusal> {
        let memory = Arc::new(ProcessMemory::open(pid).map_err(Refusal::Unreadable)?);
        let executable = read_link(format!("/proc/{pid}/exe")).map_err(|_| Refusal::NoPhpFound)?;
        let executable = executable.to_string_lossy().into_owned();
        if let Some(relative) = self.relative(stat.parent, &memory, &executable) {
            let process = Process {
                pid,
                tid: pid,
                start_time: stat.start_time,
                engine: Arc::clone(&relative.engine),
                shared_ranges: Rc::clone(&relative.shared_ranges),
                memory,
                relay: Relay::of(pid),
                executable,
                ..*relative
            };
            return Program::new(process);
        }
        let text = text(&format!("/proc/{pid}/maps")).ok_or(Refusal::Unreadable(Fault::Denied))?;
        let maps = maps::parse(&text, &executable);
        let engine = find(&*memory, &maps.modules)?;
        let family = self.families;
        self.families += 1;
        Program::new(Process {
            pid,
            tid: pid,
            start_time: stat.start_time,
            engine: Arc::new(engine),
            shared_ranges: maps.shared.into(),
            jit: maps.jit,
            memory,
            relay: Relay::of(pid),
            family,
            executable,
        })
    }

    /// The parent, if this process is its fork: the same program, and a pointer that no other engine has.
    fn relative(
        &self,
        parent: i32,
        memory: &ProcessMemory,
        executable: &str,
    ) -> Option<Rc<Process>> {
        let Verdict::Php(Program {
            process,
            fingerprint,
            ..
        }) = &self.seen.get(&parent)?.verdict
        else {
            return None;
        };
        let same = process.executable == executable
            && memory.word(process.engine.fingerprint_at) == Ok(*fingerprint);
        same.then(|| Rc::clone(process))
    }
}

impl Program {
    fn new(process: Process) -> Result<Self, Refusal> {
        let fingerprint = process
            .memory
            .word(process.engine.fingerprint_at)
            .map_err(Refusal::Unreadable)?;
        Ok(Self {
            process: Rc::new(process),
            fingerprint,
            threads: Threads::default(),
        })
    }

    /// Whether the process still is the one that was looked at: `execve` may start the same program anew.
    fn is_still_there(&self) -> bool {
        let Process { memory, engine, .. } = &*self.process;
        memory.word(engine.fingerprint_at) == Ok(self.fingerprint)
    }
}

/// The time since boot as `/proc/PID/stat` counts it: in `USER_HZ`, which is 100 on all that Linux runs PHP on.
fn boot_ticks() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .and_then(|time| u64::try_from(time.num_milliseconds() / 10).ok())
        .unwrap_or(0)
}

fn pids() -> impl Iterator<Item = i32> {
    calls::count_open();
    read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}
