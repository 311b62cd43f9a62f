//! Triggers and alerts: from an alert of a real Prometheus, by a real Alertmanager, to the request;
//! and who may write a trigger, by the rules of its kind and of the chart's policy.

use std::slice::from_ref;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::alerting::AlertPrograms;
use e2e::release::{self, Values};
use e2e::requests::holds;
use e2e::users::Right;
use e2e::{Fixture, kubectl, pods, poll, run, shared_on};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt as _};
use phpprof_crds::{
    ProfileRequest, ProfileTrigger, ProfileTriggerStatus, REQUESTED_BY, TRIGGER_LABEL, condition,
};
use reqwest::Method;
use rows::{invalid, valid};
use serde_json::{Value, json};

mod rows;

const WITH_ALERTS: Values = &["alerts.tokensSecret=phpprof-alerts"];
const MOUNTED: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(60);
/// From the start of the alert to the request.
const CREATED_WITHIN: Duration = Duration::from_secs(15);
const PROFILES: Right = right("profile", "profilerequests");
const CREATES: Right = right("create", "profiletriggers");
const CHANGES: Right = right("patch", "profiletriggers");

const fn right(verb: &'static str, resource: &'static str) -> Right {
    Right { verb, resource }
}

/// Where the operator receives alerts of the fixture's namespace, and the token for it.
struct AlertDoor {
    url: String,
    token: String,
    client: reqwest::Client,
}

impl AlertDoor {
    /// Gives the namespace a token, and waits until it opens.
    async fn open(fixture: &Fixture) -> Result<Self> {
        let namespace = &fixture.namespace;
        let token = format!("token-of-{namespace}-with-some-length");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {namespace: token},
            "metadata": {"name": "phpprof-alerts", "namespace": release::NAMESPACE},
        });
        let manager = format!("--field-manager={namespace}");
        let apply = ["apply", "--server-side", &manager, "--filename=-"];
        run("kubectl", &apply, secret.to_string().as_bytes()).await?;
        let operator = release::operator(&fixture.client).await?;
        let status = operator.and_then(|pod| pod.status);
        let address = status.and_then(|status| status.pod_ip).context("no pod")?;
        let door = Self {
            url: format!("http://{address}:8080/alerts/{namespace}"),
            token,
            client: reqwest::Client::new(),
        };
        poll("the token opens", MOUNTED, async || {
            let (status, _) = door.send(&door.token, &payload(&[])).await?;
            Ok((status == 200).then_some(()))
        })
        .await?;
        Ok(door)
    }

    async fn send(&self, token: &str, payload: &Value) -> Result<(u16, Value)> {
        let request = self
            .client
            .request(Method::POST, &self.url)
            .bearer_auth(token);
        let answer = request.body(payload.to_string()).send().await?;
        let status = answer.status().as_u16();
        Ok((status, serde_json::from_str(&answer.text().await?)?))
    }
}

/// A payload of alerts with these labels.
fn payload(labels: &[Value]) -> Value {
    let alert = |(number, labels): (usize, &Value)| {
        json!({
            "status": "firing", "labels": labels, "annotations": {}, "generatorURL": "",
            "startsAt": "2026-11-30T20:00:00Z", "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": format!("{number:016x}"),
        })
    };
    let alerts: Vec<_> = labels.iter().enumerate().map(alert).collect();
    json!({"version": "4", "status": "firing", "alerts": alerts})
}

/// A trigger for the alerts of `web`, of at most three requests.
fn spec(back_off: i32) -> Value {
    json!({
        "when": {"alert": {"matchLabels": {"alertname": "PhpRequestsSlow", "deployment": "web"}}},
        "template": {"target": {"podName": "web", "containerName": "fpm"}, "durationSeconds": 5},
        "limit": {"requests": 3, "windowSeconds": 3600}, "backOffSeconds": back_off,
    })
}

fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileTrigger",
        "metadata": {"name": name}, "spec": spec,
    })
}

async fn create(fixture: &Fixture, name: &str, spec: &Value) -> Result<()> {
    let trigger: ProfileTrigger = serde_json::from_value(object(name, spec))?;
    let api = fixture.api::<ProfileTrigger>();
    api.create(&PostParams::default(), &trigger).await?;
    Ok(())
}

async fn requests(fixture: &Fixture) -> Result<Vec<ProfileRequest>> {
    let api: Api<ProfileRequest> = fixture.api();
    Ok(api.list(&ListParams::default()).await?.items)
}

/// The status of the trigger `slow` once it is as wanted.
async fn status(
    fixture: &Fixture,
    what: &str,
    is_it: impl Fn(&ProfileTriggerStatus) -> bool,
) -> Result<ProfileTriggerStatus> {
    let api = fixture.api::<ProfileTrigger>();
    poll(what, SOON, async || {
        let status = api.get("slow").await?.status.unwrap_or_default();
        Ok(Some(status).filter(&is_it))
    })
    .await
}

#[test]
fn a_real_alert_starts_one_request() -> Result<()> {
    shared_on(WITH_ALERTS, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        create(fixture, "slow", &spec(300)).await?;
        let door = AlertDoor::open(fixture).await?;
        let labels = json!({"deployment": "web", "severity": "page"});
        let programs = AlertPrograms::start(fixture, &door.url, &door.token, &[labels]).await?;
        let first = status(fixture, "the first request", |it| it.created == 1).await?;
        let made = requests(fixture).await?;
        let [request] = made.as_slice() else {
            anyhow::bail!("{} requests", made.len());
        };
        let name = request.name_any();
        ensure!(first.requests[0].name == name, "{first:?}");
        ensure!(request.labels()[TRIGGER_LABEL] == "slow", "{request:?}");
        let created = request.creation_timestamp().context("no time")?.0;
        let took = created.duration_since(first.requests[0].starts_at.0);
        let took = Duration::try_from(took).unwrap_or_default();
        ensure!(took <= CREATED_WITHIN, "{took:?}");
        eprintln!("from the alert to the request: {took:?}");
        holds(&fixture.ended(request).await?, condition::COMPLETE)?;
        // Alertmanager repeats it every two seconds.
        let again = status(fixture, "two repetitions", |it| it.repeated >= 2).await?;
        ensure!(
            again.created == 1 && again.alerts == 1 + again.repeated,
            "{again:?}"
        );
        ensure!(requests(fixture).await?.len() == 1, "a second request");
        let sent = "alertmanager_notifications_failed_total{integration=\"webhook\"}";
        ensure!(programs.metric(sent).await? == 0.0, "failed notifications");
        let listed = kubectl(&["--namespace", &fixture.namespace, "get", "ptrg"]).await?;
        ensure!(
            listed.contains("AlertRepeated") && listed.contains(&name),
            "{listed}"
        );
        Ok(())
    })
}

#[test]
fn a_thousand_alerts_stay_within_the_limit() -> Result<()> {
    shared_on(WITH_ALERTS, async |fixture| {
        create(fixture, "slow", &spec(0)).await?;
        let door = AlertDoor::open(fixture).await?;
        let labels = |number: usize| json!({"deployment": "web", "pod": format!("web-{number}")});
        let labels: Vec<_> = (0..1000).map(labels).collect();
        let programs = AlertPrograms::start(fixture, &door.url, &door.token, &labels).await?;
        let seen = status(fixture, "all alerts", |it| it.alerts >= 2000).await?;
        let made = requests(fixture).await?.len();
        ensure!(made == 3 && seen.created == 3, "{made} requests: {seen:?}");
        ensure!(
            seen.alerts == seen.created + seen.repeated + seen.not_fired,
            "{seen:?}"
        );
        let failed = "alertmanager_notifications_failed_total{integration=\"webhook\"}";
        ensure!(
            programs.metric(failed).await? == 0.0,
            "failed notifications"
        );
        Ok(())
    })
}

#[test]
fn a_wrong_token_gets_nothing() -> Result<()> {
    shared_on(WITH_ALERTS, async |fixture| {
        create(fixture, "slow", &spec(0)).await?;
        let door = AlertDoor::open(fixture).await?;
        let labels = json!({"alertname": "PhpRequestsSlow", "deployment": "web"});
        for token in ["", "token-of-nobody-with-some-length"] {
            let (status, _) = door.send(token, &payload(from_ref(&labels))).await?;
            ensure!(status == 401, "{status} for {token:?}");
        }
        let wrong = "token-of-nobody-with-some-length";
        let programs = AlertPrograms::start(fixture, &door.url, wrong, from_ref(&labels)).await?;
        poll("Alertmanager has given up", SOON, async || {
            let failed = "alertmanager_notifications_failed_total{integration=\"webhook\"}";
            Ok((programs.metric(failed).await? > 0.0).then_some(()))
        })
        .await?;
        ensure!(
            requests(fixture).await?.is_empty(),
            "a request without a token"
        );
        // The right one gets no other namespace.
        let elsewhere = door.url.replace(&fixture.namespace, release::NAMESPACE);
        let other = door
            .client
            .post(&elsewhere)
            .bearer_auth(&door.token)
            .send()
            .await?;
        ensure!(other.status().as_u16() == 401, "{}", other.status());
        let (status, said) = door.send(&door.token, &payload(&[labels])).await?;
        ensure!(
            status == 200 && said["triggers"][0]["reason"] == "RequestCreated",
            "{status}: {said}"
        );
        Ok(())
    })
}

/// What the API server says to a trigger, as a dry run; empty if it takes it.
async fn asked(
    client: &Client,
    fixture: &Fixture,
    spec: &Value,
    by: Option<&str>,
) -> Result<String> {
    let mut object = object("new", spec);
    if let Some(by) = by {
        object["metadata"]["annotations"] = json!({REQUESTED_BY: by});
    }
    let path = format!(
        "/apis/phpprof.dev/v1alpha1/namespaces/{}/profiletriggers?dryRun=All&fieldValidation=Strict",
        fixture.namespace
    );
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    said(client.request::<Value>(request).await)
}

fn said<T>(answer: Result<T, kube::Error>) -> Result<String> {
    match answer {
        Ok(_) => Ok(String::new()),
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error).context("the API server gave no answer"),
    }
}

#[test]
fn specs_that_break_a_rule_are_refused() -> Result<()> {
    shared_on(WITH_ALERTS, async |fixture| {
        for (case, spec, words) in invalid() {
            let said = asked(&fixture.client, fixture, &spec, None).await?;
            ensure!(said.contains(words), "{case}: {said:?}, and not {words:?}");
        }
        for (case, spec) in valid() {
            let said = asked(&fixture.client, fixture, &spec, None).await?;
            ensure!(said.is_empty(), "{case}: {said}");
        }
        Ok(())
    })
}

async fn impersonated(user: &str) -> Result<Client> {
    let mut config = Config::infer().await?;
    config.auth_info.impersonate = Some(user.to_owned());
    Ok(Client::try_from(config)?)
}

/// What the API server says to a change of the trigger `slow` by somebody.
async fn changed(client: &Client, fixture: &Fixture, patch: &Value) -> Result<String> {
    let api: Api<ProfileTrigger> = Api::namespaced(client.clone(), &fixture.namespace);
    said(
        api.patch("slow", &PatchParams::default(), &Patch::Merge(patch))
            .await,
    )
}

#[test]
fn writing_a_spec_needs_the_right_to_profile() -> Result<()> {
    shared_on(WITH_ALERTS, async |fixture| {
        let user = |name: &str| format!("{}-{name}", fixture.namespace);
        let forbidden = "may not profile in namespace";
        fixture.with_rights("creator", &[CREATES, CHANGES]).await?;
        fixture
            .with_rights("profiler", &[CREATES, CHANGES, PROFILES])
            .await?;
        let (creator, profiler) = (
            impersonated(&user("creator")).await?,
            impersonated(&user("profiler")).await?,
        );
        let said = asked(&creator, fixture, &spec(0), None).await?;
        ensure!(said.contains(forbidden), "{said:?}");
        let own = user("profiler");
        for (by, words) in [
            (None, ""),
            (Some(own.as_str()), ""),
            (Some("root"), "must be your own name"),
        ] {
            let said = asked(&profiler, fixture, &spec(0), by).await?;
            ensure!(
                said.contains(words) && said.is_empty() == words.is_empty(),
                "{by:?}: {said:?}"
            );
        }
        for template in [
            json!({"target": {"podName": "web"}, "durationSeconds": 1, "mode": "Heap"}),
            json!({"target": {"podName": "web"}, "durationSeconds": 1, "mode": "Snapshot", "heap": true}),
        ] {
            let mut of_heaps = spec(0);
            of_heaps["template"] = template;
            let said = asked(&profiler, fixture, &of_heaps, None).await?;
            ensure!(said.contains("may not look into heaps"), "{said:?}");
        }
        create(fixture, "slow", &spec(0)).await?;
        // Everybody who may change it may hold it back.
        let suspended = changed(&creator, fixture, &json!({"spec": {"suspend": true}})).await?;
        ensure!(suspended.is_empty(), "{suspended}");
        let longer = json!({"spec": {"template": {"durationSeconds": 60}}});
        let said = changed(&creator, fixture, &longer).await?;
        ensure!(said.contains(forbidden), "{said:?}");
        let name = |name: &str| json!({"metadata": {"annotations": {REQUESTED_BY: name}}});
        let said = changed(&profiler, fixture, &name(&own)).await?;
        ensure!(said.contains("can be changed only with it"), "{said:?}");
        let mut both = longer.clone();
        both["metadata"] = name(&own)["metadata"].clone();
        let said = changed(&profiler, fixture, &both).await?;
        ensure!(said.is_empty(), "{said}");
        Ok(())
    })
}
