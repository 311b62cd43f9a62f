//! Which samples a worker's CPU time belongs to: pure.
//!
//! A worker's clock moves at the kernel's ticks and when the worker leaves its CPU. Its advance belongs to the samples since
//! it last moved in which the worker ran: one that sleeps gets none. The newest sample waits for the next advance, since the
//! clock is older than it by up to a tick. An advance that meets no sample waits for the next one.
//! Invariant: what was given and what still waits is the whole advance.

/// Samples that may wait for the clock to move.
const MAX_WAITING: usize = 4096;

/// The clock of one worker, and the samples that wait for it to move.
#[derive(Debug)]
pub struct CpuShares<T> {
    last: Option<u64>,
    /// Nanoseconds that have met no sample yet.
    carried: u64,
    /// Samples in which the worker ran.
    waiting: Vec<T>,
}

impl<T> Default for CpuShares<T> {
    fn default() -> Self {
        Self {
            last: None,
            carried: 0,
            waiting: Vec::new(),
        }
    }
}

impl<T: Copy> CpuShares<T> {
    /// Takes what the clock says, in nanoseconds, and the sample that was taken then, if the worker ran; gives each sample what
    /// belongs to it.
    pub fn add(&mut self, clock: u64, ran: Option<T>, mut give: impl FnMut(T, u64)) {
        let last = self.last.replace(clock).unwrap_or(clock);
        self.carried += clock.saturating_sub(last);
        if self.carried > 0 && (!self.waiting.is_empty() || ran.is_some()) {
            if self.waiting.is_empty() {
                self.waiting.extend(ran);
            }
            let count = self.waiting.len() as u64;
            let (each, rest) = (self.carried / count, self.carried % count);
            for (index, sample) in (0_u64..).zip(self.waiting.drain(..)) {
                give(sample, each + u64::from(index < rest));
            }
            self.carried = 0;
        }
        if let Some(sample) = ran
            && self.waiting.len() < MAX_WAITING
        {
            self.waiting.push(sample);
        }
    }

    /// Nanoseconds that no sample could be given.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each sample gets, of pairs of what the clock says and which sample ran.
    #[track_caller]
    fn check(steps: &[(u64, Option<char>)], expected: &[(char, u64)], carried: u64) {
        let (mut shares, mut given) = (CpuShares::default(), Vec::new());
        for &(clock, ran) in steps {
            shares.add(clock, ran, |sample, nanoseconds| {
                given.push((sample, nanoseconds))
            });
        }
        assert_eq!((given.as_slice(), shares.carried()), (expected, carried));
    }

    #[test]
    fn an_advance_is_shared_by_the_samples_that_ran_since_the_clock_moved() {
        check(
            &[(0, Some('a')), (0, Some('b')), (9, Some('c'))],
            &[('a', 5), ('b', 4)],
            0,
        );
    }

    #[test]
    fn a_sample_that_sleeps_gets_none() {
        check(&[(0, Some('a')), (8, None), (8, None)], &[('a', 8)], 0);
    }

    #[test]
    fn an_advance_that_met_no_sample_waits_for_the_next_one() {
        check(&[(0, None), (5, None), (7, Some('a'))], &[('a', 7)], 0);
        check(&[(0, None), (5, None)], &[], 5);
    }

    #[test]
    fn what_ran_before_the_first_look_belongs_to_nobody() {
        check(&[(1000, Some('a'))], &[], 0);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(steps in proptest::collection::vec((0_u64..100, proptest::option::of(0_u32..9)), 1..50)) {
            let (mut shares, mut clock, mut given) = (CpuShares::default(), 0, 0);
            for (advance, ran) in &steps {
                clock += advance;
                shares.add(clock, *ran, |_, nanoseconds| given += nanoseconds);
            }
            prop_assert_eq!(given + shares.carried(), clock - steps[0].0);
        }
    }
}
