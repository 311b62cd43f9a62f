//! What nobody saw: numbers that came and went between two looks, and the CPU time of children that
//! have ended.

use std::time::Duration;

use super::super::process::stat::Stat;
use super::{Discovery, TICK, boot_milliseconds};

/// Milliseconds between two reads of what the children of the target's processes have used, if
/// these are few.
const READ_ACCOUNTS_EVERY: u64 = 250;
/// For each of this many more, that time is added once more.
const FEW: u64 = 16;
/// For this long after a birth or an end, in milliseconds, a parent may wait for a child that
/// nobody saw. Later no time of children can have grown but by a child that is seen to end.
const WAITED_FOR: u64 = 3000;

/// What nobody saw of processes that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missed {
    /// Numbers of processes and threads that came and went unseen.
    pub processes: u64,
    /// The CPU time of children that have ended, and that their parents have waited for.
    pub reaped: Duration,
}

impl Discovery {
    /// What came and went unseen until now.
    pub fn missed(&mut self) -> Missed {
        self.read_all_accounts();
        let living = self.seen.values().filter(|seen| seen.in_scope);
        let ticks = self.reaped.ticks(living.map(|seen| seen.account));
        Missed {
            processes: self.births.unseen(),
            reaped: Duration::from_millis(ticks.saturating_mul(TICK)),
        }
    }

    /// Counts the numbers that were given and are not there any more.
    pub(super) fn count_unseen(&mut self, listed: &[i32]) {
        for given in self.births.all() {
            let is_listed = listed.binary_search(&given.number).is_ok();
            // A thread's number is not listed.
            if !is_listed && Stat::of(given.number).is_none() {
                self.births.absent(given);
            }
        }
    }

    /// Notes what was born since the last look.
    pub(super) fn note_births(&mut self, now: u64) {
        if self.births.note(self.newest.read()) {
            self.accounts_change(now);
        }
    }

    /// Notes a birth or an end: only after these the time of a process's children grows.
    pub(super) fn accounts_change(&mut self, now: u64) {
        self.accounts_change_until = now + WAITED_FOR;
    }

    /// Reads what the children of each process have used, before it ends itself; where nothing
    /// starts or ends, it reads nothing.
    pub(super) fn read_accounts(&mut self, now: u64) {
        if (self.read_accounts_at..self.accounts_change_until).contains(&now) {
            self.read_all_accounts();
        }
    }

    fn read_all_accounts(&mut self) {
        let mut read = 0;
        let processes = self.seen.iter_mut().filter(|(_, seen)| seen.in_scope);
        for (&pid, seen) in processes {
            let stat = Stat::of(pid).filter(|stat| stat.start_time == seen.start_time);
            if let Some(stat) = stat {
                seen.account.children = stat.children_ticks;
            }
            read += 1;
        }
        self.read_accounts_at = boot_milliseconds() + READ_ACCOUNTS_EVERY * (1 + read / FEW);
    }
}
