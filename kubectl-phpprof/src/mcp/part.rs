//! The part of a profile that an agent asks about: sample type, labels, functions.
//!
//! Agents name functions and labels as answers have shown them, which may be cut or marked
//! (`quote`). So what they write is compared with what is shown.
//!
//! Invariant: an unknown name is refused with those that are near.

use std::borrow::Cow;
use std::collections::BTreeSet;

use phpprof_profile::proto::Label;
use phpprof_profile::{Profile, Stacks, View, plain_name, waiting};
use serde_json::{Map, Value, json};

use super::ask::AskedLabels;
use super::quote::{quoted, quoted_path};
use crate::failure::{Exit, Failure};
use crate::show::{label_text, with_waiting_label};
use crate::view::wrong_view;

/// The most names that a refusal proposes.
const MOST_NEAR: usize = 5;

/// The arguments that choose a part, which suggestions repeat.
#[derive(Clone, Copy, Debug)]
pub struct AskedPart<'a> {
    pub profile: &'a str,
    pub sample_type: Option<&'a str>,
    pub labels: &'a AskedLabels,
}

impl<'a> AskedPart<'a> {
    pub fn new(profile: &'a str, sample_type: Option<&'a str>, labels: &'a AskedLabels) -> Self {
        AskedPart {
            profile,
            sample_type,
            labels,
        }
    }

    /// Arguments for another question about the same part.
    pub fn and(&self, more: Value) -> Value {
        let mut all = Map::new();
        all.insert("profile".to_owned(), json!(self.profile));
        if let Some(sample_type) = self.sample_type {
            all.insert("sampleType".to_owned(), json!(sample_type));
        }
        if !self.labels.is_empty() {
            all.insert("labels".to_owned(), json!(self.labels));
        }
        if let Value::Object(more) = more {
            all.extend(more);
        }
        Value::Object(all)
    }

    /// The profile with the labels that are asked for, and the view.
    pub fn of<'p>(&self, profile: &'p Profile) -> Result<ProfilePart<'p>, Failure> {
        let asks_for_waits = View {
            sample_type: None,
            labels: self
                .labels
                .keys()
                .map(|key| (key.clone(), String::new()))
                .collect(),
        };
        let profile = with_waiting_label(profile, &asks_for_waits, None);
        let labels = self
            .labels
            .iter()
            .map(|(key, shown)| Ok((key.clone(), value_of(&profile, key, shown)?)));
        let view = View {
            sample_type: self.sample_type.map(str::to_owned),
            labels: labels.collect::<Result<_, Failure>>()?,
        };
        view.index(&profile).map_err(wrong_view)?;
        Ok(ProfilePart { profile, view })
    }
}

/// A profile, and the view of it.
pub struct ProfilePart<'p> {
    pub profile: Cow<'p, Profile>,
    pub view: View,
}

impl ProfilePart<'_> {
    pub fn stacks(&self) -> Result<Stacks<'_>, Failure> {
        Stacks::of(&self.profile, &self.view).map_err(wrong_view)
    }
}

/// The value of a label that is shown so.
fn value_of(profile: &Profile, key: &str, shown: &str) -> Result<String, Failure> {
    let labels = profile.sample.iter().flat_map(|sample| &sample.label);
    let of_key = |label: &&Label| profile.string(label.key) == key;
    let values: BTreeSet<Cow<'_, str>> = labels
        .filter(of_key)
        .map(|label| label_text(profile, label))
        .collect();
    let found = values.iter().find(|value| **value == shown);
    let found = found.or_else(|| values.iter().find(|value| quoted(value) == shown));
    if let Some(value) = found {
        return Ok(value.clone().into_owned());
    }
    let known: Vec<String> = values.iter().take(MOST_NEAR).map(|it| quoted(it)).collect();
    Err(Failure::new(
        Exit::Usage,
        format!("no sample has the label {} with this value", quoted(key)),
        match known.as_slice() {
            [] => format!("labels of this profile: {}", keys(profile).join(", ")),
            known => format!("some of its values: {}", json!(known)),
        },
    ))
}

/// The labels that samples of a profile have; `waiting` is always one.
pub fn keys(profile: &Profile) -> Vec<String> {
    let labels = profile.sample.iter().flat_map(|sample| &sample.label);
    let mut keys: BTreeSet<&str> = labels.map(|label| profile.string(label.key)).collect();
    keys.insert(waiting::LABEL);
    keys.into_iter().map(quoted).take(30).collect()
}

/// The functions that are shown so.
pub fn functions(
    stacks: &Stacks<'_>,
    name: &str,
    file: Option<&str>,
) -> Result<BTreeSet<usize>, Failure> {
    let all = || stacks.functions.iter().enumerate();
    let is_it = |shown: &str, asked: &str, quote: fn(&str) -> String| {
        shown == asked || (quote(shown) == asked)
    };
    let found: BTreeSet<usize> = all()
        .filter(|(_, function)| {
            (is_it(function.name, name, quoted) || plain_name(function.name, function.file) == name)
                && file.is_none_or(|file| is_it(function.file, file, quoted_path))
        })
        .map(|(number, _)| number)
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let wanted = name.to_lowercase();
    let near: BTreeSet<&str> = all()
        .map(|(_, function)| function.name)
        .filter(|known| *known == name || known.to_lowercase().contains(&wanted))
        .collect();
    let near: Vec<String> = near.into_iter().take(MOST_NEAR).map(quoted).collect();
    Err(Failure::new(
        Exit::NotFound,
        match file {
            None => "no sample of this part has a function of this name",
            Some(_) => "no sample of this part has a function of this name in this file",
        },
        match near.as_slice() {
            [] => "write it as an answer of top, callers or callees shows it".to_owned(),
            near => format!("functions with a similar name: {}", json!(near)),
        },
    ))
}
