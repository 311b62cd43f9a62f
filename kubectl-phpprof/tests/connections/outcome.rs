//! One request by a program, and what came of it.

use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use crate::proxies::TUNNELS;

/// What both do: a list of profile requests.
const PATH: &str = "/apis/phpprof.dev/v1alpha1/namespaces/default/profilerequests?limit=1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOutcome {
    /// An administrator's answer.
    Answered,
    /// The API server knows the user, or takes them for nobody, and refuses.
    Forbidden,
    /// The API server refuses the credentials.
    Unauthorized,
    /// No answer of an API server, or no try.
    NoConnection,
}

pub struct ConnectionResult {
    pub outcome: ConnectionOutcome,
    pub text: String,
    /// How often a proxy was asked for a tunnel.
    pub tunnels: usize,
}

fn done(
    mut command: Command,
    kubeconfig: &str,
    variables: &[(String, String)],
) -> ConnectionResult {
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "NO_PROXY",
        "no_proxy",
        "SSL_CERT_DIR",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
        "KUBERC",
    ] {
        command.env_remove(name);
    }
    // Go and rustls-native-certs then know no authority of this machine.
    command
        .env("SSL_CERT_FILE", "/dev/null")
        .env("SSL_CERT_DIR", "/nonexistent");
    command
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", "/nonexistent");
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    TUNNELS.store(0, Ordering::SeqCst);
    let output = command.output().unwrap();
    let Output { stdout, stderr, .. } = &output;
    let text = String::from_utf8_lossy(&[stdout.as_slice(), stderr].concat())
        .trim()
        .to_owned();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let outcome = if output.status.success() {
        ConnectionOutcome::Answered
    } else if says(&["(Forbidden)", "is forbidden"]) {
        ConnectionOutcome::Forbidden
    } else if says(&[
        "Unauthorized",
        "must be logged in",
        "does not know this user",
    ]) {
        ConnectionOutcome::Unauthorized
    } else {
        ConnectionOutcome::NoConnection
    };
    ConnectionResult {
        outcome,
        text: text.chars().take(600).collect(),
        tunnels: TUNNELS.load(Ordering::SeqCst),
    }
}

pub fn by_kubectl(kubeconfig: &str, variables: &[(String, String)]) -> ConnectionResult {
    let mut command = Command::new("kubectl");
    command.args(["get", "--raw", PATH]);
    // With a time limit, kubectl does not look for a pod's service account: its configuration is
    // then not the default one.
    if !variables.iter().any(|it| it.0 == "KUBERNETES_SERVICE_HOST") {
        command.arg("--request-timeout=10s");
    }
    done(command, kubeconfig, variables)
}

/// The minor version of kubectl.
pub fn kubectl_minor() -> u32 {
    let mut command = Command::new("kubectl");
    let said = command.args(["version", "--client", "-o", "json"]).output();
    let said: serde_json::Value = serde_json::from_slice(&said.unwrap().stdout).unwrap();
    let minor = said["clientVersion"]["minor"].as_str().unwrap();
    minor.trim_end_matches('+').parse().unwrap()
}

pub fn by_plugin(kubeconfig: &str, variables: &[(String, String)]) -> ConnectionResult {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-phpprof"));
    command.args(["list", "--request-timeout=10s", "-n", "default"]);
    done(command, kubeconfig, variables)
}
