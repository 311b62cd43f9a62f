//! Resolves the ids in a profile.
//!
//! It neither changes nor copies a profile. A missing row reads as empty and is not an error.
//!
//! Invariant: frames come leaf first, an inlined callee before the function it was inlined into.

use std::collections::{HashMap, HashSet};

use crate::error::DecodeError;
use crate::proto::{Function, Location, Profile, Sample};

/// One frame of a sample, with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleFrame<'a> {
    /// The function's name.
    pub name: &'a str,
    /// The file of its declaration.
    pub file: &'a str,
    /// The line of its declaration.
    pub start_line: i64,
    /// The line being executed.
    pub line: i64,
}

/// The rows of a profile, by id.
pub struct Lookup<'a> {
    profile: &'a Profile,
    functions: HashMap<u64, &'a Function>,
    locations: HashMap<u64, &'a Location>,
}

impl<'a> Lookup<'a> {
    /// Indexes functions and locations.
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
    pub fn frames<'s>(&'s self, sample: &'s Sample) -> impl Iterator<Item = SampleFrame<'a>> + 's {
        self.lines(sample)
            .map(|(function, line)| self.frame(function, line))
    }

    /// The functions of the sample's frames and the lines in them, leaf first.
    pub(crate) fn lines<'s>(
        &'s self,
        sample: &'s Sample,
    ) -> impl Iterator<Item = (&'a Function, i64)> + 's {
        let locations = sample
            .location_id
            .iter()
            .filter_map(|id| self.locations.get(id));
        locations
            .flat_map(|location| &location.line)
            .filter_map(|line| Some((*self.functions.get(&line.function_id)?, line.line)))
    }

    pub(crate) fn frame(&self, function: &Function, line: i64) -> SampleFrame<'a> {
        SampleFrame {
            name: self.profile.string(function.name),
            file: self.profile.string(function.filename),
            start_line: function.start_line,
            line,
        }
    }
}

/// The ids of one kind. Each occurs once, and none is 0.
pub(crate) struct UniqueIds {
    kind: &'static str,
    known: HashSet<u64>,
}

impl UniqueIds {
    pub fn of(kind: &'static str, ids: impl Iterator<Item = u64>) -> Result<Self, DecodeError> {
        let mut known = HashSet::new();
        for id in ids {
            if id == 0 || !known.insert(id) {
                return Err(DecodeError::Id(kind));
            }
        }
        Ok(UniqueIds { kind, known })
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
