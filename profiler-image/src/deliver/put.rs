//! Makes one try: a create-only PUT by a grant, to a store or to the relay.
//!
//! [`verdict`], a pure function, interprets the answer. This module does not read, list or delete anything, and sends a
//! grant to its URL only; it does not follow redirects.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Timeout};

use super::grants::{Grant, UploadRoute};
use super::relay_client::{Answer, Call, CallError, Pinned, SHORT_ANSWER};
use crate::failure::{Failure, Reason};

const ONE_TRY_TAKES: Duration = Duration::from_secs(30);
const CONNECT_TAKES: Duration = Duration::from_secs(3);

/// The CA certificates of a private CA in PEM, trusted beside the public ones.
pub const CA_BUNDLE: &str = "PHPPROF_CA_BUNDLE";

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The object is there.
    Stored,
    /// Another try may succeed; the text is the cause.
    Again(String),
    /// The server cannot be reached; another route is tried at once.
    Unreachable(String),
    /// The server refuses the grant for good, with this status.
    Refused(u16),
    /// The relay saw another address than the pod's; the text has both.
    SourceNotPod(String),
    /// The server has no certificate of a trusted CA, or another key.
    CertificateUntrusted,
}

/// The beginning of the relay's answer if it saw another address than the pod's.
const SOURCE_NOT_POD: &str = "SourceNotPod: ";

/// Judges a status. From a store, 412 (and 409 from Azure) means that the object exists: an earlier answer was lost, or the object is
/// a foreign one; the operator distinguishes these by size and sha256. The relay has already distinguished them.
#[must_use]
pub fn verdict(route: UploadRoute, status: u16) -> Verdict {
    match (route, status) {
        (_, 200 | 201) | (UploadRoute::Direct, 409 | 412) => Verdict::Stored,
        (_, 408 | 425 | 429 | 500..=599) => Verdict::Again(format!("HTTP {status}")),
        _ => Verdict::Refused(status),
    }
}

/// Makes one try.
#[must_use]
pub fn put(agents: &[Agent], grant: &Grant, body: &[u8]) -> Verdict {
    match grant.route {
        UploadRoute::Direct => put_direct(agents, grant, body),
        UploadRoute::Relay => put_relay(grant, body),
    }
}

fn put_relay(grant: &Grant, body: &[u8]) -> Verdict {
    let call = Call {
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
pub fn verdict_of_call(called: Result<Answer, CallError>) -> Verdict {
    match called {
        Ok(answer) => verdict_of_relay(&answer),
        Err(CallError::Untrusted) => Verdict::CertificateUntrusted,
        Err(error @ CallError::Unreachable(_)) => Verdict::Unreachable(error.to_string()),
        Err(error @ CallError::Broken(_)) => Verdict::Again(error.to_string()),
    }
}

fn verdict_of_relay(answer: &Answer) -> Verdict {
    match (answer.status, answer.body.strip_prefix(SOURCE_NOT_POD)) {
        (403, Some(addresses)) => Verdict::SourceNotPod(addresses.trim().to_owned()),
        (status, _) => verdict(UploadRoute::Relay, status),
    }
}

/// A store's certificate may be of the private CA or of a public one, so a client of each is tried; one that does not trust it does not
/// count.
fn put_direct(agents: &[Agent], grant: &Grant, body: &[u8]) -> Verdict {
    let mut last = Verdict::CertificateUntrusted;
    for agent in agents {
        last = put_with(agent, grant, body);
        if last != Verdict::CertificateUntrusted {
            break;
        }
    }
    last
}

fn put_with(agent: &Agent, grant: &Grant, body: &[u8]) -> Verdict {
    let mut request = agent
        .put(&grant.url)
        .content_type("application/octet-stream");
    for (name, value) in &grant.headers {
        request = request.header(name, value);
    }
    match request.send(body) {
        Ok(response) => verdict(UploadRoute::Direct, response.status().as_u16()),
        Err(error) => verdict_of_error(&error, host(&grant.url)),
    }
}

/// The host of a URL, without anything that could be a grant.
fn host(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn verdict_of_error(error: &ureq::Error, host: &str) -> Verdict {
    let untrusted = |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_));
    let is_untrusted = match error {
        ureq::Error::Rustls(error) => untrusted(error),
        ureq::Error::Io(error) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .is_some_and(untrusted),
        _ => false,
    };
    let unreachable = match error {
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
        _ => false,
    };
    match (is_untrusted, unreachable) {
        (true, _) => Verdict::CertificateUntrusted,
        (_, true) => Verdict::Unreachable(short(error, host)),
        _ => Verdict::Again(short(error, host)),
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
/// A [`Failure`] if the bundle has no certificate.
pub fn agents(ca_bundle: Option<&str>) -> Result<Vec<Agent>, Failure> {
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

    #[test]
    fn an_answer_is_final_or_worth_another_try() {
        let check = |route, status, expected| assert_eq!(verdict(route, status), expected);
        check(UploadRoute::Direct, 200, Verdict::Stored);
        check(UploadRoute::Direct, 412, Verdict::Stored);
        check(UploadRoute::Direct, 503, Verdict::Again("HTTP 503".into()));
        check(UploadRoute::Direct, 403, Verdict::Refused(403));
        check(UploadRoute::Direct, 307, Verdict::Refused(307));
        check(UploadRoute::Relay, 200, Verdict::Stored);
        check(UploadRoute::Relay, 409, Verdict::Refused(409));
        check(UploadRoute::Relay, 503, Verdict::Again("HTTP 503".into()));
    }

    #[test]
    fn the_relay_says_that_it_saw_another_address() {
        let check = |status, body: &str, expected| {
            let body = body.to_owned();
            let answer = Answer {
                status,
                date: None,
                body,
            };
            assert_eq!(verdict_of_relay(&answer), expected);
        };
        let words = "192.0.2.7 is not 10.244.0.5";
        let body = format!("SourceNotPod: {words}\n");
        check(403, &body, Verdict::SourceNotPod(words.to_owned()));
        check(403, "the grant has ended\n", Verdict::Refused(403));
        check(503, &body, Verdict::Again("HTTP 503".into()));
    }
}
