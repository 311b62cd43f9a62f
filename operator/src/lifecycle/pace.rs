//! How often a running request is reconciled. Events of many pods at about the same time become one
//! change of the status.

use jiff::{SignedDuration, Timestamp};
use phpprof_crds::ProfileRequest;
use phpprof_decide::limits::later;

use crate::lifecycle::status::is_terminal;

/// Between two reconciliations, for each pod that is not done.
const PER_POD: SignedDuration = SignedDuration::from_millis(100);
/// After this many writes of the status, each further write makes the pause longer.
const SOON: usize = 2;
const LONGEST: SignedDuration = SignedDuration::from_secs(3);

/// How often this operator has written a request's status, and when it did so last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusWrites {
    pub count: usize,
    pub last: Timestamp,
}

/// Until when the next reconciliation waits, if this many pods are verified but not yet written. It
/// does not wait after a change of the spec, after the last pod's result, or later.
pub fn wait_until(
    request: &ProfileRequest,
    writes: StatusWrites,
    verified: usize,
) -> Option<Timestamp> {
    let status = request.status.as_ref()?;
    let open = status.targets.iter().filter(|target| !is_terminal(target));
    let open = open.count();
    let is_news = status.observed_generation != request.metadata.generation;
    if is_news || open <= verified || status.completion_time.is_some() {
        return None;
    }
    let times = open * (writes.count.saturating_sub(SOON) + 1);
    let pause = PER_POD.saturating_mul(i32::try_from(times).unwrap_or(i32::MAX));
    Some(later(writes.last, pause.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

    #[track_caller]
    fn check(open: usize, verified: usize, count: usize, generation: i64, expected: Option<i64>) {
        let mut request = request(json!({"target": {"podName": "web"}}));
        let target = |state: &str| json!({"podName": "web", "podUID": "u", "containerName": "fpm", "containerID": "c", "ephemeralContainerName": "e", "state": state});
        let mut targets = vec![target("Sampling"); open];
        targets.push(target("Uploaded"));
        let status = json!({"observedGeneration": generation, "targets": targets});
        request.status = serde_json::from_value(status).expect("a status");
        let writes = StatusWrites { count, last: at(0) };
        let waits = wait_until(&request, writes, verified);
        let waits = waits.map(|until| until.duration_since(at(0)).as_millis());
        assert_eq!(waits.map(i64::try_from), expected.map(Ok));
    }

    #[test]
    fn open_pods_and_writes_mean_fewer_looks() {
        check(1, 0, 1, 1, Some(100));
        check(5, 0, 2, 1, Some(500));
        check(5, 4, 4, 1, Some(1500));
        check(100, 0, 1, 1, Some(3000));
    }

    #[test]
    fn spec_news_and_the_end_are_not_delayed() {
        check(100, 0, 9, 0, None);
        check(5, 5, 9, 1, None);
        check(0, 0, 9, 1, None);
    }
}
