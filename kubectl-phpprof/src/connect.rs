//! Makes a client of the API server from flags and kubeconfig.
//!
//! It makes no call to the API server.
//!
//! Invariant: a user's credentials go to the API server of the chosen context and nowhere else.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use phpprof_crds::{ProfileRequest, chain};

use crate::cli::Global;
use crate::failure::{Exit, Failure};
use crate::results::Forwards;
use crate::suggest::{Given, Suggest};

const CONNECT: Duration = Duration::from_secs(10);
/// The time limit of an answer. A profile has at most 32 MiB, and arrives in parts.
const ANSWER: Duration = Duration::from_secs(60);

/// A cluster, and the namespace of names.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    pub suggest: Suggest,
    pub operator_namespace: String,
    pub operator_name: String,
    /// The way to the operator's pods if the API server does not reach them.
    pub forwards: Forwards,
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
        // The process may already have a provider, which also works.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = config(global)
            .await
            .map_err(|error| wrong(error.as_ref()))?;
        let namespace = global
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let given = Given::of(global, |name| std::env::var(name).ok());
        Ok(Cluster {
            suggest: Suggest::of(&namespace, &config.default_namespace, given),
            client: Client::try_from(config).map_err(|error| wrong(&error))?,
            namespace,
            operator_namespace: global.operator_namespace.clone(),
            operator_name: global.operator_name.clone(),
            forwards: Forwards::default(),
        })
    }

    /// The same cluster with another namespace.
    pub fn in_namespace(self, namespace: String) -> Self {
        Cluster {
            suggest: self.suggest.in_namespace(&self.namespace, &namespace),
            namespace,
            ..self
        }
    }

    /// The requests of the namespace as raw objects, so that fields of a newer operator are kept.
    pub fn requests(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource())
    }

    /// The request with this name.
    pub async fn request(&self, name: &str) -> Result<DynamicObject, Failure> {
        let action = format!("get profilerequests/{name} in namespace {}", self.namespace);
        let got = self.requests().get(name).await;
        got.map_err(|error| Failure::of_api(&self.suggest, &action, &error))
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
        // In a pod, for instance of a CronJob, the service account is the context.
        Err(error) if !named => Config::incluster().map_err(|_| error)?,
        Err(error) => return Err(error.into()),
    };
    // A user waits, so an error is reported at once instead of being retried for minutes.
    config.default_retry = false;
    // In kubectl, 0 means no limit.
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
