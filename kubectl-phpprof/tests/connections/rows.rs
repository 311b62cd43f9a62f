//! The kinds of kubeconfig, and what kubectl does with each.

mod files;
mod logins;
mod ways;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::authority::{self as made, Authority, Pair, text};
use crate::cluster::TestCluster;
use crate::kubeconfig::config;
use crate::outcome::ConnectionOutcome;

pub struct ConnectionRow {
    pub name: &'static str,
    pub kubeconfig: String,
    /// KUBECONFIG, if it is not the file of this row alone; SELF is that.
    pub files: Option<String>,
    pub variables: Vec<(String, String)>,
    /// What kubectl does.
    pub wanted: ConnectionOutcome,
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

use ConnectionOutcome::{Answered, NoConnection, Unauthorized};

fn row(
    name: &'static str,
    cluster: &Value,
    user: &Value,
    wanted: ConnectionOutcome,
) -> ConnectionRow {
    ConnectionRow {
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

impl ConnectionRow {
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

    fn being_nobody(mut self) -> Self {
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

pub fn all(cluster: &TestCluster) -> Vec<ConnectionRow> {
    let mut rows = servers(cluster);
    rows.extend(clients(cluster));
    rows.extend(logins::tokens(cluster));
    rows.extend(logins::execs(cluster));
    rows.extend(logins::policies(cluster));
    rows.extend(logins::providers(cluster));
    rows.extend(ways::proxies(cluster));
    rows.extend(files::files(cluster));
    rows.extend(files::pods(cluster));
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
fn servers(cluster: &TestCluster) -> Vec<ConnectionRow> {
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
fn clients(cluster: &TestCluster) -> Vec<ConnectionRow> {
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
        row("client-none", &json!({}), NoConnection).being_nobody(),
    ]
}
