//! Judges each requirement of a profile by the observed state. It is pure. The operator's own
//! decisions come from `phpprof_decide`.
//!
//! Invariant: one check for each requirement, always in the same order; a failed check says what to
//! change.

mod arguments;
mod chosen;
mod release;
mod rights;

use std::collections::BTreeMap;

use jiff::Timestamp;
use phpprof_crds::{ProfileTarget, TargetReason};
use phpprof_decide::limits::AdminLimits;
use phpprof_decide::namespace::{self, by_label, is_disabled, is_enabled};
use phpprof_decide::pod::PodView;
use serde::Deserialize;

use crate::duration;
use crate::results::Reach;
use crate::suggest::Suggest;
pub use arguments::argument;
use arguments::{arguments, has_argument};
use chosen::{admission, budget, container, mode_of, names, pods};
pub use chosen::{first, nothing, sampler_mode};
pub use release::check_release;
use rights::right;
pub use rights::{HEAP, PATCH_PODS, PROFILE};

/// Rights to profile PHP.
pub const MAY_PROFILE: &str = "may profile";
/// Rights to see the results.
pub const MAY_LOOK: &str = "may look";

/// The answer of an authorization review; `None` if it could not be made.
pub type Allowed = Option<bool>;

/// The API server's answer to the sampler's container in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRunAnswer {
    Accepted,
    /// The reason that the operator would report for the pod.
    Refused(TargetReason, String),
    /// Why it was not tried, or why the answer says nothing about the container.
    NotTried(String),
}

/// Why no pods are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// There are none. Has the API server's message.
    Missing(String),
    /// This user may not see them; the operator may.
    Hidden(String),
}

/// The relevant parts of the operator's Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorFacts {
    pub ready: i32,
    pub image: String,
    pub arguments: Vec<String>,
}

/// What the operator wrote of its store (`operator/src/reconcile/store_watch.rs`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StoreFacts {
    /// `True` if the store keeps create-only writes, `False` if not.
    pub status: String,
    /// That in words.
    pub message: String,
    pub last_success_time: Option<Timestamp>,
    pub last_error_time: Option<Timestamp>,
    pub last_error: Option<String>,
}

/// A profile that is older than this many seconds is not evidence of what works now.
const RECENT: i64 = 86_400;

/// A request whose profile is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSample {
    pub name: String,
    /// How long ago it was created, in seconds.
    pub age: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedRelease {
    pub suggest: Suggest,
    pub namespace: String,
    pub target: String,
    /// Whether the cluster has the API phpprof.dev/v1alpha1.
    pub api: Allowed,
    /// Verb and resource, and whether this user has the right.
    pub rights: Vec<(&'static str, Allowed)>,
    /// The value of the namespace's opt-in label, and its Pod Security level; `None` if it cannot
    /// be read.
    pub namespace_labels: Option<(Option<String>, Option<String>)>,
    /// The error says why the Deployment is not known.
    pub operator: Result<OperatorFacts, String>,
    /// How the operator finds its store; the error says why it is not known.
    pub store: Result<StoreFacts, String>,
    /// A recent request of the namespace with a stored profile.
    pub last_stored: Option<StoredSample>,
    /// Whether a GET reaches the operator's results.
    pub reach: Reach,
    pub pods: Result<Vec<PodView>, Unseen>,
    /// The runtime class of each pod that names one, by the pod's uid.
    pub runtime_classes: BTreeMap<String, String>,
    /// The target of the profile.
    pub spec: ProfileTarget,
    pub dry_run: DryRunAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    Good,
    Bad,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub verdict: CheckVerdict,
    pub found: String,
    pub remedy: String,
}

pub fn check_all(observed: &ObservedRelease) -> Vec<Check> {
    let mut checks = vec![api(observed), operator(observed), namespace_check(observed)];
    checks.extend(
        observed
            .rights
            .iter()
            .map(|(right, allowed)| self::right(observed, right, *allowed)),
    );
    checks.extend([
        reached(observed),
        pods(observed),
        container(observed),
        mode_of(observed),
        admission(observed),
        budget(observed),
        names(observed),
        image(observed),
        store(observed),
    ]);
    checks
}

pub fn failed(checks: &[Check]) -> usize {
    count(checks, CheckVerdict::Bad)
}

pub fn count(checks: &[Check], verdict: CheckVerdict) -> usize {
    let found = checks.iter().filter(|check| check.verdict == verdict);
    found.count()
}

/// The combined result of all checks of this name; `None` if it is not known, or if there are none.
pub fn may(checks: &[Check], name: &str) -> Allowed {
    let mut of_name = checks.iter().filter(|check| check.name == name).peekable();
    of_name.peek()?;
    if of_name
        .clone()
        .any(|check| check.verdict == CheckVerdict::Bad)
    {
        Some(false)
    } else {
        of_name
            .all(|check| check.verdict == CheckVerdict::Good)
            .then_some(true)
    }
}

fn check(
    name: &'static str,
    verdict: CheckVerdict,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Check {
    Check {
        name,
        verdict,
        found: found.into(),
        remedy: remedy.into(),
    }
}

fn api(observed: &ObservedRelease) -> Check {
    match observed.api {
        Some(true) => check(
            "api",
            CheckVerdict::Good,
            "the cluster has phpprof.dev/v1alpha1",
            "",
        ),
        Some(false) => check(
            "api",
            CheckVerdict::Bad,
            "the cluster has no phpprof.dev/v1alpha1",
            "ask the cluster's administrator to install the chart phpprof",
        ),
        None => check(
            "api",
            CheckVerdict::Unknown,
            "listing the API groups failed",
            observed
                .suggest
                .of_cluster("api-resources --api-group=phpprof.dev"),
        ),
    }
}

fn operator(observed: &ObservedRelease) -> Check {
    match &observed.operator {
        Ok(facts) if facts.ready > 0 => check(
            "operator",
            CheckVerdict::Good,
            format!("{} is ready", facts.image),
            "",
        ),
        Ok(facts) => check(
            "operator",
            CheckVerdict::Bad,
            format!("{} is not ready", facts.image),
            "ask its administrator: kubectl describe pods in its namespace says why",
        ),
        Err(why) => check(
            "operator",
            CheckVerdict::Unknown,
            why.clone(),
            "if the operator is elsewhere, name it with --operator-namespace and --operator-name; profiling does not need this right",
        ),
    }
}

/// The administrator's limits if the operator's Deployment can be read; otherwise the chart's.
fn limits(observed: &ObservedRelease) -> AdminLimits {
    let default = AdminLimits::default();
    let budget = argument(observed, "--max-ephemeral-containers=");
    AdminLimits {
        namespace_opt_in: !has_argument(observed, "--all-namespaces"),
        ephemeral_containers: budget
            .and_then(|text| text.parse().ok())
            .unwrap_or(default.ephemeral_containers),
        ..default
    }
}

/// Whether an operator that handles only some namespaces handles this one.
fn is_looked_after(observed: &ObservedRelease) -> bool {
    let mut named = arguments(observed, "--namespace=").peekable();
    named.peek().is_none() || named.any(|namespace| namespace == observed.namespace)
}

fn namespace_check(observed: &ObservedRelease) -> Check {
    let name = &observed.namespace;
    let bad = |found: String, remedy: String| check("namespace", CheckVerdict::Bad, found, remedy);
    let good = |found: String| check("namespace", CheckVerdict::Good, found, "");
    let command = format!("label namespace {name} phpprof.dev/profiling=enabled");
    let label_it = observed.suggest.of_cluster(&command);
    if !is_looked_after(observed) {
        let named: Vec<_> = arguments(observed, "--namespace=").collect();
        return bad(
            format!("the operator handles only requests of {}", named.join(", ")),
            "ask its administrator to add the namespace to the chart's rbac.namespaces".to_owned(),
        );
    }
    let limits = limits(observed);
    let Some((label, _)) = &observed.namespace_labels else {
        return check(
            "namespace",
            CheckVerdict::Unknown,
            format!("you may not read the labels of {name}"),
            if limits.namespace_opt_in {
                label_it
            } else {
                "the operator profiles every namespace, except where the label forbids it"
                    .to_owned()
            },
        );
    };
    let label = label.as_deref();
    if is_disabled(label) {
        return bad(
            by_label(),
            observed
                .suggest
                .of_cluster(&format!("{command} --overwrite")),
        );
    }
    match namespace::check(name, is_enabled(label), &limits) {
        Err(_) => bad(format!("{name} is not labelled for profiling"), label_it),
        Ok(()) if limits.namespace_opt_in => {
            good(format!("{name} is labelled phpprof.dev/profiling=enabled"))
        }
        Ok(()) => good("the operator profiles every namespace".to_owned()),
    }
}

/// The way to results, which `observe` has tried.
fn reached(observed: &ObservedRelease) -> Check {
    match &observed.reach {
        Reach::Proxy => {
            let found = "the API server reaches the operator's results";
            check(MAY_LOOK, CheckVerdict::Good, found, "")
        }
        Reach::Forward(why) => {
            let found = format!(
                "the API server does not reach the operator's results ({why}); a port-forward does"
            );
            check(MAY_LOOK, CheckVerdict::Good, found, "")
        }
        Reach::Nowhere(found, remedy) => {
            check(MAY_LOOK, CheckVerdict::Bad, found.clone(), remedy.clone())
        }
        Reach::Unknown(why) => {
            let found = format!(
                "whether the API server reaches the operator's results is not known: {why}"
            );
            check(
                MAY_LOOK,
                CheckVerdict::Unknown,
                found,
                "ask for the rights above",
            )
        }
    }
}

fn image(observed: &ObservedRelease) -> Check {
    match argument(observed, "--sampler-image=") {
        Some(image) => check(
            "image",
            CheckVerdict::Good,
            format!("{image}; only a run shows whether the nodes can pull it"),
            "",
        ),
        None => shown_by_a_run(observed, "image", "the sampler's image", "ran its sampler"),
    }
}

fn store(observed: &ObservedRelease) -> Check {
    let url = argument(observed, "--store-url=");
    let named = url.map(|url| format!("{url}; ")).unwrap_or_default();
    match (&observed.store, url) {
        (Ok(facts), _) => store_as_told(observed, facts, &named),
        (Err(_), Some(url)) => check(
            "store",
            CheckVerdict::Good,
            format!("{url}; the operator's logs show whether it answers"),
            "",
        ),
        (Err(_), None) => shown_by_a_run(observed, "store", "the store", "stored its profile"),
    }
}

/// The store as its operator finds it. An error counts until a call has succeeded.
fn store_as_told(observed: &ObservedRelease, facts: &StoreFacts, named: &str) -> Check {
    let failed = facts.last_error_time > facts.last_success_time;
    let time =
        |time: Option<Timestamp>| time.map_or("never".to_owned(), |time| format!("{time:.0}"));
    let success = format!("last success {}", time(facts.last_success_time));
    let error = match &facts.last_error {
        Some(error) => format!("last error {}: {error}", time(facts.last_error_time)),
        None => "no error".to_owned(),
    };
    let found = |why: &str| format!("{named}{why}{success}, {error}");
    let overwrites = facts.status == "False";
    let allowed = has_argument(observed, "--store-allow-overwrite=true");
    match (failed, overwrites) {
        (true, _) => check(
            "store",
            CheckVerdict::Bad,
            found(""),
            "ask the operator's administrator; the error says what to change",
        ),
        (false, true) if allowed => check(
            "store",
            CheckVerdict::Good,
            found(&format!(
                "{}, which the administrator allows; ",
                facts.message
            )),
            "",
        ),
        // Without a look at the Deployment, nobody knows whether it is allowed.
        (false, true) => check(
            "store",
            if observed.operator.is_ok() {
                CheckVerdict::Bad
            } else {
                CheckVerdict::Unknown
            },
            found(&format!("{}; ", facts.message)),
            "ask the operator's administrator for a store with create-only writes, or for store.allowOverwrite in the chart",
        ),
        (false, false) => check("store", CheckVerdict::Good, found(""), ""),
    }
}

/// A setting of the operator that this user cannot see: a recent run is evidence that it works.
fn shown_by_a_run(observed: &ObservedRelease, name: &'static str, what: &str, did: &str) -> Check {
    match &observed.last_stored {
        Some(stored) if stored.age < RECENT => {
            let age = duration::age(stored.age);
            let found = format!("request {}, {age} old, {did}", stored.name);
            check(name, CheckVerdict::Good, found, "")
        }
        _ => check(
            name,
            CheckVerdict::Unknown,
            format!(
                "you cannot see {what} in the operator's Deployment, and no profile here is of the last day"
            ),
            "a run shows whether it works; profiling does not need this right",
        ),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
