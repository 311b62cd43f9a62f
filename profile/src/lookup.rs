//! From the ids in a profile to what they name.
//!
//! It does not change or copy a profile; a row that is missing reads as nothing, it never fails.
//!
//! Invariant: frames come leaf first, an inlined callee before the function it was inlined into.

use std::collections::{HashMap, HashSet};

use crate::decode::DecodeError;
use crate::proto::{Function, Location, Profile, Sample};

/// One frame of a sample, by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame<'a> {
    /// The function's.
    pub name: &'a str,
    /// Where it is declared.
    pub file: &'a str,
    /// Of its declaration.
    pub start_line: i64,
    /// The one being executed.
    pub line: i64,
}

/// The rows of a profile by their ids.
pub struct Lookup<'a> {
    profile: &'a Profile,
    functions: HashMap<u64, &'a Function>,
    locations: HashMap<u64, &'a Location>,
}

impl<'a> Lookup<'a> {
    /// Reads functions and locations once.
    pub fn new(profile: &'a Profile) -> Self {
        Lookup {
            profile,
            functions: profile
                .function
                .iter()
                .map(|function| (function.id, function))
                .collect(),
            locations: profile
                .location
                .iter()
                .map(|location| (location.id, location))
                .collect(),
        }
    }

    /// The sample's frames, leaf first.
    pub fn frames<'s>(&'s self, sample: &'s Sample) -> impl Iterator<Item = Frame<'a>> + 's {
        let locations = sample
            .location_id
            .iter()
            .filter_map(|id| self.locations.get(id));
        locations
            .flat_map(|location| &location.line)
            .filter_map(|line| {
                let function = self.functions.get(&line.function_id)?;
                Some(Frame {
                    name: self.profile.string(function.name),
                    file: self.profile.string(function.filename),
                    start_line: function.start_line,
                    line: line.line,
                })
            })
    }
}

/// The ids of one kind, each given once and none 0.
pub(crate) struct Ids {
    kind: &'static str,
    known: HashSet<u64>,
}

impl Ids {
    pub fn of(kind: &'static str, ids: impl Iterator<Item = u64>) -> Result<Self, DecodeError> {
        let mut known = HashSet::new();
        for id in ids {
            if id == 0 || !known.insert(id) {
                return Err(DecodeError::Id(kind));
            }
        }
        Ok(Ids { kind, known })
    }

    pub fn check(&self, id: u64) -> Result<(), DecodeError> {
        if self.known.contains(&id) {
            return Ok(());
        }
        Err(DecodeError::Dangling {
            kind: self.kind,
            id: id.into(),
        })
    }
}
