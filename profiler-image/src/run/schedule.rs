//! When each worker is read: a pure function of time.
//!
//! Due times are absolute, so lateness does not add up. A wake-up costs more than a read: workers due together are read
//! in one, up to [`TOGETHER`]; more are spread evenly over the period.

/// The number of workers that one wake-up reads.
pub const TOGETHER: usize = 64;

/// The plan of the wake-ups. Times are nanoseconds of one monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    period: u64,
    start: u64,
    /// Wake-ups since `start`.
    tick: u64,
    groups: u64,
    /// The group that has waited longest. Whatever turns are missed, each group is read equally often.
    next: u64,
}

/// The current work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Which group of workers is due: those whose index is this number modulo the number of groups.
    pub group: usize,
    /// How many groups there are.
    pub groups: usize,
    /// Whole turns of this and other groups that were missed.
    pub missed: u64,
}

impl Schedule {
    /// A schedule that begins now.
    #[must_use]
    pub fn new(now: u64, period: u64, workers: usize) -> Self {
        Self {
            period: period.max(1),
            start: now,
            tick: 0,
            groups: groups(workers),
            next: 0,
        }
    }

    /// When the next turn is due.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.start + self.tick * self.interval()
    }

    /// Takes the turn that is due at `now`, the newest if several have passed.
    pub fn take(&mut self, now: u64) -> Turn {
        let missed = now.saturating_sub(self.due()) / self.interval();
        self.tick += missed;
        let group = self.next % self.groups;
        self.next = (group + 1) % self.groups;
        self.tick += 1;
        let index = |number: u64| usize::try_from(number).unwrap_or(0);
        Turn {
            group: index(group),
            groups: index(self.groups),
            missed,
        }
    }

    /// Applies a new number of workers, or a new period; turns continue from the last one.
    pub fn follow(&mut self, period: u64, workers: usize) {
        let groups = groups(workers);
        if groups != self.groups || period != self.period {
            self.start = self.due();
            self.tick = 0;
            self.groups = groups;
            self.period = period.max(1);
        }
    }

    fn interval(&self) -> u64 {
        (self.period / self.groups).max(1)
    }
}

fn groups(workers: usize) -> u64 {
    workers.div_ceil(TOGETHER).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_workers_are_read_in_one_wake_up() {
        let mut schedule = Schedule::new(0, 100, 64);
        assert_eq!(
            schedule.take(0),
            Turn {
                group: 0,
                groups: 1,
                missed: 0
            }
        );
        assert_eq!(schedule.due(), 100);
    }

    #[test]
    fn many_workers_are_spread_over_the_period() {
        let mut schedule = Schedule::new(0, 100, 160);
        let due: Vec<(u64, usize)> = (0..4)
            .map(|_| (schedule.due(), schedule.take(schedule.due()).group))
            .collect();
        assert_eq!(due, [(0, 0), (33, 1), (66, 2), (99, 0)]);
    }

    #[test]
    fn turns_that_passed_are_counted_and_do_not_shift_the_rest() {
        let mut schedule = Schedule::new(0, 100, 1);
        schedule.take(0);
        assert_eq!(schedule.take(350).missed, 2);
        assert_eq!(schedule.due(), 400);
    }

    #[test]
    fn turns_that_are_always_late_by_the_number_of_groups_starve_none() {
        let mut schedule = Schedule::new(0, 100, 128);
        let mut groups: Vec<usize> = (0..6)
            .map(|_| schedule.take(schedule.due() + 50).group)
            .collect();
        groups.sort_unstable();
        assert_eq!(groups, [0, 0, 0, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn each_worker_has_one_turn_in_each_period(workers in 1_usize..200, period in 1_000_u64..1_000_000_000) {
            let mut schedule = Schedule::new(0, period, workers);
            let mut turns = vec![0; workers];
            let groups = schedule.groups;
            for _ in 0..groups {
                let turn = schedule.take(schedule.due());
                (turn.group..workers).step_by(turn.groups).for_each(|worker| turns[worker] += 1);
            }
            prop_assert!(turns.iter().all(|&count| count == 1));
            prop_assert!(schedule.due() <= period);
        }
    }
}
