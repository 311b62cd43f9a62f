//! Several kubeconfig files, malformed ones, and the service account of a pod.

use serde_json::{Value, json};

use super::ConnectionOutcome::{Answered, NoConnection, Unauthorized};
use super::{ConnectionRow, admin, config, row};
use crate::cluster::TestCluster;

pub fn files(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let near = cluster.cluster("10.99.0.1");
    let part = |name: &str, value: &Value| {
        let path = cluster.folder.join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    };
    // What `kubectl config set-cluster` writes into a new file has an empty current-context.
    let clusters = part(
        "clusters.kubeconfig",
        &json!({"apiVersion": "v1", "kind": "Config", "current-context": "", "contexts": null, "users": null,
            "clusters": [{"name": "far", "cluster": near}]}),
    );
    let chosen = |files: String| {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "split",
            "users": [{"name": "ann", "user": admin()}],
            "contexts": [{"name": "split", "context": {"cluster": "far", "user": "ann", "namespace": ""}}],
        });
        let mut row = row("", &near, &admin(), Answered);
        row.kubeconfig = text.to_string();
        row.files = Some(files);
        row
    };
    let named = |name, row: ConnectionRow| ConnectionRow { name, ..row };
    let mut alone = named("files-one-is-not-enough", chosen("SELF".into()));
    alone.wanted = NoConnection;
    let wrong = part(
        "wrong.kubeconfig",
        &json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "ann", "user": {"token": "eve"}}]}),
    );
    let mut shadowed = named(
        "files-the-first-wins",
        chosen(format!("{wrong}:{clusters}:SELF")),
    );
    shadowed.wanted = Unauthorized;
    let mut nobody = row("user-that-is-not-there", &near, &admin(), NoConnection).being_nobody();
    nobody.kubeconfig = nobody
        .kubeconfig
        .replace("\"user\":\"ann\"", "\"user\":\"gone\"");
    vec![
        named(
            "files-first-has-the-cluster",
            chosen(format!("{clusters}:SELF")),
        ),
        named(
            "files-last-has-the-cluster",
            chosen(format!("SELF:{clusters}")),
        ),
        named(
            "files-one-is-missing",
            chosen(format!("/nonexistent/config:{clusters}::SELF")),
        ),
        alone,
        shadowed,
        nobody,
    ]
}

/// In a pod, whose service account is an administrator's.
pub fn pods(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let account = std::path::Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(account).unwrap();
    std::fs::write(account.join("token"), "admin\n").unwrap();
    std::fs::write(account.join("namespace"), "default").unwrap();
    std::fs::copy(cluster.authority.certificate(), account.join("ca.crt")).unwrap();
    let near = cluster.cluster("10.99.0.1");
    let port = cluster.port.to_string();
    let in_pod = |name, kubeconfig: String, wanted| {
        let mut row = row(name, &near, &admin(), wanted);
        row.kubeconfig = kubeconfig;
        row.with(&[
            ("KUBERNETES_SERVICE_HOST", "10.99.0.1"),
            ("KUBERNETES_SERVICE_PORT", &port),
        ])
    };
    let nobody = config(&near, &json!({"token": "eve"}));
    let mut none = in_pod("pod", String::new(), Answered);
    none.files = Some("/nonexistent/config".into());
    let mut beside = in_pod(
        "pod-and-one-file-is-malformed",
        nobody.clone(),
        NoConnection,
    );
    let malformed = cluster.folder.join("malformed.kubeconfig");
    std::fs::write(&malformed, "clusters: [").unwrap();
    beside.files = Some(format!("SELF:{}", malformed.display()));
    let with = |from: &str, to: &str| nobody.replace(from, to);
    let empty = |name, text: &str| in_pod(name, text.to_owned(), Answered);
    let refused = |name, text: &str| in_pod(name, text.to_owned(), NoConnection);
    vec![
        none,
        in_pod("pod-with-a-kubeconfig", nobody.clone(), Unauthorized),
        empty("pod-with-an-empty-file", ""),
        empty(
            "pod-with-an-empty-kubeconfig",
            "apiVersion: v1\nkind: Config\n",
        ),
        in_pod(
            "pod-without-a-current-context",
            with(r#""current-context":"test""#, r#""current-context":"""#),
            Answered,
        ),
        beside,
        refused("pod-malformed-yaml", "kind: Config\nclusters: ["),
        refused("pod-malformed-text", "text"),
        refused("pod-malformed-list", "[]"),
        refused("pod-malformed-clusters", "clusters: {}"),
        refused("pod-malformed-kind", "kind: Pod\napiVersion: v1\n"),
        refused("pod-malformed-version", "kind: Config\napiVersion: v2\n"),
        refused("pod-malformed-zero", "\0"),
        in_pod(
            "pod-malformed-user",
            with(r#""token":"eve""#, r#""token":5"#),
            NoConnection,
        ),
        in_pod(
            "pod-malformed-key",
            with(r#""token":"eve""#, r#""client-key-data":"!""#),
            NoConnection,
        ),
        in_pod(
            "pod-context-that-is-not-there",
            with(r#""current-context":"test""#, r#""current-context":"gone""#),
            NoConnection,
        ),
        // kubectl takes the service account, although the kubeconfig chose a cluster.
        in_pod(
            "pod-cluster-that-is-not-there",
            with(r#""cluster":"test""#, r#""cluster":"gone""#),
            Answered,
        )
        .but("no cluster gone"),
        in_pod(
            "pod-cluster-without-a-server",
            config(&json!({"insecure-skip-tls-verify": true}), &admin()),
            Answered,
        )
        .but("no server"),
    ]
}
