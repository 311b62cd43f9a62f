//! Checkpoints of runs, which samplers store in addition to their profiles: how often a sampler
//! stores one, under which keys, and which of them may exist after the sampler is gone.
//!
//! It is pure: `storage` reads the store.
//!
//! Invariant: a target's keys follow from its status and the duration alone, so a later operator
//! knows all granted keys. There are at most [`MOST`] of them.

use jiff::Timestamp;
use phpprof_crds::{
    ProfileMode, ProfileRequest, RequestLabel, TargetReason, TargetState, TargetStatus,
};

use crate::sampler::object_keys::{REQUESTS, receipt_key};

/// The most parts of a run. Each checkpoint has its own grants, which stay in the pod's object
/// until the pod is deleted.
const MOST: i32 = 30;
const MARK: &str = ".checkpoint-";
const END: &str = ".pb.gz";

/// The first checkpoint, in seconds; each of the next ones is due after twice the time of the one
/// before, until they are an interval apart. So a job that ends early leaves at least half of its
/// time.
const FIRST: i32 = 5;

/// Seconds between two checkpoints of a run, after the first ones. A run that ends before the first
/// has none.
pub fn interval(duration_seconds: i32, shortest: i32) -> Option<i32> {
    let part = (duration_seconds + MOST - 1) / MOST;
    let every = part.max(shortest).max(1);
    (duration_seconds > every.min(FIRST)).then_some(every)
}

/// When the checkpoints of a run are due, in seconds of sampling. Long runs have fewer early ones,
/// for there are at most [`MOST`].
pub fn times(duration_seconds: i32, every: i32) -> Vec<i32> {
    if every <= 0 {
        return Vec::new();
    }
    let most = usize::try_from(MOST).unwrap_or(0);
    let even = (1..).map_while(|number| every.checked_mul(number));
    let even: Vec<i32> = even
        .take_while(|at| *at < duration_seconds)
        .take(most)
        .collect();
    let early = std::iter::successors(Some(FIRST), |at| at.checked_mul(2));
    let early = early.take_while(|at| *at < every.min(duration_seconds));
    early.take(most - even.len()).chain(even).collect()
}

/// The keys of a target's checkpoints, oldest first.
pub fn keys(target: &TargetStatus, duration_seconds: i32) -> Vec<String> {
    let every = target.checkpoint_seconds.unwrap_or_default();
    let count = times(duration_seconds, every).len();
    let stem = stem(&target.object_key);
    (1..=count)
        .map(|number| format!("{stem}{MARK}{number}{END}"))
        .collect()
}

/// A key without its ending. The whole profile and its checkpoints share it.
fn stem(key: &str) -> &str {
    let stem = key.strip_suffix(END).unwrap_or(key);
    match stem.rsplit_once(MARK) {
        Some((stem, number)) if number.parse::<u8>().is_ok() => stem,
        _ => stem,
    }
}

/// The key of a target's whole profile, also if the target has a checkpoint instead.
pub fn whole_key(key: &str) -> String {
    let stem = stem(key);
    match key.strip_suffix(END) {
        Some(name) if name != stem => format!("{stem}{END}"),
        _ => key.to_owned(),
    }
}

/// The keys under which a target may have a profile after its sampler is gone without a receipt:
/// first the whole profile, then the checkpoints that were due by now, newest first. There are none
/// if the run had no checkpoints and had not begun.
pub fn candidates(
    target: &TargetStatus,
    duration_seconds: i32,
    accepted: Timestamp,
    now: Timestamp,
) -> Vec<String> {
    let elapsed = now.as_second() - accepted.as_second();
    let mut keys = keys(target, duration_seconds);
    let every = target.checkpoint_seconds.filter(|_| !keys.is_empty());
    let not_begun = target.state == TargetState::Pending && elapsed < duration_seconds.into();
    if every.is_none() && not_begun {
        return Vec::new();
    }
    let times = every.map_or_else(Vec::new, |every| times(duration_seconds, every));
    let due = times.iter().filter(|at| i64::from(**at) <= elapsed);
    keys.truncate(due.count());
    keys.push(target.object_key.clone());
    keys.reverse();
    keys
}

/// Whether the store may have an object of a target whose sampler ended for this reason. If the
/// sampler could not say why it ended, the store may have its profile. In a run with checkpoints,
/// the store may have one even if the sampler has said why there is no profile.
pub fn may_follow(reason: TargetReason, has_checkpoints: bool) -> bool {
    use TargetReason::*;
    match reason {
        PodDeleted | TargetRestarted | TargetExited | SamplerKilled => true,
        Internal | UploadDeadlineExceeded | UploadRefused | SourceNotPod | ProfileTooLarge => {
            has_checkpoints
        }
        _ => false,
    }
}

/// Whether the samplers of a request list the HTTP requests that they see: in mode Profile, if the
/// request asks for routes.
pub fn lists_requests(request: &ProfileRequest) -> bool {
    let spec = &request.spec;
    spec.labels.contains(&RequestLabel::Route) && spec.mode == ProfileMode::Profile
}

/// The key of that list, next to the target's profile.
pub fn requests_key(target: &TargetStatus) -> String {
    format!("{}.{REQUESTS}", stem(&target.object_key))
}

/// Granted keys that are not the profile of any target. Their objects are deleted once the request
/// has its profile, or else with its manifest.
pub fn leftovers(request: &ProfileRequest) -> Vec<String> {
    let status = request.status.as_ref();
    let targets = status.map_or(&[][..], |status| status.targets.as_slice());
    let of_target = |target: &TargetStatus| {
        let mut keys = keys(target, request.spec.duration_seconds);
        if !keys.is_empty() {
            keys.push(whole_key(&target.object_key));
        }
        keys.retain(|key| *key != target.object_key);
        keys.extend(target.resident.then(|| receipt_key(&target.object_key)));
        keys.extend(lists_requests(request).then(|| requests_key(target)));
        keys
    };
    targets.iter().flat_map(of_target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, request};
    use phpprof_crds::ProfileRequestStatus;
    use serde_json::json;

    /// In seconds; 0 means never.
    #[track_caller]
    fn check_interval(duration: i32, shortest: i32, expected: i32) {
        let every = interval(duration, shortest);
        assert_eq!(every.unwrap_or(0), expected);
        let target = target("a.pb.gz", every);
        assert!(keys(&target, duration).len() <= MOST as usize);
    }

    fn target(key: &str, every: Option<i32>) -> TargetStatus {
        TargetStatus {
            object_key: key.into(),
            checkpoint_seconds: every,
            ..TargetStatus::default()
        }
    }

    #[test]
    fn runs_are_stored_early_and_then_at_intervals() {
        check_interval(5, 60, 0);
        check_interval(6, 60, 60);
        check_interval(60, 60, 60);
        check_interval(1800, 60, 60);
        check_interval(1801, 60, 61);
        check_interval(3600, 60, 120);
        check_interval(25, 10, 10);
        check_interval(3600, 10, 120);
    }

    #[test]
    fn first_checkpoints_are_early_and_later_ones_regular() {
        assert_eq!(times(5, 60), [0; 0]);
        assert_eq!(times(17, 60), [5, 10]);
        assert_eq!(times(30, 60), [5, 10, 20]);
        assert_eq!(times(181, 60), [5, 10, 20, 40, 60, 120, 180]);
        assert_eq!(times(60, 10), [5, 10, 20, 30, 40, 50]);
        assert_eq!(times(10, 3), [3, 6, 9]);
        assert_eq!(times(30, 0), [0; 0]);
        let longest = times(1800, 60);
        assert_eq!((longest.len(), longest[0], longest[1]), (30, 5, 60));
        assert_eq!(times(i32::MAX, 1).len(), 30);
    }

    #[test]
    fn checkpoint_keys_are_beside_the_profile() {
        let files = |duration, every| keys(&target("shop/web.fpm.0.pb.gz", every), duration);
        let [one, two] = [1, 2].map(|n| format!("shop/web.fpm.0.checkpoint-{n}.pb.gz"));
        assert_eq!(files(11, Some(60)), [one.clone(), two]);
        assert_eq!(files(10, Some(60)), [one]);
        assert_eq!(files(121, Some(60)).len(), 6);
        assert_eq!(files(120, None), [""; 0]);
        assert_eq!(files(120, Some(0)), [""; 0]);
        assert_eq!(files(i32::MAX, Some(1)).len(), MOST as usize);
    }

    #[test]
    fn a_name_like_a_checkpoints_is_none() {
        let key = "shop/a.checkpoint-1.fpm.4f9c7a1d.0.pb.gz";
        let of_target = keys(&target(key, Some(60)), 6);
        let checkpoint = "shop/a.checkpoint-1.fpm.4f9c7a1d.0.checkpoint-1.pb.gz";
        assert_eq!(of_target, [checkpoint]);
        assert_eq!(keys(&target(checkpoint, Some(60)), 6), [checkpoint]);
    }

    /// `expected` has the keys without their common beginning.
    #[track_caller]
    fn check_candidates(every: Option<i32>, second: i64, expected: &str) {
        let found = candidates(&target("web.pb.gz", every), 300, at(0), at(second));
        let short: Vec<&str> = found
            .iter()
            .map(|key| key.strip_prefix("web.").unwrap())
            .map(|key| key.strip_prefix("checkpoint-").unwrap_or(key))
            .map(|key| key.strip_suffix(".pb.gz").unwrap_or("whole"))
            .collect();
        assert_eq!(short.join(" "), expected);
    }

    #[test]
    fn candidates_are_the_whole_then_newest_checkpoints() {
        check_candidates(Some(60), 0, "whole");
        check_candidates(Some(60), 4, "whole");
        check_candidates(Some(60), 17, "whole 2 1");
        check_candidates(Some(60), 125, "whole 6 5 4 3 2 1");
        check_candidates(Some(60), 9000, "whole 8 7 6 5 4 3 2 1");
        check_candidates(Some(60), -9, "whole");
        check_candidates(None, 29, "");
        check_candidates(None, 300, "whole");
        let mut sampling = target("web.pb.gz", None);
        sampling.state = TargetState::Sampling;
        assert_eq!(candidates(&sampling, 300, at(0), at(29)), ["web.pb.gz"]);
    }

    #[test]
    fn what_is_nobodys_profile_is_left_over() {
        let mut request = request(json!({"target": {"podName": "web"}, "durationSeconds": 11}));
        let targets = [
            target("a.pb.gz", Some(60)),
            target("b.checkpoint-2.pb.gz", Some(60)),
            target("c.pb.gz", None),
        ];
        request.status = Some(ProfileRequestStatus {
            targets: targets.to_vec(),
            ..ProfileRequestStatus::default()
        });
        let expected = [
            "a.checkpoint-1.pb.gz",
            "a.checkpoint-2.pb.gz",
            "b.checkpoint-1.pb.gz",
            "b.pb.gz",
        ];
        assert_eq!(leftovers(&request), expected);
    }

    #[test]
    fn pod_request_lists_are_leftovers_once_merged() {
        let of = |spec: serde_json::Value| {
            let mut request = request(spec);
            let targets = [
                target("a.pb.gz", None),
                target("b.checkpoint-2.pb.gz", None),
            ];
            request.status = Some(ProfileRequestStatus {
                targets: targets.to_vec(),
                ..ProfileRequestStatus::default()
            });
            leftovers(&request)
        };
        let spec = |labels: &[&str], mode: &str| json!({"target": {"podName": "web"}, "labels": labels, "mode": mode});
        let listed = of(spec(&["Script", "Route"], "Profile"));
        assert_eq!(listed, ["a.requests.json.gz", "b.requests.json.gz"]);
        assert_eq!(of(spec(&["Script"], "Profile")), [""; 0]);
        assert_eq!(of(spec(&["Route"], "Snapshot")), [""; 0]);
    }
}
