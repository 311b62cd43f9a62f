//! One POST to a service that the administrator named, with a bounded number of retries.
//!
//! It does not know the content.
//!
//! Invariant: it follows no redirect, reads one kilobyte of an answer, and ends by its deadline
//! whatever the other side does.

use std::future::Future;
use std::time::Duration;

use axum::body::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use crate::backoff;
use crate::sampler::receipt::printable;

pub const CONNECT: Duration = Duration::from_secs(5);
/// The time for one try. After it, the call is tried again.
pub const ANSWER: Duration = Duration::from_secs(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const READ: usize = 1024;
pub const USER_AGENT: &str = concat!("phpprof-operator/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, thiserror::Error)]
pub enum ExportClientError {
    #[error("the CA bundle is not PEM")]
    CaBundle(#[source] reqwest::Error),
    #[error("the client cannot be set up")]
    Build(#[source] reqwest::Error),
}

/// The webpki roots are in the binary, because its image has no certificates.
pub fn client(ca_bundle: Option<&str>) -> Result<reqwest::Client, ExportClientError> {
    let mut roots = Vec::new();
    for root in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        roots.push(reqwest::Certificate::from_der(root).map_err(ExportClientError::CaBundle)?);
    }
    if let Some(pem) = ca_bundle {
        let own = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
        roots.extend(own.map_err(ExportClientError::CaBundle)?);
    }
    reqwest::Client::builder()
        .tls_certs_only(roots)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT)
        .timeout(ANSWER)
        .build()
        .map_err(ExportClientError::Build)
}

/// A call that can be sent several times.
#[derive(Clone, Debug)]
pub struct ExportCall {
    pub url: Url,
    /// With the body's type.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Which statuses of a failure may be tried again.
    pub is_temporary: fn(u16) -> bool,
    /// What the headers and the body of an answer of 2xx refuse, for services that can refuse a
    /// call with one.
    pub refusal: fn(&HeaderMap, &[u8]) -> Option<String>,
}

/// An answer of 2xx accepts the call.
pub fn accepts_all(_: &HeaderMap, _: &[u8]) -> Option<String> {
    None
}

/// The statuses after which Pyroscope and Grafana may accept the call later.
pub fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendResult {
    Taken,
    /// Try again, after the pause that the other side asks for, if any.
    Again(Option<Duration>),
    /// Do not try again.
    Refused,
}

fn judge(status: u16, retry_after: Option<&str>, is_temporary: fn(u16) -> bool) -> SendResult {
    match status {
        200..300 => SendResult::Taken,
        _ if is_temporary(status) => {
            let seconds = retry_after.and_then(|text| text.trim().parse().ok());
            SendResult::Again(seconds.map(Duration::from_secs))
        }
        _ => SendResult::Refused,
    }
}

/// The operator's own pause, but at least as long as the other side asks for, and at most half a
/// minute.
fn pause(tries: u32, asked: Option<Duration>) -> Duration {
    let own = backoff::pause(tries);
    asked.unwrap_or_default().max(own).min(LONGEST_PAUSE)
}

/// Sends until the other side accepts or refuses the call, or until the deadline. The error is the
/// last answer, as text.
pub async fn deliver(
    client: &reqwest::Client,
    call: &ExportCall,
    until: Instant,
) -> Result<(), Undelivered> {
    retried(until, || once(client, call)).await
}

/// The same for a call by another protocol: `once` tries it once, and returns what the answer
/// means, and the answer as text.
pub async fn retried<F: Future<Output = (SendResult, String)>>(
    until: Instant,
    once: impl Fn() -> F,
) -> Result<(), Undelivered> {
    let mut tries = 1;
    let mut last = "no answer".to_owned();
    loop {
        let tried = timeout_at(until, once()).await;
        let (answer, said) = tried.unwrap_or((SendResult::Again(None), last));
        let asked = match answer {
            SendResult::Taken => return Ok(()),
            SendResult::Refused => return Err(Undelivered::Refused(said)),
            SendResult::Again(asked) => asked,
        };
        let pause = pause(tries, asked);
        if Instant::now() + pause >= until {
            return Err(Undelivered::TooLate(said));
        }
        sleep(pause).await;
        tries += 1;
        last = said;
    }
}

/// Why the call was not accepted, as the other side put it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    #[error("refused: {0}")]
    Refused(String),
    #[error("retried until the deadline: {0}")]
    TooLate(String),
}

async fn once(client: &reqwest::Client, call: &ExportCall) -> (SendResult, String) {
    let sent = client
        .post(call.url.clone())
        .headers(call.headers.clone())
        .body(call.body.clone())
        .send()
        .await;
    let mut answer = match sent {
        Ok(answer) => answer,
        // Leaves out the URL, which may be long. The cause is what helps.
        Err(error) => return (SendResult::Again(None), cause(&error.without_url())),
    };
    let status = answer.status();
    let retry_after = answer.headers().get(http::header::RETRY_AFTER);
    let judged = judge(
        status.as_u16(),
        retry_after.and_then(|value| value.to_str().ok()),
        call.is_temporary,
    );
    let headers = answer.headers().clone();
    let mut text = Vec::new();
    while text.len() < READ {
        match answer.chunk().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk[..chunk.len().min(READ - text.len())]),
            _ => break,
        }
    }
    let refusal = (call.refusal)(&headers, &text).filter(|_| judged == SendResult::Taken);
    if let Some(why) = refusal {
        return (SendResult::Refused, why);
    }
    let words = printable(&String::from_utf8_lossy(&text), 300);
    (judged, format!("{status} {words}").trim_end().to_owned())
}

/// The deepest cause of an error, as text.
pub fn cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    printable(&deepest.to_string(), 300)
}

/// A header that is not shown in logs. Trims the value, because a Secret made from a file often
/// ends with a newline.
pub fn secret_header(name: HeaderName, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| {
        format!("{name} has a character that HTTP headers do not allow; check its Secret")
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, retry_after: Option<&str>, expected: SendResult) {
        let judged = judge(status, retry_after, is_temporary);
        assert_eq!(judged, expected, "{status}");
    }

    #[test]
    fn answers_are_told_apart() {
        check(200, None, SendResult::Taken);
        check(204, None, SendResult::Taken);
        check(301, None, SendResult::Refused);
        check(400, None, SendResult::Refused);
        check(401, Some("5"), SendResult::Refused);
        check(429, None, SendResult::Again(None));
        check(
            429,
            Some("7"),
            SendResult::Again(Some(Duration::from_secs(7))),
        );
        check(
            429,
            Some("Wed, 21 Oct 2026 07:28:00 GMT"),
            SendResult::Again(None),
        );
        check(500, None, SendResult::Again(None));
        check(503, None, SendResult::Again(None));
    }

    #[test]
    fn pauses_are_those_asked_for_within_bounds() {
        assert!(pause(1, None).as_secs() <= 1);
        assert_eq!(pause(1, Some(Duration::from_secs(7))).as_secs(), 7);
        assert_eq!(pause(1, Some(Duration::MAX)).as_secs(), 30);
    }

    #[test]
    fn a_secret_file_is_trimmed_and_hidden() {
        let (_, value) = secret_header(http::header::AUTHORIZATION, "Bearer x\n").unwrap();
        assert_eq!(value, "Bearer x");
        assert!(!format!("{value:?}").contains('x'));
        assert!(secret_header(http::header::AUTHORIZATION, "a\nb").is_err());
    }
}
