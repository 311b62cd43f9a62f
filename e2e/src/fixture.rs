//! The fixture of one test: its namespace, its hold on the cluster, and what is printed when the
//! test fails.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::command::kubectl;
use crate::hold::{Hold, Sharing};
use crate::release::{self, Values};
use crate::store::Store;

/// Labels of a namespace.
pub type Labels = &'static [(&'static str, &'static str)];

const OPTED_IN: (&str, &str) = (
    phpprof_crds::NAMESPACE_LABEL,
    phpprof_crds::NAMESPACE_ENABLED,
);
/// A namespace that may be profiled.
pub const ENABLED: Labels = &[OPTED_IN];
/// A namespace that may be profiled and enforces Pod Security `restricted`.
pub const RESTRICTED: Labels = &[
    OPTED_IN,
    ("pod-security.kubernetes.io/enforce", "restricted"),
];
/// A namespace that has not opted in.
pub const NOT_ENABLED: Labels = &[];

/// A label of all namespaces that the tests make. By it the next run finds those of a run that was
/// killed.
const OURS: &str = "phpprof.dev/e2e";

/// What one test has of the cluster.
pub struct Fixture {
    /// The administrator's client.
    pub client: Client,
    /// The test's own namespace, which is deleted after the test.
    pub namespace: String,
    /// The bucket of the release.
    pub store: Store,
}

/// Runs a test that does not disturb others, at the same time as other such tests.
pub fn shared(labels: Labels, test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    on_cluster(async || play(labels, Sharing::Shared, &[], test).await)
}

/// Like [`shared`], with a release that differs by these `--set` values.
pub fn shared_on(values: Values, test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    on_cluster(async || play(ENABLED, Sharing::Shared, values, test).await)
}

/// Runs a test while no other test runs on its cluster, and restores what it stopped or changed.
/// Such a test is in a module `alone`, by which nextest runs it on a second cluster. One whose
/// times others would change is in a module `quiet`, by which nextest runs it when all others on
/// the first cluster are over.
pub fn exclusive(test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    exclusive_on(&[], test)
}

/// Like [`exclusive`], with a release that differs by these `--set` values.
pub fn exclusive_on(values: Values, test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    let is_of = |argument: &str| {
        ["alone::", "quiet::"]
            .iter()
            .any(|name| argument.contains(name))
    };
    let named = std::env::args().any(|argument| is_of(&argument));
    ensure!(
        named || std::env::var_os("NEXTEST").is_none(),
        "an exclusive test is in a module `alone` or `quiet` (.config/nextest.toml)"
    );
    on_cluster(async || play(ENABLED, Sharing::Exclusive, values, test).await)
}

/// Prepares the cluster for a run of the tests: removes what a killed run left, and installs the
/// tested release.
pub fn prepare() -> Result<()> {
    on_cluster(async || {
        let client = connect().await?;
        let _hold = Hold::anew(&client).await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let left = namespaces.list(&ListParams::default().labels(OURS)).await?;
        let stays = |namespace: &&Namespace| namespace.metadata.deletion_timestamp.is_none();
        for left in left.iter().filter(stays) {
            namespaces
                .delete(&left.name_any(), &DeleteParams::background())
                .await?;
        }
        let fixture = Fixture::create(client, NOT_ENABLED).await?;
        tokio::try_join!(release::renew(), fixture.clear_all())?;
        fixture.remove().await
    })
}

fn on_cluster(act: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    // Only one provider is compiled in, so the only possible error is that it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(act())
}

async fn connect() -> Result<Client> {
    Client::try_default()
        .await
        .context("no cluster; make e2e starts one")
}

async fn play(
    labels: Labels,
    sharing: Sharing,
    values: Values,
    test: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    let client = connect().await?;
    let hold = Hold::take(&client, sharing, values).await?;
    let fixture = Fixture::create(client, labels).await?;
    let result = match test(&fixture).await {
        Ok(()) => fixture.clear_store().await,
        Err(error) => Err(anyhow!("{error:?}\n{}", fixture.evidence().await)),
    };
    result.and(fixture.remove().await).and(hold.end().await)
}

impl Fixture {
    async fn create(client: Client, labels: Labels) -> Result<Fixture> {
        let mut object = json!({"metadata": {"generateName": "e2e-", "labels": {OURS: "true"}}});
        for (key, value) in labels {
            object["metadata"]["labels"][key] = json!(value);
        }
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let made = namespaces
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        let namespace = made.name_any();
        Ok(Fixture {
            store: Store::open()?,
            client,
            namespace,
        })
    }

    /// Runs something in another namespace with these labels, which is deleted afterwards.
    pub async fn beside<T>(
        &self,
        labels: Labels,
        act: impl AsyncFnOnce(&Fixture) -> Result<T>,
    ) -> Result<T> {
        let other = Self::create(self.client.clone(), labels).await?;
        let done = act(&other).await;
        other.remove().await?;
        done
    }

    async fn remove(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::background())
            .await?;
        Ok(())
    }

    /// A client for the namespace's objects of a kind.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What a reader needs to see why a test failed.
    async fn evidence(&self) -> String {
        let here = ["--namespace", &self.namespace];
        let of_operator = ["--namespace", release::NAMESPACE];
        let looks: [(&[&str], &[&str]); 6] = [
            (&here, &["get", "profilerequests", "--output=yaml"]),
            (&here, &["get", "pods", "--output=wide"]),
            (
                &here,
                &["get", "events", "--sort-by=.metadata.creationTimestamp"],
            ),
            (
                &here,
                &[
                    "logs",
                    "--selector=app=web",
                    "--all-containers",
                    "--prefix",
                    "--tail=5",
                ],
            ),
            (&of_operator, &["get", "pods", "--output=wide"]),
            (
                &of_operator,
                &[
                    "logs",
                    "--selector=app.kubernetes.io/name=phpprof",
                    "--tail=40",
                ],
            ),
        ];
        let mut evidence = String::new();
        for (place, what) in looks {
            let shown = kubectl(&[place, what].concat())
                .await
                .unwrap_or_else(|error| error.to_string());
            evidence += &format!(
                "--- kubectl {} {}\n{shown}",
                place.join(" "),
                what.join(" ")
            );
        }
        evidence
    }
}

/// Asks repeatedly until there is an answer.
pub async fn poll<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(limit, asking)
        .await
        .with_context(|| format!("waited {limit:?} for this: {what}"))?
}
