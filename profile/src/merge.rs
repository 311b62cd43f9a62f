//! Several profiles into one: the pods of a request.
//!
//! It does not scale values and does not align times.
//!
//! Invariant: each value type's total is the sum of the totals (up to the ends of `i64`); nothing is added where an error is returned
//! for the types; memory stays below the bound plus one profile.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::proto::{Function, Label, Line, Location, Mapping, Profile, ValueType};
use crate::tables::Tables;

/// The merged profile in memory; see [`crate::Limits::memory_bytes`] for the sum this is part of.
const MEMORY_BYTES: usize = 40 << 20;
/// Comments kept: the receipt of each of 100 pods and then some.
const COMMENTS: usize = 256;
const COMMENT_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("nothing to merge")]
    Empty,
    #[error("sample types differ: {expected} and {actual}")]
    SampleTypes { expected: String, actual: String },
    #[error("the merged profile takes more than {0} bytes of memory")]
    MemoryExceeded(usize),
}

pub fn merge(profiles: &[Profile]) -> Result<Profile, MergeError> {
    let mut merger = Merger::default();
    profiles
        .iter()
        .try_for_each(|profile| merger.add(profile))?;
    merger.finish()
}

/// Merges one profile after the other, so that no two of them need to be in memory at once.
#[derive(Debug)]
pub struct Merger {
    merged: Option<Profile>,
    types: Types,
    tables: Tables,
    comment_bytes: usize,
    memory_bytes: usize,
}

impl Default for Merger {
    fn default() -> Self {
        Merger::within(MEMORY_BYTES)
    }
}

impl Merger {
    /// A merger that refuses what would take more memory than this.
    pub fn within(memory_bytes: usize) -> Self {
        Merger {
            merged: None,
            types: Types::default(),
            tables: Tables::new(),
            comment_bytes: 0,
            memory_bytes,
        }
    }

    pub fn add(&mut self, profile: &Profile) -> Result<(), MergeError> {
        let types = Types::of(profile);
        let expected = self.merged.as_ref().map_or(&types, |_| &self.types);
        let order = expected
            .order_in(&types)
            .ok_or_else(|| MergeError::SampleTypes {
                expected: expected.to_string(),
                actual: types.to_string(),
            })?;
        match &mut self.merged {
            None => {
                self.types = types;
                self.merged = Some(head(&mut self.tables, profile));
            }
            Some(merged) => {
                merged.time_nanos = earliest(merged.time_nanos, profile.time_nanos);
                merged.duration_nanos = merged.duration_nanos.max(profile.duration_nanos);
                merged.period = merged.period.max(profile.period);
            }
        }
        self.comments(profile);
        self.samples(profile, &order)
    }

    pub fn finish(self) -> Result<Profile, MergeError> {
        let mut merged = self.merged.ok_or(MergeError::Empty)?;
        self.tables.finish_into(&mut merged);
        Ok(merged)
    }

    fn comments(&mut self, profile: &Profile) {
        let Some(merged) = &mut self.merged else {
            return;
        };
        for comment in profile.comments() {
            self.comment_bytes += comment.len();
            if merged.comment.len() == COMMENTS || self.comment_bytes > COMMENT_BYTES {
                return;
            }
            merged.comment.push(self.tables.string(comment));
        }
    }

    /// `order` says where in a sample of this profile each merged value stands.
    fn samples(&mut self, profile: &Profile, order: &[usize]) -> Result<(), MergeError> {
        let tables = &mut self.tables;
        let mappings: HashMap<u64, u64> = profile
            .mapping
            .iter()
            .map(|row| (row.id, mapping(tables, profile, row)))
            .collect();
        let functions: HashMap<u64, u64> = profile
            .function
            .iter()
            .map(|row| (row.id, function(tables, profile, row)))
            .collect();
        let locations: HashMap<u64, u64> = profile
            .location
            .iter()
            .map(|row| (row.id, location(tables, row, &mappings, &functions)))
            .collect();
        for sample in &profile.sample {
            let stack = sample
                .location_id
                .iter()
                .filter_map(|id| locations.get(id).copied())
                .collect();
            let labels = sample
                .label
                .iter()
                .map(|row| label(tables, profile, row))
                .collect();
            let value = |index: &usize| sample.value.get(*index).copied().unwrap_or(0);
            tables.sample(stack, labels, order.iter().map(value));
            if tables.bytes > self.memory_bytes {
                return Err(MergeError::MemoryExceeded(self.memory_bytes));
            }
        }
        Ok(())
    }
}

/// The first of two times, where 0 is not known.
fn earliest(one: i64, other: i64) -> i64 {
    if one == 0 || other == 0 {
        one.max(other)
    } else {
        one.min(other)
    }
}

/// What the values of a profile are, each as `name/unit`.
#[derive(Debug, Default)]
struct Types {
    samples: Vec<String>,
    period: Option<String>,
}

impl Types {
    fn of(profile: &Profile) -> Self {
        let word = |name: &str, unit: &str| format!("{name}/{unit}");
        Types {
            samples: profile
                .sample_types()
                .map(|(name, unit)| word(name, unit))
                .collect(),
            period: profile
                .period_type
                .map(|period| word(profile.string(period.r#type), profile.string(period.unit))),
        }
    }

    /// Where each of these types stands in another profile, whose order may be another; none where the types differ.
    fn order_in(&self, other: &Types) -> Option<Vec<usize>> {
        let same = self.samples.len() == other.samples.len() && self.period == other.period;
        if self.samples == other.samples {
            return same.then(|| (0..self.samples.len()).collect());
        }
        let place = |word: &String| other.samples.iter().position(|another| another == word);
        let order: Vec<usize> = self.samples.iter().map(place).collect::<Option<_>>()?;
        // One type twice and another not at all is no order.
        let distinct = order.iter().collect::<HashSet<_>>().len() == order.len();
        (same && distinct).then_some(order)
    }
}

impl fmt::Display for Types {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.samples.join(", "))?;
        match &self.period {
            Some(period) => write!(formatter, ", period {period}"),
            None => Ok(()),
        }
    }
}

/// What a profile says of itself, without its rows and comments.
fn head(tables: &mut Tables, profile: &Profile) -> Profile {
    let mut value_type = |kind: &ValueType| ValueType {
        r#type: tables.string(profile.string(kind.r#type)),
        unit: tables.string(profile.string(kind.unit)),
    };
    let sample_type = profile.sample_type.iter().map(&mut value_type).collect();
    let period_type = profile.period_type.as_ref().map(&mut value_type);
    let mut string = |index| tables.string(profile.string(index));
    Profile {
        sample_type,
        period_type,
        period: profile.period,
        time_nanos: profile.time_nanos,
        duration_nanos: profile.duration_nanos,
        drop_frames: string(profile.drop_frames),
        keep_frames: string(profile.keep_frames),
        default_sample_type: string(profile.default_sample_type),
        doc_url: string(profile.doc_url),
        ..Profile::default()
    }
}

fn mapping(tables: &mut Tables, profile: &Profile, row: &Mapping) -> u64 {
    let filename = tables.string(profile.string(row.filename));
    let build_id = tables.string(profile.string(row.build_id));
    tables.mapping(Mapping {
        filename,
        build_id,
        ..*row
    })
}

fn function(tables: &mut Tables, profile: &Profile, row: &Function) -> u64 {
    let name = tables.string(profile.string(row.name));
    let system_name = tables.string(profile.string(row.system_name));
    let filename = tables.string(profile.string(row.filename));
    tables.function(Function {
        name,
        system_name,
        filename,
        ..*row
    })
}

fn location(
    tables: &mut Tables,
    row: &Location,
    mappings: &HashMap<u64, u64>,
    functions: &HashMap<u64, u64>,
) -> u64 {
    let known = |line: &Line| {
        Some(Line {
            function_id: *functions.get(&line.function_id)?,
            ..*line
        })
    };
    tables.location(Location {
        mapping_id: mappings.get(&row.mapping_id).copied().unwrap_or(0),
        line: row.line.iter().filter_map(known).collect(),
        ..*row
    })
}

fn label(tables: &mut Tables, profile: &Profile, row: &Label) -> Label {
    Label {
        key: tables.string(profile.string(row.key)),
        str: tables.string(profile.string(row.str)),
        num: row.num,
        num_unit: tables.string(profile.string(row.num_unit)),
    }
}
