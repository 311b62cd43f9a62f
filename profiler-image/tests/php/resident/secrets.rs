//! The relay's data of a live run whose requests are full of secrets: its seconds, its list, its
//! profile and its receipt.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::GzDecoder;

use super::*;

/// In the query, a cookie, the body, Authorization, the environment, and two segments of the path
/// that are ids.
const SECRETS: [&str; 7] = [
    "qsecretq",
    "csecretc",
    "bsecretb",
    "asecreta",
    "esecrete",
    "6f1c0c5e-2c3b-4a56-9d0a-5b7d1c9e8f70",
    "4815162342",
];
const ROUTE: &str = "/item/{uuid}/{id}";
const APPLICATION: &str = "<?php
function served() { $end = hrtime(true) + 2e7; while (hrtime(true) < $end) { md5($_SERVER['REQUEST_URI'] . getenv('SECRET')); } }
served();
";

fn asked(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let request = "POST /item/6f1c0c5e-2c3b-4a56-9d0a-5b7d1c9e8f70/4815162342?token=qsecretq HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
                   cookie: session=csecretc\r\nauthorization: Bearer asecreta\r\ncontent-type: application/x-www-form-urlencoded\r\n\
                   content-length: 17\r\n\r\npassword=bsecretb";
    stream.write_all(request.as_bytes())?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// An upload, unpacked.
fn unpacked(bytes: &[u8]) -> Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes.to_vec());
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

fn has(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

#[test]
fn nothing_brought_has_a_requests_secret() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("index.php"), APPLICATION)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut server = Command::new(PHP);
    server
        .args(["-S", &format!("127.0.0.1:{port}"), "index.php"])
        .current_dir(folder.path())
        .env("SECRET", "esecrete")
        .stderr(Stdio::null());
    let container = Container::start_with(10, server)?;
    wait_for("server", || Ok(asked(port).ok()))?;
    let id = container.id.clone();
    let relay = Relay::start(move |relay| {
        if relay.has("a.pb.gz.receipt") {
            stopped()
        } else {
            relay.answer(60, &[relay.live_list_run("a", &id, 4)])
        }
    })?;
    let is_over = AtomicBool::new(false);
    let log = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = asked(port);
            }
        });
        let mut resident = Resident::of(&container, &relay)?;
        let ended = resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#);
        is_over.store(true, Ordering::Relaxed);
        ended.and_then(|()| resident.log())
    })?;
    let (seconds, keys) = (relay.seconds(), relay.keys());
    ensure!(seconds.len() >= 2, "{} seconds", seconds.len());
    let expected = ["a.requests.json.gz", "a.pb.gz", "a.pb.gz.receipt"];
    ensure!(keys == expected, "{keys:?}");
    let objects = keys.iter().map(|key| relay.object(key));
    let objects: Vec<Vec<u8>> = objects.collect::<Result<_>>()?;
    let mut with_route = 0;
    for brought in objects.iter().chain(&seconds) {
        let brought = unpacked(brought)?;
        with_route += usize::from(has(&brought, ROUTE));
        let found = SECRETS.iter().find(|secret| has(&brought, secret));
        ensure!(found.is_none(), "{found:?} is told");
    }
    // All of them name it, except the receipt.
    ensure!(with_route == seconds.len() + 2, "{with_route} name {ROUTE}");
    let found = SECRETS.iter().find(|secret| log.contains(**secret));
    ensure!(found.is_none(), "{found:?} is told in {log}");
    Ok(())
}
