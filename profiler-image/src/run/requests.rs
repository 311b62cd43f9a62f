//! Which request a sample belongs to, and what happens to the sample: summed under the request's labels, kept until the request is old
//! enough, or dropped by the filter.
//!
//! A request is read once, when a sample first shows it. Invariant: a sample whose request is not certain has no labels, is dropped if
//! there is a filter, and is counted.

use phpprof_zend::request::{Request, Source};

use super::aggregate::{Aggregate, Labelled, Sum};
use super::recorder::Of;
use super::time::{SECOND, unix_now};
use crate::read::reader::Reader;
use crate::read::request_watch::Seen;
use crate::request::asked::{Asked, Label, Verdict, shown_script};
use crate::request::values::{Set, SetId, Table, Values};
use crate::stack::trace::Stack;
use rustc_hash::FxHashMap;

/// Distinct stacks of a young request that are kept for a worker.
const MAX_YOUNG: usize = 256;
/// Ages below which a band ends, in nanoseconds, and its name; what is older has the last one.
const BANDS: [(u64, &str); 5] = [
    (SECOND / 20, "<50ms"),
    (SECOND / 5, "<200ms"),
    (SECOND, "<1s"),
    (5 * SECOND, "<5s"),
    (u64::MAX, ">=5s"),
];

/// What became of requests and samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests that were seen,
    pub requests: u64,
    /// and how often one was read: not where it is equal to the one before.
    pub reads: u64,
    /// Samples whose request is not known: it is not where the SAPI should have it,
    pub unknown: u64,
    /// or it changed while it was read.
    pub changed: u64,
    /// Samples that the filter dropped: by what their request is, by its age, and because that is not known.
    pub filtered: u64,
    /// Samples that the filter dropped by the age of their request.
    pub young: u64,
    /// Samples that the filter dropped because what it asks for is not known.
    pub undecided: u64,
}

/// What a profile says of requests.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The values of labels by their numbers.
    pub table: Table,
    /// What became of requests and samples.
    pub counts: RequestCounts,
    /// Labels were asked for.
    pub has_labels: bool,
    /// A filter was.
    pub has_filter: bool,
}

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// With the number of its request; 0 is none.
    Summed(u32, Labelled),
    /// Kept until the request of this number of the worker is old enough.
    Young(u32, Labelled),
    /// By the filter.
    Dropped,
}

impl Fate {
    /// The number of its request.
    #[must_use]
    pub fn request(self) -> Option<u32> {
        match self {
            Self::Summed(number, _) | Self::Young(number, _) => Some(number).filter(|it| *it > 0),
            Self::Dropped => None,
        }
    }
}

/// The requests of a worker.
#[derive(Debug, Default)]
pub struct Served {
    /// Which request of the run it serves, or has served last; 0 is none.
    number: u32,
    /// The request that is served now, where it is known.
    current: Option<Current>,
    /// What the last request was that was read: an equal one is not read again.
    last: Option<Known>,
    /// When it was idle last: nanoseconds of the monotonic clock.
    idle_at: Option<u64>,
    /// What a request did before it was old enough, and whose it is.
    young: FxHashMap<Labelled, Sum>,
    young_of: u32,
    /// The number of the last request that was old enough.
    old: u32,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    values: Set,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy)]
struct Current {
    known: Known,
    /// When it began, or was seen first; `None` where nothing tells a request's end.
    began: Option<u64>,
}

/// What is known of requests in a run.
#[derive(Debug, Default)]
pub struct Requests {
    asked: Asked,
    values: Values,
    bands: [u16; BANDS.len()],
    /// So far.
    pub counts: RequestCounts,
}

impl Requests {
    /// A run that is asked so.
    #[must_use]
    pub fn new(asked: &Asked) -> Self {
        Self {
            asked: asked.clone(),
            ..Self::default()
        }
    }

    /// What it is asked for.
    #[must_use]
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// What a profile says of it; `None` where nothing was asked for.
    #[must_use]
    pub fn told(&self) -> Option<Told> {
        self.asked.is_on().then(|| Told {
            table: self.values.table.clone(),
            counts: self.counts,
            has_labels: self.asked.labels.contains(&true),
            has_filter: self.asked.filter.is_on(),
        })
    }

    /// Looks which request the reads of a worker's last sample have shown, at this time; whether it is certain.
    pub fn look(&mut self, served: &mut Served, reader: &mut Reader, now: u64) -> bool {
        let Some(watch) = &mut reader.request else {
            return true;
        };
        let source = watch.source();
        let time = watch.request_time().filter(|_| source != Source::Iteration);
        let began = time.and_then(|time| monotonic(time, now));
        // A time before the worker's last wait is of a request before, or of the script that handles them all.
        let began = began.filter(|began| served.idle_at.is_none_or(|idle| *began >= idle));
        match watch.seen() {
            Seen::Same => match (&mut served.current, served.last) {
                (Some(current), _) => {
                    current.began = current.began.map(|seen| began.unwrap_or(seen).min(seen));
                }
                (None, Some(known)) if source != Source::Iteration => {
                    self.end_young(served);
                    let number = self.next();
                    served.begin(number, known, source, began.unwrap_or(now));
                }
                // `$_SERVER` is still that of the iteration before.
                (None, _) => {}
            },
            Seen::Other => {
                (served.current, served.last) = (None, None);
                self.counts.reads += 1;
                let Ok(request) = watch.read(&*reader.memory) else {
                    self.counts.changed += 1;
                    return false;
                };
                if let Some(request) = request {
                    self.begin(served, &request, (source, began), now);
                }
            }
            Seen::Changing => {
                served.current = None;
                self.counts.changed += 1;
                return false;
            }
        }
        true
    }

    /// A request was read for the first time; `began` is when it began, where its time is known.
    fn begin(
        &mut self,
        served: &mut Served,
        request: &Request,
        (source, began): (Source, Option<u64>),
        now: u64,
    ) {
        let known = self.known(request);
        served.last = Some(known);
        let began = match source {
            // One that began before the last wait is that of the iteration before.
            Source::Iteration => request
                .began
                .and_then(|time| monotonic(time, now))
                .filter(|began| served.idle_at.is_some_and(|idle| *began >= idle)),
            _ => Some(began.unwrap_or(now)),
        };
        if let Some(began) = began {
            self.end_young(served);
            let number = self.next();
            served.begin(number, known, source, began);
        }
    }

    /// Counts a request; gives its number.
    fn next(&mut self) -> u32 {
        self.counts.requests += 1;
        // After four billion they begin anew.
        (self.counts.requests as u32).max(1)
    }

    /// The worker waits for a request.
    pub fn idle(&mut self, served: &mut Served, now: u64) {
        served.current = None;
        served.idle_at = Some(now);
        self.end_young(served);
    }

    /// What becomes of a sample of this stack. `is_certain` says that its request is the one that is served.
    pub fn fate(&mut self, served: &mut Served, stack: Stack, now: u64, is_certain: bool) -> Fate {
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
            (Verdict::Refused, _, _) => {
                self.counts.filtered += 1;
                return Fate::Dropped;
            }
            (Verdict::Unknown, _, _) | (Verdict::Kept, Some(_), None) => {
                self.counts.undecided += 1;
                return Fate::Dropped;
            }
            (Verdict::Kept, _, _) => {}
        }
        let labels = self.labels(&current, age);
        let labelled = Labelled { stack, labels };
        match (min_age, age) {
            (Some(min), Some(age)) if u128::from(age) < min.as_nanos() => {
                if include_young {
                    return Fate::Young(served.number, labelled);
                }
                self.counts.young += 1;
                Fate::Dropped
            }
            _ => {
                served.old = served.number;
                Fate::Summed(served.number, labelled)
            }
        }
    }

    /// Keeps a sample of a young request; whether there was room for it.
    pub fn keep_young(
        &mut self,
        served: &mut Served,
        number: u32,
        sample: Labelled,
        sum: Sum,
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

    /// Adds what a request did before it was old enough, now that it is.
    pub fn release_young(&mut self, served: &mut Served, tid: i32, aggregate: &mut Aggregate) {
        if served.young_of == served.number {
            for (sample, sum) in served.young.drain() {
                aggregate.merge(sample, tid, sum);
            }
        }
    }

    /// Drops what a request did that never was old enough.
    fn end_young(&mut self, served: &mut Served) {
        let samples: i64 = served.young.values().map(|sum| sum.samples).sum();
        self.counts.young += u64::try_from(samples).unwrap_or(0);
        served.young.clear();
    }

    fn known(&mut self, request: &Request) -> Known {
        let asked = &self.asked;
        let script = request.script.as_deref();
        let script = script.map(|script| shown_script(script, request.root.as_deref()));
        let verdict = asked.filter.verdict(request, script.as_deref());
        let route = request.path.as_deref().map(|path| asked.rules.route(path));
        let values = [
            (Label::Method, request.method.as_deref()),
            (Label::Route, route.as_deref()),
            (Label::Script, script.as_deref()),
            (Label::TraceId, request.trace_id.as_deref()),
        ];
        let mut set = Set::default();
        // What is dropped shall take no places.
        for (label, value) in values.into_iter().filter(|_| verdict == Verdict::Kept) {
            if let Some(value) = value.filter(|_| self.asked.has(label)) {
                set[label as usize] = self.values.number(label, value);
            }
        }
        Known {
            values: set,
            verdict,
        }
    }

    /// The set of a request's labels at an age.
    fn labels(&mut self, current: &Current, age: Option<u64>) -> SetId {
        let mut set = current.known.values;
        if let Some(age) = age.filter(|_| self.asked.has(Label::RequestAge)) {
            let band = BANDS.iter().position(|(end, _)| age < *end);
            let band = band.unwrap_or(BANDS.len() - 1);
            if self.bands[band] == 0 {
                self.bands[band] = self.values.number(Label::RequestAge, BANDS[band].1);
            }
            set[Label::RequestAge as usize] = self.bands[band];
        }
        self.values.set(set)
    }
}

impl Served {
    /// Which request it serves, or has served last; 0 is none.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The request of a sample that was given this fate.
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

    fn begin(&mut self, number: u32, known: Known, source: Source, began: u64) {
        self.number = number;
        self.current = Some(Current {
            known,
            began: (source != Source::Script).then_some(began),
        });
    }

    /// Where it goes what has become known later of a sample that was given this fate: its CPU time, and what the heap did.
    pub fn give(&mut self, fate: Fate, tid: i32, more: Sum, aggregate: &mut Aggregate) {
        match fate {
            Fate::Summed(_, sample) => aggregate.merge(sample, tid, more),
            Fate::Young(number, sample) if number == self.old => {
                aggregate.merge(sample, tid, more);
            }
            Fate::Young(number, sample) if number == self.young_of => {
                if let Some(sum) = self.young.get_mut(&sample) {
                    sum.add(more);
                }
            }
            Fate::Young(..) | Fate::Dropped => {}
        }
    }
}

/// A Unix time in seconds on the monotonic clock, now being this; `None` where it lies ahead.
fn monotonic(time: f64, now: u64) -> Option<u64> {
    let age = unix_now() - time;
    // The clock may have been set by a little since.
    if !(-0.01..1e9).contains(&age) {
        return None;
    }
    let age = (age.max(0.0) * 1e9) as u64;
    Some(now.saturating_sub(age))
}

#[cfg(test)]
mod tests;
