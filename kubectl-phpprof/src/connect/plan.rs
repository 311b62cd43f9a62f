//! Decides how the API server of a context is reached, and as whom: a kubeconfig's entries and the
//! environment in, a plan out.
//!
//! It reads no file and no environment, and runs no program.
//!
//! Invariant: the plan is what client-go makes of the same entries (tools/clientcmd,
//! `ClientConfig`, and transport, `HTTPWrappersForConfig`): empty values are unset, a token goes
//! before a plugin, and nothing is sent as a user without TLS.

use std::collections::HashMap;

use http::Uri;
use kube::config::{AuthInfo, Cluster, ExecConfig};
use secrecy::{ExposeSecret as _, SecretString};

use super::proxy::{self, ProxyError, ServerProxy};

#[derive(Debug)]
pub struct ConnectPlan {
    pub server: Uri,
    pub proxy: Option<ServerProxy>,
    /// The name that the certificate must have, if it is not the server's address.
    pub server_name: Option<String>,
    pub trust: Trust,
    pub identity: Option<ClientIdentity>,
    pub login: Login,
}

/// Whose certificate the server may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Of the authorities of this machine.
    System,
    Authorities(PemSource),
    /// `insecure-skip-tls-verify`.
    Anything,
}

/// A client certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: PemSource,
    pub key: PemSource,
}

/// Where a PEM is. It names itself as the kubeconfig does, for messages.
#[derive(Clone, PartialEq, Eq)]
pub enum PemSource {
    File(String),
    /// The name of the field, and base64.
    Data(&'static str, String),
}

impl std::fmt::Debug for PemSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl PemSource {
    pub fn name(&self) -> &str {
        match self {
            PemSource::File(path) => path,
            PemSource::Data(field, _) => field,
        }
    }
}

/// How a user shows who they are, apart from a certificate.
pub enum Login {
    /// By nothing, or by what kube sends by itself: a token, a name and password.
    Plain,
    /// By the token in a file, else by another.
    File {
        path: String,
        otherwise: Option<SecretString>,
    },
    Exec(Box<ExecConfig>),
    /// The `config` of the `auth-provider` oidc.
    Oidc(HashMap<String, String>),
}

/// Only the kind: the rest has credentials.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Login::Plain => "Plain",
            Login::File { .. } => "File",
            Login::Exec(_) => "Exec",
            Login::Oidc(_) => "Oidc",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the cluster has no server")]
    NoServer,
    #[error("the cluster's server {0} is not a URL")]
    Server(String),
    #[error("the proxy cannot be used")]
    Proxy(#[from] ProxyError),
    #[error(
        "the cluster has a certificate authority and insecure-skip-tls-verify, which kubectl refuses too"
    )]
    InsecureWithAuthority,
    #[error("the user has a client certificate without a key")]
    NoKey,
    #[error("the user has a token, and a name with a password; only one can be sent")]
    TwoLogins,
    #[error("kubectl has no auth-provider {0} any more")]
    Provider(String),
    #[error("the user has an exec plugin and an auth-provider; only one is allowed")]
    TwoPlugins,
    #[error("the user's exec has no {0}")]
    ExecWithout(&'static str),
    #[error("the user's exec has the apiVersion {0}, which kubectl no longer supports")]
    ExecVersion(String),
    #[error("the user impersonates groups, a UID or extra fields, but no user")]
    AsNobody,
}

impl PlanError {
    /// What to do about it, if it is not another kubeconfig.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            PlanError::ExecWithout("apiVersion") | PlanError::ExecVersion(_) => Some(
                "kubectl refuses it too: write the kubeconfig again with a newer version of the program that wrote it, or set apiVersion: client.authentication.k8s.io/v1 if the plugin answers in that",
            ),
            PlanError::ExecWithout(_) => Some(
                "kubectl refuses it too: add the field to the user's exec in the kubeconfig; interactiveMode is Never, IfAvailable or Always",
            ),
            _ => None,
        }
    }
}

/// The plan for a cluster and a user of a kubeconfig.
pub fn plan(
    cluster: &Cluster,
    user: &AuthInfo,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ConnectPlan, PlanError> {
    let authority = source(
        "certificate-authority-data",
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
    );
    let trust = match (authority, cluster.insecure_skip_tls_verify) {
        (Some(_), Some(true)) => return Err(PlanError::InsecureWithAuthority),
        (None, Some(true)) => Trust::Anything,
        (Some(authority), _) => Trust::Authorities(authority),
        (None, _) => Trust::System,
    };
    let identity = identity(user)?;
    check(user)?;
    let server = server(cluster, trust != Trust::System || identity.is_some())?;
    let proxy = match filled(cluster.proxy_url.as_deref()) {
        Some(value) => Some(proxy::of_kubeconfig(value)?),
        None => proxy::of_environment(&server, variable)?,
    };
    // `ClientConfig` reads what a user has only if the transport is TLS.
    let is_secret = server.scheme_str() == Some("https");
    if is_secret {
        check_version(user)?;
    }
    Ok(ConnectPlan {
        proxy,
        server_name: filled(cluster.tls_server_name.as_deref()).map(str::to_owned),
        trust,
        login: if is_secret {
            login(user, identity.is_some())?
        } else {
            Login::Plain
        },
        identity: identity.filter(|_| is_secret),
        server,
    })
}

/// What kube sends by itself. The rest of the user is in the plan.
pub fn plain(user: &AuthInfo, plan: &ConnectPlan) -> AuthInfo {
    let impersonation = AuthInfo {
        impersonate: user.impersonate.clone(),
        impersonate_uid: user.impersonate_uid.clone(),
        impersonate_groups: user.impersonate_groups.clone(),
        impersonate_user_extra: user.impersonate_user_extra.clone(),
        ..AuthInfo::default()
    };
    if plan.server.scheme_str() != Some("https") || !matches!(plan.login, Login::Plain) {
        return impersonation;
    }
    AuthInfo {
        username: user.username.clone().filter(|it| !it.is_empty()),
        password: user.password.clone(),
        token: user.token.clone().filter(is_filled),
        ..impersonation
    }
}

fn login(user: &AuthInfo, has_certificate: bool) -> Result<Login, PlanError> {
    let token = user.token.clone().filter(is_filled);
    let file = filled(user.token_file.as_deref());
    let has_name = filled(user.username.as_deref()).is_some();
    if has_name && (token.is_some() || file.is_some()) {
        return Err(PlanError::TwoLogins);
    }
    if let Some(file) = file {
        return Ok(Login::File {
            path: file.to_owned(),
            otherwise: token,
        });
    }
    if token.is_some() || has_name {
        return Ok(Login::Plain);
    }
    if let Some(provider) = &user.auth_provider {
        return match provider.name.as_str() {
            "oidc" => Ok(Login::Oidc(provider.config.clone())),
            other => Err(PlanError::Provider(other.to_owned())),
        };
    }
    // `UpdateTransportConfig` of client-go's plugin/pkg/client/auth/exec.
    Ok(match &user.exec {
        Some(exec) if !has_certificate => Login::Exec(Box::new(exec.clone())),
        _ => Login::Plain,
    })
}

/// What clientcmd's `validateAuthInfo` asks of a user, also of a part that is not used.
fn check(user: &AuthInfo) -> Result<(), PlanError> {
    let is_nobody = filled(user.impersonate.as_deref()).is_none();
    let has_uid = filled(user.impersonate_uid.as_deref()).is_some();
    let has_groups = user.impersonate_groups.iter().any(|it| !it.is_empty());
    let has_extra = user.impersonate_user_extra.iter().any(|it| !it.is_empty());
    if is_nobody && (has_uid || has_groups || has_extra) {
        return Err(PlanError::AsNobody);
    }
    let Some(exec) = &user.exec else {
        return Ok(());
    };
    if user.auth_provider.is_some() {
        return Err(PlanError::TwoPlugins);
    }
    let version = filled(exec.api_version.as_deref());
    // `SetDefaults_ExecConfig` of clientcmd/api/v1: the versions before v1 need not say it.
    let needs_mode = !matches!(version, Some(V1ALPHA1 | V1BETA1));
    let is_named = |it: &HashMap<String, String>| it.get("name").is_some_and(|it| !it.is_empty());
    let missing = if filled(exec.command.as_deref()).is_none() {
        "command"
    } else if version.is_none() {
        "apiVersion"
    } else if !exec.env.iter().flatten().all(is_named) {
        "name of each variable in env"
    } else if needs_mode && exec.interactive_mode.is_none() {
        "interactiveMode"
    } else {
        return Ok(());
    };
    Err(PlanError::ExecWithout(missing))
}

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";
const V1ALPHA1: &str = "client.authentication.k8s.io/v1alpha1";

/// `newAuthenticator` of plugin/pkg/client/auth/exec, also where a token goes before the plugin.
fn check_version(user: &AuthInfo) -> Result<(), PlanError> {
    let version = user.exec.as_ref().and_then(|it| it.api_version.as_deref());
    match version {
        None | Some(V1 | V1BETA1) => Ok(()),
        Some(other) => Err(PlanError::ExecVersion(other.to_owned())),
    }
}

fn is_filled(secret: &SecretString) -> bool {
    !secret.expose_secret().is_empty()
}

fn identity(user: &AuthInfo) -> Result<Option<ClientIdentity>, PlanError> {
    let Some(certificate) = source(
        "client-certificate-data",
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
    ) else {
        return Ok(None);
    };
    let data = user.client_key_data.as_ref();
    let key = source(
        "client-key-data",
        data.map(|it| it.expose_secret()),
        user.client_key.as_deref(),
    );
    let key = key.ok_or(PlanError::NoKey)?;
    Ok(Some(ClientIdentity { certificate, key }))
}

/// Data goes before a file, as in client-go.
fn source(field: &'static str, data: Option<&str>, file: Option<&str>) -> Option<PemSource> {
    let data = filled(data).map(|it| PemSource::Data(field, it.to_owned()));
    data.or_else(|| filled(file).map(|it| PemSource::File(it.to_owned())))
}

/// client-go's `DefaultServerURL`: without a scheme it is https if something of TLS is configured.
fn server(cluster: &Cluster, has_tls: bool) -> Result<Uri, PlanError> {
    let server = filled(cluster.server.as_deref()).ok_or(PlanError::NoServer)?;
    let wrong = || PlanError::Server(server.to_owned());
    let whole = match (server.contains("://"), has_tls) {
        (true, _) => server.to_owned(),
        (false, true) => format!("https://{server}"),
        (false, false) => format!("http://{server}"),
    };
    let uri: Uri = whole.parse().map_err(|_| wrong())?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|it| !it.is_empty()) => Ok(uri),
        _ => Err(wrong()),
    }
}

fn filled(value: Option<&str>) -> Option<&str> {
    value.filter(|it| !it.is_empty())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
