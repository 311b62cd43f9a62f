//! The rows of a merged profile: stacks that share common beginnings, sets of labels, and the sums of each pair.
//!
//! It knows no names and strings, only ids of [`crate::tables::Tables`].
//!
//! Invariant: a row is one pair of stack and labels, and rows are returned in the order of their arrival.

use std::collections::HashMap;

use crate::proto::{Label, Sample};

/// The most that one entry of each takes, because tables double when they grow.
const NODE_BYTES: usize = 64;
const ROW_BYTES: usize = 48;
/// What a label in its own set takes: it is stored twice, with the table's entries of its strings.
pub(crate) const LABEL_BYTES: usize = 320;

/// The most that a row with a stack of this depth and this many values takes, without its labels.
pub(crate) fn cost(depth: usize, values: usize) -> usize {
    ROW_BYTES + values * 2 * size_of::<i64>() + depth * NODE_BYTES
}

#[derive(Clone, Debug)]
pub(crate) struct SampleRows {
    width: usize,
    /// Parent and location. Node 0 is the parent of all roots.
    nodes: Vec<(u32, u32)>,
    children: HashMap<(u32, u32), u32>,
    sets: Vec<Vec<Label>>,
    set_numbers: HashMap<Vec<Label>, u32>,
    /// Node and set of each row.
    rows: Vec<(u32, u32)>,
    row_numbers: HashMap<(u32, u32), u32>,
    /// The values of row 0, then of row 1, and so on.
    values: Vec<i64>,
    /// The approximate memory.
    pub bytes: usize,
}

impl SampleRows {
    /// Empty rows with this many values each.
    pub fn new(width: usize) -> Self {
        SampleRows {
            width,
            nodes: vec![(0, 0)],
            children: HashMap::new(),
            sets: Vec::new(),
            set_numbers: HashMap::new(),
            rows: Vec::new(),
            row_numbers: HashMap::new(),
            values: Vec::new(),
            bytes: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds values to the row of this stack (leaf first) and these labels, which are in order.
    pub fn add(&mut self, stack: &[u64], labels: Vec<Label>, values: &[i64]) {
        let key = (self.node(stack), self.set(labels));
        let next = number(self.rows.len());
        let row = *self.row_numbers.entry(key).or_insert(next);
        if row == next {
            self.rows.push(key);
            self.values.resize(self.values.len() + self.width, 0);
            self.bytes += cost(0, self.width);
        }
        let sums = self.values.iter_mut().skip(row as usize * self.width);
        for (sum, value) in sums.take(self.width).zip(values) {
            *sum = sum.saturating_add(*value);
        }
    }

    fn node(&mut self, stack: &[u64]) -> u32 {
        let mut at = 0;
        for location in stack.iter().rev() {
            let key = (at, number(*location as usize));
            let next = number(self.nodes.len());
            at = *self.children.entry(key).or_insert(next);
            if at == next {
                self.nodes.push(key);
                self.bytes += NODE_BYTES;
            }
        }
        at
    }

    fn set(&mut self, labels: Vec<Label>) -> u32 {
        if let Some(known) = self.set_numbers.get(&labels) {
            return *known;
        }
        let next = number(self.sets.len());
        self.bytes += LABEL_BYTES + labels.len() * 2 * size_of::<Label>();
        self.sets.push(labels.clone());
        self.set_numbers.insert(labels, next);
        next
    }

    pub fn each(&self, mut visit: impl FnMut(&Sample)) {
        let mut sample = Sample::default();
        let values = self.values.chunks(self.width.max(1));
        for ((node, set), values) in self.rows.iter().zip(values) {
            sample.location_id.clear();
            let mut at = *node;
            while at != 0 {
                let (parent, location) = self.nodes.get(at as usize).copied().unwrap_or_default();
                sample.location_id.push(location.into());
                at = parent;
            }
            sample.value.clear();
            sample.value.extend_from_slice(values);
            sample.label.clear();
            let labels = self.sets.get(*set as usize);
            sample.label.extend(labels.into_iter().flatten());
            visit(&sample);
        }
    }
}

/// Never saturates, because the memory is bounded.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
