//! The API server accepts each file of `examples/`, and a restricted namespace admits their pods.

use anyhow::{Context as _, Result, ensure};
use e2e::examples::{files, job, objects};
use e2e::{Fixture, RESTRICTED, rollouts, run, shared};
use serde_json::{Value, json};

/// Values of the chart (presets.rs), rules of Prometheus (tests/chart/triggers.rs), and the
/// configuration of Alertmanager (e2e::alerting).
const OF_OTHERS: [&str; 3] = [
    "schedules/values.yaml",
    "alerts/rules.yaml",
    "alerts/alertmanager.yaml",
];

async fn dry_run(object: &Value) -> Result<()> {
    let create = [
        "create",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
    ];
    let said = run("kubectl", &create, object.to_string().as_bytes()).await;
    said.with_context(|| object.to_string())?;
    Ok(())
}

async fn try_object(fixture: &Fixture, object: &Value) -> Result<()> {
    dry_run(object).await?;
    let Some(job) = job(object) else {
        return Ok(());
    };
    let metadata = json!({"name": "example", "namespace": fixture.namespace});
    let whole = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job});
    dry_run(&whole).await?;
    // Pod Security is enforced on the pod itself. The file's objects are not created, so the pod's
    // service account does not exist either.
    let mut pod = job["template"]["spec"].clone();
    pod["serviceAccountName"] = json!("default");
    dry_run(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})).await
}

#[test]
fn the_api_server_takes_every_example() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        rollouts::install_kinds().await?;
        let mut count = 0;
        for folder in ["requests", "schedules", "argo", "flagger", "alerts"] {
            for file in files(folder)? {
                if OF_OTHERS.iter().any(|other| file.ends_with(other)) {
                    continue;
                }
                for object in objects(&file, &fixture.namespace)? {
                    try_object(fixture, &object)
                        .await
                        .with_context(|| file.display().to_string())?;
                    count += 1;
                }
            }
        }
        ensure!(count >= 21, "{count} objects");
        Ok(())
    })
}
