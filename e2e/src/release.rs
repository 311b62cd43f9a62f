//! phpprof as the chart installs it, with deadlines that are short enough for tests.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::sync::Mutex;

use crate::command::{kubectl, run};
use crate::pods::image;
use crate::store::StoreFiles;
use crate::wait::poll;

/// The namespace of the release.
pub const NAMESPACE: &str = "phpprof-system";
const NAME: &str = "phpprof";
/// The argument of `helm template` that a Helm 3 which is built here needs: it takes the cluster
/// for one of 1.20. The chart's `kubeVersion` begins with this one, and no template asks for it.
pub const KUBE_VERSION: &str = "--kube-version=1.30";
/// The program of Helm 3.
pub const HELM: &str = "helm";
/// The program of Helm 4, which only the long form of the tests builds.
pub const HELM_4: &str = "helm4";
/// The service of relay and results. The Deployment has the same name.
pub const SERVICE: &str = "phpprof-operator";
const DEPLOYMENT: &str = "deployment/phpprof-operator";
/// The folder of the chart's default store.
pub const FOLDER: &str = "/var/lib/phpprof";
/// Values that replace the bucket by the chart's own store.
pub const ON_VOLUME: &[&str] = &[
    "store.url=file:///var/lib/phpprof",
    "store.endpoint=",
    "store.credentialsSecret=",
    "store.caBundle=",
    "startSlackSeconds=8",
    "uploadDeadlineSeconds=12",
];
/// The example with whose values most tests install the chart, and the Secret that it names. The
/// store's address is this cluster's.
const EXAMPLE: &str = "s3-compatible.yaml";
const SECRET: &str = "phpprof-store";
/// The prefix of the tests' profiles in the bucket.
pub const PREFIX: &str = "e2e";
/// `limits.durationSeconds`.
pub const DURATION_LIMIT: i32 = 60;
/// The value for a release without policies, which would restrict the operator.
pub const WITHOUT_POLICIES: &str = "policies.enabled=false";
/// The user whose requests resident samplers serve.
pub const RESIDENT_USER: &str = "e2e-schedules";
/// Longer than each of the promises below: they hold because the relay keeps the samplers' polls
/// open.
pub const RESIDENT_ASKS: Duration = Duration::from_secs(8);
/// `resident.leaseSeconds`: short enough for a test to see that a resident sampler without an
/// answer ends.
pub const RESIDENT_LEASE: Duration = Duration::from_secs(20);
/// `startSlackSeconds`.
pub const START_SLACK: Duration = Duration::from_secs(15);
/// `uploadDeadlineSeconds`.
pub const UPLOAD_DEADLINE: Duration = Duration::from_secs(15);

/// The `--set` values that distinguish a release from that of most tests.
pub type Values = &'static [&'static str];

/// The values of the installed release; none while they are unknown. `hold.rs` keeps them between
/// two tests.
static INSTALLED: Mutex<Option<Vec<String>>> = Mutex::const_new(None);

/// What is known of the installed release.
pub(crate) async fn installed() -> Option<Vec<String>> {
    INSTALLED.lock().await.clone()
}

/// Takes over what another process knows of the installed release.
pub(crate) async fn remember(values: Option<Vec<String>>) {
    *INSTALLED.lock().await = values;
}

/// Forgets an upgrade that was killed: Helm takes it for one that still runs, and refuses others.
pub(crate) async fn forget_halted() -> Result<()> {
    let halted = format!(
        "owner=helm,name={NAME},status in (pending-install,pending-upgrade,pending-rollback)"
    );
    let arguments = [
        "delete",
        "secrets",
        "--namespace",
        NAMESPACE,
        "--selector",
        &halted,
    ];
    kubectl(&arguments).await.map(drop)
}

/// Installs or upgrades the chart, with these `--set` values and those of most tests.
pub async fn install(values: &[&str]) -> Result<()> {
    let mut installed = INSTALLED.lock().await;
    let wanted: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
    if installed.as_ref() != Some(&wanted) {
        *installed = None;
        let values = [resident(&wanted), wanted.clone()].concat();
        upgrade(HELM, &chart(), &image("operator"), &[], &values).await?;
        *installed = Some(wanted);
    }
    Ok(())
}

/// The same with the values of one more example. The next [`install`] takes them back.
pub async fn install_example(name: &str, values: &[&str]) -> Result<()> {
    *INSTALLED.lock().await = None;
    let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
    let values = [resident(&values), values].concat();
    upgrade(HELM, &chart(), &image("operator"), &[name], &values).await
}

/// The file of an example's values.
pub fn example(name: &str) -> String {
    format!("{}/../examples/values/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Installs a chart of an older release, and its operator, with the values of most tests. The
/// installed release has to be removed before.
pub async fn install_older(chart: &str, operator: &str) -> Result<()> {
    *INSTALLED.lock().await = None;
    upgrade(HELM, chart, operator, &[], &[]).await
}

/// Removes the release, and installs the tested chart by this program with the values of most
/// tests.
pub async fn install_anew_by(helm: &str) -> Result<()> {
    uninstall().await?;
    upgrade(helm, &chart(), &image("operator"), &[], &resident(&[])).await
}

/// Replaces an older release by the tested one, as docs/guides/upgrading.md says.
pub async fn replace_older() -> Result<()> {
    let (chart, operator) = (chart(), format!("images.operator={}", image("operator")));
    let guide = [
        "upgrade",
        NAME,
        &chart,
        "--namespace",
        NAMESPACE,
        "--reset-then-reuse-values",
        "--wait",
    ];
    // The default of resident.askSeconds is longer than the tests' startSlackSeconds.
    let sets = [vec![operator], resident(&[])].concat();
    let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
    let arguments: Vec<&str> = guide.into_iter().chain(sets).collect();
    run(HELM, &arguments, &[]).await?;
    Ok(())
}

/// Goes back to the release before, as docs/guides/upgrading.md says.
pub async fn roll_back() -> Result<()> {
    roll_back_by(HELM, &[]).await
}

/// The same by this program, to the revision that these words name, if any.
pub async fn roll_back_by(helm: &str, words: &[&str]) -> Result<()> {
    *INSTALLED.lock().await = None;
    let back = ["rollback", NAME, "--namespace", NAMESPACE, "--wait"];
    run(helm, &[&back, words].concat(), &[]).await?;
    Ok(())
}

/// Removes the release as users do.
pub async fn uninstall() -> Result<()> {
    uninstall_by(HELM).await
}

/// The same by this program.
pub async fn uninstall_by(helm: &str) -> Result<()> {
    *INSTALLED.lock().await = None;
    let release = ["uninstall", NAME, "--namespace", NAMESPACE, "--wait"];
    run(helm, &release, &[]).await?;
    Ok(())
}

/// The objects of the release as this program knows them, in YAML.
pub async fn manifest_by(helm: &str) -> Result<Vec<u8>> {
    let arguments = ["get", "manifest", NAME, "--namespace", NAMESPACE];
    run(helm, &arguments, &[]).await
}

/// Upgrades the installed release by this program, with its values and this one, as
/// docs/guides/upgrading.md says.
pub async fn upgrade_by(helm: &str, set: &str, flags: &[&str]) -> Result<()> {
    *INSTALLED.lock().await = None;
    let (chart, set) = (chart(), format!("--set={set}"));
    let guide = ["upgrade", NAME, &chart, "--namespace", NAMESPACE];
    let guide = [&guide[..], &["--reset-then-reuse-values", "--wait", &set]].concat();
    run(helm, &[&guide, flags].concat(), &[]).await?;
    Ok(())
}

/// Installs the chart with default values, except for images in a registry.
pub async fn install_without_values() -> Result<()> {
    *INSTALLED.lock().await = None;
    let (chart, mut sets) = (chart(), Vec::new());
    if std::env::var("IMAGE_REGISTRY").is_ok_and(|registry| !registry.is_empty()) {
        sets.push(format!("--set=images.operator={}", image("operator")));
        sets.push(format!("--set=images.sampler={}", image("phpprof")));
    }
    let namespace = ["--namespace", NAMESPACE, "--create-namespace"];
    let mut arguments = vec!["install", NAME, &chart, "--wait", "--timeout=2m"];
    arguments.extend(namespace);
    arguments.extend(sets.iter().map(String::as_str));
    run(HELM, &arguments, &[]).await?;
    Ok(())
}

/// The folder of the tested chart.
pub fn chart() -> String {
    let chart = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/phpprof");
    chart.display().to_string()
}

/// Restarts the operator with the image that was loaded last.
pub async fn renew() -> Result<()> {
    kubectl(&["--namespace", NAMESPACE, "rollout", "restart", DEPLOYMENT]).await?;
    ready().await
}

/// Sets the number of the operator's replicas: stops or starts it.
pub async fn scale(replicas: u8) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    kubectl(&["--namespace", NAMESPACE, "scale", DEPLOYMENT, &replicas]).await?;
    ready().await
}

async fn ready() -> Result<()> {
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "rollout",
        "status",
        DEPLOYMENT,
        "--timeout=60s",
    ])
    .await?;
    Ok(())
}

/// The operator's only pod, once older ones are deleted.
pub async fn operator(client: &Client) -> Result<Option<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("app.kubernetes.io/name=phpprof");
    poll(
        "at most one pod of the operator",
        Duration::from_secs(30),
        async || {
            let mut found = pods.list(&ours).await?.items;
            Ok((found.len() < 2).then(|| found.pop()))
        },
    )
    .await
}

/// The values for resident samplers, which an older chart does not know. A release allows their
/// users only with policies.
fn resident(values: &[String]) -> Vec<String> {
    let mut resident = vec![
        format!("resident.askSeconds={}", RESIDENT_ASKS.as_secs()),
        format!("resident.leaseSeconds={}", RESIDENT_LEASE.as_secs()),
    ];
    if !values.iter().any(|value| value == WITHOUT_POLICIES) {
        resident.push(format!("resident.users={{{RESIDENT_USER}}}"));
    }
    resident
}

async fn upgrade(
    helm: &str,
    chart: &str,
    operator: &str,
    examples: &[&str],
    values: &[String],
) -> Result<()> {
    let store = StoreFiles::read()?;
    for object in [namespace(), secret(&store)] {
        run(
            "kubectl",
            &["apply", "--filename=-"],
            object.to_string().as_bytes(),
        )
        .await?;
    }
    let mut sets = vec![
        format!("store.url=s3://{}/{PREFIX}", store.bucket),
        format!("store.endpoint={}", store.endpoint),
        format!("images.operator={operator}"),
        format!("images.sampler={}", image("phpprof")),
        format!("limits.durationSeconds={DURATION_LIMIT}"),
        // All tests share one node.
        "limits.requests=500".to_owned(),
        "limits.requestsPerNamespace=500".to_owned(),
        "limits.samplersPerNode=500".to_owned(),
        format!("startSlackSeconds={}", START_SLACK.as_secs()),
        format!("uploadDeadlineSeconds={}", UPLOAD_DEADLINE.as_secs()),
        "storeGraceSeconds=20".to_owned(),
        // The shortest interval that the chart allows.
        "checkpointSeconds=10".to_owned(),
    ];
    sets.extend(values.iter().cloned());
    // The CA certificate is a whole file, so its value comes on standard input.
    let authority = serde_json::json!({"store": {"caBundle": store.authority}}).to_string();
    let mut arguments = vec![
        "upgrade",
        "--install",
        NAME,
        chart,
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout=2m",
        "--values=-",
    ];
    let examples = [&[EXAMPLE], examples].concat();
    let files: Vec<String> = examples.iter().map(|name| example(name)).collect();
    arguments.extend(files.iter().flat_map(|file| ["--values", file.as_str()]));
    arguments.extend(sets.iter().flat_map(|set| ["--set", set.as_str()]));
    run(helm, &arguments, authority.as_bytes()).await?;
    Ok(())
}

fn namespace() -> serde_json::Value {
    serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
}

fn secret(store: &StoreFiles) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "stringData": {"access-key-id": store.access_key, "secret-access-key": store.secret_key},
    })
}
