//! The tool `compare`, which is offered with `--allow-run` only: profiles a stable release and its
//! canary at the same time, as `kubectl phpprof verdict --canary` does, for the verdict on them.
//!
//! Invariant: both requests are created before either is waited for, and together profile no more
//! pods than the server's limit. Where one side has no profile, the other does not go on.

use std::time::Instant;

use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace};
use super::ask::{ReleasesAsked, VerdictAsked};
use super::quote::quoted;
use super::run::{AgentRuns, PODS, state, stop};
use super::verdict::settings;
use crate::cli::CanaryArguments;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::request::{RequestView, ShownOutcome};
use crate::verdict::canary::{SECONDS, objects};

/// How a comparison's runs ended.
pub enum PairEnd {
    /// Both have a profile: what to ask of them.
    Recorded(VerdictAsked),
    /// There is no verdict yet, or none.
    Open(AgentAnswer),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PairBody {
    /// Of the comparison: in progress or failed.
    state: &'static str,
    before: PairSide,
    after: PairSide,
    note: &'static str,
    seconds_waited: u64,
}

#[derive(Serialize)]
struct PairSide {
    profile: String,
    state: &'static str,
    reason: String,
    message: String,
}

impl AgentRuns {
    /// Profiles both releases, and waits for the end for a while. If the call is cancelled, so are
    /// both requests.
    pub async fn compare(
        &self,
        cluster: &Cluster,
        place: &AgentPlace,
        asked: &ReleasesAsked,
        cancelled: &CancellationToken,
    ) -> Result<PairEnd, Failure> {
        // Wrong limits are told before anything is profiled.
        settings(asked.measure, &asked.limits)?;
        let objects = self.pair(asked)?;
        let (begin, wait) = (Instant::now(), asked.wait_seconds);
        let ended = self.finished(cluster, objects.into(), wait, cancelled);
        let ended = ended.await?;
        let [before, after] = ended.as_slice() else {
            return Err(Failure::new(
                Exit::Failed,
                "a comparison has two profiles",
                "report this as a fault of phpprof",
            ));
        };
        let sides = [before, after].map(|it: &DynamicObject| RequestView::of(it));
        let outcomes = sides.each_ref().map(RequestView::outcome);
        if outcomes == [ShownOutcome::Complete; 2] {
            let [before, after] = sides.map(|it| it.name());
            return Ok(PairEnd::Recorded(VerdictAsked {
                before,
                after,
                measure: asked.measure,
                limits: asked.limits.clone(),
                force: false,
            }));
        }
        if outcomes.contains(&ShownOutcome::Failed) {
            // One side alone decides nothing.
            let goes_on = |it: &&RequestView<'_>| it.outcome() == ShownOutcome::InProgress;
            let others = sides.iter().filter(goes_on).map(RequestView::name);
            stop(cluster, &others.collect::<Vec<_>>()).await;
        }
        let waited = begin.elapsed().as_secs();
        open(&sides, place, asked, waited).map(PairEnd::Open)
    }

    /// The requests of both, within the limits.
    fn pair(&self, asked: &ReleasesAsked) -> Result<[DynamicObject; 2], Failure> {
        let of_each = self.most_pods / 2;
        if of_each == 0 {
            return Err(Failure::new(
                Exit::Usage,
                "a comparison profiles two pods, and this server's limit is one",
                "a user can start the server with --max-pods 2",
            ));
        }
        let pods = asked.max_pods.unwrap_or(PODS.min(of_each));
        let duration = asked.duration_seconds.unwrap_or(SECONDS.min(self.longest));
        if !((1..=of_each).contains(&pods) && (1..=self.longest).contains(&duration)) {
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "{duration} seconds of {pods} pods of each release are beyond this server's limits"
                ),
                format!(
                    "use 1 to {} seconds and 1 to {of_each} pods of each; a user can start the server with --max-duration and --max-pods",
                    self.longest
                ),
            ));
        }
        let how = CanaryArguments {
            canary: None,
            duration: Some(duration),
            container: asked.container.clone(),
            samples_per_second: None,
            max_pods: Some(pods),
            timeout: None,
        };
        objects(&asked.before, &asked.after, &how)
    }
}

/// The answer without a verdict.
fn open(
    sides: &[RequestView<'_>; 2],
    place: &AgentPlace,
    asked: &ReleasesAsked,
    waited: u64,
) -> Result<AgentAnswer, Failure> {
    let is = |outcome| move |it: &&RequestView<'_>| it.outcome() == outcome;
    let (is_failed, goes_on) = (is(ShownOutcome::Failed), is(ShownOutcome::InProgress));
    let has_failed = sides.iter().any(|it| is_failed(&it));
    let mut next = AgentNexts::default();
    for one in sides.iter().filter(is_failed) {
        next.add(
            "describe_profile",
            "why, pod by pod",
            json!({"profile": one.name()}),
        );
    }
    if !has_failed {
        for one in sides.iter().rev().filter(goes_on).take(1) {
            let name = json!({"profile": one.name()});
            next.add("describe_profile", "ask again in some seconds", name);
        }
        let both = json!({
            "before": sides[0].name(), "after": sides[1].name(),
            "measure": asked.measure, "limits": asked.limits,
        });
        next.add("verdict", "once both profiles are complete", both);
        for one in sides.iter().filter(goes_on) {
            next.add("cancel", "to end it early", json!({"profile": one.name()}));
        }
    }
    let body = |_| {
        let [before, after] = sides.each_ref().map(side);
        PairBody {
            state: if has_failed { "failed" } else { "in progress" },
            before,
            after,
            note: if has_failed {
                "There is no verdict: one side has no profile, and the other has been ended."
            } else {
                "There is no verdict yet: ask for it once both profiles are complete."
            },
            seconds_waited: waited,
        }
    };
    AgentAnswer::fitted(place, 0, body, &next)
}

fn side(request: &RequestView<'_>) -> PairSide {
    PairSide {
        profile: request.name(),
        state: state(request),
        reason: quoted(request.reason()),
        message: quoted(request.message()),
    }
}
