//! The chart with the values of each example: an API server takes every object. Those for this kind
//! of cluster are also installed.
//!
//! `s3-compatible.yaml` has no test of its own, because most tests install the chart with it
//! (`e2e::release`). The cluster has no cloud, so the values for AWS, Google Cloud and Azure are
//! not installed.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e::{Fixture, NOT_ENABLED, release, run, shared};

use e2e::examples::files;

/// The values that an example has for two namespaces, with this test's.
fn values(file: &Path, here: &str, other: &str) -> Result<String> {
    let text = std::fs::read_to_string(file)?;
    let text = text.replace("[shop, blog]", &format!("[{here}, {other}]"));
    Ok(text.replace("namespace: shop", &format!("namespace: {here}")))
}

/// Sends what the chart renders to the API server, which admits and validates it, and stores
/// nothing. Server-side, because the kinds are there already.
async fn objects_taken(file: &Path, here: &Fixture, other: &Fixture) -> Result<usize> {
    let values = values(file, &here.namespace, &other.namespace)?;
    let template = [
        "template",
        "preset",
        &release::chart(),
        "--namespace",
        &here.namespace,
        release::KUBE_VERSION,
        "--values=-",
    ];
    let objects = run("helm", &template, values.as_bytes()).await?;
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--output=name",
        "--filename=-",
    ];
    let taken = run("kubectl", &apply, &objects).await?;
    Ok(String::from_utf8(taken)?.lines().count())
}

#[test]
fn the_api_server_accepts_every_values_example() -> Result<()> {
    shared(NOT_ENABLED, async |here| {
        let other = async |other: &Fixture| {
            let of_schedules = files("schedules")?
                .into_iter()
                .filter(|file| file.ends_with("values.yaml"));
            let all: Vec<_> = files("values")?.into_iter().chain(of_schedules).collect();
            ensure!(all.len() >= 6, "{all:?}");
            for file in all {
                let taken = objects_taken(&file, here, other).await;
                let taken = taken.with_context(|| file.display().to_string())?;
                ensure!(taken >= 15, "{}: {taken} objects", file.display());
            }
            Ok(())
        };
        here.beside(NOT_ENABLED, other).await
    })
}
