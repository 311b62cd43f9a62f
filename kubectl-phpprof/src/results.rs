//! Results of a request, through the API server's proxy to the operator's service, or by a
//! port-forward ([`reach`]): `contract/README.md`, "Reading a result".
//!
//! It needs no credential of the store, and sends the user's credentials only to the API server.
//!
//! Invariant: an answer above its bound is refused while it is read, and a path from the operator
//! stays below its service.

use http::Method;
use http_body_util::{BodyExt, Limited};
use phpprof_crds::chain;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod exchange;
mod forward;
mod live;
mod reach;

pub use exchange::OperatorResponse as Response;
pub use live::{LiveSecond, live};
pub use reach::{Reach, call, reach};

use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::request::RequestView as View;
use crate::suggest::Suggest;

/// The name of the port in the operator's Service.
const PORT: &str = "results";
const MAX_LINKS: usize = 1 << 20;
const MAX_LIST: usize = 8 << 20;
pub const MAX_RESULT: usize = 64 << 20;

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
    pub links: Vec<OperatorLink>,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OperatorLink {
    /// `profile`, `manifest`, `flame`, `requests`, or `pod/<pod>/<container>`.
    pub name: String,
    /// The path below the operator's service. It contains a token that expires after five minutes.
    pub path: String,
}

/// The file of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPart<'a> {
    /// The merged profile.
    Profile,
    /// The profile of one pod.
    Pod(&'a str),
    /// The list of HTTP requests.
    Requests,
}

impl<'a> ResultPart<'a> {
    /// The profile of one pod, or of all pods.
    pub fn of_pod(pod: Option<&'a str>) -> Self {
        pod.map_or(Self::Profile, Self::Pod)
    }

    fn missing(self, name: &str, suggest: &Suggest) -> (String, String) {
        let pods = || {
            format!(
                "see which pods have one: {}, or the manifest in the store",
                suggest.phpprof(&format!("describe {name}"))
            )
        };
        match self {
            Self::Profile => (format!("{name} has no merged profile"), pods()),
            Self::Pod(pod) => (format!("{name} has no profile of pod {pod}"), pods()),
            Self::Requests => (
                format!("{name} has no list of requests"),
                format!(
                    "take one with the label Route: {}",
                    suggest.phpprof("run TYPE/NAME --labels method,route")
                ),
            ),
        }
    }
}

impl Links {
    /// The link to a file.
    pub fn find(&self, part: ResultPart<'_>) -> Option<&OperatorLink> {
        let wanted = |link: &&OperatorLink| match part {
            ResultPart::Profile => link.name == "profile",
            ResultPart::Requests => link.name == "requests",
            ResultPart::Pod(pod) => link
                .name
                .strip_prefix("pod/")
                .is_some_and(|rest| rest == pod || rest.starts_with(&format!("{pod}/"))),
        };
        self.links.iter().find(wanted)
    }
}

/// The path of a question below the operator's service, and its key.
#[derive(Clone)]
pub struct AccessKey {
    pub path: String,
    pub key: String,
}

/// Without the key.
impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a key of {}", self.path)
    }
}

/// A file of a request from the store.
pub async fn fetch(
    cluster: &Cluster,
    request: &View<'_>,
    part: ResultPart<'_>,
) -> Result<Vec<u8>, Failure> {
    let name = request.name();
    let access_key = match request.words("/status/profile/accessKey") {
        "" => return Err(no_key(request, &cluster.suggest)),
        key => AccessKey {
            path: format!("/r/{}/{name}", request.namespace()),
            key: key.to_owned(),
        },
    };
    download(cluster, &access_key, &name, part).await
}

/// A request's file that a key opens. `name` is for messages.
pub async fn download(
    cluster: &Cluster,
    access_key: &AccessKey,
    name: &str,
    part: ResultPart<'_>,
) -> Result<Vec<u8>, Failure> {
    let links: Links = post(cluster, access_key, MAX_LINKS).await?;
    let link = links.find(part).ok_or_else(|| {
        let (message, hint) = part.missing(name, &cluster.suggest);
        Failure::new(Exit::NotFound, message, hint)
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

/// The operator's list of a namespace.
pub async fn ask_archive(cluster: &Cluster, access_key: &AccessKey) -> Result<Value, Failure> {
    post(cluster, access_key, MAX_LIST).await
}

async fn post<T: DeserializeOwned>(
    cluster: &Cluster,
    access_key: &AccessKey,
    limit: usize,
) -> Result<T, Failure> {
    let key = Key {
        access_key: &access_key.key,
    };
    // Serialising a string cannot fail.
    let body = serde_json::to_vec(&key).unwrap_or_default();
    let path = safe(&access_key.path)?;
    let answer = ask(cluster, Method::POST, &path, body, limit).await?;
    serde_json::from_slice(&answer).map_err(|error| not_understood(&cluster.suggest, &error))
}

fn not_understood(suggest: &Suggest, error: &serde_json::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("the operator's answer cannot be parsed: {error}"),
        same_version(suggest),
    )
}

fn same_version(suggest: &Suggest) -> String {
    let command = suggest.phpprof("version");
    format!("use a plugin of the operator's version: {command}")
}

/// Why there is no key.
fn no_key(request: &View<'_>, suggest: &Suggest) -> Failure {
    let name = request.name();
    match (request.words("/status/profile/url"), request.outcome()) {
        ("", crate::request::ShownOutcome::InProgress) => Failure::new(
            Exit::NotFound,
            format!("{name} has no profile yet"),
            format!(
                "wait for it: {}",
                suggest.kubectl(&format!("wait --for=condition=Complete pprof/{name}"))
            ),
        ),
        ("", _) => Failure::new(
            Exit::NoProfile,
            format!("{name} has no profile: {}", request.message()),
            format!("see why: {}", suggest.phpprof(&format!("describe {name}"))),
        ),
        (url, _) => Failure::new(
            Exit::Failed,
            format!("{name} has a profile, but its status has no key to read it with"),
            format!("read {url} with the store's own tools, or upgrade the operator"),
        ),
    }
}

/// Checks that a path cannot leave the service's part of the API server. Names in the operator's
/// paths need no `%`, which could hide dots and slashes.
pub fn safe(path: &str) -> Result<String, Failure> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.~=&?".contains(letter);
    let leaves = path.split(['/', '?']).any(|part| part == "..");
    if path.starts_with('/') && path.chars().all(plain) && !leaves {
        return Ok(path.to_owned());
    }
    Err(Failure::new(
        Exit::Failed,
        format!("the operator returned a path that leads elsewhere: {path:?}"),
        "check --operator-name and --operator-namespace: the program that answers there is not the operator",
    ))
}

/// An answer, and the question.
struct OperatorAnswer {
    action: String,
    code: u16,
    body: Vec<u8>,
}

impl OperatorAnswer {
    /// The body, unless the answer is a refusal.
    fn wanted(self, suggest: &Suggest) -> Result<Vec<u8>, Failure> {
        match self.code {
            200..=299 => Ok(self.body),
            code => Err(refused(suggest, &self.action, code, &self.body)),
        }
    }
}

async fn ask(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: Vec<u8>,
    limit: usize,
) -> Result<Vec<u8>, Failure> {
    send(cluster, method, path, body, limit)
        .await?
        .wanted(&cluster.suggest)
}

async fn send(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: Vec<u8>,
    limit: usize,
) -> Result<OperatorAnswer, Failure> {
    let action = action(cluster, &method);
    let response = call(cluster, method, path, body).await?;
    let code = response.status().as_u16();
    let body = read(response, limit).await?;
    Ok(OperatorAnswer { action, code, body })
}

/// The right that the call needs.
fn action(cluster: &Cluster, method: &Method) -> String {
    let verb = match *method {
        Method::POST => "create",
        _ => "get",
    };
    format!(
        "{verb} services/proxy of {}:{PORT} in namespace {}",
        cluster.operator_name, cluster.operator_namespace
    )
}

async fn read(response: Response, limit: usize) -> Result<Vec<u8>, Failure> {
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

/// The failure from a refusal of the API server or, through it, of the operator.
fn refused(suggest: &Suggest, action: &str, code: u16, body: &[u8]) -> Failure {
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
            "profiles are deleted after profileRetentionSeconds; take a new one with kubectl phpprof run",
        ),
        (500.., _) => Failure::new(
            Exit::Unreachable,
            format!("the operator does not answer: {words}"),
            "try again; if this persists, ask the operator's administrator: 503 means that the store is unreachable",
        ),
        _ => Failure::new(
            Exit::Failed,
            format!("cannot {action}: {code} {words}"),
            same_version(suggest),
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
        assert!(
            links
                .find(ResultPart::Profile)
                .unwrap()
                .path
                .ends_with("merged.pb.gz")
        );
        assert!(
            links
                .find(ResultPart::Pod("web-1"))
                .unwrap()
                .path
                .contains("web-1.fpm")
        );
        assert!(links.find(ResultPart::Pod("web")).is_none());
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
            "/l/.%2e/x",
            "/l/%2e./x",
            "/l/..%2f../x",
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
        let suggest = Suggest::default();
        let failure = refused(&suggest, "get services/proxy", 403, api);
        assert_eq!(failure.exit, Exit::Forbidden);
        assert!(failure.hint.contains("get services/proxy"));
        assert!(
            refused(&suggest, "x", 403, b"expired")
                .message
                .contains("refused the key")
        );
        assert_eq!(refused(&suggest, "x", 404, b"gone").exit, Exit::NotFound);
        assert_eq!(refused(&suggest, "x", 503, b"").exit, Exit::Unreachable);
    }
}
