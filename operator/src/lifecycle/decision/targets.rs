//! What one target does next while its request runs.
//!
//! Invariant: only its own state changes; what it needs from outside is an effect.

use jiff::Timestamp;
use phpprof_crds::{TargetReason, TargetState, TargetStatus};
use phpprof_decide::limits::{Deadlines, later, not_after};
use phpprof_decide::mode::mode;
use phpprof_decide::pod::SamplerDeadlines;

use super::{HALTED, Round};
use crate::lifecycle::effect::{Cancellation, Effect, Job, JobKey};
use crate::lifecycle::observed::{Halt, PodView};
use crate::lifecycle::run::{run, subject};
use crate::lifecycle::silence;
use crate::lifecycle::status::fail;
use crate::lifecycle::target::{TargetStep, step};
use crate::sampler::injection::{Injection, Residence, Subject, Task};

/// The effect and the job of a target's step, and when to decide again even if nothing changes.
#[derive(Default)]
pub(super) struct TargetTurn {
    pub effect: Option<Effect>,
    pub job: Option<Job>,
    pub wake_at: Option<Timestamp>,
}

impl TargetTurn {
    fn of(effect: Effect) -> Self {
        TargetTurn {
            effect: Some(effect),
            ..TargetTurn::default()
        }
    }

    fn waiting(until: Timestamp) -> Self {
        TargetTurn {
            wake_at: Some(until),
            ..TargetTurn::default()
        }
    }

    /// A question to the store, or when to ask.
    fn asking(asked: Result<Job, Timestamp>) -> Self {
        match asked {
            Ok(job) => TargetTurn {
                job: Some(job),
                ..TargetTurn::default()
            },
            Err(retry_at) => TargetTurn::waiting(retry_at),
        }
    }
}

impl Round<'_> {
    /// Sets the state of a target that is not settled.
    pub(super) fn advance(&self, target: &mut TargetStatus, deadlines: &Deadlines) -> TargetTurn {
        let pod = self.observed.pods.get(&target.pod_uid);
        let read = self.observed.receipts.get(&target.pod_uid);
        match (step(self.now, target, pod, read, deadlines), pod) {
            (TargetStep::Settled, _) | (TargetStep::Inject, None) => TargetTurn::default(),
            (TargetStep::Inject, Some(_)) if self.ends_early() => {
                let why = self.stopped_by().unwrap_or("the request was cancelled");
                let message = format!("{why} before this pod's sampler was added");
                fail(target, TargetReason::Cancelled, &message);
                TargetTurn::default()
            }
            (TargetStep::Inject, Some(_)) if self.observed.halted.is_some() => {
                TargetTurn::waiting(later(self.now, HALTED))
            }
            (TargetStep::Inject, Some(pod)) => {
                TargetTurn::of(Effect::Inject(Box::new(self.injection(target, pod))))
            }
            (TargetStep::Fail(..) | TargetStep::Verify(_), _) if self.is_under_way(target) => {
                TargetTurn::default()
            }
            (TargetStep::ReadReceipt(state), _) => {
                target.state = state;
                let cancel = self.cancel(target, deadlines);
                let asked = self.read_receipt(target, deadlines);
                let turn = asked.map(TargetTurn::asking).unwrap_or_default();
                let look_again = self.listen(target);
                TargetTurn {
                    effect: cancel,
                    job: turn.job,
                    wake_at: turn.wake_at.into_iter().chain(look_again).min(),
                }
            }
            (TargetStep::Fail(reason, message), _) => {
                silence::clear(target);
                let asked = self.recover(target, reason, message, deadlines);
                asked.map(TargetTurn::asking).unwrap_or_default()
            }
            (TargetStep::Wait { state, until }, _) => {
                target.state = state;
                let look_again = self.listen(target);
                TargetTurn {
                    effect: self.cancel(target, deadlines),
                    job: None,
                    wake_at: look_again.into_iter().chain([until]).min(),
                }
            }
            (TargetStep::Verify(receipt), _) => {
                silence::clear(target);
                target.state = TargetState::Verifying;
                TargetTurn::asking(self.verify(target, receipt, deadlines))
            }
        }
    }

    /// Says in the target's status whether its sampler is heard. Returns when to look again.
    fn listen(&self, target: &mut TargetStatus) -> Option<Timestamp> {
        let since = self.observed.silent_since.get(&target.pod_uid).copied();
        let from = silence::silent_from(self.request, target, since, self.limits);
        let pod = self.observed.pods.get(&target.pod_uid);
        silence::mark(target, pod, self.now, from)
    }

    /// The samples taken so far are enough: the request was cancelled, or profiling was stopped.
    pub(super) fn ends_early(&self) -> bool {
        self.request.spec.cancel || self.stopped_by().is_some()
    }

    /// Who has stopped profiling, and how.
    fn stopped_by(&self) -> Option<&str> {
        match &self.observed.halted {
            Some(Halt::Stopped(why)) => Some(why),
            Some(Halt::Unknown) | None => None,
        }
    }

    /// Tells the target's sampler to stop, unless it was told before or has to continue.
    fn cancel(&self, target: &TargetStatus, deadlines: &Deadlines) -> Option<Effect> {
        let is_told = self.observed.stopped.contains(&target.pod_uid);
        let stop = self.ends_early() && !is_told;
        stop.then(|| Effect::Cancel(cancellation(target, deadlines.last_upload)))
    }

    /// Such a job triggers a reconciliation when it ends.
    pub(super) fn is_under_way(&self, target: &TargetStatus) -> bool {
        let key = JobKey::Target(target.pod_uid.clone());
        self.observed.under_way.contains(&key)
    }

    fn injection(&self, target: &TargetStatus, pod: &PodView) -> Injection {
        let (now, spec, limits) = (self.now, &self.request.spec, self.limits);
        let not_after = not_after(now, spec.duration_seconds, limits);
        let deadlines = SamplerDeadlines {
            not_after,
            upload_until: later(not_after, limits.upload_deadline),
        };
        let start_slack = limits.start_slack;
        let task = if target.resident {
            Task::Resident(Residence {
                first_answer_seconds: start_slack.as_secs(),
                idle_seconds: limits.resident_idle.as_secs(),
                // The container may start late. From then on, it has this time for its first
                // answer.
                ask_until: later(later(now, start_slack), start_slack),
            })
        } else {
            Task::Once(Box::new(run(self.request, target, deadlines)))
        };
        Injection {
            subject: Subject {
                pod_addresses: pod.addresses.clone(),
                ..subject(self.request, target)
            },
            ephemeral_container_name: target.ephemeral_container_name.clone(),
            mode: mode(pod.container(&target.container_name), &spec.target),
            task,
        }
    }
}

fn cancellation(target: &TargetStatus, until: Timestamp) -> Cancellation {
    Cancellation {
        pod_uid: target.pod_uid.clone(),
        key: target.object_key.clone(),
        until,
    }
}
