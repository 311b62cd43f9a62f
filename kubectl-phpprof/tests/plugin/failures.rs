//! What a command says when it fails: its exit code, whose refusal it was, and what to do next.

use std::time::Duration;

use serde_json::json;

use crate::cluster::{cluster, complete, failed, fails_with_a_hint, in_progress, run_on};
use crate::server::{ScriptServer, ServedAnswer, json_answer, refusal};

#[test]
fn each_end_has_an_exit_code_and_hint() {
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
    let forbidden = ScriptServer::start(|_| refusal(403, "User \"ann\" cannot do that"));
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
    let missing =
        ScriptServer::start(|_| refusal(404, "profilerequests.phpprof.dev \"x\" not found"));
    check(&missing, "describe x", 3, "\"x\" not found");
    check(
        &ScriptServer::start(|_| refusal(503, "etcd is away")),
        "get x",
        7,
        "etcd is away",
    );
}

#[test]
fn results_say_whose_refusal_it_was() {
    let behind = |answer: fn() -> Option<ServedAnswer>| {
        ScriptServer::start(move |asked| {
            if asked.path.contains("/proxy/") {
                answer()
            } else {
                json_answer(200, &complete())
            }
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

const UNREACHED: &str = "error trying to reach service: dial tcp 10.244.0.9:8080: i/o timeout";

/// A cluster whose proxy answers this way.
fn proxied(answer: impl Fn(&str) -> Option<ServedAnswer> + Send + Sync + 'static) -> ScriptServer {
    ScriptServer::start(move |asked| match asked.path.split_once("/proxy") {
        Some((_, path)) => answer(path),
        None if asked.path.ends_with("/services/phpprof-operator") => refusal(403, "no"),
        None => json_answer(200, &complete()),
    })
}

#[test]
fn an_unreachable_operators_message_names_port_and_role() {
    let server = proxied(|_| refusal(503, UNREACHED));
    let said = run_on(&server, "top web-abcde");
    assert_eq!(said.code, 7, "{}", said.err);
    for part in [
        &format!(
            "does not reach the operator's port results, phpprof-operator in namespace phpprof-system: HTTP 503, {UNREACHED}"
        ),
        "a port-forward to its pod does not work either: you may not get services",
        "TCP port 8080 of its pods",
        "results.ingress.host",
        "ask for the Role phpprof-operator-port-forward",
    ] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn a_slow_operator_is_waited_for() {
    let server = proxied(|path| match path {
        "/" => refusal(404, ""),
        _ => {
            std::thread::sleep(Duration::from_secs(6));
            json_answer(403, &json!({"message": "the link has expired"}))
        }
    });
    let said = run_on(&server, "top web-abcde");
    assert!(said.err.contains("the link has expired"), "{}", said.err);
}

#[test]
fn a_silent_operator_is_reported_within_ten_seconds() {
    let server = proxied(|_| {
        std::thread::sleep(Duration::from_secs(30));
        None
    });
    fails_with_a_hint(&server, "top web-abcde", 7, "no answer within 5 s");
}

#[test]
fn an_answer_is_awaited_for_the_given_time() {
    let slow = ScriptServer::start(|_| {
        std::thread::sleep(Duration::from_secs(30));
        None
    });
    // Who waits longer gets an answer: 404.
    fails_with_a_hint(&slow, "list --request-timeout 1s", 7, "does not answer");
}

#[test]
fn suggestions_name_a_namespace_outside_the_context() {
    let server = ScriptServer::start(|asked| {
        if asked.path.contains("/namespaces/other/") {
            json_answer(200, &failed())
        } else {
            None
        }
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
fn suggestions_keep_the_chosen_cluster() {
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
    let missing =
        ScriptServer::start(|_| refusal(404, "profilerequests.phpprof.dev \"x\" not found"));
    let list = format!("kubectl phpprof list {flags}, with -n NAME");
    fails_with_a_hint(&missing, &format!("describe x {flags}"), 3, &list);
    let forbidden = ScriptServer::start(|_| refusal(403, "no"));
    let doctor = run_on(&forbidden, &format!("doctor deploy/web -o json {flags}"));
    let remedy = format!("kubectl api-resources --api-group=phpprof.dev {flags}\"");
    assert!(doctor.out.contains(&remedy), "{}", doctor.out);
}

#[test]
fn the_doctor_has_its_own_exit_code() {
    let server = ScriptServer::start(|asked| match asked.path.as_str() {
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
    // Without a workload it asks for nothing of a namespace.
    let release = run_on(&server, "doctor --strict");
    assert_eq!(release.code, 8, "{}", release.err);
    let failed = "the release does not work: 1 of 4 checks failed";
    assert!(release.err.contains(failed), "{}", release.err);
    assert!(!release.out.contains("pods"), "{}", release.out);
    assert_eq!(run_on(&server, "doctor --container php").code, 2);
}
