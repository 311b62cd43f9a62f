//! Sends a message by OTLP/HTTP or OTLP/gRPC, with the same timeouts and retries.
//!
//! Invariant: a call that the receiver has accepted in part is not sent again (the OTLP
//! specification, "Partial Success").

use std::io::Read as _;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use percent_encoding::percent_decode_str;
use prost::Message as _;
use tokio::time::Instant;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;
use url::Url;

use crate::export::retry::{
    ANSWER, CONNECT, ExportCall, SendResult, USER_AGENT, Undelivered, cause, deliver, retried,
    secret_header,
};
use crate::sampler::receipt::printable;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
/// A connection from which nothing comes for this time, while a call waits, is checked. Both times
/// end before the call's own, so that its next try has another connection.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);
const MOST_HEADERS: usize = 20;
/// Headers that the operator or its HTTP client sets.
const RESERVED: [&str; 7] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
];

/// Where messages go, and how.
pub enum OtlpSender {
    Http {
        url: Url,
        headers: HeaderMap,
    },
    Grpc {
        endpoint: Box<Endpoint>,
        /// Made by the first message, because it belongs to the runtime. It connects again itself.
        channel: OnceLock<Channel>,
        headers: MetadataMap,
    },
}

/// Headers as `OTEL_EXPORTER_OTLP_HEADERS` has them: `name=value,name=value`, percent-encoded.
pub fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        // Without the pair itself, which may be a secret.
        let wrong = || "the headers of OTLP must be NAME=VALUE, separated by commas".to_owned();
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::from_str(name.trim()).map_err(|_| wrong())?;
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| format!("the header {name} of OTLP is not UTF-8"))?;
        if RESERVED.contains(&name.as_str()) {
            return Err(format!(
                "the operator itself sets the header {name} of OTLP"
            ));
        }
        let (name, value) = secret_header(name, &value)?;
        headers.insert(name, value);
    }
    if headers.len() > MOST_HEADERS {
        return Err(format!("OTLP has more than {MOST_HEADERS} headers"));
    }
    Ok(headers)
}

impl OtlpSender {
    /// A sender that posts to this URL.
    pub fn http(url: Url, mut headers: HeaderMap) -> Self {
        headers.insert(CONTENT_TYPE, PROTOBUF);
        headers.insert(CONTENT_ENCODING, GZIP);
        OtlpSender::Http { url, headers }
    }

    /// A sender by gRPC to this host. It trusts what the other exports trust.
    pub fn grpc(url: &Url, headers: HeaderMap, ca_bundle: Option<&str>) -> Result<Self, String> {
        let wrong = |error: tonic::transport::Error| {
            format!("--otlp-endpoint cannot be used: {}", cause(&error))
        };
        let mut endpoint = Endpoint::from_shared(url.as_str().to_owned()).map_err(wrong)?;
        if url.scheme() == "https" {
            let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
            let roots = roots.map(|root| Certificate::from_pem(pem(root)));
            let own = ca_bundle.map(Certificate::from_pem);
            let tls = ClientTlsConfig::new().ca_certificates(roots.chain(own));
            endpoint = endpoint.tls_config(tls).map_err(wrong)?;
        }
        let endpoint = endpoint.connect_timeout(CONNECT).timeout(ANSWER);
        // Only while a call waits: receivers refuse pings without one.
        let endpoint = endpoint
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        Ok(OtlpSender::Grpc {
            endpoint: Box::new(endpoint.user_agent(USER_AGENT).map_err(wrong)?),
            channel: OnceLock::new(),
            headers: MetadataMap::from_headers(headers),
        })
    }

    /// Sends a message, which is compressed, until the receiver accepts or refuses it, or until the
    /// deadline.
    pub async fn send(
        &self,
        client: &reqwest::Client,
        message: &Bytes,
        until: Instant,
    ) -> Result<(), Undelivered> {
        match self {
            OtlpSender::Http { url, headers } => {
                let call = ExportCall {
                    url: url.clone(),
                    headers: headers.clone(),
                    body: message.clone(),
                    is_temporary: is_temporary_by_http,
                    refusal: refusal_by_http,
                };
                deliver(client, &call, until).await
            }
            OtlpSender::Grpc {
                endpoint,
                channel,
                headers,
            } => {
                let message = unpacked(message).map_err(Undelivered::Refused)?;
                let channel = channel.get_or_init(|| endpoint.connect_lazy());
                retried(until, || by_grpc(channel.clone(), headers, &message)).await
            }
        }
    }
}

fn pem(certificate: &[u8]) -> String {
    let body = STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}

/// tonic compresses a message itself. Only one of them is in memory unpacked.
fn unpacked(message: &[u8]) -> Result<ExportProfilesServiceRequest, String> {
    let mut plain = Vec::new();
    let read = GzDecoder::new(message).read_to_end(&mut plain);
    read.map_err(|error| error.to_string())?;
    ExportProfilesServiceRequest::decode(&*plain).map_err(|error| error.to_string())
}

async fn by_grpc(
    channel: Channel,
    headers: &MetadataMap,
    message: &ExportProfilesServiceRequest,
) -> (SendResult, String) {
    let mut client = ProfilesServiceClient::new(channel)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let mut request = Request::new(message.clone());
    *request.metadata_mut() = headers.clone();
    match client.export(request).await {
        Ok(answer) => match rejection(&answer.into_inner()) {
            Some(why) => (SendResult::Refused, why),
            None => (SendResult::Taken, String::new()),
        },
        Err(status) => (judge(&status), words(&status)),
    }
}

/// The OTLP specification, "Retryable Response Codes" of OTLP/HTTP: it forbids to retry others.
fn is_temporary_by_http(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

/// What a status means (the OTLP specification, "Failures" and "OTLP/gRPC Throttling"). A receiver
/// that is busy says with `RetryInfo` when to try again; without it, a resource that is exhausted
/// means that the message is too large.
fn judge(status: &Status) -> SendResult {
    let retry_info = status.get_details_retry_info();
    let asked = retry_info.as_ref().and_then(|info| info.retry_delay);
    // tonic's own, without an answer.
    let is_transport = || status.metadata().is_empty();
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => SendResult::Again(asked),
        Code::ResourceExhausted if retry_info.is_some() => SendResult::Again(asked),
        Code::Unknown if is_transport() => SendResult::Again(None),
        _ => SendResult::Refused,
    }
}

fn words(status: &Status) -> String {
    let message = match std::error::Error::source(status) {
        Some(error) => cause(error),
        None => printable(status.message(), 300),
    };
    format!("{:?} {message}", status.code())
        .trim_end()
        .to_owned()
}

/// What an accepted call still refuses.
fn rejection(answer: &ExportProfilesServiceResponse) -> Option<String> {
    let partial = answer.partial_success.as_ref()?;
    let why = printable(&partial.error_message, 300);
    let count = partial.rejected_profiles;
    (count != 0).then(|| format!("the receiver dropped {count} profiles: {why}"))
}

/// The same by HTTP. Some receivers answer 200 with other bodies.
fn refusal_by_http(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    if headers.get(CONTENT_TYPE) != Some(&PROTOBUF) {
        return None;
    }
    match ExportProfilesServiceResponse::decode(body) {
        Ok(answer) => rejection(&answer),
        Err(error) => Some(format!("the answer is not OTLP's: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesPartialSuccess;
    use tokio::net::TcpListener;
    use tonic_types::ErrorDetails;

    use super::*;
    use crate::export::otlp::compressed;

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let read = headers("Authorization=Bearer%20a%2Cb=, x-scope-orgid=shop,\n").unwrap();
        assert_eq!(read["authorization"], "Bearer a,b=");
        assert_eq!(read["x-scope-orgid"], "shop");
        assert!(read["authorization"].is_sensitive());
        assert!(headers("").unwrap().is_empty());
        for (wrong, words) in [
            ("hidden", "must be NAME=VALUE"),
            ("a b=hidden", "must be NAME=VALUE"),
            ("content-type=hidden", "itself sets the header content-type"),
            ("x=hidden%0Ahidden", "check its Secret"),
            ("x=%ff", "not UTF-8"),
        ] {
            let error = headers(wrong).unwrap_err();
            assert!(
                error.contains(words) && !error.contains("hidden"),
                "{error}"
            );
        }
        let many: Vec<_> = (0..21).map(|index| format!("x{index}=y")).collect();
        assert!(headers(&many.join(",")).is_err());
    }

    #[test]
    fn statuses_are_retried_as_otlp_says() {
        for code in 0..=16 {
            let code = Code::from_i32(code);
            let mut status = Status::new(code, "");
            status.metadata_mut().insert("x", "y".parse().unwrap());
            let is_again = judge(&status) == SendResult::Again(None);
            let expected = matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
            );
            assert_eq!(is_again, expected, "{code:?}");
        }
    }

    #[test]
    fn pauses_of_retry_info_are_honoured() {
        let seven = Duration::from_secs(7);
        let with = |code, delay| {
            let details = ErrorDetails::with_retry_info(delay);
            judge(&Status::with_error_details(code, "", details))
        };
        for code in [Code::ResourceExhausted, Code::Unavailable] {
            assert_eq!(with(code, Some(seven)), SendResult::Again(Some(seven)));
            assert_eq!(with(code, None), SendResult::Again(None));
        }
        assert_eq!(
            with(Code::InvalidArgument, Some(seven)),
            SendResult::Refused
        );
        let broken = Bytes::from_static(b"google.rpc.RetryInfo");
        let broken = Status::with_details(Code::ResourceExhausted, "", broken);
        assert_eq!(judge(&broken), SendResult::Refused);
    }

    #[test]
    fn http_statuses_are_retried_as_otlp_says() {
        let retried: Vec<u16> = (400..600)
            .filter(|status| is_temporary_by_http(*status))
            .collect();
        assert_eq!(retried, [429, 502, 503, 504]);
    }

    /// A mock of a receiver: counts its connections, and refuses each message.
    async fn refusing(connections: Arc<AtomicUsize>) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let refuse = service_fn(|_| async {
                    let answer = http::Response::builder()
                        .header(CONTENT_TYPE, "application/grpc")
                        .header("grpc-status", Code::InvalidArgument as i32);
                    answer.body(String::new())
                });
                let served = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), refuse);
                tokio::spawn(served);
            }
        });
        url.parse().unwrap()
    }

    #[tokio::test]
    async fn messages_by_grpc_share_one_connection() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let connections = Arc::new(AtomicUsize::new(0));
        let url = refusing(connections.clone()).await;
        let sender = OtlpSender::grpc(&url, HeaderMap::new(), None).unwrap();
        let client = crate::export::retry::client(None).unwrap();
        let message = Bytes::from(compressed(&ExportProfilesServiceRequest::default()));
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_secs(10);
            let refused = Undelivered::Refused("InvalidArgument".to_owned());
            let sent = sender.send(&client, &message, until).await;
            assert_eq!(sent, Err(refused));
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn dropped_profiles_are_a_refusal() {
        let mut headers = HeaderMap::new();
        let partial = |rejected_profiles| ExportProfilesServiceResponse {
            partial_success: Some(ExportProfilesPartialSuccess {
                rejected_profiles,
                error_message: "too old\n".to_owned(),
            }),
        };
        let three = partial(3).encode_to_vec();
        assert_eq!(refusal_by_http(&headers, &three), None);
        headers.insert(CONTENT_TYPE, PROTOBUF);
        let why = refusal_by_http(&headers, &three).unwrap();
        assert!(
            why.starts_with("the receiver dropped 3 profiles: too old"),
            "{why}"
        );
        let warned = partial(0).encode_to_vec();
        assert_eq!(refusal_by_http(&headers, &warned), None);
        assert_eq!(refusal_by_http(&headers, b""), None);
        assert!(refusal_by_http(&headers, b"\xff").is_some());
    }
}
