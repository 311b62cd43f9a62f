//! Proxies.

use serde_json::{Value, json};

use super::ConnectionOutcome::{Answered, NoConnection};
use super::{ConnectionRow, admin, changed, row};
use crate::cluster::TestCluster;

pub fn proxies(cluster: &TestCluster) -> Vec<ConnectionRow> {
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
