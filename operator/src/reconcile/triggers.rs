//! Fires the triggers of a namespace when alerts arrive: reads them, decides, notes what it is
//! about to create, creates it, and reports.
//!
//! Any replica does it. A request is in the trigger's status before it is created, and the status
//! is written only over the version that the decision was based on. So two replicas together create
//! no more than the limit, and who is killed in between has used up a place and nothing else.
//!
//! Invariant: alerts are handled one payload after the other.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use phpprof_crds::{ProfileRequest, ProfileTrigger, TriggerReason, chain};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::http::alerts::{Alerts, FiredTrigger, FiredTriggers, NotHandled};
use crate::lifecycle::observed::Halt;
use crate::reconcile::calls::{call, call_for_page};
use crate::reconcile::context::Context;
use crate::reconcile::events;
use crate::reconcile::requests::strip_all_but_who_asked;
use crate::reconcile::watches::PAGE;
use crate::trigger::alerts::{FiringAlert, ReceivedAlerts, parse};
use crate::trigger::decision::{FiringPlan, TriggerWords, decide};
use crate::trigger::report::{CreatedRequest, FiringReport};
use crate::trigger::requests::{is_created_by, request_of};

/// The most triggers of a namespace that alerts are compared with. The others are counted.
pub const MOST_TRIGGERS: usize = 64;
/// How often a status is read again because somebody else has written it.
const TRIES: usize = 4;

/// How long a payload may take, because uploads wait for the same memory. What is not created by
/// then is created when Alertmanager sends the alerts again.
const HANDLED_WITHIN: Duration = Duration::from_secs(20);

/// The triggers of the cluster.
struct TriggerDesk {
    context: Arc<Context>,
    turn: Mutex<()>,
}

/// What receives alerts on the results' port, with the tokens if they are on.
pub fn alerts(context: &Arc<Context>) -> Alerts {
    let desk = TriggerDesk::new(context.clone());
    Alerts {
        tokens: context.policy.alert_tokens.clone(),
        metrics: context.metrics.clone(),
        fire: Box::new(move |namespace, payload| {
            let desk = desk.clone();
            async move {
                let handled = desk.handle(&namespace, &payload);
                let handled = tokio::time::timeout(HANDLED_WITHIN, handled).await;
                handled.unwrap_or(Err(NotHandled::Late))
            }
            .boxed()
        }),
    }
}

impl TriggerDesk {
    fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context,
            turn: Mutex::default(),
        })
    }

    /// Handles a payload for the triggers of a namespace.
    async fn handle(&self, namespace: &str, payload: &[u8]) -> Result<FiredTriggers, NotHandled> {
        let _turn = self.turn.lock().await;
        // What is parsed takes the memory of an upload. The semaphore is never closed.
        let desk = self.context.storage.collector.desk();
        let _room = desk.acquire().await;
        let alerts = parse(payload).map_err(NotHandled::Payload)?;
        let (triggers, left_out) = self.triggers(namespace).await?;
        let mut fired = FiredTriggers {
            firing: alerts.firing.len(),
            resolved: alerts.resolved,
            left_out: alerts.left_out,
            triggers_left_out: left_out,
            ..FiredTriggers::default()
        };
        for trigger in triggers {
            if let Some(one) = self
                .fire(trigger, &alerts, &mut fired.is_incomplete)
                .await?
            {
                fired.triggers.push(one);
            }
        }
        Ok(fired)
    }

    fn client(&self) -> Client {
        self.context.cluster.client.clone()
    }

    fn api(&self, namespace: &str) -> Api<ProfileTrigger> {
        Api::namespaced(self.client(), namespace)
    }

    /// The triggers of a namespace, and whether there are more.
    async fn triggers(&self, namespace: &str) -> Result<(Vec<ProfileTrigger>, bool), NotHandled> {
        let api: Api<DeserializeGuard<ProfileTrigger>> = Api::namespaced(self.client(), namespace);
        let (mut found, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
        while found.len() < MOST_TRIGGERS {
            let page = call_for_page(|| api.list(&params)).await.map_err(unread)?;
            let next = page.metadata.continue_.filter(|it| !it.is_empty());
            found.extend(page.items.into_iter().filter_map(usable));
            match next {
                Some(next) => params = params.continue_token(&next),
                None => return Ok((found, false)),
            }
        }
        found.truncate(MOST_TRIGGERS);
        tracing::warn!(
            namespace,
            most = MOST_TRIGGERS,
            "not all triggers were compared with alerts"
        );
        Ok((found, true))
    }

    /// Fires one trigger. `None` if no alert has its labels.
    async fn fire(
        &self,
        mut trigger: ProfileTrigger,
        alerts: &ReceivedAlerts,
        is_incomplete: &mut bool,
    ) -> Result<Option<FiredTrigger>, NotHandled> {
        let Some(plan) = self.plan(&mut trigger, &alerts.firing).await? else {
            // Others wrote its status all the time. Alertmanager sends the alerts again.
            *is_incomplete = true;
            return Ok(None);
        };
        let (mut created, mut failed) = (Vec::new(), Vec::new());
        for name in &plan.create {
            match self.create(&trigger, name).await {
                Ok(uid) => created.push(CreatedRequest {
                    name: name.clone(),
                    uid,
                }),
                Err(words) => {
                    *is_incomplete |= words.reason == TriggerReason::CreationFailed;
                    failed.push(words);
                }
            }
        }
        let report = FiringReport::of(&plan, created, failed);
        self.report(&trigger, &report).await;
        Ok(fired(&trigger, report))
    }

    /// Decides, and writes down what is to be created. `None` if that was not possible.
    async fn plan(
        &self,
        trigger: &mut ProfileTrigger,
        alerts: &[FiringAlert],
    ) -> Result<Option<FiringPlan>, NotHandled> {
        for _ in 0..TRIES {
            let namespace = trigger.namespace().unwrap_or_default();
            let halt = match self.context.cluster.halts.of(&namespace) {
                Some(Halt::Stopped(why)) => Some(why),
                Some(Halt::Unknown) | None => None,
            };
            let plan = decide(self.context.now(), trigger, halt.as_deref(), alerts);
            let known = trigger.status.as_ref().map(|it| it.requests.as_slice());
            if known.unwrap_or_default() == plan.requests {
                return Ok(Some(plan));
            }
            let status = json!({"requests": plan.requests});
            match self.write(trigger, status).await {
                Ok(written) => {
                    *trigger = written;
                    return Ok(Some(plan));
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(NotHandled::Away(error)),
            }
            match self.again(trigger).await.map_err(NotHandled::Away)? {
                Some(newer) => *trigger = newer,
                None => return Ok(Some(FiringPlan::default())),
            }
        }
        Ok(None)
    }

    /// Writes the report into the status. If it cannot be written, only counts and words are lost.
    async fn report(&self, trigger: &ProfileTrigger, report: &FiringReport) {
        let mut current = trigger.clone();
        for _ in 0..TRIES {
            let mut status = current.status.clone().unwrap_or_default();
            let generation = current.metadata.generation;
            if !report.add_to(&mut status, generation, self.context.now()) {
                return;
            }
            match self.write(&current, json!(status)).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "writing a trigger's status failed");
                    break;
                }
            }
            match self.again(&current).await {
                Ok(Some(newer)) => current = newer,
                Ok(None) | Err(_) => break,
            }
        }
        let Some(words) = report.words.as_ref().filter(|_| report.alerts() > 0) else {
            return;
        };
        self.context.metrics.triggered(words.reason);
        let (namespace, name) = (trigger.namespace(), trigger.name_any());
        tracing::info!(namespace, trigger = name, reason = %words.reason, found = words.found, "alerts");
        if !report.created.is_empty() {
            let event = events::requests_created(&words.found);
            self.context.cluster.publish(trigger, vec![event]);
        }
    }

    /// Writes a part of a status over the version that is known.
    async fn write(
        &self,
        trigger: &ProfileTrigger,
        status: Value,
    ) -> Result<ProfileTrigger, kube::Error> {
        let api = self.api(&trigger.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({
            "metadata": {"uid": trigger.uid(), "resourceVersion": trigger.resource_version()},
            "status": status,
        }));
        let (name, params) = (trigger.name_any(), PatchParams::default());
        call(|| api.patch_status(&name, &params, &patch)).await
    }

    /// The trigger as it is now, unless it was deleted.
    async fn again(&self, trigger: &ProfileTrigger) -> Result<Option<ProfileTrigger>, kube::Error> {
        let api = self.api(&trigger.namespace().unwrap_or_default());
        let name = trigger.name_any();
        let found = call(|| api.get_opt(&name)).await?;
        Ok(found.filter(|it| it.uid() == trigger.uid()))
    }

    /// The uid of a request, which is created if there is none.
    async fn create(&self, trigger: &ProfileTrigger, name: &str) -> Result<String, TriggerWords> {
        let namespace = trigger.namespace().unwrap_or_default();
        let api: Api<ProfileRequest> = Api::namespaced(self.client(), &namespace);
        let (request, params) = (request_of(trigger, name), PostParams::default());
        match call(|| api.create(&params, &request)).await {
            Ok(created) => Ok(created.uid().unwrap_or_default()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = call(|| api.get_opt(name)).await.map_err(|it| failed(&it))?;
                let own = there.filter(|it| is_created_by(it, trigger));
                own.and_then(|it| it.uid()).ok_or_else(|| {
                    let found = format!("request {name} does not belong to the trigger");
                    TriggerWords::new(TriggerReason::NameTaken, found)
                })
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 413 | 422) => {
                let found = format!("request {name} was refused: {}", status.message);
                Err(TriggerWords::new(TriggerReason::CreationRefused, found))
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

/// A trigger without what others can fill and the operator does not use, unless it cannot be parsed
/// or is being deleted.
fn usable(mut guarded: DeserializeGuard<ProfileTrigger>) -> Option<ProfileTrigger> {
    strip_all_but_who_asked(guarded.meta_mut());
    match guarded.0 {
        Ok(trigger) => Some(trigger).filter(|it| it.metadata.deletion_timestamp.is_none()),
        Err(error) => {
            tracing::warn!(%error, "a trigger cannot be parsed; ignoring it");
            None
        }
    }
}

/// Without its rights, the operator does not know of triggers.
fn unread(error: kube::Error) -> NotHandled {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404) => {
            NotHandled::NoTriggers
        }
        error => NotHandled::Away(error),
    }
}

fn failed(error: &kube::Error) -> TriggerWords {
    let error = chain(error);
    tracing::warn!(error, "creating the request of a trigger failed");
    TriggerWords::new(TriggerReason::CreationFailed, error)
}

/// The answer about a trigger.
fn fired(trigger: &ProfileTrigger, report: FiringReport) -> Option<FiredTrigger> {
    let (alerts, repeated) = (report.alerts(), report.repeated());
    let words = report.words.filter(|_| alerts > 0)?;
    Some(FiredTrigger {
        trigger: trigger.name_any(),
        alerts,
        created: report.created.into_iter().map(|it| it.name).collect(),
        repeated,
        reason: words.reason,
        message: words.found,
    })
}

#[cfg(test)]
mod tests;
