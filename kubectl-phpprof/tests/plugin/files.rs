//! The verbs on local files: no cluster, no kubeconfig.

use phpprof_profile::{DecodeLimits, decode, total};

use crate::shell::{files, profile, run};

#[track_caller]
fn check(line: &str, code: i32, out: &str, err: &str) {
    let (_folder, path) = files();
    let said = run(&path, line);
    assert_eq!(said.code, code, "{line}: {}{}", said.out, said.err);
    assert!(said.out.contains(out), "{line}: {}", said.out);
    assert!(said.err.contains(err), "{line}: {}", said.err);
    if code > 2 || code == 1 {
        assert!(said.err.contains("\nhint: "), "{line}: {}", said.err);
    }
}

#[test]
fn top_shows_functions_by_their_time() {
    check("top after.pb.gz", 0, "2.70 s   75.00    75.00", "");
    check(
        "top after.pb.gz -t samples --sort total --count 1",
        0,
        "{main}",
        "",
    );
    check("top after.pb.gz -l pod=web-1", 0, "total wall: 1.20 s", "");
    check("top after.pb.gz -t cpu", 0, "total cpu: 3.24 s", "");
    check("top after.pb.gz --by pod", 0, "web-2", "");
    check(
        "top after.pb.gz --by rote",
        2,
        "",
        "choose one of these with --by: pid, pod, waiting",
    );
    check("top after.pb.gz --by waiting", 0, "total wall", "");
    check("top after.pb.gz -o json", 0, "\"self\": 2700000000", "");
    check(
        "top after.pb.gz -o name",
        0,
        "Shop\\Cart::price\nsimilar_text\n{main} /srv/app/index.php\n",
        "",
    );
}

#[test]
fn output_has_the_forms_of_kubectl() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../profile/tests/findings");
    let found = format!("findings {folder}/waiting-database-has.pb.gz");
    let path = "-o jsonpath={.findings[*].id}";
    check(&format!("{found} {path}"), 0, "waiting-database", "");
    let columns = "-o custom-columns=ID:.id,SHARE:.share";
    check(
        &format!("{found} {columns}"),
        0,
        "ID                 SHARE\n",
        "",
    );
    check(
        &format!("{found} -o wide"),
        0,
        "PHP waits for the database",
        "",
    );
    let top = "top after.pb.gz -o";
    check(
        &format!("{top} jsonpath={{.rows[0].self}}"),
        0,
        "2700000000",
        "",
    );
    check(
        &format!("{top} custom-columns=NAME:.function"),
        0,
        "NAME\nShop\\Cart::price\n",
        "",
    );
    check(
        &format!("{top} csv"),
        2,
        "",
        "; use table, wide, json, yaml, name, jsonpath=",
    );
    check(
        &format!("{top} jsonpath-file=none"),
        3,
        "",
        "none: No such file",
    );
    let diff = "diff before.pb.gz after.pb.gz -o";
    check(
        &format!("{diff} jsonpath={{.rows[0].function}}"),
        0,
        "Shop\\Cart::price",
        "",
    );
    check(
        &format!("{diff} jsonpath={{.rows["),
        2,
        "",
        "no closing brace",
    );
    check(
        "version --client -o jsonpath={.client}",
        0,
        env!("CARGO_PKG_VERSION"),
        "",
    );
    for line in ["requests x -o name", "dump pod/x -o table"] {
        check(line, 2, "", "is not an output format");
    }
}

#[test]
fn findings_say_what_there_is_to_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../profile/tests/findings");
    let recorded = |name: &str| format!("{folder}/{name}.pb.gz");
    let has = recorded("waiting-database-has");
    check(
        &format!("findings {has}"),
        0,
        "PHP waits for the database",
        "",
    );
    check(
        &format!("findings {has} -o name"),
        0,
        "waiting-database\n",
        "",
    );
    check(
        &format!("findings {has} -o json"),
        0,
        "\"id\": \"waiting-database\"",
        "",
    );
    let near = recorded("gc-near");
    check(&format!("findings {near}"), 0, "", "No findings in gc-near");
    check(&format!("findings {near} -o yaml"), 0, "findings: []", "");
    check(&format!("top {has} --by waiting"), 0, "   database\n", "");
    check(
        &format!("top {has} -l waiting=database -o name"),
        0,
        "PDO::exec\n",
        "",
    );
    check("findings nothing.pb.gz", 3, "", "no such file");
    check("findings", 2, "", "Usage: kubectl phpprof findings");
}

#[test]
fn diff_tells_what_grew_and_draws_it() {
    check("diff before.pb.gz after.pb.gz", 0, "+12.50", "");
    check(
        "diff before.pb.gz after.pb.gz -o yaml",
        0,
        "before: 1500000000",
        "",
    );
    check(
        "diff before.pb.gz after.pb.gz -o d.html",
        0,
        "wrote d.html",
        "",
    );
    check(
        "diff before.pb.gz after.pb.gz -o d.svg",
        0,
        "wrote d.svg",
        "",
    );
    check(
        "diff before.pb.gz after.pb.gz -o d.txt",
        2,
        "",
        "a flame graph is a page or a picture",
    );
}

#[test]
fn diff_ends_a_pipeline_where_a_function_grew() {
    check(
        "diff before.pb.gz after.pb.gz --fail-above 5",
        9,
        "+12.50",
        "Shop\\Cart::price grew most, by 12.50",
    );
    check(
        "diff before.pb.gz after.pb.gz --fail-above 13",
        0,
        "+12.50",
        "",
    );
    check(
        "diff after.pb.gz before.pb.gz --fail-above 12.6",
        0,
        "-12.50",
        "",
    );
    check(
        "diff before.pb.gz after.pb.gz --fail-above 5 -o d.html",
        9,
        "wrote d.html",
        "",
    );
    check("diff before.pb.gz after.pb.gz --fail-above -1", 2, "", "");
    check(
        "diff before.pb.gz after.pb.gz --per request",
        2,
        "",
        "does not say how many requests",
    );
    check(
        "diff before.pb.gz after.pb.gz --trim-path /srv/* -o json",
        0,
        "\"file\": \"src/Cart.php\"",
        "",
    );
}

#[test]
fn download_converts_by_the_end_of_the_name() {
    for name in [
        "o.folded",
        "o.speedscope.json",
        "callgrind.out.o",
        "o.json.gz",
        "o.svg",
        "o.html",
        "o.pb.gz",
    ] {
        check(
            &format!("download after.pb.gz -o {name}"),
            0,
            &format!("wrote {name}"),
            "",
        );
    }
    check(
        "download after.pb.gz -o o.pdf",
        2,
        "",
        "is not a known format",
    );
    let (_folder, path) = files();
    assert_eq!(
        run(&path, "download after.pb.gz -l pod=web-2 -o two.pb.gz").code,
        0
    );
    let kept = decode(
        &std::fs::read(path.join("two.pb.gz")).unwrap(),
        &DecodeLimits::default(),
    )
    .unwrap();
    assert_eq!(total(&kept, "wall"), total(&profile(900), "wall") * 2 / 3);
}

#[test]
fn flame_writes_a_page_and_names_its_file() {
    check("flame after.pb.gz -o f.html", 0, "wrote f.html", "");
    check(
        "flame after.pb.gz -o f.folded",
        2,
        "",
        "hint: use the extension .html or .svg",
    );
    let (_folder, path) = files();
    let said = run(&path, "flame after.pb.gz");
    let page = said.out.split("file://").nth(1).unwrap().trim();
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.contains("Shop\\\\Cart::price"));
    let folder = std::path::Path::new(page).parent().unwrap();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(folder).unwrap().permissions().mode() & 0o777,
        0o700
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn source_of_a_folder_is_in_the_page() {
    let (_folder, path) = files();
    let checkout = path.join("checkout");
    std::fs::create_dir_all(checkout.join("src")).unwrap();
    std::fs::write(checkout.join("index.php"), "<?php // the top level").unwrap();
    // Cart.php is a link to a file outside of the folder.
    std::fs::write(path.join("secret"), "the secret").unwrap();
    std::os::unix::fs::symlink(path.join("secret"), checkout.join("src/Cart.php")).unwrap();
    let said = run(&path, "flame after.pb.gz --source checkout -o f.html");
    assert_eq!(said.code, 0, "{}", said.err);
    let expected = "files of checkout in the page: 1; left out: 1 outside of it by a symbolic link";
    assert!(said.err.contains(expected), "{}", said.err);
    let page = std::fs::read_to_string(path.join("f.html")).unwrap();
    assert!(page.contains("\\u003c?php // the top level") && !page.contains("the secret"));
}

#[test]
fn a_source_folder_without_the_files_is_refused() {
    check(
        "flame after.pb.gz --source . -o f.html",
        2,
        "",
        "has none of the profile's files",
    );
    check(
        "flame after.pb.gz --source nowhere -o f.html",
        3,
        "",
        "nowhere: No such file",
    );
    check(
        "flame after.pb.gz --source . -o f.svg",
        2,
        "",
        "use the extension .html",
    );
}

#[test]
fn what_goes_wrong_has_its_own_exit_code() {
    check("top nothing.pb.gz", 3, "", "nothing.pb.gz: no such file");
    check(
        "top after.pb.gz -t heap",
        2,
        "",
        "it has samples, cpu, wall",
    );
    check("top after.pb.gz -l pod", 2, "", "KEY=VALUE");
    check("run", 2, "", "Usage: kubectl phpprof run");
    check(
        "run shop/web --dry-run",
        2,
        "",
        "not a known kind of workload",
    );
    check(
        "run deploy/web --duration 2h --dry-run",
        2,
        "",
        "durationSeconds must be from 1 to 3600",
    );
    check(
        "run deploy/web --samples-per-second 0 --dry-run",
        2,
        "",
        "samplesPerSecond must be from 1 to 1000",
    );
    check(
        "run deploy/web -t heap_growth --dry-run",
        2,
        "",
        "a request without heap has no heap_growth",
    );
    check("top a.b", 7, "", "as a request: no usable kubeconfig");
    check("top pprof/after.pb.gz", 7, "", "no usable kubeconfig");
    check("explain Nothing", 3, "", "hint: list all reasons");
    check("list --kubeconfig none.yaml", 7, "", "no usable kubeconfig");
    std::fs::write("/tmp/phpprof-plugin-text.pb.gz", "no profile").unwrap();
    check(
        "top /tmp/phpprof-plugin-text.pb.gz",
        1,
        "",
        "is not a profile",
    );
    std::fs::remove_file("/tmp/phpprof-plugin-text.pb.gz").unwrap();
}

#[test]
fn a_client_side_dry_run_prints_the_request() {
    let (_folder, path) = files();
    let said = run(
        &path,
        "run deploy/web -c fpm -d 1m -F 199 --max-pods 3 --dry-run",
    );
    insta::assert_snapshot!("dry_run_yaml", said.out);
    let said = run(
        &path,
        "run -l app=web,tier!=cache --name first --dry-run=client -o json",
    );
    insta::assert_snapshot!("dry_run_json", said.out);
    std::fs::write(
        path.join("first.yaml"),
        run(&path, "run pod/web-1 --name first --dry-run").out,
    )
    .unwrap();
    assert_eq!(
        run(&path, "run -f first.yaml --dry-run -o name").out,
        "profilerequest.phpprof.dev/first\n"
    );
    check("run -f after.pb.gz --dry-run", 1, "", "hint: ");
}

#[test]
fn help_and_completion_speak_as_kubectl_does() {
    let (_folder, path) = files();
    insta::assert_snapshot!("help", run(&path, "--help").out);
    insta::assert_snapshot!("help_run", run(&path, "run --help").out);
    let said = run(&path, "__complete do");
    assert_eq!(
        said.out,
        "download\tSave the profile of a request, or convert a profile file\ndoctor\tCheck whether you can profile a workload, and how, or why not\n:4\n"
    );
    check("__complete run de", 0, "deploy/\tDeployment\n:4\n", "");
    check(
        "completion kubectl",
        0,
        "exec kubectl-phpprof __complete \"$@\"",
        "",
    );
    let link = path.join("kubectl_complete-phpprof");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubectl-phpprof"), &link).unwrap();
    let output = std::process::Command::new(&link)
        .args(["explain", "UserU"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("UserUnknown\t"));
}

#[test]
fn a_closed_pipe_does_not_fail_explain() {
    let (_folder, path) = files();
    let script = format!(
        "{} explain | head -n 1; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_kubectl-phpprof")
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(&path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Suspended\n0\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
