//! Runs the credential plugin of a kubeconfig (`exec`), as client-go does
//! (plugin/pkg/client/auth/exec).
//!
//! Invariant: what the plugin prints to standard error reaches the user and is not part of its
//! answer; it gets standard input only where that is a terminal and the kubeconfig allows it.

use std::io::IsTerminal as _;
use std::process::{Command, Output, Stdio};

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use super::kuberc::KubercPolicy;
use super::path;
use super::tls::{self, Current, Pem, TlsError};

/// More is not a credential. `Command::output` has read it by then; the plugin is the user's own
/// program.
const ANSWER: usize = 1 << 20;

const KIND: &str = "ExecCredential";
/// The most letters of a wrong kind in a message.
const SHOWN: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("exec has no command")]
    NoCommand,
    #[error("{command} needs a terminal (interactiveMode: Always), and standard input is none")]
    NoTerminal { command: String },
    #[error("{command} cannot be started{hint}")]
    Start {
        command: String,
        /// The kubeconfig's `installHint`, after a colon.
        hint: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{command} failed: {status}")]
    Failed {
        command: String,
        status: std::process::ExitStatus,
    },
    #[error("{command} printed no ExecCredential to standard output: {why}")]
    Answer { command: String, why: String },
    #[error(
        "{command} answered with {got}, and the kubeconfig asks for an ExecCredential of {wanted}"
    )]
    Version {
        command: String,
        got: String,
        wanted: String,
    },
    #[error("{command} gave a certificate that cannot be used")]
    Identity {
        command: String,
        #[source]
        error: TlsError,
    },
    #[error("{path} does not permit the plugin {command}: its credentialPluginPolicy is {rule}")]
    NotPermitted {
        command: String,
        path: String,
        rule: &'static str,
    },
    #[error("the plugin was not waited for")]
    Thread(#[from] tokio::task::JoinError),
}

/// A plugin, what may run, and where its certificates go.
pub struct Exec {
    pub config: ExecConfig,
    pub policy: Option<KubercPolicy>,
    pub identity: Current,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<ExecStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecStatus {
    token: String,
    expiration_timestamp: Option<Timestamp>,
    client_certificate_data: String,
    client_key_data: String,
}

impl Exec {
    /// The token that it gives, and when that ends.
    pub async fn run(&self) -> Result<(Option<String>, Option<Timestamp>), ExecError> {
        let has_terminal = std::io::stdin().is_terminal();
        let (command, run) = command(&self.config, self.policy.as_ref(), has_terminal)?;
        let hint = match self.config.install_hint.as_deref() {
            Some(hint) if !hint.is_empty() => format!(": {}", printable(hint)),
            _ => String::new(),
        };
        let output = tokio::task::spawn_blocking(run)
            .await?
            .map_err(|error| ExecError::Start {
                command: command.clone(),
                hint,
                error,
            })?;
        let status = answer(&command, self.config.api_version.as_deref(), &output)?;
        if !status.client_certificate_data.is_empty() {
            let pem = |field: &str, text: &str| Pem {
                name: format!("{command}'s {field}"),
                bytes: text.as_bytes().to_vec(),
            };
            let certificate = pem("clientCertificateData", &status.client_certificate_data);
            let key = pem("clientKeyData", &status.client_key_data);
            let identity = tls::identity(&certificate, &key);
            self.identity
                .set(identity.map_err(|error| ExecError::Identity {
                    command: command.clone(),
                    error,
                })?);
        }
        let token = Some(status.token).filter(|it| !it.is_empty());
        Ok((token, status.expiration_timestamp))
    }
}

type PluginRun = Box<dyn FnOnce() -> std::io::Result<Output> + Send>;

/// The plugin's name, and what runs it.
fn command(
    config: &ExecConfig,
    policy: Option<&KubercPolicy>,
    has_terminal: bool,
) -> Result<(String, PluginRun), ExecError> {
    let name = config.command.as_deref().filter(|it| !it.is_empty());
    let name = path::clean(name.ok_or(ExecError::NoCommand)?);
    let interactive = match config.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !has_terminal => {
            return Err(ExecError::NoTerminal { command: name });
        }
        _ => has_terminal,
    };
    let program = permitted(&name, policy)?;
    // os/exec looks for a name in its own PATH, not in the plugin's.
    let Some(program) = program else {
        let lost = || std::io::Error::from(std::io::ErrorKind::NotFound);
        return Ok((name, Box::new(move || Err(lost()))));
    };
    let mut command = Command::new(program);
    std::os::unix::process::CommandExt::arg0(&mut command, &name);
    command.args(config.args.iter().flatten());
    for variable in config.env.iter().flatten() {
        if let Some(name) = variable.get("name") {
            command.env(name, variable.get("value").map_or("", String::as_str));
        }
    }
    command.env("KUBERNETES_EXEC_INFO", info(config, interactive));
    command.stderr(Stdio::inherit()).stdout(Stdio::piped());
    command.stdin(if interactive {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    Ok((name, Box::new(move || command.output())))
}

/// The program to run, if there is one. The policy judges the very path that is run.
fn permitted(name: &str, policy: Option<&KubercPolicy>) -> Result<Option<String>, ExecError> {
    let folders = std::env::var_os("PATH");
    let find = |name: &str| path::find(name, folders.as_deref());
    let program = find(name);
    let resolved = program.as_deref().unwrap_or(name);
    match policy {
        Some(policy) if !policy.rule.permits(name, resolved, find) => {
            Err(ExecError::NotPermitted {
                command: name.to_owned(),
                path: policy.path.display().to_string(),
                rule: policy.rule.name(),
            })
        }
        _ => Ok(program),
    }
}

fn info(config: &ExecConfig, interactive: bool) -> String {
    let mut spec = json!({"interactive": interactive});
    if config.provide_cluster_info
        && let Ok(cluster) = serde_json::to_value(&config.cluster)
    {
        spec["cluster"] = cluster;
    }
    json!({
        "kind": KIND,
        "apiVersion": config.api_version,
        "spec": spec,
    })
    .to_string()
}

fn answer(command: &str, wanted: Option<&str>, output: &Output) -> Result<ExecStatus, ExecError> {
    if !output.status.success() {
        return Err(ExecError::Failed {
            command: command.to_owned(),
            status: output.status,
        });
    }
    let wrong = |why: String| ExecError::Answer {
        command: command.to_owned(),
        why,
    };
    if output.stdout.len() > ANSWER {
        return Err(wrong("it is over 1 MiB".to_owned()));
    }
    // A parser's message would quote the credential.
    let credential: Credential = serde_json::from_slice(&output.stdout)
        .map_err(|error| wrong(format!("line {}, {:?}", error.line(), error.classify())))?;
    let wanted = wanted.unwrap_or_default();
    if credential.api_version != wanted || credential.kind != KIND {
        let got = format!("kind {:?} of {:?}", credential.kind, credential.api_version);
        return Err(ExecError::Version {
            command: command.to_owned(),
            got: got.chars().take(SHOWN).collect(),
            wanted: wanted.to_owned(),
        });
    }
    let status = credential
        .status
        .ok_or_else(|| wrong("it has no status".to_owned()))?;
    if status.client_certificate_data.is_empty() != status.client_key_data.is_empty() {
        return Err(wrong("a certificate or a key is missing".to_owned()));
    }
    if status.token.is_empty() && status.client_key_data.is_empty() {
        return Err(wrong("it has no token and no certificate".to_owned()));
    }
    Ok(status)
}

/// The hint is somebody's text: it must not move the cursor.
fn printable(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn said(stdout: &str) -> Output {
        Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: stdout.as_bytes().to_vec(),
            stderr: Vec::new(),
        }
    }

    const V1: &str = "client.authentication.k8s.io/v1";

    #[test]
    fn an_answer_is_a_token_or_a_certificate() {
        let of = |status: &str| {
            let text = format!(
                r#"{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {status}}}"#
            );
            answer("p", Some(V1), &said(&text)).map_err(|error| error.to_string())
        };
        let good = of(r#"{"token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z"}"#).unwrap();
        assert_eq!(good.token, "t");
        assert_eq!(
            good.expiration_timestamp.unwrap().to_string(),
            "2026-01-02T03:04:05Z"
        );
        assert!(of(r#"{"clientCertificateData": "c", "clientKeyData": "k"}"#).is_ok());
        for (status, why) in [
            ("{}", "no token and no certificate"),
            (r#"{"token": "t", "clientKeyData": "k"}"#, "is missing"),
            ("null", "no status"),
        ] {
            assert!(of(status).err().unwrap().contains(why), "{status}");
        }
    }

    #[test]
    fn a_wrong_answer_does_not_quote_the_credential() {
        let broken = answer("p", Some(V1), &said(r#"{"status": {"token": "secret"#));
        let text = broken.err().unwrap().to_string();
        assert!(
            text.contains("p printed no ExecCredential") && !text.contains("secret"),
            "{text}"
        );
        let old = said(
            r#"{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "t"}}"#,
        );
        let version = answer("p", Some(V1), &old).err().unwrap().to_string();
        assert!(
            version.contains("v1beta1\", and the kubeconfig asks for"),
            "{version}"
        );
        let nameless = said(r#"{"status": {"token": "t"}}"#);
        let refused = answer("p", Some(V1), &nameless);
        assert!(matches!(refused, Err(ExecError::Version { .. })));
    }

    #[test]
    fn a_plugin_without_a_terminal_is_not_interactive() {
        let config = |mode| ExecConfig {
            command: Some("p".to_owned()),
            interactive_mode: mode,
            ..ExecConfig::default()
        };
        let always = config(Some(ExecInteractiveMode::Always));
        assert!(matches!(
            command(&always, None, false),
            Err(ExecError::NoTerminal { .. })
        ));
        assert!(command(&always, None, true).is_ok());
        assert!(command(&config(None), None, false).is_ok());
        assert!(info(&config(None), false).contains(r#""interactive":false"#));
        assert!(matches!(
            command(&ExecConfig::default(), None, true),
            Err(ExecError::NoCommand)
        ));
    }

    #[test]
    fn a_policy_judges_the_program_that_is_run() {
        use super::super::kuberc::PluginRule;
        let of = |command: &str, rule: PluginRule| {
            let path = "/rc".into();
            permitted(command, Some(&KubercPolicy { path, rule }))
        };
        let list = |entry: &str| PluginRule::Allowlist(vec![entry.to_owned()]);
        let refused = |result| matches!(result, Err(ExecError::NotPermitted { .. }));
        assert_eq!(
            of("sh", PluginRule::AllowAll).unwrap(),
            permitted("sh", None).unwrap()
        );
        let sh = permitted("sh", None).unwrap().unwrap();
        assert!(refused(of("sh", PluginRule::DenyAll)) && refused(of("sh", list("bash"))));
        assert_eq!(of("sh", list("sh")).unwrap().as_ref(), Some(&sh));
        assert_eq!(of(&sh, list("sh")).unwrap().as_ref(), Some(&sh));
        assert!(refused(of("/nonexistent/sh", list("sh"))));
        assert_eq!(permitted("/nonexistent/sh", None).unwrap(), None);
    }
}
