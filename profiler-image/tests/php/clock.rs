//! A node whose clock is minutes ahead: the sampler asks the server that takes its profile for the
//! time. This test's server has the other clock.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use phpprof_testing::Running;

const SPIN: &str = "while (true) md5('x');";
const MINUTES: Duration = Duration::from_secs(300);

/// A store whose clock is this much behind.
struct Store {
    url: String,
    /// The CA of its certificate, in PEM.
    authority: String,
}

impl Store {
    /// Starts it; it ends with the process.
    fn start(behind: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("https://{}/key", listener.local_addr()?);
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let authority = certified.cert.pem();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der());
        let key = key.map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)?;
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = Arc::clone(&config);
                // Each connection has a thread, because a client keeps its connection open.
                std::thread::spawn(move || {
                    let tls = ServerConnection::new(config)?;
                    answer(StreamOwned::new(tls, stream), behind)
                });
            }
        });
        Ok(Self { url, authority })
    }
}

/// Accepts each PUT, and has no objects.
fn answer(stream: impl Read + Write, behind: Duration) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut method, mut length) = (String::new(), 0);
        reader.read_line(&mut method)?;
        ensure!(!method.is_empty(), "the client has closed the connection");
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        reader.by_ref().take(length).read_to_end(&mut Vec::new())?;
        let status = if method.starts_with("PUT ") {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let date = httpdate::fmt_http_date(SystemTime::now() - behind);
        write!(
            reader.get_mut(),
            "HTTP/1.1 {status}\r\nDate: {date}\r\ncontent-length: 0\r\n\r\n"
        )?;
        reader.get_mut().flush()?;
    }
}

/// The receipt of a run whose `--not-after` was three minutes ago by this machine's clock.
fn receipt(store: &Store) -> Result<String> {
    let php = Command::new("/usr/bin/php8.2")
        .args(["-r", SPIN])
        .stdout(Stdio::null())
        .spawn();
    let target = Running(php.context("starting PHP")?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let grant = serde_json::json!({"route": "Direct", "method": "PUT", "url": store.url, "headers": {}, "stop": format!("{}.stop", store.url)});
    let folder = tempfile::tempdir()?;
    let receipt = folder.path().join("receipt");
    let mut sampler = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    sampler.arg("record").arg(format!("--pid={}", target.pid()));
    sampler
        .arg("--duration-seconds=1")
        .arg(format!("--not-after={}", now - 180));
    sampler
        .arg(format!("--upload-until={}", now - 150))
        .arg("--receipt")
        .arg(&receipt);
    sampler.env("PHPPROF_CA_BUNDLE", &store.authority);
    let ran = sampler
        .env("PHPPROF_GRANTS", format!(r#"{{"profile": [{grant}]}}"#))
        .output()?;
    ensure!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    Ok(std::fs::read_to_string(receipt)?)
}

#[test]
fn sampler_in_time_by_servers_clock_samples() -> Result<()> {
    let receipt = receipt(&Store::start(MINUTES)?)?;
    ensure!(receipt.contains(r#""reason":"Uploaded""#), "{receipt}");
    Ok(())
}

#[test]
fn sampler_late_by_both_clocks_does_nothing() -> Result<()> {
    let receipt = receipt(&Store::start(Duration::ZERO)?)?;
    ensure!(
        receipt.contains(r#""reason":"NotAfterPassed""#),
        "{receipt}"
    );
    Ok(())
}
