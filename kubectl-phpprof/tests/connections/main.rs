//! For each kind of kubeconfig, the same one request by kubectl and by the plugin, to a real
//! kube-apiserver: equal outcome.
//!
//! It runs in a network and a mount namespace of its own, with the address 10.99.0.1, which is
//! api.phpprof.test there: Go uses no proxy of the environment for loopback, and with a pod's
//! service account where each pod has it. It needs root, openssl, socat, kubectl, kube-apiserver
//! and etcd.
//!
//! Invariant: a row in which the two differ names the difference, and fails when it is gone.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this program is one test; clippy knows functions with #[test] only"
)]

mod authority;
mod cluster;
mod kubeconfig;
mod outcome;
mod plugins;
mod provider;
mod proxies;
mod renewal;
mod rows;

use std::path::Path;
use std::process::Command;

use cluster::TestCluster;
use outcome::{ConnectionOutcome, by_kubectl, by_plugin};
use rows::{ConnectionRow, Same};

/// Set in the namespaces.
const INSIDE: &str = "PHPPROF_CONNECTIONS_INSIDE";

#[test]
fn the_plugin_connects_wherever_kubectl_does() {
    if std::env::var_os(INSIDE).is_none() {
        return in_namespaces();
    }
    let folder = tempfile::tempdir().unwrap();
    let cluster = TestCluster::start(folder.path());
    let rows = rows::all(&cluster);
    let mut wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| compared(&cluster, row))
        .collect();
    wrong.sort();
    println!("{} kinds of kubeconfig", rows.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    renewal::check(&cluster);
}

/// What is wrong about a row.
fn compared(cluster: &TestCluster, row: &ConnectionRow) -> Option<String> {
    let file = cluster.folder.join(format!("{}.kubeconfig", row.name));
    std::fs::write(&file, &row.kubeconfig).unwrap();
    let kubeconfig = match &row.files {
        Some(files) => files.replace("SELF", &file.display().to_string()),
        None => file.display().to_string(),
    };
    let kubectl = by_kubectl(&kubeconfig, &row.variables);
    let kept = || std::fs::read_to_string(&file).unwrap_or_default();
    let kept_by_kubectl = kept();
    // A login rewrites the kubeconfig; each program has the same one.
    std::fs::write(&file, &row.kubeconfig).unwrap();
    let plugin = by_plugin(&kubeconfig, &row.variables);
    let wrong = |why: &str| {
        Some(format!(
            "{}: {why}\n  kubectl: {:?}, {}\n  plugin:  {:?}, {}",
            row.name, kubectl.outcome, kubectl.text, plugin.outcome, plugin.text
        ))
    };
    if kubectl.outcome != row.wanted {
        return wrong("kubectl does not do what the row says");
    }
    match row.same {
        Same::Yes if plugin.outcome != kubectl.outcome => return wrong("the plugin differs"),
        Same::Refused(_) if plugin.outcome != ConnectionOutcome::NoConnection => {
            return wrong("the plugin does what the row says that it refuses");
        }
        Same::AsNobody if plugin.outcome != ConnectionOutcome::Forbidden => {
            return wrong("the plugin does not connect as nobody");
        }
        Same::Refused(words) if !plugin.text.contains(words) => {
            return wrong(&format!("the plugin does not say «{words}»"));
        }
        _ => {}
    }
    if kubectl.tunnels != plugin.tunnels {
        return wrong("one of them used a proxy");
    }
    if row
        .kept
        .is_some_and(|words| !(kept_by_kubectl.contains(words) && kept().contains(words)))
    {
        return wrong("one of them did not keep the new token");
    }
    match row.said {
        Some(words) if !(plugin.text.contains(words) && kubectl.text.contains(words)) => {
            wrong(&format!("«{words}» does not reach the user"))
        }
        _ => None,
    }
}

/// Runs this test again where it may add an address.
fn in_namespaces() {
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    let own = "127.0.0.1 localhost\n127.0.0.1 idp.phpprof.test\n10.99.0.1 api.phpprof.test\n";
    std::fs::write(&hosts, own).unwrap();
    let script = "mount -t tmpfs run /var/run && ip link set lo up && ip address add 10.99.0.1/32 dev lo && mount --bind \"$1\" /etc/hosts && exec \"$2\" --nocapture";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", script, "sh"])
        .arg(&hosts)
        .arg(Path::new(&program))
        .env(INSIDE, "1")
        .status()
        .expect("unshare starts");
    assert!(status.success(), "the test in its namespaces: {status}");
}
