//! One call over TLS to a server that is identified by its key: the operator's relay.
//!
//! It implements just enough HTTP/1.1 for that server: one call per connection, a short answer. It
//! does not check a CA, a name or a date, only whether the server holds a key that the grant names.
//!
//! Invariant: an answer is bounded in bytes and in time.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error as TlsError,
    PeerMisbehaved, SignatureScheme, StreamOwned,
};

use super::addresses::ResolvedRelay;
use super::grants::WriteGrant;
use super::receipt::base64url;

/// The longest answer of one line, with its head, in bytes.
pub const SHORT_ANSWER: usize = 8 << 10;

/// How a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No address accepted the connection, or the name is unknown. The text names each.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The server has another key. Nothing was sent.
    #[error("the server does not have the key that the grant names")]
    Untrusted,
    /// There was a connection, but no answer.
    #[error("{0}")]
    Broken(String),
}

/// The server's answer.
#[derive(Debug, PartialEq, Eq)]
pub struct RelayResponse {
    /// The HTTP status code.
    pub status: u16,
    /// The header `Date`, unparsed.
    pub date: Option<String>,
    /// The body, without surrounding blanks.
    pub body: String,
}

/// One call.
pub struct RelayCall<'a> {
    /// The HTTP method. A PUT sends the body with its length and digest.
    pub method: &'a str,
    /// It begins with `https://`.
    pub url: &'a str,
    /// Sent unchanged.
    pub headers: &'a BTreeMap<String, String>,
    /// Empty except for a PUT.
    pub body: &'a [u8],
    /// The time limit of the whole call.
    pub takes: Duration,
    /// The limit for the head and body, in bytes.
    pub longest_answer: usize,
}

/// A server known by its keys, at its name or one of its addresses.
#[derive(Clone)]
pub struct Pinned {
    config: Arc<ClientConfig>,
    addresses: ResolvedRelay,
}

impl Pinned {
    /// The relay of a grant.
    pub fn of(grant: &WriteGrant) -> Self {
        Self::new(&grant.pins, &grant.addresses)
    }

    /// Trusts a server that has one of these keys: SHA-256 of the SubjectPublicKeyInfo, in
    /// base64url.
    pub fn new(pins: &[String], addresses: &ResolvedRelay) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = RelayVerifier {
            pins: pins.to_vec(),
            algorithms: provider.signature_verification_algorithms,
        };
        Self {
            config: Arc::new(config(provider, verifier)),
            addresses: addresses.clone(),
        }
    }

    /// Makes one call.
    ///
    /// # Errors
    /// A [`CallError`] that quotes nothing of the call.
    pub fn call(&self, call: &RelayCall) -> Result<RelayResponse, CallError> {
        let until = Instant::now() + call.takes;
        let (host, port, path) = split(call.url).ok_or_else(|| broken("bad URL"))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| broken("bad URL"))?;
        let connected = self.addresses.connect(host, port);
        let socket = connected.map_err(CallError::Unreachable)?;
        let tls =
            ClientConnection::new(self.config.clone(), name).map_err(|error| tls_error(&error))?;
        let mut stream = StreamOwned::new(tls, socket);
        let head = head(call, host, path);
        limit(&stream.sock, until)?;
        let sent = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(call.body))
            .and_then(|()| stream.flush());
        sent.map_err(|error| io_error(&error))?;
        let text = read(&mut stream, until, call.longest_answer)?;
        parse(&text).ok_or_else(|| broken("not an HTTP answer"))
    }
}

fn broken(what: &str) -> CallError {
    CallError::Broken(what.to_owned())
}

/// The provider supports TLS 1.3, so this cannot fail; the default for that case trusts no server.
fn config(provider: Arc<CryptoProvider>, verifier: RelayVerifier) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    match builder {
        Ok(builder) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth(),
        Err(_) => ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth(),
    }
}

/// Host, port and the rest of an https URL.
pub(super) fn split(url: &str) -> Option<(&str, u16, &str)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, 443),
    };
    Some((host.trim_matches(['[', ']']), port, path))
}

/// A host in a header: an IPv6 address has brackets (RFC 9110, section 7.2).
fn in_header(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn head(call: &RelayCall, host: &str, path: &str) -> String {
    let host = in_header(host);
    let mut head = format!(
        "{} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nuser-agent: phpprof/{}\r\n",
        call.method,
        env!("CARGO_PKG_VERSION")
    );
    for (name, value) in call.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if call.method == "PUT" {
        let hash = digest::digest(&digest::SHA256, call.body);
        head.push_str(&format!(
            "content-type: application/octet-stream\r\ncontent-length: {}\r\ncontent-digest: sha-256=:{}:\r\n",
            call.body.len(),
            STANDARD.encode(hash)
        ));
    }
    head.push_str("\r\n");
    head
}

/// Limits each single read or write to the time that is left of the call.
fn limit(socket: &TcpStream, until: Instant) -> Result<(), CallError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(broken("timeout"));
    }
    socket
        .set_read_timeout(Some(left))
        .and_then(|()| socket.set_write_timeout(Some(left)))
        .map_err(|error| io_error(&error))
}

fn read(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    until: Instant,
    longest: usize,
) -> Result<Vec<u8>, CallError> {
    let mut text = Vec::new();
    let mut chunk = [0; 1024];
    while text.len() < longest {
        limit(&stream.sock, until)?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&chunk[..count]),
            // The connection ended without TLS's close_notify. What arrived so far is parsed.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(io_error(&error)),
        }
    }
    Ok(text)
}

fn parse(text: &[u8]) -> Option<RelayResponse> {
    let text = std::str::from_utf8(text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let date = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_date = name.eq_ignore_ascii_case("date");
        is_date.then(|| value.trim().to_owned())
    });
    Some(RelayResponse {
        status,
        date,
        body: body.trim().to_owned(),
    })
}

fn io_error(error: &std::io::Error) -> CallError {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<TlsError>());
    match (tls, error.kind()) {
        (Some(tls), _) => tls_error(tls),
        // The socket's own time limit.
        (None, ErrorKind::WouldBlock) => broken("timeout"),
        (None, kind) => CallError::Broken(kind.to_string()),
    }
}

fn tls_error(error: &TlsError) -> CallError {
    match error {
        TlsError::InvalidCertificate(_) => CallError::Untrusted,
        other => CallError::Broken(other.to_string()),
    }
}

#[derive(Debug)]
struct RelayVerifier {
    pins: Vec<String>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for RelayVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let public = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let hash = base64url(digest::digest(&digest::SHA256, public.as_ref()).as_ref());
        if self.pins.contains(&hash) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(TlsError::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        // The client offers only TLS 1.3.
        Err(TlsError::PeerMisbehaved(
            PeerMisbehaved::SelectedUnofferedKxGroup,
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_split(url: &str, expected: Option<(&str, u16, &str)>) {
        assert_eq!(split(url), expected);
    }

    #[test]
    fn a_url_is_host_port_and_path() {
        check_split(
            "https://a.b.svc:8443/v1/x?y",
            Some(("a.b.svc", 8443, "/v1/x?y")),
        );
        check_split("https://a/x", Some(("a", 443, "/x")));
        check_split("https://[::1]:8443/x", Some(("::1", 8443, "/x")));
        check_split("https://[::1]/x", Some(("::1", 443, "/x")));
        check_split("https://a:port/x", None);
        check_split("http://a/x", None);
    }

    #[track_caller]
    fn check_parse(text: &str, expected: Option<(u16, &str)>) {
        let answer = parse(text.as_bytes());
        let actual = answer
            .as_ref()
            .map(|answer| (answer.status, answer.body.as_str()));
        assert_eq!(actual, expected);
    }

    #[test]
    fn an_answer_is_a_status_and_a_line() {
        check_parse("HTTP/1.1 200 OK\r\na: b\r\n\r\nkeep\n", Some((200, "keep")));
        check_parse("HTTP/1.1 204 No Content\r\n\r\n", Some((204, "")));
        let dated =
            parse(b"HTTP/1.1 404 Not Found\r\na: b\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n");
        let date = dated.and_then(|answer| answer.date);
        assert_eq!(date.as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        check_parse("HTTP/1.1 2\r\n\r\n", None);
        check_parse("SSH-2.0", None);
    }

    #[test]
    fn a_server_that_says_nothing_is_a_timeout() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let call = RelayCall {
            method: "GET",
            url: &format!("https://{}/", silent.local_addr().unwrap()),
            headers: &BTreeMap::new(),
            body: &[],
            takes: Duration::from_millis(100),
            longest_answer: SHORT_ANSWER,
        };
        let error = Pinned::new(&[], &ResolvedRelay::default())
            .call(&call)
            .unwrap_err();
        assert_eq!(error.to_string(), "timeout");
    }

    #[test]
    fn a_put_carries_its_length_and_its_digest() {
        let call = RelayCall {
            method: "PUT",
            url: "https://a/x",
            headers: &[("authorization".to_owned(), "Bearer t".to_owned())].into(),
            body: b"",
            takes: Duration::from_secs(3),
            longest_answer: SHORT_ANSWER,
        };
        let expected =
            "content-digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:\r\n\r\n";
        let head = head(&call, "a", "/x");
        assert!(head.starts_with("PUT /x HTTP/1.1\r\nhost: a\r\n"), "{head}");
        assert!(head.contains("authorization: Bearer t\r\n"), "{head}");
        assert!(head.ends_with(expected), "{head}");
    }

    #[test]
    fn an_ipv6_host_has_brackets_in_its_header() {
        let call = RelayCall {
            method: "GET",
            url: "https://[fd00::5]:8443/x",
            headers: &BTreeMap::new(),
            body: b"",
            takes: Duration::from_secs(3),
            longest_answer: SHORT_ANSWER,
        };
        let (host, port, path) = split(call.url).unwrap();
        assert!(ServerName::try_from(host.to_owned()).is_ok() && port == 8443);
        let head = head(&call, host, path);
        assert!(
            head.starts_with("GET /x HTTP/1.1\r\nhost: [fd00::5]\r\n"),
            "{head}"
        );
    }
}
