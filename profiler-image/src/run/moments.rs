//! What one request did, in order: a moment lasts as long as consecutive samples show the same
//! stack.
//!
//! Invariant: moments follow each other, their times are those of the samples, and their number is
//! bounded. If there would be more, neighbours become one, by a resolution that doubles until a
//! quarter of the room is free: the result has the stack of the longer one, and the time of both.

use crate::stack::trace::SummedStack;

/// The first resolution, in nanoseconds.
const FIRST_RESOLUTION: u64 = 1_000_000;

/// A stack, when it was first seen, and for how long; in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedStack {
    /// When it was first seen.
    pub from: u64,
    /// The time of samples in which the worker ran.
    pub busy: u64,
    /// The time of samples in which it slept.
    pub waiting: u64,
    /// The stack.
    pub stack: SummedStack,
}

impl TimedStack {
    /// When it was last seen.
    #[must_use]
    pub fn to(&self) -> u64 {
        self.from + self.busy + self.waiting
    }

    /// Whether the next one continues it: the same stack, still running or still asleep.
    fn goes_on_with(&self, next: &Self) -> bool {
        let is_alike = |one: u64, other: u64| (one == 0) == (other == 0);
        self.stack == next.stack
            && self.to() == next.from
            && is_alike(self.busy, next.busy)
            && is_alike(self.waiting, next.waiting)
    }

    fn join(&mut self, next: &Self) {
        if next.busy + next.waiting > self.busy + self.waiting {
            self.stack = next.stack;
        }
        self.busy += next.busy;
        self.waiting += next.waiting;
    }
}

/// The moments of a request.
#[derive(Debug, Default)]
pub struct Moments {
    list: Vec<TimedStack>,
    resolution: u64,
}

impl Moments {
    /// Adds a sample's stack after all others. Then there are at most this many moments, but at
    /// least one.
    pub fn add(&mut self, moment: TimedStack, most: usize) {
        if let Some(last) = self
            .list
            .last_mut()
            .filter(|last| last.goes_on_with(&moment))
        {
            last.join(&moment);
            return;
        }
        while self.list.len() >= most.max(2) {
            self.coarsen(most.max(2));
        }
        self.list.push(moment);
    }

    /// Merges neighbours that the resolution does not separate, and makes the resolution so coarse
    /// that a quarter of the room is free.
    fn coarsen(&mut self, most: usize) {
        loop {
            let resolution = self.resolution.max(FIRST_RESOLUTION);
            self.list.dedup_by(|next, kept| {
                let is_near = next.to() - kept.from <= resolution;
                if is_near {
                    kept.join(next);
                }
                is_near
            });
            if self.list.len() <= most * 3 / 4 {
                return;
            }
            self.resolution = resolution.saturating_mul(2);
        }
    }

    /// The moments in order.
    #[must_use]
    pub fn list(&self) -> &[TimedStack] {
        &self.list
    }

    /// Ends the list.
    #[must_use]
    pub fn finish(mut self) -> Vec<TimedStack> {
        self.list.shrink_to_fit();
        self.list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stack::names::FunctionNames;

    const STACKS: [SummedStack; 3] = [
        SummedStack::of_phase(FunctionNames::COMPILING),
        SummedStack::of_phase(FunctionNames::LOADING),
        SummedStack::of_phase(FunctionNames::COLLECTING),
    ];

    fn moment(from: u64, busy: u64, waiting: u64, stack: usize) -> TimedStack {
        TimedStack {
            from,
            busy,
            waiting,
            stack: STACKS[stack],
        }
    }

    #[test]
    fn moment_lasts_until_change_or_sleep() {
        let mut moments = Moments::default();
        let samples = [(0, 9, 0, 0), (9, 9, 0, 0), (18, 0, 9, 0), (27, 9, 0, 1)];
        for (from, busy, waiting, stack) in samples {
            moments.add(moment(from, busy, waiting, stack), 500);
        }
        // What was between them is unknown.
        moments.add(moment(40, 9, 0, 1), 500);
        let expected = [(0, 18, 0, 0), (18, 0, 9, 0), (27, 9, 0, 1), (40, 9, 0, 1)];
        let expected =
            expected.map(|(from, busy, waiting, stack)| moment(from, busy, waiting, stack));
        assert_eq!(moments.list(), expected);
    }

    #[test]
    fn long_moments_are_kept_with_little_room() {
        let mut moments = Moments::default();
        let mut at = 0;
        // A second of one stack between many short ones.
        for index in 0..3000_usize {
            let (length, stack) = if index == 1500 {
                (1_000_000_000, 2)
            } else {
                (1_000_000, index % 2)
            };
            moments.add(moment(at, length, 0, stack), 100);
            at += length;
        }
        let of_it = moments.list().iter().filter(|it| it.stack == STACKS[2]);
        let of_it: Vec<_> = of_it.collect();
        assert_eq!(of_it.len(), 1);
        assert!((1_000_000_000..1_070_000_000).contains(&of_it[0].busy));
        assert!(of_it[0].from.abs_diff(1_500_000_000) < 70_000_000);
    }

    proptest! {
        #[test]
        fn moments_lose_no_time_or_order(
            samples in prop::collection::vec((0_u64..3, 1_u64..50_000_000, any::<bool>(), 0_usize..3), 1..400),
            most in 2_usize..40,
        ) {
            let (mut moments, mut at, mut busy, mut waiting) = (Moments::default(), 0, 0, 0);
            for (gap, length, ran, stack) in samples {
                at += gap;
                let (ran, slept) = if ran { (length, 0) } else { (0, length) };
                moments.add(moment(at, ran, slept, stack), most);
                (busy, waiting) = (busy + ran, waiting + slept);
                at += length;
                prop_assert!(moments.list().len() <= most);
            }
            let list = moments.finish();
            prop_assert!(list.is_sorted_by(|one, next| one.to() <= next.from));
            prop_assert_eq!(list.iter().map(|it| it.busy).sum::<u64>(), busy);
            prop_assert_eq!(list.iter().map(|it| it.waiting).sum::<u64>(), waiting);
        }
    }
}
