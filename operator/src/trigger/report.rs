//! The status of a trigger after alerts.
//!
//! Invariant: `alerts` is the sum of `created`, `repeated` and `notFired`. The report is added to
//! whatever status there is, so one that was read again gets the same.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use phpprof_crds::{
    ProfileTriggerStatus, SeenAlert, TriggerOutcome, TriggerReason, trigger_condition,
};
use phpprof_decide::limits::later;

use crate::lifecycle::status::told;
use crate::trigger::decision::{FiringPlan, TriggerWords};

/// How far `lastAskedTime` may be behind if nothing else has changed: each write is a call.
const BEHIND: SignedDuration = SignedDuration::from_secs(30);

/// A request that was created, or existed already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedRequest {
    /// As in the status.
    pub name: String,
    /// As the API server gave it.
    pub uid: String,
}

/// What has come of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct FiringReport {
    /// Requests that exist now.
    pub created: Vec<CreatedRequest>,
    alerts: usize,
    repeated: usize,
    not_fired: usize,
    last: Option<SeenAlert>,
    /// Why, if there was a firing alert.
    pub words: Option<TriggerWords>,
}

impl FiringReport {
    /// The report of a plan, with the requests that were created and why others were not.
    #[must_use]
    pub fn of(plan: &FiringPlan, created: Vec<CreatedRequest>, failed: Vec<TriggerWords>) -> Self {
        let not_fired = plan.not_fired + failed.len();
        let others = failed.into_iter().next().or_else(|| plan.why.clone());
        let words = if !created.is_empty() {
            Some(fired(&created, not_fired, others))
        } else if others.is_none() && plan.repeated > 0 {
            let found = "the request of the alert was created before";
            Some(TriggerWords::new(TriggerReason::AlertRepeated, found))
        } else {
            others
        };
        Self {
            created,
            alerts: plan.alerts,
            repeated: plan.repeated,
            not_fired,
            last: plan.last.clone(),
            words,
        }
    }

    /// Firing alerts with the labels.
    #[must_use]
    pub fn alerts(&self) -> usize {
        self.alerts
    }

    /// Those whose request existed.
    #[must_use]
    pub fn repeated(&self) -> usize {
        self.repeated
    }

    /// Adds the report to a status. Returns whether it is worth a write.
    #[must_use]
    pub fn add_to(
        &self,
        status: &mut ProfileTriggerStatus,
        generation: Option<i64>,
        now: Timestamp,
    ) -> bool {
        let asked = status
            .last_asked_time
            .as_ref()
            .map(|it| later(it.0, BEHIND));
        let is_old = asked.is_none_or(|until| now >= until);
        if self.alerts == 0 && !is_old {
            return false;
        }
        status.last_asked_time = Some(Time(now));
        let count = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
        status.alerts += count(self.alerts);
        status.created += count(self.created.len());
        status.repeated += count(self.repeated);
        status.not_fired += count(self.not_fired);
        for created in &self.created {
            let known = status
                .requests
                .iter_mut()
                .find(|it| it.name == created.name);
            if let Some(known) = known {
                known.request_uid = created.uid.clone();
            }
        }
        // What became of the last alert is worth more than that others have other labels.
        let is_first = status.last_alert.is_none();
        if let Some(last) = &self.last {
            status.last_alert = Some(last.clone());
        }
        if let Some(words) = self.words.as_ref().filter(|_| self.alerts > 0 || is_first) {
            status.observed_generation = generation;
            conclude(status, words, generation, now);
        }
        true
    }
}

fn fired(
    created: &[CreatedRequest],
    not_fired: usize,
    others: Option<TriggerWords>,
) -> TriggerWords {
    let names: Vec<&str> = created.iter().map(|it| it.name.as_str()).collect();
    let mut found = format!("created {}", names.join(", "));
    if let Some(others) = others {
        let (reason, why) = (others.reason, others.found);
        found += &format!("; none for {not_fired} other alerts: {reason}, {why}");
    }
    TriggerWords::new(TriggerReason::RequestCreated, found)
}

fn conclude(
    status: &mut ProfileTriggerStatus,
    words: &TriggerWords,
    generation: Option<i64>,
    now: Timestamp,
) {
    let holds = match words.reason.outcome() {
        TriggerOutcome::Fired => "True",
        TriggerOutcome::Repeated | TriggerOutcome::NotFired => "False",
    };
    let old = status.conditions.first().filter(|it| it.status == holds);
    let since = old.map_or(Time(now), |it| it.last_transition_time.clone());
    status.conditions = vec![Condition {
        type_: trigger_condition::FIRED.to_owned(),
        status: holds.to_owned(),
        reason: words.reason.to_string(),
        message: told(&words.found, words.reason.remedy()),
        last_transition_time: since,
        observed_generation: generation,
    }];
}
