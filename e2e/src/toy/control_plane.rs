//! An API server and its etcd on their own ports; a controller manager and a scheduler, if they are
//! wanted.
//!
//! There is no kubelet; the caller does its work. Invariant: its programs listen on the given
//! address only, and end with this one.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::{poll, run};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::process::{Child, Command};

const ADMIN_TOKEN: &str = "administrator";
const START: Duration = Duration::from_secs(60);

/// The audit policy: one line for each call of the operator, when the call is complete.
const AUDIT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Metadata, users: ["system:serviceaccount:phpprof-system:phpprof-operator"]}
  - {level: None}
"#;

/// The programs of a control plane.
pub struct ControlPlane {
    /// The administrator's client.
    pub client: Client,
    /// The API server's audit log.
    pub audit: PathBuf,
    /// The administrator's kubeconfig.
    pub admin: String,
    data: PathBuf,
    server: String,
    programs: Vec<Child>,
}

/// A port on which no program listens now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a program that ends with this one, however this one ends. Its output goes to a file.
pub fn start(
    program: &Path,
    log: &Path,
    arguments: &[String],
    environment: &[(String, String)],
) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env("GOGC", "400") // as in e2e/cluster/node
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))
}

impl ControlPlane {
    /// Starts the API server on this address, and etcd; their data is in one folder, and their logs
    /// in another one.
    pub async fn start(address: &str, data: &Path, logs: &Path) -> Result<Self> {
        let (etcd, peer, port) = (free_port()?, free_port()?, free_port()?);
        let server = format!("https://{address}:{port}");
        let programs = vec![
            start(
                Path::new("etcd"),
                &logs.join("etcd.log"),
                &etcd_arguments(data, etcd, peer),
                &[],
            )?,
            api_server(address, data, logs, etcd, port).await?,
        ];
        // The server writes its certificate before it answers.
        let certificate = data.join("apiserver.crt");
        let made = async || Ok(certificate.exists().then_some(()));
        poll("the API server's certificate", START, made).await?;
        let admin = kubeconfig(data, &server, "admin", ADMIN_TOKEN)?;
        let config = Kubeconfig::read_from(&admin)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let answers = async || Ok(namespaces.get_opt("kube-system").await.ok().flatten());
        poll("the API server", START, answers).await?;
        Ok(Self {
            client,
            audit: logs.join("audit.jsonl"),
            data: data.to_owned(),
            server,
            admin,
            programs,
        })
    }

    /// Starts the controllers, but for the one that takes nodes without a kubelet for lost, and the
    /// scheduler.
    pub async fn control(&mut self, logs: &Path) -> Result<()> {
        let path = |name: &str| self.data.join(name).display().to_string();
        let controllers = [
            "--controllers=*,-node-lifecycle-controller".to_owned(),
            format!("--root-ca-file={}", path("apiserver.crt")),
            format!(
                "--service-account-private-key-file={}",
                path("accounts.key")
            ),
            format!("--flex-volume-plugin-dir={}", path("volume-plugins")),
            format!("--cluster-signing-cert-file={}", path("clients.crt")),
            format!("--cluster-signing-key-file={}", path("clients.key")),
        ];
        for (name, more) in [
            ("kube-controller-manager", &controllers[..]),
            ("kube-scheduler", &[]),
        ] {
            let common = [
                format!("--kubeconfig={}", self.admin),
                "--leader-elect=false".to_owned(),
                format!("--secure-port={}", free_port()?),
                "--bind-address=127.0.0.1".to_owned(),
            ];
            let log = logs.join(format!("{name}.log"));
            let arguments = [&common[..], more].concat();
            self.programs
                .push(start(Path::new(name), &log, &arguments, &[])?);
        }
        Ok(())
    }

    /// A kubeconfig of a service account, with a token of this pod, if any.
    pub async fn kubeconfig_of(
        &self,
        namespace: &str,
        account: &str,
        pod: Option<&str>,
    ) -> Result<String> {
        let mut token = vec!["create", "token", account, "--duration=2h"];
        if let Some(pod) = pod {
            token.extend(["--bound-object-kind=Pod", "--bound-object-name", pod]);
        }
        token.extend(["--namespace", namespace, "--kubeconfig", &self.admin]);
        let token = String::from_utf8(run("kubectl", &token, &[]).await?)?;
        kubeconfig(
            &self.data,
            &self.server,
            pod.unwrap_or(account),
            token.trim(),
        )
    }
}

fn etcd_arguments(data: &Path, port: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peer}"),
    );
    vec![
        format!("--data-dir={}", data.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]
}

/// Makes a key, PATH.key, and a certificate that it signs itself, PATH.crt, and returns the path of
/// the certificate.
pub async fn certificate(path: &Path, name: &str, extensions: &[&str]) -> Result<String> {
    let file = |end: &str| path.with_extension(end).display().to_string();
    let (key, certificate, subject) = (file("key"), file("crt"), format!("/CN={name}"));
    let mut arguments = vec!["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"];
    arguments.extend(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", &subject]);
    arguments.extend(["-keyout", &key, "-out", &certificate]);
    arguments.extend(extensions.iter().flat_map(|it| ["-addext", it]));
    run("openssl", &arguments, &[]).await?;
    Ok(certificate)
}

async fn api_server(
    address: &str,
    data: &Path,
    logs: &Path,
    etcd: u16,
    port: u16,
) -> Result<Child> {
    let path = |name: &str| data.join(name).display().to_string();
    let (key, tokens, policy) = (path("accounts.key"), path("tokens.csv"), path("audit.yaml"));
    run("openssl", &["genrsa", "-out", &key, "2048"], &[]).await?;
    let clients = certificate(&data.join("clients"), "clients", &[]).await?;
    std::fs::write(
        &tokens,
        format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"),
    )?;
    std::fs::write(&policy, AUDIT)?;
    let audit = logs.join("audit.jsonl");
    if audit.exists() {
        std::fs::remove_file(&audit)?;
    }
    let arguments = [
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", data.display()),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--allow-privileged".to_owned(),
        // Pods need service accounts and nodes are not ready until a controller says so; there may
        // be none.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        format!("--token-auth-file={tokens}"),
        format!("--client-ca-file={clients}"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={key}"),
        format!("--service-account-signing-key-file={key}"),
        format!("--audit-policy-file={policy}"),
        format!("--audit-log-path={}", audit.display()),
    ];
    start(
        Path::new("kube-apiserver"),
        &logs.join("kube-apiserver.log"),
        &arguments,
        &[],
    )
}

/// Writes a kubeconfig, and returns its path. JSON is valid YAML.
fn kubeconfig(data: &Path, server: &str, user: &str, token: &str) -> Result<String> {
    ensure!(!token.is_empty(), "{user} has no token");
    let certificate = data.join("apiserver.crt");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "toy",
        "clusters": [{"name": "toy", "cluster": {"server": server, "certificate-authority": certificate}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "toy", "context": {"cluster": "toy", "user": user}}],
    });
    let path = data
        .join(format!("{user}.kubeconfig"))
        .display()
        .to_string();
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
