//! What to do next for a request: a pure function of the time, the request, the observed state and
//! the limits.
//!
//! Invariant: a target is in the status before its sampler is injected, and a sampler's name
//! follows from the request and the pod alone. So a decision can be repeated after any crash
//! without a second sampler.

use jiff::{SignedDuration, Timestamp};
use phpprof_crds::{
    ProfileRequest, ProfileRequestStatus, RequestReason, TargetReason, TargetState,
};
use phpprof_decide::limits::{AdminLimits, Deadlines, later};

use crate::lifecycle::acceptance::admit;
use crate::lifecycle::effect::{Effect, Job, JobKey};
use crate::lifecycle::observed::{Blind, ObservedCluster, Queued};
use crate::lifecycle::status::{
    ConditionReason, all_failed, fail, is_terminal, pods, progress, settle,
};

/// What to persist, then what to do, then when to decide again.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// To be written before the effects. It equals the request's status if nothing changed.
    pub status: ProfileRequestStatus,
    /// To be done at once.
    pub effects: Vec<Effect>,
    /// To be started, unless such a job is under way.
    pub jobs: Vec<Job>,
    pub next: NextLook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextLook {
    /// When something changes.
    OnChange,
    /// At this time, or earlier if something changes.
    At(Timestamp),
    /// As soon as the status is written and the effects are done.
    Now,
}

/// How often a waiting request is reconciled although nothing changed.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// A result is exported only within this time after its end.
const EXPORT_WITHIN: SignedDuration = SignedDuration::from_secs(600);
/// How often what may not begin now is looked at again.
const HALTED: SignedDuration = SignedDuration::from_secs(10);

/// The stages of a request.
enum RequestStage {
    BeingDeleted,
    Finished(Timestamp),
    New,
    Running(Timestamp),
    Ended(Timestamp),
}

fn stage(request: &ProfileRequest, status: &ProfileRequestStatus) -> RequestStage {
    match (&status.completion_time, &status.start_time) {
        _ if request.metadata.deletion_timestamp.is_some() => RequestStage::BeingDeleted,
        (Some(completed), _) => RequestStage::Finished(completed.0),
        (None, None) => RequestStage::New,
        (None, Some(start)) if status.targets.iter().all(is_terminal) => {
            RequestStage::Ended(start.0)
        }
        (None, Some(start)) => RequestStage::Running(start.0),
    }
}

/// The next decision. The stages come in the order in which a request reaches them.
pub fn decide(
    now: Timestamp,
    request: &ProfileRequest,
    observed: &ObservedCluster,
    limits: &AdminLimits,
) -> Decision {
    let round = Round {
        now,
        request,
        observed,
        limits,
    };
    let status = request.status.clone().unwrap_or_default();
    let stage = stage(request, &status);
    if let Some(blind) = &observed.blind {
        return round.blind(stage, status, blind);
    }
    match stage {
        // `deletion` handles its samplers.
        RequestStage::BeingDeleted => round.wait(status, NextLook::OnChange),
        RequestStage::Finished(completed) => round.finished(completed, status),
        RequestStage::New => round.admit(status),
        RequestStage::Running(start) => round.run(round.deadlines(start), status),
        RequestStage::Ended(start) => round.collect(round.deadlines(start), status),
    }
}

struct Round<'a> {
    now: Timestamp,
    request: &'a ProfileRequest,
    observed: &'a ObservedCluster,
    limits: &'a AdminLimits,
}

impl Round<'_> {
    fn wait(&self, status: ProfileRequestStatus, next: NextLook) -> Decision {
        Decision {
            status,
            effects: Vec::new(),
            jobs: Vec::new(),
            next,
        }
    }

    /// Starts the job. A reconciliation follows at once, and waits for the outcome.
    fn start(&self, status: ProfileRequestStatus, job: Job) -> Decision {
        Decision {
            jobs: vec![job],
            ..self.wait(status, NextLook::Now)
        }
    }

    fn conclude(
        &self,
        mut status: ProfileRequestStatus,
        reason: RequestReason,
        message: String,
    ) -> Decision {
        settle(
            &mut status,
            ConditionReason { reason, message },
            self.request.metadata.generation,
            self.now,
        );
        self.wait(status, NextLook::Now)
    }

    /// The cluster could not be observed. The request waits, but fails after a deadline.
    fn blind(
        &self,
        stage: RequestStage,
        mut status: ProfileRequestStatus,
        blind: &Blind,
    ) -> Decision {
        let wait = NextLook::At(blind.retry_at);
        match stage {
            RequestStage::New if self.now >= later(blind.since, self.limits.start_slack) => {
                self.conclude(status, RequestReason::ObserveFailed, blind.message.clone())
            }
            RequestStage::Running(start) if self.now > self.deadlines(start).give_up => {
                for target in &mut status.targets {
                    if !is_terminal(target) {
                        fail(target, TargetReason::ObserveFailed, &blind.message);
                    }
                }
                self.wait(status, NextLook::Now)
            }
            _ => self.wait(status, wait),
        }
    }

    fn deadlines(&self, start: Timestamp) -> Deadlines {
        Deadlines::new(start, self.request.spec.duration_seconds, self.limits)
    }

    fn finished(&self, completed: Timestamp, mut status: ProfileRequestStatus) -> Decision {
        status.observed_generation = self.request.metadata.generation;
        let ttl = SignedDuration::from_secs(self.request.spec.ttl_seconds_after_finished.into());
        let expiry = later(completed, ttl);
        if self.is_to_be_told(&status, completed) {
            return self.start(status, Job::Export);
        }
        if self.now < expiry {
            return self.wait(status, NextLook::At(expiry));
        }
        Decision {
            effects: vec![Effect::DeleteRequest],
            ..self.wait(status, NextLook::OnChange)
        }
    }

    /// Whether to export the result now. It is exported once; if the operator ended meanwhile, it
    /// may be exported again.
    fn is_to_be_told(&self, status: &ProfileRequestStatus, completed: Timestamp) -> bool {
        let is_news = self.now < later(completed, EXPORT_WITHIN);
        let is_told =
            status.export_time.is_some() || self.observed.under_way.contains(&JobKey::Export);
        self.limits.exports && status.profile.is_some() && is_news && !is_told
    }

    fn admit(&self, mut status: ProfileRequestStatus) -> Decision {
        if self.request.spec.cancel {
            let message = "the request was cancelled before it was accepted".to_owned();
            return self.conclude(status, RequestReason::CancelledBeforeStart, message);
        }
        if self.request.spec.suspend {
            let message = "the request waits until spec.suspend is false".to_owned();
            let verdict = ConditionReason {
                reason: RequestReason::Suspended,
                message,
            };
            settle(
                &mut status,
                verdict,
                self.request.metadata.generation,
                self.now,
            );
            return self.wait(status, NextLook::OnChange);
        }
        if let Some(halt) = &self.observed.halted {
            let why = halt.why().to_owned();
            return self.hold(status, RequestReason::ProfilingDisabled, why, HALTED);
        }
        if let Some(queued) = &self.observed.queued {
            let Queued { place, of, since } = queued;
            let message = format!(
                "place {place} of {of} in the queue: the limits on running requests are reached"
            );
            return self.queue(status, *since, message);
        }
        let Some(admission) = &self.observed.admission else {
            return self.wait(status, NextLook::Now);
        };
        let verdict = admit(self.now, self.request, admission, self.limits, &mut status);
        if verdict.reason == RequestReason::Queued {
            return self.queue(status, admission.waits_since, verdict.message);
        }
        self.conclude(status, verdict.reason, verdict.message)
    }

    /// The request waits: it is neither accepted nor refused.
    fn hold(
        &self,
        mut status: ProfileRequestStatus,
        reason: RequestReason,
        message: String,
        pause: SignedDuration,
    ) -> Decision {
        let generation = self.request.metadata.generation;
        settle(
            &mut status,
            ConditionReason { reason, message },
            generation,
            self.now,
        );
        self.wait(status, NextLook::At(later(self.now, pause)))
    }

    /// Waits for its turn until the queue's timeout.
    fn queue(&self, status: ProfileRequestStatus, since: Timestamp, message: String) -> Decision {
        let timeout = self.limits.queue_timeout;
        if self.now >= later(since, timeout) {
            let seconds = timeout.as_secs();
            let message = format!("the request's turn did not come within {seconds} s");
            return self.conclude(status, RequestReason::QueueTimeout, message);
        }
        self.hold(status, RequestReason::Queued, message, LOOK_AGAIN)
    }

    fn run(&self, deadlines: Deadlines, mut status: ProfileRequestStatus) -> Decision {
        let (mut effects, mut jobs) = (Vec::new(), Vec::new());
        let mut wake: Option<Timestamp> = None;
        for target in &mut status.targets {
            let turn = self.advance(target, &deadlines);
            effects.extend(turn.effect);
            jobs.extend(turn.job);
            wake = wake.into_iter().chain(turn.wake_at).min();
        }
        let verdict = match &self.observed.store_trouble {
            Some(trouble) => waiting_for_store(&trouble.message, deadlines.give_up),
            None => progress(&status.targets),
        };
        settle(
            &mut status,
            verdict,
            self.request.metadata.generation,
            self.now,
        );
        let next = if status.active == 0 {
            NextLook::Now
        } else {
            wake.map_or(NextLook::OnChange, NextLook::At)
        };
        Decision {
            status,
            effects,
            jobs,
            next,
        }
    }

    /// Lists what samplers stored all the same; otherwise nobody would ever find and delete it. If
    /// the store does not answer, the request does not wait for it, because nothing can have been
    /// stored lately.
    fn without_profile(&self, status: ProfileRequestStatus) -> Decision {
        if self.observed.store_trouble.is_some() {
            let ConditionReason { reason, message } = all_failed(&status.targets);
            return self.conclude(status, reason, message);
        }
        self.start(status, Job::List)
    }

    fn collect(&self, deadlines: Deadlines, mut status: ProfileRequestStatus) -> Decision {
        if self.observed.under_way.contains(&JobKey::Collection) {
            return self.wait(status, NextLook::OnChange);
        }
        let uploaded = status
            .targets
            .iter()
            .filter(|target| target.state == TargetState::Uploaded)
            .count();
        if uploaded == 0 {
            return self.without_profile(status);
        }
        let (verdict, retry_at) = match &self.observed.store_trouble {
            Some(trouble) if self.now > deadlines.give_up => {
                return self.conclude(
                    status,
                    RequestReason::StoreUnavailable,
                    trouble.message.clone(),
                );
            }
            Some(trouble) => (
                waiting_for_store(&trouble.message, deadlines.give_up),
                Some(trouble.retry_at),
            ),
            None => {
                let message = format!("merging the profiles of {}", pods(uploaded));
                (
                    ConditionReason {
                        reason: RequestReason::Collecting,
                        message,
                    },
                    None,
                )
            }
        };
        settle(
            &mut status,
            verdict,
            self.request.metadata.generation,
            self.now,
        );
        match retry_at {
            Some(retry_at) if self.now < retry_at => self.wait(status, NextLook::At(retry_at)),
            _ => self.start(status, Job::Merge),
        }
    }
}

fn waiting_for_store(message: &str, give_up: Timestamp) -> ConditionReason {
    let message =
        format!("the store does not work; the operator retries until {give_up:.0}: {message}");
    ConditionReason {
        reason: RequestReason::WaitingForStore,
        message,
    }
}

mod asking;
mod targets;
#[cfg(test)]
mod tests;
