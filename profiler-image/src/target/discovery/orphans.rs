//! Processes that were forked from the target and have left its tree of processes: their parent
//! ended before anybody saw them.

use super::super::process::ProcessMemory;
use super::super::process::stat::Stat;
use super::super::seen::executable;
use super::{Discovery, TICK};

impl Discovery {
    /// Whether a process was forked, since this looks, from one in scope that has ended: it shares
    /// a family's random bytes, and its parent does not. A process that no one waits for is given
    /// to another parent, which has not forked it.
    pub(super) fn is_orphan(&self, pid: i32, stat: &Stat) -> bool {
        let is_kin = |pid: i32| {
            let executable = executable(pid)?;
            if !self.families.has_namesake(&executable) {
                return None;
            }
            let memory = ProcessMemory::open(pid).ok()?;
            let number = self.families.kin(pid, None, &memory, &executable)?;
            let mut meant = self.seen.values().filter(|seen| seen.in_scope);
            meant
                .any(|seen| {
                    seen.process()
                        .is_some_and(|process| process.family == number)
                })
                .then_some(())
        };
        let is_newborn = stat.start_time.saturating_mul(TICK) >= self.began;
        is_newborn && is_kin(pid).is_some() && is_kin(stat.parent).is_none()
    }
}
