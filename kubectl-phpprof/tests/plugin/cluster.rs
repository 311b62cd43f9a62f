//! The verbs with a scripted API server: their calls, their output, their exit codes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use phpprof_profile::encode_gzip;
use serde_json::{Value, json};

use crate::server::{Answer, Asked, Server, json_answer, refusal};
use crate::shell::{Said, profile, program, said};

pub const REQUESTS: &str = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilerequests";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
pub const PROXY: &str = "/api/v1/namespaces/phpprof-system/services/phpprof-operator:results/proxy";

pub fn run_on(server: &Server, line: &str) -> Said {
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let words = line.split_whitespace();
    said(
        &program()
            .args(words)
            .env("KUBECONFIG", "kubeconfig")
            .current_dir(folder.path())
            .output()
            .unwrap(),
    )
}

/// Checks that the command ends with this code, and prints this and a hint.
#[track_caller]
pub fn fails_with_a_hint(server: &Server, line: &str, code: i32, part: &str) {
    let said = run_on(server, line);
    assert_eq!(said.code, code, "{line}: {}", said.err);
    assert!(
        said.err.contains(part) && said.err.contains("\nhint: "),
        "{line}: {}",
        said.err
    );
}

fn request(conditions: Value, more: Value) -> Value {
    let mut status = json!({"conditions": conditions, "selected": 1, "targets": [{"podName": "web-1", "state": "Sampling", "ephemeralContainerName": "phpprof-1-0"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": "web-abcde", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-09-21T14:00:00Z"},
        "spec": {"target": {"podName": "web-1"}, "durationSeconds": 1, "samplesPerSecond": 99},
        "status": status,
    })
}

fn in_progress() -> Value {
    request(
        json!([{"type": "Accepted", "status": "True", "reason": "Sampling", "message": ""}]),
        json!({}),
    )
}

fn complete() -> Value {
    request(
        json!([{"type": "Complete", "status": "True", "reason": "Complete", "message": "1 pod is in the profile"}]),
        json!({"succeeded": 1, "profile": {"url": "file:///data/web/merged.pb.gz", "samples": 240, "sizeBytes": 400, "accessKey": "q1w2e3r4t5y6u7i8o9p0aA"}}),
    )
}

fn failed() -> Value {
    request(
        json!([{"type": "Failed", "status": "True", "reason": "NoPodsReady", "message": "1 pod matches, none is ready"}]),
        json!({}),
    )
}

/// The operator's side of the contract: a key for links, a link for a profile.
pub fn results(asked: &Asked) -> Option<Answer> {
    results_with(asked, &encode_gzip(&profile(900)))
}

fn results_with(asked: &Asked, merged: &[u8]) -> Option<Answer> {
    match (asked.method.as_str(), asked.path.strip_prefix(PROXY)?) {
        ("POST", "/r/shop/web-abcde")
            if asked.body == json!({"accessKey": "q1w2e3r4t5y6u7i8o9p0aA"}) =>
        {
            json_answer(
                200,
                &json!({"expiresAt": "2026-09-21T14:08:00Z", "links": [{"name": "profile", "path": "/l/t/merged.pb.gz"}, {"name": "pod/web-1/fpm", "path": "/l/t/web-1.pb.gz"}]}),
            )
        }
        ("GET", "/l/t/merged.pb.gz" | "/l/t/web-1.pb.gz") => Some((200, merged.to_vec())),
        _ => json_answer(403, &json!({"message": "the key is another request's"})),
    }
}

/// A cluster in which a created request has these states, one for each time it is read.
fn cluster(states: Vec<Value>) -> Server {
    cluster_with(states, encode_gzip(&profile(900)))
}

fn cluster_with(states: Vec<Value>, merged: Vec<u8>) -> Server {
    let step = AtomicUsize::new(0);
    Server::start(move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        match (asked.method.as_str(), path) {
            ("POST", REVIEWS) => {
                json_answer(201, &json!({"status": {"userInfo": {"username": "bob"}}}))
            }
            ("POST", REQUESTS) => json_answer(201, &in_progress()),
            ("GET", path) if path == format!("{REQUESTS}/web-abcde") => {
                let at = step.fetch_add(1, Ordering::SeqCst).min(states.len() - 1);
                json_answer(200, &states[at])
            }
            ("GET", REQUESTS) => json_answer(
                200,
                &json!({"kind": "ProfileRequestList", "apiVersion": "phpprof.dev/v1alpha1", "metadata": {}, "items": [complete()]}),
            ),
            ("PATCH", path) if path == format!("{REQUESTS}/web-abcde") => {
                let mut patched = in_progress();
                patched["spec"]["cancel"] = asked.body["spec"]["cancel"].clone();
                json_answer(200, &patched)
            }
            _ => results_with(asked, &merged),
        }
    })
}

#[test]
fn a_run_creates_waits_and_shows_the_top() {
    let server = cluster(vec![in_progress(), in_progress(), complete()]);
    let said = run_on(&server, "run deploy/web -d 1s --as bob");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out
            .starts_with("profilerequest.phpprof.dev/web-abcde created\nwall in all: 3.60 s"),
        "{}",
        said.out
    );
    assert!(
        said.err.contains("Sampling: 1 pods, 0 done")
            && said
                .err
                .contains("the profile is stored at file:///data/web/merged.pb.gz"),
        "{}",
        said.err
    );
    let asked = server.asked.lock().unwrap();
    let created = &asked
        .iter()
        .find(|asked| asked.method == "POST" && asked.path.starts_with(REQUESTS))
        .unwrap()
        .body;
    assert_eq!(
        created["metadata"]["annotations"][phpprof_crds::REQUESTED_BY],
        "bob"
    );
    assert_eq!(created["metadata"]["generateName"], "web-");
    assert_eq!(
        created["spec"]["target"]["workloadRef"]["kind"],
        "Deployment"
    );
    assert!(
        asked
            .iter()
            .all(|asked| asked.impersonated.as_deref() == Some("bob"))
    );
    assert!(
        said.err.lines().all(|line| !line.contains('\u{1b}')),
        "off a terminal there is no spinner"
    );
}

#[test]
fn a_run_shows_the_table_that_was_asked_for() {
    let server = cluster(vec![complete()]);
    let said = run_on(&server, "run deploy/web -d 1s -t cpu --by pod");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out
            .contains("cpu in all: 3.24 s; 2 of 2 values of pod"),
        "{}",
        said.out
    );
    let created = server.count("POST", REQUESTS);
    fails_with_a_hint(
        &server,
        "run deploy/web -d 1s --by rote --allow-failure",
        2,
        "no sample of this request can have the label \"rote\"",
    );
    assert_eq!(server.count("POST", REQUESTS), created);
    let dotted = Server::start(|asked| match asked.path.ends_with("/a.b") {
        true => json_answer(200, &failed()),
        false => None,
    });
    fails_with_a_hint(&dotted, "top a.b", 5, "has no profile");
}

/// For instance if no HTTP request had a trace id.
#[test]
fn a_label_that_no_sample_has_does_not_fail_a_run_whose_profile_is_stored() {
    let server = cluster(vec![complete()]);
    let line = "run deploy/web -d 1s --labels trace-id --by trace_id";
    for line in [line.to_owned(), format!("{line} --allow-failure")] {
        let said = run_on(&server, &line);
        assert_eq!(said.code, 0, "{line}: {}", said.err);
        assert!(
            said.err.contains("warning: ")
                && said.err.contains("with --by: pid, pod, waiting")
                && said.err.contains("the profile is stored at"),
            "{line}: {}",
            said.err
        );
    }
}

#[test]
fn a_run_ends_with_what_there_is_to_say() {
    let recorded = "/../profile/tests/findings/waiting-database-has.pb.gz";
    let bytes = std::fs::read(format!("{}{recorded}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let server = cluster_with(vec![complete()], bytes);
    let said = run_on(&server, "run deploy/web -d 1s");
    let found =
        "Findings (their stacks: kubectl phpprof findings web-abcde):\n  waiting-database, ";
    assert!(said.out.contains(found), "{}", said.out);
    let said = run_on(&server, "findings web-abcde -o name");
    assert_eq!(said.out, "waiting-database\n", "{}", said.err);
    let silent = run_on(&cluster(vec![complete()]), "run deploy/web -d 1s");
    assert!(!silent.out.contains("Findings"), "{}", silent.out);
}

#[test]
fn a_description_ends_with_what_there_is_to_say_of_the_profile() {
    let recorded = "/../profile/tests/findings/waiting-database-has.pb.gz";
    let bytes = std::fs::read(format!("{}{recorded}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let found = "Findings (their stacks: kubectl phpprof findings web-abcde):";
    let described = |objects: Vec<Value>, bytes: &[u8]| {
        let said = run_on(&cluster_with(objects, bytes.to_vec()), "describe web-abcde");
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert!(said.out.contains("web-abcde"), "{}", said.out);
        said.out.contains(found)
    };
    assert!(described(vec![complete()], &bytes));
    assert!(!described(vec![complete()], b"no profile"));
    assert!(!described(vec![in_progress()], &bytes));
}

#[test]
fn a_run_that_is_not_waited_for_ends_at_once() {
    let server = cluster(vec![in_progress()]);
    let said = run_on(&server, "run pod/web-1 --wait=false -o name");
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "profilerequest.phpprof.dev/web-abcde\n")
    );
    assert_eq!(server.count("GET", "profilerequests"), 0);
    assert_eq!(run_on(&server, "run pod/web-1 --dry-run=server").code, 0);
    assert_eq!(server.count("POST", "dryRun=All"), 1);
}

#[test]
fn each_end_has_its_exit_code_and_a_hint() {
    let check = fails_with_a_hint;
    check(
        &cluster(vec![failed()]),
        "run pod/web-1",
        5,
        "NoPodsReady: 1 pod matches, none is ready",
    );
    check(
        &cluster(vec![in_progress()]),
        "run pod/web-1 --timeout 1s",
        6,
        "kubectl phpprof cancel web-abcde",
    );
    check(
        &cluster(vec![in_progress()]),
        "top web-abcde",
        3,
        "has no profile yet",
    );
    check(
        &cluster(vec![failed()]),
        "flame web-abcde -o x.html",
        5,
        "has no profile",
    );
    check(
        &cluster(vec![complete()]),
        "download web-abcde --pod web-9",
        3,
        "no profile of pod web-9",
    );
    let forbidden = Server::start(|_| refusal(403, "User \"ann\" cannot do that"));
    for (line, right) in [
        ("run pod/web-1", "create profilerequests in namespace shop"),
        ("list", "list profilerequests in namespace shop"),
        ("list -A", "list profilerequests in all namespaces"),
        ("get x", "get profilerequests/x in namespace shop"),
        (
            "cancel x -n other",
            "get profilerequests/x in namespace other",
        ),
        ("logs x", "get profilerequests/x in namespace shop"),
    ] {
        check(
            &forbidden,
            line,
            4,
            &format!("ask for the right to {right}"),
        );
    }
    let missing = Server::start(|_| refusal(404, "profilerequests.phpprof.dev \"x\" not found"));
    check(&missing, "describe x", 3, "\"x\" not found");
    check(
        &Server::start(|_| refusal(503, "etcd is away")),
        "get x",
        7,
        "etcd is away",
    );
}

#[test]
fn results_say_whose_refusal_it_was() {
    let behind = |answer: fn() -> Option<Answer>| {
        Server::start(move |asked| match asked.path.contains("/proxy/") {
            true => answer(),
            false => json_answer(200, &complete()),
        })
    };
    let api = run_on(
        &behind(|| refusal(403, "services \"phpprof-operator:results\" is forbidden")),
        "top web-abcde",
    );
    assert_eq!(api.code, 4);
    assert!(api.err.contains("ask for the right to create services/proxy of phpprof-operator:results in namespace phpprof-system"), "{}", api.err);
    let operator = run_on(
        &behind(|| json_answer(403, &json!({"message": "the link has expired"}))),
        "top web-abcde",
    );
    assert_eq!(operator.code, 4);
    assert!(
        operator
            .err
            .contains("the operator refused the key of this profile: the link has expired"),
        "{}",
        operator.err
    );
    let elsewhere = run_on(
        &behind(|| {
            json_answer(
                200,
                &json!({"expiresAt": "", "links": [{"name": "profile", "path": "/../../../secrets"}]}),
            )
        }),
        "top web-abcde",
    );
    assert!(
        elsewhere.err.contains("leads elsewhere"),
        "{}",
        elsewhere.err
    );
    assert_eq!(
        run_on(&behind(|| Some((200, b"x".to_vec()))), "top web-abcde").code,
        1
    );
}

#[test]
fn a_request_s_profile_is_shown_saved_and_compared() {
    let server = cluster(vec![complete()]);
    assert!(
        run_on(&server, "top pprof/web-abcde")
            .out
            .contains("Shop\\Cart::price")
    );
    assert!(
        run_on(&server, "download web-abcde")
            .out
            .starts_with("wrote web-abcde.pb.gz")
    );
    assert!(
        run_on(&server, "download web-abcde --pod web-1 -o one.folded")
            .out
            .starts_with("wrote one.folded")
    );
    assert!(
        run_on(&server, "flame web-abcde -o f.html")
            .out
            .starts_with("wrote f.html")
    );
    for (form, begin) in [("json", "{\n  \"workers\": []"), ("yaml", "workers: []\n")] {
        let said = run_on(&server, &format!("dump pod/web-1 -o {form}"));
        assert!(said.out.starts_with(begin), "{}{}", said.out, said.err);
    }
    assert!(
        run_on(&server, "diff web-abcde web-abcde")
            .out
            .contains("wall: 3.60 s before, 3.60 s after")
    );
}

#[test]
fn lists_and_names_come_from_the_cluster() {
    let server = cluster(vec![complete()]);
    assert!(
        run_on(&server, "list")
            .out
            .contains("web-abcde   pod/web-1   Complete")
    );
    assert_eq!(
        run_on(&server, "list -o name -l app=web").out,
        "profilerequest.phpprof.dev/web-abcde\n"
    );
    assert_eq!(server.count("GET", "labelSelector=app%3Dweb"), 1);
    assert!(
        run_on(&server, "get web-abcde -o json")
            .out
            .contains("\"samples\": 240")
    );
    assert!(
        run_on(&server, "describe web-abcde")
            .out
            .contains("file:///data/web/merged.pb.gz (240 samples")
    );
    assert!(
        run_on(&server, "version")
            .out
            .contains("there is no deployment phpprof-operator")
    );
}

#[test]
fn lists_are_printed_in_the_forms_of_kubectl() {
    let server = cluster(vec![complete()]);
    let check = |line: &str, expected: &str| {
        let said = run_on(&server, line);
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, expected),
            "{line}: {}",
            said.err
        );
    };
    check("get -o jsonpath={.items[*].metadata.name}", "web-abcde");
    check("get web-abcde -o jsonpath={.metadata.name}", "web-abcde");
    check(
        "list --sort-by .metadata.name -o custom-columns=NAME:.metadata.name,SAMPLES:{.status.profile.samples}",
        "NAME        SAMPLES\nweb-abcde   240\n",
    );
    check("get -o name", "profilerequest.phpprof.dev/web-abcde\n");
    check(
        "get -o jsonpath-as-json={.items[*].metadata.name}",
        "[\n    \"web-abcde\"\n]\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let template = file("names", "{range .items[*]}{.metadata.name}{end}\n");
    check(&format!("list -o jsonpath-file={template}"), "web-abcde\n");
    let columns = file("columns", "NAME UID\n.metadata.name .metadata.uid\n");
    check(
        &format!("list -o custom-columns-file={columns}"),
        "NAME        UID\nweb-abcde   u1\n",
    );
    for (line, code, part) in [
        ("list -o jsonpath-file=no/file", 3, "no/file: No such file"),
        ("get web-abcde -o custom-columns-file=no/file", 3, "no/file"),
        ("list -w -o jsonpath-file=no/file", 3, "no/file"),
        ("schedule list -o jsonpath-file=no/file", 3, "no/file"),
    ] {
        fails_with_a_hint(&server, line, code, part);
    }
    let wrong = format!("list -o custom-columns-file={template}");
    fails_with_a_hint(&server, &wrong, 2, "heads and 0 paths");
    for (line, part) in [
        ("list -o go-template={{.}}", "custom-columns=HEAD:PATH"),
        ("list -o jsonpath={.items[}", "{range .items[*]}"),
        ("list --sort-by {a", "is not a supported JSONPath"),
        ("get web-abcde -A", "cannot be used with"),
    ] {
        let said = run_on(&server, line);
        assert!(
            said.code == 2 && said.err.contains(part),
            "{line}: {}",
            said.err
        );
    }
    fails_with_a_hint(&server, "list --sort-by .nothing", 2, "field of --sort-by");
}

#[test]
fn requests_are_deleted_and_what_stays_of_them_is_said() {
    let objects = |path: &str| match path {
        REQUESTS => json_answer(
            200,
            &json!({"kind": "ProfileRequestList", "apiVersion": "phpprof.dev/v1alpha1", "metadata": {}, "items": [complete()]}),
        ),
        path if path == format!("{REQUESTS}/web-abcde") => json_answer(200, &complete()),
        _ => refusal(404, "profilerequests.phpprof.dev \"other\" not found"),
    };
    let server = Server::start(move |asked| objects(asked.path.split('?').next()?));
    for line in ["delete web-abcde", "delete --all", "delete -l app=web"] {
        let said = run_on(&server, line);
        assert_eq!(
            said.out, "profilerequest.phpprof.dev/web-abcde deleted\n",
            "{line}: {}",
            said.err
        );
        assert!(
            said.err.contains("kubectl phpprof list --stored"),
            "{line}: {}",
            said.err
        );
    }
    assert_eq!(server.count("DELETE", "/web-abcde"), 3);
    assert_eq!(server.count("GET", "labelSelector=app%3Dweb"), 1);
    let dry = run_on(&server, "delete web-abcde --dry-run");
    assert_eq!(
        (dry.out.as_str(), dry.err.as_str()),
        (
            "profilerequest.phpprof.dev/web-abcde deleted (dry run)\n",
            ""
        )
    );
    assert_eq!(run_on(&server, "delete web-abcde --dry-run=server").code, 0);
    assert_eq!(
        (server.count("DELETE", ""), server.count("DELETE", "dryRun")),
        (4, 0)
    );
    let bodies = server.asked.lock().unwrap();
    assert!(
        bodies
            .iter()
            .any(|asked| asked.method == "DELETE" && asked.body["dryRun"] == json!(["All"]))
    );
    drop(bodies);
    fails_with_a_hint(&server, "delete other", 3, "not found");
    assert_eq!(run_on(&server, "delete other --ignore-not-found").code, 0);
    assert_eq!(run_on(&server, "delete").code, 2);
}

#[test]
fn an_answer_is_waited_for_as_long_as_was_asked_for() {
    let slow = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(5));
        None
    });
    let begin = std::time::Instant::now();
    fails_with_a_hint(&slow, "list --request-timeout 1s", 7, "does not answer");
    assert!(begin.elapsed() < Duration::from_secs(4));
}

#[test]
fn what_is_suggested_names_a_namespace_that_is_not_the_context_s() {
    let server = Server::start(|asked| match asked.path.contains("/namespaces/other/") {
        true => json_answer(200, &failed()),
        false => None,
    });
    for line in ["top web-abcde -n other", "logs web-abcde --pod no -n other"] {
        let said = run_on(&server, line);
        assert!(
            said.err
                .contains("kubectl phpprof describe web-abcde -n other"),
            "{line}: {}",
            said.err
        );
    }
}

#[test]
fn what_is_suggested_goes_to_the_cluster_that_was_chosen() {
    let flags = "--context test --kubeconfig ./kubeconfig --as bob";
    let server = cluster(vec![in_progress()]);
    let operator = "--operator-namespace tools --operator-name prof-operator";
    let said = run_on(
        &server,
        &format!("run pod/web-1 --timeout 1s {flags} {operator}"),
    );
    assert_eq!(said.code, 6, "{}", said.err);
    let cancel = format!("kubectl phpprof cancel web-abcde {flags} {operator}\n");
    assert!(said.err.contains(&cancel), "{}", said.err);
    let missing = Server::start(|_| refusal(404, "profilerequests.phpprof.dev \"x\" not found"));
    let list = format!("kubectl phpprof list {flags}, with -n NAME");
    fails_with_a_hint(&missing, &format!("describe x {flags}"), 3, &list);
    let forbidden = Server::start(|_| refusal(403, "no"));
    let doctor = run_on(&forbidden, &format!("doctor deploy/web -o json {flags}"));
    let remedy = format!("kubectl api-resources --api-group=phpprof.dev {flags}\"");
    assert!(doctor.out.contains(&remedy), "{}", doctor.out);
}

#[test]
fn completion_asks_the_cluster_for_names() {
    let server = cluster(vec![complete()]);
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let kubeconfig = folder.path().join("kubeconfig");
    let completed = |words: &[&str]| {
        said(
            &program()
                .arg("__complete")
                .args(words)
                .env("KUBECONFIG", &kubeconfig)
                .output()
                .unwrap(),
        )
        .out
    };
    assert_eq!(completed(&["describe", "we"]), "web-abcde\n:4\n");
    assert_eq!(completed(&["top", "-n", "shop", ""]), "web-abcde\n:0\n");
    assert_eq!(
        completed(&["run", "deploy/"]),
        ":4\n",
        "what may not be listed is no error"
    );
}

#[test]
fn cancelling_is_claimed_only_where_it_was_taken() {
    let server = cluster(vec![in_progress()]);
    assert_eq!(
        run_on(&server, "cancel web-abcde").out,
        "profilerequest.phpprof.dev/web-abcde cancelled\n"
    );
    let over = cluster(vec![complete()]);
    assert_eq!(
        run_on(&over, "cancel web-abcde").out,
        "profilerequest.phpprof.dev/web-abcde has already ended\n"
    );
    assert_eq!(over.count("PATCH", ""), 0);
    let old = Server::start(|_| json_answer(200, &in_progress()));
    let said = run_on(&old, "cancel web-abcde");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("has no spec.cancel"), "{}", said.err);
}

#[test]
fn control_c_off_a_terminal_leaves_the_request_running_and_says_so() {
    let server = cluster(vec![in_progress()]);
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let child = program()
        .args(["run", "pod/web-1", "--kubeconfig", "kubeconfig"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while server.count("GET", "web-abcde") < 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let signalled = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(signalled.success());
    let said = said(&child.wait_with_output().unwrap());
    assert_eq!(said.code, 130, "{}", said.err);
    assert!(
        said.err.contains("web-abcde goes on")
            && said.err.contains("kubectl phpprof cancel web-abcde"),
        "{}",
        said.err
    );
    assert_eq!(server.count("PATCH", ""), 0);
}

#[test]
fn the_doctor_ends_with_a_code_of_its_own() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/apis" => json_answer(
            200,
            &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        ),
        path if path.contains("selfsubjectaccessreviews") => {
            let mut review = asked.body.clone();
            review["status"] = json!({"allowed": asked.body["spec"]["resourceAttributes"]["resource"] != "services"});
            json_answer(201, &review)
        }
        _ => refusal(403, "no"),
    });
    let said = run_on(&server, "doctor deploy/web");
    assert_eq!(said.code, 8, "{}", said.err);
    assert!(said.out.contains("FAILED    api"), "{}", said.out);
    assert!(
        said.out
            .contains("you may not create services/proxy of the operator"),
        "{}",
        said.out
    );
    assert!(
        said.err.contains("cannot be profiled as it is: 3 of"),
        "{}",
        said.err
    );
}
