//! `verdict --canary`: what it asks the API server for, and what it leaves.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::cluster::{REQUESTS, cluster, complete, failed, fails_with_a_hint, in_progress, run_on};
use crate::server::{ScriptServer, json_answer};

#[test]
fn a_canary_is_profiled_at_the_same_time() {
    let server = cluster(vec![in_progress(), complete()]);
    let line = "verdict deploy/web --canary deploy/web-canary -d 1s -c fpm -F 199 --max-pods 2";
    let said = run_on(&server, line);
    // The same profile twice, without cells.
    assert_eq!(said.code, 10, "{}", said.err);
    assert!(said.out.starts_with("Inconclusive: "), "{}", said.out);
    let allowed = run_on(&server, "verdict web-abcde web-abcde --allow-inconclusive");
    assert_eq!((allowed.code, allowed.out), (0, said.out.clone()));
    assert!(allowed.err.contains("hint: "), "{}", allowed.err);
    let created = "profilerequest.phpprof.dev/web-abcde and web-abcde created\n";
    assert!(said.err.contains(created), "{}", said.err);
    let asked = server.asked.lock().unwrap();
    // What one run asked.
    let is_created = |method: &str, path: &str| method == "POST" && path.starts_with(REQUESTS);
    let requests = asked.iter().filter(|it| is_created(&it.method, &it.path));
    let specs: Vec<_> = requests.map(|it| it.body["spec"].clone()).collect();
    let names = specs
        .iter()
        .map(|spec| &spec["target"]["workloadRef"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["web", "web-canary"]);
    for spec in &specs {
        assert_eq!(spec["labels"], json!(["Method", "Route"]));
        assert_eq!(spec["target"]["containerName"], "fpm");
        assert_eq!(
            (&spec["durationSeconds"], &spec["samplesPerSecond"]),
            (&json!(1), &json!(199))
        );
    }
    // Both were created before the first was waited for.
    let first_look = asked.iter().position(|it| it.method == "GET").unwrap();
    let before = asked[..first_look].iter();
    let before = before.filter(|it| is_created(&it.method, &it.path));
    assert_eq!(before.count(), 2);
}

/// The second request is refused, for instance by a quota.
#[test]
fn a_canary_refused_cancels_the_other() {
    let count = AtomicUsize::new(0);
    let server = ScriptServer::start(move |asked| match asked.method.as_str() {
        "POST" if asked.path.starts_with(REQUESTS) => {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let refusal = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "exceeded quota", "code": 403});
            if first {
                json_answer(201, &in_progress())
            } else {
                json_answer(403, &refusal)
            }
        }
        "GET" => json_answer(200, &in_progress()),
        "PATCH" => {
            let mut patched = in_progress();
            patched["spec"]["cancel"] = json!(true);
            json_answer(200, &patched)
        }
        _ => None,
    });
    let line = "verdict deploy/web --canary deploy/web-canary";
    fails_with_a_hint(&server, line, 4, "exceeded quota");
    assert_eq!(server.count("PATCH", &format!("{REQUESTS}/web-abcde")), 1);
}

/// Both are `web-abcde` here: the first has no profile, and the other is cancelled.
#[test]
fn one_side_without_a_profile_cancels_the_other() {
    let server = cluster(vec![failed(), in_progress()]);
    let line = "verdict deploy/web --canary deploy/web-canary";
    fails_with_a_hint(&server, line, 5, "NoPodsReady");
    assert_eq!(server.count("PATCH", &format!("{REQUESTS}/web-abcde")), 1);
}

#[test]
fn a_wrong_canary_creates_nothing() {
    let server = cluster(vec![complete()]);
    for (line, part) in [
        ("verdict deploy/web --canary deployment/web", "are the same"),
        ("verdict deploy/web --canary deploy/a/b", "names nothing"),
        (
            "verdict deploy/web --canary deploy/web-b -F 100000",
            "samplesPerSecond",
        ),
    ] {
        fails_with_a_hint(&server, line, 2, part);
    }
    for line in [
        "verdict deploy/web",
        "verdict web-a web-b -d 30s",
        "verdict web-a web-b --canary deploy/web-b",
        "verdict deploy/web --canary deploy/web-b --before-requests a.json.gz",
    ] {
        assert_eq!(run_on(&server, line).code, 2, "{line}");
    }
    assert_eq!(server.count("POST", REQUESTS), 0);
}
