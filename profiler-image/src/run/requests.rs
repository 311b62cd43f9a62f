//! Which request a sample belongs to, and what happens to the sample: summed under the request's
//! labels, kept until the request is old enough, or dropped by the filter.
//!
//! A request is read once, when a sample first shows it, in at most eight gathers; without labels
//! and a filter, nothing of it is read.
//! Invariant: a sample whose request is not certain has no labels, is dropped if there is a filter,
//! and is counted.

mod look;

use std::collections::BTreeSet;

use phpprof_zend::request::HttpRequest;

use super::aggregate::{Aggregate, Labelled, StackSum};
use super::recorder::Of;
use super::time::SECOND;
use crate::read::wait_shares::WaitShare;
use crate::request::asked::{FilterVerdict, RequestSettings, SampleLabel, shown_script};
use crate::request::values::{RequestValues, Set, SetId, ValueTable};
use crate::stack::trace::SummedStack;
use crate::target::process::held::Held;
use look::CurrentRequest;
use rustc_hash::FxHashMap;

/// The largest number of distinct stacks of a young request that are kept for a worker.
const MAX_YOUNG: usize = 256;
/// How many document roots are remembered.
const MAX_ROOTS: usize = 16;
/// The upper limits of the age bands, in nanoseconds, and their names; older requests have the last
/// name.
const BANDS: [(u64, &str); 5] = [
    (SECOND / 20, "<50ms"),
    (SECOND / 5, "<200ms"),
    (SECOND, "<1s"),
    (5 * SECOND, "<5s"),
    (u64::MAX, ">=5s"),
];

/// The counts of requests and samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests that were seen.
    pub requests: u64,
    /// How often a request was read. It is not read if it equals the one before.
    pub reads: u64,
    /// Samples whose request is unknown: it is not where the SAPI should have it.
    pub unknown: u64,
    /// Samples whose request changed while it was read.
    pub changed: u64,
    /// Samples that the filter dropped because their request does not match.
    pub filtered: u64,
    /// Samples that the filter dropped because of the age of their request.
    pub young: u64,
    /// Samples that the filter dropped because a property that it needs is unknown.
    pub undecided: u64,
}

/// A profile's data about requests.
#[derive(Debug, Clone, Default)]
pub struct RequestReport {
    /// The values of labels by their numbers.
    pub table: ValueTable,
    /// The counts of requests and samples.
    pub counts: RequestCounts,
    /// Document roots of the requests.
    pub document_roots: Vec<String>,
    /// Whether labels were requested.
    pub has_labels: bool,
    /// Whether a filter was requested.
    pub has_filter: bool,
}

/// The fate of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Summed, with the number of its request; 0 means none.
    Summed(u32, Labelled),
    /// Kept until the request of this number of the worker is old enough.
    Young(u32, Labelled),
    /// Dropped: by the filter, or because it slept.
    Dropped,
    /// Left out: the worker was between two requests.
    Idle,
}

impl Fate {
    /// The number of its request.
    #[must_use]
    pub fn request(self) -> Option<u32> {
        match self {
            Self::Summed(number, _) | Self::Young(number, _) => Some(number).filter(|it| *it > 0),
            Self::Dropped | Self::Idle => None,
        }
    }

    /// The same, of a worker that is held like this.
    #[must_use]
    pub fn held(mut self, by: Held) -> Self {
        if let Self::Summed(_, sample) | Self::Young(_, sample) = &mut self {
            sample.held = by;
        }
        self
    }

    /// The fate of a sample once it is decided whether the samples of a young request are kept.
    #[must_use]
    pub fn decided(self, is_kept: bool) -> Self {
        match self {
            Self::Young(number, sample) if is_kept => Self::Summed(number, sample),
            Self::Young(..) => Self::Dropped,
            other => other,
        }
    }
}

/// The requests of a worker.
#[derive(Debug, Default)]
pub struct Served {
    /// The number of the current or last request; 0 means none.
    number: u32,
    /// The current request, if it is known.
    current: Option<CurrentRequest>,
    /// The last request that was read: an equal one is not read again.
    last: Option<RequestEntry>,
    /// When the worker was last idle: nanoseconds of the monotonic clock.
    idle_at: Option<u64>,
    /// The samples of a request before it was old enough, and its number; 0 means none.
    young: FxHashMap<Labelled, StackSum>,
    young_of: u32,
    /// Whether they were kept in the end, until [`Served::decided`] tells it.
    is_kept: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
struct RequestEntry {
    values: Set,
    verdict: FilterVerdict,
}

/// All known requests of a run.
#[derive(Debug, Default)]
pub struct RunRequests {
    asked: RequestSettings,
    values: RequestValues,
    bands: [u16; BANDS.len()],
    roots: BTreeSet<String>,
    /// The counts so far.
    pub counts: RequestCounts,
}

impl RunRequests {
    /// The requests of a run with these options.
    #[must_use]
    pub fn new(asked: &RequestSettings) -> Self {
        Self {
            asked: asked.clone(),
            ..Self::default()
        }
    }

    /// The options.
    #[must_use]
    pub fn asked(&self) -> &RequestSettings {
        &self.asked
    }

    /// A profile's data about requests; `None` if nothing was requested.
    #[must_use]
    pub fn told(&self) -> Option<RequestReport> {
        self.asked.is_on().then(|| RequestReport {
            table: self.values.table.clone(),
            counts: self.counts,
            document_roots: self.roots.iter().cloned().collect(),
            has_labels: self.asked.labels.contains(&true),
            has_filter: self.asked.filter.is_on(),
        })
    }

    /// Notes that the worker waits for a request.
    pub fn idle(&mut self, served: &mut Served, now: u64) {
        served.current = None;
        served.idle_at = Some(now);
        self.end_young(served);
    }

    /// The fate of a sample of this stack. `is_certain` tells that its request is the current one.
    pub fn fate(
        &mut self,
        served: &mut Served,
        stack: SummedStack,
        now: u64,
        is_certain: bool,
    ) -> Fate {
        if !self.asked.is_on() {
            return Fate::Summed(0, stack.into());
        }
        let filter = &self.asked.filter;
        let is_filtered = filter.is_on();
        let current = served.current.filter(|_| is_certain);
        let Some(current) = current else {
            self.counts.unknown += u64::from(is_certain);
            if is_filtered {
                self.counts.undecided += 1;
                return Fate::Dropped;
            }
            return Fate::Summed(0, stack.into());
        };
        let (min_age, include_young) = (filter.min_age, filter.include_young);
        let age = current.began.map(|began| now.saturating_sub(began));
        match (current.known.verdict, min_age, age) {
            (FilterVerdict::Refused, _, _) => {
                self.counts.filtered += 1;
                return Fate::Dropped;
            }
            (FilterVerdict::Unknown, _, _) | (FilterVerdict::Kept, Some(_), None) => {
                self.counts.undecided += 1;
                return Fate::Dropped;
            }
            (FilterVerdict::Kept, _, _) => {}
        }
        let labels = self.labels(&current, age);
        let labelled = Labelled {
            labels,
            ..stack.into()
        };
        match (min_age, age) {
            (Some(min), Some(age)) if u128::from(age) < min.as_nanos() => {
                if include_young {
                    return Fate::Young(served.number, labelled);
                }
                self.counts.young += 1;
                Fate::Dropped
            }
            _ => Fate::Summed(served.number, labelled),
        }
    }

    /// Keeps a sample of a young request; returns whether there was room.
    pub fn keep_young(
        &mut self,
        served: &mut Served,
        number: u32,
        sample: Labelled,
        sum: StackSum,
    ) -> bool {
        if served.young_of != number {
            self.end_young(served);
            served.young_of = number;
        }
        let has_room = served.young.len() < MAX_YOUNG || served.young.contains_key(&sample);
        if has_room {
            served.young.entry(sample).or_default().add(sum);
        } else {
            self.counts.young += u64::try_from(sum.samples).unwrap_or(0);
        }
        has_room
    }

    /// Adds the earlier samples of a request that is now old enough.
    pub fn release_young(&mut self, served: &mut Served, tid: i32, aggregate: &mut Aggregate) {
        if served.young_of == 0 || served.young_of != served.number {
            return;
        }
        for (sample, sum) in served.young.drain() {
            aggregate.merge(sample, tid, sum);
        }
        (served.young_of, served.is_kept) = (0, Some(true));
    }

    /// Drops the samples of a request that never was old enough.
    fn end_young(&mut self, served: &mut Served) {
        if served.young_of == 0 {
            return;
        }
        let samples: i64 = served.young.values().map(|sum| sum.samples).sum();
        self.counts.young += u64::try_from(samples).unwrap_or(0);
        served.young.clear();
        (served.young_of, served.is_kept) = (0, Some(false));
    }

    fn known(&mut self, request: &HttpRequest) -> RequestEntry {
        let asked = &self.asked;
        let script = request.script.as_deref();
        let script = script.map(|script| shown_script(script, request.root.as_deref()));
        let verdict = asked.filter.verdict(request, script.as_deref());
        if let Some(root) = &request.root
            && verdict == FilterVerdict::Kept
            && self.roots.len() < MAX_ROOTS
            && !self.roots.contains(root)
        {
            self.roots.insert(root.clone());
        }
        let route = request.path.as_deref().map(|path| asked.rules.route(path));
        let values = [
            (SampleLabel::Method, request.method.as_deref()),
            (SampleLabel::Route, route.as_deref()),
            (SampleLabel::Script, script.as_deref()),
            (SampleLabel::TraceId, request.trace.as_deref()),
        ];
        let mut set = Set::default();
        // Values of dropped requests take no room.
        for (label, value) in values
            .into_iter()
            .filter(|_| verdict == FilterVerdict::Kept)
        {
            if let Some(value) = value.filter(|_| self.asked.has(label)) {
                set[label as usize] = self.values.number(label, value);
            }
        }
        RequestEntry {
            values: set,
            verdict,
        }
    }

    /// The set of a request's labels at an age.
    fn labels(&mut self, current: &CurrentRequest, age: Option<u64>) -> SetId {
        let mut set = current.known.values;
        if let Some(age) = age.filter(|_| self.asked.has(SampleLabel::RequestAge)) {
            let band = BANDS.iter().position(|(end, _)| age < *end);
            let band = band.unwrap_or(BANDS.len() - 1);
            if self.bands[band] == 0 {
                self.bands[band] = self.values.number(SampleLabel::RequestAge, BANDS[band].1);
            }
            set[SampleLabel::RequestAge as usize] = self.bands[band];
        }
        self.values.set(set)
    }
}

impl Served {
    /// The number of the current or last request; 0 means none.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The request of a sample with this fate.
    #[must_use]
    pub fn of(&self, fate: Fate) -> Option<Of> {
        let number = fate.request()?;
        let current = self.current.as_ref()?;
        Some(Of {
            number,
            began: current.began,
            values: current.known.values,
            is_young: matches!(fate, Fate::Young(..)),
        })
    }

    /// Whether the samples of the last young request are kept, if that was decided since the last
    /// call. Until its samples that wait elsewhere have this fate ([`Fate::decided`]), nothing may
    /// be given to them.
    pub fn decided(&mut self) -> Option<bool> {
        self.is_kept.take()
    }

    /// Adds what has become known later of a sample with this fate: its CPU time, and its heap.
    pub fn give(&mut self, fate: Fate, tid: i32, more: StackSum, aggregate: &mut Aggregate) {
        match fate {
            Fate::Summed(_, sample) => aggregate.merge(sample, tid, more),
            Fate::Young(_, sample) => {
                if let Some(sum) = self.young.get_mut(&sample) {
                    sum.add(more);
                }
            }
            Fate::Dropped | Fate::Idle => {}
        }
    }

    /// Moves what a sample with this fate has waited for a CPU to the stack with that label, unless
    /// something else held the worker. Without room for that among young samples, it stays.
    pub fn label_wait(
        &mut self,
        fate: Fate,
        tid: i32,
        share: WaitShare,
        aggregate: &mut Aggregate,
    ) {
        let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let waited = StackSum {
            samples: signed(share.samples),
            wall_nanoseconds: signed(share.wall),
            ..StackSum::default()
        };
        let less = StackSum {
            samples: -waited.samples,
            wall_nanoseconds: -waited.wall_nanoseconds,
            ..StackSum::default()
        };
        let labelled = |sample| Labelled {
            held: Held::Cpu,
            ..sample
        };
        match fate {
            Fate::Summed(_, sample) if sample.held == Held::No => {
                aggregate.merge(sample, tid, less);
                aggregate.merge(labelled(sample), tid, waited);
            }
            Fate::Young(_, sample) if sample.held == Held::No => {
                let to = labelled(sample);
                let has_room = self.young.len() < MAX_YOUNG || self.young.contains_key(&to);
                if let Some(sum) = self.young.get_mut(&sample).filter(|_| has_room) {
                    sum.add(less);
                    self.young.entry(to).or_default().add(waited);
                }
            }
            Fate::Summed(..) | Fate::Young(..) | Fate::Dropped | Fate::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests;
