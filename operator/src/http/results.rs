//! Results over HTTP: the files of a request and the flame graph of a profile, by links that live for five minutes.
//!
//! Who holds the access key of a request's status gets its links, who holds that of a namespace's archive those of all that is stored there
//! (`archive.rs`); who holds a link gets its one object. No credential of a cluster or a store is
//! asked for or sent. TLS is the Ingress's, the port-forward's or the API server's.
//!
//! Invariant: nothing is read from the store for a link that this operator did not sign, or whose time is over.

mod answers;
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
use phpprof_profile::{LARGEST_TIMELINE, start};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use answers::{busy, held, html, json, private, refuse, sized};
use archive::Before;

use crate::decide::checkpoints::lists_requests;
use crate::decide::limits::later;
use crate::http::connections::{self, Connection, plain};
use crate::http::keyring::Keyring;
use crate::http::live::Live;
use crate::http::shares::Shares;
use crate::metrics::PortMetrics;
use crate::sampler::object_keys::{MANIFEST, MERGED, REQUESTS, below, folder};
use crate::storage::archive::Archive;
use crate::storage::store::{Store, StoreError};

const LINK_LIVES: SignedDuration = SignedDuration::from_mins(5);
/// A page is drawn of profiles up to this size, and with names of so many bytes, and sent up to this length; larger ones can be downloaded.
pub(crate) const LARGEST_DRAWN: usize = 16 << 20;
pub(crate) const NAMES_DRAWN: usize = 24 << 20;
pub(crate) const LARGEST_PAGE: usize = 48 << 20;
/// A list of requests that this operator has merged: its values, and their JSON before it is in the page.
pub(crate) const LIST_DRAWN: usize = (24 << 20) + LARGEST_TIMELINE;
/// How long whoever asked may take to fetch a page, while others wait for theirs: the largest needs 1.6 MiB a second.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// An access key and the JSON around it.
const LONGEST_QUESTION: usize = 1 << 10;
/// Seconds of live requests in one answer, in bytes, and answers with such that are under way together.
pub(crate) const LARGEST_LIVE: usize = 512 << 10;
pub(crate) const LIVE_AT_ONCE: usize = 4;
/// Longer than the largest profile takes on a slow line.
pub(crate) const BOUNDS: connections::Bounds =
    connections::Bounds::new(256, Duration::from_secs(15 * 60));
/// Requests of one profile's folder at the same time, and as many that list a namespace: whoever holds one link leaves connections, and turns to
/// have a page drawn, to others.
const SHARE: usize = 8;
const PAGES_OF_A_FOLDER: usize = 2;
const FLAME: &str = "flame.html";
/// The file that a comparison is called by, around the folder of the request that it compares with.
const COMPARISON: (&str, &str) = ("diff-from-", ".html");

const NEW_LINK: &str = "the link has expired, or was changed; get a new one with the request's accessKey: open the link in its status again \
    (kubectl get profilerequest NAME -o jsonpath='{.status.links}'), or kubectl phpprof flame NAME";
const NEW_KEY: &str = "this accessKey does not open this request; it stands in the request's status: \
    kubectl get profilerequest NAME -o jsonpath='{.status.profile.accessKey}'";

const AWAY: &str = "the API server did not answer the operator; try again";

/// Finds a request by namespace and name; it may lack its targets.
pub type Find = Box<dyn Fn(&str, &str) -> Option<ProfileRequest> + Send + Sync>;
/// Fetches all of a request, for who has shown its access key.
pub type Fetch = Box<
    dyn Fn(String, String) -> BoxFuture<'static, Result<Option<ProfileRequest>, kube::Error>>
        + Send
        + Sync,
>;

/// Finds the archive of a namespace.
pub type FindArchive = Box<dyn Fn(&str) -> Option<ProfileArchive> + Send + Sync>;

/// What results are served from.
pub struct Results {
    pub keyring: Keyring,
    pub store: Store,
    pub archive: Arc<Archive>,
    pub find: Find,
    pub fetch: Fetch,
    pub find_archive: FindArchive,
    pub clock: fn() -> Timestamp,
    /// Where profiles are opened, a few at a time; uploads are, too.
    pub desk: Arc<Semaphore>,
    /// One page is drawn or on its way at a time: that bounds the memory.
    pub pages: Arc<Semaphore>,
    /// By folder of the store, of all files and of pages.
    pub shares: Arc<Shares>,
    pub page_shares: Arc<Shares>,
    pub live: Arc<Live>,
    pub live_turns: Arc<Semaphore>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    access_key: String,
    /// The newest live second that whoever asks has.
    #[serde(default)]
    after: i64,
    /// What is stored of this request of the namespace is to be compared, too.
    before: Option<Before>,
}

/// As in contract/results.json.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    expires_at: Timestamp,
    links: Vec<Link>,
}

#[derive(Serialize)]
struct Link {
    name: String,
    path: String,
}

/// A file of a request, and what its link is called.
struct File {
    link: String,
    name: String,
}

/// The files that there are: of the merged profile, the list of requests, and for each of the pods, container and key.
fn files<'a>(
    (is_merged, has_requests): (bool, bool),
    pods: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> Vec<File> {
    let file = |link: &str, name: &str| File {
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
    /// So many requests of each folder at once, and so many of these for its page.
    pub(crate) fn shares() -> (Arc<Shares>, Arc<Shares>) {
        (Shares::new(SHARE), Shares::new(PAGES_OF_A_FOLDER))
    }

    /// For answers with live seconds, of all requests.
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
    fn answer(&self, folder: &str, files: Vec<File>) -> Response {
        let expires_at = later((self.clock)(), LINK_LIVES);
        let expires = expires_at.as_second();
        let link = |File {
                        link: name,
                        name: file,
                    }| {
            let path = format!("{folder}/{file}");
            let signature = self
                .keyring
                .link(&below(self.store.prefix(), &path), expires);
            let path = format!("/l/{expires}.{signature}/{path}");
            Link { name, path }
        };
        let links = files.into_iter().map(link).collect();
        json(&Answer { expires_at, links })
    }

    /// The key that a link is for, if it is one of ours and its time is not over.
    fn linked(&self, Place { token, path }: &Place) -> Option<String> {
        let (expires, signature) = token.split_once('.')?;
        let expires: i64 = expires.parse().ok()?;
        let key = below(self.store.prefix(), path);
        let signed = self.keyring.is_link(&key, expires, signature);
        let alive = (self.clock)().as_second() <= expires;
        (signed && alive).then_some(key)
    }
}

/// What a link's path says.
#[derive(Deserialize)]
struct Place {
    token: String,
    /// Below the store's prefix.
    path: String,
}

/// Serves until the process ends.
pub async fn serve(
    address: SocketAddr,
    results: Results,
    metrics: PortMetrics,
) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let router = results.router();
    match connections::serve(listener, plain(), BOUNDS, router, metrics).await {}
}

/// The page behind a status's link: it posts the key, which stands in the fragment, and goes on to the flame graph.
async fn opener() -> Response {
    const PAGE: &str = include_str!("opener.html");
    const POLICY: &str = "default-src 'none'; script-src 'sha256-2ohK6ZLBP9Xh8O3t8P+7YOrooFaS15BUK2t3DcDFie4='; connect-src 'self'; \
        style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    html(PAGE.into(), POLICY)
}

/// The page that lists what is stored of a namespace. It is no secret: its script asks for the list with the key.
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
    // A request that is not there is refused as a wrong key is: nobody learns of names.
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
    let has = (is_merged, is_merged && lists_requests(&request));
    results.answer(&folder(&request), files(has, pods))
}

async fn question(body: Body) -> Option<Question> {
    let bytes = axum::body::to_bytes(body, LONGEST_QUESTION).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn no_question() -> Response {
    refuse(StatusCode::BAD_REQUEST, "post {\"accessKey\": \"…\"}")
}

async fn object(
    State(results): State<Arc<Results>>,
    Path(place): Path<Place>,
    connection: Option<Extension<Connection>>,
) -> Response {
    let Some(key) = results.linked(&place) else {
        return refuse(StatusCode::FORBIDDEN, NEW_LINK);
    };
    if let Some(Extension(connection)) = connection {
        connection.is_known();
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

/// The folder of the request that this file of a folder is a comparison with; both are of one namespace.
fn compared_with(folder: &str, file: &str) -> Option<String> {
    let (begin, end) = COMPARISON;
    let before = file.strip_prefix(begin)?.strip_suffix(end)?;
    let (namespace, _) = folder.rsplit_once('/')?;
    Some(format!("{namespace}/{before}"))
}

/// What the store refused.
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
    let kind = match key.ends_with(".json") {
        true => "application/json",
        false => "application/octet-stream",
    };
    Ok(sized(private(Body::from_stream(stream), kind), size))
}

#[cfg(test)]
mod tests;
