//! Results of a request, through the API server's proxy to the operator's service: `contract/README.md`, "Reading a result".
//!
//! It needs no credential of the store, and sends the user's own to the API server alone.
//!
//! Invariant: an answer over its bound is refused while it is read, and a path that the operator names stays below its service.

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connect::Cluster;
use crate::failure::{Exit, Failure, chain};
use crate::request::Request as View;

/// The name of the port in the operator's Service.
const PORT: &str = "results";
const MAX_LINKS: usize = 1 << 20;
const MAX_LIST: usize = 8 << 20;
const MAX_RESULT: usize = 64 << 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Key<'a> {
    access_key: &'a str,
}

/// The operator's answer to a key.
#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Links {
    pub expires_at: String,
    pub links: Vec<Link>,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// `profile`, `manifest`, `flame`, or `pod/<pod>/<container>`.
    pub name: String,
    /// Below the operator's service, with a token that ends after five minutes.
    pub path: String,
}

impl Links {
    /// The merged profile, or that of one pod.
    pub fn find(&self, pod: Option<&str>) -> Option<&Link> {
        let wanted = |link: &&Link| match pod {
            None => link.name == "profile",
            Some(pod) => link
                .name
                .strip_prefix("pod/")
                .is_some_and(|rest| rest == pod || rest.starts_with(&format!("{pod}/"))),
        };
        self.links.iter().find(wanted)
    }
}

/// Where the operator is asked, below its service, and with what key.
#[derive(Clone, Debug)]
pub struct Opener {
    pub path: String,
    pub key: String,
}

/// The profile of a request as it lies in the store.
pub async fn fetch(
    cluster: &Cluster,
    request: &View<'_>,
    pod: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let name = request.name();
    let opener = match request.words("/status/profile/accessKey") {
        "" => return Err(no_key(request)),
        key => Opener {
            path: format!("/r/{}/{name}", request.namespace()),
            key: key.to_owned(),
        },
    };
    download(cluster, &opener, &name, pod).await
}

/// What a key opens of a request, called by this name.
pub async fn download(
    cluster: &Cluster,
    opener: &Opener,
    name: &str,
    pod: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let links: Links = post(cluster, opener, MAX_LINKS).await?;
    let link = links.find(pod).ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            match pod {
                Some(pod) => format!("{name} has no profile of pod {pod}"),
                None => format!("{name} has no merged profile"),
            },
            format!("see which pods have one: kubectl phpprof describe {name}, or the manifest in the store"),
        )
    })?;
    ask(
        cluster,
        Method::GET,
        &safe(&link.path)?,
        Vec::new(),
        MAX_RESULT,
    )
    .await
}

/// What the operator lists of a namespace.
pub async fn ask_archive(cluster: &Cluster, opener: &Opener) -> Result<Value, Failure> {
    post(cluster, opener, MAX_LIST).await
}

async fn post<T: DeserializeOwned>(
    cluster: &Cluster,
    opener: &Opener,
    limit: usize,
) -> Result<T, Failure> {
    let key = Key {
        access_key: &opener.key,
    };
    // A string always serialises.
    let body = serde_json::to_vec(&key).unwrap_or_default();
    let path = safe(&opener.path)?;
    let answer = ask(cluster, Method::POST, &path, body, limit).await?;
    serde_json::from_slice(&answer).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("the operator's answer is not understood: {error}"),
            "use a plugin of the operator's version: kubectl phpprof version",
        )
    })
}

/// Why there is nothing to ask with.
fn no_key(request: &View<'_>) -> Failure {
    let name = request.name();
    match (request.words("/status/profile/url"), request.outcome()) {
        ("", crate::request::Outcome::InProgress) => Failure::new(
            Exit::NotFound,
            format!("{name} has no profile yet"),
            format!("wait for it: kubectl wait --for=condition=Complete pprof/{name}"),
        ),
        ("", _) => Failure::new(
            Exit::NoProfile,
            format!("{name} has no profile: {}", request.message()),
            format!("see why: kubectl phpprof describe {name}"),
        ),
        (url, _) => Failure::new(
            Exit::Failed,
            format!("{name} has a profile, but its status has no key to read it with"),
            format!("read {url} with the store's own tools, or upgrade the operator"),
        ),
    }
}

/// A path that cannot leave the service's part of the API server.
fn safe(path: &str) -> Result<String, Failure> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.~%=&?".contains(letter);
    let leaves = path
        .split(['/', '?'])
        .any(|part| part == ".." || part.eq_ignore_ascii_case("%2e%2e"));
    if path.starts_with('/') && path.chars().all(plain) && !leaves {
        return Ok(path.to_owned());
    }
    Err(Failure::new(
        Exit::Failed,
        format!("the operator named a path that leads elsewhere: {path:?}"),
        "look at what answers as the operator's service",
    ))
}

fn proxy(cluster: &Cluster) -> String {
    format!(
        "/api/v1/namespaces/{}/services/{}:{PORT}/proxy",
        cluster.operator_namespace, cluster.operator_name
    )
}

async fn ask(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: Vec<u8>,
    limit: usize,
) -> Result<Vec<u8>, Failure> {
    let action = format!(
        "{} services/proxy of {}:{PORT} in namespace {}",
        if method == Method::POST {
            "create"
        } else {
            "get"
        },
        cluster.operator_name,
        cluster.operator_namespace
    );
    let request = Request::builder()
        .method(method)
        .uri(proxy(cluster) + path)
        .header("content-type", "application/json")
        .body(Body::from(body))
        .map_err(|error| {
            Failure::new(
                Exit::Failed,
                error.to_string(),
                "look at --operator-name and --operator-namespace",
            )
        })?;
    let response = cluster
        .client
        .send(request)
        .await
        .map_err(|error| Failure::of_api(&action, &error))?;
    let status = response.status();
    let bytes = read(response, limit).await?;
    if status.is_success() {
        return Ok(bytes);
    }
    Err(refused(&action, status.as_u16(), &bytes))
}

async fn read(response: Response<Body>, limit: usize) -> Result<Vec<u8>, Failure> {
    match Limited::new(response.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) => Err(Failure::new(
            Exit::Unreachable,
            format!(
                "the answer broke off or is over {} MiB: {}",
                limit >> 20,
                chain(error.as_ref())
            ),
            "try again; a profile is at most 32 MiB",
        )),
    }
}

/// What the API server or, through it, the operator refused.
fn refused(action: &str, code: u16, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let status: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let of_api_server = status["kind"] == "Status";
    let words = status["message"].as_str().unwrap_or(text.trim());
    let words: String = words.chars().take(500).collect();
    match (code, of_api_server) {
        (401 | 403, true) => Failure::new(
            Exit::Forbidden,
            format!("cannot {action}: {words}"),
            format!(
                "ask for the right to {action}; the chart's role for readers of results has it"
            ),
        ),
        (404, true) => Failure::new(
            Exit::NotFound,
            format!("cannot {action}: {words}"),
            "name the operator's Service with --operator-namespace and --operator-name",
        ),
        (403, false) => Failure::new(
            Exit::Forbidden,
            format!("the operator refused the key of this profile: {words}"),
            "try again: links end after five minutes, and the key changes with the request",
        ),
        (404 | 410, false) => Failure::new(
            Exit::NotFound,
            format!("the operator has no such result any more: {words}"),
            "profiles go when profileRetentionSeconds are over; take a new one with kubectl phpprof run",
        ),
        (500.., _) => Failure::new(
            Exit::Unreachable,
            format!("the operator does not answer: {words}"),
            "kubectl get pods of the operator's namespace says how it is; 503 means that the store is away",
        ),
        _ => Failure::new(
            Exit::Failed,
            format!("cannot {action}: {code} {words}"),
            "use a plugin of the operator's version: kubectl phpprof version",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_are_those_of_the_contract() {
        let golden = include_str!("../../contract/results.json");
        let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
        let key = serde_json::to_value(Key {
            access_key: "q1w2e3r4t5y6u7i8o9p0aA",
        })
        .unwrap();
        assert_eq!(golden["request"], key);
        let links: Links = serde_json::from_value(golden["answer"].clone()).unwrap();
        assert!(links.find(None).unwrap().path.ends_with("merged.pb.gz"));
        assert!(
            links
                .find(Some("web-1"))
                .unwrap()
                .path
                .contains("web-1.fpm")
        );
        assert!(links.find(Some("web")).is_none());
        for link in &links.links {
            assert_eq!(safe(&link.path).unwrap(), link.path);
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in [
            "x",
            "/l/../../secrets",
            "/l/%2E%2e/x",
            "/l/x?a b",
            "//evil\r\nhost",
            "/a#b",
        ] {
            assert!(safe(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_refusal_says_whose_it_is() {
        let api =
            br#"{"kind":"Status","message":"services \"phpprof-operator:results\" is forbidden"}"#;
        let failure = refused("get services/proxy", 403, api);
        assert_eq!(failure.exit, Exit::Forbidden);
        assert!(failure.hint.contains("get services/proxy"));
        assert!(
            refused("x", 403, b"expired")
                .message
                .contains("refused the key")
        );
        assert_eq!(refused("x", 404, b"gone").exit, Exit::NotFound);
        assert_eq!(refused("x", 503, b"").exit, Exit::Unreachable);
    }
}
