//! The loop for each ProfileComparison: look at its requests, decide, act, write the status.
//!
//! A comparison needs no memory of its own: its status has the uids of its requests, and what it
//! creates has names that follow from its own.
//!
//! Invariant: a status is written only over the version that the decision was based on, and a
//! request is cancelled only if this comparison owns it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Resource as _, ResourceExt as _};
use phpprof_crds::{
    ComparisonReason, ComparisonSide, ProfileComparison, ProfileComparisonStatus, ProfileRequest,
    StoredRun, chain,
};
use serde_json::json;
use tracing::Instrument as _;

use crate::comparison::decision::{
    ComparisonStep, ComparisonWords, SideRequest, decide, end, store_deadline,
};
use crate::comparison::requests::{SideName, is_owned, request_of, stored_request};
use crate::comparison::status;
use crate::reconcile::calls::call;
use crate::reconcile::context::Context;
use crate::reconcile::events;
use crate::reconcile::reflected::reflected;
use crate::reconcile::requests::strip_all_but_who_asked;
use crate::reconcile::scopes::scopes;
use crate::reconcile::verdicts::GuardedComparison;
use crate::reconcile::watches::paged;
use crate::storage::chosen::StoredQuestion;
use crate::storage::comparison::{ComparisonQuestion, NotCompared};

/// Comparisons that are reconciled at the same time.
const CONCURRENCY: u16 = 4;
/// How often the requests of a comparison are looked at. The operator has them in memory.
const LOOK: Duration = Duration::from_secs(2);
/// The pause after a failed reconciliation.
const PAUSE: Duration = Duration::from_secs(5);

/// Why the reconciliation of a comparison must be repeated.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A request, or the namespace of a stored run, could not be read.
    #[error("reading a request of the comparison failed")]
    Observe(#[source] kube::Error),
    /// A request could not be created or cancelled, and may be later.
    #[error("writing a request of the comparison failed")]
    Request(#[source] kube::Error),
    /// A bug.
    #[error("the comparison's request has another form")]
    Form(#[from] serde_json::Error),
    /// The status could not be written, or the comparison could not be deleted.
    #[error("writing the comparison failed")]
    Comparison(#[source] kube::Error),
}

/// Runs while the process runs. If `namespaces` is empty, all namespaces are included.
pub async fn run(context: Arc<Context>, namespaces: Vec<String>) {
    let scopes: Vec<Api<GuardedComparison>> = scopes(&context.cluster.client, &namespaces);
    let (stores, writers): (Vec<_>, Vec<_>) = scopes.iter().map(|_| reflector::store()).unzip();
    context.cluster.comparisons.know(stores.clone());
    let loops = scopes.into_iter().zip(stores.into_iter().zip(writers));
    let loops = loops.map(|(api, (known, writer))| {
        let arriving = watcher(api, paged()).default_backoff().modify(strip);
        let changed = reflected(writer, arriving);
        Controller::for_stream(changed, known)
            .with_config(controller::Config::default().concurrency(CONCURRENCY))
            .run(reconcile, |_, error, _| retry(error), context.clone())
            .for_each(|result| {
                report(result);
                std::future::ready(())
            })
    });
    futures::future::join_all(loops).await;
}

type ComparisonResult =
    Result<(ObjectRef<GuardedComparison>, Action), controller::Error<CompareError, watcher::Error>>;

/// Logs a watch that does not work, for instance because the cluster lacks this kind.
fn report(result: ComparisonResult) {
    match result {
        // `retry` has said the latter.
        Ok(_)
        | Err(controller::Error::ObjectNotFound(_) | controller::Error::ReconcilerFailed(..)) => {}
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "watching comparisons failed; retrying");
        }
    }
}

/// Drops what the operator does not use: anybody who may compare can fill it.
fn strip(arriving: &mut GuardedComparison) {
    strip_all_but_who_asked(arriving.meta_mut());
    let Ok(comparison) = &mut arriving.0 else {
        return;
    };
    let status = comparison.status.take().unwrap_or_default();
    let is_over = status.completion_time.is_some();
    comparison.status = Some(if is_over {
        ProfileComparisonStatus {
            completion_time: status.completion_time,
            ..ProfileComparisonStatus::default()
        }
    } else {
        status
    });
    if is_over {
        comparison.spec.before = ComparisonSide::default();
        comparison.spec.after = ComparisonSide::default();
        comparison.spec.routes = Vec::new();
    }
}

fn retry(error: &CompareError) -> Action {
    // A conflict only means that the watch was behind.
    let is_conflict =
        matches!(error, CompareError::Comparison(kube::Error::Api(status)) if status.code == 409);
    if is_conflict {
        return Action::requeue(LOOK);
    }
    tracing::warn!(error = %chain(error), "handling a comparison failed; retrying");
    Action::requeue(PAUSE)
}

async fn reconcile(
    guarded: Arc<GuardedComparison>,
    context: Arc<Context>,
) -> Result<Action, CompareError> {
    let comparison = match &guarded.0 {
        Ok(comparison) => comparison,
        Err(error) => {
            tracing::warn!(%error, "a comparison cannot be parsed; ignoring it");
            return Ok(Action::await_change());
        }
    };
    if comparison.metadata.deletion_timestamp.is_some() {
        // Its requests go with it.
        return Ok(Action::await_change());
    }
    let role = context.cluster.role.clone();
    if !role.leads() {
        return Ok(Action::requeue(PAUSE));
    }
    let span = tracing::info_span!(
        "of",
        comparison = comparison.name_any(),
        namespace = comparison.namespace().unwrap_or_default(),
    );
    tokio::select! {
        looked = ComparisonLook::at(&context, comparison).instrument(span) => looked,
        // From here on, another replica handles it.
        () = role.lost() => Ok(Action::requeue(PAUSE)),
    }
}

/// One reconciliation.
struct ComparisonLook<'a> {
    context: &'a Context,
    comparison: &'a ProfileComparison,
    requests: Api<ProfileRequest>,
    now: Timestamp,
    /// What is written at the end.
    status: ProfileComparisonStatus,
}

impl<'a> ComparisonLook<'a> {
    async fn at(
        context: &'a Context,
        comparison: &'a ProfileComparison,
    ) -> Result<Action, CompareError> {
        let now = context.now();
        let namespace = comparison.namespace().unwrap_or_default();
        let looked = ComparisonLook {
            context,
            comparison,
            requests: Api::namespaced(context.cluster.client.clone(), &namespace),
            now,
            status: status::begun(comparison, now),
        };
        looked.act().await
    }

    async fn act(mut self) -> Result<Action, CompareError> {
        let is_over = self.status.completion_time.is_some();
        let seen = if is_over || self.comparison.spec.template {
            [SideRequest::Missing, SideRequest::Missing]
        } else {
            [
                self.see(SideName::Before).await?,
                self.see(SideName::After).await?,
            ]
        };
        match decide(self.now, self.comparison, &seen) {
            ComparisonStep::Delete => self.delete().await,
            ComparisonStep::Rest(until) => Ok(Action::requeue(
                Duration::try_from(until.duration_since(self.now)).unwrap_or(PAUSE),
            )),
            ComparisonStep::Hold(words) => self.hold(&words).await,
            ComparisonStep::Create(sides) => self.create(&sides).await,
            ComparisonStep::Wait(words) => self.wait(&words).await,
            ComparisonStep::Compare { requests, notes } => {
                self.compare(&requests, &seen, &notes).await
            }
            ComparisonStep::End { why, cancel } => self.end(&why, &cancel).await,
        }
    }

    /// Looks at the request of a side, and notes its uid.
    async fn see(&mut self, side: SideName) -> Result<SideRequest, CompareError> {
        if let Some(run) = &side.spec(self.comparison).archive {
            return self.see_stored(side, run).await;
        }
        let known = side.status(&self.status).request_uid.clone();
        if known.is_empty() && side.is_created(self.comparison) {
            return Ok(SideRequest::NotCreated);
        }
        let name = side.request_name(self.comparison);
        let namespace = self.comparison.namespace().unwrap_or_default();
        let is_it = |request: &ProfileRequest| {
            known.is_empty() || request.uid().is_some_and(|uid| uid == known)
        };
        let lookup = &self.context.cluster.requests;
        // The watch may be behind, so only the API server can say that there is none.
        let found = match lookup.find(&namespace, &name).filter(is_it) {
            Some(found) => Some(found),
            None => {
                let fetched = lookup.fetch(&namespace, &name).await;
                fetched.map_err(CompareError::Observe)?.filter(is_it)
            }
        };
        Ok(match found {
            None => SideRequest::Missing,
            Some(request) => {
                side.status_mut(&mut self.status).request_uid = request.uid().unwrap_or_default();
                SideRequest::There(Box::new(request))
            }
        })
    }

    /// Chooses the stored run of a side once, and notes it.
    async fn see_stored(
        &mut self,
        side: SideName,
        run: &StoredRun,
    ) -> Result<SideRequest, CompareError> {
        if self.comparison.spec.template {
            // It is never run.
            return Ok(SideRequest::NotCreated);
        }
        let namespace = self.comparison.namespace().unwrap_or_default();
        let namespace_uid = self.namespace_uid(&namespace).await?;
        if side.status(&self.status).request_uid.is_empty() {
            let created = self.comparison.creation_timestamp();
            let until = created.map_or(self.now, |it| it.0);
            let other = side.other().spec(self.comparison).request.as_deref();
            let question = StoredQuestion::of(run, until, other);
            let archive = &self.context.storage.archive;
            match archive.newest(&namespace, &namespace_uid, &question).await {
                Ok(Ok(chosen)) => {
                    let of = side.status_mut(&mut self.status);
                    of.request = chosen.name;
                    of.request_uid = chosen.uid;
                }
                Ok(Err(why)) => return Ok(SideRequest::NotStored(why)),
                Err(error) => return Ok(SideRequest::ArchiveAway(error.to_string())),
            }
        }
        let request = stored_request(self.comparison, side, &self.status, &namespace_uid)?;
        Ok(SideRequest::There(Box::new(request)))
    }

    async fn namespace_uid(&self, namespace: &str) -> Result<String, CompareError> {
        if let Some(uid) = self.context.cluster.halts.enabled(namespace) {
            return Ok(uid);
        }
        let namespaces = Api::<Namespace>::all(self.context.cluster.client.clone());
        let metadata = call(|| namespaces.get_metadata(namespace)).await;
        let metadata = metadata.map_err(CompareError::Observe)?;
        Ok(metadata.uid().unwrap_or_default())
    }

    async fn create(mut self, sides: &[SideName]) -> Result<Action, CompareError> {
        let mut created = Vec::new();
        for &side in sides {
            match self.create_one(side).await? {
                Ok(uid) => {
                    side.status_mut(&mut self.status).request_uid = uid;
                    created.push(side);
                }
                Err(why) => return self.end(&why, &created).await,
            }
        }
        let names: Vec<String> = sides
            .iter()
            .map(|side| side.request_name(self.comparison))
            .collect();
        let names = names.join(" and ");
        let found = format!("created {names}");
        let event = events::requests_created(&found);
        self.context.cluster.publish(self.comparison, vec![event]);
        let reason = ComparisonReason::WaitingForRequests;
        self.wait(&ComparisonWords::new(reason, found)).await
    }

    /// The uid of the created request, or why there is none.
    async fn create_one(
        &self,
        side: SideName,
    ) -> Result<Result<String, ComparisonWords>, CompareError> {
        let request = request_of(self.comparison, side)?;
        let (name, params) = (request.name_any(), PostParams::default());
        match call(|| self.requests.create(&params, &request)).await {
            Ok(created) => Ok(Ok(created.uid().unwrap_or_default())),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = call(|| self.requests.get_opt(&name)).await;
                let there = there.map_err(CompareError::Observe)?;
                // The status with its uid was not written, or the watch has not shown it yet.
                let own = there.filter(|it| is_owned(it, self.comparison));
                Ok(own.and_then(|it| it.uid()).ok_or_else(|| {
                    let found =
                        format!("request {name} exists, and does not belong to the comparison");
                    ComparisonWords::new(ComparisonReason::RequestNameTaken, found)
                }))
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 413 | 422) => {
                let found = format!("request {name} was refused: {}", status.message);
                Ok(Err(ComparisonWords::new(
                    ComparisonReason::RequestRefused,
                    found,
                )))
            }
            Err(error) => Err(CompareError::Request(error)),
        }
    }

    async fn wait(mut self, words: &ComparisonWords) -> Result<Action, CompareError> {
        let generation = self.comparison.metadata.generation;
        status::wait(&mut self.status, words, generation, self.now);
        self.write().await?;
        Ok(Action::requeue(LOOK))
    }

    async fn hold(self, words: &ComparisonWords) -> Result<Action, CompareError> {
        self.wait(words).await.map(|_| Action::await_change())
    }

    /// Compares, once the status says so.
    async fn compare(
        mut self,
        requests: &[ProfileRequest; 2],
        seen: &[SideRequest; 2],
        notes: &[ComparisonWords],
    ) -> Result<Action, CompareError> {
        let generation = self.comparison.metadata.generation;
        let comparing = ComparisonReason::Comparing;
        let waits = [comparing, ComparisonReason::WaitingForStore].map(|it| it.to_string());
        let current = self.status.conditions.first().map(|it| it.reason.clone());
        if current.is_none_or(|reason| !waits.contains(&reason)) {
            let words = ComparisonWords::new(comparing, "");
            status::wait(&mut self.status, &words, generation, self.now);
            self.write().await?;
            // The watch shows this version, and the next look compares.
            return Ok(Action::requeue(Duration::from_millis(100)));
        }
        let prefix = &self.context.policy.limits.key_prefix;
        let question = ComparisonQuestion::of(self.comparison);
        let collector = &self.context.storage.collector;
        match collector.compare(requests, prefix, &question).await {
            Ok(compared) => {
                let now = self.context.now();
                status::decide(&mut self.status, &compared, notes, generation, now);
                self.finish().await
            }
            Err(NotCompared::Never(why)) => {
                let ComparisonStep::End { why, cancel } = end(self.comparison, seen, why) else {
                    return Ok(Action::requeue(PAUSE));
                };
                self.end(&why, &cancel).await
            }
            Err(NotCompared::Store(error)) => self.store_is_away(requests, &error).await,
        }
    }

    async fn store_is_away(
        self,
        requests: &[ProfileRequest; 2],
        error: &str,
    ) -> Result<Action, CompareError> {
        let grace = self.context.policy.limits.store_grace;
        let deadline = store_deadline(self.comparison, requests, grace);
        if self.now >= deadline {
            let why = ComparisonWords::new(ComparisonReason::StoreTimeout, error);
            return self.end(&why, &[]).await;
        }
        let found = format!("{error}; tried until {deadline:.0}");
        let words = ComparisonWords::new(ComparisonReason::WaitingForStore, found);
        self.wait(&words).await.map(|_| Action::requeue(PAUSE))
    }

    async fn end(
        mut self,
        why: &ComparisonWords,
        cancel: &[SideName],
    ) -> Result<Action, CompareError> {
        for &side in cancel {
            self.cancel(side).await?;
        }
        let generation = self.comparison.metadata.generation;
        status::end(&mut self.status, why, generation, self.now);
        self.finish().await
    }

    /// Cancels a request that this comparison has created.
    async fn cancel(&self, side: SideName) -> Result<(), CompareError> {
        let name = side.request_name(self.comparison);
        let uid = &side.status(&self.status).request_uid;
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "spec": {"cancel": true}}));
        let params = PatchParams::default();
        match call(|| self.requests.patch(&name, &params, &patch)).await {
            Ok(_) => Ok(()),
            // It is gone, or another one has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
            Err(error) => Err(CompareError::Request(error)),
        }
    }

    /// Writes the last status, then its event.
    async fn finish(&self) -> Result<Action, CompareError> {
        self.write().await?;
        let event = events::compared(&self.status);
        self.context.cluster.publish(self.comparison, vec![event]);
        let verdict = self.status.verdict.map(|it| format!("{it:?}"));
        tracing::info!(verdict, change = self.status.change, "compared");
        Ok(Action::await_change())
    }

    /// Writes the status if it has changed.
    async fn write(&self) -> Result<(), CompareError> {
        if self.comparison.status.as_ref() == Some(&self.status) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": self.comparison.uid(),
                "resourceVersion": self.comparison.resource_version(),
            },
            "status": self.status,
        }));
        let (name, params) = (self.comparison.name_any(), PatchParams::default());
        let api = self.comparisons();
        let written = call(|| api.patch_status(&name, &params, &patch)).await;
        written.map(drop).map_err(CompareError::Comparison)
    }

    async fn delete(&self) -> Result<Action, CompareError> {
        let preconditions = Preconditions {
            uid: self.comparison.uid(),
            // If somebody has just extended its time to live, it is not deleted.
            resource_version: self.comparison.resource_version(),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::background()
        };
        let (name, api) = (self.comparison.name_any(), self.comparisons());
        match call(|| api.delete(&name, &params)).await {
            Ok(_) => Ok(Action::await_change()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::await_change()),
            Err(error) => Err(CompareError::Comparison(error)),
        }
    }

    fn comparisons(&self) -> Api<ProfileComparison> {
        let namespace = self.comparison.namespace().unwrap_or_default();
        Api::namespaced(self.context.cluster.client.clone(), &namespace)
    }
}

#[cfg(test)]
mod tests;
