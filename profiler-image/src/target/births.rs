//! Which numbers the kernel has given to new processes and threads, and how many of them nobody
//! saw: pure.
//!
//! The kernel gives numbers in order, and tells the newest (`process/last_pid.rs`). So what was
//! born since the last look is a range of numbers: to look at these costs some microseconds each,
//! while listing `/proc` costs as much for each process that there is.
//!
//! Invariant: the looks are bounded by their number and not by a clock. Those that there is no room
//! for are left to the next listing, and a number that is gone by then, or by the second look,
//! counts as unseen.

use std::collections::VecDeque;

/// The looks in a second. One takes less than ten microseconds, and attaching to a forked worker
/// five times as much, so all take less than 0.3 % of a core.
const PER_SECOND: u64 = 300;
/// The looks that attaching to a forked worker counts as, and examining a known program.
const ATTACHING: u64 = 5;
const EXAMINING: u64 = 10;
/// The numbers that may wait for a look.
const MAX_WAITING: usize = 1024;
/// After the largest number the kernel begins with this one again: RESERVED_PIDS of kernel/pid.c.
const FIRST: i32 = 300;

/// A number that has to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    pub number: i32,
    /// There was nothing at the first look: the kernel gives a number a moment before it lists its
    /// process.
    was_absent: bool,
}

/// The numbers that were given.
#[derive(Debug, Default)]
pub(super) struct Births {
    newest: Option<i32>,
    waiting: VecDeque<Given>,
    /// Thousandths of looks that may be taken, and until when they were counted, in milliseconds.
    room: (u64, u64),
    unseen: u64,
}

impl Births {
    /// Notes the newest number; returns whether something may have been born, as always where the
    /// number is not available.
    pub fn note(&mut self, newest: Option<i32>) -> bool {
        let (Some(newest), Some(last)) = (newest, std::mem::replace(&mut self.newest, newest))
        else {
            return newest.is_none();
        };
        let first = if newest < last { FIRST } else { last + 1 };
        for number in first..=newest {
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.pop_front();
                self.unseen += 1;
            }
            self.waiting.push_back(Given {
                number,
                was_absent: false,
            });
        }
        newest != last
    }

    /// The next number to look at; `None` if there is none, or no room for another look at this
    /// time, in milliseconds.
    pub fn next(&mut self, now: u64) -> Option<Given> {
        if !self.allows(now) {
            return None;
        }
        let given = self.waiting.pop_front()?;
        self.room.0 -= 1000;
        Some(given)
    }

    /// Whether there is room for another look.
    pub fn allows(&mut self, now: u64) -> bool {
        let (room, since) = self.room;
        let more = now.saturating_sub(since).saturating_mul(PER_SECOND);
        self.room = (room.saturating_add(more).min(PER_SECOND * 1000), now);
        self.room.0 >= 1000
    }

    /// Notes that a look has attached to a worker.
    pub fn attached(&mut self) {
        self.spend(ATTACHING);
    }

    /// Notes that a look has examined a known program.
    pub fn examined(&mut self) {
        self.spend(EXAMINING);
    }

    fn spend(&mut self, looks: u64) {
        self.room.0 = self.room.0.saturating_sub(looks * 1000);
    }

    /// Notes that there was nothing at a look.
    pub fn absent(&mut self, given: Given) {
        if given.was_absent {
            self.unseen += 1
        } else {
            self.waiting.push_back(Given {
                was_absent: true,
                ..given
            })
        }
    }

    /// Counts a process that has ended before the first look.
    pub fn count_ended(&mut self) {
        self.unseen += 1;
    }

    /// All that wait: a listing tells which of them are there.
    pub fn all(&mut self) -> Vec<Given> {
        self.waiting.drain(..).collect()
    }

    /// How many numbers came and went unseen.
    pub fn unseen(&self) -> u64 {
        self.unseen
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(births: &mut Births, now: u64) -> Vec<i32> {
        std::iter::from_fn(|| births.next(now))
            .map(|given| given.number)
            .collect()
    }

    fn births(newest: impl IntoIterator<Item = i32>) -> Births {
        let mut births = Births::default();
        for number in newest {
            births.note(Some(number));
        }
        births
    }

    #[test]
    fn new_process_ids_are_looked_at_once() {
        let mut births = births([500, 503]);
        assert_eq!(numbers(&mut births, 1000), [501, 502, 503]);
        assert!(births.note(Some(504)) && !births.note(Some(504)));
        assert_eq!(numbers(&mut births, 1000), [504]);
        // Where the number is not available, only listings tell.
        assert!(births.note(None));
        births.note(Some(600));
        assert_eq!(numbers(&mut births, 1000), [0; 0]);
    }

    #[test]
    fn numbers_begin_again_after_the_largest() {
        let mut births = births([32_767, 301]);
        assert_eq!(numbers(&mut births, 1000), [300, 301]);
    }

    #[test]
    fn what_is_absent_twice_came_and_went_unseen() {
        let mut births = births([500, 501]);
        let given = births.next(1000).unwrap();
        births.absent(given);
        assert_eq!(births.unseen(), 0);
        let again = births.next(1000).unwrap();
        assert_eq!(again.number, 501);
        births.absent(again);
        assert_eq!((births.unseen(), births.next(1000)), (1, None));
    }

    #[test]
    fn looks_are_bounded_by_their_number() {
        let mut births = births([300, 1300]);
        births.room = (0, 1000);
        let mut taken = |now| numbers(&mut births, now).len();
        assert_eq!([taken(1000), taken(1010), taken(1011)], [0, 3, 0]);
        // What was not used is kept for a second.
        assert_eq!([taken(9000), taken(9000)], [300, 0]);
        births.attached();
        assert_eq!(births.all().len(), 1000 - 303);
    }

    proptest! {
        #[test]
        fn each_number_is_looked_at_or_counted(steps in proptest::collection::vec((0_i32..3000, 0_u64..50), 1..30)) {
            let (mut births, mut newest, mut now, mut looked) = (births([500]), 500, 0, 0);
            for (more, later) in steps {
                (newest, now) = (newest + more, now + later);
                births.note(Some(newest));
                looked += numbers(&mut births, now).len() as u64;
                prop_assert!(births.waiting.len() <= MAX_WAITING);
            }
            let left = births.all().len() as u64;
            prop_assert_eq!(looked + left + births.unseen(), (newest - 500) as u64);
        }
    }
}
