//! `ui`: the start page of a namespace's profiles in a browser, through the API server's proxy.
//!
//! A listener on loopback passes the page's requests to the operator, with the rights of the
//! kubeconfig. So users who may only read need no port-forward. The address has a random path,
//! because other users of the machine can reach loopback too.
//!
//! Invariant: a request is passed on only with that path, only with this host's name (against DNS
//! rebinding), and only to this service.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use tokio::net::TcpListener;

use crate::cli::Ui;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::results::{self, MAX_RESULT};
use crate::{stdout, stored, wait};

/// An access key, a request's name and uid, and the JSON around them.
const LONGEST_QUESTION: usize = 1 << 10;
/// The headers of the operator's answer that the browser needs.
const PASSED_ON: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_SECURITY_POLICY,
    header::CACHE_CONTROL,
    header::REFERRER_POLICY,
    header::X_CONTENT_TYPE_OPTIONS,
    header::RETRY_AFTER,
];

/// Serves until Ctrl-C.
pub async fn run(global: &Global, arguments: &Ui) -> Result<String, Failure> {
    let mut interrupts = wait::interrupts()?;
    let cluster = Cluster::of(global).await?;
    let access_key = stored::access_key(&cluster).await?;
    // Anything that is missing is reported here instead of on the page.
    results::ask_archive(&cluster, &access_key).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    let cannot_listen = |error: std::io::Error| {
        Failure::new(
            Exit::Failed,
            format!("cannot listen on {address}: {error}"),
            "name a free port with --port, or leave it out",
        )
    };
    let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
    let port = listener.local_addr().map_err(cannot_listen)?.port();
    let door = Door {
        port,
        path: random_path()?,
    };
    eprintln!(
        "Profiles of namespace {}. Anyone with this address can see them. Press Ctrl-C to stop.",
        cluster.namespace
    );
    stdout::say(&format!(
        "http://127.0.0.1:{port}{}{}#{}\n",
        door.path, access_key.path, access_key.key
    ))?;
    let router = Router::new()
        .fallback(pass)
        .with_state(Arc::new((door, cluster)));
    let served = axum::serve(listener, router).with_graceful_shutdown(async move {
        interrupts.recv().await;
    });
    served.await.map_err(cannot_listen)?;
    Ok(String::new())
}

/// The conditions for passing a request on.
struct Door {
    port: u16,
    /// The prefix of the operator's own paths: `/` and 128 random bits.
    path: String,
}

fn random_path() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| {
        Failure::new(
            Exit::Failed,
            "the system has no random numbers",
            "check that /dev/urandom is readable",
        )
    })?;
    Ok(format!("/{:032x}", u128::from_be_bytes(bytes)))
}

impl Door {
    /// Browsers leave out the port of http, which is 80.
    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = host.split_once(':').unwrap_or((host, "80"));
        ["127.0.0.1", "localhost"].contains(&name) && port == self.port.to_string()
    }

    /// The requested path at the operator, or why the request is refused.
    fn opens(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<String, (StatusCode, &'static str)> {
        let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
        if !host.is_some_and(|host| self.is_ours(host)) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "open the address that kubectl phpprof ui printed",
            ));
        }
        if ![Method::GET, Method::POST].contains(method) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "GET or POST"));
        }
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let path = path.strip_prefix(self.path.as_str());
        path.and_then(|path| results::safe(path).ok()).ok_or((
            StatusCode::NOT_FOUND,
            "kubectl phpprof ui was restarted, or the address is incomplete; open the one that it printed",
        ))
    }
}

async fn pass(State(state): State<Arc<(Door, Cluster)>>, request: Request) -> Response {
    let (door, cluster) = &*state;
    let (parts, body) = request.into_parts();
    let path = match door.opens(&parts.method, &parts.uri, &parts.headers) {
        Ok(path) => path,
        Err((status, message)) => return refuse(status, message),
    };
    let Ok(question) = axum::body::to_bytes(body, LONGEST_QUESTION).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the question is too long");
    };
    match results::call(cluster, parts.method, &path, question.to_vec()).await {
        Ok(answer) => passed(answer).await,
        Err(failure) => refuse(StatusCode::BAD_GATEWAY, &failure.to_string()),
    }
}

/// The operator's answer with its status, its own headers and its body.
async fn passed(answer: results::Response) -> Response {
    let (parts, body) = answer.into_parts();
    let Ok(body) = Limited::new(body, MAX_RESULT).collect().await else {
        return refuse(
            StatusCode::BAD_GATEWAY,
            "the operator's answer broke off; try again",
        );
    };
    let mut response = Response::new(Body::from(body.to_bytes()));
    *response.status_mut() = parts.status;
    for name in PASSED_ON {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn refuse(status: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({"message": message}).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, host: &str, path: &str, expected: Result<&str, u16>) {
        check_on(4711, method, host, path, expected);
    }

    #[track_caller]
    fn check_on(port: u16, method: &str, host: &str, path: &str, expected: Result<&str, u16>) {
        let door = Door {
            port,
            path: "/00ff".to_owned(),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        let opened = door.opens(&method.parse().unwrap(), &path.parse().unwrap(), &headers);
        let opened = opened.as_deref().map_err(|(status, _)| status.as_u16());
        assert_eq!(opened, expected, "{method} {host} {path}");
    }

    #[test]
    fn only_the_printed_address_reaches_the_operator() {
        check("GET", "127.0.0.1:4711", "/00ff/a/shop", Ok("/a/shop"));
        check("POST", "localhost:4711", "/00ff/a/shop", Ok("/a/shop"));
        for host in [
            "evil.example:4711",
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example",
        ] {
            check("GET", host, "/00ff/a/shop", Err(421));
        }
        for path in [
            "/",
            "/a/shop",
            "/00fe/a/shop",
            "/00ff",
            "/00ffa/shop",
            "/00ff/../x",
            "/00ff/%2e%2E/x",
            "/00ff/.%2e/x",
            "/00ff/..%2f../x",
        ] {
            check("GET", "127.0.0.1:4711", path, Err(404));
        }
        check("DELETE", "127.0.0.1:4711", "/00ff/a/shop", Err(405));
    }

    #[test]
    fn on_port_80_a_browser_names_no_port() {
        for host in ["127.0.0.1", "localhost", "127.0.0.1:80"] {
            check_on(80, "GET", host, "/00ff/a/shop", Ok("/a/shop"));
        }
        for host in ["evil.example", "evil.example:80", "127.0.0.1:4711", ""] {
            check_on(80, "GET", host, "/00ff/a/shop", Err(421));
        }
    }

    #[test]
    fn a_path_is_as_good_as_a_key() {
        let (one, other) = (random_path().unwrap(), random_path().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 33);
    }
}
