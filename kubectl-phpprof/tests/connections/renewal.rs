//! A client certificate that is renewed in its files while the plugin runs.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::authority::{self as made, Pair, text};
use crate::cluster::TestCluster;

/// `run` asks each 700 ms, over one connection. It continues as another user when that user's
/// certificate is in the files, so it does not notice that the first one lost all rights.
pub fn check(cluster: &TestCluster) {
    let first = cluster
        .authority
        .pair("renewed", made::P256, "/CN=first", made::CLIENT, "2");
    let second = cluster.client("renewal", made::P256, made::CLIENT);
    let user = json!({"client-certificate": first.certificate, "client-key": first.key});
    let path = cluster.folder.join("renewal.kubeconfig");
    let config = crate::kubeconfig::config(&cluster.cluster("10.99.0.1"), &user);
    std::fs::write(&path, config).unwrap();
    let admin = cluster.folder.join("admin.kubeconfig");
    let kubectl = |arguments: &[&str]| {
        let mut command = Command::new("kubectl");
        command.args(["--kubeconfig", text(&admin)]).args(arguments);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    };
    let role = "--clusterrole=cluster-admin";
    kubectl(&[
        "create",
        "clusterrolebinding",
        "first",
        role,
        "--user=first",
    ]);
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-phpprof"))
        .args(["run", "deploy/web", "-n", "default", "--timeout=12s"])
        .args(["--kubeconfig", text(&path)])
        .env("SSL_CERT_FILE", "/dev/null")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(plugin.stderr.take().unwrap()).lines();
    let begin = said.next().unwrap().unwrap();
    assert!(begin.contains("0 pods"), "{begin}");
    replace(&first, &second);
    // More than one question later.
    std::thread::sleep(std::time::Duration::from_secs(2));
    kubectl(&["delete", "clusterrolebinding", "first"]);
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    let status = plugin.wait().unwrap();
    // 6: the request did not end within the time. 4: a right is missing.
    assert_eq!(status.code(), Some(6), "{}", rest.join("\n"));
}

fn replace(old: &Pair, new: &Pair) {
    let take = |from: &Path, to: &Path| {
        let part = to.with_extension("part");
        std::fs::copy(from, &part).unwrap();
        std::fs::rename(&part, to).unwrap();
    };
    take(&new.certificate, &old.certificate);
    take(&new.key, &old.key);
}
