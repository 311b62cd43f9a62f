//! The next step of a comparison.
//!
//! Invariant: a comparison that has ended is only deleted, when its time to live is over. Both
//! requests are created in one step, before any is waited for. A template creates none.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{ComparisonReason, ProfileComparison, ProfileRequest, RequestReason};
use phpprof_decide::limits::later;

use crate::comparison::requests::SideName;

/// How long a request that the spec names may be missing: it may be applied after the comparison.
const APPEARS_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// How long the archive is tried.
const ARCHIVE_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// What was seen of the request of a side.
#[derive(Clone, Debug, PartialEq)]
pub enum SideRequest {
    /// The comparison has not created it yet, as far as its status knows.
    NotCreated,
    /// The API server has no such request, or one with another uid.
    Missing,
    /// As the watch has it, or as the archive has its profile.
    There(Box<ProfileRequest>),
    /// The archive has no run that fits; this is why.
    NotStored(String),
    /// The archive could not be read; this is why.
    ArchiveAway(String),
}

/// Why a comparison is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonWords {
    /// In one word.
    pub reason: ComparisonReason,
    /// What was found.
    pub found: String,
}

impl ComparisonWords {
    pub(crate) fn new(reason: ComparisonReason, found: impl Into<String>) -> Self {
        Self {
            reason,
            found: found.into(),
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ComparisonStep {
    /// The time to live is over.
    Delete,
    /// Nothing until then.
    Rest(Timestamp),
    /// A template: nothing until it changes.
    Hold(ComparisonWords),
    /// Create the requests of these sides.
    Create(Vec<SideName>),
    /// Look again soon.
    Wait(ComparisonWords),
    /// Compare the profiles of both requests. Notes belong to the verdict, whatever it is.
    Compare {
        /// The requests, before and after.
        requests: Box<[ProfileRequest; 2]>,
        /// What readers of the verdict have to know of the runs.
        notes: Vec<ComparisonWords>,
    },
    /// End without a verdict, after cancelling what still runs.
    End {
        /// Why.
        why: ComparisonWords,
        /// Created requests that are not finished.
        cancel: Vec<SideName>,
    },
}

/// The next step. `seen` has both sides in order.
#[must_use]
pub fn decide(
    now: Timestamp,
    comparison: &ProfileComparison,
    seen: &[SideRequest; 2],
) -> ComparisonStep {
    let status = comparison.status.clone().unwrap_or_default();
    if let Some(completed) = &status.completion_time {
        let ttl = SignedDuration::from_secs(comparison.spec.ttl_seconds_after_finished.into());
        let expiry = later(completed.0, ttl);
        return if now < expiry {
            ComparisonStep::Rest(expiry)
        } else {
            ComparisonStep::Delete
        };
    }
    let sides = SideName::BOTH.into_iter().zip(seen);
    if comparison.spec.cancel {
        return end(comparison, seen, cancelled());
    }
    if comparison.spec.template {
        return ComparisonStep::Hold(held());
    }
    let started = status.start_time.map_or(now, |it| it.0);
    if let Some(step) = of_archive(now, started, comparison, seen) {
        return step;
    }
    let new = sides.clone().filter(|it| *it.1 == SideRequest::NotCreated);
    let new: Vec<SideName> = new.map(|(side, _)| side).collect();
    if !new.is_empty() {
        return ComparisonStep::Create(new);
    }
    let mut waits = Vec::new();
    for (side, seen_request) in sides {
        match state(comparison, side, seen_request) {
            RequestState::Ended => {}
            RequestState::Waits(words) => waits.push(words),
            RequestState::Missing(why) => {
                if !side.is_created(comparison) && now < later(started, APPEARS_WITHIN) {
                    waits.push(format!("{} yet", why.found));
                } else {
                    return end(comparison, seen, why);
                }
            }
            RequestState::Failed(why) => return end(comparison, seen, why),
        }
    }
    match seen {
        [SideRequest::There(before), SideRequest::There(after)] if waits.is_empty() => {
            ComparisonStep::Compare {
                notes: notes(comparison, [before, after]),
                requests: Box::new([(**before).clone(), (**after).clone()]),
            }
        }
        _ => {
            let reason = ComparisonReason::WaitingForRequests;
            ComparisonStep::Wait(ComparisonWords::new(reason, waits.join("; ")))
        }
    }
}

fn cancelled() -> ComparisonWords {
    let reason = ComparisonReason::ComparisonCancelled;
    ComparisonWords::new(reason, "the comparison was cancelled")
}

fn held() -> ComparisonWords {
    let found = "/verdict of the operator starts comparisons like this one";
    ComparisonWords::new(ComparisonReason::Template, found)
}

/// What to do if a side's stored run is not known. Nothing is profiled before it is.
fn of_archive(
    now: Timestamp,
    started: Timestamp,
    comparison: &ProfileComparison,
    seen: &[SideRequest; 2],
) -> Option<ComparisonStep> {
    let none = seen.iter().find_map(|it| match it {
        SideRequest::NotStored(why) => Some(why),
        _ => None,
    });
    if let Some(why) = none {
        let why = ComparisonWords::new(ComparisonReason::NoStoredRun, why);
        return Some(end(comparison, seen, why));
    }
    let away = seen.iter().find_map(|it| match it {
        SideRequest::ArchiveAway(why) => Some(why),
        _ => None,
    })?;
    let deadline = later(started, ARCHIVE_WITHIN);
    if now >= deadline {
        let why = ComparisonWords::new(ComparisonReason::StoreTimeout, away);
        return Some(end(comparison, seen, why));
    }
    let found = format!("{away}; tried until {deadline:.0}");
    let words = ComparisonWords::new(ComparisonReason::WaitingForStore, found);
    Some(ComparisonStep::Wait(words))
}

/// Until when the store is tried, for requests that ended like this.
#[must_use]
pub fn store_deadline(
    comparison: &ProfileComparison,
    requests: &[ProfileRequest; 2],
    grace: SignedDuration,
) -> Timestamp {
    let ended = requests.iter().filter_map(|request| {
        let status = request.status.as_ref()?;
        status.completion_time.as_ref().map(|it| it.0)
    });
    let status = comparison.status.as_ref();
    let started = status.and_then(|it| it.start_time.as_ref()).map(|it| it.0);
    let from = ended.chain(started).max().unwrap_or(Timestamp::MIN);
    later(from, grace)
}

enum RequestState {
    Waits(String),
    Missing(ComparisonWords),
    Failed(ComparisonWords),
    Ended,
}

fn state(comparison: &ProfileComparison, side: SideName, seen: &SideRequest) -> RequestState {
    let name = side.request_name(comparison);
    let SideRequest::There(request) = seen else {
        let found = format!("request {name} ({}) does not exist", side.words());
        return RequestState::Missing(ComparisonWords::new(
            ComparisonReason::RequestNotFound,
            found,
        ));
    };
    let status = request.status.clone().unwrap_or_default();
    let current = status.conditions.first();
    let (reason, message) = current.map_or(("new", ""), |it| (&it.reason, &it.message));
    let words = match message {
        "" => format!("request {name} ({}) is {reason}", side.words()),
        message => format!("request {name} ({}) is {reason}: {message}", side.words()),
    };
    match (status.completion_time, status.profile) {
        (None, _) => RequestState::Waits(words),
        (Some(_), Some(_)) => RequestState::Ended,
        (Some(_), None) => {
            RequestState::Failed(ComparisonWords::new(ComparisonReason::RequestFailed, words))
        }
    }
}

/// Ends the comparison.
#[must_use]
pub fn end(
    comparison: &ProfileComparison,
    seen: &[SideRequest; 2],
    why: ComparisonWords,
) -> ComparisonStep {
    let runs = |side: &SideName, seen: &SideRequest| {
        side.is_created(comparison)
            && matches!(seen, SideRequest::There(request)
                if request.status.as_ref().is_none_or(|it| it.completion_time.is_none())
                    && !request.spec.cancel)
    };
    let sides = SideName::BOTH.into_iter().zip(seen);
    let cancel = sides.filter(|(side, seen)| runs(side, seen));
    ComparisonStep::End {
        why,
        cancel: cancel.map(|(side, _)| side).collect(),
    }
}

fn notes(comparison: &ProfileComparison, requests: [&ProfileRequest; 2]) -> Vec<ComparisonWords> {
    let mut notes = Vec::new();
    for request in requests {
        let status = request.status.as_ref();
        let current = status.and_then(|it| it.conditions.first());
        let incomplete = current.filter(|it| it.reason != RequestReason::Complete.to_string());
        if let Some(current) = incomplete {
            let (name, reason) = (request.name_any(), &current.reason);
            let found = format!("request {name} ended with {reason}: {}", current.message);
            let reason = ComparisonReason::RequestIncomplete;
            notes.push(ComparisonWords::new(reason, found));
        }
    }
    if SideName::BOTH
        .iter()
        .all(|side| side.is_created(comparison))
    {
        let starts = requests.map(|it| it.status.as_ref()?.start_time.as_ref().map(|it| it.0));
        if let [Some(before), Some(after)] = starts {
            let apart = after.duration_since(before).abs();
            let half = SignedDuration::from_secs(i64::from(comparison.spec.duration()) / 2);
            if apart > half {
                let apart = apart.as_secs();
                let found = format!("the runs began {apart} s apart");
                notes.push(ComparisonWords::new(ComparisonReason::RunsApart, found));
            }
        }
    }
    notes
}
