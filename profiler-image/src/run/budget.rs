//! How much CPU the sampler may use, and what it omits to stay within that: pure.
//!
//! Under pressure, it first cuts proofs, by fewer looks and further reads (more of a profile is
//! `[unstable]`), then the rate; both come back when the pressure is over. Start-up and the last
//! second do not count. Invariant: the rate is never above the requested one.

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The CPU time of this interval is compared with the budget.
const WINDOW: u64 = SECOND / 2;
/// It is not compared for this long after the beginning, when most names are new.
const START_UP: u64 = 3 * SECOND;
/// A window that used less than this percentage of the budget restores what was omitted.
const RELAXED_PERCENT: u64 = 60;

/// What the sampler may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Nanoseconds between the samples of a worker.
    pub period: u64,
    /// Whether further reads may prove a sample.
    pub proof: bool,
}

/// The budget of a run.
#[derive(Debug)]
pub struct Budget {
    /// The percentage of one core; `None` allows all.
    percent: Option<u64>,
    asked: u64,
    begin: u64,
    end: u64,
    allowed: Allowance,
    /// The CPU time used, and when it was measured.
    spent: (u64, u64),
    /// Since when this period applies, and how many periods had passed by then, in thousandths.
    since: (u64, u64),
}

impl Budget {
    /// A budget from now on. The run ends at `end`, and requests a sample of each worker every
    /// `period`.
    #[must_use]
    pub fn new(percent: Option<u32>, period: u64, cpu: u64, now: u64, end: u64) -> Self {
        Self {
            percent: percent.map(u64::from),
            asked: period.max(1),
            begin: now,
            end,
            allowed: Allowance {
                period: period.max(1),
                proof: true,
            },
            spent: (cpu, now),
            since: (now, 0),
        }
    }

    /// Excludes the CPU time until now, which was not used for sampling.
    pub fn leave_out(&mut self, cpu: u64, now: u64) {
        self.spent = (cpu, now);
    }

    /// What is allowed from now on; `cpu` is the CPU time that the sampler has used.
    pub fn look(&mut self, cpu: u64, now: u64) -> Allowance {
        let (spent, at) = self.spent;
        let Some(percent) = self.percent.filter(|_| now >= at + WINDOW) else {
            return self.allowed;
        };
        self.spent = (cpu, now);
        if now < self.begin + START_UP || now + SECOND > self.end {
            return self.allowed;
        }
        let used = cpu.saturating_sub(spent).saturating_mul(100);
        let budget = (now - at).saturating_mul(percent);
        let Allowance { period, proof } = self.allowed;
        if used > budget {
            if proof {
                self.allowed.proof = false
            } else {
                self.set_period((period + period / 2).min(SECOND.max(self.asked)), now)
            }
        } else if used < budget / 100 * RELAXED_PERCENT {
            if period > self.asked {
                self.set_period((period * 2 / 3).max(self.asked), now)
            } else {
                self.allowed.proof = true
            }
        }
        self.allowed
    }

    /// The average time between two samples of a worker until now; `late` of the `due` turns were
    /// missed.
    #[must_use]
    pub fn effective_period(&self, now: u64, due: u64, late: u64) -> u64 {
        let passed = self.passed(now);
        let took = now.saturating_sub(self.begin);
        let period = match took.saturating_mul(1000).checked_div(passed) {
            Some(period) if took > 0 => period.max(self.asked),
            _ => self.asked,
        };
        // In 128 bits, because a day's turns of thousands of workers, in nanoseconds, are more than
        // 64 bits can hold.
        let kept = u128::from(due.saturating_sub(late).max(1));
        let stretched = u128::from(period) * u128::from(due.max(1)) / kept;
        u64::try_from(stretched).unwrap_or(u64::MAX)
    }

    fn passed(&self, now: u64) -> u64 {
        let (since, passed) = self.since;
        let in_this = now.saturating_sub(since).saturating_mul(1000) / self.allowed.period;
        passed + in_this
    }

    fn set_period(&mut self, period: u64, now: u64) {
        self.since = (now, self.passed(now));
        self.allowed.period = period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = SECOND / 100;

    /// What is allowed after windows that used these percentages of a core, with a budget of 25.
    fn after(shares: &[u64]) -> Allowance {
        let mut budget = Budget::new(Some(25), PERIOD, 0, 0, 1000 * SECOND);
        let (mut cpu, mut now) = (0, START_UP);
        budget.leave_out(0, now);
        for share in shares {
            now += WINDOW;
            cpu += WINDOW / 100 * share;
            budget.look(cpu, now);
        }
        budget.allowed
    }

    #[test]
    fn budget_cuts_proof_before_rate() {
        let check = |shares: &[u64], period: u64, proof: bool| {
            assert_eq!(after(shares), Allowance { period, proof }, "{shares:?}");
        };
        check(&[20], PERIOD, true);
        check(&[30], PERIOD, false);
        check(&[30, 30], PERIOD * 3 / 2, false);
        check(&[30, 30, 20], PERIOD * 3 / 2, false);
        check(&[30, 30, 10], PERIOD, false);
        check(&[30, 30, 10, 10], PERIOD, true);
    }

    #[test]
    fn start_and_last_second_do_not_count() {
        let mut budget = Budget::new(Some(25), PERIOD, 0, 0, 10 * SECOND);
        let whole = budget.allowed;
        assert_eq!(budget.look(2 * SECOND, 2 * SECOND), whole);
        budget.leave_out(0, 8 * SECOND);
        assert_eq!(budget.look(2 * SECOND, 9 * SECOND + WINDOW), whole);
    }

    #[test]
    fn the_effective_period_is_that_of_the_turns() {
        let mut budget = Budget::new(None, PERIOD, 0, 0, 1000 * SECOND);
        assert_eq!(budget.effective_period(10 * SECOND, 0, 0), PERIOD);
        budget.set_period(2 * PERIOD, 10 * SECOND);
        // 1,000 periods, then 500.
        let average = PERIOD * 4 / 3;
        assert_eq!(budget.effective_period(20 * SECOND, 1500, 0), average);
        // Half of the turns were missed.
        let halved = budget.effective_period(20 * SECOND, 1500, 750);
        assert_eq!(halved, average * 2);
    }

    #[test]
    fn missed_turns_count_without_a_budget() {
        let budget = Budget::new(None, PERIOD, 0, 0, 1000 * SECOND);
        let check = |due: u64, late: u64, expected: u64| {
            let period = budget.effective_period(10 * SECOND, due, late);
            assert_eq!(period, expected, "{late} of {due}");
        };
        check(1000, 0, PERIOD);
        check(1000, 520, PERIOD * 1000 / 480);
        check(1000, 1000, PERIOD * 1000);
        check(u64::MAX, 0, PERIOD);
    }

    proptest! {
        #[test]
        fn rate_stays_below_the_asked_one(shares in proptest::collection::vec(0_u64..200, 0..60)) {
            prop_assert!(after(&shares).period >= PERIOD);
            let quiet = vec![0; 40];
            prop_assert_eq!(after(&[shares, quiet].concat()), Allowance { period: PERIOD, proof: true });
        }
    }
}
