//! Whether two profiles can be compared: they measured the same thing, at a similar rate, of the
//! same requests.
//!
//! A comparison of unlike profiles has numbers, but they tell how the two were recorded and not
//! what has changed. What a run was asked for is in its receipt (`asked` in
//! `contract/comment.json`). It is pure, and only compares what both profiles say.
//!
//! Invariant: a profile is like itself. What one of them does not say is never unlike, but named in
//! [`Likeness::unchecked`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::in_use::is_in_use;
use crate::proto::Profile;
use crate::stacks::{ONLY, View};

/// Rates that differ by a larger factor are unlike.
const RATES_APART: f64 = 4.0;

/// In which respect two profiles are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Aspect {
    /// The sample type, its unit, and what the sampler's period counts.
    Type,
    /// Samples per second.
    Rate,
    /// The labels of requests that were recorded, and the labels that samples were chosen by.
    Labels,
    /// Which requests and which time were kept.
    Filter,
}

impl Aspect {
    fn words(self) -> &'static str {
        match self {
            Aspect::Type => "sample types",
            Aspect::Rate => "rates",
            Aspect::Labels => "labels",
            Aspect::Filter => "filters",
        }
    }
}

/// A difference that makes two profiles unlike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlikeness {
    /// What differs.
    pub aspect: Aspect,
    /// Both sides, as a phrase. It may have texts of the profiles.
    pub what: String,
    /// What to take instead.
    #[serde(skip)]
    pub instead: String,
}

/// In which respects two profiles are unlike, and which could not be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    /// Empty if nothing speaks against a comparison.
    pub unlike: Vec<Unlikeness>,
    /// Profiles of older samplers, and of other programs, do not say everything.
    pub unchecked: Vec<Aspect>,
}

impl Likeness {
    /// A note for a comparison's title; `None` if nothing is unlike.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        (!self.unlike.is_empty()).then(|| {
            let unlike = self.unlike.iter().map(|it| it.aspect);
            format!("unlike {}", list(unlike))
        })
    }

    /// The aspects that could not be compared, as words; `None` if all could.
    #[must_use]
    pub fn unchecked_words(&self) -> Option<String> {
        (!self.unchecked.is_empty()).then(|| list(self.unchecked.iter().copied()))
    }
}

fn list(aspects: impl Iterator<Item = Aspect>) -> String {
    let words: Vec<&str> = aspects.map(Aspect::words).collect();
    words.join(", ")
}

/// Compares what the profiles say of how they were recorded. The view chooses the sample type.
#[must_use]
pub fn alike(before: &Profile, after: &Profile, view: &View) -> Likeness {
    let mut likeness = Likeness::default();
    types(before, after, view, &mut likeness);
    rates(before, after, &mut likeness);
    let [one, other] = [before, after].map(RecordedRuns::of);
    chosen_samples(&one, &other, &mut likeness);
    // What is in heaps belongs to no HTTP request, so it has neither labels nor filters of these.
    if !(is_in_use(before) && is_in_use(after)) {
        recorded(&one, &other, &mut likeness);
    }
    likeness
}

/// The sample type is compared by its name, so its default may differ.
fn types(before: &Profile, after: &Profile, view: &View, likeness: &mut Likeness) {
    let chosen = view.index(after).ok();
    let chosen = chosen.and_then(|index| after.sample_types().nth(index));
    let Some((name, unit)) = chosen else { return };
    let found = before.sample_types().find(|(other, _)| *other == name);
    let what = match found {
        None => format!("before has no sample type {name}"),
        Some((_, other)) if other != unit => {
            format!("{name} is in {other} before, and in {unit} after")
        }
        Some(_) => match (clock(before), clock(after)) {
            (Some(one), Some(other)) if one != other => {
                format!("before was sampled by {one}, after by {other}")
            }
            (Some(_), Some(_)) => return,
            _ => return likeness.unchecked.push(Aspect::Type),
        },
    };
    let has = |profile: &Profile, name: &str| profile.sample_types().any(|(it, _)| it == name);
    let mut both = after.sample_types().map(|(name, _)| name);
    let both = both.find(|other| *other != name && has(before, other));
    likeness.unlike.push(Unlikeness {
        aspect: Aspect::Type,
        what,
        instead: match (found, both) {
            (None, Some(both)) => format!("compare {both}, which both have (--sample-type {both})"),
            _ => "record both with the same sampler".to_owned(),
        },
    });
}

/// What the sampler's period counts, for instance wall nanoseconds.
fn clock(profile: &Profile) -> Option<String> {
    let kind = profile.period_type.as_ref()?;
    let [name, unit] = [kind.r#type, kind.unit].map(|index| profile.string(index));
    (!name.is_empty()).then(|| format!("{name}/{unit}"))
}

fn rates(before: &Profile, after: &Profile, likeness: &mut Likeness) {
    let (one, other) = (before.period, after.period);
    if one <= 0 || other <= 0 {
        likeness.unchecked.push(Aspect::Rate);
        return;
    }
    let factor = one.max(other) as f64 / one.min(other) as f64;
    if factor > RATES_APART && clock(before) == clock(after) {
        let unit = before.period_type.as_ref();
        let unit = unit.map_or("", |unit| before.string(unit.unit));
        let [one, other] = [one, other].map(|period| match unit {
            "nanoseconds" => format!("{:.1} times a second", 1e9 / period as f64),
            unit => format!("each {period} {unit}"),
        });
        likeness.unlike.push(Unlikeness {
            aspect: Aspect::Rate,
            what: format!("a worker was sampled {one} before, and {other} after"),
            instead: "record both at the same rate (-F, spec.samplesPerSecond), and within the sampler's CPU budget"
                .to_owned(),
        });
    }
}

/// What the runs of a profile were asked for.
#[derive(Debug, Default, PartialEq)]
struct RecordedRuns {
    /// The labels by which the samples of the file were chosen.
    only: Option<String>,
    labels: BTreeSet<String>,
    filters: BTreeSet<String>,
    /// Whether each receipt has these fields.
    is_complete: bool,
}

/// The part of a receipt that says what a run was asked for (`contract/comment.json`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceiptOfRun {
    /// `phpprof` tells a receipt from another comment.
    #[serde(rename = "phpprof")]
    _version: String,
    asked: Option<AskedOfRun>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AskedOfRun {
    labels: Vec<String>,
    filter: serde_json::Value,
    include_idle: bool,
    only_running: bool,
}

impl RecordedRuns {
    fn of(profile: &Profile) -> Self {
        let mut runs = RecordedRuns {
            only: profile
                .comments()
                .find_map(|it| it.strip_prefix(ONLY))
                .map(str::to_owned),
            ..RecordedRuns::default()
        };
        let receipts = profile.comments().map(serde_json::from_str::<ReceiptOfRun>);
        let receipts: Vec<_> = receipts.filter_map(Result::ok).collect();
        runs.is_complete = !receipts.is_empty() && receipts.iter().all(|it| it.asked.is_some());
        for asked in receipts.into_iter().filter_map(|it| it.asked) {
            runs.filters.insert(asked.kept());
            runs.labels.insert(named(asked.labels));
        }
        runs
    }
}

impl AskedOfRun {
    /// The time and the requests that were kept, as a phrase.
    fn kept(&self) -> String {
        let filter = match &self.filter {
            serde_json::Value::Null => None,
            filter => Some(format!("requests with {filter}")),
        };
        let time = [
            self.include_idle.then_some("time between requests too"),
            self.only_running.then_some("only time on a CPU"),
        ];
        let parts: Vec<String> = filter
            .into_iter()
            .chain(time.into_iter().flatten().map(str::to_owned))
            .collect();
        named(parts)
    }
}

/// A list as words.
fn named(parts: Vec<String>) -> String {
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn chosen_samples(before: &RecordedRuns, after: &RecordedRuns, likeness: &mut Likeness) {
    if before.only != after.only {
        let [one, other] = [before, after].map(|it| it.only.as_deref().unwrap_or("any label"));
        likeness.unlike.push(Unlikeness {
            aspect: Aspect::Labels,
            what: format!("the samples before are those with {one}, after those with {other}"),
            instead: "download both without --label, and compare them with --label".to_owned(),
        });
    }
}

fn recorded(before: &RecordedRuns, after: &RecordedRuns, likeness: &mut Likeness) {
    if !(before.is_complete && after.is_complete) {
        likeness.unchecked.extend([Aspect::Labels, Aspect::Filter]);
        return;
    }
    let mut compare =
        |aspect, one: &BTreeSet<String>, other: &BTreeSet<String>, what, instead: &str| {
            if one != other {
                let [one, other] = [one, other].map(|all| {
                    let all: Vec<&str> = all.iter().map(String::as_str).collect();
                    all.join("; ")
                });
                likeness.unlike.push(Unlikeness {
                    aspect,
                    what: format!("{what} {one} before, {other} after"),
                    instead: instead.to_owned(),
                });
            }
        };
    compare(
        Aspect::Labels,
        &before.labels,
        &after.labels,
        "labels of requests:",
        "record both with the same labels of requests (--labels, spec.labels)",
    );
    compare(
        Aspect::Filter,
        &before.filters,
        &after.filters,
        "filters:",
        "record both with the same filters, and both with or without time between requests",
    );
}

#[cfg(test)]
mod tests;
