//! Users with tokens, credential plugins and providers.

use std::path::Path;

use serde_json::{Value, json};

use super::ConnectionOutcome::{Answered, Forbidden, NoConnection, Unauthorized};
use super::{ConnectionRow, admin, changed, row};
use crate::authority::{self as made, text};
use crate::cluster::TestCluster;
use crate::outcome::kubectl_minor;
use crate::plugins;

pub fn tokens(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let base = cluster.cluster("10.99.0.1");
    let (file, old) = (
        cluster.folder.join("token"),
        cluster.folder.join("old-token"),
    );
    std::fs::write(&file, "admin").unwrap();
    std::fs::write(&old, "bob").unwrap();
    let (broken, empty) = (
        cluster.folder.join("broken-token"),
        cluster.folder.join("empty-token"),
    );
    std::fs::write(&broken, "admin\n").unwrap();
    std::fs::write(&empty, "\n").unwrap();
    let row = |name, user: &Value, wanted| row(name, &base, user, wanted);
    vec![
        row("token", &admin(), Answered),
        row(
            "token-of-a-stranger",
            &json!({"token": "eve"}),
            Unauthorized,
        ),
        row("token-without-rights", &json!({"token": "bob"}), Forbidden),
        row("token-file", &json!({"tokenFile": file}), Answered),
        row(
            "token-and-file",
            &json!({"token": "admin", "tokenFile": old}),
            Forbidden,
        ),
        row(
            "token-file-with-a-line-break",
            &json!({"tokenFile": broken}),
            Answered,
        ),
        row(
            "token-file-empty",
            &json!({"tokenFile": empty}),
            NoConnection,
        ),
        row(
            "token-and-missing-file",
            &json!({"token": "admin", "tokenFile": "/nonexistent"}),
            Answered,
        ),
        row(
            "token-file-missing",
            &json!({"tokenFile": "/nonexistent"}),
            NoConnection,
        ),
        // No API server has taken passwords since Kubernetes 1.19: it takes the user for nobody.
        row(
            "password",
            &json!({"username": "ann", "password": "p"}),
            Forbidden,
        ),
        row(
            "token-and-password",
            &json!({"token": "admin", "username": "ann", "password": "p"}),
            NoConnection,
        ),
        row(
            "as-somebody",
            &json!({"token": "admin", "as": "bob"}),
            Forbidden,
        ),
        row(
            "as-somebody-of-a-group",
            &json!({"token": "admin", "as": "bob", "as-groups": ["system:masters"]}),
            Answered,
        ),
        row(
            "as-a-group-of-nobody",
            &json!({"token": "admin", "as-groups": ["system:masters"]}),
            NoConnection,
        ),
        row(
            "provider-that-is-gone",
            &json!({"auth-provider": {"name": "gcp"}}),
            NoConnection,
        ),
    ]
}

pub fn execs(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let base = cluster.cluster("10.99.0.1");
    let folder = &cluster.folder;
    let token = plugins::answering(folder, "exec-token.sh", &json!({"token": "admin"}));
    let soon = json!({"token": "admin", "expirationTimestamp": "2020-01-01T00:00:00Z"});
    let soon = plugins::answering(folder, "exec-ended.sh", &soon);
    let own = plugins::certificate(&cluster.client("exec-user", made::P521, made::CLIENT));
    let own = plugins::answering(folder, "exec-certificate.sh", &own);
    let first = plugins::certificate(&cluster.client("exec-v1", made::P256, ""));
    let first = plugins::answering(folder, "exec-version-1.sh", &first);
    let fails = plugins::script(folder, "exec-fails.sh", "exit 3");
    let silent = plugins::script(folder, "exec-silent.sh", "true");
    let informed = plugins::script(
        folder,
        "exec-informed.sh",
        "case $KUBERNETES_EXEC_INFO in *'\"server\":\"https://10.99.0.1'*) ;; *) exit 4 ;; esac\n\
         case $KUBERNETES_EXEC_INFO in *'\"interactive\":false'*) ;; *) exit 5 ;; esac\n\
         cat exec-token.sh.json 2>/dev/null || cat \"$(dirname \"$0\")/exec-token.sh.json\"",
    );
    let row = |name, command: &Path, mode: &str, wanted| {
        row(name, &base, &plugins::user(text(command), mode), wanted)
    };
    let relative = Path::new("./exec-token.sh");
    let of = |name, path: &Path, fields: &Value, wanted| {
        let user = plugins::user_with(text(path), fields);
        self::row(name, &base, &user, wanted)
    };
    let v1 = "client.authentication.k8s.io/v1";
    let v1beta1 = "client.authentication.k8s.io/v1beta1";
    let older = plugins::script(
        folder,
        "exec-beta.sh",
        &format!(
            r#"echo '{{"apiVersion": "{v1beta1}", "kind": "ExecCredential", "status": {{"token": "admin"}}}}'"#
        ),
    );
    let nameless = plugins::script(
        folder,
        "exec-nameless.sh",
        r#"echo '{"status": {"token": "admin"}}'"#,
    );
    let never = json!({"apiVersion": v1, "interactiveMode": "Never"});
    let mut both = plugins::user_with(text(&token), &never);
    both["auth-provider"] = json!({"name": "oidc", "config": {}});
    let mut unused = plugins::user_with(text(&token), &json!({"interactiveMode": "Never"}));
    unused["token"] = json!("admin");
    vec![
        of(
            "exec-without-a-version",
            &token,
            &json!({"interactiveMode": "Never"}),
            NoConnection,
        ),
        of(
            "exec-without-a-mode",
            &token,
            &json!({"apiVersion": v1}),
            NoConnection,
        ),
        of(
            "exec-beta-without-a-mode",
            &older,
            &json!({"apiVersion": v1beta1}),
            Answered,
        ),
        of(
            "exec-alpha",
            &older,
            &json!({"apiVersion": "client.authentication.k8s.io/v1alpha1"}),
            NoConnection,
        ),
        of("exec-of-another-version", &older, &never, NoConnection),
        of(
            "exec-answer-without-a-kind",
            &nameless,
            &never,
            NoConnection,
        ),
        of(
            "exec-variable-without-a-name",
            &token,
            &changed(never.clone(), &json!({"env": [{"value": "v"}]})),
            NoConnection,
        ),
        of(
            "exec-mode-of-no-kind",
            &token,
            &changed(never.clone(), &json!({"interactiveMode": "Sometimes"})),
            NoConnection,
        ),
        self::row("exec-and-provider", &base, &both, NoConnection),
        self::row(
            "exec-unused-without-a-version",
            &base,
            &unused,
            NoConnection,
        ),
        row("exec-token", &token, "IfAvailable", Answered).saying("noise of exec-token.sh"),
        row("exec-never-interactive", &token, "Never", Answered).saying("noise of exec-token.sh"),
        row("exec-needs-a-terminal", &token, "Always", NoConnection),
        row("exec-relative", relative, "Never", Answered),
        row("exec-ended", &soon, "Never", Answered),
        row("exec-certificate", &own, "Never", Answered).saying("noise of exec-certificate.sh"),
        row("exec-version-1", &first, "Never", Answered),
        row("exec-informed", &informed, "Never", Answered),
        row("exec-fails", &fails, "Never", NoConnection).saying("noise of exec-fails.sh"),
        row("exec-silent", &silent, "Never", NoConnection),
        row(
            "exec-missing",
            Path::new("/nonexistent/plugin"),
            "Never",
            NoConnection,
        ),
    ]
}

/// Whether a kuberc permits the plugin. kubectl asks since 1.35; an older one takes each plugin.
pub fn policies(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let base = cluster.cluster("10.99.0.1");
    let folder = &cluster.folder;
    let token = plugins::answering(folder, "exec-policy.sh", &json!({"token": "admin"}));
    let user = plugins::user(text(&token), "Never");
    let with = |name: &'static str, fields: &str| {
        let path = folder.join(format!("{name}.kuberc"));
        let text =
            format!("apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n{fields}\n");
        std::fs::write(&path, text).unwrap();
        row(name, &base, &user, Answered).with(&[("KUBERC", &path.display().to_string())])
    };
    let refused = if kubectl_minor() >= 35 {
        NoConnection
    } else {
        Answered
    };
    let refused = |row: ConnectionRow, words| ConnectionRow {
        wanted: refused,
        ..row.but(words)
    };
    let list = |command: &str| {
        format!(
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{{command: {command:?}}}]"
        )
    };
    vec![
        with("policy-none", "defaults: []"),
        with("policy-allow", "credentialPluginPolicy: AllowAll"),
        with("policy-list", &list(text(&token))),
        refused(
            with("policy-deny", "credentialPluginPolicy: DenyAll"),
            "credentialPluginPolicy is DenyAll",
        ),
        refused(
            with("policy-other-list", &list("exec-policy.sh")),
            "credentialPluginPolicy is Allowlist",
        ),
        refused(
            with("policy-wrong", "credentialPluginPolicy: Sometimes"),
            "is none of AllowAll",
        ),
        row("policy-off", &base, &user, Answered).with(&[("KUBERC", "off")]),
        refused(
            row("policy-missing", &base, &user, Answered).with(&[("KUBERC", "/nonexistent/rc")]),
            "/nonexistent/rc cannot be read",
        ),
        // Only a plugin needs permission.
        row("policy-without-a-plugin", &base, &admin(), Answered).with(&[(
            "KUBERC",
            &folder.join("policy-deny.kuberc").display().to_string(),
        )]),
    ]
}

pub fn providers(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let base = cluster.cluster("10.99.0.1");
    let (provider, authority) = (&cluster.provider, cluster.authority.certificate());
    let user = |id: &str, refresh: &str| provider.user(&authority, id, refresh);
    let row = |name, user: &Value, wanted| row(name, &base, user, wanted);
    let mut stranger = user(&provider.ended, "first");
    stranger["auth-provider"]["config"]["idp-certificate-authority"] =
        json!(cluster.server("own").certificate);
    vec![
        row("oidc-token", &user(&provider.good, ""), Answered),
        row("oidc-ended", &user(&provider.ended, ""), NoConnection),
        row("oidc-refresh", &user(&provider.ended, "first"), Answered).keeping("rotated"),
        row("oidc-refresh-without-a-token", &user("", "first"), Answered).keeping("rotated"),
        row(
            "oidc-refresh-refused",
            &user(&provider.ended, "other"),
            NoConnection,
        ),
        row("oidc-provider-untrusted", &stranger, NoConnection),
        row("oidc-no-token", &user("opaque", "first"), NoConnection),
    ]
}
