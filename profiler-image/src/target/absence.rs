//! Decides when a target has ended for good: pure.
//!
//! It has if no process is left, for two checks in a row. In a container it also has if PHP has
//! been away for [`AWAY_FOR`], though other processes live, such as a supervisor or a web server.
//! That time is longer than supervisors wait before they start PHP again, and than the pause
//! between two runs of a job that runs each minute.
//!
//! Invariant: a process that may be PHP keeps a target from ending, also one that may not be read.

use std::collections::HashMap;

use super::Scope;
use super::seen::Seen;

/// The interval of the checks, in milliseconds.
const CHECK_EVERY: u64 = 1000;
/// For how long PHP is away until its container counts as ended, in milliseconds.
const AWAY_FOR: u64 = 90_000;

/// What is left of a target without a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// No process.
    Nothing,
    /// Only processes of a container that run no PHP.
    Others,
    /// A process that may be PHP, or in whose place it may come.
    Php,
}

impl Left {
    /// What is left of a target without a worker, of processes that `lives` judges by their PIDs.
    pub fn of(scope: &Scope, seen: &HashMap<i32, Seen>, lives: impl Fn(i32) -> bool) -> Self {
        let mut meant = seen.iter().filter(|(_, seen)| seen.in_scope);
        let is_container = matches!(scope, Scope::Container(_));
        let only_others = is_container && meant.clone().all(|(_, seen)| seen.is_without_php());
        if !meant.any(|(&pid, _)| lives(pid)) {
            Left::Nothing
        } else if only_others {
            Left::Others
        } else {
            Left::Php
        }
    }
}

/// Since when a target has been without PHP.
#[derive(Debug, Default)]
pub(super) struct Absence {
    since: Option<u64>,
    was_empty: bool,
    check_at: u64,
    is_final: bool,
}

impl Absence {
    /// A worker is there.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// No worker is there at this time, in milliseconds. Once a second it asks what is left.
    pub fn last(&mut self, now: u64, left: impl FnOnce() -> Left) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_EVERY;
        let left = left();
        let since = *self.since.get_or_insert(now);
        let is_empty = left == Left::Nothing;
        self.is_final = match left {
            Left::Nothing => self.was_empty,
            Left::Others => now - since >= AWAY_FOR,
            Left::Php => false,
        };
        self.was_empty = is_empty;
        if left == Left::Php {
            self.since = None;
        }
    }

    /// Whether the target has ended for good.
    pub fn is_final(&self) -> bool {
        self.is_final
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what is left each second from 0 on, and at which check, if any, the target has ended.
    #[track_caller]
    fn check(left: impl IntoIterator<Item = Option<Left>>, expected: Option<usize>) {
        let mut absence = Absence::default();
        let ended = (0..).zip(left).position(|(second, left)| {
            match left {
                Some(left) => absence.last(second * 1000, || left),
                None => absence.end(),
            }
            absence.is_final()
        });
        assert_eq!(ended, expected);
    }

    const NOTHING: Option<Left> = Some(Left::Nothing);
    const OTHERS: Option<Left> = Some(Left::Others);
    const PHP: Option<Left> = Some(Left::Php);
    const WORKER: Option<Left> = None;

    fn times(what: Option<Left>, count: usize) -> impl Iterator<Item = Option<Left>> {
        std::iter::repeat_n(what, count)
    }

    #[test]
    fn a_target_without_process_ends_a_second_later() {
        check([WORKER, NOTHING, NOTHING], Some(2));
        check([NOTHING, OTHERS, NOTHING, WORKER, NOTHING], None);
    }

    #[test]
    fn a_container_ends_after_the_longest_restart() {
        check(times(OTHERS, 200), Some(90));
        check([WORKER].into_iter().chain(times(OTHERS, 200)), Some(91));
    }

    #[test]
    fn a_restarted_pool_has_not_ended() {
        let restart = || times(OTHERS, 60).chain([WORKER]);
        check((0..10).flat_map(|_| restart()), None);
        // A master that has no worker yet, or may not be read.
        let unread = || times(OTHERS, 60).chain([PHP]);
        check((0..10).flat_map(|_| unread()), None);
        check(times(PHP, 1000), None);
    }

    #[test]
    fn remaining_processes_are_checked_once_a_second() {
        let (mut absence, mut asked) = (Absence::default(), 0);
        for now in (0..10_000).step_by(80) {
            absence.last(now, || {
                asked += 1;
                Left::Others
            });
        }
        assert!((9..=10).contains(&asked), "{asked}");
    }
}
