//! Simulates a sampler as the operator sees it: it asks whether to stop, stores a canned profile by
//! its grant, and writes a receipt.
//!
//! Invariant: each upload has its own connection, because each sampler is a program of its own.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::EphemeralContainer;
use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};
use reqwest::{Client, ClientBuilder, StatusCode};
use serde::Deserialize;
use serde_json::json;

/// The number of call paths of each of the four workers, for a profile of a realistic size.
const PATHS: usize = 250;
const DEPTH: usize = 25;
const WORKERS: i64 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longer than the relay keeps a request for the stop state open.
const ANSWER: Duration = Duration::from_secs(30);

/// The profile of every pod, and its receipt.
pub struct Canned {
    bytes: Vec<u8>,
    digest: String,
    receipt: String,
}

impl Canned {
    /// The profile of a pod that was sampled for this time.
    pub fn of(seconds: u64) -> Self {
        let samples = WORKERS * PATHS as i64;
        let bytes = profile(seconds, samples);
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let receipt = json!({
            "reason": "Relayed", "samples": samples, "size": bytes.len(), "sha256": URL_SAFE_NO_PAD.encode(digest.as_ref()),
        });
        Self {
            digest: format!("sha-256=:{}:", STANDARD.encode(digest.as_ref())),
            receipt: receipt.to_string(),
            bytes,
        }
    }

    /// In bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn profile(seconds: u64, samples: i64) -> Vec<u8> {
    let duration = i64::try_from(seconds)
        .unwrap_or(i64::MAX)
        .saturating_mul(1_000_000_000);
    let mut builder = Builder::new(Settings {
        time_nanos: 1,
        duration_nanos: duration,
        ..Settings::default()
    });
    let step = duration / samples.max(1);
    for worker in 0..WORKERS {
        for path in 0..PATHS {
            let names: Vec<_> = (0..DEPTH)
                .map(|depth| {
                    (
                        format!(
                            "Demo\\Layer{depth}::handle{}",
                            path >> (DEPTH - depth).min(8)
                        ),
                        format!("/app/src/Layer{depth}.php"),
                    )
                })
                .collect();
            let frames: Vec<_> = names
                .iter()
                .rev()
                .map(|(name, file)| FrameRef {
                    name,
                    file,
                    start_line: 10,
                    line: 20,
                })
                .collect();
            let labels = [
                SampleTag::Num("pid", 7 + worker, ""),
                SampleTag::Str("php", "8.2.29"),
                SampleTag::Str("sapi", "fpm-fcgi"),
            ];
            builder.add(&frames, &[1, step / 2, step], &labels);
        }
    }
    let quality = json!({"due": samples, "taken": samples, "late": 0, "quiet": 0, "unstable": 0, "denied": 0, "idle": 0, "open": 0});
    let php = json!({"version": "8.2.29", "sapi": "fpm-fcgi", "threadSafe": false, "jit": "off"});
    let receipt = json!({
        "phpprof": "0.1.0", "php": php, "workers": WORKERS, "busyPercents": [61, 30, 8, 1], "samples": samples, "quality": quality,
        "durationSeconds": seconds, "samplesPerSecond": 99, "effectiveSamplesPerSecond": 98.7, "samplerCPUMilliseconds": 120, "samplerPeakBytes": 3_145_728,
    });
    builder.comment(receipt.to_string());
    encode_gzip(&builder.finish())
}

/// One upload route, with the fields of contract/env.json.
#[derive(Deserialize)]
struct Grant {
    route: String,
    url: String,
    headers: std::collections::BTreeMap<String, String>,
    stop: String,
}

impl Grant {
    fn is_relay(&self) -> bool {
        self.route == "Relay"
    }
}

#[derive(Deserialize)]
struct Grants {
    profile: Vec<Grant>,
}

/// How a container ends.
pub struct SamplerEnd {
    /// The exit code.
    pub exit_code: i32,
    /// The termination message.
    pub message: String,
}

/// The builder of a client for samplers. A sampler knows the relay's certificate only by its pin,
/// which this program does not test.
pub fn client() -> ClientBuilder {
    let builder = Client::builder()
        .pool_max_idle_per_host(0)
        .tls_danger_accept_invalid_certs(true);
    builder.timeout(ANSWER)
}

/// Samples for the requested time, or until it is told to stop, then uploads. It asks for a client
/// before each call.
pub async fn sample(
    client: impl Fn() -> Result<Client>,
    container: &EphemeralContainer,
    canned: &Canned,
) -> Result<SamplerEnd> {
    let grant = grant(container)?;
    let seconds = duration(container)?;
    let stopped = tokio::time::timeout(seconds, wait_for_stop(&client, &grant)).await;
    if stopped.ok().transpose()?.is_some_and(|word| word == "drop") {
        return Ok(SamplerEnd {
            exit_code: 31,
            message: json!({"reason": "Cancelled"}).to_string(),
        });
    }
    upload(&client, &grant, canned).await
}

fn grant(container: &EphemeralContainer) -> Result<Grant> {
    let variables = container.env.iter().flatten();
    let mut grants = variables.filter(|variable| variable.name == "PHPPROF_GRANTS");
    let grants = grants.next().and_then(|variable| variable.value.as_deref());
    let grants: Grants = serde_json::from_str(grants.context("a sampler without grants")?)?;
    let mut all = grants.profile;
    let at = all.iter().position(Grant::is_relay).unwrap_or_default();
    ensure!(at < all.len(), "a sampler with an empty list of grants");
    Ok(all.swap_remove(at))
}

/// How long a sampler shall sample.
pub fn duration(container: &EphemeralContainer) -> Result<Duration> {
    let mut values = container
        .args
        .iter()
        .flatten()
        .filter_map(|argument| argument.strip_prefix("--duration-seconds="));
    Ok(Duration::from_secs(
        values
            .next()
            .context("a sampler without a duration")?
            .parse()?,
    ))
}

/// Asks until the answer is to stop. If the relay does not answer, it asks again.
async fn wait_for_stop(client: &impl Fn() -> Result<Client>, grant: &Grant) -> Result<String> {
    loop {
        let mut question = client()?.get(&grant.stop);
        // A store compares all headers with what was signed for the upload.
        for (name, value) in grant.headers.iter().filter(|_| grant.is_relay()) {
            question = question.header(name, value);
        }
        match question.send().await {
            Ok(answer) if answer.status() == StatusCode::OK => {
                return Ok(answer.text().await.unwrap_or_default());
            }
            Ok(answer) if answer.status() == StatusCode::NO_CONTENT => {}
            _ => tokio::time::sleep(FIRST_PAUSE).await,
        }
    }
}

/// Tries until the profile is stored or refused. The limit of the whole program bounds the time.
async fn upload(
    client: &impl Fn() -> Result<Client>,
    grant: &Grant,
    canned: &Canned,
) -> Result<SamplerEnd> {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut put = client()?
            .put(&grant.url)
            .header("content-digest", &canned.digest);
        for (name, value) in &grant.headers {
            put = put.header(name, value);
        }
        match put
            .body(canned.bytes.clone())
            .send()
            .await
            .map(|answer| answer.status())
        {
            Ok(StatusCode::OK) => {
                return Ok(SamplerEnd {
                    exit_code: 0,
                    message: canned.receipt.clone(),
                });
            }
            Ok(status) if !is_transient(status) => {
                let message =
                    json!({"reason": "UploadRefused", "detail": status.as_str()}).to_string();
                return Ok(SamplerEnd {
                    exit_code: 21,
                    message,
                });
            }
            _ => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
}
