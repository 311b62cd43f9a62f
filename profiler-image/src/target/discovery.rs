//! Finds the PHP workers of the target, at most ten times a second, in `/proc` and in their memory.
//!
//! The listing of `/proc` shows new processes, and only their files are opened. It is read while
//! processes start, and once a second ([`LastPid`]). A process with an engine is held by a
//! descriptor that stays bound to it ([`ProcessMemory::bound_word`]). One without may `execve` at
//! any time: its executable is checked again, each 100 ms at first and each second in the end, or
//! each ten if no `execve` brings it into scope. A different one makes the process new. Until a
//! process is a second old it is examined completely, because an engine may still be loaded or
//! started; later only an engine that contradicts its version is, a few times. Between two
//! listings, `quick.rs` sees what is born and what ends. A forked worker shares its family's
//! addresses (`families.rs`), so attaching to it takes a few reads. In a thread-safe engine each of
//! its threads is a worker (`threads.rs`).
//!
//! What this module does not do: open files of the target, rely on PID 1, see an engine that a
//! process loads later than a second after its start, or a PID that is reused within one scan by
//! the same executable, if neither runs PHP.

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use phpprof_zend::engine::EngineRefusal;
use phpprof_zend::memory::MemoryFault;
use rustix::fs::{RawDir, SeekFrom, seek};
use smallvec::SmallVec;

use super::Scope;
use super::absence::{Absence, Left};
use super::births::Births;
use super::diagnosis::Refused;
use super::families::Families;
use super::files::Room;
use super::process::last_pid::LastPid;
use super::process::{ProcessMemory, calls, proc_path, stat::Stat, text};
use super::reaped::{Reaped, ReapedAccount};
use super::seen::{
    LOOK_EVERY, Other, Program, Seen, Verdict, executable, executable_hash, is_young, look_at,
    may_pass,
};
use super::threads::Changes;
pub use missed::Missed;
use quick::Fresh;
pub use quick::Quick;

mod missed;
mod orphans;
mod quick;

/// The processes are listed at least once in this many milliseconds, even if none seems to have
/// started.
const LIST_EVERY: u64 = 1000;
/// The buffer of one call for the listing: about 300 processes.
const LIST_BYTES: usize = 8192;
/// Milliseconds in the tick of `/proc/PID/stat`: `USER_HZ` is 100 on all machines on which Linux
/// runs PHP.
const TICK: u64 = 10;

/// A process that has to be examined completely.
struct New {
    pid: i32,
    stat: Stat,
    born: u64,
    /// It was known to be in scope before an `execve`.
    in_scope: bool,
    /// As [`Other::doubts`].
    doubts: u8,
    /// If it was seen before.
    account: Option<ReapedAccount>,
}

/// The facts that remain true of a process that is examined again.
struct Again {
    pid: i32,
    start_time: u64,
    born: u64,
    in_scope: bool,
    doubts: u8,
    account: ReapedAccount,
}

/// When the processes have to be listed.
#[derive(Debug)]
struct Listing {
    /// `/proc`, which is kept open.
    folder: Option<File>,
    pids: Vec<i32>,
    last_pid: LastPid,
    next_at: u64,
}

/// The processes seen so far.
#[derive(Debug)]
pub struct Discovery {
    scope: Scope,
    own_pid: i32,
    seen: HashMap<i32, Seen>,
    families: Families,
    listing: Listing,
    room: Room,
    /// The best reason so far for a process that is not sampled.
    refused: Option<Arc<Refused>>,
    absence: Absence,
    /// When this was made, in milliseconds since boot.
    began: u64,
    /// Tells what was born between two listings.
    newest: LastPid,
    births: Births,
    fresh: Vec<Fresh>,
    reaped: Reaped,
    read_accounts_at: u64,
    /// Until when children may end that nobody saw: that long after the last birth or end.
    accounts_change_until: u64,
}

impl Discovery {
    /// A discovery that has not looked yet.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        let own_pid = i32::try_from(std::process::id()).unwrap_or(0);
        Self {
            scope,
            own_pid,
            seen: HashMap::new(),
            families: Families::default(),
            listing: Listing {
                folder: calls::open("/proc").ok(),
                pids: Vec::new(),
                last_pid: LastPid::open(),
                next_at: 0,
            },
            room: Room::left(),
            refused: None,
            absence: Absence::default(),
            began: boot_milliseconds(),
            newest: LastPid::open(),
            births: Births::default(),
            fresh: Vec::new(),
            reaped: Reaped::default(),
            read_accounts_at: 0,
            accounts_change_until: 0,
        }
    }

    /// Looks for processes that have started, ended, or done an `execve`.
    pub fn scan(&mut self) -> Changes {
        let now = boot_milliseconds();
        // Before the listing, which has all that have these numbers and live.
        self.note_births(now);
        let mut listed = std::mem::take(&mut self.listing.pids);
        listed.clear();
        let is_due = self.listing.take_due(now);
        if is_due && self.listing.list(&mut listed).is_some() {
            listed.sort_unstable();
            self.count_unseen(&listed);
        } else {
            listed.extend(self.seen.keys());
            listed.sort_unstable();
        }
        if is_due {
            self.read_accounts(now);
        }
        self.scan_of(listed, now)
    }

    /// The same of the known processes.
    pub fn scan_known(&mut self) -> Changes {
        let mut listed = std::mem::take(&mut self.listing.pids);
        listed.clear();
        listed.extend(self.seen.keys());
        listed.sort_unstable();
        self.scan_of(listed, boot_milliseconds())
    }

    fn scan_of(&mut self, listed: Vec<i32>, now: u64) -> Changes {
        let mut changes = Changes::default();
        let mut new = self.part(&listed, now, &mut changes);
        self.listing.pids = listed;
        self.room
            .count(self.seen.values().map(Seen::with_room).sum());
        put_parents_first(&mut new);
        for new in new {
            let seen = self.look(&new, now);
            self.seen.insert(new.pid, seen);
        }
        for seen in self.seen.values_mut() {
            if let Verdict::Php(program) = &mut seen.verdict {
                let Program {
                    process, threads, ..
                } = program;
                threads.follow(process, &mut self.room, &mut changes);
            }
        }
        changes
            .new
            .sort_by_key(|process| (process.pid, process.tid));
        // This comes last, so that a worker that replaces a family's only one still finds it.
        let programs = self.seen.values().filter_map(Seen::process);
        changes.families_gone = self.families.keep(programs.map(|process| process.family));
        self.count_those_left(now);
        changes
    }

    /// Examines the target's processes again in the next scan, however young they are.
    pub fn hurry(&mut self) {
        for seen in self.seen.values_mut().filter(|seen| seen.in_scope) {
            if let Verdict::Other(other) = &mut seen.verdict {
                other.look_at = 0;
            }
        }
    }

    /// How long the next scan can wait, if meanwhile no process starts and no worker fails: not at
    /// all while there is no worker, while a process may still become one, and where threads may.
    #[must_use]
    pub fn rest(&self) -> Duration {
        let now = boot_milliseconds();
        let needs_scan = |seen: &Seen| match &seen.verdict {
            Verdict::Php(program) => program.process.engine.threads.is_some(),
            Verdict::Other(other) => other.changes_soon(seen.born, now),
        };
        let has_worker = self.seen.values().any(|seen| seen.process().is_some());
        if has_worker && !self.seen.values().any(needs_scan) {
            Duration::from_millis(LIST_EVERY)
        } else {
            Duration::ZERO
        }
    }

    /// The best reason why a process of the target was not sampled.
    #[must_use]
    pub fn refused(&self) -> Option<&Arc<Refused>> {
        self.refused.as_ref()
    }

    /// How many workers are not sampled, because the limit of open files has no room for them.
    #[must_use]
    pub fn without_room(&self) -> usize {
        self.seen.values().map(Seen::without_room).sum()
    }

    /// Whether the target has ended for good, as [`Absence`] decides. The master of a php-fpm pool
    /// without workers counts as a worker.
    #[must_use]
    pub fn is_target_gone(&self) -> bool {
        self.absence.is_final()
    }

    /// Removes the processes that have ended, and returns those that have to be examined.
    fn part(&mut self, listed: &[i32], now: u64, changes: &mut Changes) -> SmallVec<[New; 4]> {
        let mut again: SmallVec<[Again; 4]> = SmallVec::new();
        let has_room = self.room.has_more();
        let mut ended: SmallVec<[(i32, ReapedAccount); 4]> = SmallVec::new();
        self.seen.retain(|pid, seen| {
            let is_listed = listed.binary_search(pid).is_ok();
            let Some(born) = seen.look_again(*pid, is_listed, has_room, now) else {
                return true;
            };
            if let Verdict::Php(program) = &mut seen.verdict {
                program.threads.end(changes);
            }
            if is_listed {
                again.push(Again {
                    pid: *pid,
                    start_time: seen.start_time,
                    born,
                    in_scope: seen.in_scope,
                    doubts: seen.doubts_since(born),
                    account: seen.account,
                });
            } else if seen.in_scope {
                ended.push((seen.parent, seen.account));
            }
            false
        });
        if !ended.is_empty() {
            self.accounts_change(now);
        }
        for (parent, account) in ended {
            let has_parent = self.is_of_target(parent);
            self.reaped.ended(account, has_parent);
        }
        let unknown = listed
            .iter()
            .filter(|pid| **pid != self.own_pid && !self.seen.contains_key(pid));
        unknown
            .filter_map(|&pid| {
                let stat = Stat::of(pid)?;
                let started = stat.start_time.saturating_mul(TICK);
                // Another process that was given the same PID has another start time.
                let known = again
                    .iter()
                    .find(|again| again.pid == pid && again.start_time == stat.start_time);
                let (born, in_scope, doubts) = known.map_or((started, false, 0), |again| {
                    (again.born, again.in_scope, again.doubts)
                });
                let account = known.map(|again| again.account);
                Some(New {
                    pid,
                    stat,
                    born,
                    in_scope,
                    doubts,
                    account,
                })
            })
            .collect()
    }

    /// Examines a process completely.
    fn look(&mut self, new: &New, now: u64) -> Seen {
        let in_scope = new.in_scope || self.is_meant(new.pid, &new.stat);
        let may_count = in_scope || !matches!(self.scope, Scope::Pids(_));
        let mut other = Other {
            executable: executable_hash(new.pid),
            is_starting: false,
            is_without_php: new.stat.has_ended(),
            lacks_room: false,
            doubts: new.doubts,
            may_count,
            look_at: look_at(new.born, now, may_count),
        };
        let verdict = if !in_scope || new.stat.has_ended() {
            Verdict::Other(other)
        } else {
            match self.attach(new.pid, &new.stat) {
                Ok(program) => Verdict::Php(program),
                Err(refusal) => {
                    other.is_without_php = refusal == EngineRefusal::NoPhpFound;
                    other.lacks_room = refusal == EngineRefusal::Unreadable(MemoryFault::NoFiles);
                    let may_pass = may_pass(&refusal, is_young(new.born, now), new.doubts);
                    if may_pass {
                        other.doubts = other.doubts.saturating_add(1);
                        other.look_at = now + LOOK_EVERY.0;
                    }
                    other.is_starting = self.refuse(new, refusal, may_pass);
                    Verdict::Other(other)
                }
            }
        };
        let account = new.account.unwrap_or_else(|| self.account(new));
        Seen {
            in_scope,
            ..seen_of(new, verdict, account)
        }
    }

    /// Notes why a process was not sampled; returns whether it is only starting, as it seems to be
    /// while the refusal may pass.
    fn refuse(&mut self, new: &New, refusal: EngineRefusal, may_pass: bool) -> bool {
        let refusal = if may_pass {
            EngineRefusal::Starting
        } else {
            refusal
        };
        let is_starting = refusal == EngineRefusal::Starting;
        let refused = Refused {
            pid: new.pid,
            comm: String::from_utf8_lossy(&new.stat.comm).into_owned(),
            refusal,
        };
        let is_news = self.scope != Scope::All || refused.is_news_among_all();
        if is_news && refused.tells_more_than(self.refused.as_deref()) {
            self.refused = Some(Arc::new(refused));
        }
        is_starting
    }

    fn is_meant(&self, pid: i32, stat: &Stat) -> bool {
        match &self.scope {
            Scope::All => true,
            // The path ends in the runtime's name for the container, with a prefix and suffix of
            // its driver.
            Scope::Fitting(pattern) => pattern.fits(pid, &stat.comm),
            Scope::Container(id) => text(proc_path(format_args!("{pid}/cgroup")).as_str())
                .is_some_and(|text| text.contains(id.as_str())),
            Scope::Pids(pids) => {
                // Parents are examined first, so their descent is known.
                let is_meant = |pid: i32| pids.contains(&pid) || self.is_of_target(pid);
                // Only descendants are in a session that a process has begun.
                pids.contains(&pid)
                    || is_meant(stat.parent)
                    || is_meant(stat.session)
                    || self.is_orphan(pid, stat)
            }
        }
    }

    fn attach(&mut self, pid: i32, stat: &Stat) -> Result<Program, EngineRefusal> {
        let memory = Arc::new(ProcessMemory::open(pid).map_err(EngineRefusal::Unreadable)?);
        let executable = executable(pid).ok_or(EngineRefusal::NoPhpFound)?;
        let parent = self.seen.get(&stat.parent).and_then(Seen::process);
        let parent = parent.map(|process| process.family);
        let has_parent = self.is_of_target(stat.parent);
        let (number, family) = self.families.of(pid, parent, &memory, &executable)?;
        if !self.room.take() {
            return Err(EngineRefusal::Unreadable(MemoryFault::NoFiles));
        }
        let process = family.process(number, (pid, stat), has_parent, memory, executable);
        Ok(Program::new(process))
    }

    /// Whether a process is known to be one of the target's.
    fn is_of_target(&self, pid: i32) -> bool {
        self.seen.get(&pid).is_some_and(|seen| seen.in_scope)
    }

    /// Checks once a second what the scope still has, if no process runs PHP.
    fn count_those_left(&mut self, now: u64) {
        let may_come = matches!(self.scope, Scope::All | Scope::Fitting(_));
        if may_come || self.seen.values().any(|seen| seen.process().is_some()) {
            self.absence.end();
            return;
        }
        let (scope, seen) = (&self.scope, &self.seen);
        let lives = |pid| Stat::of(pid).is_some_and(|stat| !stat.has_ended());
        self.absence.last(now, || Left::of(scope, seen, lives));
    }
}

/// What is known of a process by its examination.
fn seen_of(new: &New, verdict: Verdict, account: ReapedAccount) -> Seen {
    Seen {
        start_time: new.stat.start_time,
        parent: new.stat.parent,
        account,
        in_scope: new.in_scope,
        born: new.born,
        verdict,
    }
}

impl Listing {
    /// All processes; `None` if the kernel does not list all.
    fn list(&self, pids: &mut Vec<i32>) -> Option<()> {
        let folder = self.folder.as_ref()?;
        calls::count_file_read();
        seek(folder, SeekFrom::Start(0)).ok()?;
        let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let name = entry.ok()?;
            pids.extend(
                name.file_name()
                    .to_str()
                    .ok()
                    .and_then(|name| name.parse::<i32>().ok()),
            );
        }
        Some(())
    }

    /// Takes whether a process may have started that was not listed.
    fn take_due(&mut self, now: u64) -> bool {
        let is_due = self.last_pid.take_move() || now >= self.next_at;
        if is_due {
            self.next_at = now + LIST_EVERY;
        }
        is_due
    }
}

/// A chain of parents is as long as the list at most.
fn put_parents_first(new: &mut [New]) {
    let parents = new.iter().map(|new| (new.pid, new.stat.parent));
    let mut parents: SmallVec<[(i32, i32); 16]> = parents.collect();
    parents.sort_unstable();
    let parent = |pid: &i32| {
        let index = parents.binary_search_by_key(pid, |&(pid, _)| pid).ok()?;
        parents.get(index).map(|&(_, parent)| parent)
    };
    let depth = |new: &New| {
        let chain = std::iter::successors(Some(new.pid), parent);
        chain.take(parents.len()).count()
    };
    new.sort_unstable_by_key(|new| (depth(new), new.pid));
}

fn boot_milliseconds() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .and_then(|time| u64::try_from(time.num_milliseconds()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
