//! Divides a worker's CPU time among its samples: pure.
//!
//! A sample represents a period, whatever ran before and after it. So all samples in which the
//! worker ran get equal shares of the CPU time of a longer interval. The clock's advance between
//! two samples tells how much ran, not what: if it went to the adjacent samples, functions shorter
//! than a period would get their neighbours' time. A sleeping sample gets none. Neither does one
//! that waited for a CPU, which is known later: the kernel counts a wait when it ends.
//! Invariant: the CPU time given and the CPU time still waiting add up to the whole advance of the
//! clock.

use super::clocks::SchedStat;

/// Samples that share the CPU time of their interval. At 99 Hz, functions of 5 ms are 9 percentage
/// points off with 1 sample, 1.2 off with 4, up to 0.4 with 16, and 0.1 with 64. These take a short
/// time, so that a disturbance by other programs affects few samples.
const SHARERS: usize = 64;
/// More samples only gather while the clock stands still for longer than a kernel tick: then the
/// worker has no CPU.
const MAX_SHARERS: usize = 256;

/// The clock of one worker, and the samples that wait for their share.
#[derive(Debug)]
pub struct CpuShares<T> {
    last: Option<SchedStat>,
    /// The whole advance so far, in nanoseconds.
    seen: u64,
    /// Nanoseconds that no sample was given yet.
    waiting: u64,
    /// Samples in which the worker ran, as far as is known, and their times; the newest last.
    sharers: Vec<(u64, T)>,
}

impl<T> Default for CpuShares<T> {
    fn default() -> Self {
        Self {
            last: None,
            seen: 0,
            waiting: 0,
            sharers: Vec::new(),
        }
    }
}

impl<T> CpuShares<T> {
    /// The clock of a worker that has just begun: it began at zero (`__sched_fork`,
    /// kernel/sched/core.c).
    #[must_use]
    pub fn from_birth() -> Self {
        Self {
            last: Some(SchedStat {
                run_nanoseconds: 0,
                delay_nanoseconds: 0,
                slices: 0,
            }),
            ..Self::default()
        }
    }

    /// Takes the scheduler's numbers at a time, in nanoseconds, and the sample of that time if the
    /// worker ran. Once there are enough samples, each gets its share.
    pub fn add(&mut self, now: u64, look: SchedStat, ran: Option<T>, give: impl FnMut(T, u64)) {
        let last = self.last.replace(look).unwrap_or(look);
        let advance = look.run_nanoseconds.saturating_sub(last.run_nanoseconds);
        self.waiting += advance;
        self.seen += advance;
        // A wait that began by then, or earlier, has ended since the last look.
        let delay = look
            .delay_nanoseconds
            .saturating_sub(last.delay_nanoseconds);
        let queued = |at: u64| delay > 0 && at >= now.saturating_sub(delay);
        while self.sharers.pop_if(|(at, _)| queued(*at)).is_some() {}
        if self.sharers.len() >= SHARERS && advance > 0 {
            self.settle(give);
        }
        if let Some(sample) = ran
            && self.sharers.len() < MAX_SHARERS
        {
            self.sharers.push((now, sample));
        }
    }

    /// Gives each sample its share of the CPU time so far.
    pub fn settle(&mut self, mut give: impl FnMut(T, u64)) {
        let count = self.sharers.len() as u64;
        let Some(each) = self.waiting.checked_div(count) else {
            return;
        };
        let rest = self.waiting % count;
        for (index, (_, sample)) in (0_u64..).zip(self.sharers.drain(..)) {
            give(sample, each + u64::from(index < rest));
        }
        self.waiting = 0;
    }

    /// The whole advance of the clock, in nanoseconds.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Calls `change` for each sample that waits for its share.
    pub fn each(&mut self, change: impl FnMut(&mut T)) {
        let samples = self.sharers.iter_mut().map(|(_, sample)| sample);
        samples.for_each(change);
    }

    /// Nanoseconds that no sample was given yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(run_nanoseconds: u64, delay_nanoseconds: u64) -> SchedStat {
        SchedStat {
            run_nanoseconds,
            delay_nanoseconds,
            slices: 1,
        }
    }

    /// Checks each sample's share, and what is left, after steps of ten: how long the worker has
    /// run and waited, and which sample ran.
    #[track_caller]
    fn check(steps: &[(u64, u64, Option<char>)], expected: &[(char, u64)], left: u64) {
        let (mut shares, mut given) = (CpuShares::default(), Vec::new());
        for (now, &(run, delay, ran)) in (0..).step_by(10).zip(steps) {
            shares.add(now, look(run, delay), ran, |_, _| panic!("too few samples"));
        }
        shares.settle(|sample, nanoseconds| given.push((sample, nanoseconds)));
        assert_eq!((given.as_slice(), shares.waiting()), (expected, left));
    }

    #[test]
    fn running_samples_share_the_clocks_advance() {
        let steps = [
            (0, 0, Some('a')),
            (9, 0, Some('b')),
            (9, 0, None),
            (11, 0, Some('c')),
        ];
        check(&steps, &[('a', 4), ('b', 4), ('c', 3)], 0);
    }

    #[test]
    fn advance_without_sample_waits_for_one() {
        check(&[(0, 0, None), (5, 0, None)], &[], 5);
        let steps = [(0, 0, None), (5, 0, None), (7, 0, Some('a'))];
        check(&steps, &[('a', 7)], 0);
    }

    #[test]
    fn time_before_the_first_look_is_nobodys() {
        check(&[(1000, 9, Some('a'))], &[('a', 0)], 0);
    }

    #[test]
    fn newborn_owns_its_time_before_the_look() {
        let (mut shares, mut given) = (CpuShares::from_birth(), Vec::new());
        shares.add(0, look(8, 0), Some('a'), |_, _| panic!("too few samples"));
        shares.settle(|sample, nanoseconds| given.push((sample, nanoseconds)));
        assert_eq!((given.as_slice(), shares.seen()), (&[('a', 8)][..], 8));
    }

    #[test]
    fn sample_that_waited_for_cpu_gets_none() {
        let ended_after = |delay| {
            [
                (0, 0, Some('a')),
                (5, 0, Some('b')),
                (5, 0, Some('c')),
                (8, delay, Some('d')),
            ]
        };
        let all = [('a', 2), ('b', 2), ('c', 2), ('d', 2)];
        check(&ended_after(9), &all, 0);
        check(&ended_after(10), &[('a', 3), ('b', 3), ('d', 2)], 0);
        check(&ended_after(20), &[('a', 4), ('d', 4)], 0);
    }

    #[test]
    fn standing_clock_gives_bounded_samples_none() {
        let (mut shares, mut given) = (CpuShares::default(), Vec::new());
        shares.add(0, look(0, 0), Some('a'), |_, _| {});
        for now in 1..10_000 {
            shares.add(now, look(0, 0), Some('b'), |_, _| {
                panic!("there is nothing")
            });
            assert!(shares.sharers.len() <= MAX_SHARERS);
        }
        shares.add(10_000, look(7, 9_999), Some('c'), |_, _| panic!("too few"));
        shares.settle(|sample, nanoseconds| given.push((sample, nanoseconds)));
        assert_eq!(given, [('a', 4), ('c', 3)]);
    }

    const MILLISECOND: u64 = 1_000_000;
    /// The tick of a kernel at 250 Hz.
    const TICK: u64 = 4 * MILLISECOND;

    /// Simulates a program for three minutes whose slices have this average length: the true and
    /// the sampled share of `counting`, in percent. It runs and waits like the bench's `cpu.php`.
    fn simulated(slice: u64, period: u64) -> [f64; 2] {
        const PROGRAM: [Option<usize>; 5] = [Some(0), None, Some(0), Some(1), None];
        let (mut truth, mut sampled) = ([0; 2], [0; 2]);
        let (mut shares, mut random) = (CpuShares::default(), 1_u64);
        // When the program was put on its CPU, and its clock then.
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
                shares.add(due, look(clock, 0), function, |function, time| {
                    sampled[function] += time
                });
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
    fn short_functions_get_what_they_use() {
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
        fn nothing_is_lost(steps in proptest::collection::vec((0_u64..100, 0_u64..9, proptest::option::of(0_u32..9)), 1..500)) {
            let (mut shares, mut run, mut delay, mut given) = (CpuShares::default(), 0, 0, 0);
            for (now, (advance, wait, ran)) in (0_u64..).zip(&steps) {
                (run, delay) = (run + advance, delay + wait);
                shares.add(now, look(run, delay), *ran, |_, nanoseconds| given += nanoseconds);
                prop_assert!(shares.sharers.len() <= MAX_SHARERS);
            }
            shares.settle(|_, nanoseconds| given += nanoseconds);
            prop_assert_eq!(given + shares.waiting(), run - steps[0].0);
        }
    }
}
