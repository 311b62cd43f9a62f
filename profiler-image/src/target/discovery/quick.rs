//! The look between two listings: what was just born, and what has just ended, in some
//! microseconds.
//!
//! The sampling thread takes it, in a turn that it takes anyway, and samples what it finds in the
//! same turn: so a forked child has samples from its first moment on. A child of a known worker is
//! attached at once, and so is a process after its `execve` if its program was examined before. A
//! program that is not known is left to the scanner's thread, because it takes long to examine.
//!
//! Invariant: it lists no folder and examines no unknown program, and the number of its looks is
//! bounded (`births.rs`).

use phpprof_zend::engine::EngineRefusal;

use super::super::births::Given;
use super::super::process::ProcessMemory;
use super::super::process::stat::Stat;
use super::super::reaped::ReapedAccount;
use super::super::seen::{Other, Program, Seen, Verdict, executable, executable_hash};
use super::super::threads::Changes;
use super::{Discovery, New, TICK, boot_milliseconds, seen_of};

/// The processes that may become PHP soon, and are checked in each look.
const MAX_FRESH: usize = 16;
/// For how long, in milliseconds: a shell has started its program by then.
const IS_FRESH: u64 = 300;

/// A process that may become PHP soon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh {
    pid: i32,
    since: u64,
}

/// What a quick look has found.
#[derive(Debug, Default)]
pub struct Quick {
    /// The workers that were forked, and those that ended.
    pub changes: Changes,
    /// The workers that began with an `execve`.
    pub started: Changes,
    /// A process has to be examined by [`Discovery::scan_known`].
    pub asks: bool,
    /// The next look is worth it even if nothing is born.
    pub goes_on: bool,
}

impl Discovery {
    /// Looks at what was born, and at these processes, which could not be read.
    pub fn quick(&mut self, failed: &[i32]) -> Quick {
        let now = boot_milliseconds();
        let mut quick = Quick::default();
        for &pid in failed {
            self.see_end(pid, now, &mut quick.changes);
        }
        self.note_births(now);
        while let Some(given) = self.births.next(now) {
            self.see_birth(given, now, &mut quick.changes);
        }
        self.see_fresh(now, &mut quick);
        quick.goes_on = !self.fresh.is_empty();
        quick
    }

    /// Ends the workers of a process that is gone, or runs another program.
    fn see_end(&mut self, pid: i32, now: u64, changes: &mut Changes) {
        let Some(seen) = self.seen.get_mut(&pid) else {
            return;
        };
        let Verdict::Php(program) = &mut seen.verdict else {
            return;
        };
        if program.stays() {
            return;
        }
        program.threads.end(changes);
        let stat = Stat::of(pid).filter(|stat| stat.start_time == seen.start_time);
        if stat.is_some_and(|stat| !stat.has_ended()) {
            seen.born = now;
            seen.verdict = Verdict::Other(Other::unexamined(now));
            self.watch_for_php(pid, now);
        } else if let Some(seen) = self.seen.remove(&pid) {
            self.accounts_change(now);
            self.forget(&seen);
        }
    }

    fn see_birth(&mut self, given: Given, now: u64, changes: &mut Changes) {
        let pid = given.number;
        if pid == self.own_pid || self.seen.contains_key(&pid) {
            return;
        }
        let Some(stat) = Stat::of(pid) else {
            self.births.absent(given);
            return;
        };
        if stat.is_thread {
            return;
        }
        if stat.has_ended() {
            self.births.count_ended();
            return;
        }
        // Of the others, the next listing decides what they are.
        if !self.is_meant(pid, &stat) {
            return;
        }
        let new = New {
            pid,
            born: stat.start_time.saturating_mul(TICK),
            stat,
            in_scope: true,
            doubts: 0,
            account: None,
        };
        let mut verdict = match self.kin(&new) {
            Some(program) => Verdict::Php(program),
            None => {
                self.watch_for_php(pid, now);
                Verdict::Other(Other::unexamined(now))
            }
        };
        if let Verdict::Php(program) = &mut verdict {
            self.births.attached();
            let Program {
                process, threads, ..
            } = program;
            threads.follow(process, &mut self.room, changes);
        }
        let account = self.account(&new);
        let seen = Seen {
            in_scope: true,
            ..seen_of(&new, verdict, account)
        };
        self.seen.insert(pid, seen);
    }

    /// The worker that a process is, if it was forked from a known one.
    fn kin(&mut self, new: &New) -> Option<Program> {
        let parent = self.seen.get(&new.stat.parent).and_then(Seen::process);
        let parent = parent.map(|process| process.family);
        let executable = executable(new.pid)?;
        let memory = ProcessMemory::open(new.pid).ok()?;
        let number = self
            .families
            .kin(new.pid, parent, &memory, &executable)
            .filter(|_| self.room.take())?;
        let family = self.families.get(number)?;
        let has_parent = self.is_of_target(new.stat.parent);
        let process = family.process(
            number,
            (new.pid, &new.stat),
            has_parent,
            memory.into(),
            executable,
        );
        Some(Program::new(process))
    }

    fn watch_for_php(&mut self, pid: i32, since: u64) {
        if self.fresh.len() < MAX_FRESH && self.fresh.iter().all(|fresh| fresh.pid != pid) {
            self.fresh.push(Fresh { pid, since });
        }
    }

    /// Looks at those that may become PHP: whether one runs another program by now, or is starting
    /// its engine.
    fn see_fresh(&mut self, now: u64, quick: &mut Quick) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|fresh| {
            now <= fresh.since + IS_FRESH && self.look_at_fresh(*fresh, now, quick)
        });
        self.fresh = fresh;
    }

    /// Looks at a process that may become PHP; returns whether it still may.
    fn look_at_fresh(&mut self, fresh: Fresh, now: u64, quick: &mut Quick) -> bool {
        let Some(Verdict::Other(other)) = self.seen.get(&fresh.pid).map(|seen| &seen.verdict)
        else {
            return false;
        };
        let hash = executable_hash(fresh.pid);
        if hash == other.executable && !other.is_starting {
            return true;
        }
        if !self.births.allows(now) {
            return true;
        }
        match self.attach_known(fresh.pid) {
            Some(Ok(mut program)) => {
                let Program {
                    process, threads, ..
                } = &mut program;
                threads.follow(process, &mut self.room, &mut quick.started);
                if let Some(seen) = self.seen.get_mut(&fresh.pid) {
                    seen.verdict = Verdict::Php(program);
                }
                false
            }
            Some(Err(EngineRefusal::Starting)) => {
                self.note_other(fresh.pid, |other| {
                    (other.executable, other.is_starting) = (hash, true);
                });
                true
            }
            Some(Err(_)) | None => {
                self.note_other(fresh.pid, |other| other.look_at = 0);
                quick.asks = true;
                true
            }
        }
    }

    fn note_other(&mut self, pid: i32, note: impl FnOnce(&mut Other)) {
        if let Some(Verdict::Other(other)) = self.seen.get_mut(&pid).map(|seen| &mut seen.verdict) {
            note(other);
        }
    }

    /// Attaches to a process whose program was examined before; `None` if it was not.
    fn attach_known(&mut self, pid: i32) -> Option<Result<Program, EngineRefusal>> {
        let executable = executable(pid)?;
        if !self.families.has_examined(&executable) {
            return None;
        }
        self.births.examined();
        Some(self.attach(pid, &Stat::of(pid)?))
    }

    /// What a process and its children have used until now.
    pub(super) fn account(&self, new: &New) -> ReapedAccount {
        let is_newborn = new.stat.start_time.saturating_mul(TICK) >= self.began;
        ReapedAccount::new(new.stat.ticks, new.stat.children_ticks, is_newborn)
    }

    /// Notes the end of a process.
    pub(super) fn forget(&mut self, seen: &Seen) {
        if seen.in_scope {
            let has_parent = self.is_of_target(seen.parent);
            self.reaped.ended(seen.account, has_parent);
        }
    }
}
