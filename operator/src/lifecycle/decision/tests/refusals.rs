//! Requests that are refused before anything is started.

use super::*;

#[test]
fn a_namespace_without_consent_is_refused_with_remedy() {
    let observed = asks(Admission {
        namespace_enabled: false,
        ..crate::testing::admission(vec![pod("a")])
    });
    check_refusal(
        spec(),
        &AdminLimits::default(),
        &observed,
        "NamespaceNotEnabled: profiling is not enabled in this namespace. Enable it: kubectl label namespace shop phpprof.dev/profiling=enabled",
    );
    let open = AdminLimits {
        namespace_opt_in: false,
        ..AdminLimits::default()
    };
    assert_eq!(
        short(&decide(at(0), &request(spec()), &observed, &open)),
        "Starting; ; now"
    );
}

#[test]
fn the_administrators_limits_are_kept() {
    let strict = AdminLimits {
        duration_seconds: 20,
        samples_per_second: 50,
        ..AdminLimits::default()
    };
    let mut slow = spec();
    slow["durationSeconds"] = json!(20);
    check_refusal(
        spec(),
        &strict,
        &admission(&["a"]),
        "DurationOverLimit: durationSeconds is 30, but the administrator allows at most 20. Set a lower durationSeconds (--duration), or raise limits.durationSeconds in the chart.",
    );
    check_refusal(
        slow,
        &strict,
        &admission(&["a"]),
        "RateOverLimit: samplesPerSecond is 99, but the administrator allows at most 50. Set a lower samplesPerSecond (--samples-per-second), or raise limits.samplesPerSecond in the chart.",
    );
}

#[test]
fn an_empty_targets_refusal_keeps_the_resolvers_words() {
    let matched = Err(RequestRefusal {
        reason: RequestReason::NoPodsMatched,
        message: "no pod matches".into(),
    });
    let observed = asks(Admission {
        matched,
        ..crate::testing::admission(Vec::new())
    });
    check_refusal(
        spec(),
        &AdminLimits::default(),
        &observed,
        "NoPodsMatched: no pod matches. Compare the target with kubectl get pods --show-labels",
    );
}
