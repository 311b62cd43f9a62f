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

use super::release::ToyRelease;

/// The number of call paths of each of the four workers, for a profile of a realistic size.
const PATHS: usize = 250;
const DEPTH: usize = 25;
const WORKERS: i64 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longer than the relay keeps a request for the stop state open.
const ANSWER: Duration = Duration::from_secs(30);

/// The profile of a pod, and its receipt.
pub struct Canned {
    bytes: Vec<u8>,
    receipt: String,
    /// The list of HTTP requests, of a pod whose release has a known speed.
    list: Option<Vec<u8>>,
}

impl Canned {
    /// The profile of a pod that was sampled for this time.
    pub fn of(seconds: u64) -> Self {
        let mut builder = builder(seconds);
        let samples = add_paths(&mut builder, seconds);
        Self::finished(builder, seconds, samples, None)
    }

    /// The profile and the list of a pod with this release.
    ///
    /// # Errors
    /// The list is too large.
    pub fn of_release(seconds: u64, release: ToyRelease) -> Result<Self> {
        let mut builder = builder(seconds);
        let run = release.run(seconds, &mut builder)?;
        Ok(Self::finished(
            builder,
            seconds,
            run.samples,
            Some(run.list),
        ))
    }

    fn finished(mut builder: Builder, seconds: u64, samples: i64, list: Option<Vec<u8>>) -> Self {
        builder.comment(comment(seconds, samples));
        let bytes = encode_gzip(&builder.finish());
        let receipt = json!({
            "reason": "Relayed", "samples": samples, "size": bytes.len(), "sha256": URL_SAFE_NO_PAD.encode(sha256(&bytes)),
        });
        Self {
            receipt: receipt.to_string(),
            bytes,
            list,
        }
    }

    /// In bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().to_vec()
}

fn nanoseconds(seconds: u64) -> i64 {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    seconds.saturating_mul(1_000_000_000)
}

fn builder(seconds: u64) -> Builder {
    Builder::new(Settings {
        time_nanos: 1,
        duration_nanos: nanoseconds(seconds),
        ..Settings::default()
    })
}

/// Adds the call paths of every worker. Returns the number of samples.
fn add_paths(builder: &mut Builder, seconds: u64) -> i64 {
    let samples = WORKERS * PATHS as i64;
    let step = nanoseconds(seconds) / samples.max(1);
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
    samples
}

/// The receipt in the profile.
fn comment(seconds: u64, samples: i64) -> String {
    let quality = json!({"due": samples, "taken": samples, "late": 0, "quiet": 0, "unstable": 0, "denied": 0, "idle": 0, "open": 0});
    let php = json!({"version": "8.2.29", "sapi": "fpm-fcgi", "threadSafe": false, "jit": "off"});
    let receipt = json!({
        "phpprof": "0.1.0", "php": php, "workers": WORKERS, "busyPercents": [61, 30, 8, 1], "samples": samples, "quality": quality,
        "durationSeconds": seconds, "samplesPerSecond": 99, "effectiveSamplesPerSecond": 98.7, "samplerCPUMilliseconds": 120, "samplerPeakBytes": 3_145_728,
    });
    receipt.to_string()
}

/// One upload route, with the fields of contract/env.json.
#[derive(Deserialize)]
struct Grant {
    route: String,
    url: String,
    headers: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    stop: String,
}

impl Grant {
    fn is_relay(&self) -> bool {
        self.route == "Relay"
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Grants {
    profile: Vec<Grant>,
    requests: Vec<Grant>,
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
    let grant = grant(container, "PHPPROF_GRANTS", |grants| grants.profile)?;
    let seconds = duration(container)?;
    let stopped = tokio::time::timeout(seconds, wait_for_stop(&client, &grant)).await;
    if stopped.ok().transpose()?.is_some_and(|word| word == "drop") {
        return Ok(SamplerEnd {
            exit_code: 31,
            message: json!({"reason": "Cancelled"}).to_string(),
        });
    }
    if let Some(list) = &canned.list {
        let grant = self::grant(container, "PHPPROF_REQUESTS", |grants| grants.requests)?;
        if let Some(refused) = upload(&client, &grant, list).await? {
            return Ok(refused);
        }
    }
    let refused = upload(&client, &grant, &canned.bytes).await?;
    Ok(refused.unwrap_or_else(|| SamplerEnd {
        exit_code: 0,
        message: canned.receipt.clone(),
    }))
}

/// The grant of a variable for one object.
fn grant(
    container: &EphemeralContainer,
    name: &str,
    of: impl Fn(Grants) -> Vec<Grant>,
) -> Result<Grant> {
    let variables = container.env.iter().flatten();
    let mut grants = variables.filter(|variable| variable.name == name);
    let grants = grants.next().and_then(|variable| variable.value.as_deref());
    let grants: Grants = serde_json::from_str(grants.context("a sampler without grants")?)?;
    let mut all = of(grants);
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

/// Tries until the object is stored, or returns how the sampler ends because it was refused. The
/// limit of the whole program bounds the time.
async fn upload(
    client: &impl Fn() -> Result<Client>,
    grant: &Grant,
    bytes: &[u8],
) -> Result<Option<SamplerEnd>> {
    let digest = format!("sha-256=:{}:", STANDARD.encode(sha256(bytes)));
    let mut pause = FIRST_PAUSE;
    loop {
        let mut put = client()?.put(&grant.url).header("content-digest", &digest);
        for (name, value) in &grant.headers {
            put = put.header(name, value);
        }
        match put
            .body(bytes.to_vec())
            .send()
            .await
            .map(|answer| answer.status())
        {
            Ok(StatusCode::OK) => return Ok(None),
            Ok(status) if !is_transient(status) => {
                let message =
                    json!({"reason": "UploadRefused", "detail": status.as_str()}).to_string();
                return Ok(Some(SamplerEnd {
                    exit_code: 21,
                    message,
                }));
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
