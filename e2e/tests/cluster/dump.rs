//! `kubectl phpprof dump`: one worker that waits for a lock, as of a session, on a wiki under load;
//! and three of 64 workers that wait for a socket, read by a sampler of the dump's own and by a
//! resident one.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::requests::status;
use e2e::users::User;
use e2e::{ENABLED, Fixture, exclusive, pods, promised, say, shared};
use kube::api::ListParams;
use phpprof_crds::ProfileRequest;
use serde_json::{Value, json};

/// One process holds a lock, and a request waits for it.
const HANG: &str = r#"
echo '<?php function stuck() { $lock = fopen("/tmp/lock", "c"); touch("/tmp/hangs"); flock($lock, LOCK_EX); } stuck();' > /usr/share/dokuwiki/hang.php
php -r '$lock = fopen("/tmp/lock", "c"); chmod("/tmp/lock", 0666); flock($lock, LOCK_EX); touch("/tmp/held"); sleep(120);' >/dev/null 2>&1 </dev/null &
until [ -e /tmp/held ]; do sleep 0.1; done
php -r 'file_get_contents("http://127.0.0.1:8080/hang.php");' >/dev/null 2>&1 </dev/null &
until [ -e /tmp/hangs ]; do sleep 0.1; done
"#;

fn functions(worker: &Value) -> Vec<&str> {
    let frames = worker["stack"].as_array().into_iter().flatten();
    frames
        .filter_map(|frame| frame["function"].as_str())
        .collect()
}

#[test]
fn dump_names_a_hanging_workers_request_and_wait() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::dokuwiki("web", "1")]).await?;
        fixture.exec("web", &["sh", "-c", HANG], &[]).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let user = fixture.administrator()?;
        let began = Instant::now();
        let said = user.run("dump pod/web -c fpm -o json").await?.well()?;
        promised("a dump", Duration::from_secs(6), began.elapsed())?;
        let said: Value = serde_json::from_str(&said)?;
        let workers = said["workers"].as_array().context("no workers")?;
        say(&format!("{} workers", workers.len()));
        let stuck = workers
            .iter()
            .find(|it| functions(it) == ["flock", "stuck", "{main}"]);
        let stuck = stuck.with_context(|| format!("nobody is in flock: {workers:#?}"))?;
        ensure!(
            stuck["state"] == "Waiting"
                && stuck["pod"] == "web"
                && stuck["systemCall"]["name"] == "flock"
                && stuck["method"] == "GET"
                && stuck["route"] == "/hang.php"
                && stuck["requestSeconds"].as_f64() > Some(1.0),
            "{stuck:#}"
        );
        let memory = user.run("dump pod/web -c fpm --memory -o json").await?;
        let memory: Value = serde_json::from_str(&memory.well()?)?;
        let workers = memory["workers"].as_array().context("no workers")?;
        let has_heap = |worker: &Value| {
            let [heap, classes] = ["heap", "classes"].map(|key| &worker["memory"][key]);
            heap["realSize"].as_u64() >= Some(2 << 20)
                && !heap["isMoment"].is_null()
                && classes["byClass"].is_array()
        };
        ensure!(workers.iter().all(has_heap), "{memory:#}");
        let text = user.run("dump pod/web -c fpm").await?.well()?;
        ensure!(
            text.contains("waits in flock") && text.contains("GET /hang.php for"),
            "{text}"
        );
        Ok(())
    })
}

const WORKERS: usize = 64;
/// A server that never answers, and three requests that wait for it.
const HANG_IN_A_SOCKET: &str = r#"
echo '<?php function answer($socket) { touch("/tmp/hangs-" . $_GET["n"]); return fread($socket, 1); } function asked() { return answer(stream_socket_client("tcp://127.0.0.1:9999")); } asked();' > /usr/share/dokuwiki/hang.php
php -r '$server = stream_socket_server("tcp://127.0.0.1:9999"); touch("/tmp/listens"); $open = []; while (true) { $open[] = @stream_socket_accept($server, 300); }' >/dev/null 2>&1 </dev/null &
until [ -e /tmp/listens ]; do sleep 0.1; done
for n in 1 2 3; do
  php -r "file_get_contents('http://127.0.0.1:8080/hang.php?n=$n');" >/dev/null 2>&1 </dev/null &
  until [ -e /tmp/hangs-$n ]; do sleep 0.1; done
done
"#;

/// The wiki with this many workers, and without load.
fn wiki_of_many() -> Value {
    let mut pod = pods::dokuwiki("web", "1");
    let start = format!(
        "sed 's/^pm.max_children = .*/pm.max_children = {WORKERS}/' /etc/php/8.2/fpm/php-fpm.conf > /tmp/fpm.conf && exec php-fpm8.2 --nodaemonize --fpm-config /tmp/fpm.conf"
    );
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.retain(|container| container["name"] != "load");
        for container in containers.iter_mut() {
            if container["name"] == "fpm" {
                container["command"] = json!(["sh", "-c", start]);
            }
        }
    }
    pod
}

/// Checks the time from the command to its output. The waiting workers come first, and all of their
/// stacks are whole.
async fn dumped(user: &User, what: &str, promise: Duration) -> Result<()> {
    let began = Instant::now();
    let said = user.run("dump pod/web -c fpm -o json").await?.well()?;
    promised(what, promise, began.elapsed())?;
    let said: Value = serde_json::from_str(&said)?;
    let workers = said["workers"].as_array().context("no workers")?;
    // The scripts that send requests and answer them are PHP processes, too.
    ensure!(workers.len() >= WORKERS, "{} workers", workers.len());
    let is_of_pool = |worker: &&Value| worker["sapi"] == "fpm-fcgi";
    for stuck in workers.iter().filter(is_of_pool).take(3) {
        let call = json!({"name": "poll", "on": "socket", "peerPort": 9999});
        ensure!(
            functions(stuck) == ["fread", "answer", "asked", "{main}"]
                && stuck["stack"][1]["line"] == 1
                && stuck["state"] == "Waiting"
                && stuck["systemCall"] == call
                && stuck["route"] == "/hang.php"
                && stuck["requestSeconds"].as_f64() > Some(1.0),
            "{stuck:#}"
        );
    }
    let others = workers.iter().filter(is_of_pool).skip(3);
    let hang = others.filter(|it| functions(it).contains(&"asked"));
    ensure!(hang.count() == 0, "{workers:#?}");
    Ok(())
}

async fn hanging(fixture: &Fixture) -> Result<()> {
    fixture.start(&[wiki_of_many()]).await?;
    let hang = ["sh", "-c", HANG_IN_A_SOCKET];
    fixture.exec("web", &hang, &[]).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// No other test of this cluster runs at the same time; those on the second one may.
mod quiet {
    use super::*;

    #[test]
    fn dump_finds_3_hanging_of_64_workers() -> Result<()> {
        exclusive(async |fixture| {
            hanging(fixture).await?;
            let user = fixture.administrator()?;
            let promise = Duration::from_secs(6);
            dumped(&user, "a dump of 64 workers", promise).await
        })
    }

    #[test]
    fn a_resident_sampler_finds_hanging_workers_sooner() -> Result<()> {
        // Beside others it took up to four times as long.
        exclusive(async |fixture| {
            hanging(fixture).await?;
            let user = fixture.resident_user().await?;
            // The first dump starts the resident sampler.
            user.run("dump pod/web -c fpm -o json").await?.well()?;
            // The relay keeps the resident sampler's poll open.
            let promise = Duration::from_secs(2);
            dumped(&user, "a dump by a resident sampler", promise).await?;
            let requests = fixture.api::<ProfileRequest>();
            let requests = requests.list(&ListParams::default()).await?;
            let mut targets = requests.items.iter().flat_map(|it| status(it).targets);
            ensure!(
                requests.items.len() == 2 && targets.all(|target| target.resident),
                "another sampler did it: {:?}",
                requests.items
            );
            Ok(())
        })
    }
}
