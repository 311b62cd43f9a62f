//! Makes one try: a create-only PUT by a grant, to a store or to the relay.
//!
//! [`verdict`], a pure function, interprets the answer; the operator means the same by it
//! (`contract/store_answers.json`). This module does not read, list or delete anything, and sends a
//! grant to its URL only; it does not follow redirects.

use std::io::{ErrorKind, Read as _};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Timeout};

use super::certificate::{self, look};
use super::grants::{DeliveryRoute, WriteGrant};
use super::relay_client::{CallError, Pinned, RelayCall, RelayResponse, SHORT_ANSWER, split};
use crate::failure::{Reason, SamplerFailure};

const ONE_TRY_TAKES: Duration = Duration::from_secs(30);
const CONNECT_TAKES: Duration = Duration::from_secs(3);

/// The CA certificates of a private CA in PEM, trusted in addition to the public ones.
pub const CA_BUNDLE: &str = "PHPPROF_CA_BUNDLE";

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutVerdict {
    /// The object is there.
    Stored,
    /// Another try may succeed; the text is the cause.
    Again(String),
    /// The server cannot be reached; another route is tried at once.
    Unreachable(String),
    /// The server refuses the grant for good, with this status and a store's code of the error,
    /// which may be empty.
    Refused(u16, String),
    /// The relay saw another address than the pod's; the text has both.
    SourceNotPod(String),
    /// The server has no certificate of a trusted CA, or another key; the text says what is wrong
    /// with it, if that is known.
    CertificateUntrusted(&'static str),
}

/// The beginning of the relay's answer if it saw another address than the pod's.
const SOURCE_NOT_POD: &str = "SourceNotPod: ";

/// Judges a status, and a store's code of the error. From a store, 412 and most 409 mean that the
/// object exists: an earlier answer was lost, or the object is a foreign one; the operator
/// distinguishes these by size and sha256. The relay has already distinguished them.
#[must_use]
pub fn verdict(route: DeliveryRoute, status: u16, code: &str) -> PutVerdict {
    match (route, status, code) {
        (_, 200 | 201, _) => PutVerdict::Stored,
        // AWS answers so if another write of the key was under way.
        (DeliveryRoute::Direct, 409, "ConditionalRequestConflict" | "OperationAborted")
        // S3 has not got all of the body in time, or other bytes than were sent, by their checksum.
        | (DeliveryRoute::Direct, 400, "RequestTimeout" | "BadDigest") => PutVerdict::Again(said(status, code)),
        (DeliveryRoute::Direct, 409 | 412, _) => PutVerdict::Stored,
        // The store has no create-only writes, and will have none at the next try.
        (DeliveryRoute::Direct, 501, _) => PutVerdict::Refused(status, code.to_owned()),
        (_, 408 | 425 | 429 | 500..=599, _) => PutVerdict::Again(said(status, code)),
        _ => PutVerdict::Refused(status, code.to_owned()),
    }
}

/// An answer in a few words.
#[must_use]
pub fn said(status: u16, code: &str) -> String {
    let separator = if code.is_empty() { "" } else { " " };
    format!("HTTP {status}{separator}{code}")
}

/// S3's code in an error's XML; empty if there is none of a name's length and characters.
fn code(body: &str) -> &str {
    let rest = body.split_once("<Code>").map(|(_, rest)| rest);
    let code = rest.and_then(|rest| rest.split_once("</Code>"));
    let is_plain = |code: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        code.len() <= LONGEST_CODE && code.bytes().all(plain)
    };
    code.map(|(code, _)| code)
        .filter(|code| is_plain(code))
        .unwrap_or_default()
}

/// The longest code of S3's has 40 characters.
const LONGEST_CODE: usize = 48;
/// As much of a store's error is read.
const LONGEST_ERROR: u64 = 4096;

/// Makes one try.
#[must_use]
pub fn put(agents: &[Agent], grant: &WriteGrant, body: &[u8]) -> PutVerdict {
    match grant.route {
        DeliveryRoute::Direct => put_direct(agents, grant, body),
        DeliveryRoute::Relay => put_relay(grant, body),
    }
}

fn put_relay(grant: &WriteGrant, body: &[u8]) -> PutVerdict {
    let call = RelayCall {
        method: &grant.method,
        url: &grant.url,
        headers: &grant.headers,
        body,
        takes: ONE_TRY_TAKES,
        longest_answer: SHORT_ANSWER,
    };
    verdict_of_call(Pinned::of(grant).call(&call))
}

/// Judges a call of the relay.
#[must_use]
pub fn verdict_of_call(called: Result<RelayResponse, CallError>) -> PutVerdict {
    match called {
        Ok(answer) => verdict_of_relay(&answer),
        Err(CallError::Untrusted) => PutVerdict::CertificateUntrusted(""),
        Err(error @ CallError::Unreachable(_)) => PutVerdict::Unreachable(error.to_string()),
        Err(error @ CallError::Broken(_)) => PutVerdict::Again(error.to_string()),
    }
}

fn verdict_of_relay(answer: &RelayResponse) -> PutVerdict {
    match (answer.status, answer.body.strip_prefix(SOURCE_NOT_POD)) {
        (403, Some(addresses)) => PutVerdict::SourceNotPod(addresses.trim().to_owned()),
        (status, _) => match verdict(DeliveryRoute::Relay, status, "") {
            // The relay says why: for instance its store's error.
            PutVerdict::Again(words) => PutVerdict::Again(with_line(words, &answer.body)),
            other => other,
        },
    }
}

/// The words, and the first line of an answer.
fn with_line(words: String, body: &str) -> String {
    let line = body.lines().next().unwrap_or_default().chars();
    let line: String = line
        .filter(|letter| !letter.is_control())
        .take(LONGEST_LINE)
        .collect();
    match line.trim() {
        "" => words,
        line => format!("{words}: {line}"),
    }
}

/// As much of the relay's own words is repeated.
const LONGEST_LINE: usize = 200;

/// A store's certificate may be of the private CA or of a public one, so a client of each is tried;
/// one that does not trust it does not count.
fn put_direct(agents: &[Agent], grant: &WriteGrant, body: &[u8]) -> PutVerdict {
    // The first client trusts the private CA, if there is one: its words say more than that no
    // public CA has signed.
    let mut first = None;
    for agent in agents {
        match put_with(agent, grant, body) {
            untrusted @ PutVerdict::CertificateUntrusted(_) => first = first.or(Some(untrusted)),
            answer => return answer,
        }
    }
    match first {
        Some(PutVerdict::CertificateUntrusted(certificate::UNSUPPORTED)) => {
            let named = split(&grant.url).and_then(|(host, port, _)| look::curve(host, port));
            PutVerdict::CertificateUntrusted(named.unwrap_or(certificate::UNSUPPORTED))
        }
        other => other.unwrap_or(PutVerdict::CertificateUntrusted("")),
    }
}

fn put_with(agent: &Agent, grant: &WriteGrant, body: &[u8]) -> PutVerdict {
    let mut request = agent
        .put(&grant.url)
        .content_type("application/octet-stream");
    for (name, value) in &grant.headers {
        request = request.header(name, value);
    }
    if grant.sends_md5 {
        request = request.header("content-md5", content_md5(body));
    }
    match request.send(body) {
        Ok(response) => {
            let status = response.status().as_u16();
            let mut body = response.into_body().into_reader().take(LONGEST_ERROR);
            let mut text = Vec::new();
            // Without its body, an answer has its status.
            let _ = body.read_to_end(&mut text);
            verdict(
                DeliveryRoute::Direct,
                status,
                code(&String::from_utf8_lossy(&text)),
            )
        }
        Err(error) => verdict_of_error(&error, host(&grant.url)),
    }
}

/// RFC 1864. A presigned PUT may have no other checksum that nobody knew when it was signed: S3
/// refuses each unsigned header `x-amz-…`.
fn content_md5(body: &[u8]) -> String {
    STANDARD.encode(Md5::digest(body))
}

/// The host of a URL, without anything that could be a grant.
fn host(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn verdict_of_error(error: &ureq::Error, host: &str) -> PutVerdict {
    let untrusted = match error {
        ureq::Error::Rustls(error) => certificate::what_is_wrong(error),
        ureq::Error::Io(error) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .and_then(certificate::what_is_wrong),
        _ => None,
    };
    let unreachable = match error {
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
        _ => false,
    };
    match (untrusted, unreachable) {
        (Some(what), _) => PutVerdict::CertificateUntrusted(what),
        (_, true) => PutVerdict::Unreachable(short(error, host)),
        _ => PutVerdict::Again(short(error, host)),
    }
}

/// The error without the URL, which contains the grant.
fn short(error: &ureq::Error, host: &str) -> String {
    match error {
        ureq::Error::Io(error) => error.kind().to_string(),
        ureq::Error::HostNotFound => format!("host not found: {host}"),
        ureq::Error::Timeout(timeout) => format!("timeout: {timeout}"),
        ureq::Error::BadUri(_) => "bad URL".to_owned(),
        other => other.to_string(),
    }
}

/// HTTP clients for a store: one for each set of CAs.
///
/// # Errors
/// A [`SamplerFailure`] if the bundle has no certificate.
pub fn agents(ca_bundle: Option<&str>) -> Result<Vec<Agent>, SamplerFailure> {
    // The process has one TLS provider; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = Vec::new();
    if let Some(pem) = ca_bundle {
        let bad = || {
            SamplerFailure::new(
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
        .timeout_connect(Some(CONNECT_TAKES))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // The pod's environment variables for proxies do not apply to this connection.
        .proxy(None)
        .user_agent(concat!("phpprof/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct AnswerRow {
        status: u16,
        code: String,
        sampler: String,
    }

    #[test]
    fn store_verdicts_are_the_contracts() {
        let table = include_str!("../../../contract/store_answers.json");
        let rows: Vec<AnswerRow> = serde_json::from_str(table).unwrap();
        assert!(rows.len() > 30);
        for AnswerRow {
            status,
            code: name,
            sampler,
        } in rows
        {
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{name}</Code></Error>");
            let expected = match sampler.as_str() {
                "Stored" => PutVerdict::Stored,
                "Again" => PutVerdict::Again(format!("HTTP {status} {name}").trim().to_owned()),
                _ => PutVerdict::Refused(status, name.clone()),
            };
            let found = verdict(DeliveryRoute::Direct, status, code(&body));
            assert_eq!(found, expected, "{status} {name}");
        }
    }

    #[test]
    fn verdict_counts_no_error_as_stored() {
        for status in 0..=999 {
            let is_stored = |route| verdict(route, status, "") == PutVerdict::Stored;
            let has_it = [200, 201].contains(&status);
            assert_eq!(is_stored(DeliveryRoute::Relay), has_it, "{status}");
            let direct = has_it || [409, 412].contains(&status);
            assert_eq!(is_stored(DeliveryRoute::Direct), direct, "{status}");
        }
    }

    #[test]
    fn relay_verdict_has_no_store_code() {
        let check = |status, expected| {
            assert_eq!(verdict(DeliveryRoute::Relay, status, ""), expected);
        };
        check(409, PutVerdict::Refused(409, String::new()));
        check(501, PutVerdict::Again("HTTP 501".into()));
        check(503, PutVerdict::Again("HTTP 503".into()));
    }

    #[test]
    fn code_is_a_name_or_nothing() {
        let of = |text: &str| code(&format!("<Error><Code>{text}</Code>")).to_owned();
        assert_eq!(of("KMS.DisabledException"), "KMS.DisabledException");
        assert_eq!(code("<html><Code>Cut"), "");
        assert_eq!(code("busy"), "");
        for odd in ["a b", "\u{1b}[31m", "\n", &"x".repeat(49)] {
            assert_eq!(of(odd), "");
        }
    }

    /// By `printf 'Check Integrity!' | openssl md5 -binary | base64`.
    #[test]
    fn content_md5_is_base64_of_the_digest() {
        assert_eq!(content_md5(b"Check Integrity!"), "nwqq6b6ua/tTDk7B5M184w==");
    }

    #[test]
    fn the_relay_says_that_it_saw_another_address() {
        let check = |status, body: &str, expected| {
            let body = body.to_owned();
            let answer = RelayResponse {
                status,
                date: None,
                body,
            };
            assert_eq!(verdict_of_relay(&answer), expected);
        };
        let words = "192.0.2.7 is not 10.244.0.5";
        let body = format!("SourceNotPod: {words}\n");
        check(403, &body, PutVerdict::SourceNotPod(words.to_owned()));
        check(
            403,
            "the grant has ended\n",
            PutVerdict::Refused(403, String::new()),
        );
        check(503, "", PutVerdict::Again("HTTP 503".into()));
        let cause = "store: the store is full (HTTP 507)";
        let said = format!("HTTP 503: {cause}");
        check(503, &format!("{cause}\nmore\n"), PutVerdict::Again(said));
    }
}
