//! A comparison's life without containers: its rules, who may create it, what it creates, and how
//! it ends. The toy's samplers store no list of HTTP requests, so no verdict is better than
//! inconclusive here; `tests/cluster/comparisons.rs` has those.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::comparisons::{ensure_undecided, verdict_of};
use e2e::requests::{holds, status};
use e2e::users::Right;
use e2e::{ENABLED, Fixture, NOT_ENABLED, kubectl, pods, poll, shared};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt};
use phpprof_crds::{ComparisonReason, ProfileComparison, ProfileRequest, REQUESTED_BY, condition};
use rows::{changes, invalid, valid};
use serde_json::{Value, json};

mod rows;

const SOON: Duration = Duration::from_secs(20);

/// Whether the API server takes a comparison, by a dry run; its refusal otherwise.
async fn asked(
    client: &Client,
    fixture: &Fixture,
    spec: &Value,
    by: Option<&str>,
) -> Result<Option<String>> {
    let mut object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
        "metadata": {"name": "new"}, "spec": spec,
    });
    if let Some(by) = by {
        object["metadata"]["annotations"] = json!({REQUESTED_BY: by});
    }
    let path = format!(
        "/apis/phpprof.dev/v1alpha1/namespaces/{}/profilecomparisons?dryRun=All&fieldValidation=Strict",
        fixture.namespace
    );
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    said(client.request::<Value>(request).await)
}

fn said<T>(answer: Result<T, kube::Error>) -> Result<Option<String>> {
    match answer {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error).context("the API server gave no answer"),
    }
}

fn expect(case: &str, said: Option<String>, words: &str) -> Result<()> {
    let is_right = match &said {
        None => words.is_empty(),
        Some(said) => !words.is_empty() && said.contains(words),
    };
    ensure!(is_right, "{case}: {said:?}, and not {words:?}");
    Ok(())
}

#[test]
fn each_rule_of_comparisons_refuses_with_a_hint() -> Result<()> {
    shared(NOT_ENABLED, async |fixture| {
        let rows = invalid();
        ensure!(rows.len() >= 60, "rows are missing");
        for (case, spec, words) in rows {
            expect(
                &case,
                asked(&fixture.client, fixture, &spec, None).await?,
                words,
            )?;
        }
        for (case, spec) in valid() {
            expect(
                case,
                asked(&fixture.client, fixture, &spec, None).await?,
                "",
            )?;
        }
        let spec =
            json!({"before": {"request": "old"}, "after": {"request": "new"}, "cancel": true});
        fixture.compare("stored", &spec).await?;
        let api = fixture.api::<ProfileComparison>();
        for (fields, words) in changes() {
            let patch = Patch::Merge(json!({"spec": fields}));
            let params = PatchParams {
                dry_run: true,
                ..PatchParams::default()
            };
            let answer = said(api.patch("stored", &params, &patch).await)?;
            expect(&fields.to_string(), answer, words)?;
        }
        Ok(())
    })
}

const fn right(verb: &'static str, resource: &'static str) -> Right {
    Right { verb, resource }
}

async fn impersonated(fixture: &Fixture, name: &str) -> Result<Client> {
    let mut config = Config::infer().await?;
    config.auth_info.impersonate = Some(format!("{}-{name}", fixture.namespace));
    Ok(Client::try_from(config)?)
}

#[test]
fn a_creator_needs_the_rights_of_both_sides() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let pods =
            json!({"before": {"target": {"podName": "a"}}, "after": {"target": {"podName": "b"}}});
        let requests = json!({"before": {"request": "old"}, "after": {"request": "new"}});
        let mixed = json!({"before": {"request": "old"}, "after": {"target": {"podName": "b"}}});
        let creates = right("create", "profilecomparisons");
        let (profiles, gets) = (
            right("profile", "profilerequests"),
            right("get", "profilerequests"),
        );
        let adds = right("patch", "pods/ephemeralcontainers");
        let (no_profile, no_get) = (
            "may not profile in namespace",
            "may not read the requests of namespace",
        );
        let rows: [(&str, &[Right], [&str; 3]); 5] = [
            ("creator", &[creates], [no_profile, no_get, no_profile]),
            ("profiler", &[creates, profiles], ["", no_get, no_get]),
            ("debugger", &[creates, adds], ["", no_get, no_get]),
            ("reader", &[creates, gets], [no_profile, "", no_profile]),
            ("both", &[creates, profiles, gets], ["", "", ""]),
        ];
        for (name, rights, expected) in rows {
            fixture.with_rights(name, rights).await?;
            let client = impersonated(fixture, name).await?;
            for (spec, words) in [&pods, &requests, &mixed].into_iter().zip(expected) {
                let answer = asked(&client, fixture, spec, None).await?;
                expect(&format!("{name}: {spec}"), answer, words)?;
            }
        }
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let stored =
            json!({"before": {"archive": {"workloadRef": web}}, "after": {"request": "new"}});
        let reads = right("get", "profilearchives");
        let no_archive = "may not read the archive of namespace";
        for (name, rights, words) in [
            ("recent", &[creates, gets][..], no_archive),
            ("archivist", &[creates, gets, reads], ""),
        ] {
            fixture.with_rights(name, rights).await?;
            let client = impersonated(fixture, name).await?;
            expect(name, asked(&client, fixture, &stored, None).await?, words)?;
        }
        let client = impersonated(fixture, "both").await?;
        let own = format!("{}-both", fixture.namespace);
        expect(
            "their own name",
            asked(&client, fixture, &pods, Some(&own)).await?,
            "",
        )?;
        let other = asked(&client, fixture, &pods, Some("kubernetes-admin")).await?;
        expect("another's name", other, "must be your own name")
    })
}

async fn requests_of(fixture: &Fixture) -> Result<Vec<ProfileRequest>> {
    Ok(fixture.api().list(&ListParams::default()).await?.items)
}

#[test]
fn targets_are_profiled_by_requests_of_its_own() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture
            .start(&[pods::php("stable"), pods::php("canary")])
            .await?;
        let pod = |name: &str| json!({"target": {"podName": name, "containerName": "fpm"}});
        let spec = json!({"before": pod("stable"), "after": pod("canary"), "durationSeconds": 1});
        let comparison = fixture.compare("web", &spec).await?;
        let ended = fixture.verdict(&comparison).await?;
        ensure_undecided(&ended, ComparisonReason::NoCells, "kubectl phpprof verdict")?;
        let mut requests = requests_of(fixture).await?;
        requests.sort_by_key(ResourceExt::name_any);
        let names: Vec<String> = requests.iter().map(ResourceExt::name_any).collect();
        ensure!(names == ["web-after", "web-before"], "{names:?}");
        for request in &requests {
            holds(request, condition::COMPLETE)?;
            let owner = request.owner_references().first().context("no owner")?;
            ensure!(Some(&owner.uid) == ended.metadata.uid.as_ref(), "{owner:?}");
        }
        let shown = ["--namespace", &fixture.namespace, "get", "pcmp"];
        let shown = kubectl(&shown).await?;
        ensure!(
            shown.contains("Inconclusive") && shown.contains("web-before"),
            "{shown}"
        );
        Ok(())
    })
}

#[test]
fn a_missing_or_failed_request_is_inconclusive() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let missing = json!({"before": {"request": "nobody"}, "after": {"request": "nothing"}});
        let missing = fixture.compare("missing", &missing).await?;
        let nobody = json!({"target": {"podName": "nobody"}});
        let failed = json!({"before": nobody, "after": nobody});
        let failed = fixture.compare("failed", &failed).await?;
        let failed = fixture.verdict(&failed).await?;
        ensure_undecided(&failed, ComparisonReason::RequestFailed, "NoPodsMatched")?;
        let missing = fixture.verdict(&missing).await?;
        ensure_undecided(
            &missing,
            ComparisonReason::RequestNotFound,
            "request nobody (before)",
        )
    })
}

#[test]
fn a_taken_name_is_inconclusive() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let request = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": "web-after"},
            "spec": {"target": {"podName": "web"}, "suspend": true},
        });
        let requests: Api<ProfileRequest> = fixture.api();
        requests
            .create(&PostParams::default(), &serde_json::from_value(request)?)
            .await?;
        let pod = json!({"target": {"podName": "web", "containerName": "fpm"}});
        let spec = json!({"before": pod, "after": pod, "durationSeconds": 60});
        let comparison = fixture.compare("web", &spec).await?;
        let ended = fixture.verdict(&comparison).await?;
        ensure_undecided(&ended, ComparisonReason::RequestNameTaken, "web-after")?;
        // Its own request was cancelled, the other one not touched.
        poll("its request has ended", SOON, async || {
            let before = requests.get("web-before").await?;
            Ok(status(&before).completion_time.map(drop))
        })
        .await?;
        ensure!(!requests.get("web-after").await?.spec.cancel);
        Ok(())
    })
}

#[test]
fn cancel_ends_both_runs_and_the_comparison() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let pod = json!({"target": {"podName": "web", "containerName": "fpm"}});
        let spec = json!({"before": pod, "after": pod, "durationSeconds": 60});
        let comparison = fixture.compare("web", &spec).await?;
        let api = fixture.api::<ProfileComparison>();
        poll("both requests are created", SOON, async || {
            let now = verdict_of(&api.get("web").await?);
            Ok((!now.after.request_uid.is_empty()).then_some(()))
        })
        .await?;
        let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
        api.patch("web", &PatchParams::default(), &patch).await?;
        let ended = fixture.verdict(&comparison).await?;
        ensure_undecided(&ended, ComparisonReason::ComparisonCancelled, "cancelled")?;
        poll("both requests have ended", SOON, async || {
            let requests = requests_of(fixture).await?;
            let is_over = |it: &ProfileRequest| status(it).completion_time.is_some();
            Ok((requests.len() == 2 && requests.iter().all(is_over)).then_some(()))
        })
        .await
    })
}

#[test]
fn its_requests_go_with_the_comparison() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        fixture.use_rights_of_comparisons().await
    })
}
