//! Delivering a profile with a grant: one create-only PUT, tried until it is stored or the deadline has passed.
//!
//! What an answer means is [`verdict`], a pure function; how long to wait is [`pause`]. What this module does not do:
//! read, list or delete anything, or send the grant anywhere but to its URL; redirects are not followed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

use crate::receipt::{Failure, Reason};

/// The operator refuses larger objects unread.
pub const MAX_BYTES: usize = 32 << 20;
const ONE_TRY_TAKES: Duration = Duration::from_secs(30);
/// Finding PHP, what is open at the end, encoding, and a first try.
const LEFT_FOR_UPLOAD: u64 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The environment variable that holds the grants; it is the only secret in a target pod.
pub const GRANTS: &str = "PHPPROF_GRANTS";
/// PEM of a private CA, trusted beside the public ones.
pub const CA_BUNDLE: &str = "PHPPROF_CA_BUNDLE";

/// What the sampler may write.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    pub profile: Grant,
}

/// A create-only write of one key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub method: String,
    pub url: String,
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, String>,
}

impl Grants {
    /// Parses the environment variable.
    ///
    /// # Errors
    /// A [`Failure`] that quotes nothing of the grant.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |what: String| Failure::new(Reason::Usage, "grants", format!("{GRANTS}: {what}"));
        let grants: Self = serde_json::from_str(text).map_err(|error| {
            bad(format!(
                "not the JSON of contract/README.md (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        if grants.profile.method != "PUT" {
            return Err(bad("the method of a grant is PUT".to_owned()));
        }
        if !grants.profile.url.starts_with("https://") {
            return Err(bad("the URL of a grant begins with https://".to_owned()));
        }
        Ok(grants)
    }
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Stored,
    /// Worth another try; the text says why.
    Again(String),
    Refused(u16),
    CertificateUntrusted,
}

/// Judges a status. 412 (and 409 from Azure) says that an object is there already: an answer that was lost, or a
/// foreign object, which the operator tells apart by size and sha256.
#[must_use]
pub fn verdict(status: u16) -> Verdict {
    match status {
        200 | 201 | 409 | 412 => Verdict::Stored,
        408 | 425 | 429 | 500..=599 => Verdict::Again(format!("HTTP {status}")),
        _ => Verdict::Refused(status),
    }
}

/// How long to sample, in seconds: as long as was asked for, but so that time is left to upload before the grant ends. A
/// sampler that is started just before its `--not-after` would else sample past it.
#[must_use]
pub fn time_to_sample(asked: u64, now: u64, upload_until: Option<u64>) -> u64 {
    let left = upload_until.map_or(asked, |until| {
        until.saturating_sub(now + LEFT_FOR_UPLOAD).max(1)
    });
    asked.min(left)
}

/// How long to wait before try number `tries` (from 1): exponential with full jitter. `chance` is from 0 to 255.
#[must_use]
pub fn pause(tries: u32, chance: u8) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << tries.min(16))
        .min(LONGEST_PAUSE);
    longest / 2 + longest.mul_f64(f64::from(chance) / 255.0) / 2
}

/// Uploads `body` until `until` (Unix seconds).
///
/// # Errors
/// A [`Failure`] with the last error; nothing was stored then, or nobody has said so.
pub fn upload(
    grants: &Grants,
    ca_bundle: Option<&str>,
    body: &[u8],
    until: u64,
) -> Result<(), Failure> {
    if body.len() > MAX_BYTES {
        let message = format!(
            "the profile has {} bytes, over the limit of {MAX_BYTES}",
            body.len()
        );
        return Err(Failure::new(
            Reason::ProfileTooLarge,
            body.len().to_string(),
            message,
        ));
    }
    let agents = agents(ca_bundle)?;
    for tries in 1.. {
        let why = match put_with_any(&agents, &grants.profile, body) {
            Verdict::Stored => return Ok(()),
            Verdict::Refused(status) => {
                let message = format!(
                    "the store refuses the upload with HTTP {status}; is the grant expired, or the clock wrong?"
                );
                return Err(Failure::new(
                    Reason::UploadRefused,
                    format!("HTTP {status}"),
                    message,
                ));
            }
            Verdict::CertificateUntrusted => {
                let message = format!(
                    "the store's certificate is signed by no trusted CA; give the CA in {CA_BUNDLE}"
                );
                return Err(Failure::new(Reason::CertificateUntrusted, "", message));
            }
            Verdict::Again(why) => why,
        };
        let wait = pause(tries, random_byte());
        if unix_seconds() + wait.as_secs() >= until {
            let message = format!("the profile could not be stored in time: {why}");
            return Err(Failure::new(Reason::UploadDeadlineExceeded, why, message));
        }
        eprintln!(
            "phpprof: upload: {why}; next try in {:.1} s",
            wait.as_secs_f64()
        );
        std::thread::sleep(wait);
    }
    unreachable!("the tries do not end before the deadline")
}

/// Seconds since 1970.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// A store may be signed by the private CA or by a public one: the one that it is not signed by does not count.
fn put_with_any(agents: &[Agent], grant: &Grant, body: &[u8]) -> Verdict {
    let mut last = Verdict::CertificateUntrusted;
    for agent in agents {
        last = put(agent, grant, body);
        if last != Verdict::CertificateUntrusted {
            break;
        }
    }
    last
}

fn put(agent: &Agent, grant: &Grant, body: &[u8]) -> Verdict {
    let mut request = agent
        .put(&grant.url)
        .content_type("application/octet-stream");
    for (name, value) in &grant.headers {
        request = request.header(name, value);
    }
    match request.send(body) {
        Ok(response) => verdict(response.status().as_u16()),
        Err(error) => verdict_of_error(&error),
    }
}

fn verdict_of_error(error: &ureq::Error) -> Verdict {
    let untrusted = |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_));
    let is_untrusted = match error {
        ureq::Error::Rustls(error) => untrusted(error),
        ureq::Error::Io(error) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .is_some_and(untrusted),
        _ => false,
    };
    if is_untrusted {
        Verdict::CertificateUntrusted
    } else {
        Verdict::Again(short(error))
    }
}

/// The error without the URL, which holds the grant.
fn short(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.kind().to_string(),
        ureq::Error::HostNotFound => "host not found".to_owned(),
        ureq::Error::Timeout(timeout) => format!("timeout: {timeout}"),
        ureq::Error::BadUri(_) => "bad URL".to_owned(),
        other => other.to_string(),
    }
}

fn agents(ca_bundle: Option<&str>) -> Result<Vec<Agent>, Failure> {
    // The process has one TLS provider; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = Vec::new();
    if let Some(pem) = ca_bundle {
        let bad = || {
            Failure::new(
                Reason::Usage,
                CA_BUNDLE,
                format!("{CA_BUNDLE}: no certificate in PEM"),
            )
        };
        let certificates: Vec<Certificate<'static>> = parse_pem(pem.as_bytes())
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err(bad());
        }
        roots.push(RootCerts::Specific(Arc::new(certificates)));
    }
    roots.push(RootCerts::WebPki);
    Ok(roots.into_iter().map(agent).collect())
}

fn agent(roots: RootCerts) -> Agent {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(roots)
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(ONE_TRY_TAKES))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // Environment variables of the pod say nothing about this connection.
        .proxy(None)
        .user_agent(concat!("phpprof/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn random_byte() -> u8 {
    let mut byte = [128];
    let _ = SystemRandom::new().fill(&mut byte);
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_final_or_worth_another_try() {
        assert_eq!(verdict(200), Verdict::Stored);
        assert_eq!(verdict(412), Verdict::Stored);
        assert_eq!(verdict(503), Verdict::Again("HTTP 503".into()));
        assert_eq!(verdict(403), Verdict::Refused(403));
        assert_eq!(verdict(307), Verdict::Refused(307));
    }

    /// A sampler that starts so many seconds before or after its `not-after` of 1000, with this upload deadline.
    #[track_caller]
    fn check_time(asked: u64, now: u64, deadline: u64, expected: u64) {
        let until = 1000 + deadline;
        let time = time_to_sample(asked, now, Some(until));
        assert_eq!(time, expected);
        assert!(now + time < until || time == 1);
    }

    #[test]
    fn sampling_ends_before_the_grant_does() {
        check_time(300, 700, 600, 300);
        check_time(300, 1000, 600, 300);
        check_time(3600, 1000, 600, 590);
        check_time(30, 1000, 15, 5);
        check_time(30, 1000, 5, 1);
        assert_eq!(time_to_sample(86_400, 1000, None), 86_400);
    }

    #[test]
    fn pauses_grow_to_ten_seconds() {
        assert_eq!(pause(1, 0), Duration::from_millis(250));
        assert_eq!(pause(1, 255), Duration::from_millis(500));
        assert_eq!(pause(u32::MAX, 255), Duration::from_secs(10));
    }

    #[test]
    fn the_grants_of_the_contract_are_understood() {
        let env: serde_json::Value =
            serde_json::from_str(include_str!("../../contract/env.json")).unwrap();
        let grants = Grants::parse(env[GRANTS].as_str().unwrap()).unwrap();
        assert_eq!(grants.profile.headers["if-none-match"], "*");
    }

    fn check_refused(text: &str) {
        let failure = Grants::parse(text).unwrap_err();
        assert_eq!(failure.reason, Reason::Usage);
        assert!(!failure.message.contains("secret"), "{failure}");
    }

    #[test]
    fn bad_grants_are_refused_without_quoting_them() {
        check_refused("secret");
        check_refused(r#"{"profile":{"method":"POST","url":"https://secret"}}"#);
        check_refused(r#"{"profile":{"method":"PUT","url":"http://secret"}}"#);
        check_refused(r#"{"profile":{"method":"PUT","url":"https://x"},"secret":1}"#);
    }
}
