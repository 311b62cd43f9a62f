//! Which samples a worker's CPU time belongs to: pure.
//!
//! A sample stands for a period, whatever ran before and after it: of the CPU time of a while, all samples in which the worker
//! ran get the same share, and one that sleeps gets none. An advance of the clock says how much ran between two samples, not
//! what; given to a sample beside it, it belongs to a neighbour the more often the shorter the functions are.
//! Invariant: what was given and what still waits is the whole advance.

/// Samples that share the time in which they were taken. At 99 Hz each on its own puts functions of 5 ms 9 points off, 4 put them
/// 1.2 off, 16 up to 0.4, and 64 by 0.1; and they are soon over, so that what the machine does meanwhile concerns few.
const SHARERS: usize = 64;

/// The clock of one worker, and the samples that wait for their share.
#[derive(Debug)]
pub struct CpuShares<T> {
    last: Option<u64>,
    /// Nanoseconds that nobody was given yet.
    waiting: u64,
    /// Samples in which the worker ran.
    sharers: Vec<T>,
}

impl<T> Default for CpuShares<T> {
    fn default() -> Self {
        Self {
            last: None,
            waiting: 0,
            sharers: Vec::new(),
        }
    }
}

impl<T> CpuShares<T> {
    /// Takes what the clock says, in nanoseconds, and the sample that was taken then, if the worker ran; once there are enough
    /// of them, gives each its share.
    pub fn add(&mut self, clock: u64, ran: Option<T>, give: impl FnMut(T, u64)) {
        let last = self.last.replace(clock).unwrap_or(clock);
        self.waiting += clock.saturating_sub(last);
        self.sharers.extend(ran);
        if self.sharers.len() >= SHARERS {
            self.settle(give);
        }
    }

    /// Gives each sample its share of what there is so far.
    pub fn settle(&mut self, mut give: impl FnMut(T, u64)) {
        let count = self.sharers.len() as u64;
        let Some(each) = self.waiting.checked_div(count) else {
            return;
        };
        let rest = self.waiting % count;
        for (index, sample) in (0_u64..).zip(self.sharers.drain(..)) {
            give(sample, each + u64::from(index < rest));
        }
        self.waiting = 0;
    }

    /// Nanoseconds that nobody was given yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each sample gets at the end, of pairs of what the clock says and which sample ran, and what is left.
    #[track_caller]
    fn check(steps: &[(u64, Option<char>)], expected: &[(char, u64)], left: u64) {
        let (mut shares, mut given) = (CpuShares::default(), Vec::new());
        for &(clock, ran) in steps {
            shares.add(clock, ran, |_, _| panic!("too few samples"));
        }
        shares.settle(|sample, nanoseconds| given.push((sample, nanoseconds)));
        assert_eq!((given.as_slice(), shares.waiting()), (expected, left));
    }

    #[test]
    fn samples_that_ran_share_what_the_clock_has_advanced_meanwhile() {
        check(
            &[(0, Some('a')), (9, Some('b')), (9, None), (11, Some('c'))],
            &[('a', 4), ('b', 4), ('c', 3)],
            0,
        );
    }

    #[test]
    fn an_advance_that_met_no_sample_waits_for_one() {
        check(&[(0, None), (5, None), (7, Some('a'))], &[('a', 7)], 0);
        check(&[(0, None), (5, None)], &[], 5);
    }

    #[test]
    fn what_ran_before_the_first_look_belongs_to_nobody() {
        check(&[(1000, Some('a'))], &[('a', 0)], 0);
    }

    #[test]
    fn a_while_in_which_the_worker_waited_for_a_cpu_does_not_weigh_later() {
        let (mut shares, mut given) = (CpuShares::default(), [0; 2]);
        for step in 0..2 * SHARERS {
            let function = step / SHARERS;
            let clock = function * (step + 1 - SHARERS.min(step)) * 10;
            shares.add(clock as u64, Some(function), |function, nanoseconds| {
                given[function] += nanoseconds;
            });
        }
        assert!(given[0] == 0 && given[1] > 0, "{given:?}");
    }

    const MILLISECOND: u64 = 1_000_000;
    /// The kernel's, at 250 Hz.
    const TICK: u64 = 4 * MILLISECOND;

    /// A program whose slices last this long on average, for three minutes: the share of `counting`, as it is and as it is
    /// sampled, in percent. What runs and waits is that of the bench's `cpu.php`.
    fn simulated(slice: u64, period: u64) -> [f64; 2] {
        const PROGRAM: [Option<usize>; 5] = [Some(0), None, Some(0), Some(1), None];
        let (mut truth, mut sampled) = ([0; 2], [0; 2]);
        let (mut shares, mut random) = (CpuShares::default(), 1_u64);
        // When the program was put on its CPU, and what its clock said then.
        let (mut now, mut due, mut began, mut before) = (0, 0, 0, 0);
        for &function in PROGRAM.iter().cycle() {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let end = now + slice / 2 + (random >> 33) % slice;
            if function.is_none() {
                before += now - began;
            }
            while due < end {
                let ticked = (due / TICK * TICK).saturating_sub(began);
                let clock = before + if function.is_some() { ticked } else { 0 };
                shares.add(clock, function, |function, time| sampled[function] += time);
                due += period;
            }
            match function {
                Some(function) => truth[function] += end - now,
                None => began = end,
            }
            now = end;
            if now > 180_000 * MILLISECOND {
                break;
            }
        }
        [truth, sampled].map(|times| 100.0 * times[0] as f64 / (times[0] + times[1]) as f64)
    }

    #[test]
    fn functions_shorter_than_a_period_get_what_they_use() {
        for slice in [1, 5, 20, 100] {
            for rate in [99, 999] {
                let [truth, sampled] = simulated(slice * MILLISECOND, 1000 * MILLISECOND / rate);
                assert!(
                    (truth - sampled).abs() < 1.0,
                    "{slice} ms at {rate} Hz: {truth:.1} % and {sampled:.1} %"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(steps in proptest::collection::vec((0_u64..100, proptest::option::of(0_u32..9)), 1..500)) {
            let (mut shares, mut clock, mut given) = (CpuShares::default(), 0, 0);
            for (advance, ran) in &steps {
                clock += advance;
                shares.add(clock, *ran, |_, nanoseconds| given += nanoseconds);
                prop_assert!(shares.sharers.len() < SHARERS);
            }
            shares.settle(|_, nanoseconds| given += nanoseconds);
            prop_assert_eq!(given + shares.waiting(), clock - steps[0].0);
        }
    }
}
