//! Creates requests, and watches how they end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use phpprof_crds::{ProfileRequest, ProfileRequestStatus};
use serde_json::json;

const LOOK: Duration = Duration::from_millis(100);

/// How a request ended, and when its watch showed that.
#[derive(Clone)]
pub struct RequestEnd {
    pub at: Instant,
    pub status: ProfileRequestStatus,
}

/// A request that was created.
#[derive(Clone)]
pub struct Made {
    pub uid: String,
    pub name: String,
    pub at: Instant,
    /// The pods that it has to profile, and those of them that end before they are profiled.
    pub pods: usize,
    pub doomed: usize,
}

pub struct Requests {
    client: Client,
    ended: Mutex<HashMap<String, RequestEnd>>,
    pub duration: Duration,
}

impl Requests {
    /// Begins to watch.
    pub fn start(client: Client, duration: Duration) -> Arc<Self> {
        let all = Arc::new(Self {
            client,
            ended: Mutex::default(),
            duration,
        });
        tokio::spawn(all.clone().watch());
        all
    }

    fn ended(&self) -> MutexGuard<'_, HashMap<String, RequestEnd>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn make(
        &self,
        namespace: &str,
        name: &str,
        label: &str,
        pods: usize,
        doomed: usize,
    ) -> Result<Made> {
        let (key, value) = label.split_once('=').context("a label without a value")?;
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": name},
            "spec": {"target": {"selector": {"matchLabels": {key: value}}, "maxPods": pods}, "durationSeconds": self.duration.as_secs()},
        });
        let requests: Api<ProfileRequest> = Api::namespaced(self.client.clone(), namespace);
        let at = Instant::now();
        let made = requests
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        Ok(Made {
            uid: made.uid().unwrap_or_default(),
            name: name.to_owned(),
            at,
            pods,
            doomed,
        })
    }

    pub fn end(&self, made: &Made) -> Option<RequestEnd> {
        self.ended().get(&made.uid).cloned()
    }

    /// Waits until a request has ended.
    pub async fn over(&self, made: &Made, limit: Duration) -> Result<RequestEnd> {
        let until = Instant::now() + limit;
        loop {
            if let Some(ended) = self.end(made) {
                return Ok(ended);
            }
            let waits = Instant::now() < until;
            ensure!(waits, "request {} did not end in {limit:?}", made.name);
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn watch(self: Arc<Self>) {
        let requests: Api<ProfileRequest> = Api::all(self.client.clone());
        let mut changes = watcher(requests, watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        loop {
            match changes.try_next().await {
                Ok(Some(request)) => self.see(request),
                Ok(None) => return,
                // The watch continues by itself. If the request's end is missed, the test fails.
                Err(_) => {}
            }
        }
    }

    fn see(&self, request: ProfileRequest) {
        let (uid, status) = (
            request.uid().unwrap_or_default(),
            request.status.unwrap_or_default(),
        );
        if status.completion_time.is_some() {
            self.ended().entry(uid).or_insert(RequestEnd {
                at: Instant::now(),
                status,
            });
        }
    }
}

/// Checks that every pod is profiled except those that ended before, and that nothing else is
/// reported.
pub fn check(made: &Made, status: &ProfileRequestStatus) -> Result<()> {
    let reason = status
        .conditions
        .first()
        .map_or("", |condition| condition.reason.as_str());
    let expected = if made.doomed == 0 {
        "Complete"
    } else {
        "SomeTargetsFailed"
    };
    let counts = (
        usize::try_from(status.succeeded)?,
        usize::try_from(status.failed)?,
    );
    let message = status
        .conditions
        .first()
        .map_or("", |condition| condition.message.as_str());
    ensure!(
        reason == expected && counts == (made.pods - made.doomed, made.doomed),
        "request {} ended as {reason} with {counts:?} pods profiled and not: {message}",
        made.name
    );
    Ok(())
}
