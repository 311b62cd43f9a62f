//! The CPU time of the target's children that have ended, as far as their parents have waited for
//! them: pure.
//!
//! The kernel adds a child's CPU time, and that of the children that it has waited for, to its
//! parent's `cutime` and `cstime` once the parent waits for it (proc(5), `/proc/PID/stat`). A run
//! takes the growth of all parents. What it knows of an ended child from before is taken off; the
//! caller takes off what samples have.

/// The CPU times of one process, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReapedAccount {
    /// Its own, and its children's, from before the run.
    pub own_before: u64,
    pub children_before: u64,
    /// Its children's when it was last read.
    pub children: u64,
}

impl ReapedAccount {
    /// A process whose children have used this, seen for the first time.
    pub fn new(own: u64, children: u64, is_newborn: bool) -> Self {
        if is_newborn {
            Self {
                children,
                ..Self::default()
            }
        } else {
            Self {
                own_before: own,
                children_before: children,
                children,
            }
        }
    }

    /// How much its children's time has grown.
    fn growth(self) -> i64 {
        signed(self.children) - signed(self.children_before)
    }
}

/// The sum of those that have ended.
#[derive(Debug, Default)]
pub(super) struct Reaped {
    closed: i64,
}

impl Reaped {
    /// Notes the end of a process. If its parent is one of the target's, that has its time from now
    /// on.
    pub fn ended(&mut self, account: ReapedAccount, has_parent: bool) {
        self.closed += if has_parent {
            -signed(account.own_before) - signed(account.children_before)
        } else {
            account.growth()
        };
    }

    /// The ticks of all children that have ended; these are the processes that live.
    pub fn ticks(&self, living: impl Iterator<Item = ReapedAccount>) -> u64 {
        let open: i64 = living.map(ReapedAccount::growth).sum();
        u64::try_from(self.closed + open).unwrap_or(0)
    }
}

fn signed(ticks: u64) -> i64 {
    i64::try_from(ticks).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(own_before: u64, children_before: u64, children: u64) -> ReapedAccount {
        ReapedAccount {
            own_before,
            children_before,
            children,
        }
    }

    #[test]
    fn children_count_from_the_begin_of_the_run() {
        let mut reaped = Reaped::default();
        let living = || [account(900, 70, 100)].into_iter();
        assert_eq!(reaped.ticks(living()), 30);
        // A newborn child that was seen is in its parent's time.
        reaped.ended(ReapedAccount::new(4, 1, true), true);
        assert_eq!(reaped.ticks(living()), 30);
    }

    #[test]
    fn an_old_workers_earlier_use_is_uncounted() {
        let mut reaped = Reaped::default();
        // Its parent has got all of its 500 and its children's 8.
        reaped.ended(ReapedAccount::new(500, 8, false), true);
        assert_eq!(reaped.ticks([account(0, 0, 512)].into_iter()), 4);
    }

    #[test]
    fn a_process_without_parent_leaves_its_childrens_time() {
        let mut reaped = Reaped::default();
        reaped.ended(account(10, 3, 25), false);
        assert_eq!(reaped.ticks(std::iter::empty()), 22);
    }

    #[test]
    fn an_unwaited_child_makes_no_negative_time() {
        let mut reaped = Reaped::default();
        reaped.ended(account(500, 0, 0), true);
        assert_eq!(reaped.ticks([account(0, 0, 0)].into_iter()), 0);
    }
}
