//! The tool `requests`: the slowest HTTP requests that samplers saw.
//!
//! Invariant: no rates are derived from the list: sampling sees short requests in proportion to
//! their duration.

use phpprof_profile::timeline::{Timeline, TimelineRequest, decode};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths};
use super::ask::{RequestsAsked, most};
use super::quote::quoted;
use crate::failure::Failure;
use crate::requests::unreadable;

const ROWS: usize = 15;
const FOLLOWED: usize = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestsBody {
    note: &'static str,
    requests: Vec<RequestShown>,
    /// Seen, and not in this answer.
    left_out: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestShown {
    milliseconds: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_unfinished: bool,
    method: String,
    route: String,
    cpu_milliseconds: f64,
    waiting_milliseconds: f64,
    samples: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pod: String,
    pid: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    trace_id: String,
}

pub fn answer(
    bytes: &[u8],
    place: &AgentPlace,
    asked: &RequestsAsked,
) -> Result<AgentAnswer, Failure> {
    let list = decode(bytes).map_err(|error| unreadable(&quoted(&asked.profile), &error))?;
    let route = asked.route.as_deref();
    let is_wanted = |request: &&TimelineRequest| {
        route.is_none_or(|route| request.route == route || quoted(&request.route) == route)
    };
    let chosen: Vec<&TimelineRequest> = list.requests.iter().filter(is_wanted).collect();
    let count = most(asked.most, ROWS).min(chosen.len());
    let mut next = AgentNexts::default();
    // The list of a file does not say which file has its profile.
    if !place.local_files {
        let routes = chosen.iter().filter(|request| !request.route.is_empty());
        for request in routes.take(FOLLOWED) {
            let labels = json!({"route": quoted(&request.route)});
            let arguments = json!({"profile": asked.profile, "labels": labels});
            next.add("top", "the functions of this route", arguments);
        }
    }
    next.add("list_profiles", "other profiles", json!({}));
    let body = |count: usize| RequestsBody {
        note: "Sampling sees short requests in proportion to their duration: this is no rate.",
        requests: chosen.iter().take(count).map(|it| shown(it)).collect(),
        left_out: left_out(&list, chosen.len(), count),
    };
    AgentAnswer::fitted(place, count, body, &next)
}

fn left_out(list: &Timeline, chosen: usize, shown: usize) -> u64 {
    let left = chosen.saturating_sub(shown) as u64;
    left.saturating_add(list.unlisted_requests)
}

fn shown(request: &TimelineRequest) -> RequestShown {
    let milliseconds = |nanoseconds: i64| hundredths(nanoseconds as f64 / 1e6);
    let waiting = request
        .wall_nanoseconds
        .saturating_sub(request.cpu_nanoseconds);
    RequestShown {
        milliseconds: milliseconds(request.duration()),
        is_unfinished: request.is_unfinished,
        method: quoted(&request.method),
        route: quoted(&request.route),
        cpu_milliseconds: milliseconds(request.cpu_nanoseconds),
        waiting_milliseconds: milliseconds(waiting.max(0)),
        samples: request.samples,
        pod: quoted(&request.pod),
        pid: request.pid,
        trace_id: quoted(&request.trace_id),
    }
}
