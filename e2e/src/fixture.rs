//! The fixture of one test: its namespace, and what is printed when the test fails.

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::command::kubectl;
use crate::release;
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
pub(crate) const OURS: &str = "phpprof.dev/e2e";

/// What one test has of the cluster.
pub struct Fixture {
    /// The administrator's client.
    pub client: Client,
    /// The test's own namespace, which is deleted after the test.
    pub namespace: String,
    /// The bucket of the release.
    pub store: Store,
}

impl Fixture {
    pub(crate) async fn create(client: Client, labels: Labels) -> Result<Fixture> {
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

    pub(crate) async fn remove(&self) -> Result<()> {
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
    pub(crate) async fn evidence(&self) -> String {
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
