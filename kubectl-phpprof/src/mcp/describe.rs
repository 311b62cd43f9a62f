//! The tool `describe_profile`: whether a profile can be trusted, then what it measures.
//!
//! Invariant: quality comes first, and a request without a profile says why, pod by pod.

use phpprof_crds::{RequestReason, TargetReason};
use phpprof_profile::in_use::{InHeap, is_in_use};
use phpprof_profile::unnamed::Counts;
use phpprof_profile::{Amount, Profile, View, waiting};
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths, percent};
use super::head::HEAP_FRAMES;
use super::part::keys;
use super::quote::quoted;
use crate::cli::TopSort;
use crate::explain::named;
use crate::failure::Failure;
use crate::request::{RequestView, ShownOutcome, TargetView};
use crate::show::table_of;

/// Fewer samples give shares that are mostly chance.
const FEW: i64 = 500;
/// The share of the requested rate that is not worth a word.
const KEPT: f64 = 0.95;
/// From this share on, waits are the first thing to look at.
const MUCH_WAITING: f64 = 10.0;
/// The most pods and kinds of waits.
const MOST_PODS: usize = 20;
const MOST_WAITS: usize = 6;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    quality: Option<&'a AgentQuality>,
    /// In place of the quality, if the profile is of what is in heaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    heaps: Option<&'a AgentHeaps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<&'a AgentMeasured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<AgentRequest>,
}

/// The sums of the receipts of all samplers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentQuality {
    /// Empty if there is nothing to complain about.
    warnings: Vec<String>,
    samples: i64,
    workers: i64,
    samplers: usize,
    /// Of the samples: those whose last call has no proof.
    unstable_percent: f64,
    late: i64,
    denied: i64,
    stopped: i64,
    workers_not_sampled: i64,
    missed_processes: i64,
}

/// How heaps were read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentHeaps {
    meaning: &'static str,
    /// Empty if everything was read, of workers that stood still.
    warnings: Vec<String>,
    #[serde(flatten)]
    read: InHeap,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentMeasured {
    totals: Vec<String>,
    duration_seconds: f64,
    php: Vec<String>,
    labels: Vec<String>,
    /// What the wall time waits for; the rest runs.
    waiting: Vec<AgentWait>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct AgentWait {
    value: String,
    percent: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentRequest {
    outcome: &'static str,
    reason: String,
    message: String,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_to_do: Option<&'static str>,
    pods: Vec<AgentPod>,
    pods_left_out: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentPod {
    pod: String,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_to_do: Option<&'static str>,
}

/// The answer about a profile, a request, or both.
pub fn answer(
    profile: Option<&Profile>,
    request: Option<&RequestView<'_>>,
    place: &AgentPlace,
    name: &str,
) -> Result<AgentAnswer, Failure> {
    let (of_heaps, sampled): (Option<&Profile>, Option<&Profile>) = (
        profile.filter(|it| is_in_use(it)),
        profile.filter(|it| !is_in_use(it)),
    );
    let (quality, heaps) = (sampled.map(quality), of_heaps.map(heaps));
    let measured = profile.map(measured);
    let next = next(profile, measured.as_ref(), request, name);
    let body = |count: usize| Described {
        quality: quality.as_ref(),
        heaps: heaps.as_ref(),
        measured: measured.as_ref(),
        request: request.map(|view| of_request(view, count)),
    };
    AgentAnswer::fitted(place, MOST_PODS, body, &next)
}

fn receipts(profile: &Profile) -> Vec<Value> {
    let read = |text: &str| serde_json::from_str(text).ok();
    let receipts = profile.comments().filter_map(read);
    receipts.filter(Value::is_object).collect()
}

fn quality(profile: &Profile) -> AgentQuality {
    let receipts = receipts(profile);
    let sum = |pointer: &str| {
        let all = receipts
            .iter()
            .filter_map(|it| it.pointer(pointer)?.as_i64());
        all.fold(0, i64::saturating_add)
    };
    let counts = Counts {
        samples: sum("/samples"),
        unstable: sum("/quality/unstable"),
        unnamed: sum("/quality/unnamed"),
        restarts: u64::try_from(sum("/php/opcacheRestarts")).unwrap_or(0),
    };
    let mut warnings = Vec::new();
    if receipts.is_empty() {
        warnings.push("the profile has no receipt of phpprof, so its quality is not known and it has no findings".to_owned());
    } else if counts.samples < FEW {
        warnings.push(format!(
            "{} samples are few: shares of some percent are chance; profile longer, or more pods",
            counts.samples
        ));
    }
    warnings.extend(counts.told());
    let stopped = sum("/quality/stopped");
    let of_stopped = u64::try_from(stopped).unwrap_or(0);
    let all = u64::try_from(counts.samples).unwrap_or(0);
    warnings.extend(waiting::told_of_stopped(of_stopped, all));
    warnings.extend(slower(&receipts));
    AgentQuality {
        warnings,
        samples: counts.samples,
        workers: sum("/workers"),
        samplers: receipts.len(),
        unstable_percent: percent(counts.unstable, counts.samples),
        late: sum("/quality/late"),
        denied: sum("/quality/denied"),
        stopped,
        workers_not_sampled: sum("/workersNotSampled"),
        missed_processes: sum("/missed/processes"),
    }
}

fn heaps(profile: &Profile) -> AgentHeaps {
    let read = InHeap::of(profile);
    let without = "the profile does not say how its heaps were read";
    AgentHeaps {
        meaning: HEAP_FRAMES,
        warnings: read.map_or_else(|| vec![without.to_owned()], |it| it.losses()),
        read: read.unwrap_or_default(),
    }
}

/// The samplers that could not keep the requested rate.
fn slower(receipts: &[Value]) -> Option<String> {
    let is_slow = |receipt: &&Value| {
        let rate = |field: &str| receipt[field].as_f64();
        let rates = rate("effectiveSamplesPerSecond").zip(rate("samplesPerSecond"));
        rates.is_some_and(|(kept, asked)| kept < KEPT * asked)
    };
    let slow = receipts.iter().filter(is_slow).count();
    (slow > 0).then(|| {
        format!("{slow} of {} samplers could not keep the requested rate: their CPU budget or the node's CPU was spent", receipts.len())
    })
}

fn measured(profile: &Profile) -> AgentMeasured {
    let types: Vec<(&str, &str)> = profile.sample_types().collect();
    let totals = types.iter().take(8).map(|(name, unit)| {
        let total = phpprof_profile::total(profile, name);
        format!("{}: {}", quoted(name), Amount::of(unit, total).text(total))
    });
    let versions = receipts(profile).into_iter().map(|receipt| {
        let words = |field: &str| {
            receipt["php"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        quoted(&format!("{} {}", words("version"), words("sapi")))
    });
    let mut php: Vec<String> = versions.filter(|it| it != " ").collect();
    php.sort();
    php.dedup();
    php.truncate(5);
    AgentMeasured {
        totals: totals.collect(),
        duration_seconds: hundredths(profile.duration_nanos as f64 / 1e9),
        php,
        labels: keys(profile),
        waiting: waits(profile),
    }
}

fn waits(profile: &Profile) -> Vec<AgentWait> {
    let view = View {
        sample_type: Some("wall".to_owned()),
        labels: Vec::new(),
    };
    let Ok(table) = table_of(profile, &view, TopSort::Flat, Some(waiting::LABEL)) else {
        return Vec::new();
    };
    let waits = table.rows.iter().filter(|row| row.name != "-");
    let shown = waits.map(|row| AgentWait {
        value: quoted(&row.name),
        percent: percent(row.flat, table.total),
    });
    shown
        .filter(|wait| wait.percent >= 0.5)
        .take(MOST_WAITS)
        .collect()
}

fn of_request(view: &RequestView<'_>, count: usize) -> AgentRequest {
    let outcome = match view.outcome() {
        ShownOutcome::InProgress => "in progress",
        ShownOutcome::Complete => "complete",
        ShownOutcome::Failed => "failed",
    };
    // Failed pods come first in the status.
    let all = view.targets().count();
    AgentRequest {
        outcome,
        reason: quoted(view.reason()),
        message: quoted(view.message()),
        target: quoted(&view.target_words()),
        what_to_do: named(view.reason()).and_then(RequestReason::remedy),
        pods: view
            .targets()
            .take(count)
            .map(|target| pod(&target))
            .collect(),
        pods_left_out: all.saturating_sub(count),
    }
}

fn pod(target: &TargetView<'_>) -> AgentPod {
    AgentPod {
        pod: quoted(target.pod()),
        state: quoted(target.state()),
        reason: quoted(target.reason()),
        samples: target.number("/samples"),
        what_to_do: named(target.reason()).map(TargetReason::remedy),
    }
}

fn next(
    profile: Option<&Profile>,
    measured: Option<&AgentMeasured>,
    request: Option<&RequestView<'_>>,
    name: &str,
) -> AgentNexts {
    let mut next = AgentNexts::default();
    let of = |more: Value| {
        let mut all = json!({"profile": name});
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
        all
    };
    let (Some(profile), Some(measured)) = (profile, measured) else {
        if request.is_some_and(|it| it.outcome() == ShownOutcome::InProgress) {
            next.add(
                "describe_profile",
                "it has not ended yet: ask again",
                of(json!({})),
            );
        }
        next.add("list_profiles", "other profiles", json!({}));
        return next;
    };
    if !phpprof_profile::dump::workers(profile).is_empty() {
        next.add(
            "dump",
            "it is a snapshot: where each worker stood",
            of(json!({})),
        );
        return next;
    }
    if is_in_use(profile) {
        let held = json!({"sort": "total"});
        next.add("top", "the classes with the most bytes", of(json!({})));
        next.add("top", "what holds the most bytes", of(held));
        next.add(
            "callees",
            "the paths from what PHP keeps itself on",
            of(json!({})),
        );
        return next;
    }
    of_time(&mut next, measured, of);
    next
}

/// Where to look in a profile of time.
fn of_time(next: &mut AgentNexts, measured: &AgentMeasured, of: impl Fn(Value) -> Value) {
    next.add("findings", "known problems, with what to do", of(json!({})));
    let most = measured.waiting.first().map_or(0.0, |wait| wait.percent);
    if most >= MUCH_WAITING {
        let by = json!({"by": waiting::LABEL});
        next.add("top", "what PHP waits for", of(by));
    }
    next.add("top", "the functions with the most time", of(json!({})));
    let cpu = json!({"sampleType": "cpu"});
    next.add("top", "the functions with the most CPU time", of(cpu));
    if measured.labels.iter().any(|label| label == "route") {
        next.add(
            "top",
            "the routes with the most time",
            of(json!({"by": "route"})),
        );
    }
}
