//! The common input of all writers: the numbered functions of a profile, and its stacks, root
//! first, with their values.
//!
//! It writes nothing. A sample with only zero values is dropped. A sample without frames stays;
//! otherwise the sums would differ.
//!
//! Invariant: for each sample type, the values of all stacks add up to the total of the samples in
//! the view.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::lookup::Lookup;
use crate::proto::{self, Label, Profile, Sample};
use crate::top_levels::plain;

/// A view of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The name of the sample type; without it, the profile's default.
    pub sample_type: Option<String>,
    /// Keys and values of labels. A sample must have all of them.
    pub labels: Vec<(String, String)>,
}

/// How the comment of a file begins that has only the samples with some labels; the labels follow.
/// Its receipts are those of all samples.
pub const ONLY: &str = "only samples with ";

/// Why a view of a profile cannot be shown.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ViewError {
    /// The profile has no sample type of this name.
    #[error("the profile has no sample type {wanted}; it has {}", known.join(", "))]
    NoSuchType {
        /// The requested sample type.
        wanted: String,
        /// The existing sample types.
        known: Vec<String>,
    },
    /// Its page would have more bytes than there is room for.
    #[error("the page would have more than {0} bytes")]
    PageTooLarge(usize),
}

/// A function, identified by name, file and start line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionRef<'a> {
    /// The name in the profile.
    pub name: &'a str,
    /// The file of its declaration.
    pub file: &'a str,
    /// The line of its declaration.
    pub start_line: i64,
}

/// The number of a function, and the line in it.
pub type StackStep = (usize, i64);

/// The stacks of a view's samples, without labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks<'a> {
    /// A [`StackStep`] has indexes into this list.
    pub functions: Vec<FunctionRef<'a>>,
    /// Name and unit of each value.
    pub sample_types: Vec<(&'a str, &'a str)>,
    /// The index of the view's sample type.
    pub chosen: usize,
    /// Root first. Each stack has one value for each sample type. The stacks are in the order of
    /// their steps.
    pub stacks: BTreeMap<Vec<StackStep>, Vec<i64>>,
}

impl View {
    /// The index of the view's sample type in a sample's values.
    pub fn index(&self, profile: &Profile) -> Result<usize, ViewError> {
        let Some(wanted) = &self.sample_type else {
            let default = profile.string(profile.default_sample_type);
            let last = profile.sample_type.len().saturating_sub(1);
            return Ok(profile.value_index(default).unwrap_or(last));
        };
        profile
            .value_index(wanted)
            .ok_or_else(|| ViewError::NoSuchType {
                wanted: wanted.clone(),
                known: profile
                    .sample_types()
                    .map(|(name, _)| name.to_owned())
                    .collect(),
            })
    }

    /// The view with the sample type that it has in this profile, by its name: for a profile whose
    /// own default is another.
    ///
    /// # Errors
    /// A [`ViewError`] where the profile has no such sample type.
    pub fn of_same_type(&self, profile: &Profile) -> Result<View, ViewError> {
        let chosen = self.index(profile)?;
        let name = profile.sample_types().nth(chosen);
        Ok(View {
            sample_type: name.map(|(name, _)| name.to_owned()),
            labels: self.labels.clone(),
        })
    }

    /// The profile with only the samples that have the labels of this view.
    #[must_use]
    pub fn filtered(&self, profile: &Profile) -> Profile {
        let mut kept = profile.clone();
        kept.sample
            .retain(|sample| self.has_labels(profile, sample));
        kept
    }

    /// The same as a file's content: a comment names the labels, because nothing else in the file
    /// shows that samples were left out.
    pub(crate) fn kept(&self, profile: &Profile) -> Profile {
        let mut kept = self.filtered(profile);
        for (key, value) in &self.labels {
            kept.comment.push(kept.string_table.len() as i64);
            kept.string_table.push(format!("{ONLY}{key}={value}"));
        }
        kept
    }

    pub(crate) fn has_labels(&self, profile: &Profile, sample: &Sample) -> bool {
        self.labels.iter().all(|(key, value)| {
            sample.label.iter().any(|label| {
                profile.string(label.key) == key && label_value(profile, label) == *value
            })
        })
    }
}

/// The value of a label for users: a number without its unit.
pub(crate) fn label_value<'a>(profile: &'a Profile, label: &Label) -> Cow<'a, str> {
    match profile.string(label.str) {
        "" if label.num != 0 => label.num.to_string().into(),
        text => text.into(),
    }
}

impl<'a> Stacks<'a> {
    /// The stacks of the samples in the view.
    ///
    /// # Errors
    /// A [`ViewError`] if the profile has no such sample type.
    pub fn of(profile: &'a Profile, view: &View) -> Result<Self, ViewError> {
        let chosen = view.index(profile)?;
        let lookup = Lookup::new(profile);
        let mut numbers = Numbers::default();
        let mut stacks: BTreeMap<Vec<StackStep>, Vec<i64>> = BTreeMap::new();
        for sample in &profile.sample {
            if !view.has_labels(profile, sample) || sample.value.iter().all(|value| *value == 0) {
                continue;
            }
            let steps = numbers.steps(&lookup, sample, false);
            add(stacks.entry(steps).or_default(), &sample.value);
        }
        Ok(Stacks {
            functions: numbers.functions,
            sample_types: profile.sample_types().collect(),
            chosen,
            stacks,
        })
    }

    /// Name and unit of the chosen sample type.
    pub fn sample_type(&self) -> (&'a str, &'a str) {
        self.sample_types
            .get(self.chosen)
            .copied()
            .unwrap_or_default()
    }

    /// The stacks with the value of the chosen sample type.
    pub fn chosen(&self) -> impl Iterator<Item = (&[StackStep], i64)> {
        self.stacks.iter().filter_map(|(steps, values)| {
            values
                .get(self.chosen)
                .map(|value| (steps.as_slice(), *value))
        })
    }

    /// The sum of one value over all stacks.
    pub fn total(&self, sample_type: usize) -> i64 {
        let values = self
            .stacks
            .values()
            .filter_map(|values| values.get(sample_type));
        values.fold(0, |sum, value| sum.saturating_add(*value))
    }
}

/// Functions, in the order in which they first occur.
#[derive(Default)]
pub(crate) struct Numbers<'a> {
    pub functions: Vec<FunctionRef<'a>>,
    /// By the plain name, the file and the start line.
    known: HashMap<(Cow<'a, str>, &'a str, i64), usize>,
    /// The same by the address of a profile's row, so that each row's names are hashed once and not
    /// for each frame.
    rows: HashMap<*const proto::Function, usize>,
}

impl<'a> Numbers<'a> {
    /// The sample's stack, root first. If `compared` is set, functions that differ only in their
    /// start line count as one.
    pub fn steps(
        &mut self,
        lookup: &Lookup<'a>,
        sample: &Sample,
        compared: bool,
    ) -> Vec<StackStep> {
        let mut steps: Vec<_> = lookup
            .lines(sample)
            .map(|(row, line)| (self.number(lookup, row, compared), line))
            .collect();
        steps.reverse();
        steps
    }

    fn number(&mut self, lookup: &Lookup<'a>, row: &'a proto::Function, compared: bool) -> usize {
        *self.rows.entry(row).or_insert_with(|| {
            let frame = lookup.frame(row, 0);
            let function = FunctionRef {
                name: frame.name,
                file: frame.file,
                start_line: if compared { 0 } else { frame.start_line },
            };
            let plain = plain(frame.name, frame.file);
            let key = (plain, function.file, function.start_line);
            // Another profile that is compared may have another form of its name.
            *self.known.entry(key).or_insert_with(|| {
                self.functions.push(function);
                self.functions.len() - 1
            })
        })
    }
}

pub(crate) fn add(sums: &mut Vec<i64>, values: &[i64]) {
    if sums.len() < values.len() {
        sums.resize(values.len(), 0);
    }
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, FrameRef, Settings};

    #[test]
    fn each_rows_names_are_looked_up_once() {
        let mut builder = Builder::new(Settings::default());
        let frames = ["leaf", "{main}"].map(|name| FrameRef {
            name,
            ..FrameRef::default()
        });
        builder.add(&frames, &[1, 2, 3], &[]);
        let profile = builder.finish();
        let (lookup, mut numbers) = (Lookup::new(&profile), Numbers::default());
        for _ in 0..2 {
            let steps = numbers.steps(&lookup, &profile.sample[0], false);
            assert_eq!(steps, [(1, 0), (0, 0)]);
            // A function that is looked up again would get a new number.
            numbers.known.clear();
        }
    }
}
