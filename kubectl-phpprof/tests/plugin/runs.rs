//! `run` and `cancel`: what a run asks the API server for, shows and leaves.

use std::time::Duration;

use crate::cluster::{
    REQUESTS, cluster, cluster_with, complete, failed, fails_with_a_hint, in_progress, run_on,
};
use crate::server::{ScriptServer, json_answer};
use crate::shell::{program, said};

#[test]
fn a_run_creates_waits_and_shows_the_top() {
    let server = cluster(vec![in_progress(), in_progress(), complete()]);
    let said = run_on(&server, "run deploy/web -d 1s --as bob");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out
            .starts_with("profilerequest.phpprof.dev/web-abcde created\ntotal wall: 3.60 s"),
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
fn a_run_shows_the_requested_table() {
    let server = cluster(vec![complete()]);
    let said = run_on(&server, "run deploy/web -d 1s -t cpu --by pod");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("total cpu: 3.24 s; 2 of 2 values of pod"),
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
    let dotted = ScriptServer::start(|asked| {
        if asked.path.ends_with("/a.b") {
            json_answer(200, &failed())
        } else {
            None
        }
    });
    fails_with_a_hint(&dotted, "top a.b", 5, "has no profile");
}

/// For instance if no HTTP request had a trace id.
#[test]
fn an_absent_label_fails_no_stored_run() {
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
fn a_run_ends_with_its_findings() {
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
fn a_run_without_waiting_ends_at_once() {
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
    let old = ScriptServer::start(|_| json_answer(200, &in_progress()));
    let said = run_on(&old, "cancel web-abcde");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("has no spec.cancel"), "{}", said.err);
}

#[test]
fn control_c_without_terminal_leaves_the_request_running() {
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
        said.err.contains("web-abcde continues")
            && said.err.contains("kubectl phpprof cancel web-abcde"),
        "{}",
        said.err
    );
    assert_eq!(server.count("PATCH", ""), 0);
}
