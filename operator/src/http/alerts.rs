//! `POST /alerts/NAMESPACE` for Alertmanager: its webhook fires the triggers of that namespace.
//!
//! Invariant: without the token of the namespace, no payload is read, nothing is read of the
//! cluster, and nothing is started.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use futures::future::BoxFuture;
use phpprof_crds::{TriggerReason, chain};
use serde::Serialize;
use tokio::sync::Semaphore;
use tower::util::MapResponseLayer;

use crate::http::answers::{json, refuse};
use crate::http::connections::Connection;
use crate::http::shares::Shares;
use crate::http::tokens::{NamespaceTokens, presented};
use crate::metrics::Metrics;

/// Payloads for one namespace that are handled or wait. So a namespace leaves connections to
/// others.
const SHARE: usize = 4;
/// Payloads in memory. The others wait before their bodies are read.
const AT_ONCE: usize = 2;
const WAIT_FOR_ROOM: Duration = Duration::from_secs(5);
/// The largest payload: a thousand alerts of a kilobyte.
const LARGEST_PAYLOAD: usize = 1 << 20;
const PAYLOAD_TAKES: Duration = Duration::from_secs(10);
/// The memory that a label takes once it is parsed: its entry in a tree, and two strings.
const PARSED_LABEL: usize = 160;
/// The shortest label in JSON, with its comma.
const SHORTEST_LABEL: usize = 8;
/// The most bytes of payloads in memory.
pub(crate) const PAYLOADS: usize = AT_ONCE * LARGEST_PAYLOAD;
/// The most bytes of a parsed one. Who parses it needs a permit of the collector's desk.
pub(crate) const PARSED: usize = LARGEST_PAYLOAD / SHORTEST_LABEL * PARSED_LABEL;

const OFF: &str = "alerts are off; the administrator turns them on with alerts.tokensSecret in the chart's values";
const NO_TOKEN: &str = "this needs the token of the namespace, as Authorization: Bearer TOKEN (http_config.authorization of the receiver); \
    it stands in the Secret that alerts.tokensSecret names in the chart's values, under the namespace's name";
const BUSY: &str = "too many payloads at once; try again";
const AWAY: &str = "the API server did not answer the operator; try again";

/// Why a payload is not handled.
#[derive(Debug, thiserror::Error)]
pub enum NotHandled {
    /// It is no payload; this says why.
    #[error("{0}")]
    Payload(String),
    /// The operator may not read triggers there, or the cluster has no such kind.
    #[error("there are no triggers in this namespace that the operator may read")]
    NoTriggers,
    /// The API server did not answer.
    #[error("the API server did not answer the operator")]
    Away(#[source] kube::Error),
    /// It took too long.
    #[error("handling the alerts took too long")]
    Late,
}

/// Handles a payload for a namespace.
pub type FireTriggers = Box<
    dyn Fn(String, Bytes) -> BoxFuture<'static, Result<FiredTriggers, NotHandled>> + Send + Sync,
>;

/// What is needed to answer.
pub struct Alerts {
    /// Without tokens, alerts are off.
    pub tokens: Option<NamespaceTokens>,
    /// Fires the triggers.
    pub fire: FireTriggers,
    /// Counts the answers.
    pub metrics: Metrics,
}

/// What has come of a payload, as JSON. Alertmanager ignores it; people who try the address read
/// it.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FiredTriggers {
    /// Alerts that fire.
    pub firing: usize,
    /// Alerts that do not any more. They start nothing.
    pub resolved: usize,
    /// Alerts that were not looked at.
    pub left_out: u64,
    /// Whether the namespace has triggers that were not looked at.
    pub triggers_left_out: bool,
    /// Those that an alert has the labels of.
    pub triggers: Vec<FiredTrigger>,
    /// Whether something is to be tried again.
    #[serde(skip)]
    pub is_incomplete: bool,
}

/// What a trigger did.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FiredTrigger {
    /// Its name.
    pub trigger: String,
    /// Firing alerts with its labels.
    pub alerts: usize,
    /// The requests that they have started.
    pub created: Vec<String>,
    /// Alerts whose request existed.
    pub repeated: usize,
    /// As in its status.
    pub reason: TriggerReason,
    /// The same in words.
    pub message: String,
}

struct AlertPort {
    alerts: Alerts,
    shares: Arc<Shares>,
    room: Semaphore,
}

impl Alerts {
    /// The route of the alerts.
    pub(crate) fn router(self) -> Router {
        let metrics = self.metrics.clone();
        let count = MapResponseLayer::new(move |answer: Response| {
            metrics.alerted(answer.status().as_u16());
            answer
        });
        let port = Arc::new(AlertPort {
            alerts: self,
            shares: Shares::new(SHARE),
            room: Semaphore::new(AT_ONCE),
        });
        Router::new()
            .route("/alerts/{namespace}", post(receive))
            .with_state(port)
            .layer(count)
    }
}

async fn receive(
    State(port): State<Arc<AlertPort>>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let Some(tokens) = &port.alerts.tokens else {
        return refuse(StatusCode::NOT_FOUND, OFF);
    };
    let presented = presented(request.headers());
    if !tokens.opens(&namespace, presented).await {
        let mut response = refuse(StatusCode::UNAUTHORIZED, NO_TOKEN);
        let scheme = HeaderValue::from_static("Bearer");
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, scheme);
        return response;
    }
    // From here on, the asker may learn what there is.
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.know();
    }
    let busy = || later(refuse(StatusCode::SERVICE_UNAVAILABLE, BUSY));
    let Some(_own) = port.shares.take(namespace.clone()) else {
        return busy();
    };
    // The semaphore is never closed.
    let Ok(_room) = tokio::time::timeout(WAIT_FOR_ROOM, port.room.acquire()).await else {
        return busy();
    };
    match payload(request.into_body()).await {
        Ok(payload) => answer((port.alerts.fire)(namespace, payload).await),
        Err(refused) => refused,
    }
}

/// Alertmanager tries again at once only after a status of 5xx; after others, 429 among them, when
/// `group_interval` is over (prometheus/alertmanager issue 2121).
fn later(mut response: Response) -> Response {
    let seconds = HeaderValue::from_static("10");
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

fn answer(handled: Result<FiredTriggers, NotHandled>) -> Response {
    match handled {
        Ok(fired) => {
            let mut response = json(&fired);
            if fired.is_incomplete {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response = later(response);
            }
            response
        }
        Err(NotHandled::Payload(why)) => refuse(StatusCode::BAD_REQUEST, &why),
        Err(NotHandled::NoTriggers) => {
            let why = format!(
                "{}; see rbac.namespaces in the chart's values",
                NotHandled::NoTriggers
            );
            refuse(StatusCode::NOT_FOUND, &why)
        }
        Err(error @ (NotHandled::Away(_) | NotHandled::Late)) => {
            tracing::warn!(error = %chain(&error), "alerts could not be handled");
            later(refuse(StatusCode::SERVICE_UNAVAILABLE, AWAY))
        }
    }
}

async fn payload(body: Body) -> Result<Bytes, Response> {
    let bytes = axum::body::to_bytes(body, LARGEST_PAYLOAD);
    match tokio::time::timeout(PAYLOAD_TAKES, bytes).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!(
                "the payload broke off, or has more than {} KiB; set max_alerts of the receiver, for instance to 100",
                LARGEST_PAYLOAD >> 10
            ),
        )),
        Err(_) => Err(refuse(
            StatusCode::REQUEST_TIMEOUT,
            "the payload took too long",
        )),
    }
}

#[cfg(test)]
mod tests;
