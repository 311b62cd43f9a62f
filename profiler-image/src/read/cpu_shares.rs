//! Divides a worker's CPU time among its samples: pure.
//!
//! A sample represents a period, whatever ran before and after it. So all samples in which the
//! worker ran get equal shares of the CPU time of a longer interval. The clock's advance between
//! two samples tells how much ran, not what: if it went to the adjacent samples, functions shorter
//! than a period would get their neighbours' time. A sleeping sample gets none. Neither does one
//! that waited for a CPU. Where the counts of switches do not tell, a wait is known later: the
//! kernel counts it when it ends.
//! Invariant: the CPU time given and the CPU time still waiting add up to the whole advance of the
//! clock.

use super::clocks::SchedStat;
use super::on_cpu::Activity;

/// Samples that share the CPU time of their interval. At 99 Hz, functions of 5 ms are 9 percentage
/// points off with 1 sample, 1.2 off with 4, up to 0.4 with 16, and 0.1 with 64. These take a short
/// time, so that a disturbance by other programs affects few samples.
const SHARERS: usize = 64;
/// More samples only gather while the worker has no CPU.
const MAX_SAMPLES: usize = 256;

/// Certain samples share alone unless there are this many times as many less certain ones: then the
/// sampler has displaced the worker in most of those.
const FEWEST: usize = 32;

/// The clock of one worker, and the samples that wait for their share.
#[derive(Debug)]
pub struct CpuShares<T> {
    last: Option<SchedStat>,
    /// The newest sample that has no room below, and in which the worker waited for a CPU.
    last_resort: Option<T>,
    /// The whole advance so far, in nanoseconds.
    seen: u64,
    /// Nanoseconds that no sample was given yet.
    waiting: u64,
    /// Samples that may have a share, the newest last.
    samples: Vec<WaitingSample<T>>,
}

/// A sample with what the scheduler told then.
#[derive(Debug)]
pub struct ClockedSample<T> {
    /// When, in nanoseconds.
    pub at: u64,
    /// The worker's numbers.
    pub look: SchedStat,
    /// What the worker did.
    pub activity: Activity,
    /// The sample.
    pub sample: T,
}

/// A sample that waits for its share.
#[derive(Debug)]
struct WaitingSample<T> {
    at: u64,
    activity: Activity,
    sample: T,
}

impl<T> Default for CpuShares<T> {
    fn default() -> Self {
        Self {
            last: None,
            last_resort: None,
            seen: 0,
            waiting: 0,
            samples: Vec::new(),
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

    /// Takes the newest sample. Once there are enough, each gets its share.
    pub fn add(&mut self, newest: ClockedSample<T>, give: impl FnMut(T, u64)) {
        let ClockedSample { look, activity, .. } = newest;
        let last = self.last.replace(look).unwrap_or(look);
        let advance = look.run_nanoseconds.saturating_sub(last.run_nanoseconds);
        self.waiting += advance;
        self.seen += advance;
        self.revise(&newest, last);
        let is_full = self.samples.len() >= MAX_SAMPLES && self.waiting > 0;
        if is_full || self.count(RunBelief::Ran) >= SHARERS && advance > 0 {
            self.settle(give);
        }
        let is_kept = RunBelief::of(activity).is_some();
        if is_kept && self.samples.len() < MAX_SAMPLES {
            self.samples.push(WaitingSample {
                at: newest.at,
                activity,
                sample: newest.sample,
            });
        } else if activity != Activity::Slept {
            self.last_resort = Some(newest.sample);
        }
    }

    /// Corrects what is believed of the samples before the newest look. A wait that began by then,
    /// or earlier, has ended since.
    fn revise(&mut self, newest: &ClockedSample<T>, last: SchedStat) {
        let delay = newest.look.delay_nanoseconds;
        let delay = delay.saturating_sub(last.delay_nanoseconds);
        let began = newest.at.saturating_sub(delay);
        let queued = |sample: &&mut WaitingSample<T>| delay > 0 && sample.at >= began;
        for sample in self.samples.iter_mut().rev().take_while(queued) {
            if sample.activity == Activity::Runnable {
                sample.activity = Activity::Queued { displaced: false };
            }
        }
    }

    fn count(&self, standing: RunBelief) -> usize {
        let samples = self.samples.iter();
        let standings = samples.map(|one| RunBelief::of(one.activity));
        standings.filter(|it| *it == Some(standing)).count()
    }

    /// Gives each sample its share of the CPU time so far. If almost none of them ran as far as is
    /// known, those share it, too, that may have run.
    pub fn settle(&mut self, mut give: impl FnMut(T, u64)) {
        let [ran, perhaps] = [RunBelief::Ran, RunBelief::Perhaps].map(|it| self.count(it));
        let (least, count) = if ran.saturating_mul(FEWEST) >= perhaps {
            (RunBelief::Ran, ran)
        } else {
            (RunBelief::Perhaps, ran + perhaps)
        };
        let count = count as u64;
        if count == 0 {
            if let Some(sample) = self.last_resort.take().filter(|_| self.waiting > 0) {
                give(sample, std::mem::take(&mut self.waiting));
            }
            return;
        }
        let (each, rest) = (self.waiting / count, self.waiting % count);
        let samples = self.samples.drain(..);
        let sharers = samples.filter(|one| RunBelief::of(one.activity) >= Some(least));
        for (index, one) in (0_u64..).zip(sharers) {
            give(one.sample, each + u64::from(index < rest));
        }
        self.waiting = 0;
    }

    /// The numbers of the newest sample.
    #[must_use]
    pub fn last(&self) -> Option<SchedStat> {
        self.last
    }

    /// The whole advance of the clock, in nanoseconds.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Calls `change` for each sample that waits for its share.
    pub fn each(&mut self, change: impl FnMut(&mut T)) {
        let samples = self.samples.iter_mut().map(|one| &mut one.sample);
        samples.chain(&mut self.last_resort).for_each(change);
    }

    /// Nanoseconds that no sample was given yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }
}

/// How certain it is that a worker ran in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RunBelief {
    Perhaps,
    Ran,
}

impl RunBelief {
    /// `None` if it did not.
    fn of(activity: Activity) -> Option<Self> {
        match activity {
            Activity::Ran | Activity::Runnable => Some(Self::Ran),
            Activity::Changed | Activity::Queued { displaced: true } => Some(Self::Perhaps),
            Activity::Queued { displaced: false } | Activity::Slept => None,
        }
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

    fn at<T>(at: u64, look: SchedStat, (activity, sample): (Activity, T)) -> ClockedSample<T> {
        ClockedSample {
            at,
            look,
            activity,
            sample,
        }
    }

    /// Checks each sample's share, and what is left, after steps of ten: how long the worker has
    /// run and waited, and which sample ran.
    #[track_caller]
    fn check(steps: &[(u64, u64, Option<char>)], expected: &[(char, u64)], left: u64) {
        let step = |&(run, delay, ran)| (look(run, delay), runnable(ran));
        let steps: Vec<_> = steps.iter().map(step).collect();
        check_activities(&steps, expected, left);
    }

    /// A sample in which the worker was runnable, or slept.
    fn runnable(sample: Option<char>) -> (Activity, char) {
        let sleeps = (Activity::Slept, 's');
        sample.map_or(sleeps, |sample| (Activity::Runnable, sample))
    }

    #[track_caller]
    fn check_activities(
        steps: &[(SchedStat, (Activity, char))],
        expected: &[(char, u64)],
        left: u64,
    ) {
        let (mut shares, mut given) = (CpuShares::default(), Vec::new());
        for (now, &(look, newest)) in (0..).step_by(10).zip(steps) {
            shares.add(at(now, look, newest), |_, _| panic!("too few samples"));
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
        let newest = runnable(Some('a'));
        shares.add(at(0, look(8, 0), newest), |_, _| panic!("too few samples"));
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
        shares.add(at(0, look(0, 0), runnable(Some('a'))), |_, _| {});
        for now in 1..10_000 {
            let newest = at(now, look(0, 0), runnable(Some('b')));
            shares.add(newest, |_, _| panic!("there is nothing"));
            assert!(shares.samples.len() <= MAX_SAMPLES);
        }
        let newest = at(10_000, look(7, 9_999), runnable(Some('c')));
        shares.add(newest, |sample, nanoseconds| {
            given.push((sample, nanoseconds))
        });
        shares.settle(|sample, nanoseconds| given.push((sample, nanoseconds)));
        assert_eq!(given, [('a', 7), ('c', 0)]);
    }

    #[test]
    fn only_proven_samples_share_where_there_are_some() {
        use Activity::{Changed, Queued, Ran, Slept};
        let (here, there) = (Queued { displaced: true }, Queued { displaced: false });
        let waited = |run_nanoseconds, delay_nanoseconds, slices| SchedStat {
            run_nanoseconds,
            delay_nanoseconds,
            slices,
        };
        let mut steps = [
            (look(0, 0), (Changed, 'a')),
            (look(0, 0), (here, 'b')),
            (look(6, 0), (there, 'c')),
            (look(6, 0), (Slept, 'd')),
            (look(6, 0), (Ran, 'e')),
        ];
        check_activities(&steps, &[('e', 6)], 0);
        // What ran for sure keeps its share, whatever wait has ended since.
        steps[3].1 = (Ran, 'd');
        steps[4].0 = waited(6, 100, 2);
        check_activities(&steps, &[('d', 3), ('e', 3)], 0);
        // Nothing ran for sure.
        (steps[3].1, steps[4].1) = ((Slept, 'd'), (there, 'e'));
        check_activities(&steps, &[('a', 3), ('b', 3)], 0);
        // All waited, and the CPU time has to be somewhere.
        check_activities(&steps[2..], &[], 0);
        steps[2].0 = look(0, 0);
        check_activities(&steps[2..], &[('e', 6)], 0);
    }

    #[test]
    fn few_that_ran_are_enough() {
        let (ran, perhaps) = (
            (Activity::Ran, 'a'),
            (Activity::Queued { displaced: true }, 'b'),
        );
        let steps = |count: usize| {
            let mut steps = vec![(look(0, 0), ran)];
            steps.resize(1 + count, (look(340, 0), perhaps));
            steps
        };
        check_activities(&steps(32), &[('a', 340)], 0);
        let mut all = vec![('b', 10); 34];
        all[0].0 = 'a';
        check_activities(&steps(33), &all, 0);
    }

    #[test]
    fn worker_that_is_always_displaced_has_its_time() {
        let (mut shares, mut given) = (CpuShares::default(), 0);
        let queued = (Activity::Queued { displaced: true }, ());
        for now in 0..1000 {
            let newest = at(now, look(now, 0), queued);
            shares.add(newest, |(), nanoseconds| given += nanoseconds);
            assert!(shares.samples.len() <= MAX_SAMPLES);
        }
        shares.settle(|(), nanoseconds| given += nanoseconds);
        assert_eq!(given, 999);
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
                let newest = function.map_or((Activity::Slept, 0), |it| (Activity::Runnable, it));
                shares.add(at(due, look(clock, 0), newest), |function, time| {
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
        fn nothing_is_lost(steps in proptest::collection::vec((0_u64..100, 0_u64..9, 0_usize..6), 1..500)) {
            const ACTIVITIES: [Activity; 6] = [
                Activity::Ran,
                Activity::Runnable,
                Activity::Changed,
                Activity::Queued { displaced: true },
                Activity::Queued { displaced: false },
                Activity::Slept,
            ];
            let (mut shares, mut run, mut delay, mut given) = (CpuShares::default(), 0, 0, 0);
            for (now, (advance, wait, activity)) in (0_u64..).zip(&steps) {
                (run, delay) = (run + advance, delay + wait);
                let newest = (ACTIVITIES[*activity], ());
                shares.add(at(now, look(run, delay), newest), |(), nanoseconds| given += nanoseconds);
                prop_assert!(shares.samples.len() <= MAX_SAMPLES);
            }
            shares.settle(|_, nanoseconds| given += nanoseconds);
            prop_assert_eq!(given + shares.waiting(), run - steps[0].0);
        }
    }
}
