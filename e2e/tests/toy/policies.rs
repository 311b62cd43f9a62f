//! Who may profile, what the operator's own account may add to pods, and who may use the names of
//! its containers: the chart's policies on the real API server, with the operator's own token.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::users::Right;
use e2e::{ENABLED, Fixture, NOT_ENABLED, kubectl, pods, poll, release, shared};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::{Client, Config, ResourceExt as _};
use phpprof_crds::{ProfileRequest, REQUESTED_BY};
use rows::{NAMES, ONE, OPT_IN, PRIVILEGED, PROC, ROWS, sampler};
use serde_json::{Value, json};

mod rows;

const ACCOUNT: &str = "phpprof-operator";
const FENCE: &str = "phpprof-system-phpprof-operator";
const KNOWN: Duration = Duration::from_secs(20);

/// A client of the API server with these credentials.
async fn client(auth: AuthInfo) -> Result<Client> {
    let mut config = Config::infer().await?;
    config.auth_info = auth;
    Ok(Client::try_from(config)?)
}

/// The tests' administrator, who impersonates a user in these groups.
async fn impersonated(user: &str, groups: &[&str]) -> Result<Client> {
    let auth = Config::infer().await?.auth_info;
    client(AuthInfo {
        impersonate: Some(user.to_owned()),
        impersonate_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
        ..auth
    })
    .await
}

/// The operator's own account, by its token alone.
async fn operator() -> Result<Client> {
    let token = kubectl(&[
        "create",
        "token",
        ACCOUNT,
        "--namespace",
        release::NAMESPACE,
    ])
    .await?;
    client(AuthInfo {
        token: Some(token.trim().to_owned().into()),
        ..AuthInfo::default()
    })
    .await
}

/// Pods that are never scheduled. Ephemeral containers can be added to them all the same.
async fn waiting_pods(fixture: &Fixture) -> Result<()> {
    let of = |name: &str, spec: Value| {
        let mut pod = json!({"metadata": {"name": name}, "spec": spec});
        pod["spec"]["nodeSelector"] = json!({"phpprof.dev/e2e": "nobody"});
        pod["spec"]["containers"] = json!([{"name": "fpm", "image": pods::image("demo")}]);
        pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
        pod
    };
    let api: Api<Pod> = fixture.api();
    for pod in [
        of("web", json!({})),
        of("own-users", json!({"hostUsers": false})),
    ] {
        api.create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
    }
    Ok(())
}

/// Adds containers, or asks by a dry run whether it could. Returns the refusal, if any.
async fn add(
    client: &Client,
    namespace: &str,
    pod: &str,
    containers: &[Value],
    dry_run: bool,
) -> Result<Option<String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams {
        dry_run,
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": containers}}));
    said(pods.patch_ephemeral_containers(pod, &params, &patch).await)
}

fn said<T>(answer: Result<T, kube::Error>) -> Result<Option<String>> {
    match answer {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error).context("the API server gave no answer"),
    }
}

#[track_caller]
fn expect(what: &str, said: Option<String>, refused: Option<&str>) -> Result<()> {
    match (&said, refused) {
        (None, None) => Ok(()),
        (Some(said), Some(words)) if said.contains(words) => Ok(()),
        _ => bail!("{what}: {said:?}, and not {refused:?}"),
    }
}

/// Tries each row on the pods of a namespace.
async fn check_rows(
    client: &Client,
    namespace: &str,
    prefix: &str,
    refusal: impl Fn(Option<&'static str>) -> Option<&'static str>,
) -> Result<()> {
    let name = format!("{prefix}0b1c2d3e-9");
    for (what, bend, words) in ROWS {
        let mut container = sampler(&name);
        bend(&mut container);
        let answer = add(client, namespace, "web", &[container], true).await?;
        expect(what, answer, refusal(*words))?;
    }
    let two = [sampler(&name), sampler(&format!("{prefix}0b1c2d3e-8"))];
    let answer = add(client, namespace, "web", &two, true).await?;
    expect("two at once", answer, refusal(Some(ONE)))?;
    // Only a pod with a user namespace of its own may unmask /proc at all.
    let mut unmasked = sampler(&name);
    unmasked["securityContext"]["procMount"] = json!("Unmasked");
    let answer = add(client, namespace, "own-users", &[unmasked], true).await?;
    expect("an unmasked /proc", answer, refusal(Some(PROC)))
}

#[test]
fn the_operators_account_adds_samplers_and_nothing_else() -> Result<()> {
    shared(ENABLED, async |fixture| {
        waiting_pods(fixture).await?;
        let operator = operator().await?;
        let here = fixture.namespace.as_str();
        check_rows(&operator, here, "phpprof-", |words| words).await?;
        // The API server itself refuses privileged with allowPrivilegeEscalation false. If the
        // field is absent, the policy refuses it.
        let mut privileged = sampler("phpprof-0b1c2d3e-9");
        privileged["securityContext"]["privileged"] = json!(true);
        privileged["securityContext"]["allowPrivilegeEscalation"] = Value::Null;
        let answer = add(&operator, here, "web", &[privileged], true).await?;
        expect("privileged", answer, Some(PRIVILEGED))?;
        for what in ["the first", "its repetition"] {
            let one = [sampler("phpprof-0b1c2d3e-0")];
            expect(what, add(&operator, here, "web", &one, false).await?, None)?;
        }
        fixture
            .beside(NOT_ENABLED, async |other| {
                waiting_pods(other).await?;
                let one = [sampler("phpprof-0b1c2d3e-0")];
                let answer = add(&operator, &other.namespace, "web", &one, true).await?;
                expect("a namespace that has not opted in", answer, Some(OPT_IN))
            })
            .await?;
        others_choose_other_names(fixture).await
    })
}

async fn others_choose_other_names(fixture: &Fixture) -> Result<()> {
    let here = fixture.namespace.as_str();
    let ann = format!("{here}-ann");
    fixture.with_rights("ann", &[ADDS]).await?;
    let ann = impersonated(&ann, &[]).await?;
    for (who, client) in [("ann", &ann), ("the administrator", &fixture.client)] {
        let debugger = json!({"name": "debugger", "image": "busybox", "stdin": true});
        let answer = add(client, here, "web", &[debugger], true).await?;
        expect(&format!("a debugger of {who}"), answer, None)?;
        let answer = add(client, here, "web", &[sampler("phpprof-x")], true).await?;
        expect(&format!("our name by {who}"), answer, Some(NAMES))?;
    }
    Ok(())
}

/// A policy as the chart installs it, without one of its clauses, for one user.
fn without(fence: &ValidatingAdmissionPolicy, clause: usize, user: &str) -> Result<Value> {
    let mut policy = json!({"metadata": {"name": user}, "spec": fence.spec});
    let validations = policy["spec"]["validations"].as_array_mut();
    validations.context("no clauses")?.remove(clause);
    let text = policy
        .to_string()
        .replace("startsWith('phpprof-')", "startsWith('variant-')");
    let mut policy: Value = serde_json::from_str(&text)?;
    policy["spec"]["matchConditions"] = json!([
        {"name": "variant", "expression": format!("request.userInfo.username == '{user}'")},
    ]);
    Ok(policy)
}

#[test]
fn each_clause_of_the_policy_is_needed() -> Result<()> {
    shared(ENABLED, async |fixture| {
        waiting_pods(fixture).await?;
        let fences: Api<ValidatingAdmissionPolicy> = Api::all(fixture.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
        let fence = fences.get(FENCE).await?;
        let clauses = fence.spec.clone().and_then(|spec| spec.validations);
        let clauses = clauses.context("the fence has no clauses")?;
        let users: Vec<String> = (0..clauses.len())
            .map(|clause| format!("{}-variant-{clause}", fixture.namespace))
            .collect();
        for (clause, user) in users.iter().enumerate() {
            let policy = serde_json::from_value(without(&fence, clause, user)?)?;
            fences.create(&PostParams::default(), &policy).await?;
            let binding = json!({
                "metadata": {"name": user}, "spec": {"policyName": user, "validationActions": ["Deny"]},
            });
            let binding = serde_json::from_value(binding)?;
            bindings.create(&PostParams::default(), &binding).await?;
        }
        let mut result = Ok(());
        for (clause, user) in users.iter().enumerate() {
            let words = clauses[clause].message.clone();
            let words = words.or_else(|| clauses[clause].message_expression.clone());
            if result.is_ok() {
                result = check_variant(fixture, user, &words.unwrap_or_default()).await;
            }
            fences.delete(user, &DeleteParams::default()).await?;
            bindings.delete(user, &DeleteParams::default()).await?;
        }
        result
    })
}

/// Checks that all rows have the same result, except those that only the missing clause refuses.
async fn check_variant(fixture: &Fixture, user: &str, missing: &str) -> Result<()> {
    let client = impersonated(user, &["system:masters"]).await?;
    let here = fixture.namespace.as_str();
    poll("the policy holds", KNOWN, async || {
        let mut both = sampler("variant-0b1c2d3e-9");
        both["tty"] = json!(true);
        both["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
        add(&client, here, "web", &[both], true).await
    })
    .await?;
    let row = |words: Option<&'static str>| words.filter(|words| !missing.contains(words));
    check_rows(&client, here, "variant-", row)
        .await
        .with_context(|| format!("without {missing:?}"))
}

const CREATES: Right = right("create", "profilerequests");
const PROFILES: Right = right("profile", "profilerequests");
const HEAPS: Right = right("heap", "profilerequests");
const ADDS: Right = right("patch", "pods/ephemeralcontainers");

const fn right(verb: &'static str, resource: &'static str) -> Right {
    Right { verb, resource }
}

/// Creates a suspended request in the name of somebody. Returns the refusal, if any.
async fn ask(
    client: &Client,
    fixture: &Fixture,
    name: &str,
    by: Option<&str>,
) -> Result<Option<String>> {
    let spec = json!({"target": {"podName": "web"}, "suspend": true});
    ask_for(client, fixture, name, by, spec).await
}

async fn ask_for(
    client: &Client,
    fixture: &Fixture,
    name: &str,
    by: Option<&str>,
    spec: Value,
) -> Result<Option<String>> {
    let requests: Api<ProfileRequest> = Api::namespaced(client.clone(), &fixture.namespace);
    let mut request = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": name},
        "spec": spec,
    });
    if let Some(by) = by {
        request["metadata"]["annotations"] = json!({REQUESTED_BY: by});
    }
    let request = serde_json::from_value(request)?;
    said(requests.create(&PostParams::default(), &request).await)
}

#[test]
fn a_creator_needs_the_right_to_profile() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let user = |name: &str| format!("{}-{name}", fixture.namespace);
        let forbidden = "may not profile in namespace";
        let no_right = "cannot create resource";
        let rows: [(&str, &[Right], Option<&str>); 5] = [
            ("creator", &[CREATES], Some(forbidden)),
            ("profiler", &[CREATES, PROFILES], None),
            ("debugger", &[CREATES, ADDS], None),
            ("only-profiles", &[PROFILES], Some(no_right)),
            ("only-adds", &[ADDS], Some(no_right)),
        ];
        for (name, rights, refused) in rows {
            fixture.with_rights(name, rights).await?;
            let client = impersonated(&user(name), &[]).await?;
            expect(name, ask(&client, fixture, name, None).await?, refused)?;
        }
        let operator = operator().await?;
        expect(
            "the operator",
            ask(&operator, fixture, "self", None).await?,
            Some("only requests that belong to a ProfileComparison"),
        )?;
        let creator = impersonated(&user("creator"), &[]).await?;
        let elsewhere = fixture
            .beside(ENABLED, async |other| {
                other
                    .grant_to(&user("creator"), &[CREATES, PROFILES])
                    .await?;
                expect("there", ask(&creator, other, "there", None).await?, None)?;
                ask(&creator, fixture, "here", None).await
            })
            .await?;
        expect("a right elsewhere", elsewhere, Some(forbidden))?;
        fixture.developer().await?;
        let developer = impersonated(&user("developer"), &[]).await?;
        expect(
            "edit",
            ask(&developer, fixture, "edited", None).await?,
            None,
        )?;
        names_are_true(fixture, &developer, &user("developer")).await
    })
}

#[test]
fn a_look_into_heaps_needs_its_own_right() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let user = |name: &str| format!("{}-{name}", fixture.namespace);
        let spec = || {
            json!({
                "target": {"podName": "web"}, "suspend": true, "mode": "Heap", "durationSeconds": 1,
            })
        };
        let forbidden = "need the right to heap profilerequests.phpprof.dev, which the ClusterRole phpprof-system-phpprof-heap grants";
        let rows: [(&str, &[Right], Option<&str>); 4] = [
            ("profiler", &[CREATES, PROFILES], Some(forbidden)),
            ("heaper", &[CREATES, PROFILES, HEAPS], None),
            ("debugger", &[CREATES, ADDS], None),
            (
                "only-heaps",
                &[CREATES, HEAPS],
                Some("may not profile in namespace"),
            ),
        ];
        for (name, rights, refused) in rows {
            fixture.with_rights(name, rights).await?;
            let client = impersonated(&user(name), &[]).await?;
            let said = ask_for(&client, fixture, name, None, spec()).await?;
            expect(name, said, refused)?;
        }
        let profiler = impersonated(&user("profiler"), &[]).await?;
        let mut snapshot = spec();
        snapshot["mode"] = json!("Snapshot");
        let plain = ask_for(&profiler, fixture, "plain", None, snapshot.clone()).await?;
        expect("a snapshot", plain, None)?;
        snapshot["heap"] = json!(true);
        let with_heap = ask_for(&profiler, fixture, "with-heap", None, snapshot).await?;
        expect("a snapshot with heap", with_heap, Some(forbidden))?;
        let other = ask(&profiler, fixture, "sampled", None).await?;
        expect("another mode", other, None)?;
        fixture.developer().await?;
        let developer = impersonated(&user("developer"), &[]).await?;
        let edited = ask_for(&developer, fixture, "edited", None, spec()).await?;
        expect("edit", edited, None)
    })
}

async fn names_are_true(fixture: &Fixture, developer: &Client, name: &str) -> Result<()> {
    let own = ask(developer, fixture, "own", Some(name)).await?;
    expect("their own name", own, None)?;
    let other = ask(developer, fixture, "other", Some("kubernetes-admin")).await?;
    let words =
        format!("the annotation {REQUESTED_BY} must be your own name, {name}, or be left out");
    expect("another's name", other, Some(&words))?;
    let cannot = format!("the annotation {REQUESTED_BY} cannot be changed");
    let changes: [(&str, &str, Value, Option<&str>); 5] = [
        (
            "to another",
            "own",
            json!({REQUESTED_BY: "bob"}),
            Some(&cannot),
        ),
        (
            "taken away",
            "own",
            json!({REQUESTED_BY: null}),
            Some(&cannot),
        ),
        (
            "added",
            "edited",
            json!({REQUESTED_BY: name}),
            Some(&cannot),
        ),
        ("the same", "own", json!({REQUESTED_BY: name}), None),
        ("another annotation", "own", json!({"team": "shop"}), None),
    ];
    for (what, request, annotations, refused) in changes {
        let requests: Api<ProfileRequest> = Api::namespaced(developer.clone(), &fixture.namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let answer = requests
            .patch(request, &PatchParams::default(), &patch)
            .await;
        expect(what, said(answer)?, refused)?;
    }
    let requests: Api<ProfileRequest> = fixture.api();
    let cancelled = Patch::Merge(json!({"spec": {"cancel": true}}));
    let answer = requests
        .patch("own", &PatchParams::default(), &cancelled)
        .await;
    expect("cancelled by the administrator", said(answer)?, None)?;
    let all = requests.list(&kube::api::ListParams::default()).await?;
    let mut names: Vec<String> = all.iter().map(|request| request.name_any()).collect();
    names.sort_unstable();
    ensure!(
        names == ["debugger", "edited", "own", "profiler"],
        "{names:?}"
    );
    Ok(())
}
