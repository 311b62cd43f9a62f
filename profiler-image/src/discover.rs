//! Which processes are PHP workers of the target: looked at again ten times a second, from `/proc` and their memory.
//!
//! A process is looked at once for each (PID, start, command): `execve` changes the command, a reused PID the start. A
//! forked worker has its parent's addresses, so attaching to it takes a few reads. What this module does not do: look at
//! files of the target, or assume anything of PID 1.

use std::collections::HashMap;
use std::fs::{read_dir, read_link, read_to_string};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use phpprof_zend::engine::{Engine, Refusal, find};
use phpprof_zend::memory::{Fault, Memory};

use crate::diagnosis::Refused;
use crate::process::{ProcessMemory, maps, stat::Stat};

/// Which processes are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// These and their descendants: a php-fpm master stands for its workers.
    Pids(Vec<i32>),
    /// All that this user may read.
    All,
    /// Those whose cgroup names this container.
    Container(String),
}

/// A process with a PHP engine.
#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    pub start_time: u64,
    pub engine: Arc<Engine>,
    /// Memory that it shares with its siblings: opcache's.
    pub shared_ranges: Rc<[Range<u64>]>,
    pub jit: bool,
    pub memory: Arc<ProcessMemory>,
    /// Processes forked from one another have the same number: what is shared is learned once for all of them.
    pub family: usize,
    executable: String,
}

/// What a process was found to be.
#[derive(Debug)]
enum Verdict {
    Php(Rc<Process>),
    Not,
    OutOfScope,
}

#[derive(Debug)]
struct Seen {
    start_time: u64,
    comm: String,
    verdict: Verdict,
}

/// What a scan changed.
#[derive(Debug, Default)]
pub struct Changes {
    pub new: Vec<Rc<Process>>,
    pub gone: Vec<i32>,
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
            if !same && matches!(seen.verdict, Verdict::Php(_)) {
                changes.gone.push(*pid);
            }
            same
        });
        for (&pid, stat) in &current {
            if self.seen.contains_key(&pid) {
                continue;
            }
            let verdict = self.judge(pid, stat, &current);
            if let Verdict::Php(process) = &verdict {
                changes.new.push(Rc::clone(process));
            }
            let seen = Seen {
                start_time: stat.start_time,
                comm: stat.comm.clone(),
                verdict,
            };
            self.seen.insert(pid, seen);
        }
        changes.new.sort_by_key(|process| process.pid);
        changes
    }

    fn judge(&mut self, pid: i32, stat: &Stat, current: &HashMap<i32, Stat>) -> Verdict {
        if !self.is_meant(pid, current) {
            return Verdict::OutOfScope;
        }
        match self.attach(pid, stat) {
            Ok(process) => Verdict::Php(Rc::new(process)),
            Err(refusal) => {
                let comm = stat.comm.clone();
                self.note(Refused { pid, comm, refusal });
                Verdict::Not
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
            Scope::Container(id) => read_to_string(format!("/proc/{pid}/cgroup"))
                .is_ok_and(|text| text.contains(id.as_str())),
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

    fn attach(&mut self, pid: i32, stat: &Stat) -> Result<Process, Refusal> {
        let memory = Arc::new(ProcessMemory::open(pid).map_err(Refusal::Unreadable)?);
        let executable = read_link(format!("/proc/{pid}/exe")).map_err(|_| Refusal::NoPhpFound)?;
        let executable = executable.to_string_lossy().into_owned();
        let process = |engine, shared_ranges, jit, family| Process {
            pid,
            start_time: stat.start_time,
            engine,
            shared_ranges,
            jit,
            memory: Arc::clone(&memory),
            family,
            executable: executable.clone(),
        };
        if let Some(relative) = self.relative(stat.parent, &memory, &executable) {
            return Ok(process(
                Arc::clone(&relative.engine),
                Rc::clone(&relative.shared_ranges),
                relative.jit,
                relative.family,
            ));
        }
        let text = read_to_string(format!("/proc/{pid}/maps"))
            .map_err(|_| Refusal::Unreadable(Fault::Denied))?;
        let maps = maps::parse(&text, &executable);
        let engine = find(&*memory, &maps.modules)?;
        if engine.is_thread_safe() {
            return Err(Refusal::UnsupportedVersion(format!(
                "{} ZTS",
                engine.version
            )));
        }
        let family = self.families;
        self.families += 1;
        Ok(process(
            Arc::new(engine),
            maps.shared.into(),
            maps.jit,
            family,
        ))
    }

    /// The parent, or a sibling of the same parent, if this process is its fork: the same program, and a
    /// pointer that no other engine has.
    fn relative(
        &self,
        parent: i32,
        memory: &ProcessMemory,
        executable: &str,
    ) -> Option<Rc<Process>> {
        let Verdict::Php(relative) = &self.seen.get(&parent)?.verdict else {
            return None;
        };
        let at = relative.engine.fingerprint_at;
        let same = relative.executable == executable
            && memory.word(at).ok()? == relative.memory.word(at).ok()?;
        same.then(|| Rc::clone(relative))
    }
}

fn pids() -> impl Iterator<Item = i32> {
    read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}
