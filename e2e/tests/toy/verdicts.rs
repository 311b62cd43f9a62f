//! Verdicts over HTTP: who may ask, what is started, and what the real controller of Argo Rollouts
//! makes of the answers. The toy's samplers store the files of releases whose speed is known.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::comparisons::verdict_of;
use e2e::examples::{files, objects};
use e2e::release::{self, Values};
use e2e::toy::release::ANNOTATION;
use e2e::{Fixture, kubectl, pods, poll, rollouts, run, shared_on};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use phpprof_crds::{ComparisonVerdict, ProfileComparison};
use reqwest::{Client, Method};
use serde_json::{Value, json};

const WITH_VERDICTS: Values = &["verdict.tokensSecret=phpprof-verdict"];
/// The times of `Cart::total` in a request of 150 ms more.
const STABLE: &str = "10";
const SLOWER: &str = "40";
/// Longer than a run of three seconds takes on a busy machine.
const VERDICT: Duration = Duration::from_secs(60);
const ROLLOUT: Duration = Duration::from_secs(120);
const MOUNTED: Duration = Duration::from_secs(20);

async fn apply(object: &Value, manager: &str) -> Result<()> {
    let manager = format!("--field-manager={manager}");
    let apply = ["apply", "--server-side", &manager, "--filename=-"];
    let said = run("kubectl", &apply, object.to_string().as_bytes()).await;
    said.map(drop).with_context(|| object.to_string())
}

/// The operator's port of the results, and a token of the fixture's namespace.
struct VerdictDoor {
    address: String,
    namespace: String,
    token: String,
    client: Client,
}

impl VerdictDoor {
    /// Gives the namespace a token, and waits until it opens.
    async fn open(fixture: &Fixture) -> Result<Self> {
        let namespace = fixture.namespace.clone();
        let token = format!("token-of-{namespace}-with-some-length");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {&namespace: token},
            "metadata": {"name": "phpprof-verdict", "namespace": release::NAMESPACE},
        });
        apply(&secret, &namespace).await?;
        let operator = release::operator(&fixture.client).await?;
        let status = operator.and_then(|pod| pod.status);
        let address = status.and_then(|status| status.pod_ip).context("no pod")?;
        let door = Self {
            address: format!("{address}:8080"),
            namespace,
            token,
            client: Client::new(),
        };
        poll("the token opens", MOUNTED, async || {
            let (status, _) = door.ask(Method::GET, "none", &door.token, None).await?;
            Ok((status == 404).then_some(()))
        })
        .await?;
        Ok(door)
    }

    /// Asks about a comparison of the namespace, with a query.
    async fn ask(
        &self,
        method: Method,
        what: &str,
        token: &str,
        payload: Option<Value>,
    ) -> Result<(u16, Value)> {
        let url = format!("http://{}/verdict/{}/{what}", self.address, self.namespace);
        let mut request = self.client.request(method, url).bearer_auth(token);
        if let Some(payload) = payload {
            request = request.body(payload.to_string());
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        Ok((status, serde_json::from_str(&answer.text().await?)?))
    }
}

/// A pod of a release with this speed.
fn pod_of(name: &str, cart: &str) -> Value {
    let mut pod = pods::php(name);
    pod["metadata"]["annotations"] = json!({ANNOTATION: cart});
    pod
}

fn side(name: &str) -> Value {
    json!({"target": {"podName": name, "containerName": "fpm"}})
}

async fn runs(fixture: &Fixture) -> Result<Vec<ProfileComparison>> {
    let api: Api<ProfileComparison> = fixture.api();
    let all = api.list(&ListParams::default()).await?;
    Ok(all
        .items
        .into_iter()
        .filter(|it| !it.spec.template)
        .collect())
}

#[test]
fn a_token_starts_one_run_for_each_release() -> Result<()> {
    shared_on(WITH_VERDICTS, async |fixture| {
        let pods = [pod_of("stable", STABLE), pod_of("canary", SLOWER)];
        fixture.start(&pods).await?;
        let spec = json!({
            "before": side("stable"), "after": side("canary"), "durationSeconds": 3, "template": true,
        });
        fixture.compare("web", &spec).await?;
        let door = VerdictDoor::open(fixture).await?;
        for token in ["", "token-of-nobody-with-some-length"] {
            for method in [Method::GET, Method::PUT, Method::POST] {
                let (status, _) = door.ask(method, "web?run=v2", token, None).await?;
                ensure!(status == 401, "{status} for {token:?}");
            }
        }
        ensure!(runs(fixture).await?.is_empty(), "a run without a token");
        let (status, said) = door
            .ask(Method::GET, "web?run=v2", &door.token, None)
            .await?;
        ensure!(status == 404, "{status}: {said}");
        let flagger = json!({"name": "web", "phase": "Progressing", "checksum": "v2"});
        let asked = poll("the verdict", VERDICT, async || {
            let payload = Some(flagger.clone());
            let (status, _) = door.ask(Method::POST, "web", &door.token, payload).await?;
            ensure!(matches!(status, 425 | 409), "{status}");
            Ok((status == 409).then_some(()))
        });
        asked.await?;
        let (status, said) = door
            .ask(Method::PUT, "web?run=v2", &door.token, None)
            .await?;
        ensure!(
            status == 200 && said["verdict"] == "Worse" && said["phase"] == "Complete",
            "{status}: {said}"
        );
        // 160 and 190 ms.
        let percent = said["increase"]["percent"].as_f64().unwrap_or_default();
        ensure!((15.0..23.0).contains(&percent), "{said}");
        let text = said.to_string();
        ensure!(
            !text.contains("Cart") && !text.contains(&door.token),
            "{said}"
        );
        let runs = runs(fixture).await?;
        let [run] = runs.as_slice() else {
            anyhow::bail!("{} runs", runs.len());
        };
        ensure!(
            run.name_any() == "web-v2"
                && verdict_of(run).verdict == Some(ComparisonVerdict::Worse)
                && run.owner_references().iter().any(|it| it.name == "web"),
            "{run:?}"
        );
        let reason = kubectl(&["--namespace", &fixture.namespace, "get", "pcmp", "web"]).await?;
        ensure!(reason.contains("Template"), "{reason}");
        Ok(())
    })
}

/// What the API server says if the operator's account creates a comparison with these owners.
async fn created_by_operator(fixture: &Fixture, owners: Value) -> Result<String> {
    let object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
        "metadata": {"name": "web-v2", "namespace": fixture.namespace, "ownerReferences": owners},
        "spec": {"before": side("stable"), "after": side("canary")},
    });
    let account = format!(
        "--as=system:serviceaccount:{}:phpprof-operator",
        release::NAMESPACE
    );
    let create = ["create", "--dry-run=server", &account, "--filename=-"];
    let said = run("kubectl", &create, object.to_string().as_bytes()).await;
    Ok(said
        .err()
        .map_or_else(String::new, |error| error.to_string()))
}

#[test]
fn the_operator_creates_only_runs() -> Result<()> {
    shared_on(WITH_VERDICTS, async |fixture| {
        let owner = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison", "name": "web", "uid": "1", "controller": true,
        });
        let mut pod = owner.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        let mut other = owner.clone();
        other["controller"] = json!(false);
        for owners in [json!([]), json!([pod]), json!([other])] {
            let said = created_by_operator(fixture, owners.clone()).await?;
            ensure!(
                said.contains(
                    "the operator may create only comparisons that belong to a ProfileComparison"
                ),
                "{owners}: {said:?}"
            );
        }
        let said = created_by_operator(fixture, json!([owner])).await?;
        ensure!(said.is_empty(), "{said}");
        Ok(())
    })
}

/// The objects of the example, as they are used here: with the operator's address, and quicker.
async fn example(fixture: &Fixture, door: &VerdictDoor) -> Result<()> {
    let mut all = Vec::new();
    for file in files("argo")? {
        if file.ends_with("rollouts-verdict.yaml") {
            all = objects(&file, &fixture.namespace)?;
        }
    }
    ensure!(all.len() == 2, "the example has other objects");
    all[0]["spec"]["durationSeconds"] = json!(3);
    let metric = &mut all[1]["spec"]["metrics"][0];
    metric["interval"] = json!("1s");
    let url = metric["provider"]["web"]["url"]
        .as_str()
        .context("no URL")?;
    let url = url.replace("phpprof-operator.phpprof-system.svc:8080", &door.address);
    let url = url.replace("/shop/", &format!("/{}/", fixture.namespace));
    metric["provider"]["web"]["url"] = json!(url);
    all.push(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"token": door.token},
        "metadata": {"name": "phpprof-verdict", "namespace": fixture.namespace},
    }));
    for object in all {
        apply(&object, "e2e").await?;
    }
    Ok(())
}

fn rollout(namespace: &str, cart: &str, version: &str) -> Value {
    let hash = json!({"name": "canary-hash", "valueFrom": {"podTemplateHashValue": "Latest"}});
    let analysis = json!({"templates": [{"templateName": "verdict-web"}], "args": [hash]});
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {ANNOTATION: cart, "version": version}},
                "spec": pods::php("web")["spec"],
            },
            "strategy": {"canary": {
                "stableMetadata": {"labels": {"role": "stable"}},
                "canaryMetadata": {"labels": {"role": "canary"}},
                "steps": [{"setWeight": 50}, {"analysis": analysis}],
            }},
        },
    })
}

/// The rollout once it has this phase, with the revision that was asked for.
async fn settled(fixture: &Fixture, phase: &str, version: &str) -> Result<Value> {
    let get = ["--namespace", &fixture.namespace, "get", "--output=json"];
    poll(
        &format!("version {version} is {phase}"),
        ROLLOUT,
        async || {
            let now = kubectl(&[&get[..], &["rollout", "web"]].concat()).await?;
            let now: Value = serde_json::from_str(&now)?;
            // A text, as the Rollout's status has it.
            let seen = now["status"]["observedGeneration"].as_str();
            let seen = seen.and_then(|it| it.parse::<i64>().ok());
            let is_seen = seen.is_some() && seen == now["metadata"]["generation"].as_i64();
            Ok((is_seen && now["status"]["phase"] == phase).then_some(now))
        },
    )
    .await
}

/// The phase of the newest analysis, and what it has measured last.
async fn analysis(fixture: &Fixture, hash: &str) -> Result<(String, String)> {
    let selector = format!("--selector=rollouts-pod-template-hash={hash}");
    let get = ["--namespace", &fixture.namespace, "get", "analysisruns"];
    let found = kubectl(&[&get[..], &[&selector, "--output=json"]].concat()).await?;
    let found: Value = serde_json::from_str(&found)?;
    let status = &found["items"][0]["status"];
    let measured = status["metricResults"][0]["measurements"].as_array();
    let last = measured.and_then(|all| all.last()?["value"].as_str());
    Ok((
        status["phase"].as_str().unwrap_or_default().to_owned(),
        last.unwrap_or_default().to_owned(),
    ))
}

#[test]
fn argo_rollouts_aborts_a_slower_canary_only() -> Result<()> {
    shared_on(WITH_VERDICTS, async |fixture| {
        rollouts::install_kinds().await?;
        let door = VerdictDoor::open(fixture).await?;
        example(fixture, &door).await?;
        let _controller = rollouts::control(fixture).await?;
        let namespace = &fixture.namespace;
        let (get_hash, stable) = ("/status/currentPodHash", "/status/stableRS");
        apply(&rollout(namespace, STABLE, "1"), "e2e").await?;
        let first = settled(fixture, "Healthy", "1").await?;
        let hash_of = |rollout: &Value, place: &str| {
            let hash = rollout.pointer(place).and_then(Value::as_str);
            hash.map(str::to_owned).with_context(|| rollout.to_string())
        };
        // The same speed.
        apply(&rollout(namespace, STABLE, "2"), "e2e").await?;
        let second = settled(fixture, "Healthy", "2").await?;
        let promoted = hash_of(&second, get_hash)?;
        ensure!(promoted != hash_of(&first, get_hash)?, "{second}");
        ensure!(promoted == hash_of(&second, stable)?, "{second}");
        let (phase, measured) = analysis(fixture, &promoted).await?;
        ensure!(
            phase == "Successful" && measured.contains(r#""verdict":"NoChange""#),
            "{phase}: {measured}"
        );
        apply(&rollout(namespace, SLOWER, "3"), "e2e").await?;
        let third = settled(fixture, "Degraded", "3").await?;
        ensure!(
            third["status"]["abort"] == true && hash_of(&third, stable)? == promoted,
            "{third}"
        );
        let (phase, measured) = analysis(fixture, &hash_of(&third, get_hash)?).await?;
        ensure!(
            phase == "Failed" && measured.contains(r#""verdict":"Worse""#),
            "{phase}: {measured}"
        );
        let runs = runs(fixture).await?;
        ensure!(runs.len() == 2, "{} runs for two releases", runs.len());
        Ok(())
    })
}
