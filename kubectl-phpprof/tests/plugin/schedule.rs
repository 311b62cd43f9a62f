//! `schedule` with a scripted API server: what it creates, what it refuses before it creates
//! anything, what it leaves.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::cluster::{fails_with_a_hint, run_on};
use crate::server::{ScriptServer, ServedAnswer, json_answer, refusal};
use crate::shell::{files, run};

const CREATE: &str = "schedule create web deploy/web --schedule @hourly --max-pods 2";
const CRONJOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const ACCOUNTS: &str = "/api/v1/namespaces/shop/serviceaccounts";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings";

fn cron_job(manager: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {
            "name": "phpprof-web", "namespace": "shop", "uid": "c1", "creationTimestamp": "2026-09-21T14:00:00Z",
            "labels": {"app.kubernetes.io/component": "schedule", "app.kubernetes.io/managed-by": manager, "phpprof.dev/schedule": "web"},
        },
        "spec": {"schedule": "@hourly", "suspend": true, "jobTemplate": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"template": {"spec": {"serviceAccountName": "phpprof-schedules"}}},
        }},
        "status": {},
    })
}

fn list(items: Vec<Value>) -> Option<ServedAnswer> {
    json_answer(
        200,
        &json!({"kind": "CronJobList", "apiVersion": "batch/v1", "metadata": {}, "items": items}),
    )
}

fn binding(role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "phpprof-schedules"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    })
}

/// A cluster in which one right is missing. It may have one schedule, created by this manager.
fn cluster(missing: &'static str, manager: Option<&'static str>) -> ScriptServer {
    let there = AtomicBool::new(manager.is_some());
    ScriptServer::start(move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        let is_there = there.load(Ordering::SeqCst);
        let job = cron_job(manager.unwrap_or_default());
        match (asked.method.as_str(), path) {
            ("POST", path) if path.contains("selfsubjectaccessreviews") => {
                let mut review = asked.body.clone();
                let wanted = &asked.body["spec"]["resourceAttributes"];
                review["status"] = json!({"allowed": wanted["resource"] != missing});
                json_answer(201, &review)
            }
            ("POST", CRONJOBS) if is_there => {
                refusal(409, "cronjobs.batch \"phpprof-web\" already exists")
            }
            ("POST", ACCOUNTS | BINDINGS) if is_there => refusal(409, "it already exists"),
            ("POST", path) if path.ends_with("/jobs") => {
                let mut job = asked.body.clone();
                job["metadata"]["name"] = json!("phpprof-web-x2x4z");
                json_answer(201, &job)
            }
            ("POST", _) => json_answer(201, &asked.body),
            ("GET", CRONJOBS) => list(if is_there { vec![job] } else { Vec::new() }),
            ("PATCH", path) if is_there && path == format!("{CRONJOBS}/phpprof-web") => {
                json_answer(200, &job)
            }
            ("GET", path) if is_there && path == format!("{BINDINGS}/phpprof-schedules") => {
                json_answer(200, &binding("phpprof-system-phpprof-profile"))
            }
            ("DELETE", path) => {
                if path.contains("cronjobs") {
                    there.store(false, Ordering::SeqCst);
                }
                json_answer(
                    200,
                    &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                )
            }
            _ => refusal(404, "cronjobs.batch \"phpprof-web\" not found"),
        }
    })
}

#[test]
fn a_schedules_objects_are_those_of_the_chart() {
    let (_folder, path) = files();
    let said = run(
        &path,
        &format!("{CREATE} -n shop --time-zone Europe/Berlin --dry-run=client"),
    );
    assert_eq!(said.code, 0, "{}", said.err);
    insta::assert_snapshot!(
        "schedule",
        said.out.replace(env!("CARGO_PKG_VERSION"), "VERSION")
    );
    let placed = run(
        &path,
        &format!(
            "{CREATE} -n shop --dry-run --request-label team=shop --request-label phpprof.dev/schedule=other \
             --concurrency-policy replace --starting-deadline 2m --successful-jobs-history-limit 0 --failed-jobs-history-limit 5 \
             --node-selector kubernetes.io/arch=arm64 --toleration dedicated=ci:NoSchedule --toleration spot --priority-class low \
             --image-pull-policy if-not-present --image-pull-secret one --image-pull-secret two"
        ),
    );
    assert_eq!(placed.code, 0, "{}", placed.err);
    insta::assert_snapshot!(
        "schedule_with_values",
        placed.out.replace(env!("CARGO_PKG_VERSION"), "VERSION")
    );
    let names = run(&path, &format!("{CREATE} -n shop --dry-run -o name"));
    assert_eq!(
        names.out,
        "serviceaccount/phpprof-schedules\nrolebinding.rbac.authorization.k8s.io/phpprof-schedules\nconfigmap/phpprof-web\ncronjob.batch/phpprof-web\n"
    );
}

#[test]
fn a_schedule_is_created_with_its_own_account() {
    let server = cluster("", None);
    let said = run_on(&server, CREATE);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(
        said.out,
        "serviceaccount/phpprof-schedules created\nrolebinding.rbac.authorization.k8s.io/phpprof-schedules created\n\
         configmap/phpprof-web created\ncronjob.batch/phpprof-web created\n"
    );
    assert!(
        said.err
            .contains("kubectl phpprof list -l phpprof.dev/schedule=web"),
        "{}",
        said.err
    );
    for path in [ACCOUNTS, BINDINGS, CONFIG_MAPS, CRONJOBS] {
        assert_eq!(server.count("POST", path), 1, "{path}");
    }
    let dry = cluster("", None);
    assert_eq!(run_on(&dry, &format!("{CREATE} --dry-run=server")).code, 0);
    assert_eq!(dry.count("POST", "dryRun=All"), 4);
}

#[test]
fn nothing_is_created_where_a_right_is_missing() {
    let server = cluster("rolebindings", None);
    fails_with_a_hint(
        &server,
        CREATE,
        4,
        "you need rights that you do not have: create rolebindings",
    );
    assert_eq!(server.count("POST", "/namespaces/"), 0);
}

#[test]
fn an_existing_schedule_stays_as_it_is() {
    let server = cluster("", Some("kubectl-phpprof"));
    fails_with_a_hint(
        &server,
        CREATE,
        1,
        "there is a schedule web in namespace shop",
    );
    // The objects of this schedule are deleted. Account and binding belong to the other one.
    assert_eq!(server.count("DELETE", CONFIG_MAPS), 1);
    assert_eq!(server.count("DELETE", ""), 1);
}

#[test]
fn a_foreign_role_binding_prevents_a_schedule() {
    let server = cluster("", Some("kubectl-phpprof"));
    fails_with_a_hint(
        &server,
        &format!("{CREATE} --cluster-role other"),
        1,
        "is for ClusterRole phpprof-system-phpprof-profile, not for ClusterRole other",
    );
    assert_eq!(server.count("POST", CRONJOBS), 0);
    assert_eq!(server.count("DELETE", ""), 0);
}

#[test]
fn a_schedules_leftovers_are_deleted_without_cron_job() {
    let left = |manager: Option<&'static str>, has_account: bool| {
        ScriptServer::start(
            move |asked| match (asked.method.as_str(), asked.path.as_str()) {
                ("GET", path) if path.starts_with(CRONJOBS) => list(Vec::new()),
                ("GET", path) if path == format!("{CONFIG_MAPS}/phpprof-web") => json_answer(
                    200,
                    &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                        "name": "phpprof-web", "labels": {"app.kubernetes.io/managed-by": manager?},
                    }}),
                ),
                ("DELETE", path) if path.starts_with(CONFIG_MAPS) || has_account => json_answer(
                    200,
                    &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                ),
                _ => refusal(404, "it was not found"),
            },
        )
    };
    let account = "rolebinding.rbac.authorization.k8s.io/phpprof-schedules deleted\nserviceaccount/phpprof-schedules deleted\n";
    let map = "configmap/phpprof-web deleted\n";
    for (server, expected) in [
        (
            left(Some("kubectl-phpprof"), true),
            format!("{map}{account}"),
        ),
        (left(Some("kubectl-phpprof"), false), map.to_owned()),
        (left(None, true), account.to_owned()),
    ] {
        let said = run_on(&server, "schedule delete web");
        assert_eq!((said.code, said.out), (0, expected), "{}", said.err);
    }
    let line = "schedule delete web";
    fails_with_a_hint(&left(None, false), line, 3, "there is no schedule web");
    let of_helm = left(Some("Helm"), true);
    fails_with_a_hint(&of_helm, line, 1, "is managed by Helm");
    assert_eq!(of_helm.count("DELETE", ""), 0);
    let both = left(Some("kubectl-phpprof"), true);
    fails_with_a_hint(
        &both,
        "schedule delete web api",
        3,
        "there is no schedule api",
    );
}

/// The chart's role for profiling, which a schedule's account has, does not have that right.
#[test]
fn a_schedule_for_heaps_needs_another_role() {
    let (_folder, path) = files();
    let heaps = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": "web"},
        "spec": {"target": {"podName": "web"}, "mode": "Heap", "durationSeconds": 1},
    });
    std::fs::write(path.join("heaps.json"), heaps.to_string()).unwrap();
    let line = "schedule create web -f heaps.json --schedule @daily -n shop --dry-run";
    let said = run(&path, line);
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
    for part in ["no right to look into heaps", "--cluster-role"] {
        assert!(said.err.contains(part), "{}", said.err);
    }
    let said = run(&path, &format!("{line} --cluster-role heap-readers"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("name: heap-readers"), "{}", said.out);
}

#[test]
fn a_charts_schedule_is_named_in_any_release() {
    let mut job = cron_job("Helm");
    job["metadata"]["name"] = json!("prof-web");
    job["metadata"]["labels"] = json!({
        "app.kubernetes.io/component": "schedule", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "prof",
    });
    let server = ScriptServer::start(move |asked| {
        match (asked.method.as_str(), asked.path.split('?').next()?) {
            ("GET", CRONJOBS) => list(vec![job.clone()]),
            ("PATCH", path) if path.ends_with("/prof-web") => json_answer(200, &job),
            ("POST", path) if path.ends_with("/jobs") => {
                let mut job = asked.body.clone();
                job["metadata"]["name"] = json!(format!(
                    "{}x2x4z",
                    job["metadata"]["generateName"].as_str()?
                ));
                json_answer(201, &job)
            }
            _ => None,
        }
    });
    let listed = run_on(&server, "schedule list").out;
    assert!(listed.contains("\nweb    @hourly"), "{listed}");
    for name in ["web", "prof-web"] {
        let ran = run_on(&server, &format!("schedule run {name}"));
        assert_eq!(ran.out, "job.batch/prof-web-x2x4z created\n", "{}", ran.err);
        let hint = "list -l phpprof.dev/schedule=web;";
        assert!(ran.err.contains(hint), "{}", ran.err);
        let suspended = run_on(&server, &format!("schedule suspend {name}"));
        assert_eq!(
            suspended.out, "cronjob.batch/prof-web suspended\n",
            "{}",
            suspended.err
        );
    }
}

#[test]
fn schedules_are_listed_suspended_started_and_deleted() {
    let server = cluster("", Some("kubectl-phpprof"));
    let listed = run_on(&server, "schedule list").out;
    assert!(
        listed.contains("web    @hourly    -      yes         never"),
        "{listed}"
    );
    for (line, expected) in [
        ("schedule list -o name", "cronjob.batch/phpprof-web\n"),
        (
            "schedule list -o jsonpath={.items[*].spec.schedule}",
            "@hourly",
        ),
        (
            "schedule suspend web",
            "cronjob.batch/phpprof-web suspended\n",
        ),
        (
            "schedule resume phpprof-web",
            "cronjob.batch/phpprof-web resumed\n",
        ),
        ("schedule run web", "job.batch/phpprof-web-x2x4z created\n"),
        (
            "schedule delete web",
            "cronjob.batch/phpprof-web deleted\nconfigmap/phpprof-web deleted\n\
             rolebinding.rbac.authorization.k8s.io/phpprof-schedules deleted\nserviceaccount/phpprof-schedules deleted\n",
        ),
    ] {
        let said = run_on(&server, line);
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, expected),
            "{line}: {}",
            said.err
        );
    }
    let asked = server.asked.lock().unwrap();
    let patches: Vec<&Value> = asked
        .iter()
        .filter(|asked| asked.method == "PATCH")
        .map(|asked| &asked.body["spec"]["suspend"])
        .collect();
    assert_eq!(patches, [&json!(true), &json!(false)]);
    let job = asked
        .iter()
        .find(|asked| asked.path.contains("/jobs"))
        .unwrap();
    assert_eq!(job.body["metadata"]["ownerReferences"][0]["uid"], "c1");
    assert_eq!(
        job.body["spec"]["template"]["spec"]["serviceAccountName"],
        "phpprof-schedules"
    );
    drop(asked);
    fails_with_a_hint(
        &server,
        "schedule run web",
        3,
        "kubectl phpprof schedule list",
    );
}

#[test]
fn what_the_chart_made_is_not_deleted() {
    let server = cluster("", Some("Helm"));
    fails_with_a_hint(&server, "schedule delete web", 1, "is managed by Helm");
    assert_eq!(server.count("DELETE", ""), 0);
}

#[test]
fn an_impossible_schedule_is_refused_at_once() {
    let server = cluster("", None);
    for (flag, part) in [
        ("--request-label team", "use KEY=VALUE"),
        ("--toleration a:Nothing", "effects are NoSchedule"),
        ("--starting-deadline 5s", "use at least 10s"),
    ] {
        let said = run_on(&server, &format!("{CREATE} {flag}"));
        assert!(
            said.code == 2 && said.err.contains(part),
            "{flag}: {}",
            said.err
        );
    }
    for (line, part) in [
        (
            "schedule create Web deploy/web --schedule @hourly",
            "is not a name of a schedule",
        ),
        (
            "schedule create phpprof-web deploy/web --schedule @hourly",
            "leave phpprof- out",
        ),
        (
            "schedule create web deploy/web --schedule hourly",
            "the five fields of cron",
        ),
        (
            "schedule create web shop/web --schedule @hourly",
            "not a known kind of workload",
        ),
    ] {
        fails_with_a_hint(&server, line, 2, part);
    }
    assert!(server.asked.lock().unwrap().is_empty());
}

#[test]
fn suggestions_for_schedules_name_namespace_and_cluster() {
    let server = ScriptServer::start(|asked| {
        let path = asked
            .path
            .replace("/namespaces/other/", "/namespaces/shop/");
        match (asked.method.as_str(), path.split('?').next()?) {
            ("GET", CRONJOBS) => list(vec![cron_job("kubectl-phpprof")]),
            ("POST", CRONJOBS) => refusal(409, "cronjobs.batch \"phpprof-web\" already exists"),
            ("POST", path) if path.ends_with("/jobs") => {
                let mut job = asked.body.clone();
                job["metadata"]["name"] = json!("phpprof-web-x2x4z");
                json_answer(201, &job)
            }
            ("POST", _) => json_answer(201, &asked.body),
            _ => refusal(404, "it was not found"),
        }
    });
    let flags = "-n other --context test";
    for (line, suggested) in [
        ("schedule run web", "list -l phpprof.dev/schedule=web"),
        ("schedule run web", "kubectl logs job/phpprof-web-x2x4z"),
        ("schedule run api", "kubectl phpprof schedule list"),
        ("schedule delete api", "kubectl phpprof schedule list"),
        (CREATE, "kubectl phpprof schedule delete web"),
    ] {
        let said = run_on(&server, &format!("{line} {flags}"));
        let suggested = format!("{suggested} {flags}");
        assert!(said.err.contains(&suggested), "{line}: {}", said.err);
    }
}
