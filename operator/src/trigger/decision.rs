//! What a trigger does with alerts: which start a request, and why the others do not.
//!
//! Invariant: whatever the alerts are, no more requests are planned than the limit allows together
//! with those in the status, and an alert that is there is not planned under another name.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use phpprof_crds::{ProfileTrigger, SeenAlert, TriggerReason, TriggeredRequest};
use phpprof_decide::limits::later;

use crate::sampler::receipt::printable;
use crate::trigger::alerts::FiringAlert;
use crate::trigger::requests::request_name;

/// The requests that a status has. The schema of `limit.requests` allows no more.
pub const REMEMBERED: usize = 50;
/// Characters of an alert's name in a status.
const LONGEST_NAME: usize = 128;

/// Why a trigger has fired, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerWords {
    /// In one word.
    pub reason: TriggerReason,
    /// What was found.
    pub found: String,
}

impl TriggerWords {
    pub(crate) fn new(reason: TriggerReason, found: impl Into<String>) -> Self {
        Self {
            reason,
            found: found.into(),
        }
    }
}

/// What to do with the alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FiringPlan {
    /// Requests to create, by name. They are in `requests`.
    pub create: Vec<String>,
    /// The requests of the status, to be written before any is created.
    pub requests: Vec<TriggeredRequest>,
    /// Firing alerts with the labels.
    pub alerts: usize,
    /// Of these, those whose request exists.
    pub repeated: usize,
    /// Of these, those that start none.
    pub not_fired: usize,
    /// The last of them.
    pub last: Option<SeenAlert>,
    /// Why the first of those that start none does not. If no alert has the labels, why none has.
    pub why: Option<TriggerWords>,
}

/// What becomes of one alert.
enum AlertFate {
    /// A request is created; it is not in the status yet.
    New(String),
    /// It is in the status, but not known to exist.
    Again(String),
    Repeated,
    Not(TriggerWords),
}

/// Decides about the alerts of one payload. `halt` says that profiling is stopped, and by whom.
#[must_use]
pub fn decide(
    now: Timestamp,
    trigger: &ProfileTrigger,
    halt: Option<&str>,
    alerts: &[FiringAlert],
) -> FiringPlan {
    let status = trigger.status.as_ref();
    let mut plan = FiringPlan {
        requests: status.map(|it| it.requests.clone()).unwrap_or_default(),
        ..FiringPlan::default()
    };
    for alert in alerts
        .iter()
        .filter(|alert| lacks(trigger, alert).is_none())
    {
        plan.alerts += 1;
        plan.last = Some(SeenAlert {
            name: printable(alert.name(), LONGEST_NAME),
            fingerprint: alert.fingerprint.clone(),
            starts_at: Time(alert.starts_at),
            time: Time(now),
        });
        match fate(now, trigger, halt, alert, &plan) {
            AlertFate::New(name) => {
                plan.create.push(name.clone());
                plan.requests.insert(0, planned(name, alert, now));
                plan.requests.truncate(REMEMBERED);
            }
            AlertFate::Again(name) => plan.create.push(name),
            AlertFate::Repeated => plan.repeated += 1,
            AlertFate::Not(words) => {
                plan.not_fired += 1;
                plan.why.get_or_insert(words);
            }
        }
    }
    if plan.alerts == 0 && !alerts.is_empty() {
        plan.why = Some(none_matched(trigger, alerts));
    }
    plan
}

fn planned(name: String, alert: &FiringAlert, now: Timestamp) -> TriggeredRequest {
    TriggeredRequest {
        name,
        request_uid: String::new(),
        fingerprint: alert.fingerprint.clone(),
        starts_at: Time(alert.starts_at),
        time: Time(now),
    }
}

fn fate(
    now: Timestamp,
    trigger: &ProfileTrigger,
    halt: Option<&str>,
    alert: &FiringAlert,
    plan: &FiringPlan,
) -> AlertFate {
    let name = request_name(trigger, alert);
    let known = plan.requests.iter().find(|it| it.name == name);
    let is_planned = plan.create.contains(&name);
    if is_planned || known.is_some_and(|it| !it.request_uid.is_empty()) {
        return AlertFate::Repeated;
    }
    if trigger.spec.suspend {
        let found = "the trigger is suspended";
        return AlertFate::Not(TriggerWords::new(TriggerReason::TriggerSuspended, found));
    }
    if let Some(halt) = halt {
        return AlertFate::Not(TriggerWords::new(TriggerReason::ProfilingStopped, halt));
    }
    if known.is_some() {
        return AlertFate::Again(name);
    }
    match paused(now, trigger, &plan.requests) {
        Some(words) => AlertFate::Not(words),
        None => AlertFate::New(name),
    }
}

/// Why no new request is created now, if it is so. The requests are those of the status, the newest
/// first.
fn paused(
    now: Timestamp,
    trigger: &ProfileTrigger,
    requests: &[TriggeredRequest],
) -> Option<TriggerWords> {
    let spec = &trigger.spec;
    let after = |request: &TriggeredRequest, seconds: i32| {
        later(request.time.0, SignedDuration::from_secs(seconds.into()))
    };
    let newest = requests.first().map(|it| after(it, spec.back_off_seconds));
    if let Some(until) = newest.filter(|until| now < *until) {
        let found = format!("no other request is created until {until:.0}");
        return Some(TriggerWords::new(TriggerReason::BackingOff, found));
    }
    let most = usize::try_from(spec.limit.requests)
        .unwrap_or(1)
        .clamp(1, REMEMBERED);
    let window = spec.limit.window_seconds;
    let oldest = requests.get(most - 1).map(|it| after(it, window));
    let until = oldest.filter(|until| now < *until)?;
    let found = format!("{most} requests within {window} s; no other one until {until:.0}");
    Some(TriggerWords::new(TriggerReason::LimitReached, found))
}

/// The first label of the condition that an alert does not have.
fn lacks<'a>(trigger: &'a ProfileTrigger, alert: &FiringAlert) -> Option<(&'a str, &'a str)> {
    let Some(condition) = &trigger.spec.when.alert else {
        // A condition that this operator does not know.
        return Some(("", ""));
    };
    let lacking = |label: &(&String, &String)| alert.labels.get(label.0) != Some(label.1);
    let labels = condition.match_labels.iter();
    let mut missing = labels
        .filter(lacking)
        .map(|(name, value)| (name.as_str(), value.as_str()));
    missing.next()
}

/// Names a label of the trigger, and nothing of the alerts: they may be of other teams.
fn none_matched(trigger: &ProfileTrigger, alerts: &[FiringAlert]) -> TriggerWords {
    let count = alerts.len();
    let first = alerts.iter().find_map(|alert| lacks(trigger, alert));
    let found = match first {
        Some((name, value)) if !name.is_empty() => {
            format!(
                "of {count} firing alerts, none has all labels; the first lacks {name}={value:?}"
            )
        }
        _ => "the trigger has no condition on alerts".to_owned(),
    };
    TriggerWords::new(TriggerReason::NoAlertMatched, found)
}
