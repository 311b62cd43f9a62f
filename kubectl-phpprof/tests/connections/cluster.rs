//! A kube-apiserver with its etcd, which has a certificate of its own for each name that a client
//! may ask for.
//!
//! Invariant: its programs end with this one.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::authority::{self as made, Authority, Pair, text};
use crate::provider::Provider;
use crate::proxies;

/// An API server on a busy machine.
const START: Duration = Duration::from_secs(180);

pub struct TestCluster {
    pub folder: PathBuf,
    pub authority: Authority,
    pub port: u16,
    /// The server's certificates by the name that a client asks for.
    pub served: Vec<(&'static str, Pair)>,
    pub large: PathBuf,
    pub proxies: Proxies,
    pub provider: Provider,
    _programs: Vec<Child>,
}

/// Ports.
pub struct Proxies {
    pub connect: u16,
    pub connect_with_password: u16,
    pub tls: u16,
    pub socks: u16,
    pub socks_with_password: u16,
}

impl TestCluster {
    pub fn start(folder: &Path) -> Self {
        let authority = Authority::new(folder, made::P256);
        // It takes minutes to find the primes of such a key.
        let large = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/connections/rsa-8192.key");
        let served = served(&authority, &large);
        let [etcd, peer, port] = [0; 3].map(|_| free_port());
        let mut programs = vec![program(folder, "etcd", &etcd_arguments(folder, etcd, peer))];
        let front = served.iter().find(|it| it.0 == "default").unwrap();
        let provider = Provider::start(folder, &front.1);
        let mut arguments = api_arguments(folder, &authority, &served, etcd, port);
        arguments.extend([
            format!("--oidc-issuer-url={}", provider.url),
            format!("--oidc-ca-file={}", authority.certificate().display()),
            "--oidc-client-id=phpprof".to_owned(),
            "--oidc-username-prefix=oidc:".to_owned(),
            "--oidc-groups-claim=groups".to_owned(),
            "--oidc-groups-prefix=oidc:".to_owned(),
        ]);
        programs.push(program(folder, "kube-apiserver", &arguments));
        let server = SocketAddr::from(([10, 99, 0, 1], port));
        let behind = proxies::start(proxies::connect, server);
        let (tls, before) = proxies::tls_before(behind, &front.1);
        programs.push(before);
        let cluster = TestCluster {
            folder: folder.to_owned(),
            port,
            large,
            proxies: Proxies {
                connect: behind,
                connect_with_password: proxies::start(proxies::connect_with_password, server),
                tls,
                socks: proxies::start(proxies::socks, server),
                socks_with_password: proxies::start(proxies::socks_with_password, server),
            },
            provider,
            served,
            authority,
            _programs: programs,
        };
        cluster.install();
        cluster
    }

    /// Waits for it, and gives it the kind that both programs list.
    fn install(&self) {
        let admin = self.folder.join("admin.kubeconfig");
        let config = crate::kubeconfig::config(
            &self.cluster("10.99.0.1"),
            &serde_json::json!({"token": "admin"}),
        );
        std::fs::write(&admin, config).unwrap();
        let kind = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/profilerequest.yaml");
        let begin = Instant::now();
        let kubectl = |arguments: &[&str]| {
            let mut command = Command::new("kubectl");
            command.args(["--kubeconfig", text(&admin)]).args(arguments);
            command
                .output()
                .expect("kubectl starts; `tools/build kubernetes` makes it")
        };
        loop {
            let applied = kubectl(&["apply", "--server-side", "-f", kind]);
            if applied.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&applied.stderr).into_owned();
            assert!(
                begin.elapsed() < START,
                "the API server does not start: {said}"
            );
            std::thread::sleep(Duration::from_millis(500));
        }
        let established = kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "-f",
            kind,
        ]);
        assert!(established.status.success());
        let binding = [
            "create",
            "clusterrolebinding",
            "admins",
            "--clusterrole=cluster-admin",
            "--group=oidc:admins",
        ];
        assert!(kubectl(&binding).status.success());
    }

    /// A cluster's entry for an address, with the authority.
    pub fn cluster(&self, host: &str) -> serde_json::Value {
        serde_json::json!({
            "server": format!("https://{host}:{}", self.port),
            "certificate-authority": self.authority.certificate(),
        })
    }

    pub fn server(&self, name: &str) -> &Pair {
        &self.served.iter().find(|it| it.0 == name).unwrap().1
    }

    /// A user's certificate.
    pub fn client(&self, name: &str, kind: &[&str], extensions: &str) -> Pair {
        let subject = "/O=system:masters/CN=ann";
        self.authority.pair(name, kind, subject, extensions, "2")
    }
}

fn served(authority: &Authority, large: &Path) -> Vec<(&'static str, Pair)> {
    let names = "subjectAltName=IP:10.99.0.1,IP:127.0.0.1,DNS:api.phpprof.test,DNS:idp.phpprof.test,DNS:localhost\n";
    let default = [made::SERVER, names].concat();
    let pair = |name: &str, kind: &[&str], extensions: &str, days: &str| {
        authority.pair(name, kind, &format!("/CN={name}"), extensions, days)
    };
    let named = |name: &'static str, kind: &[&str]| {
        let extensions = format!("{}subjectAltName=DNS:{name}.test\n", made::SERVER);
        (name, pair(name, kind, &extensions, "2"))
    };
    let marked = "basicConstraints=CA:TRUE\nsubjectAltName=DNS:marked.test\n";
    let ended = format!("{}subjectAltName=DNS:ended.test\n", made::SERVER);
    let client = format!("{}subjectAltName=DNS:client.test\n", made::CLIENT);
    let extensions = format!("{}subjectAltName=DNS:rsa8192.test\n", made::SERVER);
    vec![
        ("default", pair("default", made::P256, &default, "2")),
        named("p384", made::P384),
        named("p521", made::P521),
        named("ed25519", made::ED25519),
        named("rsa1024", made::RSA_1024),
        named("rsa2048", made::RSA_2048),
        (
            "rsa8192",
            authority.pair_of("rsa8192", large, "/CN=rsa8192", &extensions, "2"),
        ),
        // Marked as an authority, and signed by another one.
        ("marked", pair("marked", made::P256, marked, "2")),
        ("own", authority.own("own", "own.test")),
        // OpenSSL takes a negative number of days: it ended before it began.
        ("ended", pair("ended", made::P256, &ended, "-1")),
        ("client", pair("client", made::P256, &client, "2")),
        // Version 1, without names.
        ("v1", pair("v1", made::P256, "", "2")),
    ]
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn program(folder: &Path, name: &str, arguments: &[String]) -> Child {
    let log = std::fs::File::create(folder.join(format!("{name}.log"))).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", name])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{name} starts; `tools/build kubernetes` makes it: {error}"))
}

fn etcd_arguments(folder: &Path, port: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peer}"),
    );
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]
}

fn api_arguments(
    folder: &Path,
    authority: &Authority,
    served: &[(&'static str, Pair)],
    etcd: u16,
    port: u16,
) -> Vec<String> {
    let path = |name: &str| folder.join(name);
    let (key, tokens) = (path("accounts.key"), path("tokens.csv"));
    made::openssl(&["genrsa", "-out", text(&key), "2048"]);
    std::fs::write(
        &tokens,
        "admin,admin,admin,\"system:masters\"\nbob,bob,bob\n",
    )
    .unwrap();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=0.0.0.0".to_owned(),
        "--advertise-address=10.99.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", folder.display()),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
        format!("--client-ca-file={}", authority.certificate().display()),
        format!("--token-auth-file={}", tokens.display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
    ];
    for (name, pair) in served {
        let (certificate, key) = (pair.certificate.display(), pair.key.display());
        if *name == "default" {
            arguments.push(format!("--tls-cert-file={certificate}"));
            arguments.push(format!("--tls-private-key-file={key}"));
        } else {
            arguments.push(format!(
                "--tls-sni-cert-key={certificate},{key}:{name}.test"
            ));
        }
    }
    arguments
}
