//! Requests that are there: lists, names, descriptions, profiles, deletion.

use serde_json::{Value, json};

use crate::cluster::{
    REQUESTS, cluster, cluster_with, complete, fails_with_a_hint, in_progress, run_on,
};
use crate::server::{ScriptServer, json_answer, refusal};
use crate::shell::{program, said};

#[test]
fn a_description_ends_with_the_profiles_findings() {
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
fn a_requests_profile_is_shown_saved_and_compared() {
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
    for (form, begin) in [
        ("json", "{\n  \"workers\": []"),
        ("yaml", "withoutSample: 0\nworkers: []\n"),
    ] {
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
    fails_with_a_hint(&server, &wrong, 2, "headings and 0 paths");
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
fn deleting_requests_says_what_remains_of_them() {
    let objects = |path: &str| match path {
        REQUESTS => json_answer(
            200,
            &json!({"kind": "ProfileRequestList", "apiVersion": "phpprof.dev/v1alpha1", "metadata": {}, "items": [complete()]}),
        ),
        path if path == format!("{REQUESTS}/web-abcde") => json_answer(200, &complete()),
        _ => refusal(404, "profilerequests.phpprof.dev \"other\" not found"),
    };
    let server = ScriptServer::start(move |asked| objects(asked.path.split('?').next()?));
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
        "what may not be listed is not an error"
    );
}
