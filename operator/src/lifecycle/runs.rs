//! The runs that a resident sampler must do now: a pure function of the existing requests.
//!
//! Invariant: a run follows from its request's status alone, so every replica offers the same run
//! until its end is known.

use phpprof_crds::{ProfileRequest, TargetStatus};
use phpprof_decide::limits::{AdminLimits, Deadlines};
use phpprof_decide::pod::SamplerDeadlines;

use crate::lifecycle::run::{run, subject};
use crate::lifecycle::status::is_running;
use crate::lifecycle::status::is_terminal;
use crate::sampler::injection::{PodRun, Subject};

/// The most runs in one answer. Others wait for the next one.
const MOST: usize = 16;

/// The sampler that asks.
#[derive(Clone, Copy, Debug)]
pub struct AskingSampler<'a> {
    pub pod_uid: &'a str,
    pub ephemeral_container_name: &'a str,
}

/// The runs for this sampler, those of the oldest request first.
pub fn runs<'a>(
    requests: impl Iterator<Item = &'a ProfileRequest>,
    asker: AskingSampler<'_>,
    limits: &AdminLimits,
) -> Vec<(Subject, PodRun)> {
    let mut found: Vec<(&ProfileRequest, &TargetStatus)> = requests
        .filter(|request| is_running(request))
        .flat_map(|request| targets(request).map(move |target| (request, target)))
        .filter(|(_, target)| is_of(target, asker))
        .collect();
    found.sort_by_key(|(request, target)| (accepted(request), target.object_key.clone()));
    let run = |(request, target): (&ProfileRequest, &TargetStatus)| {
        let start = accepted(request)?;
        let deadlines = Deadlines::new(start, request.spec.duration_seconds, limits);
        Some((
            subject(request, target),
            run(
                request,
                target,
                SamplerDeadlines {
                    not_after: deadlines.not_after,
                    upload_until: deadlines.last_upload,
                },
            ),
        ))
    };
    found.into_iter().take(MOST).filter_map(run).collect()
}

fn targets(request: &ProfileRequest) -> impl Iterator<Item = &TargetStatus> {
    let status = request.status.as_ref();
    status.into_iter().flat_map(|status| &status.targets)
}

fn accepted(request: &ProfileRequest) -> Option<jiff::Timestamp> {
    let status = request.status.as_ref();
    status.and_then(|status| status.start_time.as_ref().map(|time| time.0))
}

fn is_of(target: &TargetStatus, asker: AskingSampler<'_>) -> bool {
    target.resident
        && !is_terminal(target)
        && target.pod_uid == asker.pod_uid
        && target.ephemeral_container_name == asker.ephemeral_container_name
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use phpprof_crds::{ProfileRequestStatus, TargetState};
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

    const NAME: &str = "phpprof-resident-0";

    fn target(pod: &str) -> TargetStatus {
        TargetStatus {
            pod_uid: pod.into(),
            ephemeral_container_name: NAME.into(),
            resident: true,
            ..TargetStatus::default()
        }
    }

    /// A request that was accepted at that second, with these targets, each of which has the key
    /// `key`.
    fn accepted(key: &str, second: i64, targets: Vec<TargetStatus>) -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}, "durationSeconds": 30}));
        let keyed = |target| TargetStatus {
            object_key: key.into(),
            ..target
        };
        request.status = Some(ProfileRequestStatus {
            start_time: Some(Time(at(second))),
            targets: targets.into_iter().map(keyed).collect(),
            ..ProfileRequestStatus::default()
        });
        request
    }

    fn offered(requests: &[ProfileRequest]) -> Vec<String> {
        let asker = AskingSampler {
            pod_uid: "web",
            ephemeral_container_name: NAME,
        };
        let runs = runs(requests.iter(), asker, &AdminLimits::default());
        runs.into_iter().map(|(_, run)| run.object_key).collect()
    }

    #[test]
    fn a_pods_oldest_runs_are_offered_first() {
        let mut over = accepted("over", 0, vec![target("web")]);
        over.status.as_mut().unwrap().completion_time = Some(Time(at(9)));
        let settled = TargetStatus {
            state: TargetState::Failed,
            ..target("web")
        };
        let once = TargetStatus {
            resident: false,
            ..target("web")
        };
        let successor = TargetStatus {
            ephemeral_container_name: "phpprof-resident-1".into(),
            ..target("web")
        };
        let mut cancelled = accepted("cancelled", 3, vec![target("web")]);
        cancelled.spec.cancel = true;
        let requests = [
            accepted("second", 2, vec![target("other"), target("web")]),
            accepted("first", 1, vec![target("web")]),
            accepted("of another pod", 0, vec![target("other")]),
            accepted("settled", 0, vec![settled]),
            accepted("of one run", 0, vec![once]),
            accepted("of the successor", 0, vec![successor]),
            request(json!({"target": {"podName": "web"}})),
            over,
            // The sampler begins the run, learns that it was cancelled, and reports this.
            cancelled,
        ];
        assert_eq!(offered(&requests), ["first", "second", "cancelled"]);
    }

    #[test]
    fn an_answer_has_an_end() {
        let many: Vec<_> = (0..40)
            .map(|n| accepted(&format!("{n:02}"), n, vec![target("web")]))
            .collect();
        let offered = offered(&many);
        assert_eq!(offered.len(), MOST);
        assert_eq!(offered[0], "00");
    }

    #[test]
    fn a_run_may_begin_while_samplers_may_start() {
        let requests = [accepted("first", 0, vec![target("web")])];
        let asker = AskingSampler {
            pod_uid: "web",
            ephemeral_container_name: NAME,
        };
        let (_, run) = runs(requests.iter(), asker, &AdminLimits::default()).remove(0);
        assert_eq!((run.not_after, run.upload_until), (at(150), at(750)));
    }
}
