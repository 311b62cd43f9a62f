//! Divides the time that a worker waited for a CPU among its samples: pure.
//!
//! The kernel counts a wait when it ends, exactly. Samples that saw the worker wait tell in which
//! stack. Their own wall time is no measure: a sampler that is kept from its CPU by the same limit
//! looks when the workers run, too, and elsewhere it displaces workers itself. So the kernel's time
//! is divided among the samples that saw a wait, each up to its wall time. What is left goes to the
//! samples in whose time waits ended.
//! Invariant: the time given and the time still waiting add up to the kernel's, and no sample has
//! more than its wall time.

use super::clocks::SchedStat;

/// Samples that share the waits of their interval.
const SHARERS: usize = 64;

/// A sample, and what is known of its wait for a CPU.
#[derive(Debug)]
pub struct WaitSample<T> {
    /// The time that it represents, in nanoseconds.
    pub wall: u64,
    /// The worker waited for a CPU.
    pub is_queued: bool,
    /// The sample.
    pub sample: T,
}

/// What samples of one stack have waited for a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitShare {
    /// Nanoseconds of their wall time.
    pub wall: u64,
    /// How many of them saw the wait.
    pub samples: u64,
}

/// Samples that wait for their share.
#[derive(Debug)]
struct Sharer<T> {
    wall: u64,
    /// What has ended in its time; at most its wall time.
    own: u64,
    /// How many samples saw a wait.
    queued: u64,
    sample: T,
}

/// The waits of one worker.
#[derive(Debug)]
pub struct WaitShares<T> {
    last: Option<u64>,
    /// All waits so far, in nanoseconds.
    seen: u64,
    /// Nanoseconds that no sample was given yet.
    waiting: u64,
    sharers: Vec<Sharer<T>>,
}

impl<T> Default for WaitShares<T> {
    fn default() -> Self {
        Self {
            last: None,
            seen: 0,
            waiting: 0,
            sharers: Vec::new(),
        }
    }
}

impl<T: PartialEq> WaitShares<T> {
    /// The waits of a worker that has just begun.
    #[must_use]
    pub fn from_birth() -> Self {
        Self {
            last: Some(0),
            ..Self::default()
        }
    }

    /// Takes the scheduler's numbers, and the sample of that time. Once there are enough samples,
    /// each gets its share.
    pub fn add(&mut self, look: SchedStat, newest: WaitSample<T>, give: impl FnMut(T, WaitShare)) {
        let delay = look.delay_nanoseconds;
        let ended = delay.saturating_sub(self.last.replace(delay).unwrap_or(delay));
        self.seen += ended;
        self.waiting += ended;
        let WaitSample {
            wall,
            is_queued,
            sample,
        } = newest;
        let one = Sharer {
            wall,
            own: ended.min(wall),
            queued: u64::from(is_queued),
            sample,
        };
        match self.sharers.last_mut() {
            // A worker that waits stays in its stack.
            Some(last) if is_queued && last.queued > 0 && last.sample == one.sample => {
                last.wall += one.wall;
                last.own += one.own;
                last.queued += 1;
            }
            _ if is_queued || one.own > 0 => self.sharers.push(one),
            _ => {}
        }
        if self.sharers.len() >= SHARERS {
            self.settle(give);
        }
    }

    /// Gives each sample its share of the waits so far.
    pub fn settle(&mut self, mut give: impl FnMut(T, WaitShare)) {
        let queued = |one: &Sharer<T>| if one.queued > 0 { one.wall } else { 0 };
        let other = |one: &Sharer<T>| if one.queued > 0 { 0 } else { one.own };
        let of_queued = Division::of(self.waiting, self.sharers.iter().map(queued));
        let of_others = Division::of(of_queued.left, self.sharers.iter().map(other));
        self.waiting = of_others.left;
        let (mut of_queued, mut of_others) = (of_queued, of_others);
        // Each sample that displaces a worker adds one, so their memory is kept.
        let mut sharers = std::mem::take(&mut self.sharers);
        for one in sharers.drain(..) {
            let wall = of_queued.next(queued(&one)) + of_others.next(other(&one));
            let samples = one.queued;
            if wall > 0 || samples > 0 {
                give(one.sample, WaitShare { wall, samples });
            }
        }
        self.sharers = sharers;
    }

    /// Calls `change` for each sample that waits for its share.
    pub fn each(&mut self, change: impl FnMut(&mut T)) {
        let samples = self.sharers.iter_mut().map(|one| &mut one.sample);
        samples.for_each(change);
    }

    /// All waits that have ended so far, in nanoseconds.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

/// Divides an amount among weights, each of which gets at most itself.
#[derive(Debug, Clone, Copy)]
struct Division {
    amount: u64,
    weights: u64,
    /// What the weights have no room for.
    left: u64,
    /// The weights so far, and what they have got.
    so_far: (u64, u64),
}

impl Division {
    fn of(amount: u64, weights: impl Iterator<Item = u64>) -> Self {
        let weights = weights.fold(0, u64::saturating_add);
        Self {
            amount: amount.min(weights),
            weights,
            left: amount.saturating_sub(weights),
            so_far: (0, 0),
        }
    }

    /// The part of the next weight: without rounding errors in the sum.
    fn next(&mut self, weight: u64) -> u64 {
        let (weights, given) = self.so_far;
        let weights = weights.saturating_add(weight);
        let all = u128::from(self.amount) * u128::from(weights);
        let all = all.checked_div(u128::from(self.weights)).unwrap_or(0);
        let all = u64::try_from(all).unwrap_or(self.amount);
        self.so_far = (weights, all);
        all - given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(delay_nanoseconds: u64) -> SchedStat {
        SchedStat {
            run_nanoseconds: 0,
            delay_nanoseconds,
            slices: 1,
        }
    }

    /// Checks the shares of samples: the kernel's sum of waits at each, whether it saw one, and its
    /// name. Each represents ten nanoseconds.
    #[track_caller]
    fn check(steps: &[(u64, bool, char)], expected: &[(char, u64, u64)], left: u64) {
        let (mut shares, mut given) = (WaitShares::default(), Vec::new());
        for &(delay, is_queued, sample) in steps {
            let newest = WaitSample {
                wall: 10,
                is_queued,
                sample,
            };
            shares.add(look(delay), newest, |_, _| panic!("too few samples"));
        }
        shares.settle(|sample, share| given.push((sample, share.wall, share.samples)));
        assert_eq!((given.as_slice(), shares.waiting), (expected, left));
    }

    #[test]
    fn samples_that_wait_share_the_kernels_time() {
        // 33 of 40: the sampler has displaced the worker.
        let steps = [
            (5, true, 'a'),
            (5, true, 'a'),
            (5, true, 'a'),
            (38, false, 'b'),
            (38, true, 'c'),
        ];
        check(&steps, &[('a', 24, 3), ('c', 9, 1)], 0);
        // Waits that have not ended yet are not the kernel's yet, but they were seen.
        check(&steps[..3], &[('a', 0, 3)], 0);
    }

    #[test]
    fn waits_that_nobody_saw_are_where_they_ended() {
        let steps = [
            (5, false, 'a'),
            (9, false, 'b'),
            (9, false, 'c'),
            (29, false, 'd'),
        ];
        check(&steps, &[('b', 4, 0), ('d', 10, 0)], 10);
        let steps = [(5, true, 'a'), (21, false, 'b'), (21, false, 'c')];
        check(&steps, &[('a', 10, 1), ('b', 6, 0)], 0);
    }

    #[test]
    fn worker_that_never_waits_has_none() {
        check(&[(7, false, 'a'), (7, false, 'b')], &[], 0);
    }

    #[test]
    fn newborns_waits_are_its_own() {
        let (mut shares, mut given) = (WaitShares::from_birth(), Vec::new());
        let newest = WaitSample {
            wall: 10,
            is_queued: false,
            sample: 'a',
        };
        shares.add(look(8), newest, |_, _| panic!("too few samples"));
        shares.settle(|sample, share| given.push((sample, share.wall)));
        assert_eq!((given.as_slice(), shares.seen()), (&[('a', 8)][..], 8));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_beyond_wall(steps in proptest::collection::vec((0_u64..30, 0_u64..20, any::<bool>(), 0_u32..3), 1..500)) {
            let (mut shares, mut delay, mut given, mut walls) = (WaitShares::default(), 0, [0; 3], [0; 3]);
            for (wait, wall, is_queued, sample) in &steps {
                delay += wait;
                walls[*sample as usize] += wall;
                let newest = WaitSample { wall: *wall, is_queued: *is_queued, sample: *sample };
                shares.add(look(delay), newest, |sample, share| given[sample as usize] += share.wall);
                prop_assert!(shares.sharers.len() < SHARERS);
            }
            shares.settle(|sample, share| given[sample as usize] += share.wall);
            prop_assert_eq!(given.iter().sum::<u64>() + shares.waiting, delay - steps[0].0);
            for (given, wall) in given.iter().zip(&walls) {
                prop_assert!(given <= wall);
            }
        }
    }
}
