//! The seconds of a live request, for clients with its access key.
//!
//! Pod and container come from the request's status. What a sampler says about itself is not used.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use phpprof_crds::TargetStatus;
use serde::Serialize;

use super::{LARGEST_LIVE, NEW_KEY, Results, drawn, no_question, question};
use crate::http::answers::{busy, private, refuse};

/// How long a client may take to fetch an answer, while others wait for their turn.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// The format of contract/live.json.
#[derive(Serialize)]
struct LiveSeconds<'a> {
    seconds: Vec<SentSecond<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SentSecond<'a> {
    number: i64,
    pod: &'a str,
    container: &'a str,
    /// A gzip-compressed pprof, in base64.
    profile: String,
}

pub(super) async fn read(
    State(results): State<Arc<Results>>,
    Path((namespace, name)): Path<(String, String)>,
    body: Body,
) -> Response {
    let Some(question) = question(body).await else {
        return no_question();
    };
    let request = (results.find)(&namespace, &name).filter(|request| {
        let uid = request.metadata.uid.as_deref().unwrap_or_default();
        results.keyring.is_access_key(uid, &question.access_key)
    });
    let Some(request) = request else {
        return refuse(StatusCode::FORBIDDEN, NEW_KEY);
    };
    if !results.live.is_here() {
        return refuse(
            StatusCode::MISDIRECTED_REQUEST,
            "another replica of the operator leads; try again",
        );
    }
    let Ok(turn) = results.live_turns.clone().try_acquire_owned() else {
        return busy();
    };
    let status = request.status.unwrap_or_default();
    let targets: Vec<&TargetStatus> = status.targets.iter().collect();
    let keys: Vec<&str> = targets.iter().map(|it| &*it.object_key).collect();
    let now = (results.clock)();
    let seconds = results
        .live
        .read(&keys, question.after, LARGEST_LIVE, now)
        .into_iter()
        .filter_map(|(place, second)| {
            let target = targets.get(place)?;
            Some(SentSecond {
                number: second.number,
                pod: &target.pod_name,
                container: &target.container_name,
                profile: STANDARD.encode(&second.profile),
            })
        });
    let answer = LiveSeconds {
        seconds: seconds.collect(),
    };
    // Serialising strings and numbers cannot fail.
    let answer = serde_json::to_string(&answer).unwrap_or_default();
    let body = drawn::body(answer, turn, TAKEN_WITHIN);
    private(body, "application/json")
}
