//! The parts of a run: what ran in each minute, by stack. So a minute of a long run has a flame
//! graph.
//!
//! A part is a minute. If a run has too many parts, two become one. Invariant: no busy or waiting
//! time is lost: a part names the stacks with the most time, and adds up the others. Memory:
//! [`MAX_PARTS`] parts of [`MAX_STACKS`] stacks, and one part with up to [`MAX_OPEN`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::bounded::{MAX_TIME, bounded};

/// The most parts of a run.
pub const MAX_PARTS: usize = 30;
/// The most stacks that a part names.
pub const MAX_STACKS: usize = 512;
/// The most stacks of a part while it is not known which will have the most time.
const MAX_OPEN: usize = 8 * MAX_STACKS;
/// The shortest part. Longer ones are this one doubled several times.
pub const FIRST_PART: i64 = 60_000_000_000;

/// What ran in a part of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelinePart {
    /// Nanoseconds since the run began.
    pub begin: i64,
    /// Nanoseconds since the run began.
    pub end: i64,
    /// The stacks with the most time, each once, in the order of their numbers.
    #[serde(deserialize_with = "bounded::<_, _, MAX_STACKS>")]
    pub stacks: Vec<PartStack>,
    /// Nanoseconds of wall time of all other stacks.
    pub other: i64,
}

/// The time of a stack. As JSON: `[node, busy, waiting]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, i64, i64)", into = "(u32, i64, i64)")]
pub struct PartStack {
    /// The stack's leaf in [`super::Timeline::nodes`].
    pub node: u32,
    /// Nanoseconds of wall time in samples that ran.
    pub busy: i64,
    /// Nanoseconds of wall time in samples that slept.
    pub waiting: i64,
}

/// The parts of a run while they grow. A key `K` identifies a stack.
#[derive(Debug)]
pub struct Parts<K> {
    /// The beginning of part 0, and the length of each part.
    origin: i64,
    length: i64,
    /// By number. Negative numbers are before the origin.
    open: BTreeMap<i64, OpenPart<K>>,
}

/// A part while it grows.
#[derive(Debug)]
pub struct OpenPart<K> {
    /// By the clock of the origin.
    pub begin: i64,
    /// By the clock of the origin.
    pub end: i64,
    /// Busy and waiting time.
    pub stacks: HashMap<K, [i64; 2]>,
    /// Nanoseconds of stacks without room.
    pub other: i64,
}

impl<K: Copy + Eq + Hash + Ord> Parts<K> {
    /// Starts without parts.
    #[must_use]
    pub fn new(origin: i64) -> Self {
        Self {
            origin,
            length: FIRST_PART,
            open: BTreeMap::new(),
        }
    }

    /// Adds the time of a stack at this time.
    pub fn add(&mut self, at: i64, key: K, [busy, waiting]: [i64; 2]) {
        let (number, length) = (self.number(at), self.length);
        let begin = self.origin.saturating_add(number.saturating_mul(length));
        let end = begin.saturating_add(length);
        self.part(number, begin, end)
            .add(Some(key), [busy, waiting]);
    }

    /// Adds a part of another run. `key` translates its stacks, if there is room for them.
    pub fn add_part(
        &mut self,
        part: &TimelinePart,
        began: i64,
        mut key: impl FnMut(u32) -> Option<K>,
    ) {
        let [begin, end] = [part.begin, part.end].map(|time| time.saturating_add(began));
        let length = end.saturating_sub(begin);
        // The last part of a run may be shorter.
        while self.length.saturating_mul(3) / 2 < length {
            self.double();
        }
        let number = self.number(begin.saturating_add(self.length.min(length) / 2));
        let own = self.part(number, begin, end);
        for stack in &part.stacks {
            own.add(key(stack.node), [stack.busy, stack.waiting]);
        }
        own.other = own.other.saturating_add(part.other);
    }

    /// The number of the part at this time. Doubles the parts until there is room for it.
    fn number(&mut self, at: i64) -> i64 {
        loop {
            let number = at.saturating_sub(self.origin).div_euclid(self.length);
            let first = self.open.keys().next().map_or(number, |it| number.min(*it));
            let last = self.open.keys().next_back();
            let last = last.map_or(number, |it| number.max(*it));
            if last.saturating_sub(first) < MAX_PARTS as i64 {
                return number;
            }
            self.double();
        }
    }

    /// This part, extended to at least this range. All other parts are cut to their final number of
    /// stacks.
    fn part(&mut self, number: i64, begin: i64, end: i64) -> &mut OpenPart<K> {
        if !self.open.contains_key(&number) {
            self.open.values_mut().for_each(|it| it.keep(MAX_STACKS));
        }
        let part = self.open.entry(number).or_insert_with(|| OpenPart {
            begin,
            end,
            stacks: HashMap::new(),
            other: 0,
        });
        (part.begin, part.end) = (part.begin.min(begin), part.end.max(end));
        part
    }

    /// Makes one part of two.
    fn double(&mut self) {
        self.length = self.length.saturating_mul(2);
        for (number, part) in std::mem::take(&mut self.open) {
            let own = self.part(number.div_euclid(2), part.begin, part.end);
            for (key, times) in part.stacks {
                own.add(Some(key), times);
            }
            own.other = own.other.saturating_add(part.other);
        }
    }

    /// Translates all stacks. A stack without a translation is added to the others.
    #[must_use]
    pub fn renamed<L: Copy + Eq + Hash + Ord>(
        self,
        mut key: impl FnMut(K) -> Option<L>,
    ) -> Parts<L> {
        let mut renamed = |part: OpenPart<K>| {
            let mut own = OpenPart {
                begin: part.begin,
                end: part.end,
                stacks: HashMap::new(),
                other: part.other,
            };
            // In the order of their keys, so that the same stacks get room each time.
            let mut stacks: Vec<_> = part.stacks.into_iter().collect();
            stacks.sort_unstable_by_key(|(key, _)| *key);
            for (old, times) in stacks {
                own.add(key(old), times);
            }
            own
        };
        let open = self.open.into_iter();
        Parts {
            origin: self.origin,
            length: self.length,
            open: open.map(|(number, part)| (number, renamed(part))).collect(),
        }
    }
}

impl Parts<u32> {
    /// The parts of a run with this beginning and duration. Empty if the run is not longer than one
    /// part.
    #[must_use]
    pub fn finish(self, began: i64, duration: i64) -> Vec<TimelinePart> {
        if self.open.len() < 2 {
            return Vec::new();
        }
        let since = |time: i64| time.saturating_sub(began).clamp(0, duration);
        let finished = |mut part: OpenPart<u32>| {
            part.keep(MAX_STACKS);
            let stacks = part.stacks.into_iter();
            let mut stacks: Vec<_> = stacks
                .map(|(node, [busy, waiting])| PartStack {
                    node,
                    busy: busy.min(MAX_TIME),
                    waiting: waiting.min(MAX_TIME),
                })
                .collect();
            stacks.sort_unstable_by_key(|stack| stack.node);
            TimelinePart {
                begin: since(part.begin),
                end: since(part.end),
                stacks,
                other: part.other.min(MAX_TIME),
            }
        };
        let mut parts: Vec<_> = self.open.into_values().map(finished).collect();
        parts.sort_by_key(|part| (part.begin, part.end));
        parts
    }
}

impl<K: Copy + Eq + Hash + Ord> OpenPart<K> {
    fn add(&mut self, key: Option<K>, [busy, waiting]: [i64; 2]) {
        let Some(key) = key else {
            self.other = self.other.saturating_add(busy).saturating_add(waiting);
            return;
        };
        if self.stacks.len() >= MAX_OPEN && !self.stacks.contains_key(&key) {
            self.keep(MAX_STACKS);
        }
        let own = self.stacks.entry(key).or_default();
        own[0] = own[0].saturating_add(busy);
        own[1] = own[1].saturating_add(waiting);
    }

    /// Keeps at most this many stacks: those with the most time.
    fn keep(&mut self, most: usize) {
        if self.stacks.len() <= most {
            return;
        }
        let mut all: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        all.sort_unstable_by_key(|(key, [busy, waiting])| {
            (Reverse(busy.saturating_add(*waiting)), *key)
        });
        for (_, [busy, waiting]) in all.drain(most..) {
            self.other = self.other.saturating_add(busy).saturating_add(waiting);
        }
        self.stacks = all.into_iter().collect();
    }
}

impl TimelinePart {
    /// Keeps at most this many stacks: those with the most time.
    pub(super) fn keep(&mut self, most: usize) {
        self.stacks
            .sort_by_key(|stack| Reverse(stack.busy.saturating_add(stack.waiting)));
        for stack in self.stacks.drain(most.min(self.stacks.len())..) {
            let time = stack.busy.saturating_add(stack.waiting);
            self.other = self.other.saturating_add(time);
        }
        self.stacks.sort_by_key(|stack| stack.node);
    }
}

impl From<(u32, i64, i64)> for PartStack {
    fn from((node, busy, waiting): (u32, i64, i64)) -> Self {
        Self {
            node,
            busy,
            waiting,
        }
    }
}

impl From<PartStack> for (u32, i64, i64) {
    fn from(stack: PartStack) -> Self {
        (stack.node, stack.busy, stack.waiting)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = FIRST_PART;

    fn times(parts: &[TimelinePart]) -> Vec<(i64, i64)> {
        let times = parts.iter();
        times
            .map(|it| (it.begin / MINUTE, it.end / MINUTE))
            .collect()
    }

    #[test]
    fn each_minute_has_its_stacks() {
        let mut parts = Parts::new(0);
        for (second, stack) in [(1, 7), (59, 7), (61, 8), (119, 7), (125, 9)] {
            parts.add(second * 1_000_000_000, stack, [5, 2]);
        }
        let parts = parts.finish(0, 130_000_000_000);
        let stacks: Vec<Vec<_>> = parts
            .iter()
            .map(|part| part.stacks.iter().map(|it| (it.node, it.busy)).collect())
            .collect();
        let expected = [vec![(7, 10)], vec![(7, 5), (8, 5)], vec![(9, 5)]];
        assert_eq!(stacks, expected);
        assert_eq!(parts[2].end, 130_000_000_000);
    }

    #[test]
    fn a_run_of_a_minute_has_no_parts() {
        let mut parts = Parts::new(0);
        parts.add(MINUTE - 1, 7, [5, 2]);
        assert_eq!(parts.finish(0, MINUTE), []);
    }

    #[test]
    fn what_takes_little_is_summed() {
        let mut parts = Parts::new(0);
        for stack in 0..2000 {
            parts.add(1, stack, [i64::from(stack), 0]);
        }
        parts.add(MINUTE, 0, [1, 1]);
        let parts = parts.finish(0, 2 * MINUTE);
        assert_eq!(parts[0].stacks.len(), MAX_STACKS);
        assert_eq!(parts[0].stacks[0].node, 2000 - MAX_STACKS as u32);
        let named: i64 = parts[0].stacks.iter().map(|it| it.busy).sum();
        assert_eq!(named + parts[0].other, (0..2000).sum::<i64>());
    }

    #[test]
    fn ninety_minutes_have_parts_of_four_minutes() {
        let mut parts = Parts::new(0);
        for minute in 0..90 {
            parts.add(minute * MINUTE, 1, [1, 0]);
        }
        let parts = parts.finish(0, 90 * MINUTE);
        let expected: Vec<_> = (0..23)
            .map(|number| (number * 4, (number * 4 + 4).min(90)))
            .collect();
        assert_eq!(times(&parts), expected);
    }

    #[test]
    fn pods_with_close_starts_share_their_parts() {
        let own = |begin: i64, end: i64| TimelinePart {
            begin,
            end,
            stacks: vec![PartStack {
                node: 1,
                busy: 3,
                waiting: 4,
            }],
            other: 1,
        };
        let mut parts = Parts::new(100);
        for began in [100, 100 + MINUTE / 3, 100 - MINUTE / 3] {
            parts.add_part(&own(0, MINUTE), began, |node| Some(node + 1));
            parts.add_part(&own(MINUTE, 2 * MINUTE - 9), began, |_| None);
        }
        let began = 100 - MINUTE / 3;
        let parts = parts.finish(began, 3 * MINUTE);
        let [first, second] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((first.begin, first.end), (0, MINUTE + 2 * (MINUTE / 3)));
        assert_eq!(first.stacks[0], PartStack::from((2, 9, 12)));
        assert_eq!((second.stacks.len(), second.other), (0, 24));
    }

    proptest! {
        #[test]
        fn bounded_parts_and_stacks_lose_no_time(
            samples in prop::collection::vec((-300_000_000_000_i64..40_000_000_000_000, 0_u32..5000, 0_i64..100, 0_i64..100), 1..3000)
        ) {
            let (mut parts, mut sum) = (Parts::new(0), 0);
            for (at, stack, busy, waiting) in samples {
                parts.add(at, stack, [busy, waiting]);
                sum += busy + waiting;
            }
            let lone = parts.open.len() < 2;
            let parts = parts.renamed(|stack| (stack % 7 != 0).then_some(stack / 2));
            let parts = parts.finish(-300_000_000_000, 41_000_000_000_000);
            prop_assert!(parts.len() <= MAX_PARTS);
            prop_assert!(parts.iter().all(|it| it.stacks.len() <= MAX_STACKS && it.begin < it.end));
            let named = parts.iter().flat_map(|it| &it.stacks).map(|it| it.busy + it.waiting).sum::<i64>();
            let others = parts.iter().map(|it| it.other).sum::<i64>();
            prop_assert_eq!(named + others, if lone { 0 } else { sum });
        }
    }
}
