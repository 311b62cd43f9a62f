//! Results over HTTP: the files of a request and the flame graph of a profile, by links that are
//! valid for five minutes.
//!
//! The access key of a request's status gives links to the request's files. The access key of a
//! namespace's archive gives links to all that is stored of the namespace (`archive.rs`). A link
//! opens one object. No credential of a cluster or a store is asked for or sent. The Ingress, the
//! port-forward or the API server does the TLS.
//!
//! Invariant: nothing is read from the store for a link that this operator did not sign or that has
//! expired.

mod archive;
mod drawn;
mod live;
mod pages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use phpprof_crds::{ProfileArchive, ProfileRequest, TargetState, TargetStatus};
use phpprof_decide::limits::later;
use phpprof_profile::{LARGEST_TIMELINE, start};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use archive::Before;

use crate::http::alerts::Alerts;
use crate::http::answers::{busy, held, html, json, private, refuse, sized};
use crate::http::connections::{self, Connection, plain};
use crate::http::keyring::Keyring;
use crate::http::listen::listen;
use crate::http::live::Live;
use crate::http::shares::Shares;
use crate::http::verdict::Verdicts;
use crate::lifecycle::checkpoints::lists_requests;
use crate::metrics::PortMetrics;
use crate::sampler::object_keys::{MANIFEST, MERGED, REQUESTS, below, folder};
use crate::storage::archive::Archive;
use crate::storage::store::{ProfileStore, StoreError};

const LINK_LIVES: SignedDuration = SignedDuration::from_mins(5);
/// The operator draws pages of profiles up to this size, and with up to this many bytes of names,
/// and sends pages up to this length. Larger profiles can be downloaded.
pub(crate) const LARGEST_DRAWN: usize = 16 << 20;
pub(crate) const NAMES_DRAWN: usize = 24 << 20;
pub(crate) const LARGEST_PAGE: usize = 48 << 20;
/// The size of a list of requests that this operator has merged: its values, and their JSON before
/// it is in the page.
pub(crate) const LIST_DRAWN: usize = (24 << 20) + LARGEST_TIMELINE;
/// How long a client may take to fetch a page while others wait for theirs. The largest page needs
/// 1.6 MiB a second.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// An access key and the JSON around it.
const LONGEST_QUESTION: usize = 1 << 10;
/// Bytes of live seconds in one answer, and the most such answers that are under way at the same
/// time.
pub(crate) const LARGEST_LIVE: usize = 512 << 10;
pub(crate) const LIVE_AT_ONCE: usize = 4;
/// The lifetime is longer than the largest profile takes over a slow connection. Browsers send the
/// cookies of an Ingress's host, too.
pub(crate) const BOUNDS: connections::Bounds =
    connections::Bounds::new(256, Duration::from_secs(15 * 60), 16 << 10);
/// The most simultaneous requests for one profile's folder or one namespace's list, and the most
/// simultaneous pages of a folder. So the holder of one link leaves connections and pages to
/// others.
const SHARE: usize = 8;
const PAGES_OF_A_FOLDER: usize = 2;
const FLAME: &str = "flame.html";
/// The beginning and the end of a comparison's file name. Between them is the folder of the other
/// request.
const COMPARISON: (&str, &str) = ("diff-from-", ".html");

const NEW_LINK: &str = "the link has expired, or was changed; get a new one with the request's accessKey: open the link in its status again \
    (kubectl get profilerequest NAME -o jsonpath='{.status.links}'), or kubectl phpprof flame NAME";
const NEW_KEY: &str = "this accessKey does not open this request; it stands in the request's status: \
    kubectl get profilerequest NAME -o jsonpath='{.status.profile.accessKey}'";

const AWAY: &str = "the API server did not answer the operator; try again";

/// Finds a request by namespace and name. The request may lack its targets.
pub type Find = Box<dyn Fn(&str, &str) -> Option<ProfileRequest> + Send + Sync>;
/// Fetches the whole request, for a client that has shown its access key.
pub type Fetch = Box<
    dyn Fn(String, String) -> BoxFuture<'static, Result<Option<ProfileRequest>, kube::Error>>
        + Send
        + Sync,
>;

/// Finds the archive of a namespace.
pub type FindArchive = Box<dyn Fn(&str) -> Option<ProfileArchive> + Send + Sync>;

/// What is needed to serve results.
pub struct Results {
    pub keyring: Keyring,
    pub store: ProfileStore,
    pub archive: Arc<Archive>,
    pub find: Find,
    pub fetch: Fetch,
    pub find_archive: FindArchive,
    pub clock: fn() -> Timestamp,
    /// Limits how many profiles are opened at a time, together with uploads.
    pub desk: Arc<Semaphore>,
    /// Only one page is drawn or sent at a time. This bounds the memory.
    pub pages: Arc<Semaphore>,
    /// The requests of each folder in the store: for all files, and for pages.
    pub shares: Arc<Shares>,
    pub page_shares: Arc<Shares>,
    pub live: Arc<Live>,
    pub live_turns: Arc<Semaphore>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyQuestion {
    access_key: String,
    /// The number of the newest live second that the client has.
    #[serde(default)]
    after: i64,
    /// Another request of the namespace, to compare this one with.
    before: Option<Before>,
}

/// The format of contract/results.json.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultLinks {
    expires_at: Timestamp,
    links: Vec<ResultLink>,
}

#[derive(Serialize)]
struct ResultLink {
    name: String,
    path: String,
}

/// A file of a request, and the name of its link.
struct LinkedFile {
    link: String,
    name: String,
}

/// The files that exist: those of the merged profile, the list of requests, and container and key
/// for each of the pods.
fn files<'a>(
    is_merged: bool,
    has_requests: bool,
    pods: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> Vec<LinkedFile> {
    let file = |link: &str, name: &str| LinkedFile {
        link: link.to_owned(),
        name: name.to_owned(),
    };
    let mut files = Vec::new();
    if is_merged {
        files.extend([file("profile", MERGED), file("flame", FLAME)]);
    }
    files.extend(has_requests.then(|| file("requests", REQUESTS)));
    files.push(file("manifest", MANIFEST));
    files.extend(pods.map(|(pod, container, key)| {
        let name = key.rsplit('/').next().unwrap_or_default();
        file(&format!("pod/{pod}/{container}"), name)
    }));
    files
}

impl Results {
    /// Limits on simultaneous requests of each folder: for all files, and for its pages.
    pub(crate) fn shares() -> (Arc<Shares>, Arc<Shares>) {
        (Shares::new(SHARE), Shares::new(PAGES_OF_A_FOLDER))
    }

    /// Limits the answers with live seconds of all requests.
    pub(crate) fn live_turns() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(LIVE_AT_ONCE))
    }

    pub fn router(self) -> Router {
        Router::new()
            .route("/r/{namespace}/{name}", get(opener).post(open))
            .route("/r/{namespace}/{name}/live", post(live::read))
            .route("/a/{namespace}", get(start_page).post(archive::list))
            .route("/a/{namespace}/{name}/{uid}", post(archive::open))
            .route("/l/{token}/{*path}", get(object))
            .with_state(Arc::new(self))
    }

    /// Links to files of a folder.
    fn answer(&self, folder: &str, files: Vec<LinkedFile>) -> Response {
        let expires_at = later((self.clock)(), LINK_LIVES);
        let expires = expires_at.as_second();
        let link = |LinkedFile {
                        link: name,
                        name: file,
                    }| {
            let path = format!("{folder}/{file}");
            let signature = self
                .keyring
                .link(&below(self.store.prefix(), &path), expires);
            let path = format!("/l/{expires}.{signature}/{path}");
            ResultLink { name, path }
        };
        let links = files.into_iter().map(link).collect();
        json(&ResultLinks { expires_at, links })
    }

    /// The key that a link is for, if the operator signed it and it has not expired.
    fn linked(&self, LinkPlace { token, path }: &LinkPlace) -> Option<String> {
        let (expires, signature) = token.split_once('.')?;
        let expires: i64 = expires.parse().ok()?;
        let key = below(self.store.prefix(), path);
        let signed = self.keyring.is_link(&key, expires, signature);
        let alive = (self.clock)().as_second() <= expires;
        (signed && alive).then_some(key)
    }
}

/// The parts of a link's path.
#[derive(Deserialize)]
struct LinkPlace {
    token: String,
    /// Below the store's prefix.
    path: String,
}

/// Serves results and verdicts, and receives alerts, until the process ends.
pub async fn serve(
    address: SocketAddr,
    results: Results,
    verdicts: Verdicts,
    alerts: Alerts,
    metrics: PortMetrics,
) -> std::io::Result<()> {
    let listener = listen(address).await?;
    let router = results.router().merge(verdicts.router());
    let router = router.merge(alerts.router());
    match connections::serve(listener, plain(), BOUNDS, router, metrics).await {}
}

/// The page behind a status's link. It posts the key from the URL's fragment and then opens the
/// flame graph.
async fn opener() -> Response {
    const PAGE: &str = include_str!("opener.html");
    const POLICY: &str = "default-src 'none'; script-src 'sha256-2ohK6ZLBP9Xh8O3t8P+7YOrooFaS15BUK2t3DcDFie4='; connect-src 'self'; \
        style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    html(PAGE.into(), POLICY)
}

/// The page that lists what is stored of a namespace. It is not secret: its script needs the key to
/// get the list.
async fn start_page() -> Response {
    html(start::page().into(), start::CONTENT_SECURITY_POLICY)
}

async fn open(
    State(results): State<Arc<Results>>,
    Path((namespace, name)): Path<(String, String)>,
    body: Body,
) -> Response {
    let Some(question) = question(body).await else {
        return no_question();
    };
    // A missing request gets the same answer as a wrong key, so nobody learns which names exist.
    let opens = |request: &ProfileRequest| {
        let uid = request.metadata.uid.as_deref().unwrap_or_default();
        results.keyring.is_access_key(uid, &question.access_key)
    };
    let Some(known) = (results.find)(&namespace, &name).filter(opens) else {
        return refuse(StatusCode::FORBIDDEN, NEW_KEY);
    };
    let Some(_share) = results.shares.take(folder(&known)) else {
        return busy();
    };
    let request = match (results.fetch)(namespace, name).await {
        Ok(request) => request.filter(opens),
        Err(error) => {
            tracing::warn!(%error, "a request could not be fetched for its results");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, AWAY);
        }
    };
    let Some(request) = request else {
        return refuse(StatusCode::FORBIDDEN, NEW_KEY);
    };
    let status = request.status.clone().unwrap_or_default();
    let uploaded = |target: &&TargetStatus| target.state == TargetState::Uploaded;
    let pods = status.targets.iter().filter(uploaded).map(|target| {
        let TargetStatus {
            pod_name,
            container_name,
            object_key,
            ..
        } = target;
        (&**pod_name, &**container_name, &**object_key)
    });
    let is_merged = status.profile.is_some();
    let has_requests = is_merged && lists_requests(&request);
    results.answer(&folder(&request), files(is_merged, has_requests, pods))
}

async fn question(body: Body) -> Option<KeyQuestion> {
    let bytes = axum::body::to_bytes(body, LONGEST_QUESTION).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn no_question() -> Response {
    refuse(StatusCode::BAD_REQUEST, "post {\"accessKey\": \"…\"}")
}

async fn object(
    State(results): State<Arc<Results>>,
    Path(place): Path<LinkPlace>,
    connection: Option<Extension<Connection>>,
) -> Response {
    let Some(key) = results.linked(&place) else {
        return refuse(StatusCode::FORBIDDEN, NEW_LINK);
    };
    if let Some(Extension(connection)) = connection {
        connection.know();
    }
    let (folder, file) = place.path.rsplit_once('/').unwrap_or_default();
    let Some(share) = results.shares.take(folder.to_owned()) else {
        return busy();
    };
    let before = compared_with(folder, file);
    let is_drawn = file == FLAME || before.is_some();
    let answer = match is_drawn.then(|| results.page_shares.take(folder.to_owned())) {
        None => whole(&results, &key).await,
        Some(None) => Ok(busy()),
        Some(Some(page)) => {
            let drawn = match before {
                Some(before) => pages::comparison(&results, &before, folder).await,
                None => pages::flame(&results, folder).await,
            };
            drawn.map(|it| held(it, page))
        }
    };
    held(answer.unwrap_or_else(away), share)
}

/// The folder of the other request, if this file is a comparison. Both requests are of one
/// namespace.
fn compared_with(folder: &str, file: &str) -> Option<String> {
    let (begin, end) = COMPARISON;
    let before = file.strip_prefix(begin)?.strip_suffix(end)?;
    let (namespace, _) = folder.rsplit_once('/')?;
    Some(format!("{namespace}/{before}"))
}

/// The answer to an error of the store.
fn away(error: StoreError) -> Response {
    match error {
        StoreError::Missing(_) => refuse(
            StatusCode::NOT_FOUND,
            "the profile is not in the store any more",
        ),
        error => refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn whole(results: &Results, key: &str) -> Result<Response, StoreError> {
    let (size, stream) = results.store.stream(key).await?;
    let kind = if key.ends_with(".json") {
        "application/json"
    } else {
        "application/octet-stream"
    };
    Ok(sized(private(Body::from_stream(stream), kind), size))
}

#[cfg(test)]
mod tests;
