//! The examples as their readers use them: requests are sampled, schedules make requests, and hooks
//! end well although a profile fails.
//!
//! Their objects are applied as they are, except for namespace, image and length. Argo's own kinds
//! are not on the cluster, so the Jobs of the hooks are started by the test.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{self, image, restricted};
use e2e::requests::{holds, status};
use e2e::{Fixture, RESTRICTED, kubectl, poll, release, run, shared};
use kube::ResourceExt as _;
use kube::api::ListParams;
use phpprof_crds::{ProfileRequest, condition};
use serde_json::{Value, json};

use e2e::examples::{files, job, objects};

/// Instead of half a minute and more.
const SECONDS: u64 = 2;
/// The time for a pod, and for a request that it makes.
const SOON: Duration = Duration::from_secs(90);

/// The objects of an example, with this run's image and a shorter profile.
fn shorter(file: &Path, fixture: &Fixture) -> Result<Vec<Value>> {
    let objects = objects(file, &fixture.namespace)?;
    let shorter = |object: Value| {
        let text = object.to_string();
        let text = text.replace("--duration=30s", &format!("--duration={SECONDS}s"));
        let text = text.replace("--duration=60s", &format!("--duration={SECONDS}s"));
        let text = text.replace(
            &format!("phpprof.dev/kubectl-phpprof:{}", env!("CARGO_PKG_VERSION")),
            &image("kubectl-phpprof"),
        );
        let mut object: Value = serde_json::from_str(&text)?;
        if let Some(seconds) = object["spec"]["durationSeconds"].as_u64() {
            object["spec"]["durationSeconds"] = json!(seconds.min(SECONDS));
        }
        Ok(object)
    };
    objects.into_iter().map(shorter).collect()
}

/// Creates an object, and returns it with its name.
async fn create(object: &Value) -> Result<Value> {
    let create = ["create", "--output=json", "--filename=-"];
    let created = run("kubectl", &create, object.to_string().as_bytes()).await;
    let created = created.with_context(|| object.to_string())?;
    Ok(serde_json::from_slice(&created)?)
}

async fn requests(fixture: &Fixture) -> Result<Vec<ProfileRequest>> {
    let all = fixture.api().list(&ListParams::default()).await?;
    Ok(all.items)
}

#[test]
fn the_requests_of_the_examples_are_profiled() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        fixture
            .deploy("web", 1, restricted(pods::php("web")))
            .await?;
        let mut made = Vec::new();
        for file in files("requests")? {
            for object in shorter(&file, fixture)? {
                made.push(serde_json::from_value(create(&object).await?)?);
            }
        }
        ensure!(made.len() >= 4, "{} requests", made.len());
        for request in &made {
            let ended = fixture.ended(request).await?;
            holds(&ended, condition::COMPLETE)?;
            ensure!(status(&ended).targets.len() == 1, "{:?}", status(&ended));
        }
        Ok(())
    })
}

/// Runs a CronJob once instead of waiting for its time, until its request is there.
async fn runs(fixture: &Fixture, cronjob: &str) -> Result<()> {
    let before = requests(fixture).await?.len();
    let from = format!("--from=cronjob/{cronjob}");
    let here = ["--namespace", &fixture.namespace, "create", "job"];
    kubectl(&[&here[..], &[&format!("{cronjob}-now"), &from]].concat()).await?;
    poll("a request of the schedule", SOON, async || {
        Ok((requests(fixture).await?.len() > before).then_some(()))
    })
    .await
}

#[test]
fn the_schedules_of_the_examples_make_requests() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        let all = files("schedules")?;
        for file in all.iter().filter(|file| file.ends_with("cronjob.yaml")) {
            for object in shorter(file, fixture)? {
                create(&object).await?;
            }
        }
        runs(fixture, "profile-web").await?;
        let values = all.iter().find(|file| file.ends_with("values.yaml"));
        let values = std::fs::read_to_string(values.context("no values")?)?;
        let values = values.replace(
            "namespace: shop",
            &format!("namespace: {}", fixture.namespace),
        );
        let plugin = format!("images.plugin={}", image("kubectl-phpprof"));
        let template = [
            "template",
            "example",
            &release::chart(),
            "--namespace",
            &fixture.namespace,
            release::KUBE_VERSION,
            "--show-only=templates/schedules.yaml",
            "--values=-",
            "--set",
            &plugin,
        ];
        let objects = run("helm", &template, values.as_bytes()).await?;
        run("kubectl", &["apply", "--filename=-"], &objects).await?;
        runs(fixture, "example-web").await
    })
}

/// Creates the account and the rights of a file's hooks, and returns the Jobs of the hooks.
async fn hooks(fixture: &Fixture, name: &str) -> Result<Vec<Value>> {
    let all = files("argo")?;
    let file = all.iter().find(|file| file.ends_with(name));
    let mut jobs = Vec::new();
    for object in shorter(file.context("no such example")?, fixture)? {
        if let Some(spec) = job(&object) {
            let metadata = json!({"generateName": "hook-", "namespace": fixture.namespace});
            jobs.push(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}));
        } else {
            run(
                "kubectl",
                &["apply", "--filename=-"],
                object.to_string().as_bytes(),
            )
            .await?;
        }
    }
    Ok(jobs)
}

/// Runs a hook's Job to its good end, and returns the condition that its request has then.
async fn ends_well(fixture: &Fixture, job: &Value) -> Result<String> {
    let before: Vec<String> = requests(fixture)
        .await?
        .iter()
        .map(|it| it.name_any())
        .collect();
    let created = create(job).await?;
    let name = created["metadata"]["name"].as_str().context("no name")?;
    let here = ["--namespace", &fixture.namespace, "wait", "--timeout=90s"];
    let complete = ["--for=condition=Complete", &format!("job/{name}")];
    kubectl(&[&here[..], &complete].concat()).await?;
    let now = requests(fixture).await?;
    let mut own = now.iter().filter(|it| !before.contains(&it.name_any()));
    let request = own.next().context("the hook made no request")?;
    let ended = fixture.ended(request).await?;
    let found = [condition::COMPLETE, condition::FAILED]
        .into_iter()
        .find(|kind| holds(&ended, kind).is_ok());
    Ok(found.context("neither complete nor failed")?.to_owned())
}

#[test]
fn a_hook_succeeds_even_if_the_profile_fails() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        let syncs = hooks(fixture, "cd-hooks.yaml").await?;
        let [before, after] = &syncs[..] else {
            anyhow::bail!("{} Jobs", syncs.len());
        };
        // There is no Deployment yet, and no kind Rollout.
        ensure!(ends_well(fixture, before).await? == condition::FAILED);
        fixture
            .deploy("web", 1, restricted(pods::php("web")))
            .await?;
        ensure!(ends_well(fixture, after).await? == condition::COMPLETE);
        Ok(())
    })
}

/// Creates a ReplicaSet of one pod, and waits until that is ready.
async fn replica_set(fixture: &Fixture, name: &str) -> Result<()> {
    let labels = json!({"app": name});
    let pod = restricted(pods::busy_php(name));
    create(&json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": fixture.namespace},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }))
    .await?;
    let here = ["--namespace", &fixture.namespace, "wait", "--timeout=90s"];
    let ready = [
        "--for=jsonpath={.status.readyReplicas}=1",
        &format!("rs/{name}"),
    ];
    kubectl(&[&here[..], &ready].concat()).await.map(drop)
}

/// What a Job's container said, once it has ended well or not.
async fn said_by(fixture: &Fixture, job: &str) -> Result<String> {
    let here = ["--namespace", fixture.namespace.as_str()];
    let get = ["get", "job", job, "--output=jsonpath={.status.conditions}"];
    poll("the Job's end", SOON, async || {
        let conditions = kubectl(&[&here[..], &get].concat()).await?;
        let has_ended = conditions.contains("Complete") || conditions.contains("Failed");
        Ok(has_ended.then_some(()))
    })
    .await?;
    kubectl(&[&here[..], &["logs", &format!("job/{job}")]].concat()).await
}

/// As Argo Rollouts starts it: with the hashes of two ReplicaSets in place of its arguments. Both
/// run the same, and chance may make one slower: then the Job fails.
#[test]
fn a_canarys_job_compares_two_replica_sets() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        for hash in ["stable", "canary"] {
            replica_set(fixture, &format!("web-{hash}")).await?;
        }
        let jobs = hooks(fixture, "rollouts-analysis.yaml").await?;
        let [job] = &jobs[..] else {
            anyhow::bail!("{} Jobs", jobs.len());
        };
        let text = job.to_string();
        let text = text.replace("{{args.stable-hash}}", "stable");
        let text = text.replace("{{args.canary-hash}}", "canary");
        let created = create(&serde_json::from_str(&text)?).await?;
        let name = created["metadata"]["name"].as_str().context("no name")?;
        let said = said_by(fixture, name).await?;
        let is_verdict = ["Worse: ", "Better: ", "No change: ", "Inconclusive: "];
        ensure!(is_verdict.iter().any(|word| said.contains(word)), "{said}");
        let requests = requests(fixture).await?;
        ensure!(requests.len() == 2, "{} requests", requests.len());
        for request in &requests {
            holds(request, condition::COMPLETE)?;
        }
        Ok(())
    })
}
