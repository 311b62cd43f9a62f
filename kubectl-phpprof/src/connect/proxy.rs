//! Decides which proxy leads to a server, as kubectl decides it.
//!
//! It reads no environment and opens no connection.
//!
//! Invariant: a `proxy-url` of the kubeconfig is always used. Variables are used as Go's net/http
//! uses them: `NO_PROXY` is matched against the server, and a server on this machine has no proxy.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

/// A proxy, and what it is asked with.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerProxy {
    pub kind: ProxyKind,
    /// Always with a port, never with credentials.
    pub address: Uri,
    /// User name and password.
    pub credentials: Option<(String, String)>,
}

/// Without the password.
impl std::fmt::Debug for ServerProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {}", self.kind, self.address)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// CONNECT of HTTP/1.1.
    Http,
    /// The same inside of TLS.
    Https,
    /// SOCKS version 5; the proxy looks names up.
    Socks,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("{from} is not the address of a proxy: {value}")]
    Address { from: &'static str, value: String },
    #[error("{from} has the scheme {scheme}, which is none of http, https and socks5")]
    Scheme { from: &'static str, scheme: String },
}

/// The proxy that a kubeconfig's `proxy-url` names. clientcmd's `parseProxyURL` takes three
/// schemes, and no address without one.
pub fn of_kubeconfig(value: &str) -> Result<ServerProxy, ProxyError> {
    parsed("proxy-url", value)
}

/// The proxy that the environment has for this server.
/// Source: golang.org/x/net/http/httpproxy, `proxyForURL`, `init` and `useProxy`.
pub fn of_environment(
    server: &Uri,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<ServerProxy>, ProxyError> {
    let names: [&'static str; 2] = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let Some((name, value)) = first(names, variable) else {
        return Ok(None);
    };
    let without = first(["NO_PROXY", "no_proxy"], variable).map_or(String::new(), |it| it.1);
    if is_direct(server, &without) {
        return Ok(None);
    }
    let value = if value.contains("://") {
        value
    } else {
        format!("http://{value}")
    };
    parsed(name, &value).map(Some)
}

fn first(
    names: [&'static str; 2],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
    names
        .into_iter()
        .find_map(|name| Some((name, variable(name).filter(|it| !it.is_empty())?)))
}

fn parsed(from: &'static str, value: &str) -> Result<ServerProxy, ProxyError> {
    let wrong = || ProxyError::Address {
        from,
        value: without_password(value),
    };
    let uri: Uri = value.trim().parse().map_err(|_| wrong())?;
    let scheme = uri.scheme_str().ok_or_else(wrong)?;
    let (kind, plain, port) = match scheme {
        "http" => (ProxyKind::Http, "http", 80),
        "https" => (ProxyKind::Https, "https", 443),
        "socks5" | "socks5h" if from != "proxy-url" || scheme == "socks5" => {
            (ProxyKind::Socks, "http", 1080)
        }
        _ => {
            return Err(ProxyError::Scheme {
                from,
                scheme: scheme.to_owned(),
            });
        }
    };
    let authority = uri.authority().ok_or_else(wrong)?;
    let host = authority.host();
    if host.is_empty() {
        return Err(wrong());
    }
    let port = authority.port_u16().unwrap_or(port);
    let address = format!("{plain}://{host}:{port}/").parse();
    let user = authority.as_str().rsplit_once('@').map(|it| it.0);
    Ok(ServerProxy {
        kind,
        address: address.map_err(|_| wrong())?,
        credentials: user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), decoded(password))
        }),
    })
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

/// A message must not show the password.
fn without_password(value: &str) -> String {
    match value.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("", |it| it.0);
            format!("{scheme}://…@{host}")
        }
        None => value.to_owned(),
    }
}

/// Whether the server is reached without the environment's proxy.
fn is_direct(server: &Uri, without: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // In small letters only, as in Go.
    if host == "localhost" {
        return true;
    }
    let host = host.to_lowercase();
    let port = server.port_u16().unwrap_or(match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    });
    let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    if ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    without
        .split(',')
        .map(|rule| rule.trim().to_lowercase())
        .any(|rule| is_match(&rule, &host, port, ip))
}

fn is_match(rule: &str, host: &str, port: u16, ip: Option<IpAddr>) -> bool {
    if rule == "*" {
        return true;
    }
    if let Ok(network) = rule.parse::<IpNet>() {
        return ip.is_some_and(|ip| network.contains(&ip));
    }
    let (name, wanted) = host_and_port(rule).unwrap_or((rule, ""));
    if name.is_empty() || !(wanted.is_empty() || wanted == port.to_string()) {
        return false;
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        return ip == Some(address.to_canonical());
    }
    if ip.is_some() {
        return false;
    }
    // `*.domain` and `.domain` are hosts below it; `domain` is itself and those.
    let name = name
        .strip_prefix('*')
        .filter(|it| it.starts_with('.'))
        .unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|it| it.ends_with('.')),
    }
}

/// Go's `net.SplitHostPort`: none if there is no port, as in `fe80::1` and `[fe80::1]`.
fn host_and_port(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return Some((host, rest.strip_prefix(':')?));
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.contains([':', '[', ']'])).then_some((host, port))
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
