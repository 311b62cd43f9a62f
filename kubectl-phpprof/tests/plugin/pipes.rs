//! A reader of standard output that stops early, such as `head`.

use serde_json::json;

use crate::cluster::{REQUESTS, cluster, complete, in_progress, run_on};
use crate::server::{ScriptServer, json_answer, refusal};
use crate::shell::{ShellOutput, files, program, said};

/// Runs a command with this server and with profiles in files. Nobody reads what it prints.
fn run_unread(server: &ScriptServer, line: &str) -> ShellOutput {
    let (_files, folder) = files();
    server.kubeconfig(&folder);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    said(
        &program()
            .args(line.split_whitespace())
            .env("KUBECONFIG", "kubeconfig")
            .current_dir(&folder)
            .stdout(writer)
            .output()
            .unwrap(),
    )
}

#[track_caller]
fn check(server: &ScriptServer, line: &str, code: i32) {
    let said = run_unread(server, line);
    assert_eq!(said.code, code, "{line}: {}", said.err);
}

#[test]
fn a_reader_that_stops_early_changes_no_code() {
    let runs = cluster(vec![complete()]);
    check(&runs, "run deploy/web -d 1s", 0);
    check(&runs, "run deploy/web --dry-run=client", 0);
    check(&runs, "run deploy/web --wait=false -o name", 0);
    check(&runs, "download web-abcde -o -", 0);
    check(&runs, "list", 0);
    let unfit = ScriptServer::start(|asked| match asked.path.as_str() {
        "/apis" => json_answer(
            200,
            &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        ),
        _ => refusal(403, "no"),
    });
    check(&unfit, "doctor deploy/web", 8);
    let grown = "diff before.pb.gz after.pb.gz --fail-above 5";
    check(&unfit, grown, 9);
    let first = format!("{REQUESTS}/web-abcde");
    let deletes = ScriptServer::start(move |asked| match asked.path.split('?').next()? {
        path if path == first => json_answer(200, &complete()),
        _ => refusal(404, "profilerequests.phpprof.dev \"other\" not found"),
    });
    check(&deletes, "delete web-abcde other", 3);
}

#[test]
fn what_was_done_before_a_failure_is_printed() {
    let first = format!("{REQUESTS}/web-abcde");
    let server = ScriptServer::start(move |asked| {
        let path = asked.path.split('?').next()?;
        match (asked.method.as_str(), path) {
            ("PATCH", path) if path == first => {
                let mut patched = in_progress();
                patched["spec"]["cancel"] = json!(true);
                json_answer(200, &patched)
            }
            (_, path) if path == first => json_answer(200, &in_progress()),
            _ => refusal(404, "profilerequests.phpprof.dev \"other\" not found"),
        }
    });
    for (verb, done) in [("cancel", "cancelled"), ("delete", "deleted")] {
        let said = run_on(&server, &format!("{verb} web-abcde other"));
        let expected = format!("profilerequest.phpprof.dev/web-abcde {done}\n");
        assert_eq!((said.code, said.out), (3, expected), "{}", said.err);
    }
}
