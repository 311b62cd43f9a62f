//! The rows of one kind while they grow: the time of each row in each step.
//!
//! Invariant: no time is lost, and a row is complete or absent. A row without room moves to `(other)`, and so does its later time. Memory:
//! at most [`MAX_CELLS`] cells of 32 bytes and some hundred more, for any number of rows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_ROWS, MAX_STEPS, TimelineCell};

/// The most cells of all rows except `(other)`: as many as the written rows have, and a quarter more.
const MAX_CELLS: usize = MAX_ROWS * MAX_STEPS * 5 / 4;
/// The most rows while it is not known which will have the most time.
const MAX_KEPT: usize = 4 * MAX_ROWS;

/// A cell at any step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// The number of the step, counted from any beginning.
    pub at: i64,
    /// As in [`TimelineCell`]. The same applies to the next two.
    pub busy: i64,
    /// Nanoseconds of wall time in samples that slept.
    pub waiting: i64,
    /// Bytes of the largest heap; 0 if heaps were not sampled.
    pub heap: u64,
}

impl Slot {
    fn add(&mut self, other: Self) {
        self.busy = self.busy.saturating_add(other.busy);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.heap = self.heap.max(other.heap);
    }

    /// The cell at its step, counted from `first`; `None` if there is no such step.
    #[must_use]
    pub fn cell(self, first: i64) -> Option<TimelineCell> {
        let step = u32::try_from(self.at.checked_sub(first)?).ok()?;
        Some(TimelineCell {
            step,
            busy: self.busy,
            waiting: self.waiting,
            heap: self.heap,
        })
    }
}

/// In the order of the steps.
type Slots = Vec<Slot>;

/// Rows by key.
#[derive(Debug)]
pub struct TimelineRows<K> {
    rows: BTreeMap<K, Slots>,
    /// Keys that are in `(other)` for good.
    folded: BTreeSet<K>,
    other: Slots,
    cells: usize,
}

impl<K> Default for TimelineRows<K> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            folded: BTreeSet::new(),
            other: Vec::new(),
            cells: 0,
        }
    }
}

impl<K: Ord + Clone> TimelineRows<K> {
    /// Adds to a row; `None` means `(other)`.
    pub fn add(&mut self, key: Option<&K>, slot: Slot) {
        let Some(key) = key.filter(|key| !self.folded.contains(key)) else {
            add_to(&mut self.other, slot);
            return;
        };
        let row = match self.rows.get_mut(key) {
            Some(row) => row,
            None => self.rows.entry(key.clone()).or_default(),
        };
        self.cells += usize::from(add_to(row, slot));
        while self.cells > MAX_CELLS || self.rows.len() > MAX_KEPT {
            self.fold();
        }
    }

    /// Moves the row with the least time to `(other)`.
    fn fold(&mut self) {
        let rank = |(key, row): &(&K, &Slots)| (total(row), Reverse((*key).clone()));
        let least = self.rows.iter().min_by_key(rank);
        let Some(key) = least.map(|(key, _)| key.clone()) else {
            return;
        };
        let slots = self.rows.remove(&key).unwrap_or_default();
        self.cells -= slots.len();
        slots.into_iter().for_each(|slot| {
            add_to(&mut self.other, slot);
        });
        self.folded.insert(key);
    }

    /// Makes one step of two.
    pub fn double(&mut self) {
        for row in self.rows.values_mut().chain([&mut self.other]) {
            let mut doubled: Slots = Vec::new();
            for slot in row.drain(..) {
                let at = slot.at.div_euclid(2);
                add_to(&mut doubled, Slot { at, ..slot });
            }
            *row = doubled;
        }
        self.cells = self.rows.values().map(Vec::len).sum();
    }

    /// The rows with the most time, in the order of their keys, and `(other)` if it has any: at most [`MAX_ROWS`] together.
    #[must_use]
    pub fn finish(mut self) -> (Vec<(K, Vec<Slot>)>, Vec<Slot>) {
        while self.rows.len() + usize::from(!self.other.is_empty()) > MAX_ROWS {
            self.fold();
        }
        (self.rows.into_iter().collect(), self.other)
    }
}

/// Adds to the row's step. Returns whether the step is new.
fn add_to(row: &mut Slots, slot: Slot) -> bool {
    // Time only increases, so the step is the last one or comes after it.
    let index = match row.last() {
        Some(last) if last.at < slot.at => row.len(),
        Some(last) if last.at == slot.at => row.len() - 1,
        _ => row.partition_point(|other| other.at < slot.at),
    };
    match row.get_mut(index).filter(|there| there.at == slot.at) {
        Some(there) => {
            there.add(slot);
            false
        }
        None => {
            row.insert(index, slot);
            true
        }
    }
}

/// The total time of a row.
#[must_use]
pub fn total(row: &[Slot]) -> i64 {
    let times = row
        .iter()
        .map(|slot| slot.busy.saturating_add(slot.waiting));
    times.fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(at: i64, busy: i64) -> Slot {
        Slot {
            at,
            busy,
            ..Slot::default()
        }
    }

    #[test]
    fn a_row_without_room_is_wholly_in_other() {
        let mut rows = TimelineRows::default();
        for row in 0..=MAX_KEPT {
            rows.add(Some(&row), busy(0, if row == 7 { 1 } else { 10 }));
        }
        // Row 7 had the least time, and is not started again.
        rows.add(Some(&7), busy(1, 1000));
        let (kept, other) = rows.finish();
        assert_eq!(kept.len(), MAX_ROWS - 1);
        assert!(kept.iter().all(|(row, _)| *row != 7));
        let kept: i64 = kept.iter().map(|(_, row)| total(row)).sum();
        assert_eq!(kept + total(&other), 10 * MAX_KEPT as i64 + 1001);
    }

    #[test]
    fn cells_are_bounded_whatever_the_steps_are() {
        let mut rows = TimelineRows::default();
        for step in 0..MAX_STEPS as i64 {
            for row in 0..200 {
                rows.add(Some(&row), busy(step, 1));
                assert!(rows.cells <= MAX_CELLS);
            }
        }
        let (kept, other) = rows.finish();
        let all: i64 = kept.iter().map(|(_, row)| total(row)).sum();
        assert_eq!(all + total(&other), 200 * MAX_STEPS as i64);
    }

    #[test]
    fn two_steps_become_one_without_a_loss() {
        let mut rows = TimelineRows::default();
        for at in [-3, -2, -1, 0, 1, 3] {
            let heap = u64::try_from(at + 5).unwrap();
            rows.add(
                Some(&'a'),
                Slot {
                    heap,
                    ..busy(at, 1)
                },
            );
        }
        rows.double();
        let (kept, _) = rows.finish();
        let found: Vec<_> = kept[0]
            .1
            .iter()
            .map(|it| (it.at, it.busy, it.heap))
            .collect();
        assert_eq!(found, [(-2, 1, 2), (-1, 2, 4), (0, 2, 6), (1, 1, 8)]);
    }
}
