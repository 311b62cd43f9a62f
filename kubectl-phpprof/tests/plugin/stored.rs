//! Profiles that outlive their requests, as the plugin shows them. A server simulates the API
//! server and the operator's archive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use phpprof_testing::wait_until;
use serde_json::{Value, json};

use crate::cluster::{PROXY, REQUESTS, fails_with_a_hint, results, run_on};
use crate::server::{ScriptServer, json_answer, refusal};
use crate::shell::{ShellOutput, program, said};

const ARCHIVES: &str = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilearchives";
const UID: &str = "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
const OTHER: &str = "aaaabbbb-4f50-4a6b-8c7d-9e0f1a2b3c4d";

/// A cluster whose requests were deleted. `key` opens the operator's archive.
fn without_requests(key: &'static str) -> ScriptServer {
    ScriptServer::start(move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        let opens = asked.body == json!({"accessKey": key});
        let links = json!({"expiresAt": "2026-09-21T14:08:00Z", "links": [{"name": "profile", "path": "/l/t/merged.pb.gz"}]});
        match (asked.method.as_str(), path.strip_prefix(PROXY)) {
            ("POST", Some("/a/shop")) if opens => json_answer(200, &stored()),
            ("POST", Some(path)) if opens && path == format!("/a/shop/first/{UID}") => {
                json_answer(200, &links)
            }
            ("GET", Some(_)) => results(asked),
            (_, Some(_)) => json_answer(
                403,
                &json!({"message": "this accessKey does not open what is stored"}),
            ),
            ("GET", None) if path == format!("{ARCHIVES}/profiles") => json_answer(
                200,
                &json!({
                    "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileArchive",
                    "metadata": {"name": "profiles", "namespace": "shop"},
                    "spec": {"accessKeyGeneration": 0}, "status": {"namespaceUID": "n1", "accessKey": "a1"},
                }),
            ),
            ("GET", None) if path == format!("{REQUESTS}/forbidden") => refusal(403, "no"),
            _ => refusal(404, "profilerequests.phpprof.dev \"x\" not found"),
        }
    })
}

/// The stored profiles from the contract, and an older request of the same name.
fn stored() -> Value {
    let golden: Value =
        serde_json::from_str(include_str!("../../../contract/archive.json")).unwrap();
    let mut answer = golden["answer"].clone();
    let mut older = answer["profiles"][0].clone();
    older["uid"] = json!(OTHER);
    older["startTime"] = json!("2026-09-20T14:13:20Z");
    answer["profiles"].as_array_mut().unwrap().push(older);
    answer
}

#[test]
fn what_is_stored_is_listed_without_a_request() {
    let server = without_requests("a1");
    let said = run_on(&server, "list --stored");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("first@0b1c2d3e") && said.out.contains("deployment/web"),
        "{}",
        said.out
    );
    let names = run_on(&server, "list --stored -o name").out;
    assert_eq!(names, "first@0b1c2d3e\nfirst@aaaabbbb\n");
    let listed: Value =
        serde_json::from_str(&run_on(&server, "list --stored -o json").out).unwrap();
    assert_eq!(listed, stored());
    let got = run_on(&server, "get first -o json");
    let got: Value = serde_json::from_str(&got.out).unwrap();
    assert_eq!(got, stored()["profiles"][0]);
    assert_eq!(run_on(&server, "list --stored -A").code, 2);
}

#[test]
fn a_deleted_requests_profile_stays_shown_and_compared() {
    let server = without_requests("a1");
    for (line, expected) in [
        ("top first", "Shop\\Cart::price"),
        ("top pprof/first@0b1c", "Shop\\Cart::price"),
        ("download first", "wrote first.pb.gz"),
        ("flame first -o f.html", "wrote f.html"),
        (
            "diff first first@0b1c2d3e",
            "wall: 3.60 s before, 3.60 s after",
        ),
    ] {
        let said = run_on(&server, line);
        assert!(
            said.out.contains(expected),
            "{line}: {}{}",
            said.out,
            said.err
        );
        assert!(
            said.err
                .contains("taken from the store: first@0b1c2d3e, of 2026-09-21T14:13:20Z"),
            "{}",
            said.err
        );
    }
    let said = run_on(&server, "top first");
    assert!(
        said.err
            .contains("older ones with that name: first@aaaabbbb"),
        "{}",
        said.err
    );
}

#[test]
fn what_is_neither_there_nor_stored_says_so() {
    let check = fails_with_a_hint;
    let server = without_requests("a1");
    check(
        &server,
        "top second",
        3,
        "in the store: no profile of a request second is stored",
    );
    check(
        &server,
        "top first@ffff",
        3,
        "there are first@0b1c2d3e, first@aaaabbbb",
    );
    check(
        &server,
        "top forbidden",
        4,
        "ask for the right to get profilerequests/forbidden",
    );
    let rotated = without_requests("a2");
    check(&rotated, "list --stored", 4, "the operator refused the key");
    check(&rotated, "top first", 3, "\"x\" not found");
    let without =
        ScriptServer::start(|_| refusal(404, "profilearchives.phpprof.dev \"profiles\" not found"));
    check(
        &without,
        "list --stored",
        3,
        "the operator makes it with the first request",
    );
    let forbidden = ScriptServer::start(|_| refusal(403, "no"));
    check(
        &forbidden,
        "list --stored",
        4,
        "ask for the right to get profilearchives/profiles in namespace shop",
    );
}

/// The completions of the last of these words.
fn completed(server: &ScriptServer, words: &[&str]) -> ShellOutput {
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let mut command = program();
    command
        .arg("__complete")
        .args(words)
        .env("KUBECONFIG", folder.path().join("kubeconfig"));
    said(&command.output().unwrap())
}

#[test]
fn completion_proposes_stored_names_for_their_verbs() {
    let server = without_requests("a1");
    for verb in ["top", "flame", "diff", "download", "get"] {
        let out = completed(&server, &[verb, ""]).out;
        assert!(out.starts_with("first\tstored, for "), "{verb}: {out}");
        assert_eq!(out.lines().count(), 2, "{verb}: {out}");
    }
    let full = completed(&server, &["top", "first@"]).out;
    let names = full.lines().filter_map(|line| line.split_once('\t'));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert_eq!(names, ["first@0b1c2d3e", "first@aaaabbbb"]);
    assert_eq!(completed(&server, &["describe", ""]).out, ":4\n");
    // Flags before the verb select the namespace, as those after it do.
    for flag in ["-n blog", "--namespace=blog"] {
        let before: Vec<&str> = flag.split(' ').chain(["top", ""]).collect();
        assert_eq!(completed(&server, &before).out, ":0\n", "{flag}");
        assert_ne!(server.count("GET", "/namespaces/blog/"), 0, "{flag}");
    }
}

#[test]
fn completion_ignores_a_denying_or_slow_store() {
    let refused = completed(&without_requests("a2"), &["top", ""]);
    assert_eq!((refused.out.as_str(), refused.err.as_str()), (":0\n", ""));
    let is_over = Arc::new(AtomicBool::new(false));
    let was_late = Arc::new(AtomicBool::new(false));
    let (ends, is_late) = (is_over.clone(), was_late.clone());
    let slow = ScriptServer::start(move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        match path {
            REQUESTS => json_answer(
                200,
                &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [{"metadata": {"name": "live"}}]}),
            ),
            _ => {
                let ended = wait_until("completion", || Ok(ends.load(Ordering::Relaxed)));
                is_late.fetch_or(ended.is_err(), Ordering::Relaxed);
                None
            }
        }
    });
    let said = completed(&slow, &["top", ""]);
    is_over.store(true, Ordering::Relaxed);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("live\n:0\n", ""));
    assert!(!was_late.load(Ordering::Relaxed), "it waited for the store");
}
