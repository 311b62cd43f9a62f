//! The tools `run` and `cancel`, which are offered with `--allow-run` only. `compare` is the tool
//! that runs two at the same time.
//!
//! Invariant: one call runs at a time, within the limits of the command line and of the cluster,
//! with the user's rights; and only what this server has started is cancelled.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace};
use super::ask::ProfilingAsked;
use super::quote::quoted;
use crate::cancel;
use crate::cli::{Dump, LookArguments, McpFlags, RequestArguments, RunLabel};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::output::OutputFlag;
use crate::request::{RequestView, ShownOutcome};
use crate::run::{as_object, create};
use crate::target;

const DURATION: u64 = 30;
pub(super) const PODS: i32 = 5;
const WAIT: u64 = 45;
const LONGEST_WAIT: u64 = 300;
/// How many requests a call starts at most.
const AT_ONCE: usize = 2;
const POLL: Duration = Duration::from_secs(1);
/// How long a cancelled call tries to cancel its profile.
const PATIENCE: Duration = Duration::from_secs(10);

/// The limits of the command line, and what was started.
pub struct AgentRuns {
    pub(super) longest: u64,
    pub(super) most_pods: i32,
    /// The names of this server's requests, the newest last.
    started: Mutex<Vec<String>>,
    /// Held while a request is created.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunBody {
    state: &'static str,
    reason: String,
    message: String,
    seconds_waited: u64,
}

/// Whether a request has not ended yet. One that is gone has.
async fn goes_on(cluster: &Cluster, name: &str) -> Result<bool, Failure> {
    match cluster.request(name).await {
        Ok(object) => Ok(RequestView::of(&object).outcome() == ShownOutcome::InProgress),
        Err(failure) if failure.exit == Exit::NotFound => Ok(false),
        Err(failure) => Err(failure),
    }
}

impl AgentRuns {
    pub fn of(flags: &McpFlags) -> Self {
        AgentRuns {
            longest: flags.max_duration,
            most_pods: flags.max_pods,
            started: Mutex::new(Vec::new()),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Creates a request, and waits for its end for a while. If the call is cancelled, so is the
    /// request.
    pub async fn run(
        &self,
        cluster: &Cluster,
        place: &AgentPlace,
        asked: &ProfilingAsked,
        cancelled: &CancellationToken,
    ) -> Result<AgentAnswer, Failure> {
        let object = self.object(asked)?;
        let begin = Instant::now();
        let (wait, objects) = (asked.wait_seconds, vec![object]);
        let ended = self.finished(cluster, objects, wait, cancelled).await?;
        let Some(ended) = ended.first() else {
            return Err(nothing_created());
        };
        let place = place.of_profile(&RequestView::of(ended).name());
        answer(ended, &place, asked, begin.elapsed().as_secs())
    }

    /// Creates these requests, at most [`AT_ONCE`], and waits for their end for a while. As they
    /// are then, in their order. If the call is cancelled, so are they.
    pub(super) async fn finished(
        &self,
        cluster: &Cluster,
        objects: Vec<DynamicObject>,
        wait: Option<u64>,
        cancelled: &CancellationToken,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let names = self.begin(cluster, objects, cancelled).await?;
        let wait = Duration::from_secs(wait.unwrap_or(WAIT).min(LONGEST_WAIT));
        tokio::select! {
            ended = until_ended(cluster, &names, wait) => ended,
            () = cancelled.cancelled() => {
                stop(cluster, &names).await;
                Err(Failure::new(
                    Exit::Interrupted,
                    format!("the call was cancelled, and with it {}", names.join(" and ")),
                    "the samples so far are kept",
                ))
            }
        }
    }

    /// Cancels a request of this server.
    pub async fn cancel(
        &self,
        cluster: &Cluster,
        place: &AgentPlace,
        name: &str,
    ) -> Result<AgentAnswer, Failure> {
        if !self.started().iter().any(|started| started == name) {
            return Err(Failure::new(
                Exit::Usage,
                "this server has not started this profile",
                "a user can cancel it with kubectl phpprof cancel NAME",
            ));
        }
        cancel::one(cluster, name, None).await?;
        let mut next = AgentNexts::default();
        let arguments = json!({"profile": name});
        next.add("describe_profile", "its samples so far are kept", arguments);
        let body = |_| json!({"state": "cancelled"});
        AgentAnswer::fitted(&place.of_profile(name), 0, body, &next)
    }

    fn started(&self) -> Vec<String> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.clone()
    }

    /// Creates the requests, unless those before go on. Returns their names. If one is refused,
    /// none goes on.
    async fn begin(
        &self,
        cluster: &Cluster,
        objects: Vec<DynamicObject>,
        cancelled: &CancellationToken,
    ) -> Result<Vec<String>, Failure> {
        let _turn = self.turn.lock().await;
        if cancelled.is_cancelled() {
            return Err(Failure::new(
                Exit::Interrupted,
                "the call was cancelled before it took a profile",
                "ask again",
            ));
        }
        for last in self.started().iter().rev().take(AT_ONCE) {
            if goes_on(cluster, last).await? {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("{last} has not ended yet, and only one profile runs at a time"),
                    "ask describe_profile for it, or end it with cancel",
                ));
            }
        }
        let mut names = Vec::new();
        for object in objects.into_iter().take(AT_ONCE) {
            match create(cluster, object, false).await {
                Ok(created) => names.push(RequestView::of(&created).name()),
                Err(failure) => {
                    stop(cluster, &names).await;
                    return Err(failure);
                }
            }
        }
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.extend(names.iter().cloned());
        Ok(names)
    }

    fn object(&self, asked: &ProfilingAsked) -> Result<DynamicObject, Failure> {
        let pods = asked.max_pods.unwrap_or(PODS.min(self.most_pods));
        let duration = asked.duration_seconds.unwrap_or(DURATION.min(self.longest));
        let is_within =
            (1..=self.most_pods).contains(&pods) && (1..=self.longest).contains(&duration);
        if !is_within {
            return Err(Failure::new(
                Exit::Usage,
                format!("{duration} seconds of {pods} pods are beyond this server's limits"),
                format!(
                    "use 1 to {} seconds and 1 to {} pods; a user can start the server with --max-duration and --max-pods",
                    self.longest, self.most_pods
                ),
            ));
        }
        let request = if asked.snapshot {
            target::snapshot(&snapshot(asked, pods))?
        } else {
            target::request(&arguments(asked, pods, duration), None)?
        };
        as_object(serde_json::to_value(request), "the call")
    }
}

fn snapshot(asked: &ProfilingAsked, pods: i32) -> Dump {
    Dump {
        pods: LookArguments {
            target: Some(asked.target.clone()),
            selector: None,
            container: asked.container.clone(),
            max_pods: pods,
            run_as_user: None,
            run_as_group: None,
        },
        memory: false,
        fibers: false,
        output: OutputFlag::default(),
        timeout: 0,
    }
}

fn arguments(asked: &ProfilingAsked, pods: i32, duration: u64) -> RequestArguments {
    RequestArguments {
        container: asked.container.clone(),
        duration,
        max_pods: pods,
        heap: asked.heap,
        fibers: asked.fibers && !asked.snapshot,
        labels: vec![RunLabel::Method, RunLabel::Route, RunLabel::Script],
        ..RequestArguments::of_target(&asked.target)
    }
}

/// The requests when all have ended, when one has no profile, or when they were waited for long
/// enough.
async fn until_ended(
    cluster: &Cluster,
    names: &[String],
    wait: Duration,
) -> Result<Vec<DynamicObject>, Failure> {
    let begin = Instant::now();
    loop {
        let mut objects = Vec::new();
        for name in names {
            objects.push(cluster.request(name).await?);
        }
        let outcomes = objects.iter().map(|it| RequestView::of(it).outcome());
        let outcomes: Vec<ShownOutcome> = outcomes.collect();
        let goes_on = outcomes.contains(&ShownOutcome::InProgress)
            && !outcomes.contains(&ShownOutcome::Failed);
        if !goes_on || begin.elapsed() >= wait {
            return Ok(objects);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Cancels requests of a call that ends early.
pub(super) async fn stop(cluster: &Cluster, names: &[String]) {
    for name in names {
        let stopped = tokio::time::timeout(PATIENCE, cancel::one(cluster, name, None));
        if !matches!(stopped.await, Ok(Ok(_))) {
            eprintln!("{name} goes on: it could not be cancelled");
        }
    }
}

fn nothing_created() -> Failure {
    Failure::new(
        Exit::Failed,
        "no profile was asked for",
        "report this as a fault of phpprof",
    )
}

/// In one word or two.
pub(super) fn state(request: &RequestView<'_>) -> &'static str {
    match request.outcome() {
        ShownOutcome::InProgress => "in progress",
        ShownOutcome::Complete => "complete",
        ShownOutcome::Failed => "failed",
    }
}

fn answer(
    object: &DynamicObject,
    place: &AgentPlace,
    asked: &ProfilingAsked,
    waited: u64,
) -> Result<AgentAnswer, Failure> {
    let request = RequestView::of(object);
    let name = json!({"profile": request.name()});
    let mut next = AgentNexts::default();
    match request.outcome() {
        ShownOutcome::Complete if asked.snapshot => {
            next.add("dump", "where each worker stood", name);
        }
        ShownOutcome::Complete => {
            next.add(
                "describe_profile",
                "whether the profile is good enough",
                name.clone(),
            );
            next.add("findings", "known problems, with what to do", name);
        }
        ShownOutcome::InProgress => {
            next.add(
                "describe_profile",
                "ask again in some seconds",
                name.clone(),
            );
            next.add("cancel", "to end it early", name);
        }
        ShownOutcome::Failed => next.add("describe_profile", "why, pod by pod", name),
    }
    let body = |_| RunBody {
        state: state(&request),
        reason: quoted(request.reason()),
        message: quoted(request.message()),
        seconds_waited: waited,
    };
    AgentAnswer::fitted(place, 0, body, &next)
}
