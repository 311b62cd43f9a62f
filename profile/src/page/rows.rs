//! The rows of a page's data: call paths, labels, and the values of samples, each once.
//!
//! Invariant: call paths take at most as much memory as the page may have bytes, and so do labels, however many the samples have.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::lookup::Lookup;
use crate::proto::{self, Profile, Sample};
use crate::source::SampleSource;
use crate::stacks::{Numbers, StackStep, View, ViewError, label_value};
use crate::waiting::{self, WaitingTimes};

use super::lines::LineTables;

/// The most that a call path takes in the tables, because they double when they grow. In the page, it takes about a third.
const NODE_BYTES: usize = 48;
/// The same for a label, without its text, which is the profile's.
const LABEL_BYTES: usize = 240;

/// The rows that samples refer to, each once.
#[derive(Default)]
pub(super) struct PageTables<'a> {
    /// Whether start lines are dropped. They move with every edit, and would make functions of two profiles differ.
    pub compared: bool,
    /// Whether labels are dropped.
    pub together: bool,
    pub numbers: Numbers<'a>,
    pub nodes: Vec<u32>,
    pub labels: Vec<PageLabel<'a>>,
    pub sets: Vec<Vec<usize>>,
    /// The time of each line. A comparison has none, because lines move with every edit.
    pub lines: LineTables<'a>,
    children: HashMap<(u32, u32), u32>,
    label_numbers: HashMap<PageLabel<'a>, usize>,
    set_numbers: HashMap<Vec<usize>, usize>,
    /// The most bytes of the page.
    room: usize,
}

/// Key and value.
type PageLabel<'a> = (&'a str, Cow<'a, str>);

impl<'a> PageTables<'a> {
    pub fn within(room: usize) -> Self {
        PageTables {
            lines: LineTables::within(room),
            room,
            ..PageTables::default()
        }
    }

    /// Node, set and values of each sample; equal samples are added up. `order` gives the index of each value if it differs.
    ///
    /// # Errors
    /// [`ViewError::PageTooLarge`] if there are too many call paths or labels.
    pub fn samples<S: SampleSource + ?Sized>(
        &mut self,
        source: &'a S,
        view: &View,
        order: &[usize],
    ) -> Result<Vec<i64>, ViewError> {
        let profile = source.head();
        let lookup = Lookup::new(profile);
        let width = if order.is_empty() {
            profile.sample_type.len()
        } else {
            order.len()
        };
        let waiting = if self.together {
            None
        } else {
            WaitingTimes::of(source)
        };
        let mut rows = PageRows {
            width,
            ..PageRows::default()
        };
        let place = |index: usize| order.get(index).copied().unwrap_or(index);
        let mut known = HashMap::new();
        source.each(&mut |sample| {
            if self.is_full() || !view.has_labels(profile, sample) {
                return;
            }
            let steps = self.numbers.steps(&lookup, sample, self.compared);
            let node = self.node(&steps);
            let labels = self.labels(profile, sample, &mut known);
            let value =
                |values: &[i64], index: usize| values.get(place(index)).copied().unwrap_or(0);
            let mut add = |tables: &mut Self, set: usize, values: Vec<i64>| {
                rows.add(node, set, values.iter().copied());
                if !tables.compared {
                    let functions = &tables.numbers.functions;
                    tables.lines.add(functions, &steps, set, &values);
                }
            };
            let all = (0..width).map(|index| value(&sample.value, index));
            let set = self.set(labels.clone());
            let Some((kind, waits)) = waiting.as_ref().and_then(|it| it.split(sample)) else {
                return add(self, set, all.collect());
            };
            let ran = all
                .zip(0..)
                .map(|(all, index)| all.saturating_sub(value(&waits, index)));
            add(self, set, ran.collect());
            let label = self.label((waiting::LABEL, kind.into()));
            let set = self.set([labels, vec![label]].concat());
            let waits = (0..width).map(|index| value(&waits, index));
            add(self, set, waits.collect());
        });
        if self.is_full() {
            Err(ViewError::PageTooLarge(self.room))
        } else {
            Ok(rows.values)
        }
    }

    fn is_full(&self) -> bool {
        self.nodes.len() / 2 > self.room / NODE_BYTES || self.labels.len() > self.room / LABEL_BYTES
    }

    fn node(&mut self, steps: &[StackStep]) -> u32 {
        let mut at = 0;
        for (function, _) in steps {
            let key = (at, number(*function));
            let next = number(self.nodes.len() / 2 + 1);
            let child = *self.children.entry(key).or_insert(next);
            if child == next {
                self.nodes.extend([key.0, key.1]);
            }
            at = child;
        }
        at
    }

    /// The numbers of a sample's labels. `known` has those of the profile's earlier samples, so that each text is hashed once.
    fn labels(
        &mut self,
        profile: &'a Profile,
        sample: &Sample,
        known: &mut HashMap<proto::Label, usize>,
    ) -> Vec<usize> {
        let kept = if self.together { 0 } else { usize::MAX };
        let labels = sample.label.iter().take(kept);
        let mut number = |label: &proto::Label| {
            *known.entry(*label).or_insert_with(|| {
                self.label((profile.string(label.key), label_value(profile, label)))
            })
        };
        labels.map(&mut number).collect()
    }

    fn label(&mut self, label: PageLabel<'a>) -> usize {
        let next = self.labels.len();
        let number = *self.label_numbers.entry(label.clone()).or_insert(next);
        if number == next {
            self.labels.push(label);
        }
        number
    }

    fn set(&mut self, mut set: Vec<usize>) -> usize {
        set.sort_unstable();
        let next = self.sets.len();
        let number = *self.set_numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
    }
}

/// Node, set and values of each row, in sequence.
#[derive(Default)]
struct PageRows {
    width: usize,
    values: Vec<i64>,
    known: HashMap<(u32, u32), usize>,
}

impl PageRows {
    fn add(&mut self, node: u32, set: usize, values: impl Iterator<Item = i64>) {
        let set = number(set);
        let next = self.values.len();
        let row = *self.known.entry((node, set)).or_insert(next);
        if row == next {
            self.values.extend([node, set].map(i64::from));
            self.values.resize(next + 2 + self.width, 0);
        }
        let sums = self.values.iter_mut().skip(row + 2);
        for (sum, value) in sums.zip(values) {
            *sum = sum.saturating_add(value);
        }
    }
}

/// Never saturates, because the memory is bounded.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{self, Builder, FrameRef, Settings};

    /// Stacks with two functions, and a label of its own for each.
    fn profile(stacks: i64) -> Profile {
        let mut builder = Builder::new(Settings::default());
        for stack in 0..stacks {
            let names = [format!("leaf{stack}"), format!("root{stack}")];
            let frames = names.each_ref().map(|name| FrameRef {
                name,
                ..FrameRef::default()
            });
            let labels = [builder::SampleTag::Num("pid", stack + 1, "")];
            builder.add(&frames, &[1, 1, 1], &labels);
        }
        builder.finish()
    }

    #[track_caller]
    fn check(stacks: i64, together: bool, room: usize, fits: bool) {
        let profile = profile(stacks);
        let mut tables = PageTables {
            together,
            ..PageTables::within(room)
        };
        let samples = tables.samples(&profile, &View::default(), &[]);
        assert_eq!(samples.is_ok(), fits);
        // The stack that exceeded it is the last.
        assert!(tables.nodes.len() / 2 <= room / NODE_BYTES + 2);
        assert!(tables.labels.len() <= room / LABEL_BYTES + 1);
    }

    #[test]
    fn call_paths_without_room_end_the_reading() {
        check(50, true, 100 * NODE_BYTES, true);
        check(500, true, 100 * NODE_BYTES, false);
    }

    #[test]
    fn labels_without_room_end_the_reading() {
        check(50, false, 50 * LABEL_BYTES, true);
        check(500, false, 50 * LABEL_BYTES, false);
    }

    #[test]
    fn each_label_is_looked_up_once() {
        let profile = profile(2);
        let (mut tables, mut known) = (PageTables::within(0), HashMap::new());
        for _ in 0..2 {
            let samples = profile.sample.iter();
            let numbers = samples.map(|sample| tables.labels(&profile, sample, &mut known));
            assert_eq!(numbers.collect::<Vec<_>>(), [[0], [1]]);
            // A label that is looked up again would get a new number.
            tables.label_numbers.clear();
        }
    }
}
