//! `/verdict/NAMESPACE/NAME` for controllers of rollouts: the verdict of a ProfileComparison, as
//! JSON for Argo Rollouts' `web` metrics, and as a webhook of Flagger.
//!
//! GET reads. PUT starts the run of a template that the query names, unless it exists, and reads.
//! POST does the same, and answers 200 only if the rollout may go on. Nothing else can be reached:
//! not a function's name, not a profile, no other object.
//!
//! Invariant: without the token of the namespace, nothing is read of the cluster, and nothing is
//! started. A repeated question starts nothing again.

mod answer;
mod question;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use phpprof_crds::ProfileComparison;
use serde::Deserialize;
use tower::util::MapResponseLayer;

use crate::comparison::runs::{is_run_of, run_name, run_of};
use crate::http::answers::{json, refuse};
use crate::http::connections::Connection;
use crate::http::shares::Shares;
use crate::http::tokens::{NamespaceTokens, presented};
use crate::metrics::Metrics;

use answer::VerdictAnswer;
use question::{VerdictQuestion, run_of_payload};

/// Simultaneous questions about one namespace.
const SHARE: usize = 4;
/// Of all namespaces. This bounds what bodies take.
const AT_ONCE: usize = 16;
/// The largest payload. Flagger's has what the Canary's author wrote into `metadata`.
const LARGEST_PAYLOAD: usize = 16 << 10;
const PAYLOAD_TAKES: Duration = Duration::from_secs(10);
/// The most bytes of payloads in memory.
pub(crate) const PAYLOADS: usize = AT_ONCE * LARGEST_PAYLOAD;

const OFF: &str = "verdicts are off; the administrator turns them on with verdict.tokensSecret in the chart's values";
const NO_TOKEN: &str = "this needs the token of the namespace, as Authorization: Bearer TOKEN or as the password of the URL; \
    it stands in the Secret that verdict.tokensSecret names in the chart's values, under the namespace's name";
const AWAY: &str = "the API server did not answer the operator; try again";
const BUSY: &str = "too many questions about verdicts at once; try again";
const NO_RUN: &str =
    "this comparison is a template; add ?run=NAME, for instance the hash of the release's pods";

/// Fetches a comparison from the API server.
pub type FetchComparison = Box<
    dyn Fn(String, String) -> BoxFuture<'static, Result<Option<ProfileComparison>, kube::Error>>
        + Send
        + Sync,
>;
/// Creates the run of a template.
pub type StartRun = Box<
    dyn Fn(ProfileComparison) -> BoxFuture<'static, Result<ProfileComparison, NotStarted>>
        + Send
        + Sync,
>;

/// Why a run was not started.
#[derive(Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// The namespace has this many comparisons that are not over.
    TooMany(usize),
    /// A comparison has its name.
    Exists,
    /// The API server refused it, with these words.
    Refused(String),
    /// The API server did not answer.
    Away,
}

/// What is needed to answer.
pub struct Verdicts {
    /// Without tokens, verdicts are off.
    pub tokens: Option<NamespaceTokens>,
    /// Reads a comparison.
    pub fetch: FetchComparison,
    /// Starts one.
    pub start: StartRun,
    /// Counts the answers.
    pub metrics: Metrics,
}

struct VerdictPort {
    verdicts: Verdicts,
    shares: Arc<Shares>,
    all: Arc<Shares>,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VerdictMethod {
    /// The verdict.
    Read,
    /// The verdict of a run, which is started if there is none.
    Start,
    /// The same, as a yes or no.
    Gate,
}

/// Why there is no answer, as a status and a message.
struct VerdictRefusal {
    status: StatusCode,
    message: String,
}

fn refused<T>(status: StatusCode, message: impl Into<String>) -> Result<T, VerdictRefusal> {
    let message = message.into();
    Err(VerdictRefusal { status, message })
}

impl Verdicts {
    /// The routes of the verdicts.
    pub(crate) fn router(self) -> Router {
        let metrics = self.metrics.clone();
        let count = MapResponseLayer::new(move |answer: Response| {
            metrics.asked_for_verdict(answer.status().as_u16());
            answer
        });
        let port = Arc::new(VerdictPort {
            verdicts: self,
            shares: Shares::new(SHARE),
            all: Shares::new(AT_ONCE),
        });
        let methods = get(read).put(start).post(gate);
        Router::new()
            .route("/verdict/{namespace}/{name}", methods)
            .with_state(port)
            .layer(count)
    }
}

/// The comparison that an address names.
#[derive(Deserialize)]
struct ComparisonPlace {
    namespace: String,
    name: String,
}

async fn read(
    State(port): State<Arc<VerdictPort>>,
    Path(place): Path<ComparisonPlace>,
    request: Request,
) -> Response {
    respond(VerdictMethod::Read, &port, place, request).await
}

async fn start(
    State(port): State<Arc<VerdictPort>>,
    Path(place): Path<ComparisonPlace>,
    request: Request,
) -> Response {
    respond(VerdictMethod::Start, &port, place, request).await
}

async fn gate(
    State(port): State<Arc<VerdictPort>>,
    Path(place): Path<ComparisonPlace>,
    request: Request,
) -> Response {
    respond(VerdictMethod::Gate, &port, place, request).await
}

async fn respond(
    wanted: VerdictMethod,
    port: &VerdictPort,
    place: ComparisonPlace,
    request: Request,
) -> Response {
    let Some(tokens) = &port.verdicts.tokens else {
        return refuse(StatusCode::NOT_FOUND, OFF);
    };
    let presented = presented(request.headers());
    if !tokens.opens(&place.namespace, presented).await {
        let mut response = refuse(StatusCode::UNAUTHORIZED, NO_TOKEN);
        let scheme = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
        return response;
    }
    // From here on, the asker may learn what there is.
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.know();
    }
    let own = port.shares.take(place.namespace.clone());
    let (Some(_own), Some(_all)) = (own, port.all.take(String::new())) else {
        return later(BUSY);
    };
    match port.find(wanted, &place, request).await {
        Ok((status, answer)) => {
            let mut response = json(&answer);
            *response.status_mut() = status;
            response
        }
        Err(VerdictRefusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            message,
        }) => later(&message),
        Err(VerdictRefusal { status, message }) => refuse(status, &message),
    }
}

fn later(message: &str) -> Response {
    let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, message);
    let seconds = HeaderValue::from_static("10");
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

impl VerdictPort {
    async fn find(
        &self,
        wanted: VerdictMethod,
        place: &ComparisonPlace,
        request: Request,
    ) -> Result<(StatusCode, VerdictAnswer), VerdictRefusal> {
        let bad = |message| VerdictRefusal {
            status: StatusCode::BAD_REQUEST,
            message,
        };
        let ComparisonPlace { namespace, name } = place;
        let query = request.uri().query().unwrap_or_default();
        let mut question = VerdictQuestion::parse(query).map_err(bad)?;
        if wanted == VerdictMethod::Gate && question.run.is_none() {
            let payload = payload(request.into_body()).await?;
            question.payload_run = run_of_payload(&payload).map_err(bad)?;
        }
        let Some(named) = self.fetch(namespace, name).await? else {
            return refused(
                StatusCode::NOT_FOUND,
                format!(
                    "there is no ProfileComparison {name} in namespace {namespace}; see kubectl -n {namespace} get pcmp"
                ),
            );
        };
        let comparison = if named.spec.template {
            self.run(wanted, &named, question.any_run()).await?
        } else if question.run.is_some() {
            return refused(
                StatusCode::CONFLICT,
                format!("comparison {name} is not a template; leave out run"),
            );
        } else {
            named
        };
        let answer = VerdictAnswer::of(&comparison);
        let status = match wanted {
            VerdictMethod::Read | VerdictMethod::Start => StatusCode::OK,
            VerdictMethod::Gate => answer.gate(question.allowed),
        };
        Ok((status, answer))
    }

    async fn fetch(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ProfileComparison>, VerdictRefusal> {
        match (self.verdicts.fetch)(namespace.to_owned(), name.to_owned()).await {
            Ok(found) => Ok(found),
            // The operator was given no rights in that namespace, or the name is none.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404) => Ok(None),
            Err(error) => {
                tracing::warn!(%error, "a comparison could not be fetched for its verdict");
                refused(StatusCode::SERVICE_UNAVAILABLE, AWAY)
            }
        }
    }

    /// The run of a template, which is started if that is wanted.
    async fn run(
        &self,
        wanted: VerdictMethod,
        template: &ProfileComparison,
        run: Option<&str>,
    ) -> Result<ProfileComparison, VerdictRefusal> {
        let Some(run) = run else {
            return refused(StatusCode::BAD_REQUEST, NO_RUN);
        };
        let (namespace, of) = (
            template.namespace().unwrap_or_default(),
            template.name_any(),
        );
        let Some(name) = run_name(&of, run) else {
            let words = format!("the name {of}-{run} is too long; give the template a shorter one");
            return refused(StatusCode::BAD_REQUEST, words);
        };
        let mut found = self.fetch(&namespace, &name).await?;
        if found.is_none() && wanted == VerdictMethod::Read {
            return refused(
                StatusCode::NOT_FOUND,
                format!(
                    "template {of} has no run {run} yet; PUT or POST to this address starts it"
                ),
            );
        }
        if found.is_none() {
            found = self.start(template, &name).await?;
        }
        match found.filter(|it| is_run_of(it, template)) {
            Some(run) => Ok(run),
            None => refused(
                StatusCode::CONFLICT,
                format!(
                    "comparison {name} exists and is not a run of template {of}; delete it, or use another name in run"
                ),
            ),
        }
    }

    async fn start(
        &self,
        template: &ProfileComparison,
        name: &str,
    ) -> Result<Option<ProfileComparison>, VerdictRefusal> {
        let (namespace, of) = (
            template.namespace().unwrap_or_default(),
            template.name_any(),
        );
        if template.spec.cancel || template.metadata.deletion_timestamp.is_some() {
            let words = format!("template {of} was cancelled or is deleted; create another one");
            return refused(StatusCode::CONFLICT, words);
        }
        match (self.verdicts.start)(run_of(template, name)).await {
            Ok(started) => {
                tracing::info!(namespace, comparison = name, template = of, "started a run");
                Ok(Some(started))
            }
            // Somebody else was faster, or the run was deleted meanwhile.
            Err(NotStarted::Exists) => self.fetch(&namespace, name).await,
            Err(NotStarted::TooMany(most)) => refused(
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "namespace {namespace} has {most} comparisons that are not over; try again when one is, or cancel one"
                ),
            ),
            Err(NotStarted::Refused(why)) => refused(
                StatusCode::CONFLICT,
                format!("the API server refused comparison {name}: {why}"),
            ),
            Err(NotStarted::Away) => refused(StatusCode::SERVICE_UNAVAILABLE, AWAY),
        }
    }
}

async fn payload(body: Body) -> Result<Vec<u8>, VerdictRefusal> {
    let bytes = axum::body::to_bytes(body, LARGEST_PAYLOAD);
    match tokio::time::timeout(PAYLOAD_TAKES, bytes).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(_)) => refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the payload broke off, or has more than {} KiB; leave out metadata",
                LARGEST_PAYLOAD >> 10
            ),
        ),
        Err(_) => refused(StatusCode::REQUEST_TIMEOUT, "the payload took too long"),
    }
}

#[cfg(test)]
mod tests;
