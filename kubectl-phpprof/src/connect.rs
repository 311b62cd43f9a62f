//! From flags and kubeconfig to a client of the API server.
//!
//! It asks the API server for nothing.
//!
//! Invariant: a user's credentials go to the API server of the chosen context and nowhere else.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use phpprof_crds::{ProfileRequest, chain};

use crate::cli::Global;
use crate::failure::{Exit, Failure};
use crate::suggest::Suggest;

const CONNECT: Duration = Duration::from_secs(10);
/// A profile is at most 32 MiB, and arrives in parts.
const ANSWER: Duration = Duration::from_secs(60);

/// A cluster, and the namespace that names are looked up in.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    pub suggest: Suggest,
    pub operator_namespace: String,
    pub operator_name: String,
}

impl Cluster {
    pub async fn of(global: &Global) -> Result<Self, Failure> {
        let wrong = |error: &dyn std::error::Error| {
            Failure::new(
                Exit::Unreachable,
                format!("no usable kubeconfig: {}", chain(error)),
                "name one with --kubeconfig or KUBECONFIG, and a context of it with --context",
            )
        };
        // The process may already have one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = config(global)
            .await
            .map_err(|error| wrong(error.as_ref()))?;
        let namespace = global
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        Ok(Cluster {
            suggest: Suggest::of(&namespace, &config.default_namespace),
            client: Client::try_from(config).map_err(|error| wrong(&error))?,
            namespace,
            operator_namespace: global.operator_namespace.clone(),
            operator_name: global.operator_name.clone(),
        })
    }

    /// The same cluster, for what lies in another namespace.
    pub fn in_namespace(self, namespace: String) -> Self {
        Cluster {
            suggest: self.suggest.in_namespace(&self.namespace, &namespace),
            namespace,
            ..self
        }
    }

    /// The requests of the namespace, as they are: a newer operator's fields are kept.
    pub fn requests(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource())
    }

    /// One of them, by its name.
    pub async fn request(&self, name: &str) -> Result<DynamicObject, Failure> {
        let action = format!("get profilerequests/{name} in namespace {}", self.namespace);
        let got = self.requests().get(name).await;
        got.map_err(|error| Failure::of_api(&action, &error))
    }

    pub fn all_requests(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource())
    }
}

fn resource() -> ApiResource {
    ApiResource::erase::<ProfileRequest>(&())
}

async fn config(global: &Global) -> Result<Config, Box<dyn std::error::Error>> {
    let options = KubeConfigOptions {
        context: global.context.clone(),
        cluster: global.cluster.clone(),
        user: global.user.clone(),
    };
    let named = global.kubeconfig.is_some()
        || global.context.is_some()
        || global.cluster.is_some()
        || global.user.is_some();
    let kubeconfig = match &global.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let mut config = match kubeconfig {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await?,
        // In a pod, as in a CronJob, the service account is the context.
        Err(error) if !named => Config::incluster().map_err(|_| error)?,
        Err(error) => return Err(error.into()),
    };
    // A person waits: what fails is said at once, and not tried again for minutes.
    config.default_retry = false;
    // kubectl's 0 is no limit.
    let answer = match global.request_timeout {
        None => Some(ANSWER),
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    };
    config.connect_timeout = Some(answer.unwrap_or(CONNECT).min(CONNECT));
    config.read_timeout = answer;
    config.write_timeout = answer;
    config.auth_info.impersonate = global.impersonate.clone().or(config.auth_info.impersonate);
    if !global.impersonate_groups.is_empty() {
        config.auth_info.impersonate_groups = Some(global.impersonate_groups.clone());
    }
    Ok(config)
}
