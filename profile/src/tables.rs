//! The deduplicating tables for building a profile: strings, mappings, functions, locations,
//! samples.
//!
//! It does not know the origin of its rows: [`crate::Builder`] adds frames, [`crate::Merger`] adds
//! profiles.
//!
//! Invariant: ids are dense, start at 1 (strings at 0, which is the empty one) and are unique.
//! Equal rows share one id. A sample is one row per stack and labels, in the order of its key, so
//! equal input gives equal bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::bounds;
use crate::proto::{Function, Label, Location, Mapping, Profile, Sample};
use crate::top_levels::{DocumentRoots, name_files};

#[derive(Clone, Debug)]
pub(crate) struct ProfileTables {
    strings: HashMap<String, usize>,
    mappings: RowIds<Mapping>,
    functions: RowIds<Function>,
    locations: RowIds<Location>,
    samples: BTreeMap<(Vec<u64>, Vec<Label>), Vec<i64>>,
    /// To which the names of top levels are relative.
    pub roots: DocumentRoots,
    /// The approximate memory of these tables, which a merge bounds.
    pub bytes: usize,
}

/// What one entry of a hash table or tree takes in addition to its key, approximately.
const ENTRY: usize = 32;

impl ProfileTables {
    pub fn new() -> Self {
        ProfileTables {
            strings: HashMap::from([(String::new(), 0)]),
            mappings: RowIds::new(),
            functions: RowIds::new(),
            locations: RowIds::new(),
            samples: BTreeMap::new(),
            roots: DocumentRoots::default(),
            bytes: 0,
        }
    }

    /// The index of a text, which is cut if it is too long.
    pub fn string(&mut self, text: &str) -> i64 {
        let text = bounds::text(text);
        if let Some(&index) = self.strings.get(text.as_ref()) {
            return index as i64;
        }
        let index = self.strings.len();
        self.bytes += ENTRY + size_of::<String>() + text.len();
        self.strings.insert(text.into_owned(), index);
        index as i64
    }

    pub fn mapping(&mut self, mapping: Mapping) -> u64 {
        self.mappings
            .id(Mapping { id: 0, ..mapping }, &mut self.bytes, 0)
    }

    pub fn function(&mut self, function: Function) -> u64 {
        self.functions
            .id(Function { id: 0, ..function }, &mut self.bytes, 0)
    }

    pub fn location(&mut self, location: Location) -> u64 {
        let heap = size_of_val(location.line.as_slice());
        self.locations
            .id(Location { id: 0, ..location }, &mut self.bytes, heap)
    }

    /// Adds the values to the sample of this stack and these labels (in any order). Sums saturate
    /// at the limits of `i64`.
    pub fn sample(
        &mut self,
        stack: Vec<u64>,
        mut labels: Vec<Label>,
        values: impl ExactSizeIterator<Item = i64>,
    ) {
        labels.sort_unstable();
        let heap = size_of_val(stack.as_slice())
            + size_of_val(labels.as_slice())
            + values.len() * size_of::<i64>();
        let bytes = &mut self.bytes;
        let sums = self.samples.entry((stack, labels)).or_insert_with(|| {
            *bytes += ENTRY + size_of::<Sample>() + heap;
            vec![0; values.len()]
        });
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = sum.saturating_add(value);
        }
    }

    /// Moves all rows into a profile. Its other fields stay as they are.
    pub fn finish_into(self, profile: &mut Profile) {
        profile.mapping = self.mappings.into_rows(|mapping, id| mapping.id = id);
        profile.function = self.functions.into_rows(|function, id| function.id = id);
        profile.location = self.locations.into_rows(|location, id| location.id = id);
        profile.sample = self
            .samples
            .into_iter()
            .map(|((location_id, label), value)| Sample {
                location_id,
                value,
                label,
            })
            .collect();
        let mut strings: Vec<_> = self.strings.into_iter().collect();
        strings.sort_unstable_by_key(|&(_, index)| index);
        profile.string_table = strings.into_iter().map(|(text, _)| text).collect();
        name_files(profile, &self.roots);
    }
}

/// Distinct rows of one kind, numbered from 1 in the order of their arrival.
#[derive(Clone, Debug)]
struct RowIds<T>(HashMap<T, u64>);

impl<T: Eq + Hash> RowIds<T> {
    fn new() -> Self {
        RowIds(HashMap::new())
    }

    fn id(&mut self, row: T, bytes: &mut usize, heap: usize) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(row).or_insert_with(|| {
            *bytes += ENTRY + size_of::<T>() + heap;
            next
        })
    }

    fn into_rows(self, set_id: impl Fn(&mut T, u64)) -> Vec<T> {
        let mut rows: Vec<_> = self.0.into_iter().collect();
        rows.sort_unstable_by_key(|&(_, id)| id);
        rows.into_iter()
            .map(|(mut row, id)| {
                set_id(&mut row, id);
                row
            })
            .collect()
    }
}
