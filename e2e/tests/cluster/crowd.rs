//! Many large requests of one user: they use little memory of the operator, and do not affect other
//! requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::status;
use e2e::{ENABLED, Fixture, NOT_ENABLED, exclusive, operator, pods, poll, release};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use phpprof_crds::{ProfileRequest, ProfileRequestStatus};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Requests of 1.1 MiB each. This many once made the operator run out of memory at each start.
const REQUESTS: usize = 70;
const LABELS: usize = 15_000;
const AT_ONCE: usize = 4;
/// Complete requests that are kept, as a week of schedules leaves them.
const RETAINED: usize = 2000;
const WORKERS: usize = 20;
const WEEK: i32 = 604_800;

fn labels() -> BTreeMap<String, String> {
    let label = |number: usize| (format!("label-{number:05}"), "x".repeat(63));
    (0..LABELS).map(label).collect()
}

/// Creates requests with metadata that no schema bounds. It creates some at a time, because the API
/// server takes a second for each.
async fn create_requests(fixture: &Fixture, count: usize) -> Result<()> {
    let object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"generateName": "large-", "labels": labels()}, "spec": {"target": {"podName": "web"}},
    });
    let path = ProfileRequest::url_path(&(), Some(&fixture.namespace));
    let body = object.to_string();
    let create = async || {
        let request = http::Request::post(&path).header("content-type", "application/json");
        // The answer is not read: it has all labels, and their names twice.
        fixture
            .client
            .request_text(request.body(body.clone().into_bytes())?)
            .await?;
        anyhow::Ok(())
    };
    let all = stream::iter(0..count).map(|_| create());
    all.buffer_unordered(AT_ONCE).try_collect().await
}

fn web() -> Value {
    json!({"target": {"podName": "web"}, "durationSeconds": 1})
}

/// The status of a complete request for five pods, made from one for one pod.
fn of_five_pods(mut status: ProfileRequestStatus) -> Result<Value> {
    let target = status.targets.pop().context("no target")?;
    status.targets = vec![target; 5];
    Ok(json!({"status": status}))
}

/// Creates a request that is complete.
async fn retain(
    requests: &Api<ProfileRequest>,
    metadata: Value,
    seconds: i32,
    status: &Value,
) -> Result<()> {
    let mut spec = web();
    spec["ttlSecondsAfterFinished"] = json!(seconds);
    let object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": metadata, "spec": spec,
    });
    let request = serde_json::from_value(object)?;
    let made = requests.create(&PostParams::default(), &request).await?;
    let (name, params) = (made.name_any(), PatchParams::default());
    let status = Patch::Merge(status);
    requests.patch_status(&name, &params, &status).await?;
    Ok(())
}

async fn retain_all(requests: &Api<ProfileRequest>, status: &Value) -> Result<()> {
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (requests, status) = (requests.clone(), status.clone());
        workers.spawn(async move {
            for _ in 0..RETAINED / WORKERS {
                let metadata = json!({"generateName": "retained-"});
                retain(&requests, metadata, WEEK, &status).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    // The operator deletes this one as soon as it reads the list.
    retain(requests, json!({"name": "the-last"}), 0, status).await
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn huge_requests_do_no_harm() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            let unbounded = json!({"target": {"selector": {"matchLabels": labels()}}});
            let refused = fixture
                .apply(unbounded)
                .await
                .err()
                .context("not refused")?;
            ensure!(
                format!("{refused:#}").contains("must have at most 64 items"),
                "{refused:#}"
            );
            fixture
                .beside(NOT_ENABLED, async |crowd| {
                    create_requests(crowd, REQUESTS).await?;
                    // A new operator reads all of them at once.
                    release::renew().await?;
                    let operator = release::operator(&fixture.client).await?;
                    let operator = operator.context("no operator")?;
                    let request = fixture
                        .completed(json!({"target": {"podName": "web"}, "durationSeconds": 1}))
                        .await?;
                    ensure!(status(&request).succeeded == 1, "{}", request.name_any());
                    operator::keeps_within_its_memory(fixture, &operator).await
                })
                .await
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_start_with_2000_requests_fits_memory() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            let completed = fixture.completed(web()).await?;
            let over = of_five_pods(status(&completed))?;
            fixture
                .beside(ENABLED, async |crowd| {
                    let requests: Api<ProfileRequest> = crowd.api();
                    // No operator may change their status meanwhile.
                    release::scale(0).await?;
                    retain_all(&requests, &over).await?;
                    release::scale(1).await?;
                    let operator = release::operator(&fixture.client).await?;
                    let operator = operator.context("no operator")?;
                    fixture.completed(web()).await?;
                    let limit = Duration::from_secs(30);
                    poll("the operator has looked at all", limit, async || {
                        let last = requests.get_opt("the-last").await?;
                        Ok(last.is_none().then_some(()))
                    })
                    .await?;
                    let left = requests.list_metadata(&ListParams::default()).await?;
                    ensure!(
                        left.items.len() == RETAINED,
                        "{} are left",
                        left.items.len()
                    );
                    operator::keeps_within_a_part_of_its_memory(fixture, &operator, 2).await
                })
                .await
        })
    }
}
