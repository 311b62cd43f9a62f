//! Which proxy a server gets. The rows of `NO_PROXY` are those of golang.org/x/net/http/httpproxy's
//! own test, and more.

use super::*;

fn chosen(server: &str, variables: &[(&str, &str)]) -> Result<Option<ServerProxy>, ProxyError> {
    let variable = |name: &str| {
        let found = variables.iter().find(|it| it.0 == name);
        found.map(|it| it.1.to_owned())
    };
    of_environment(&server.parse().unwrap(), &variable)
}

fn is_proxied(server: &str, without: &str) -> bool {
    let variables = [("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", without)];
    chosen(server, &variables).unwrap().is_some()
}

#[test]
fn no_proxy_is_matched_as_go_matches_it() {
    // Server, NO_PROXY, whether the proxy is used.
    let rows = [
        ("https://api.example.com:6443", "", true),
        ("https://api.example.com:6443", "*", false),
        ("https://api.example.com:6443", "api.example.com", false),
        ("https://api.example.com:6443", "API.Example.com", false),
        ("https://api.example.com:6443", "example.com", false),
        ("https://api.example.com:6443", ".example.com", false),
        ("https://api.example.com:6443", "*.example.com", false),
        ("https://example.com", ".example.com", true),
        ("https://example.com", "*.example.com", true),
        ("https://example.com", "example.com", false),
        ("https://badexample.com", "example.com", true),
        ("https://api.example.com:6443", "example.com:6443", false),
        ("https://api.example.com:6443", "example.com:443", true),
        ("https://api.example.com", "example.com:443", false),
        (
            "https://api.example.com",
            "other.com, example.com ,x",
            false,
        ),
        ("https://api.example.com", ",,", true),
        ("https://api.example.com", ":443", true),
        ("https://api.example.com", "com", false),
        ("https://10.1.2.3:6443", "10.0.0.0/8", false),
        ("https://11.1.2.3:6443", "10.0.0.0/8", true),
        ("https://10.1.2.3:6443", "10.1.2.3", false),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", false),
        ("https://10.1.2.3:6443", "10.1.2.3:443", true),
        ("https://10.1.2.3:6443", "1.2.3", true),
        ("https://10.1.2.3:6443", ".3", true),
        ("https://[fd00::1]:6443", "fd00::/8", false),
        ("https://[fd00::1]:6443", "fd00::1", false),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", false),
        ("https://[fd00::1]:6443", "[fd00::1]:443", true),
        // Go does not take brackets without a port.
        ("https://[fd00::1]:6443", "[fd00::1]", true),
        ("https://[::ffff:10.1.2.3]:6443", "10.0.0.0/8", false),
        ("https://localhost:6443", "", false),
        ("https://127.0.0.1:6443", "", false),
        ("https://127.8.9.1:6443", "", false),
        ("https://[::1]:6443", "", false),
        ("https://localhost.example.com", "", true),
    ];
    for (server, without, proxied) in rows {
        assert_eq!(
            is_proxied(server, without),
            proxied,
            "{server} NO_PROXY={without}"
        );
    }
}

#[test]
fn the_schemes_variable_in_capitals_comes_first() {
    let both = [
        ("HTTPS_PROXY", "http://a:1"),
        ("https_proxy", "http://b:2"),
        ("HTTP_PROXY", "http://c:3"),
    ];
    let of = |server| chosen(server, &both).unwrap().unwrap().address.to_string();
    assert_eq!(of("https://api"), "http://a:1/");
    assert_eq!(of("http://api"), "http://c:3/");
    let empty = [("HTTPS_PROXY", ""), ("https_proxy", "http://b:2")];
    let small = chosen("https://api", &empty).unwrap().unwrap();
    assert_eq!(small.address, "http://b:2/");
    let lower = [("https_proxy", "http://b:2"), ("no_proxy", "api")];
    assert_eq!(chosen("https://api", &lower).unwrap(), None);
    assert_eq!(
        chosen("https://api", &[("ALL_PROXY", "http://a:1")]).unwrap(),
        None
    );
}

#[test]
fn a_proxy_address_has_scheme_port_and_credentials() {
    let of = |value| {
        let proxy = chosen("https://api", &[("HTTPS_PROXY", value)])
            .unwrap()
            .unwrap();
        (proxy.kind, proxy.address.to_string(), proxy.credentials)
    };
    let user = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
    assert_eq!(
        of("proxy:3128"),
        (ProxyKind::Http, "http://proxy:3128/".into(), None)
    );
    assert_eq!(
        of("10.0.0.1"),
        (ProxyKind::Http, "http://10.0.0.1:80/".into(), None)
    );
    assert_eq!(
        of("https://proxy"),
        (ProxyKind::Https, "https://proxy:443/".into(), None)
    );
    assert_eq!(
        of("socks5://proxy"),
        (ProxyKind::Socks, "http://proxy:1080/".into(), None)
    );
    assert_eq!(
        of("socks5h://[::1]:9"),
        (ProxyKind::Socks, "http://[::1]:9/".into(), None)
    );
    assert_eq!(
        of("http://bob:p%40ss%3A@proxy:1"),
        (
            ProxyKind::Http,
            "http://proxy:1/".into(),
            user("bob", "p@ss:")
        )
    );
    assert_eq!(
        of("bob@proxy:1"),
        (ProxyKind::Http, "http://proxy:1/".into(), user("bob", ""))
    );
}

#[test]
fn a_refused_proxy_address_hides_its_password() {
    let scheme = of_kubeconfig("ftp://proxy").unwrap_err();
    assert_eq!(
        scheme.to_string(),
        "proxy-url has the scheme ftp, which is none of http, https and socks5"
    );
    let bare = of_kubeconfig("proxy:3128").unwrap_err().to_string();
    assert_eq!(bare, "proxy-url is not the address of a proxy: proxy:3128");
    let odd = of_kubeconfig("http://bob:secret@pro xy")
        .unwrap_err()
        .to_string();
    assert_eq!(
        odd,
        "proxy-url is not the address of a proxy: http://…@pro xy"
    );
    assert!(of_kubeconfig("socks5h://proxy").is_err());
    // httpproxy does not look at a proxy that is not used.
    let unused = [("HTTPS_PROXY", "ftp://proxy"), ("NO_PROXY", "*")];
    assert_eq!(chosen("https://api", &unused), Ok(None));
}
