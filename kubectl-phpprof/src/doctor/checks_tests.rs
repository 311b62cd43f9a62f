//! What `doctor` finds in each situation, and how its report looks.

use phpprof_decide::pod::{ContainerView, SamplerKind, SamplerState, SamplerView};

use super::*;
use crate::doctor::text;
use crate::output::ListForm;
use crate::output::OutputForm;
use crate::screen::Screen;
use crate::suggest::Suggest;

fn running(name: &str, uid: Option<i64>) -> ContainerView {
    ContainerView {
        name: name.into(),
        running: true,
        uid,
        gid: uid,
        ..ContainerView::default()
    }
}

/// This many samplers that a pod has had.
fn had(count: usize) -> BTreeMap<String, SamplerView> {
    let sampler = |number| {
        let view = SamplerView {
            kind: SamplerKind::Foreign,
            state: SamplerState::Running,
        };
        (format!("phpprof-{number}"), view)
    };
    (0..count).map(sampler).collect()
}

fn fit() -> ObservedRelease {
    ObservedRelease {
        suggest: Suggest::default(),
        namespace: "shop".into(),
        target: "deploy/web".into(),
        api: Some(true),
        rights: vec![
            ("create profilerequests", Some(true)),
            (PROFILE, Some(true)),
            ("get profilerequests", Some(true)),
            ("create services/proxy of the operator", Some(true)),
            ("patch pods/ephemeralcontainers", Some(true)),
        ],
        namespace_labels: Some((Some("enabled".into()), Some("restricted".into()))),
        operator: Ok(OperatorFacts {
            ready: 1,
            image: "phpprof.dev/operator:0.1.0".into(),
            arguments: vec![
                "--store-url=s3://bucket/phpprof".into(),
                "--sampler-image=phpprof.dev/phpprof:0.1.0".into(),
                "--max-ephemeral-containers=64".into(),
            ],
        }),
        store: Err("you may not read it".into()),
        last_stored: None,
        reach: Reach::Proxy,
        pods: Ok(vec![PodView {
            name: "web-1".into(),
            uid: "u1".into(),
            ready: true,
            containers: vec![running("fpm", Some(1000)), running("nginx", Some(101))],
            samplers: had(2),
            ..PodView::default()
        }]),
        runtime_classes: BTreeMap::new(),
        spec: ProfileTarget::default(),
        dry_run: DryRunAnswer::Accepted,
    }
}

/// `expected` has the names of the checks that fail after this change.
#[track_caller]
fn check_failed(change: impl FnOnce(&mut ObservedRelease), expected: &[&str]) {
    let mut observed = fit();
    change(&mut observed);
    let checks = check_all(&observed);
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| check.verdict == CheckVerdict::Bad)
        .collect();
    assert_eq!(
        failed.iter().map(|check| check.name).collect::<Vec<_>>(),
        expected
    );
    assert!(
        failed.iter().all(|check| !check.remedy.is_empty()),
        "each says what to change"
    );
}

#[test]
fn a_pod_without_cluster_names_is_only_told() {
    let names = |observed: &ObservedRelease| {
        let checks = check_all(observed);
        let check = checks.into_iter().find(|check| check.name == "names");
        check.map(|check| (check.verdict, check.found)).unwrap()
    };
    let mut observed = fit();
    assert_eq!(names(&observed).0, CheckVerdict::Good);
    pod(&mut observed, |pod| {
        pod.names_trouble = Some("dnsPolicy is None".into())
    });
    let (verdict, found) = names(&observed);
    assert_eq!(verdict, CheckVerdict::Unknown);
    assert!(found.starts_with("dnsPolicy is None; "), "{found}");
}

#[test]
fn a_fit_workload_passes_every_check() {
    check_failed(|_| {}, &[]);
}

#[test]
fn each_missing_need_is_found() {
    check_failed(|o| o.api = Some(false), &["api"]);
    check_failed(|o| o.namespace_labels = Some((None, None)), &["namespace"]);
    check_failed(|o| o.rights[0].1 = Some(false), &["may profile"]);
    check_failed(|o| o.rights[1].1 = Some(false), &[]);
    check_failed(|o| o.rights[3].1 = Some(false), &["may look"]);
    check_failed(|o| o.rights[4].1 = Some(false), &[]);
    check_failed(
        |o| o.pods = Err(Unseen::Missing("there is no deployment web".into())),
        &["pods"],
    );
    check_failed(|o| o.pods = Ok(Vec::new()), &["pods"]);
    check_failed(
        |o| o.spec.container_name = Some("php".into()),
        &["container"],
    );
    check_failed(
        |o| {
            o.dry_run = DryRunAnswer::Refused(
                TargetReason::PodSecurityDenied,
                "violates PodSecurity".into(),
            )
        },
        &["admission"],
    );
    check_failed(|o| o.operator.as_mut().unwrap().ready = 0, &["operator"]);
    check_failed(|o| o.reach = Reach::Forward("HTTP 503".into()), &[]);
    check_failed(
        |o| o.reach = Reach::Nowhere("no answer".into(), "open the port".into()),
        &["may look"],
    );
    check_failed(|o| o.reach = Reach::Unknown("403: no".into()), &[]);
}

/// Changes the only pod.
fn pod(o: &mut ObservedRelease, change: impl FnOnce(&mut PodView)) {
    if let Ok(pods) = &mut o.pods {
        change(&mut pods[0]);
    }
}

#[test]
fn what_the_operator_would_refuse_is_found() {
    check_failed(|o| pod(o, |pod| pod.deleting = true), &["pods"]);
    check_failed(|o| pod(o, |pod| pod.is_static = true), &["pods"]);
    check_failed(
        |o| pod(o, |pod| pod.containers[0].running = false),
        &["container"],
    );
    check_failed(
        |o| pod(o, |pod| pod.default_container = Some("php".into())),
        &["container"],
    );
    let argument = |argument: &str| {
        let argument = argument.to_owned();
        move |o: &mut ObservedRelease| o.operator.as_mut().unwrap().arguments.push(argument)
    };
    check_failed(argument("--namespace=blog"), &["namespace"]);
    check_failed(argument("--namespace=shop"), &[]);
    check_failed(
        |o| {
            argument("--all-namespaces")(o);
            o.namespace_labels = Some((Some("disabled".into()), None));
        },
        &["namespace"],
    );
    check_failed(
        |o| {
            argument("--all-namespaces")(o);
            o.namespace_labels = Some((None, None));
        },
        &[],
    );
}

#[test]
fn the_store_is_as_its_operator_tells() {
    let told = |facts: &str| {
        let facts = serde_json::from_str(facts).unwrap();
        move |o: &mut ObservedRelease| o.store = Ok(facts)
    };
    let success = r#""lastSuccessTime": "2026-11-29T10:00:00Z""#;
    let early = r#""lastError": "put: no", "lastErrorTime": "2026-11-29T09:00:00Z""#;
    let late = r#""lastError": "put: no", "lastErrorTime": "2026-11-29T11:00:00Z""#;
    check_failed(
        told(&format!(r#"{{"status": "True", {success}, {early}}}"#)),
        &[],
    );
    check_failed(
        told(&format!(r#"{{"status": "True", {success}, {late}}}"#)),
        &["store"],
    );
    check_failed(
        told(&format!(r#"{{"status": "True", {late}}}"#)),
        &["store"],
    );
    let overwrites = format!(r#"{{"status": "False", "message": "it overwrites", {success}}}"#);
    check_failed(told(&overwrites), &["store"]);
    let mut allowed = fit();
    told(&overwrites)(&mut allowed);
    let facts = allowed.operator.as_mut().unwrap();
    facts.arguments.push("--store-allow-overwrite=true".into());
    let checks = check_all(&allowed);
    let store = checks.iter().find(|check| check.name == "store").unwrap();
    assert_eq!(store.verdict, CheckVerdict::Good);
    assert_eq!(
        store.found,
        "s3://bucket/phpprof; it overwrites, which the administrator allows; last success 2026-11-29T10:00:00Z, no error"
    );
}

#[test]
fn the_container_is_the_one_the_operator_finds() {
    let found = |change: fn(&mut ObservedRelease)| {
        let mut observed = fit();
        change(&mut observed);
        let checks = check_all(&observed);
        let found = checks.iter().find(|check| check.name == "container");
        found
            .unwrap()
            .found
            .replace("; only a run shows whether it runs PHP", "")
    };
    let by_name = "fpm, chosen by its name; the others are nginx";
    assert_eq!(found(|_| {}), by_name);
    let named = |o: &mut ObservedRelease| o.spec.container_name = Some("nginx".into());
    assert_eq!(found(named), "nginx");
    let alone = |o: &mut ObservedRelease| pod(o, |pod| pod.containers.truncate(1));
    assert_eq!(found(alone), "fpm, the pod's only one");
    let unclear = |o: &mut ObservedRelease| pod(o, |pod| pod.containers[0].name = "app".into());
    assert!(found(unclear).starts_with("pod web-1 has the containers app, nginx, and no name"));
    check_failed(unclear, &["container"]);
}

#[test]
fn an_unfit_pod_stands_for_no_others() {
    check_failed(
        |o| {
            let pods = o.pods.as_mut().unwrap();
            let mut spent = pods[0].clone();
            spent.name = "web-0".into();
            spent.samplers = had(64);
            spent.containers[0].running = false;
            pods.insert(0, spent);
        },
        &[],
    );
}

#[test]
fn the_namespaces_level_tells_without_a_dry_run() {
    let unsaid = |uid| {
        move |o: &mut ObservedRelease| {
            o.dry_run = DryRunAnswer::NotTried("you may not patch pods/ephemeralcontainers".into());
            if let Ok(pods) = &mut o.pods {
                pods[0].containers[0].uid = uid;
            }
        }
    };
    check_failed(unsaid(Some(1000)), &[]);
    check_failed(unsaid(Some(0)), &["admission"]);
    check_failed(unsaid(None), &["admission"]);
    check_failed(
        |o| {
            unsaid(None)(o);
            o.spec.run_as_user = Some(33);
        },
        &[],
    );
}

#[test]
fn the_charts_limit_shows_a_spent_budget() {
    check_failed(
        |o| {
            if let Ok(pods) = &mut o.pods {
                pods[0].samplers = had(64);
            }
        },
        &["budget"],
    );
}

#[test]
fn what_may_not_be_asked_is_unknown() {
    let mut observed = fit();
    observed.operator = Err("you may not read deployments in phpprof-system".into());
    observed.namespace_labels = None;
    observed.rights[1].1 = None;
    observed.api = None;
    observed.pods = Err(Unseen::Hidden("you may not list pods".into()));
    let checks = check_all(&observed);
    let unknown: Vec<_> = checks
        .iter()
        .filter(|check| check.verdict == CheckVerdict::Unknown)
        .map(|check| check.name)
        .collect();
    assert_eq!(
        unknown,
        [
            "api",
            "operator",
            "namespace",
            "may profile",
            "pods",
            "container",
            "mode",
            "budget",
            "names",
            "image",
            "store"
        ]
    );
}

#[test]
fn a_recent_profile_vouches_for_an_unreadable_deployment() {
    let mut observed = fit();
    observed.operator = Err("you may not read deployments in phpprof-system".into());
    observed.last_stored = Some(StoredSample {
        name: "web-4k2xq".into(),
        age: 3 * 3600,
    });
    let checks = check_all(&observed);
    let of = |name: &str| checks.iter().find(|check| check.name == name).unwrap();
    assert_eq!(of("operator").verdict, CheckVerdict::Unknown);
    assert_eq!(of("image").verdict, CheckVerdict::Good);
    assert_eq!(
        of("image").found,
        "request web-4k2xq, 3h old, ran its sampler"
    );
    assert_eq!(
        of("store").found,
        "request web-4k2xq, 3h old, stored its profile"
    );
    observed.last_stored.as_mut().unwrap().age = 2 * 86_400;
    let checks = check_all(&observed);
    let unknown = checks
        .iter()
        .filter(|it| it.verdict == CheckVerdict::Unknown);
    let unknown: Vec<_> = unknown.map(|check| check.name).collect();
    assert_eq!(unknown, ["operator", "image", "store"]);
}

#[test]
fn the_report_reads_well_at_every_width() {
    let mut observed = fit();
    observed.dry_run = DryRunAnswer::Refused(TargetReason::UserUnknown, "admission refuses SYS_PTRACE, and the pod does not name its user: violates PodSecurity \"restricted:latest\": unrestricted capabilities (container \"phpprof-doctor\" must not include \"SYS_PTRACE\")".into());
    if let Ok(pods) = &mut observed.pods {
        pods[0].containers[0].uid = None;
    }
    observed.operator = Err("you may not read deployments in phpprof-system".into());
    let checks = check_all(&observed);
    for (name, form, width) in [
        ("doctor_80", ListForm::Table, Some(80)),
        ("doctor_200", ListForm::Table, Some(200)),
        ("doctor_json", ListForm::Json, None),
        ("doctor_yaml", ListForm::Yaml, None),
        ("doctor_name", ListForm::Name, None),
    ] {
        insta::assert_snapshot!(
            name,
            text(
                &checks,
                &OutputForm::Form(form),
                Screen {
                    width,
                    colour: false
                }
            )
        );
    }
}

#[test]
fn who_may_look_only_is_told_so() {
    let said = |denied: &[usize]| {
        let mut observed = fit();
        for at in denied {
            observed.rights[*at].1 = Some(false);
        }
        let checks = check_all(&observed);
        let may = (may(&checks, MAY_PROFILE), may(&checks, MAY_LOOK));
        let verdict = crate::doctor::verdict(&checks, Some("deploy/web"));
        (may, verdict.map_err(|failure| failure.message))
    };
    assert_eq!(said(&[]), ((Some(true), Some(true)), Ok(())));
    for (denied, may, expected) in [
        (
            &[0, 4][..],
            (Some(false), Some(true)),
            "but not by you; you may look",
        ),
        (
            &[3],
            (Some(true), Some(false)),
            "but you may not look at the result",
        ),
        (
            &[0, 2],
            (Some(false), Some(false)),
            "you may neither profile it nor look",
        ),
    ] {
        let (found, verdict) = said(denied);
        assert_eq!(found, may);
        let message = verdict.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    // It is not known what the chart's policies require, if they are on.
    assert_eq!(said(&[1, 4]).0, (None, Some(true)));
}

/// The checks of a release that are not good, after this change.
fn troubles(change: impl FnOnce(&mut ObservedRelease)) -> Vec<(&'static str, CheckVerdict)> {
    let mut observed = fit();
    observed.store = Ok(StoreFacts {
        status: "True".into(),
        last_success_time: Some(Timestamp::UNIX_EPOCH),
        ..StoreFacts::default()
    });
    change(&mut observed);
    let checks = check_release(&observed).into_iter();
    let troubles = checks.filter(|check| check.verdict != CheckVerdict::Good);
    troubles.map(|check| (check.name, check.verdict)).collect()
}

#[test]
fn check_release_needs_no_workload_or_store_setting() {
    let nowhere =
        |o: &mut ObservedRelease| o.reach = Reach::Nowhere("silent".into(), "open it".into());
    assert_eq!(troubles(|o| o.pods = Ok(Vec::new())), []);
    assert_eq!(
        troubles(|o| o.api = Some(false)),
        [("api", CheckVerdict::Bad)]
    );
    assert_eq!(troubles(nowhere), [(MAY_LOOK, CheckVerdict::Bad)]);
    assert_eq!(
        troubles(|o| o.operator = Ok(OperatorFacts::default())),
        [("operator", CheckVerdict::Bad)]
    );
    // The Deployment names the store's URL: that says nothing about the store.
    let not_looked =
        |o: &mut ObservedRelease| o.store = Err("the operator has not looked yet".into());
    assert_eq!(troubles(not_looked), [("store", CheckVerdict::Unknown)]);
    let overwrites = |o: &mut ObservedRelease| o.store.as_mut().unwrap().status = "False".into();
    assert_eq!(troubles(overwrites), [("store", CheckVerdict::Bad)]);
}

#[test]
fn strict_fails_for_a_check_that_was_impossible() {
    let mut observed = fit();
    let checks = check_release(&observed);
    assert!(crate::doctor::verdict(&checks, None).is_ok());
    assert!(crate::doctor::known(&checks, false).is_ok());
    let message = crate::doctor::known(&checks, true).unwrap_err().message;
    assert_eq!(message, "1 of 4 checks could not be made");
    assert_eq!(may(&checks, MAY_PROFILE), None, "nobody has asked");
    observed.api = Some(false);
    let message = crate::doctor::verdict(&check_release(&observed), None);
    assert_eq!(
        message.unwrap_err().message,
        "the release does not work: 1 of 4 checks failed"
    );
}
