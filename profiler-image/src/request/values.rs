//! The values of labels in a run: each has a small number, and so has each set of values.
//!
//! Invariant: memory is bounded, whatever requests contain: beyond 1,000 values a label has
//! `(other)`, and beyond a number of sets each label of a set has. The number of affected requests
//! is counted.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use phpprof_profile::labels::SPAN_ID;

use super::asked::SampleLabel;

/// The largest number of distinct values of a label in a run.
pub const MAX_VALUES: usize = 1000;
/// The largest number of distinct sets of values.
const MAX_SETS: usize = 1 << 14;
/// The value for those without room.
pub const OTHER: &str = "(other)";
const NO_VALUE: u16 = 0;
/// The number of that value.
pub const OTHER_VALUE: u16 = u16::MAX;

/// The values of a sample's labels, by label; 0 means none.
pub type Set = [u16; SampleLabel::COUNT];

/// The number of a set; the default has no value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId(u16);

/// Values and sets by their numbers, as a profile needs them.
#[derive(Debug, Clone, Default)]
pub struct ValueTable {
    values: [Vec<Arc<str>>; SampleLabel::COUNT],
    sets: Vec<Set>,
    /// Requests with a value without room, by label.
    pub other: [u64; SampleLabel::COUNT],
}

/// Values and sets, which can be looked up.
#[derive(Debug, Default)]
pub struct RequestValues {
    /// The values by their numbers.
    pub table: ValueTable,
    numbers: [FxHashMap<Arc<str>, u16>; SampleLabel::COUNT],
    ids: FxHashMap<Set, SetId>,
}

impl ValueTable {
    /// The labels of a set, each a key and a value: a trace has one for its span, too.
    pub fn labels(&self, id: SetId) -> impl Iterator<Item = (&'static str, &str)> {
        let set = usize::from(id.0).checked_sub(1);
        let set = set.and_then(|index| self.sets.get(index)).copied();
        let labels = SampleLabel::ALL.into_iter().zip(set.unwrap_or_default());
        labels.flat_map(|(label, number)| {
            let whole = Some(self.value(label, number)).filter(|value| !value.is_empty());
            let trace = whole.filter(|_| label == SampleLabel::TraceId);
            let (value, span) = match trace.and_then(|ids| ids.split_once('-')) {
                Some((trace, span)) => (Some(trace), Some(span)),
                None => (whole, None),
            };
            let value = value.map(|value| (label.key(), value));
            value.into_iter().chain(span.map(|span| (SPAN_ID, span)))
        })
    }

    /// A value by its number; empty if it has none.
    #[must_use]
    pub fn value(&self, label: SampleLabel, number: u16) -> &str {
        let list = &self.values[label as usize];
        match number {
            NO_VALUE => "",
            OTHER_VALUE => OTHER,
            number => list.get(usize::from(number) - 1).map_or("", |value| value),
        }
    }
}

impl RequestValues {
    /// The number of a request's value.
    pub fn number(&mut self, label: SampleLabel, value: &str) -> u16 {
        let numbers = &mut self.numbers[label as usize];
        if let Some(&number) = numbers.get(value) {
            return number;
        }
        let list = &mut self.table.values[label as usize];
        if list.len() >= MAX_VALUES {
            self.table.other[label as usize] += 1;
            return OTHER_VALUE;
        }
        let value: Arc<str> = value.into();
        list.push(Arc::clone(&value));
        let number = u16::try_from(list.len()).unwrap_or(OTHER_VALUE);
        numbers.insert(value, number);
        number
    }

    /// The number of a set.
    pub fn set(&mut self, set: Set) -> SetId {
        if set == Set::default() {
            return SetId::default();
        }
        if let Some(&id) = self.ids.get(&set) {
            return id;
        }
        // One place is reserved for the set of those without room.
        let other = set.map(|value| {
            if value == NO_VALUE {
                NO_VALUE
            } else {
                OTHER_VALUE
            }
        });
        if self.table.sets.len() >= MAX_SETS - (1 << SampleLabel::COUNT) && set != other {
            return self.set(other);
        }
        self.table.sets.push(set);
        let id = SetId(u16::try_from(self.table.sets.len()).unwrap_or_default());
        self.ids.insert(set, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_1001_is_other_and_counted() {
        let mut values = RequestValues::default();
        for index in 0..10_000 {
            values.number(SampleLabel::Route, &format!("/{index}"));
        }
        assert_eq!(values.table.other[SampleLabel::Route as usize], 9_000);
        let number = values.number(SampleLabel::Route, "/new");
        let set = values.set([0, number, 0, 0, 0]);
        let labels: Vec<_> = values.table.labels(set).collect();
        assert_eq!(labels, [("route", OTHER)]);
        let number = values.number(SampleLabel::Route, "/999");
        let set = values.set([0, number, 0, 0, 0]);
        assert_eq!(
            values.table.labels(set).collect::<Vec<_>>(),
            [("route", "/999")]
        );
        assert_eq!(values.table.labels(SetId::default()).count(), 0);
    }

    #[test]
    fn trace_has_its_spans_label_unless_other() {
        let mut values = RequestValues::default();
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let number = values.number(SampleLabel::TraceId, &format!("{trace}-{span}"));
        let set = values.set([0, 0, 0, 0, number]);
        let labels: Vec<_> = values.table.labels(set).collect();
        assert_eq!(labels, [("trace_id", trace), ("span_id", span)]);
        let route = values.number(SampleLabel::Route, "/a-b");
        let set = values.set([0, route, 0, 0, OTHER_VALUE]);
        let labels: Vec<_> = values.table.labels(set).collect();
        assert_eq!(labels, [("route", "/a-b"), ("trace_id", OTHER)]);
    }

    #[test]
    fn sets_that_find_no_room_have_other_values() {
        let mut values = RequestValues::default();
        let mut last = SetId::default();
        for route in 1..=200 {
            for trace in 1..=200 {
                last = values.set([1, route, 0, 0, trace]);
            }
        }
        assert!(values.table.sets.len() <= MAX_SETS);
        let labels: Vec<_> = values.table.labels(last).collect();
        assert_eq!(
            labels,
            [("method", OTHER), ("route", OTHER), ("trace_id", OTHER)]
        );
    }
}
