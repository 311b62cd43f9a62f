//! The kinds of kubeconfig, and what kubectl does with each.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::authority::{self as made, Authority, Pair, text};
use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::plugins;

pub struct Row {
    pub name: &'static str,
    pub kubeconfig: String,
    /// KUBECONFIG, if it is not the file of this row alone; SELF is that.
    pub files: Option<String>,
    pub variables: Vec<(String, String)>,
    /// What kubectl does.
    pub wanted: Outcome,
    pub same: Same,
    /// What both print.
    pub said: Option<&'static str>,
    /// What the kubeconfig has after each.
    pub kept: Option<&'static str>,
}

/// Whether the plugin does the same.
#[derive(Clone, Copy)]
pub enum Same {
    Yes,
    /// It refuses, and says why: docs/adr/0010.
    Refused(&'static str),
    /// kubectl asks for a user name and a password, which no API server has taken since Kubernetes 1.19. The plugin connects as nobody.
    AsNobody,
}

use Outcome::{Answered, Forbidden, NoConnection, Unauthorized};

/// A kubeconfig with one context. JSON is valid YAML.
pub fn config(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "ann", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "ann"}}],
    })
    .to_string()
}

fn row(name: &'static str, cluster: &Value, user: &Value, wanted: Outcome) -> Row {
    Row {
        name,
        kubeconfig: config(cluster, user),
        files: None,
        variables: Vec::new(),
        wanted,
        same: Same::Yes,
        said: None,
        kept: None,
    }
}

impl Row {
    fn with(mut self, variables: &[(&str, &str)]) -> Self {
        let pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.variables.extend(pairs);
        self
    }

    fn but(mut self, words: &'static str) -> Self {
        self.same = Same::Refused(words);
        self
    }

    fn as_nobody(mut self) -> Self {
        self.same = Same::AsNobody;
        self
    }

    fn keeping(mut self, words: &'static str) -> Self {
        self.kept = Some(words);
        self
    }

    fn saying(mut self, words: &'static str) -> Self {
        self.said = Some(words);
        self
    }
}

pub fn all(cluster: &Cluster) -> Vec<Row> {
    let mut rows = servers(cluster);
    rows.extend(clients(cluster));
    rows.extend(tokens(cluster));
    rows.extend(execs(cluster));
    rows.extend(providers(cluster));
    rows.extend(proxies(cluster));
    rows.extend(files(cluster));
    rows
}

fn admin() -> Value {
    json!({"token": "admin"})
}

/// The entry with more fields; null removes one.
fn changed(mut entry: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            entry.as_object_mut().unwrap().remove(name);
        } else {
            entry[name] = value.clone();
        }
    }
    entry
}

fn encoded(path: &Path) -> String {
    let output = Command::new("base64")
        .args(["-w0", text(path)])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Whose certificate the server has, and who is trusted.
fn servers(cluster: &Cluster) -> Vec<Row> {
    let base = || cluster.cluster("10.99.0.1");
    let named = |name: &str| changed(base(), &json!({"tls-server-name": format!("{name}.test")}));
    let trusting = |name: &str| {
        changed(
            named(name),
            &json!({"certificate-authority": cluster.server(name).certificate}),
        )
    };
    let none = changed(base(), &json!({"certificate-authority": null}));
    let insecure = changed(none.clone(), &json!({"insecure-skip-tls-verify": true}));
    let data = json!({
        "certificate-authority": null, "certificate-authority-data": encoded(&cluster.authority.certificate())
    });
    let leaf = json!({"certificate-authority": cluster.server("default").certificate});
    let other = cluster.folder.join("other");
    std::fs::create_dir(&other).unwrap();
    let other = Authority::new(&other, made::P256).certificate();
    let system = cluster.authority.certificate().display().to_string();
    let wrong = json!({"certificate-authority": other});
    let both = json!({"insecure-skip-tls-verify": true});
    let admin = admin();
    let row = |name, cluster: &Value, wanted| row(name, cluster, &admin, wanted);
    vec![
        row("authority-file", &base(), Answered),
        row("authority-data", &changed(base(), &data), Answered),
        row("authority-wrong", &changed(base(), &wrong), NoConnection),
        row("authority-none", &none, NoConnection),
        row("authority-of-the-system", &none, Answered).with(&[("SSL_CERT_FILE", &system)]),
        row("leaf-as-authority", &changed(base(), &leaf), Answered),
        row(
            "leaf-that-is-not-the-servers",
            &changed(named("p384"), &leaf),
            NoConnection,
        ),
        row("leaf-that-signs-itself", &trusting("own"), Answered),
        row(
            "leaf-for-another-name",
            &changed(trusting("own"), &json!({"tls-server-name": "p384.test"})),
            NoConnection,
        ),
        row("leaf-that-has-ended", &trusting("ended"), NoConnection),
        row("leaf-for-clients", &trusting("client"), NoConnection),
        row("leaf-of-version-1", &trusting("v1"), NoConnection),
        row("insecure", &insecure, Answered),
        row(
            "insecure-with-version-1",
            &changed(insecure.clone(), &json!({"tls-server-name": "v1.test"})),
            Answered,
        ),
        row(
            "insecure-with-authority",
            &changed(base(), &both),
            NoConnection,
        ),
        row("server-name-wrong", &named("nobody"), NoConnection),
        row("server-p384", &named("p384"), Answered),
        row("server-p521", &named("p521"), Answered),
        row("server-ed25519", &named("ed25519"), Answered),
        row("server-rsa2048", &named("rsa2048"), Answered),
        row("server-rsa8192", &named("rsa8192"), Answered),
        row("server-rsa1024", &named("rsa1024"), Answered).but("RSA key of 1024 bits"),
        row("server-marked-as-authority", &named("marked"), Answered).but("CA:TRUE"),
        row("server-marked-and-listed", &trusting("marked"), Answered),
        row("server-ended", &named("ended"), NoConnection),
        row("server-version-1", &named("v1"), NoConnection),
    ]
}

/// A user's certificate.
fn clients(cluster: &Cluster) -> Vec<Row> {
    let base = cluster.cluster("10.99.0.1");
    let by = |pair: &Pair| json!({"client-certificate": pair.certificate, "client-key": pair.key});
    let row = |name, user: &Value, wanted| row(name, &base, user, wanted);
    let of = |name: &'static str, kind: &[&str], wanted| {
        row(name, &by(&cluster.client(name, kind, made::CLIENT)), wanted)
    };
    let plain = cluster.client("user", made::P256, made::CLIENT);
    let other = cluster.client("other-user", made::P256, made::CLIENT);
    let mixed = Pair {
        certificate: plain.certificate.clone(),
        key: other.key,
    };
    let subject = "/O=system:masters/CN=ann";
    let large = cluster
        .authority
        .pair_of("large", &cluster.large, subject, made::CLIENT, "2");
    let ended = cluster
        .authority
        .pair("user-ended", made::P256, subject, made::CLIENT, "-1");
    let first = cluster.client("user-v1", made::P256, "");
    let data = json!({
        "client-certificate-data": encoded(&plain.certificate), "client-key-data": encoded(&plain.key)
    });
    // What `openssl ecparam -genkey` and `openssl ec` write: SEC1, behind the curve's parameters.
    let sec1 = cluster.folder.join("sec1.key");
    let p521 = cluster.client("user-sec1", made::P521, made::CLIENT);
    made::openssl(&["ec", "-in", text(&p521.key), "-out", text(&sec1)]);
    let sec1 = Pair {
        certificate: p521.certificate,
        key: sec1,
    };
    let pkcs1 = cluster.folder.join("pkcs1.key");
    let rsa = cluster.client("user-pkcs1", made::RSA_2048, made::CLIENT);
    made::openssl(&[
        "rsa",
        "-traditional",
        "-in",
        text(&rsa.key),
        "-out",
        text(&pkcs1),
    ]);
    let pkcs1 = Pair {
        certificate: rsa.certificate,
        key: pkcs1,
    };
    let locked = cluster.folder.join("locked.key");
    made::openssl(&[
        "ec",
        "-in",
        text(&plain.key),
        "-aes128",
        "-passout",
        "pass:secret",
        "-out",
        text(&locked),
    ]);
    let locked = Pair {
        certificate: plain.certificate.clone(),
        key: locked,
    };
    let missing = Pair {
        certificate: plain.certificate.clone(),
        key: cluster.folder.join("none.key"),
    };
    vec![
        row("client-files", &by(&plain), Answered),
        row("client-data", &data, Answered),
        row("client-version-1", &by(&first), Answered),
        of("client-p384", made::P384, Answered),
        of("client-p521", made::P521, Answered),
        row("client-p521-sec1", &by(&sec1), Answered),
        of("client-ed25519", made::ED25519, Answered),
        of("client-rsa2048", made::RSA_2048, Answered),
        row("client-rsa2048-pkcs1", &by(&pkcs1), Answered),
        of("client-rsa4096", made::RSA_4096, Answered),
        row("client-rsa8192", &by(&large), Answered),
        of("client-rsa1024", made::RSA_1024, Answered).but("has 1024 bits"),
        row("client-ended", &by(&ended), Unauthorized),
        row("client-with-another-key", &by(&mixed), NoConnection),
        row("client-with-a-locked-key", &by(&locked), NoConnection),
        row("client-with-a-missing-key", &by(&missing), NoConnection),
        row(
            "client-without-a-key",
            &json!({"client-certificate": plain.certificate}),
            NoConnection,
        ),
        row("client-none", &json!({}), NoConnection).as_nobody(),
    ]
}

fn tokens(cluster: &Cluster) -> Vec<Row> {
    let base = cluster.cluster("10.99.0.1");
    let (file, old) = (
        cluster.folder.join("token"),
        cluster.folder.join("old-token"),
    );
    std::fs::write(&file, "admin").unwrap();
    std::fs::write(&old, "bob").unwrap();
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

fn execs(cluster: &Cluster) -> Vec<Row> {
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

fn providers(cluster: &Cluster) -> Vec<Row> {
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

fn proxies(cluster: &Cluster) -> Vec<Row> {
    let far = cluster.cluster("far.phpprof.test");
    // A certificate for the far name: api.phpprof.test's.
    let far = changed(far, &json!({"tls-server-name": "api.phpprof.test"}));
    let (near, host) = (
        cluster.cluster("10.99.0.1"),
        cluster.cluster("api.phpprof.test"),
    );
    let ports = &cluster.proxies;
    let dead = "http://127.0.0.1:9";
    let through = |url: String| changed(far.clone(), &json!({"proxy-url": url}));
    let connect = format!("http://127.0.0.1:{}", ports.connect);
    let port = format!("10.99.0.1:{}", cluster.port);
    let wanted = |name, cluster: &Value, wanted| row(name, cluster, &admin(), wanted);
    let row = |name, cluster: &Value, variables: &[(&str, &str)], outcome| {
        wanted(name, cluster, outcome).with(variables)
    };
    let direct = |name, cluster: &Value, without: &str| {
        row(
            name,
            cluster,
            &[("HTTPS_PROXY", dead), ("NO_PROXY", without)],
            Answered,
        )
    };
    let caught = |name, cluster: &Value, without: &str| {
        row(
            name,
            cluster,
            &[("HTTPS_PROXY", dead), ("NO_PROXY", without)],
            NoConnection,
        )
    };
    let password = format!(
        "http://user:password@127.0.0.1:{}",
        ports.connect_with_password
    );
    let wrong = format!(
        "http://user:wrong@127.0.0.1:{}",
        ports.connect_with_password
    );
    let socks = format!("socks5://127.0.0.1:{}", ports.socks);
    vec![
        wanted("proxy-none", &far, NoConnection),
        wanted("proxy-url-http", &through(connect.clone()), Answered),
        wanted("proxy-url-password", &through(password), Answered),
        wanted("proxy-url-password-wrong", &through(wrong), NoConnection),
        wanted(
            "proxy-url-https",
            &through(format!("https://127.0.0.1:{}", ports.tls)),
            Answered,
        ),
        wanted("proxy-url-socks5", &through(socks.clone()), Answered),
        wanted(
            "proxy-url-socks5-password",
            &through(format!(
                "socks5://user:password@127.0.0.1:{}",
                ports.socks_with_password
            )),
            Answered,
        ),
        wanted(
            "proxy-url-of-no-kind",
            &through("ftp://127.0.0.1:9".into()),
            NoConnection,
        ),
        wanted("proxy-url-dead", &through(dead.into()), NoConnection),
        row(
            "proxy-url-and-no-proxy",
            &through(connect.clone()),
            &[("NO_PROXY", "*")],
            Answered,
        ),
        row(
            "proxy-url-and-variable",
            &through(connect.clone()),
            &[("HTTPS_PROXY", dead)],
            Answered,
        ),
        row(
            "proxy-variable",
            &far,
            &[("HTTPS_PROXY", &connect)],
            Answered,
        ),
        row(
            "proxy-variable-small",
            &far,
            &[("https_proxy", &connect)],
            Answered,
        ),
        row(
            "proxy-variable-socks5",
            &far,
            &[("HTTPS_PROXY", &socks)],
            Answered,
        ),
        row(
            "proxy-variable-without-scheme",
            &far,
            &[("HTTPS_PROXY", &connect[7..])],
            Answered,
        ),
        row(
            "proxy-variable-of-http",
            &near,
            &[("HTTP_PROXY", dead)],
            Answered,
        ),
        row(
            "proxy-variable-loopback",
            &cluster.cluster("127.0.0.1"),
            &[("HTTPS_PROXY", dead)],
            Answered,
        ),
        row(
            "proxy-variable-localhost",
            &cluster.cluster("localhost"),
            &[("HTTPS_PROXY", dead)],
            Answered,
        ),
        caught("no-proxy-empty", &near, ""),
        direct("no-proxy-all", &near, "*"),
        direct("no-proxy-address", &near, "10.99.0.1"),
        direct("no-proxy-cidr", &near, "192.168.0.0/16, 10.0.0.0/8"),
        direct("no-proxy-port", &near, &port),
        caught("no-proxy-other-port", &near, "10.99.0.1:1"),
        caught("no-proxy-other-cidr", &near, "192.168.0.0/16"),
        direct("no-proxy-host", &host, "api.phpprof.test"),
        direct("no-proxy-suffix", &host, ".phpprof.test"),
        direct("no-proxy-domain", &host, "phpprof.test"),
        direct("no-proxy-star", &host, "*.phpprof.test"),
        caught("no-proxy-other-suffix", &host, "prof.test"),
        // Only a name counts, not the address that it has.
        caught("no-proxy-address-of-a-host", &host, "10.99.0.1"),
    ]
}

fn files(cluster: &Cluster) -> Vec<Row> {
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
    let named = |name, row: Row| Row { name, ..row };
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
    let mut nobody = row("user-that-is-not-there", &near, &admin(), NoConnection).as_nobody();
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
