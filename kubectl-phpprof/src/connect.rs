//! Makes a client of the API server from flags and kubeconfig: files are read, a plan is made of
//! them (`plan`), and carried out.
//!
//! It makes no call to the API server.
//!
//! Invariant: a user's credentials go to the API server of the chosen context and nowhere else.

mod client;
mod exec;
mod expiry;
mod files;
mod identity;
mod keep;
mod kubeconfig;
mod kuberc;
mod login;
mod oidc;
mod path;
mod plan;
mod proxy;
mod source;
mod tls;
mod way;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::{AuthInfo, Cluster as ClusterEntry, KubeConfigOptions};
use kube::{Client, Config};
use phpprof_crds::{ProfileRequest, chain};

use crate::failure::{Exit, Failure};
use crate::forwards::Forwards;
use crate::global::Global;
use crate::suggest::{RepeatedFlags, Suggest};
use exec::Exec;
use files::Entries;
use identity::{Files, IdentityError};
use login::{Giver, Renewed, TokenFile};
use oidc::Oidc;
use plan::{ConnectPlan, Login};
use tls::Current;
use way::Way;

const CONNECT: Duration = Duration::from_secs(10);
/// The time limit of an answer. A profile has at most 32 MiB, and arrives in parts.
const ANSWER: Duration = Duration::from_secs(60);

/// A cluster, and the namespace of names.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The context's name, or `in-cluster` for a service account.
    pub context: String,
    /// Whether the context is of a kubeconfig.
    pub is_of_file: bool,
    pub namespace: String,
    pub suggest: Suggest,
    pub operator_namespace: String,
    pub operator_name: String,
    /// The way to the operator's pods if the API server does not reach them.
    pub forwards: Forwards,
}

impl Cluster {
    pub async fn of(global: &Global) -> Result<Self, Failure> {
        let entries = entries(global).map_err(|error| unusable(error.as_ref()))?;
        let of_context = entries
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        let namespace = global.namespace.clone().unwrap_or(of_context.clone());
        let context = entries.context.clone();
        let given = RepeatedFlags::of(global, variable);
        let client = connected(global, entries, of_context.clone()).await;
        Ok(Cluster {
            suggest: Suggest::of(&namespace, &of_context, given),
            client: client.map_err(|error| unusable(error.as_ref()))?,
            is_of_file: context.is_some(),
            context: context.unwrap_or_else(|| "in-cluster".to_owned()),
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

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn unusable(error: &(dyn std::error::Error + 'static)) -> Failure {
    let hint = remedy(error)
        .unwrap_or("name one with --kubeconfig or KUBECONFIG, and a context of it with --context");
    Failure::new(
        Exit::Unreachable,
        format!("no usable kubeconfig: {}", chain(error)),
        hint,
    )
}

fn remedy(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<plan::PlanError>() {
        return error.remedy();
    }
    if let Some(error) = error.downcast_ref::<login::LoginError>() {
        return error.remedy();
    }
    if error.is::<kuberc::KubercError>() {
        return Some("correct the file, or turn it off for kubectl too: KUBERC=off");
    }
    let error = match error.downcast_ref::<IdentityError>() {
        Some(IdentityError::Tls(error)) => Some(error),
        _ => error.downcast_ref::<tls::TlsError>(),
    };
    error.map(|it| it.remedy())
}

/// The context's entries. Where no file chooses one, in a pod, for instance of a CronJob: those of
/// its service account.
fn entries(global: &Global) -> Result<Entries, Box<dyn std::error::Error>> {
    let options = KubeConfigOptions {
        context: global.context.clone(),
        cluster: global.cluster.clone(),
        user: global.user.clone(),
    };
    let named = global.kubeconfig.is_some()
        || global.context.is_some()
        || global.cluster.is_some()
        || global.user.is_some();
    let paths = files::paths(
        global.kubeconfig.as_deref(),
        variable("KUBECONFIG").as_deref(),
        std::env::home_dir().as_deref(),
    );
    let files = files::read(&paths, global.kubeconfig.is_some());
    match files.and_then(|files| files::chosen(files, &options)) {
        Ok(entries) => Ok(entries),
        Err(error) if error.is_nothing() && !named => in_cluster().ok_or(error.into()),
        Err(error) => Err(error.into()),
    }
}

fn in_cluster() -> Option<Entries> {
    let config = Config::incluster().ok()?;
    let authority: Option<PathBuf> = config.root_cert_file;
    Some(Entries {
        context: None,
        cluster: ClusterEntry {
            server: Some(config.cluster_url.to_string()),
            certificate_authority: authority.map(|path| path.display().to_string()),
            ..ClusterEntry::default()
        },
        user: config.auth_info,
        namespace: Some(config.default_namespace),
        kept: None,
    })
}

async fn connected(
    global: &Global,
    entries: Entries,
    namespace: String,
) -> Result<Client, Box<dyn std::error::Error>> {
    let plan = plan::plan(&entries.cluster, &entries.user, &variable)?;
    let identity = Current::default();
    let own = plan.identity.clone();
    let files = match own.map(|own| Files::start(own, identity.clone())) {
        Some(Ok(files)) => Some(Arc::new(Mutex::new(files))),
        Some(Err(error)) => return Err(error.into()),
        None => None,
    };
    let authorities = source::authorities(&plan.trust)?;
    // In kubectl, 0 means no limit.
    let answer = match global.request_timeout {
        None => Some(ANSWER),
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    };
    let way = Way {
        proxy: plan.proxy.clone(),
        tls: tls::config(&authorities, identity.clone())?,
        server_name: plan.server_name.clone(),
        connect_timeout: Some(answer.unwrap_or(CONNECT).min(CONNECT)),
        answer_timeout: answer,
        identity: identity.clone(),
        files,
    };
    let mut config = Config::new(plan.server.clone());
    config.default_namespace = namespace;
    config.auth_info = user(global, &entries.user, &plan);
    let giver = match plan.login {
        Login::Plain => None,
        Login::File { path, otherwise } => Some(Giver::File(TokenFile::of(path, otherwise))),
        Login::Exec(config) => Some(Giver::Exec(Box::new(Exec {
            config: *config,
            policy: kuberc::load(std::env::home_dir().as_deref(), &variable)?,
            identity,
        }))),
        Login::Oidc(config) => Some(Giver::Oidc(Box::new(Oidc {
            config,
            kept: entries.kept,
            variable,
            limit: oidc::LIMIT,
        }))),
    };
    let login = match giver {
        Some(giver) => Some(Renewed::start(giver).await?),
        None => None,
    };
    Ok(client::client(&way, &config, login)?)
}

fn user(global: &Global, entry: &AuthInfo, plan: &ConnectPlan) -> AuthInfo {
    let mut user = plan::plain(entry, plan);
    user.impersonate = global.impersonate.clone().or(user.impersonate);
    if !global.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(global.impersonate_groups.clone());
    }
    user
}
