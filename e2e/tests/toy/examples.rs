//! The API server accepts each file of `examples/`, and a restricted namespace admits their pods.

use anyhow::{Context as _, Result, ensure};
use e2e::examples::{files, job, objects};
use e2e::{Fixture, RESTRICTED, run, shared};
use serde_json::{Value, json};

<<<<<<< HEAD:e2e/tests/toy/examples.rs
=======
/// The files of a folder of examples.
pub(crate) fn files(folder: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let entries = std::fs::read_dir(root.join(folder))?;
    let mut files: Vec<_> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// The objects of a file, moved to another namespace.
pub(crate) fn objects(file: &Path, namespace: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file)?;
    let text = text.replace("namespace: shop", &format!("namespace: {namespace}"));
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    Ok(documents.collect::<Result<_, _>>()?)
}

/// The spec of the Job that an object contains. This cluster does not know Argo's own kinds, so
/// only their Jobs are tested.
pub(crate) fn job(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Job" => object.pointer("/spec"),
        "CronJob" => object.pointer("/spec/jobTemplate/spec"),
        "AnalysisTemplate" => object.pointer("/spec/metrics/0/provider/job/spec"),
        _ => None,
    }
}

>>>>>>> 313ffba (Fill all comments that are wider than the code):e2e/tests/cluster/examples.rs
async fn dry_run(object: &Value) -> Result<()> {
    let create = ["create", "--dry-run=server", "--filename=-"];
    let said = run("kubectl", &create, object.to_string().as_bytes()).await;
    said.with_context(|| object.to_string())?;
    Ok(())
}

async fn try_object(fixture: &Fixture, object: &Value) -> Result<()> {
    if object["kind"] != "AnalysisTemplate" {
        dry_run(object).await?;
    }
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
        let mut count = 0;
        for folder in ["requests", "schedules", "argo"] {
            for file in files(folder)? {
                // These values are for the chart: presets.rs.
                if file.ends_with("schedules/values.yaml") {
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
        ensure!(count >= 15, "{count} objects");
        Ok(())
    })
}
