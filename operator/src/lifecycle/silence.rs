//! Whether a sampler that should have asked or uploaded was not heard from, and what its pod's spec
//! says about that.
//!
//! Pure. Invariant: it is said only where the relay is the sampler's only way and this operator
//! hears all of the relay; it is taken back when the sampler is heard.

use jiff::{SignedDuration, Timestamp};
use phpprof_crds::{ProfileRequest, TargetReason, TargetState, TargetStatus, UploadMode};
use phpprof_decide::limits::{AdminLimits, later};

use crate::lifecycle::observed::PodView;
use crate::lifecycle::status::told;

/// A sampler that reaches the relay asks every 25 seconds, and after an error every two.
const SILENT: SignedDuration = SignedDuration::from_secs(30);
/// How often the operator looks whether a silent sampler is heard.
const LOOK: SignedDuration = SignedDuration::from_secs(10);

/// When the target's sampler is silent, if nothing is heard before; `None` if the operator cannot
/// know.
pub fn silent_from(
    request: &ProfileRequest,
    target: &TargetStatus,
    since: Option<Timestamp>,
    limits: &AdminLimits,
) -> Option<Timestamp> {
    let by_relay_only =
        target.resident || request.spec.upload_mode == UploadMode::Relay || !limits.store_signs;
    let may_be_heard = limits.hears_all && target.state == TargetState::Sampling && by_relay_only;
    // A resident sampler asks again after this time if its poll was not held open.
    let longer = if target.resident {
        limits.resident_asks
    } else {
        SignedDuration::ZERO
    };
    let since = since.filter(|_| may_be_heard)?;
    Some(later(later(since, SILENT), longer))
}

/// Says in the target that its sampler is silent, or takes that back. Returns when to look again.
pub fn mark(
    target: &mut TargetStatus,
    pod: Option<&PodView>,
    now: Timestamp,
    silent_from: Option<Timestamp>,
) -> Option<Timestamp> {
    let Some(silent_from) = silent_from else {
        clear(target);
        return None;
    };
    if now < silent_from {
        clear(target);
        return Some(silent_from);
    }
    let trouble = pod.and_then(|pod| pod.names_trouble.as_deref());
    let predicted = trouble.map_or_else(String::new, |why| format!("; {why}"));
    let found = format!(
        "the sampler runs, but for {} s the operator's relay has heard nothing from it{predicted}",
        SILENT.as_secs()
    );
    target.reason = Some(TargetReason::NotHeardFrom);
    target.message = told(&found, Some(TargetReason::NotHeardFrom.remedy()));
    Some(later(now, LOOK))
}

/// The sampler is heard, or something else is the matter now.
pub fn clear(target: &mut TargetStatus) {
    if target.reason == Some(TargetReason::NotHeardFrom) {
        target.reason = None;
        target.message.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{at, pod, request};

    fn target() -> TargetStatus {
        TargetStatus {
            state: TargetState::Sampling,
            ..TargetStatus::default()
        }
    }

    fn hears() -> AdminLimits {
        AdminLimits {
            hears_all: true,
            store_signs: false,
            ..AdminLimits::default()
        }
    }

    fn spec(mode: &str) -> ProfileRequest {
        request(json!({"target": {"podName": "web"}, "uploadMode": mode}))
    }

    #[test]
    fn only_a_relay_only_sampler_can_be_silent() {
        let check =
            |mode: &str, target: &TargetStatus, limits: &AdminLimits, expected: Option<i64>| {
                let found = silent_from(&spec(mode), target, Some(at(10)), limits);
                assert_eq!(found, expected.map(at), "{mode}");
            };
        let signs = AdminLimits {
            store_signs: true,
            ..hears()
        };
        let resident = TargetStatus {
            resident: true,
            ..target()
        };
        check("Auto", &target(), &hears(), Some(40));
        check("Auto", &target(), &signs, None);
        check("Relay", &target(), &signs, Some(40));
        check("Auto", &resident, &signs, Some(70));
        let deaf = AdminLimits {
            hears_all: false,
            ..hears()
        };
        check("Auto", &target(), &deaf, None);
        let pending = TargetStatus::default();
        check("Auto", &pending, &hears(), None);
        assert_eq!(silent_from(&spec("Auto"), &target(), None, &hears()), None);
    }

    #[test]
    fn silence_is_reported_with_its_cause_and_withdrawn() {
        let mut target = target();
        let mut pod = pod("web");
        assert_eq!(
            mark(&mut target, Some(&pod), at(39), Some(at(40))),
            Some(at(40))
        );
        assert_eq!(target.reason, None);
        pod.names_trouble = Some("the pod's dnsPolicy is Default".into());
        assert_eq!(
            mark(&mut target, Some(&pod), at(40), Some(at(40))),
            Some(at(50))
        );
        assert_eq!(target.reason, Some(TargetReason::NotHeardFrom));
        let message = target.message.clone();
        assert!(
            message.contains("for 30 s the operator's relay has heard nothing from it; the pod's dnsPolicy is Default. "),
            "{message}"
        );
        // The status is not written again while nothing changes.
        mark(&mut target, Some(&pod), at(99), Some(at(40)));
        assert_eq!(target.message, message);
        mark(&mut target, Some(&pod), at(100), Some(at(129)));
        assert_eq!((target.reason, target.message.as_str()), (None, ""));
    }

    #[test]
    fn another_reason_is_left_alone() {
        let mut target = target();
        target.reason = Some(TargetReason::TargetExited);
        clear(&mut target);
        assert_eq!(target.reason, Some(TargetReason::TargetExited));
    }
}
