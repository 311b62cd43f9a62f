//! The relay: samplers that do not reach the store upload their profile here, with a grant, and ask
//! here whether to stop.
//!
//! It handles one request at a time and trusts nothing in it. `grants` checks the sender, and `tls`
//! does the TLS.
//!
//! Invariant: it answers 200 only once the store has exactly these bytes. Everything is bounded
//! before it is read.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::http::connections::Connection;
use crate::http::grants::{self, LIVE, OBJECT, Presented, RefusedResponse, STOP, refuse};
use crate::http::heard::Heard;
use crate::http::keyring::Keyring;
use crate::http::live::{self, Brought, Live};
use crate::http::runs::{self, RUNS, Runs};
use crate::http::shares::{KeyShare, Shares};
use crate::http::source::VerifySource;
use crate::lease::Role;
use crate::sampler::cancellation::{Cancellations, Stop};
use crate::sampler::offer::ResidentPod;
use crate::storage::store::{Created, ProfileStore};

/// The limit of every upload.
const LARGEST: usize = 32 << 20;
/// Bytes of uploads that are in memory at the same time, in units of a KiB.
pub(crate) const ROOM: u32 = 34 << 10;
pub(crate) const UNIT: usize = 1 << 10;
const WAIT_FOR_ROOM: Duration = Duration::from_secs(10);
const BODY_TAKES: Duration = Duration::from_secs(20);
/// Requests that one grant may have at the same time: one that asks whether to stop, one upload,
/// and another of each in case a connection broke.
const SHARE: usize = 4;
/// Bodies of one pod that are in memory at the same time. Others of the pod wait, so a pod with
/// many grants does not fill the room.
const BODIES: usize = 1;
/// How often a body that waits for another one of its pod looks whether its turn has come.
const TURN: Duration = Duration::from_millis(50);
/// A long poll ends after this time, and the sampler polls again. It is shorter than the timeouts
/// of proxies.
const POLL: Duration = Duration::from_secs(25);

/// How often the relay checks whether the request of a polling sampler is over or gone.
const LOOK: Duration = Duration::from_secs(3);

/// How often the relay checks whether uploads are under way.
const DRAIN: Duration = Duration::from_millis(50);

/// Whether the request of a key is over, or certainly gone, even if this operator has not seen its
/// deletion.
pub type Gone = Box<dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync>;

/// The parts of the relay.
pub struct RelayParts {
    /// Checks grants.
    pub keyring: Keyring,
    /// Where uploads go.
    pub store: ProfileStore,
    /// The answers to samplers that ask whether to stop.
    pub cancellations: Arc<Cancellations>,
    /// Grants expire by this clock. Tests have their own.
    pub clock: fn() -> Timestamp,
    /// What to do with an upload from another address.
    pub verify_source: VerifySource,
    /// Holds the seconds of live requests.
    pub live: Arc<Live>,
    /// When samplers have called.
    pub heard: Arc<Heard>,
    gone: Gone,
    runs: Runs,
    room: Semaphore,
    shares: Arc<Shares>,
    /// The bodies of each pod.
    bodies: Arc<Shares>,
}

/// A body, and what it takes from others for as long as it is held.
struct Taken<'a> {
    bytes: Bytes,
    _room: Option<SemaphorePermit<'a>>,
    _turn: Option<KeyShare>,
}

impl RelayParts {
    /// A relay with the default for other addresses, and live seconds of its own.
    pub fn new(
        keyring: Keyring,
        store: ProfileStore,
        cancellations: Arc<Cancellations>,
        gone: Gone,
        runs: Runs,
    ) -> Self {
        RelayParts {
            keyring,
            store,
            cancellations,
            clock: Timestamp::now,
            verify_source: VerifySource::default(),
            live: Arc::new(Live::new(
                Arc::new(Role::new(true)),
                Arc::new(Semaphore::new(1)),
            )),
            heard: Arc::default(),
            gone,
            runs,
            room: Semaphore::new(ROOM as usize),
            shares: Shares::new(SHARE),
            bodies: Shares::new(BODIES),
        }
    }

    /// Counts one more request of a key, unless the key has all of its share.
    fn share(&self, key: String) -> Result<KeyShare, RefusedResponse> {
        match self.shares.take(key) {
            Some(share) => Ok(share),
            None => refuse(
                StatusCode::TOO_MANY_REQUESTS,
                "the grant has too many requests at once; try again",
            ),
        }
    }

    /// The turn of one more body of a pod, once the pod has no other.
    async fn turn(&self, pod_uid: &str) -> Result<KeyShare, RefusedResponse> {
        let free = async {
            loop {
                match self.bodies.take(pod_uid.to_owned()) {
                    Some(turn) => return turn,
                    None => tokio::time::sleep(TURN).await,
                }
            }
        };
        match tokio::time::timeout(WAIT_FOR_ROOM, free).await {
            Ok(turn) => Ok(turn),
            Err(_) => refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "another upload of this pod is under way; try again",
            ),
        }
    }

    /// The paths of the contract (`contract/README.md`).
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route(OBJECT, put(upload))
            .route(STOP, get(stop))
            .route(LIVE, put(bring))
            .route(RUNS, get(offer))
            .with_state(self)
    }

    /// Waits until no upload is under way.
    pub async fn drained(&self) {
        // It does not acquire all of the room, because that would block uploads that are still
        // arriving.
        while self.room.available_permits() < ROOM as usize {
            tokio::time::sleep(DRAIN).await;
        }
    }

    /// Whether uploads for this key are not wanted any more.
    async fn is_dropped(&self, key: &str) -> bool {
        self.cancellations.get(key) == Some(Stop::Drop) || (self.gone)(key.to_owned()).await
    }

    /// Refuses what is not wanted any more.
    async fn wants(&self, key: &str) -> Result<(), RefusedResponse> {
        if self.is_dropped(key).await {
            return refuse(StatusCode::FORBIDDEN, "the request is over or was deleted");
        }
        Ok(())
    }

    /// The answer to the sampler of a key, as soon as there is one.
    async fn word(&self, key: &str) -> Stop {
        loop {
            match tokio::time::timeout(LOOK, self.cancellations.wait(key)).await {
                Ok(stop) => return stop,
                Err(_) if self.is_dropped(key).await => return Stop::Drop,
                Err(_) => {}
            }
        }
    }
}

/// The request, as its grant is checked.
fn presented<'a>(relay: &RelayParts, request: &'a Request) -> Presented<'a> {
    let connection = request.extensions().get::<Connection>();
    Presented {
        uri: request.uri(),
        headers: request.headers(),
        peer: connection.map(|connection| connection.peer),
        verify: relay.verify_source,
        now: (relay.clock)(),
    }
}

/// Marks the connection of a request whose grant was checked.
fn know(request: &Request) {
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.know();
    }
}

/// The share of the request's key, and the grant's pod, after the grant was checked.
fn granted(relay: &RelayParts, request: &Request) -> Result<(KeyShare, String), RefusedResponse> {
    let grant = grants::granted(&relay.keyring, &presented(relay, request))?;
    know(request);
    relay.heard.hear(&grant.pod_uid, (relay.clock)());
    Ok((relay.share(grant.key)?, grant.pod_uid))
}

async fn upload(State(relay): State<Arc<RelayParts>>, request: Request) -> Response {
    match try_upload(&relay, request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn try_upload(relay: &RelayParts, request: Request) -> Result<(), RefusedResponse> {
    let (share, pod_uid) = granted(relay, &request)?;
    let key = &share.key;
    relay.wants(key).await?;
    let taken = taken(relay, request, &pod_uid, LARGEST).await?;
    // The request may have ended while the body arrived.
    relay.wants(key).await?;
    let bytes = &taken.bytes;
    let away = |error| {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            // Short, because a receipt has little room for the cause.
            format!("store: {error}\n"),
        )
    };
    match relay.store.create(key, bytes.clone()).await.map_err(away)? {
        Created::Now => Ok(()),
        Created::Before => {
            // The answer to an earlier upload may have been lost, or the key has another object.
            if relay.store.holds(key, bytes).await.map_err(away)? {
                Ok(())
            } else {
                refuse(StatusCode::CONFLICT, "the key already holds other bytes")
            }
        }
    }
}

/// The body of a request of this pod, as its headers describe it.
async fn taken<'a>(
    relay: &'a RelayParts,
    request: Request,
    pod_uid: &str,
    largest: usize,
) -> Result<Taken<'a>, RefusedResponse> {
    let size = length(request.headers(), largest)?;
    let digest = digest(request.headers())?;
    let body = body(relay, request.into_body(), pod_uid, size);
    let Ok(taken) = tokio::time::timeout(BODY_TAKES, body).await else {
        return refuse(StatusCode::REQUEST_TIMEOUT, "the body took too long");
    };
    let taken = taken?;
    if aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &taken.bytes).as_ref() != digest {
        return refuse(
            StatusCode::BAD_REQUEST,
            "the body does not match its content-digest",
        );
    }
    Ok(taken)
}

/// Takes the samples of one second of a live request.
async fn bring(State(relay): State<Arc<RelayParts>>, request: Request) -> Response {
    match try_bring(&relay, request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn try_bring(relay: &RelayParts, request: Request) -> Result<(), RefusedResponse> {
    let (share, pod_uid) = granted(relay, &request)?;
    relay.wants(&share.key).await?;
    if !relay.live.is_here() {
        return refuse(
            StatusCode::MISDIRECTED_REQUEST,
            "another replica of the operator is the leader; try again with a new connection",
        );
    }
    let taken = taken(relay, request, &pod_uid, live::LARGEST).await?;
    if let Err(why) = relay.live.check(taken.bytes.clone()).await {
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, &why);
    }
    match relay.live.bring(&share.key, taken.bytes, (relay.clock)()) {
        Brought::Taken => Ok(()),
        Brought::NobodyLooks => refuse(StatusCode::GONE, "nobody reads the live profile any more"),
        Brought::Full => refuse(
            StatusCode::INSUFFICIENT_STORAGE,
            "too many live profiles at once",
        ),
    }
}

fn length(headers: &HeaderMap, largest: usize) -> Result<usize, RefusedResponse> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match length {
        None => refuse(StatusCode::LENGTH_REQUIRED, "content-length is missing"),
        Some(size) if size > largest => refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("a profile has at most {} KiB here", largest >> 10),
        ),
        Some(size) => Ok(size),
    }
}

/// The SHA-256 from RFC 9530's header.
fn digest(headers: &HeaderMap) -> Result<Vec<u8>, RefusedResponse> {
    let value = headers
        .get("content-digest")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("sha-256=:")?.strip_suffix(':'))
        .and_then(|value| STANDARD.decode(value).ok());
    match value {
        Some(digest) => Ok(digest),
        None => refuse(
            StatusCode::BAD_REQUEST,
            "content-digest with the body's sha-256 is missing",
        ),
    }
}

/// The body. Its pod's turn and its room are acquired as bytes arrive, so that a client that sends
/// nothing holds neither.
async fn body<'a>(
    relay: &'a RelayParts,
    body: Body,
    pod_uid: &str,
    size: usize,
) -> Result<Taken<'a>, RefusedResponse> {
    let wrong = || {
        refuse(
            StatusCode::BAD_REQUEST,
            "the body does not match its content-length",
        )
    };
    // The buffer grows with the bytes that arrive, because a client may send less than the length
    // says.
    let (mut bytes, mut turn, mut room) = (Vec::new(), None, None::<SemaphorePermit<'_>>);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else { return wrong() };
        if bytes.len() + chunk.len() > size {
            return wrong();
        }
        if turn.is_none() {
            turn = Some(relay.turn(pod_uid).await?);
        }
        let held = room.as_ref().map_or(0, SemaphorePermit::num_permits);
        let units = (bytes.len() + chunk.len())
            .div_ceil(UNIT)
            .saturating_sub(held);
        let more = relay
            .room
            .acquire_many(u32::try_from(units).unwrap_or(ROOM));
        let Ok(Ok(more)) = tokio::time::timeout(WAIT_FOR_ROOM, more).await else {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many uploads at once; try again",
            );
        };
        match &mut room {
            Some(room) => room.merge(more),
            None => room = Some(more),
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.len() != size {
        return wrong();
    }
    Ok(Taken {
        bytes: bytes.into(),
        _room: room,
        _turn: turn,
    })
}

async fn stop(State(relay): State<Arc<RelayParts>>, request: Request) -> Response {
    let (share, pod_uid) = match granted(&relay, &request) {
        Ok(granted) => granted,
        Err(refused) => return refused.into_response(),
    };
    let word = tokio::time::timeout(POLL, relay.word(&share.key)).await;
    // The sampler was there all the time.
    relay.heard.hear(&pod_uid, (relay.clock)());
    match word {
        Ok(stop) => stop.word().into_response(),
        Err(_) => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn offer(State(relay): State<Arc<RelayParts>>, request: Request) -> Response {
    let (asker, _share) = match asking(&relay, &request) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    let (uri, headers) = (request.uri(), request.headers());
    match relay.runs.answer(asker, uri, headers).await {
        Ok(Some(answer)) => {
            // Serialising strings, numbers and lists cannot fail.
            let answer = serde_json::to_string(&answer).unwrap_or_default();
            ([(header::CONTENT_TYPE, "application/json")], answer).into_response()
        }
        Ok(None) => (StatusCode::GONE, "profiling was stopped here\n").into_response(),
        Err(why) => {
            let why = format!("the relay cannot answer now: {why}\n");
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

/// The resident sampler that asks, and its share.
fn asking(
    relay: &RelayParts,
    request: &Request,
) -> Result<(ResidentPod, KeyShare), RefusedResponse> {
    let asker = runs::asked(&relay.keyring, &presented(relay, request))?;
    know(request);
    relay.heard.hear(&asker.pod_uid, (relay.clock)());
    let (pod, name) = (&asker.pod_uid, &asker.ephemeral_container_name);
    let share = relay.share(format!("{pod}/{name}"))?;
    Ok((asker, share))
}

#[cfg(test)]
mod tests;
