//! Which request a sample belongs to: the current one, or another one, which then gets a number.
//!
//! A request keeps its number when a read fails, when its reads differ, and when `$_SERVER` is
//! built, so far as it can be recognised: by the engine's time, which no other request of the
//! worker has, or by the words that led to it.
//! Invariant: two requests have one number only if nothing tells them apart: the engine's time is
//! not set, their words are equal, and no sample was between them.

use phpprof_zend::request::RequestSource;

use super::{RequestEntry, RunRequests, Served};
use crate::read::reader::Reader;
use crate::read::request_watch::{FoundRequest, RequestSeen};
use crate::request::asked::FilterVerdict;
use crate::run::time::unix_now;

#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentRequest {
    pub known: RequestEntry,
    /// When it began, or was first seen; `None` if a request's end cannot be detected.
    pub began: Option<u64>,
    /// The engine's time of it, once that is known: no other request of the worker has the same.
    time: Option<Time>,
}

/// `SG(global_request_time)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    /// Its bits.
    bits: u64,
    /// The same time by the monotonic clock, about.
    at: u64,
}

impl CurrentRequest {
    /// A sample shows it again, at this time of the engine.
    fn goes_on(&mut self, time: Option<Time>) {
        self.time = time.or(self.time);
        self.began = self
            .began
            .map(|seen| time.map_or(seen, |time| time.at.min(seen)));
    }

    /// Whether it has this time of the engine.
    fn has(&self, time: Option<Time>) -> bool {
        let bits = |time: Option<Time>| time.map(|time| time.bits);
        time.is_some() && bits(self.time) == bits(time)
    }

    /// What is known of it if this is its newest read, unless that contradicts what was known:
    /// `$_SERVER` may be built late, and php-fpm forgets the script before the request ends.
    fn known_with(&self, mut now: RequestEntry) -> Option<RequestEntry> {
        for (new, old) in now.values.iter_mut().zip(self.known.values) {
            match (*new, old) {
                (_, 0) => {}
                (0, old) => *new = old,
                (new, old) if new == old => {}
                _ => return None,
            }
        }
        if now.verdict == FilterVerdict::Unknown {
            now.verdict = self.known.verdict;
        }
        Some(now)
    }
}

impl RunRequests {
    /// Determines which request the reads of a worker's last sample showed; returns whether it is
    /// certain.
    pub fn look(&mut self, served: &mut Served, reader: &mut Reader, now: u64) -> bool {
        let Some(watch) = &mut reader.request else {
            return true;
        };
        let source = watch.source();
        let seconds = watch
            .request_time()
            .filter(|_| source != RequestSource::Iteration);
        let time = seconds.and_then(|seconds| {
            let (bits, at) = (seconds.to_bits(), monotonic(seconds, now)?);
            Some(Time { bits, at })
        });
        // A time before the worker's last wait belongs to an earlier request, or to the script that
        // handles all of them.
        let time = time.filter(|time| served.idle_at.is_none_or(|idle| time.at >= idle));
        match watch.seen() {
            RequestSeen::Same => match (&mut served.current, served.last) {
                (Some(current), _) => current.goes_on(time),
                (None, Some(known)) if source != RequestSource::Iteration => {
                    let began = time.map_or(now, |time| time.at);
                    self.begin(served, known, source, time, began);
                }
                // `$_SERVER` still belongs to the iteration before.
                (None, _) => {}
            },
            RequestSeen::Other => {
                served.last = None;
                self.counts.reads += 1;
                let Ok(found) = watch.read(&**reader.memory.memory()) else {
                    self.counts.changed += 1;
                    served.doubt();
                    return false;
                };
                let before = served.current.take();
                if let Some(found) = found {
                    self.found(served, before, &found, source, time, now);
                }
            }
            RequestSeen::Changing => {
                self.counts.changed += 1;
                served.doubt();
                return false;
            }
            RequestSeen::Nothing => {
                self.counts.changed += 1;
                return false;
            }
        }
        true
    }

    /// A request was read: another one, or the one from before.
    fn found(
        &mut self,
        served: &mut Served,
        before: Option<CurrentRequest>,
        found: &FoundRequest,
        source: RequestSource,
        time: Option<Time>,
        now: u64,
    ) {
        let known = self.known(&found.request);
        served.last = Some(known);
        let same = before.filter(|current| found.is_again || current.has(time));
        let same = same.and_then(|current| Some((current, current.known_with(known)?)));
        if let Some((mut current, known)) = same {
            current.known = known;
            current.goes_on(time);
            served.current = Some(current);
            return;
        }
        let began = match source {
            // A request that began before the last wait is that of the iteration before.
            RequestSource::Iteration => found
                .request
                .began
                .and_then(|time| monotonic(time, now))
                .filter(|began| served.idle_at.is_some_and(|idle| *began >= idle)),
            _ => Some(time.map_or(now, |time| time.at)),
        };
        if let Some(began) = began {
            self.begin(served, known, source, time, began);
        }
    }

    /// The worker serves another request.
    pub(super) fn begin(
        &mut self,
        served: &mut Served,
        known: RequestEntry,
        source: RequestSource,
        time: Option<Time>,
        began: u64,
    ) {
        self.end_young(served);
        served.number = self.next();
        served.current = Some(CurrentRequest {
            known,
            began: (source != RequestSource::Script).then_some(began),
            time,
        });
    }

    /// Counts a request; returns its number.
    fn next(&mut self) -> u32 {
        self.counts.requests += 1;
        // After four billion requests the numbers begin again.
        (self.counts.requests as u32).max(1)
    }
}

impl Served {
    /// The request may have changed. If it is seen again, only the engine's time tells it from an
    /// equal one.
    fn doubt(&mut self) {
        self.current = self.current.filter(|current| current.time.is_some());
    }
}

/// Converts a Unix time in seconds to the monotonic clock, whose current value is `now`; `None` if
/// it is in the future.
fn monotonic(time: f64, now: u64) -> Option<u64> {
    let age = unix_now() - time;
    // The clock may have been adjusted slightly since.
    if !(-0.01..1e9).contains(&age) {
        return None;
    }
    let age = (age.max(0.0) * 1e9) as u64;
    Some(now.saturating_sub(age))
}
