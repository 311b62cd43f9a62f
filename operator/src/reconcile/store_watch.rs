//! Probes the store, and while this replica leads, writes how the store is into a ConfigMap, where
//! `doctor` reads it.
//!
//! Invariant: a store that was found without create-only writes is probed again each hour until it
//! has them; a probe that was not answered is repeated after a minute.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use phpprof_crds::chain;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::lease::Role;
use crate::metrics::Metrics;
use crate::reconcile::calls::call;
use crate::storage::store::ProfileStore;
use crate::storage::store::health::{Health, WriteGuard};

/// How often a store without create-only writes is probed.
const PROBE_AGAIN: Duration = Duration::from_secs(3600);
/// How soon after a probe without an answer the next one comes.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// How often the ConfigMap is compared with what is known.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// A newer success alone is written this seldom.
const SUCCESS_EVERY: i64 = 300;
/// The key of the ConfigMap. The plugin has the same (`doctor/observe.rs`).
const KEY: &str = "store";

/// What watching the store needs.
pub struct StoreWatch {
    /// Writes the ConfigMap.
    pub client: Client,
    /// Whether this replica leads. The leader alone writes the ConfigMap.
    pub role: Arc<Role>,
    /// The store. Each replica probes it, because each writes uploads of its relay.
    pub store: ProfileStore,
    /// Count what was found.
    pub metrics: Metrics,
    /// The ConfigMap as namespace and name, if there is one.
    pub map: Option<(String, String)>,
}

impl StoreWatch {
    /// Runs until the process ends.
    pub async fn run(self) {
        let (mut next, mut written) = (Some(Instant::now()), Health::default());
        loop {
            if next.is_some_and(|next| next <= Instant::now()) {
                next = self.probe().await.map(|pause| Instant::now() + pause);
            }
            let health = self.store.health();
            if let Some((namespace, name)) = &self.map
                && self.role.leads()
                && is_news(&written, &health)
            {
                match write(&self.client, namespace, name, &health).await {
                    Ok(()) => written = health,
                    Err(error) => {
                        let error = chain(&error);
                        tracing::warn!(error, name, "writing the state of the store failed");
                    }
                }
            }
            tokio::time::sleep(WRITE_EVERY).await;
        }
    }

    /// Probes once. Returns the time until the next probe; `None` if the store has create-only
    /// writes.
    async fn probe(&self) -> Option<Duration> {
        let probed = self.store.probe().await;
        self.metrics.found(self.store.health().writes);
        match probed {
            Ok(WriteGuard::CreateOnly) => None,
            Ok(_) => Some(PROBE_AGAIN),
            // The store has logged the cause.
            Err(_) => Some(TRY_AGAIN),
        }
    }
}

/// Whether the ConfigMap has to be written again.
fn is_news(written: &Health, now: &Health) -> bool {
    let seconds = |health: &Health| health.last_success.map(Timestamp::as_second);
    let is_newer = match (seconds(written), seconds(now)) {
        (Some(before), Some(now)) => now - before >= SUCCESS_EVERY,
        (before, now) => before != now,
    };
    let rest = |health: &Health| {
        let error = health
            .last_error
            .as_ref()
            .map(|error| error.message.clone());
        (health.writes, health.probed_at, error, health.is_failing())
    };
    is_newer || rest(written) != rest(now)
}

async fn write(client: &Client, namespace: &str, name: &str, health: &Health) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"data": {KEY: told(health).to_string()}}));
    let params = PatchParams::default();
    call(|| maps.patch(name, &params, &patch)).await.map(|_| ())
}

/// A condition as Kubernetes has them, with the last success and the last error.
fn told(health: &Health) -> Value {
    let (status, reason) = match health.writes {
        WriteGuard::Unknown => ("Unknown", "NotProbed"),
        WriteGuard::CreateOnly => ("True", "Refused"),
        WriteGuard::Overwrites => ("False", "Overwrites"),
        WriteGuard::NotImplemented => ("False", "NotImplemented"),
    };
    let error = health.last_error.as_ref();
    json!({
        "type": "StoreCreateOnly", "status": status, "reason": reason, "message": health.words(),
        "lastProbeTime": health.probed_at,
        "lastSuccessTime": health.last_success,
        "lastErrorTime": error.map(|error| error.at),
        "lastError": error.map(|error| error.message.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::health::LastError;
    use crate::testing::at;

    fn known(writes: WriteGuard, success: i64) -> Health {
        Health {
            writes,
            probed_at: Some(at(0)),
            last_success: Some(at(success)),
            last_error: None,
        }
    }

    #[test]
    fn is_news_takes_failures_and_occasional_successes() {
        let good = known(WriteGuard::CreateOnly, 0);
        assert!(is_news(&Health::default(), &good));
        assert!(!is_news(&good, &known(WriteGuard::CreateOnly, 299)));
        assert!(is_news(&good, &known(WriteGuard::CreateOnly, 300)));
        assert!(is_news(&good, &known(WriteGuard::Overwrites, 0)));
        let failed = Health {
            last_error: Some(LastError {
                at: at(1),
                message: "put: no".into(),
            }),
            ..good.clone()
        };
        assert!(is_news(&good, &failed));
        // The same error, and then a success: what matters is whether the last call failed.
        let recovered = Health {
            last_success: Some(at(2)),
            ..failed.clone()
        };
        assert!(is_news(&failed, &recovered));
    }

    #[test]
    fn told_is_a_condition() {
        let told = told(&known(WriteGuard::Overwrites, 5));
        assert_eq!(told["type"], "StoreCreateOnly");
        assert_eq!(
            (&told["status"], &told["reason"]),
            (&json!("False"), &json!("Overwrites"))
        );
        assert_eq!(told["lastSuccessTime"], json!(at(5)));
        assert_eq!(told["lastError"], Value::Null);
    }
}
