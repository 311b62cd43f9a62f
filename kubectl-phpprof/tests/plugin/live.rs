//! `top --live` on a terminal, with a scripted API server: what it shows, and how it ends.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};
use phpprof_testing::wait_until;
use serde_json::{Value, json};

use crate::cluster::{PROXY, REQUESTS, fails_with_a_hint};
use crate::server::{ScriptServer, json_answer};

fn request(spec: &Value, status: Value) -> Value {
    json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": "web-live-abcde", "namespace": "shop", "uid": "u1"},
        "spec": spec, "status": status,
    })
}

/// The operator's answer: base64 of a second in which a function was busy.
fn second(number: i64) -> Value {
    use base64::Engine as _;
    let mut builder = Builder::new(Settings {
        time_nanos: number * 1_000_000_000,
        duration_nanos: 1_000_000_000,
        ..Settings::default()
    });
    let frame = FrameRef {
        name: r"Shop\Cart::price",
        file: "/srv/app/src/Cart.php",
        line: 7,
        ..FrameRef::default()
    };
    let labels = [SampleTag::Num("pid", 7, ""), SampleTag::Str("pod", "a-lie")];
    builder.add(&[frame], &[99, 900_000_000, 1_000_000_000], &labels);
    let profile = encode_gzip(&builder.finish());
    let profile = base64::engine::general_purpose::STANDARD.encode(profile);
    json!({"number": number, "pod": "web-1", "container": "fpm", "profile": profile})
}

/// A cluster whose live request has a second in each answer. The first answer comes from a replica
/// that does not lead.
fn cluster() -> ScriptServer {
    let live = format!("{PROXY}/r/shop/web-live-abcde/live");
    let asked_before = std::sync::atomic::AtomicUsize::new(0);
    ScriptServer::start(move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        let conditions = |kind: &str, reason: &str| json!([{"type": kind, "status": "True", "reason": reason, "message": ""}]);
        let running = json!({"conditions": conditions("Accepted", "Sampling"), "accessKey": "k"});
        let one = format!("{REQUESTS}/web-live-abcde");
        match (asked.method.as_str(), path) {
            ("POST", path) if path == REQUESTS => {
                json_answer(201, &request(&asked.body["spec"], json!({})))
            }
            ("GET", path) if path == one => json_answer(200, &request(&json!({}), running)),
            ("PATCH", path) if path == one => {
                json_answer(200, &request(&asked.body["spec"], running))
            }
            ("POST", path) if path == live => {
                let times = asked_before.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                match (times, asked.body["accessKey"] == "k") {
                    (_, false) => json_answer(403, &json!({"message": "no"})),
                    (0, _) => json_answer(421, &json!({"message": "another replica leads"})),
                    _ => {
                        let after = asked.body["after"].as_i64().unwrap_or(0);
                        json_answer(200, &json!({"seconds": [second(after + 1)]}))
                    }
                }
            }
            _ => None,
        }
    })
}

/// The plugin on its own terminal.
fn on_a_terminal(folder: &Path) -> Child {
    let line = format!(
        "stty rows 24 cols 80; exec {} top deploy/web --live --kubeconfig kubeconfig",
        env!("CARGO_BIN_EXE_kubectl-phpprof")
    );
    Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_terminal_that_is_gone_cancels_the_request() {
    let server = cluster();
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let mut running = on_a_terminal(folder.path());
    wait_until("call", || Ok(server.count("POST", "/live") >= 2)).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    wait_until("call", || Ok(server.count("PATCH", REQUESTS) > 0)).unwrap();
    assert_eq!(server.count("PATCH", REQUESTS), 1);
    // The program has ended, too: it makes no more calls.
    std::thread::sleep(Duration::from_millis(300));
    let asked = server.count("POST", "/live");
    std::thread::sleep(Duration::from_millis(2200));
    assert_eq!(server.count("POST", "/live"), asked);
}

#[test]
fn a_live_table_saves_and_cancels_its_request() {
    let server = cluster();
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let mut running = on_a_terminal(folder.path());
    wait_until("call", || Ok(server.count("POST", "/live") >= 4)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut terminal = running.stdin.take().unwrap();
    terminal.write_all(b"s4").unwrap();
    std::thread::sleep(Duration::from_millis(400));
    terminal.write_all(b"q").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    let mut shown = String::new();
    let mut stdout = running.stdout.take().unwrap();
    stdout.read_to_string(&mut shown).unwrap();
    let (_, drawn) = shown.split_once("\x1b[?1049h").unwrap();
    let (drawn, left) = drawn.split_once("\x1b[?1049l").unwrap();
    // The pod's name comes from the operator.
    for word in [r"Shop\Cart::price", "web-1", "phpprof-top-"] {
        assert!(drawn.contains(word), "{word} is not in {drawn:?}");
    }
    assert!(!drawn.contains("a-lie"), "{drawn:?}");
    assert!(left.contains("web-live-abcde is ending"), "{left:?}");
    let files = std::fs::read_dir(folder.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".pb.gz")).count(), 1);
    let asked = server.asked.lock().unwrap();
    let mut all = asked.iter();
    let created = all.find(|it| it.method == "POST" && it.path.starts_with(REQUESTS));
    let created = created.unwrap();
    assert_eq!(created.body["spec"]["mode"], "Live");
    assert_eq!(created.body["spec"]["durationSeconds"], 300);
    assert!(all.any(|it| it.method == "PATCH" && it.body["spec"]["cancel"] == true));
}

#[test]
fn without_a_terminal_nothing_is_asked_for() {
    let server = cluster();
    fails_with_a_hint(&server, "top deploy/web --live", 2, "terminal");
    assert_eq!(server.count("POST", ""), 0);
    // Flags that make no sense for a live table.
    for flags in ["--sort=self", "--by=pod", "-o json", "--count=3"] {
        let line = format!("top deploy/web --live {flags}");
        let said = crate::cluster::run_on(&server, &line);
        assert_eq!(
            (said.code, said.err.contains("cannot be used with")),
            (2, true)
        );
    }
}
