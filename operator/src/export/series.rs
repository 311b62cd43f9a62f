//! The series labels of a request's profile, and the body of the push.
//!
//! It sends nothing.
//!
//! Invariant: label names are legal and few. No label has a separate value for each request, unless
//! the administrator wants it. The time of a pushed profile lies within its request's.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, ProfileTarget, TargetState};
use phpprof_profile::{PieceBounds, Profile, SampleSource, SampleType, encode_gzip};
use serde_json::{Value, json};

/// What Pyroscope accepts by default: 16,000 samples, and 2 MiB before compression, labels
/// included. It accepts profiles of 4 MiB, but its rate limiter never allows more than its burst,
/// and answers 429 each time.
const BOUNDS: PieceBounds = PieceBounds {
    bytes: 2_000_000,
    samples: 16_000,
};
/// Labels of the administrator. Pyroscope allows 30; the operator sets the others.
pub const MOST_LABELS: usize = 20;
const LONGEST_NAME: usize = 1024;
const LONGEST_VALUE: usize = 2048;
/// Bytes of a name. Pyroscope cuts a longer one, perhaps in the middle of a character, and then
/// refuses the profile.
const LONGEST_STRING: usize = 65_535;
/// Pieces of one series. No profile has needed this many.
const MOST_PIECES: usize = 128;
/// How long before its request's end a profile may begin. Pyroscope refuses profiles older than an
/// hour, and the push may come twenty minutes after the end.
const OLDEST: SignedDuration = SignedDuration::from_mins(40);

/// A sample type as its own series. A push has only one type; otherwise the types of a profile
/// would share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesKind {
    pub name: &'static str,
    pub sample_type: SampleType,
}

/// The first is the default of a profile, which links open.
pub const KINDS: [SeriesKind; 2] = [
    SeriesKind {
        name: "wall",
        sample_type: ("wall", "nanoseconds"),
    },
    SeriesKind {
        name: "process_cpu",
        sample_type: ("cpu", "nanoseconds"),
    },
];

impl SeriesKind {
    /// The name in queries: name, type, unit, period type, period unit.
    pub fn id(&self) -> String {
        let (kind, unit) = self.sample_type;
        format!("{}:{kind}:{unit}:{kind}:{unit}", self.name)
    }
}

/// A label that the administrator adds to every series, as NAME=VALUE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraLabel {
    pub name: String,
    pub value: String,
}

/// Label names that the operator sets.
const OURS: [&str; 6] = [
    "service_name",
    "namespace",
    "workload",
    "pod",
    "container",
    REQUEST_LABEL,
];
const REQUEST_LABEL: &str = "profile_request";

impl FromStr for ExtraLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("a label must be NAME=VALUE")?;
        let legal = |(index, letter): (usize, char)| {
            letter == '_' || letter.is_ascii_alphabetic() || (index > 0 && letter.is_ascii_digit())
        };
        if name.is_empty() || !name.chars().enumerate().all(legal) {
            return Err(format!(
                "{name:?} is not a label name: use letters, digits and _, and do not begin with a digit"
            ));
        }
        if name.starts_with("__") || OURS.contains(&name) {
            return Err(format!("every series already has the label {name}"));
        }
        if name.len() > LONGEST_NAME || value.len() > LONGEST_VALUE {
            return Err(format!(
                "label {name:.20}: a name has at most {LONGEST_NAME} bytes, a value {LONGEST_VALUE}"
            ));
        }
        Ok(ExtraLabel {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// How a request's series are made and labelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    pub labels: Vec<ExtraLabel>,
    /// One series for each pod, or one for all of them.
    pub per_pod: bool,
    /// A separate series for each request. It is easy to find, but there are as many series as
    /// requests.
    pub request_label: bool,
}

/// A common name of the target's pods. It comes from the request; the operator does not guess an
/// owner.
pub fn workload(target: &ProfileTarget) -> String {
    if let Some(workload) = &target.workload_ref {
        return workload.name.clone();
    }
    if let Some(pod) = &target.pod_name {
        return pod.clone();
    }
    let selector = target.selector.clone().unwrap_or_default();
    let labels = selector.match_labels.unwrap_or_default();
    let named = ["app.kubernetes.io/name", "app", "k8s-app"]
        .into_iter()
        .find_map(|key| labels.get(key));
    let name = named.or_else(|| labels.values().next()).cloned();
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "selected".to_owned())
}

/// The value of service_name.
pub fn service(request: &ProfileRequest) -> String {
    let namespace = request.namespace().unwrap_or_default();
    format!("{namespace}/{}", workload(&request.spec.target))
}

/// One series, and the sample labels that select its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub kind: SeriesKind,
    pub labels: Vec<(String, String)>,
    pub of: Vec<(String, String)>,
}

/// The series of a completed request: each sample type, for each pod with a profile or for all pods
/// together.
pub fn series(request: &ProfileRequest, naming: &Naming) -> Vec<Series> {
    let status = request.status.clone().unwrap_or_default();
    let uploaded = status
        .targets
        .iter()
        .filter(|target| target.state == TargetState::Uploaded);
    let parts: Vec<Vec<(&str, String)>> = if naming.per_pod {
        uploaded
            .map(|target| {
                vec![
                    ("pod", target.pod_name.clone()),
                    ("container", target.container_name.clone()),
                ]
            })
            .collect()
    } else {
        vec![Vec::new()]
    };
    let make = |kind: SeriesKind, part: &[(&str, String)]| {
        let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        let mut labels = vec![
            ("__name__".to_owned(), kind.name.to_owned()),
            ("service_name".to_owned(), service(request)),
            (
                "namespace".to_owned(),
                request.namespace().unwrap_or_default(),
            ),
            ("workload".to_owned(), workload(&request.spec.target)),
        ];
        labels.extend(part.iter().map(owned));
        if naming.request_label {
            labels.push((REQUEST_LABEL.to_owned(), request.name_any()));
        }
        let extra = naming.labels.iter().take(MOST_LABELS);
        labels.extend(extra.map(|label| (label.name.clone(), label.value.clone())));
        Series {
            kind,
            labels,
            of: part.iter().take(1).map(owned).collect(),
        }
    };
    parts
        .iter()
        .flat_map(|part| KINDS.map(|kind| make(kind, part)))
        .collect()
}

/// The operator does not push a part of a profile as the whole, because its totals would be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile is too large: it would be {0} pushes, and {MOST_PIECES} are the most")]
pub struct TooLarge(usize);

/// The bodies that push one series of the merged profile, as JSON of the push API. Empty if the
/// profile has no time of this type.
pub fn bodies(
    merged: &impl SampleSource,
    series: &Series,
    request: &ProfileRequest,
) -> Result<Vec<String>, TooLarge> {
    let mut pieces = pieces(merged, series, &BOUNDS)?;
    let bodies = pieces.iter_mut().enumerate().map(|(index, piece)| {
        piece.time_nanos = time_of(merged.head(), request, index);
        body(series, &encode_gzip(piece)).to_string()
    });
    Ok(bodies.collect())
}

fn pieces(
    merged: &impl SampleSource,
    series: &Series,
    bounds: &PieceBounds,
) -> Result<Vec<Profile>, TooLarge> {
    let mut pieces = phpprof_profile::pieces(merged, series.kind.sample_type, &series.of, bounds);
    if pieces.len() > MOST_PIECES {
        return Err(TooLarge(pieces.len()));
    }
    for string in pieces.iter_mut().flat_map(|piece| &mut piece.string_table) {
        while string.len() > LONGEST_STRING {
            string.pop();
        }
    }
    Ok(pieces)
}

fn body(series: &Series, profile: &[u8]) -> Value {
    let label = |(name, value): &(String, String)| json!({"name": name, "value": value});
    let labels: Vec<Value> = series.labels.iter().map(label).collect();
    json!({"series": [{"labels": labels, "samples": [{"rawProfile": STANDARD.encode(profile)}]}]})
}

/// The time of a pushed piece by the operator's clock, which the status's links use too. A node's
/// clock may differ, and then the profile would be outside the links' range. Pieces are a
/// millisecond apart, because two profiles of one series at the same time may count as one.
pub(super) fn time_of(merged: &Profile, request: &ProfileRequest, piece: usize) -> i64 {
    let nanos = |time: Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
    let status = request.status.clone().unwrap_or_default();
    let (Some(start), Some(end)) = (status.start_time, status.completion_time) else {
        return merged.time_nanos;
    };
    let end = end.0.max(start.0);
    let start = start.0.max(end - OLDEST);
    let apart = i64::try_from(piece).unwrap_or(0) * 1_000_000;
    merged.time_nanos.clamp(nanos(start), nanos(end)) + apart
}

#[cfg(test)]
mod tests;
