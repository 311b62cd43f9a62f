//! What to do next for a request: a pure function of the instant, the request, what was observed and the limits.
//!
//! Invariant: a target is in the status before its sampler is injected, and a sampler's name follows from the
//! request and the pod alone. So a decision can be taken again after any crash without a second sampler.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{
    ProfileRequest, ProfileRequestStatus, Reason, TargetReason, TargetState, TargetStatus,
};

use crate::decide::admission::admit;
use crate::decide::checkpoints;
use crate::decide::effect::{Effect, Job, Recovery, Telling, Upload};
use crate::decide::limits::{Deadlines, Limits, later, not_after};
use crate::decide::mode::mode;
use crate::decide::observed::{Observed, PodView};
use crate::decide::status::{Verdict, all_failed, fail, pods, progress, settle};
use crate::decide::target::{Step, step};
use crate::sampler::injection::Injection;
use crate::sampler::receipt::UploadReceipt;

/// What to persist, then what to do, then when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// To be written before the effects; equal to the request's where nothing changed.
    pub status: ProfileRequestStatus,
    pub effects: Vec<Effect>,
    pub next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    OnChange,
    /// Then, or earlier when something changes.
    At(Timestamp),
    /// As soon as the status is written and the effects are done.
    Now,
}

/// Where a request stands.
enum Stage {
    BeingDeleted,
    Finished(Timestamp),
    New,
    Running(Timestamp),
    Ended(Timestamp),
}

fn stage(request: &ProfileRequest, status: &ProfileRequestStatus) -> Stage {
    let settled =
        |target: &TargetStatus| matches!(target.state, TargetState::Uploaded | TargetState::Failed);
    match (&status.completion_time, &status.start_time) {
        _ if request.metadata.deletion_timestamp.is_some() => Stage::BeingDeleted,
        (Some(completed), _) => Stage::Finished(completed.0),
        (None, None) => Stage::New,
        (None, Some(start)) if status.targets.iter().all(settled) => Stage::Ended(start.0),
        (None, Some(start)) => Stage::Running(start.0),
    }
}

/// The next decision, in the order a request lives.
pub fn decide(
    now: Timestamp,
    request: &ProfileRequest,
    observed: &Observed,
    limits: &Limits,
) -> Decision {
    let round = Round {
        now,
        request,
        observed,
        limits,
    };
    let status = request.status.clone().unwrap_or_default();
    match stage(request, &status) {
        // `deletion` sees to its samplers.
        Stage::BeingDeleted => round.wait(status, Next::OnChange),
        Stage::Finished(completed) => round.finished(completed, status),
        Stage::New => round.admit(status),
        Stage::Running(start) => round.run(round.deadlines(start), status),
        Stage::Ended(start) => round.collect(round.deadlines(start), status),
    }
}

struct Round<'a> {
    now: Timestamp,
    request: &'a ProfileRequest,
    observed: &'a Observed,
    limits: &'a Limits,
}

impl Round<'_> {
    fn wait(&self, status: ProfileRequestStatus, next: Next) -> Decision {
        Decision {
            status,
            effects: Vec::new(),
            next,
        }
    }

    fn conclude(
        &self,
        mut status: ProfileRequestStatus,
        reason: Reason,
        message: String,
    ) -> Decision {
        settle(
            &mut status,
            Verdict { reason, message },
            self.request.metadata.generation,
            self.now,
        );
        self.wait(status, Next::Now)
    }

    fn deadlines(&self, start: Timestamp) -> Deadlines {
        Deadlines::new(start, self.request.spec.duration_seconds, self.limits)
    }

    fn finished(&self, completed: Timestamp, status: ProfileRequestStatus) -> Decision {
        let ttl = SignedDuration::from_secs(self.request.spec.ttl_seconds_after_finished.into());
        let expiry = later(completed, ttl);
        if self.now < expiry {
            return self.wait(status, Next::At(expiry));
        }
        Decision {
            status,
            effects: vec![Effect::DeleteRequest],
            next: Next::OnChange,
        }
    }

    fn admit(&self, mut status: ProfileRequestStatus) -> Decision {
        if self.request.spec.cancel {
            let message = "the request was cancelled before it was accepted".to_owned();
            return self.conclude(status, Reason::CancelledBeforeStart, message);
        }
        if self.request.spec.suspend {
            let message = "the request waits until spec.suspend is false".to_owned();
            let verdict = Verdict {
                reason: Reason::Suspended,
                message,
            };
            settle(
                &mut status,
                verdict,
                self.request.metadata.generation,
                self.now,
            );
            return self.wait(status, Next::OnChange);
        }
        let Some(admission) = &self.observed.admission else {
            return self.wait(status, Next::Now);
        };
        let verdict = admit(self.now, self.request, admission, self.limits, &mut status);
        self.conclude(status, verdict.reason, verdict.message)
    }

    fn run(&self, deadlines: Deadlines, mut status: ProfileRequestStatus) -> Decision {
        let mut effects = Vec::new();
        let mut wake: Option<Timestamp> = None;
        let mut wake_at =
            |instant: Timestamp| wake = Some(wake.map_or(instant, |wake| wake.min(instant)));
        for target in &mut status.targets {
            let pod = self.observed.pods.get(&target.pod_uid);
            match (step(self.now, target, pod, &deadlines), pod) {
                (Step::Settled, _) | (Step::Inject, None) => {}
                (Step::Inject, Some(_)) if self.request.spec.cancel => {
                    let message = "the request was cancelled before this pod's sampler was added";
                    fail(target, TargetReason::Cancelled, message.to_owned());
                }
                (Step::Inject, Some(pod)) => {
                    effects.push(Effect::Inject(self.injection(target, pod)))
                }
                (Step::Fail(..) | Step::Verify(_), _) if self.is_under_way(target) => {}
                (Step::Fail(reason, message), _) => {
                    match self.recover(target, reason, message, &deadlines) {
                        Some(Ok(effect)) => effects.push(effect),
                        Some(Err(retry_at)) => wake_at(retry_at),
                        None => {}
                    }
                }
                (Step::Wait { state, until }, _) => {
                    target.state = state;
                    wake_at(until);
                    let told = self.observed.stopped.contains(&target.pod_uid);
                    if self.request.spec.cancel && !told {
                        effects.push(Effect::Stop(telling(target, deadlines.last_upload)));
                    }
                }
                (Step::Verify(receipt), _) => {
                    target.state = TargetState::Verifying;
                    match self.verify(target, receipt, &deadlines) {
                        Ok(effect) => effects.push(effect),
                        Err(retry_at) => wake_at(retry_at),
                    }
                }
            }
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
            Next::Now
        } else {
            wake.map_or(Next::OnChange, Next::At)
        };
        Decision {
            status,
            effects,
            next,
        }
    }

    /// Its end has the request looked at again.
    fn is_under_way(&self, target: &TargetStatus) -> bool {
        let job = Job::Target(target.pod_uid.clone());
        self.observed.under_way.contains(&job)
    }

    /// Asks the store, unless it failed a moment ago: then when to try again. Gives up when there is no time left.
    fn verify(
        &self,
        target: &mut TargetStatus,
        receipt: UploadReceipt,
        deadlines: &Deadlines,
    ) -> Result<Effect, Timestamp> {
        match &self.observed.store_trouble {
            Some(trouble) if self.now > deadlines.give_up => {
                fail(
                    target,
                    TargetReason::StoreUnavailable,
                    trouble.message.clone(),
                );
                Err(self.now)
            }
            Some(trouble) if self.now < trouble.retry_at => Err(trouble.retry_at),
            _ => Ok(Effect::Verify(Upload {
                pod_uid: target.pod_uid.clone(),
                key: target.object_key.clone(),
                receipt,
                asked_seconds: (!self.request.spec.cancel)
                    .then_some(self.request.spec.duration_seconds),
            })),
        }
    }

    /// Asks the store for what a sampler that has gone had stored of a long run, as [`Round::verify`] does. Where nothing can be there, the
    /// target has failed.
    fn recover(
        &self,
        target: &mut TargetStatus,
        reason: TargetReason,
        message: String,
        deadlines: &Deadlines,
    ) -> Option<Result<Effect, Timestamp>> {
        let duration_seconds = self.request.spec.duration_seconds;
        let keys = checkpoints::candidates(target, duration_seconds, deadlines.accepted, self.now);
        if keys.is_empty() || !checkpoints::may_follow(reason) {
            fail(target, reason, message);
            return None;
        }
        target.state = TargetState::Verifying;
        match &self.observed.store_trouble {
            Some(trouble) if self.now > deadlines.give_up => {
                let message = format!(
                    "{message}; the store was not to be asked for its beginning: {}",
                    trouble.message
                );
                fail(target, reason, message);
                None
            }
            Some(trouble) if self.now < trouble.retry_at => Some(Err(trouble.retry_at)),
            _ => Some(Ok(Effect::Recover(Recovery {
                pod_uid: target.pod_uid.clone(),
                keys,
                duration_seconds,
                reason,
                message,
            }))),
        }
    }

    fn injection(&self, target: &TargetStatus, pod: &PodView) -> Injection {
        let spec = &self.request.spec;
        let not_after = not_after(self.now, spec.duration_seconds, self.limits);
        Injection {
            namespace: self.request.namespace().unwrap_or_default(),
            pod_name: target.pod_name.clone(),
            pod_uid: target.pod_uid.clone(),
            container_name: target.container_name.clone(),
            container_id: target.container_id.clone(),
            ephemeral_container_name: target.ephemeral_container_name.clone(),
            object_key: target.object_key.clone(),
            checkpoint_seconds: target.checkpoint_seconds.unwrap_or_default(),
            checkpoint_keys: checkpoints::keys(target, spec.duration_seconds),
            upload_mode: spec.upload_mode,
            duration_seconds: spec.duration_seconds,
            samples_per_second: spec.samples_per_second,
            include_idle: spec.include_idle,
            not_after,
            upload_until: later(not_after, self.limits.upload_deadline),
            mode: mode(pod.container(&target.container_name), &spec.target),
        }
    }

    /// What was stored all the same must be listed, or nobody would ever find and delete it. Nobody waits for a store that
    /// does not answer: nothing can have been stored lately then.
    fn without_profile(&self, status: ProfileRequestStatus) -> Decision {
        if self.observed.store_trouble.is_some() {
            let Verdict { reason, message } = all_failed(&status.targets);
            return self.conclude(status, reason, message);
        }
        Decision {
            status,
            effects: vec![Effect::List],
            next: Next::Now,
        }
    }

    fn collect(&self, deadlines: Deadlines, mut status: ProfileRequestStatus) -> Decision {
        if self.observed.under_way.contains(&Job::Collection) {
            return self.wait(status, Next::OnChange);
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
                return self.conclude(status, Reason::StoreUnavailable, trouble.message.clone());
            }
            Some(trouble) => (
                waiting_for_store(&trouble.message, deadlines.give_up),
                Some(trouble.retry_at),
            ),
            None => {
                let message = format!("merging the profiles of {}", pods(uploaded));
                (
                    Verdict {
                        reason: Reason::Collecting,
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
            Some(retry_at) if self.now < retry_at => self.wait(status, Next::At(retry_at)),
            _ => Decision {
                status,
                effects: vec![Effect::Merge],
                next: Next::Now,
            },
        }
    }
}

fn telling(target: &TargetStatus, until: Timestamp) -> Telling {
    Telling {
        pod_uid: target.pod_uid.clone(),
        key: target.object_key.clone(),
        until,
    }
}

fn waiting_for_store(message: &str, give_up: Timestamp) -> Verdict {
    let message = format!("the store cannot be used; it is tried until {give_up:.0}: {message}");
    Verdict {
        reason: Reason::WaitingForStore,
        message,
    }
}

#[cfg(test)]
mod tests;
