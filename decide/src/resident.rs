//! Whether a request's samplers stay in their pods, and which container of a pod serves it.
//!
//! Ephemeral containers are never removed from a pod, so a schedule needs one that stays. This file
//! is pure.
//!
//! Invariant: a sampler stays only for a request of an account that the administrator has named. An
//! admission policy of the chart ensures that the account is the real one. The more samplers have
//! ended in a pod, the longer the next one has to wait.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{
    ProfileRequest, REQUESTED_BY, RequestReason, SamplerMode, TargetReason, UploadMode,
};

use serde::Deserialize;

use crate::RequestRefusal;
use crate::limits::{AdminLimits, later};
use crate::pod::{
    ContainerView, PodView, RESIDENT_PREFIX, SamplerKind, SamplerState, SamplerView, bare_id,
};

/// The second successor waits for this time, and each later one twice as long as the one before.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// No successor waits longer.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(6);

/// Whether a request's samplers stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Each run has its own sampler.
    Never,
    /// They stay, unless the pod does not reach the relay.
    WherePossible,
    /// They stay. If that is not possible, the pod has no profile.
    Always,
}

/// The sampler that serves a request in one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServingSampler {
    /// A sampler for this request only.
    Once,
    /// The sampler that stays in the pod. It may have to be added with this name.
    Resident {
        /// The name of the ephemeral container.
        name: String,
        /// Whether it runs or is about to; otherwise it must be added.
        is_there: bool,
    },
    /// Not before this time, because earlier samplers ended a moment ago.
    NotBefore(Timestamp),
}

/// What the choice of a sampler depends on.
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// The time of the decision, because a successor may have to wait.
    pub now: Timestamp,
    /// The request's uid. It makes the rank of pods differ between requests.
    pub request_uid: &'a str,
    /// Whether the request's samplers stay.
    pub stays: Stays,
}

impl Serving<'_> {
    /// The rank of a pod; the lowest is chosen first. If samplers have one run each, it is the pod
    /// that has had the fewest. Resident samplers leave no trace of their runs in a pod, so every
    /// pod has the same chance.
    pub fn rank(&self, pod: &PodView) -> (usize, String) {
        if self.stays == Stays::Never {
            return (pod.samplers.len(), pod.name.clone());
        }
        let mut hasher = DefaultHasher::new();
        (self.request_uid, &pod.uid).hash(&mut hasher);
        (0, format!("{:016x}", hasher.finish()))
    }

    /// The sampler that serves the request in this container of a pod.
    pub fn sampler(&self, pod: &PodView, container: &ContainerView) -> ServingSampler {
        sampler_of(self.now, pod, container, self.stays)
    }
}

/// Whether samplers stay, from what the request asks for and the administrator allows.
pub fn stays(request: &ProfileRequest, limits: &AdminLimits) -> Result<Stays, RequestRefusal> {
    let by = request.annotations().get(REQUESTED_BY);
    let is_allowed = by.is_some_and(|by| limits.resident_users.contains(by));
    match (request.spec.sampler_mode, is_allowed) {
        (SamplerMode::Once, _) | (SamplerMode::Auto, false) => Ok(Stays::Never),
        // The sampler could not ask for runs.
        (SamplerMode::Auto, true) if request.spec.upload_mode == UploadMode::Direct => {
            Ok(Stays::Never)
        }
        (SamplerMode::Auto, true) => Ok(Stays::WherePossible),
        (SamplerMode::Resident, true) => Ok(Stays::Always),
        (SamplerMode::Resident, false) => {
            let who = match by {
                Some(by) => format!("{by} may not have a resident sampler"),
                None => {
                    format!("the annotation {REQUESTED_BY} does not name the request's creator")
                }
            };
            let message = format!("samplerMode is Resident, but {who}");
            let reason = RequestReason::ResidentNotAllowed;
            Err(RequestRefusal { reason, message })
        }
    }
}

fn sampler_of(
    now: Timestamp,
    pod: &PodView,
    container: &ContainerView,
    stays: Stays,
) -> ServingSampler {
    if stays == Stays::Never {
        return ServingSampler::Once;
    }
    let id = bare_id(&container.id);
    let of_container = |sampler: &SamplerView| matches!(&sampler.kind, SamplerKind::Resident { container_id } if container_id == id);
    let is_over = |sampler: &SamplerView| matches!(sampler.state, SamplerState::Ended { .. });
    let residents = pod
        .samplers
        .iter()
        .filter(|(name, _)| name.starts_with(RESIDENT_PREFIX));
    let mut living = residents
        .clone()
        .filter(|(_, sampler)| of_container(sampler) && !is_over(sampler));
    if let Some((name, _)) = living.next() {
        let name = name.clone();
        return ServingSampler::Resident {
            name,
            is_there: true,
        };
    }
    let cut_off = |sampler: &SamplerView| of_container(sampler) && did_not_reach_relay(sampler);
    if stays == Stays::WherePossible && residents.clone().any(|(_, sampler)| cut_off(sampler)) {
        return ServingSampler::Once;
    }
    let ends = residents
        .clone()
        .filter(|(_, sampler)| !has_ended_in_time(sampler))
        .filter_map(|(_, sampler)| match sampler.state {
            SamplerState::Ended { at, .. } => Some(at.unwrap_or(now)),
            _ => None,
        });
    let (count, last) = (ends.clone().count(), ends.max());
    let not_before = last.map_or(now, |last| later(last, pause(count)));
    if now < not_before {
        ServingSampler::NotBefore(not_before)
    } else {
        ServingSampler::Resident {
            name: name_of(residents.count(), id),
            is_there: false,
        }
    }
}

/// The name of a pod's next resident sampler. It has the container's id, because another request
/// may add one for another container before the watch shows it.
fn name_of(number: usize, container_id: &str) -> String {
    let id = container_id.get(..8).unwrap_or(container_id);
    format!("{RESIDENT_PREFIX}{number}-{id}")
}

/// How a sampler ended, from its receipt (`contract/receipts.jsonl`).
#[derive(Deserialize)]
struct SamplerReceipt {
    reason: String,
}

fn reason(sampler: &SamplerView) -> Option<String> {
    let SamplerState::Ended { message, .. } = &sampler.state else {
        return None;
    };
    let receipt: SamplerReceipt = serde_json::from_str(message.trim()).ok()?;
    Some(receipt.reason)
}

/// Whether its lease ended or it had nothing to do for long. Then the next one need not wait.
fn has_ended_in_time(sampler: &SamplerView) -> bool {
    reason(sampler).as_deref() == Some("LeaseEnded")
}

fn did_not_reach_relay(sampler: &SamplerView) -> bool {
    let unreached = [TargetReason::RelayUnreachable, TargetReason::SourceNotPod];
    let reason = reason(sampler).and_then(|reason| TargetReason::of_receipt(&reason));
    reason.is_some_and(|reason| unreached.contains(&reason))
}

/// The pause before the next sampler, after this many have ended.
fn pause(ended: usize) -> SignedDuration {
    let doublings = match ended.checked_sub(2) {
        None => return SignedDuration::ZERO,
        Some(doublings) => u32::try_from(doublings).unwrap_or(u32::MAX),
    };
    let times = 2_i32.checked_pow(doublings).unwrap_or(i32::MAX);
    FIRST_PAUSE
        .checked_mul(times)
        .unwrap_or(LONGEST_PAUSE)
        .min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::{at, pod, request};

    const SCHEDULES: &str = "system:serviceaccount:phpprof-system:phpprof-schedules";

    fn asked(mode: &str, upload: &str, by: Option<&str>) -> Result<Stays, RequestReason> {
        let spec = json!({"target": {"podName": "web"}, "samplerMode": mode, "uploadMode": upload});
        let mut request = request(spec);
        let by = by.map(|by| [(REQUESTED_BY.to_owned(), by.to_owned())].into());
        request.metadata.annotations = by;
        let limits = AdminLimits {
            resident_users: [SCHEDULES.to_owned()].into(),
            ..AdminLimits::default()
        };
        stays(&request, &limits).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn resident_is_only_for_named_users() {
        let (ours, other) = (Some(SCHEDULES), Some("alice"));
        assert_eq!(asked("Auto", "Auto", ours), Ok(Stays::WherePossible));
        assert_eq!(asked("Auto", "Direct", ours), Ok(Stays::Never));
        assert_eq!(asked("Resident", "Auto", ours), Ok(Stays::Always));
        assert_eq!(asked("Once", "Auto", ours), Ok(Stays::Never));
        assert_eq!(asked("Auto", "Auto", other), Ok(Stays::Never));
        assert_eq!(asked("Auto", "Auto", None), Ok(Stays::Never));
        for by in [other, None] {
            let refused = Err(RequestReason::ResidentNotAllowed);
            assert_eq!(asked("Resident", "Auto", by), refused);
        }
    }

    fn resident(container_id: &str, ended: Option<(i64, &str)>) -> SamplerView {
        SamplerView {
            kind: SamplerKind::Resident {
                container_id: container_id.into(),
            },
            state: match ended {
                None => SamplerState::Running,
                Some((second, message)) => SamplerState::Ended {
                    exit_code: 0,
                    message: message.into(),
                    at: Some(at(second)),
                },
            },
        }
    }

    /// What serves a request at second 100 in a pod with these resident samplers.
    fn serves(stays: Stays, residents: &[SamplerView]) -> String {
        let mut pod = pod("web");
        for (number, resident) in residents.iter().enumerate() {
            let name = format!("{RESIDENT_PREFIX}{number}");
            pod.samplers.insert(name, resident.clone());
        }
        match sampler_of(at(100), &pod, &pod.containers[0], stays) {
            ServingSampler::Once => "once".into(),
            ServingSampler::Resident { name, is_there } => {
                if is_there {
                    name
                } else {
                    format!("new {name}")
                }
            }
            ServingSampler::NotBefore(instant) => {
                format!("not before {}", instant.as_second() - at(0).as_second())
            }
        }
    }

    #[test]
    fn resident_serves_all_requests_of_its_container() {
        let there = [resident("4f9c", None)];
        assert_eq!(serves(Stays::Always, &[]), "new phpprof-resident-0-4f9c");
        assert_eq!(serves(Stays::Always, &there), "phpprof-resident-0");
        assert_eq!(serves(Stays::Never, &there), "once");
        let elsewhere = [resident("aaaa", None)];
        assert_eq!(
            serves(Stays::Always, &elsewhere),
            "new phpprof-resident-1-4f9c"
        );
    }

    #[test]
    fn resident_names_differ_by_container() {
        let name = |id: &str| {
            let mut pod = pod("web");
            pod.containers[0].id = format!("containerd://{id}");
            match sampler_of(at(0), &pod, &pod.containers[0], Stays::Always) {
                ServingSampler::Resident { name, .. } => name,
                other => panic!("{other:?}"),
            }
        };
        // The watch shows neither of them yet.
        let [one, other] = ["4f9c7a1d2b3e", "5a0e7c112b3d"].map(name);
        assert_ne!(one, other);
        assert_eq!(one, name("4f9c7a1d2b3e"));
    }

    #[test]
    fn resident_successors_come_ever_later() {
        let gone = |second| resident("aaaa", Some((second, "")));
        let ended = |seconds: &[i64]| {
            let residents: Vec<_> = seconds.iter().map(|second| gone(*second)).collect();
            serves(Stays::Always, &residents)
        };
        assert_eq!(ended(&[99]), "new phpprof-resident-1-4f9c");
        assert_eq!(ended(&[10, 99]), "not before 159");
        assert_eq!(ended(&[10, 40]), "new phpprof-resident-2-4f9c");
        assert_eq!(ended(&[10, 20, 40]), "not before 160");
        let leased = resident("aaaa", Some((99, r#"{"reason":"LeaseEnded"}"#)));
        let in_time = [gone(10), leased];
        assert_eq!(
            serves(Stays::Always, &in_time),
            "new phpprof-resident-2-4f9c"
        );
        let (many, hours) = (vec![0; 60], 6 * 3600);
        assert_eq!(ended(&many), format!("not before {hours}"));
    }

    #[test]
    fn resident_is_avoided_without_relay() {
        let cut_off = [resident(
            "4f9c",
            Some((10, r#"{"reason":"RelayUnreachable","detail":"refused"}"#)),
        )];
        assert_eq!(serves(Stays::WherePossible, &cut_off), "once");
        assert_eq!(
            serves(Stays::Always, &cut_off),
            "new phpprof-resident-1-4f9c"
        );
        let leased = [resident("4f9c", Some((10, r#"{"reason":"LeaseEnded"}"#)))];
        assert_eq!(
            serves(Stays::WherePossible, &leased),
            "new phpprof-resident-1-4f9c"
        );
    }

    #[test]
    fn pods_with_resident_samplers_take_turns_by_chance() {
        let pods: Vec<PodView> = (0..10).map(|number| pod(&format!("p{number}"))).collect();
        let mut first = [0; 10];
        for request in 0..1000 {
            let serving = Serving {
                now: at(0),
                request_uid: &format!("request-{request}"),
                stays: Stays::WherePossible,
            };
            let least = (0..10).min_by_key(|number| serving.rank(&pods[*number]));
            first[least.unwrap()] += 1;
        }
        assert!(
            first.iter().all(|count| (60..150).contains(count)),
            "{first:?}"
        );
    }

    proptest! {
        #[test]
        fn the_pause_grows_and_has_an_end(ended in 0..1000_usize) {
            prop_assert!(pause(ended) <= pause(ended + 1));
            prop_assert!(pause(ended) <= LONGEST_PAUSE);
        }
    }
}
