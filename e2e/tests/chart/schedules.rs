//! What a schedule has where its values say nothing.

use anyhow::{Result, ensure};

use super::{SCHEDULE, template};

#[test]
fn omitted_schedule_fields_have_defaults() -> Result<()> {
    let more = [
        "schedules[0].request.target.workloadRef.kind=Deployment",
        "schedules[0].request.target.workloadRef.apiVersion=apps/v1",
    ];
    let (accepted, text) = template(&[&SCHEDULE, &more[..]].concat())?;
    ensure!(accepted, "{text}");
    for line in [
        "generateName: web-",
        "phpprof.dev/schedule: web",
        "ttlSecondsAfterFinished: 86400",
        "concurrencyPolicy: Forbid",
        "successfulJobsHistoryLimit: 1",
        "automountServiceAccountToken: false",
        "verbs: [create, profile]",
    ] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    let zero = ["schedules[0].request.ttlSecondsAfterFinished=0"];
    let (_, text) = template(&[&SCHEDULE, &more[..], &zero].concat())?;
    ensure!(text.contains("ttlSecondsAfterFinished: 0"), "{text}");
    let (_, without) = template(&[])?;
    ensure!(!without.contains("CronJob") && !without.contains("-schedules"));
    Ok(())
}
