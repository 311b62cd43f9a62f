//! An API server and its etcd on their own ports, with what the chart installs.
//!
//! There is no controller, scheduler or kubelet; the caller does their work. Invariant: its programs listen on loopback only, and end with
//! this one.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{poll, run};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::process::{Child, Command};

pub const NAMESPACE: &str = "phpprof-system";
const OPERATOR: &str = "phpprof-operator";
const ADMIN_TOKEN: &str = "administrator";
const START: Duration = Duration::from_secs(60);

/// Values that a large installation sets.
const VALUES: [&str; 6] = [
    "limits.pods=100",
    "limits.requests=500",
    "limits.requestsPerNamespace=100",
    "limits.samplersPerNode=50",
    "relay.verifySource=Enforce",
    "queueTimeoutSeconds=600",
];

/// The audit policy: one line for each call of the operator, when the call is complete.
const AUDIT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Metadata, users: ["system:serviceaccount:phpprof-system:phpprof-operator"]}
  - {level: None}
"#;

pub struct Cluster {
    /// The administrator's client.
    pub client: Client,
    pub audit: PathBuf,
    data: PathBuf,
    server: String,
    admin: String,
    _programs: [Child; 2],
}

/// A port on which no program listens now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a program that ends with this one, however this one ends. Its output goes to a file.
pub fn start(program: &Path, log: &Path, arguments: &[String], kubeconfig: &str) -> Result<Child> {
    let log = File::create(log)?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        // The operator's identity in the lease's election. In a pod this variable is set.
        .env("HOSTNAME", "scale")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))
}

impl Cluster {
    /// Starts both; their data is in one folder, and their logs in another one.
    pub async fn start(data: &Path, logs: &Path) -> Result<Self> {
        let (etcd, peer, port) = (free_port()?, free_port()?, free_port()?);
        let server = format!("https://127.0.0.1:{port}");
        let programs = [
            start(
                Path::new("etcd"),
                &logs.join("etcd.log"),
                &etcd_arguments(data, etcd, peer),
                "",
            )?,
            api_server(data, logs, etcd, port).await?,
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
            _programs: programs,
        })
    }

    /// Installs the chart, and returns the operator's arguments from its Deployment.
    pub async fn install(&self, store: &Path) -> Result<Vec<String>> {
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/phpprof");
        let store = format!("store.url=file://{}", store.display());
        let mut install = vec![
            "install",
            "phpprof",
            chart,
            "--create-namespace",
            "--set",
            &store,
        ];
        install.extend(["--namespace", NAMESPACE, "--kubeconfig", &self.admin]);
        install.extend(VALUES.iter().flat_map(|value| ["--set", value]));
        run("helm", &install, &[]).await?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let deployment = deployments.get(OPERATOR).await?;
        let template = deployment.spec.and_then(|spec| spec.template.spec);
        let container = template.and_then(|spec| spec.containers.into_iter().next());
        container
            .and_then(|container| container.args)
            .context("the chart's operator has no arguments")
    }

    /// A kubeconfig of the operator's service account, which has the rights that the chart gives it.
    pub async fn operators_kubeconfig(&self) -> Result<String> {
        let token = ["create", "token", OPERATOR, "--duration=2h"];
        let where_it_is = ["--namespace", NAMESPACE, "--kubeconfig", &self.admin];
        let token = run("kubectl", &[token.as_slice(), &where_it_is].concat(), &[]).await?;
        let token = String::from_utf8(token)?;
        kubeconfig(&self.data, &self.server, OPERATOR, token.trim())
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

async fn api_server(data: &Path, logs: &Path, etcd: u16, port: u16) -> Result<Child> {
    let path = |name: &str| data.join(name).display().to_string();
    let (key, tokens, policy) = (path("accounts.key"), path("tokens.csv"), path("audit.yaml"));
    run("openssl", &["genrsa", "-out", &key, "2048"], &[]).await?;
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
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", data.display()),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
        // Pods need service accounts, which a controller would create.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--token-auth-file={tokens}"),
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
        "",
    )
}

/// Writes a kubeconfig, and returns its path. JSON is valid YAML.
fn kubeconfig(data: &Path, server: &str, user: &str, token: &str) -> Result<String> {
    ensure!(!token.is_empty(), "{user} has no token");
    let certificate = data.join("apiserver.crt");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "scale",
        "clusters": [{"name": "scale", "cluster": {"server": server, "certificate-authority": certificate}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": user}}],
    });
    let path = data
        .join(format!("{user}.kubeconfig"))
        .display()
        .to_string();
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
