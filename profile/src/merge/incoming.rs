//! A profile while it is merged: its ids are translated into those of the merged tables, each once
//! and only if a row needs it.
//!
//! Invariant: [`Incoming::cost`] is at least the growth of the tables when the row is added.

use std::collections::HashMap;

use super::TrustedMetadata;
use crate::bounds::MAX_LABELS;
use crate::proto::{Function, Label, Line, Location, Mapping, Profile, Sample};
use crate::rows;
use crate::tables::ProfileTables;
use crate::top_levels::{name_bytes, plain};

/// What a location with one line, its function and its mapping take in the tables, without their
/// names.
const LOCATION_BYTES: usize = 640;
/// What each further line takes.
const LINE_BYTES: usize = 256;

pub(super) struct Incoming<'a> {
    profile: &'a Profile,
    /// The index of each merged value in a sample.
    order: Vec<usize>,
    own: &'a [(&'a str, &'a str)],
    /// Labels that are dropped.
    folds: &'static [&'static str],
    locations: HashMap<u64, &'a Location>,
    functions: HashMap<u64, &'a Function>,
    mappings: HashMap<u64, &'a Mapping>,
    known: HashMap<u64, u64>,
    /// The merged index of each string of the profile, so that each is hashed once and not for each
    /// label of each sample.
    strings: Vec<Option<i64>>,
}

impl<'a> Incoming<'a> {
    pub fn new(
        profile: &'a Profile,
        order: Vec<usize>,
        known: &'a TrustedMetadata<'a>,
        folds: &'static [&'static str],
    ) -> Self {
        Incoming {
            profile,
            order,
            own: &known.labels,
            folds,
            locations: profile.location.iter().map(|row| (row.id, row)).collect(),
            functions: profile.function.iter().map(|row| (row.id, row)).collect(),
            mappings: profile.mapping.iter().map(|row| (row.id, row)).collect(),
            known: HashMap::new(),
            strings: vec![None; profile.string_table.len()],
        }
    }

    pub fn values(&self, sample: &Sample) -> Vec<i64> {
        let value = |index: &usize| sample.value.get(*index).copied().unwrap_or(0);
        self.order.iter().map(value).collect()
    }

    /// The most bytes that the row can take.
    pub fn cost(&self, sample: &Sample) -> usize {
        let unknown = |id: &&u64| !self.known.contains_key(id);
        let new = sample.location_id.iter().filter(unknown);
        let locations: usize = new.map(|id| self.location_cost(*id)).sum();
        let own: usize = self
            .own
            .iter()
            .map(|(key, value)| label_cost([*key, *value, ""]))
            .sum();
        let theirs: usize = self
            .kept_labels(sample)
            .map(|label| {
                label_cost([label.key, label.str, label.num_unit].map(|it| self.profile.string(it)))
            })
            .sum();
        locations + own + theirs + rows::cost(sample.location_id.len(), self.order.len())
    }

    fn location_cost(&self, id: u64) -> usize {
        let Some(location) = self.locations.get(&id) else {
            return 0;
        };
        let mapping = self.mappings.get(&location.mapping_id);
        let of_mapping = mapping.map_or(0, |row| self.lengths([row.filename, row.build_id, 0]));
        let functions = location
            .line
            .iter()
            .filter_map(|line| self.functions.get(&line.function_id));
        let names: usize = functions
            .map(|row| {
                let [name, file] = [row.name, row.filename].map(|it| self.profile.string(it));
                let lengths = self.lengths([row.name, row.system_name, row.filename]);
                // The plain name, and the one that it gets in the end.
                LINE_BYTES + lengths + 2 * name_bytes(name, file)
            })
            .sum();
        LOCATION_BYTES + of_mapping + names
    }

    fn lengths(&self, strings: [i64; 3]) -> usize {
        strings
            .map(|index| self.profile.string(index).len())
            .iter()
            .sum()
    }

    /// The stack, leaf first.
    pub fn stack(&mut self, sample: &Sample, tables: &mut ProfileTables) -> Vec<u64> {
        let mut stack = Vec::with_capacity(sample.location_id.len());
        for id in &sample.location_id {
            let known = self.known.get(id).copied();
            let Some(location) = known.or_else(|| self.location(*id, tables)) else {
                continue;
            };
            self.known.insert(*id, location);
            stack.push(location);
        }
        stack
    }

    fn string(&mut self, index: i64, tables: &mut ProfileTables) -> i64 {
        let known = usize::try_from(index).ok();
        match known.and_then(|index| self.strings.get_mut(index)) {
            Some(known) => *known.get_or_insert_with(|| tables.string(self.profile.string(index))),
            None => 0,
        }
    }

    fn location(&mut self, id: u64, tables: &mut ProfileTables) -> Option<u64> {
        let row = *self.locations.get(&id)?;
        let mapping = self.mappings.get(&row.mapping_id).copied();
        let mapping_id = mapping.map_or(0, |row| {
            let filename = self.string(row.filename, tables);
            let build_id = self.string(row.build_id, tables);
            tables.mapping(Mapping {
                filename,
                build_id,
                ..*row
            })
        });
        let mut line = Vec::new();
        for of in &row.line {
            let Some(function) = self.functions.get(&of.function_id).copied() else {
                continue;
            };
            let text = self.profile.string(function.name);
            let file = self.profile.string(function.filename);
            tables.roots.add_of(text, file);
            tables.bytes += name_bytes(text, file);
            let plain = plain(text, file);
            let name = if plain == text {
                self.string(function.name, tables)
            } else {
                tables.string(&plain)
            };
            let function = Function {
                name,
                system_name: self.string(function.system_name, tables),
                filename: self.string(function.filename, tables),
                ..*function
            };
            line.push(Line {
                function_id: tables.function(function),
                ..*of
            });
        }
        Some(tables.location(Location {
            mapping_id,
            line,
            ..*row
        }))
    }

    /// The labels of the sample and of the trusted metadata, in order.
    pub fn labels(&mut self, sample: &Sample, tables: &mut ProfileTables) -> Vec<Label> {
        let mut labels = self.own_labels(tables);
        let theirs: Vec<Label> = self.kept_labels(sample).copied().collect();
        labels.extend(theirs.into_iter().map(|label| Label {
            key: self.string(label.key, tables),
            str: self.string(label.str, tables),
            num: label.num,
            num_unit: self.string(label.num_unit, tables),
        }));
        labels.truncate(MAX_LABELS);
        labels.sort_unstable();
        labels
    }

    pub fn own_labels(&self, tables: &mut ProfileTables) -> Vec<Label> {
        let own = self.own.iter().map(|(key, value)| Label {
            key: tables.string(key),
            str: tables.string(value),
            ..Label::default()
        });
        let mut own: Vec<Label> = own.collect();
        own.sort_unstable();
        own
    }

    fn kept_labels<'s>(&'s self, sample: &'s Sample) -> impl Iterator<Item = &'s Label> {
        sample.label.iter().filter(|label| {
            let key = self.profile.string(label.key);
            !self.folds.contains(&key) && self.own.iter().all(|(own, _)| *own != key)
        })
    }
}

fn label_cost(texts: [&str; 3]) -> usize {
    rows::LABEL_BYTES + texts.map(str::len).iter().sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{self, Builder, FrameRef, Settings};

    #[test]
    fn each_string_is_looked_up_once() {
        let mut builder = Builder::new(Settings::default());
        let labels = [builder::SampleTag::Str("route", "/cart")];
        builder.add(&[FrameRef::default()], &[1, 2, 3], &labels);
        let profile = builder.finish();
        let known = TrustedMetadata::default();
        let mut incoming = Incoming::new(&profile, Vec::new(), &known, &[]);
        let sample = &profile.sample[0];
        let mut tables = ProfileTables::new();
        let labels = incoming.labels(sample, &mut tables);
        assert!(tables.bytes > 0);
        let mut others = ProfileTables::new();
        assert_eq!(incoming.labels(sample, &mut others), labels);
        assert_eq!(others.bytes, 0, "nothing was asked for again");
    }
}
