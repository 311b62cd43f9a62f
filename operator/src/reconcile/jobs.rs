//! Work on the store that runs outside of the reconciliations. Neither the acceptance of another request nor a cancellation waits for it.
//!
//! Invariant: a job of a request runs only once until a reconciliation has taken its outcome. If that is lost, the work is repeated and
//! nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use tracing::Instrument as _;

use crate::decide::effect::{Done, Job, JobKey};
use crate::reconcile::context::Context;
use crate::reconcile::events;
use crate::reconcile::watches::RequestRef;
use phpprof_crds::chain;

/// By the uid of the request. A job without an outcome is still running.
#[derive(Default)]
pub struct Jobs(Mutex<HashMap<String, BTreeMap<JobKey, Option<Done>>>>);

impl Jobs {
    fn all(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<JobKey, Option<Done>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs whose outcome has not been taken.
    pub fn under_way(&self, request_uid: &str) -> BTreeSet<JobKey> {
        let all = self.all();
        let jobs = all.get(request_uid).into_iter().flat_map(BTreeMap::keys);
        jobs.cloned().collect()
    }

    /// The number of outcomes that have not been taken.
    pub fn ended(&self, request_uid: &str) -> usize {
        let all = self.all();
        let jobs = all.get(request_uid).into_iter().flat_map(BTreeMap::values);
        jobs.filter(|outcome| outcome.is_some()).count()
    }

    /// Returns whether the job was not under way.
    fn begin(&self, request_uid: &str, key: &JobKey) -> bool {
        let mut all = self.all();
        let jobs = all.entry(request_uid.to_owned()).or_default();
        let is_new = !jobs.contains_key(key);
        jobs.entry(key.clone()).or_default();
        is_new
    }

    fn end(&self, request_uid: &str, key: &JobKey, done: Done) {
        if let Some(outcome) = self
            .all()
            .get_mut(request_uid)
            .and_then(|jobs| jobs.get_mut(key))
        {
            *outcome = Some(done);
        }
    }

    /// Takes the outcomes of finished jobs.
    pub fn take(&self, request_uid: &str) -> Vec<Done> {
        let mut all = self.all();
        let Some(jobs) = all.remove(request_uid) else {
            return Vec::new();
        };
        let (ended, open): (BTreeMap<_, _>, BTreeMap<_, _>) =
            jobs.into_iter().partition(|(_, done)| done.is_some());
        if !open.is_empty() {
            all.insert(request_uid.to_owned(), open);
        }
        ended.into_values().flatten().collect()
    }

    /// Forgets a request that is gone.
    pub fn forget(&self, request_uid: &str) {
        self.all().remove(request_uid);
    }

    /// Forgets everything, because another replica handles requests now.
    pub fn forget_all(&self) {
        self.all().clear();
    }
}

/// Starts a job, unless one of its key is under way. Its end triggers a reconciliation of the request.
pub fn start(context: &Arc<Context>, reference: &RequestRef, request: &ProfileRequest, job: Job) {
    let (uid, key) = (request.uid().unwrap_or_default(), job.key());
    if !context.jobs.begin(&uid, &key) {
        return;
    }
    let (context, reference, request) = (context.clone(), reference.clone(), request.clone());
    let done = async move {
        let beside = context.clone();
        let work = async move { work(&beside, &request, job).await };
        let work = tokio::spawn(work.in_current_span());
        // A job that ends without an outcome is retried as if the store had not answered.
        let done = work
            .await
            .unwrap_or_else(|error| Done::StoreAway(error.to_string()));
        context.jobs.end(&uid, &key, done);
        context.watches.look_again(reference);
    };
    tokio::spawn(done.in_current_span());
}

async fn work(context: &Arc<Context>, request: &ProfileRequest, job: Job) -> Done {
    let (collector, limits, begin) = (&context.collector, &context.limits, Instant::now());
    match job {
        Job::Verify(upload) => {
            let done = collector.verify(&upload).await;
            context.metrics.verified(begin);
            done
        }
        Job::ReadReceipt(receipt) => collector.receipt(&receipt).await,
        Job::Recover(recovery) => collector.recover(&recovery).await,
        Job::Merge => {
            let done = merge(context, request).await;
            context.metrics.merged(begin);
            done
        }
        Job::List => collector.list(request, limits).await,
        Job::Export => export(context, request).await,
    }
}

/// Exports the result. Fetches the whole request first, because the watch keeps little of a finished one.
async fn export(context: &Arc<Context>, request: &ProfileRequest) -> Done {
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let whole = match context.requests.fetch(&namespace, &name).await {
        Ok(Some(whole)) if whole.uid() == request.uid() => whole,
        Ok(_) => return Done::Exported,
        Err(error) => return Done::TryAgain(chain(&error)),
    };
    let (exporter, collector, limits) = (&context.exporter, &context.collector, &context.limits);
    let exported = exporter.tell(collector, &whole, limits).await;
    let events = exported.into_iter().map(events::exported).collect();
    context.publish(&whole, events);
    Done::Exported
}

async fn merge(context: &Context, request: &ProfileRequest) -> Done {
    let mut done = context.collector.merge(request, &context.limits).await;
    if let Done::Merged {
        profile,
        links,
        cancelled,
        ..
    } = &mut done
    {
        let uid = request.uid().unwrap_or_default();
        if cancelled.is_none() && !context.expectations.stopped(&uid).is_empty() {
            *cancelled = Some("profiling was stopped".to_owned());
        }
        profile.access_key = context.keyring.access_key(&uid).into();
        *links = crate::export::links::links(
            &context.links,
            request,
            &profile.access_key,
            context.now(),
        );
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_under_way_until_its_outcome_is_taken() {
        let jobs = Jobs::default();
        let (one, other) = (JobKey::Target("a".into()), JobKey::Collection);
        assert!(jobs.begin("u", &one) && jobs.begin("u", &other));
        jobs.end("u", &one, Done::Listed);
        assert!(!jobs.begin("u", &one));
        assert_eq!((jobs.ended("u"), jobs.ended("v")), (1, 0));
        assert_eq!(jobs.take("u"), [Done::Listed]);
        assert_eq!(jobs.under_way("u"), [other].into());
        assert!(jobs.begin("u", &one));
    }

    #[test]
    fn what_comes_of_a_request_that_is_gone_is_dropped() {
        let jobs = Jobs::default();
        assert!(jobs.begin("u", &JobKey::Collection));
        jobs.forget("u");
        jobs.end("u", &JobKey::Collection, Done::Listed);
        assert_eq!(jobs.take("u"), []);
    }
}
