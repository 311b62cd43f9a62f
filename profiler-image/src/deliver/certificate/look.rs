//! Looks at the key of a server that ended a handshake because it had no signature for us.
//!
//! It says that it takes P-521, gets the server's certificate, and ends the connection: nothing is
//! sent but the greeting of TLS.
//!
//! Invariant: a server is never trusted here, and has one time limit for everything.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{ActiveKeyExchange, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, NamedGroup, SignatureScheme};

use super::{P521, is_of_p521};

const TAKES: Duration = Duration::from_secs(3);

/// The curve of the server's key, if it is one that samplers do not take.
pub(in crate::deliver) fn curve(host: &str, port: u16) -> Option<&'static str> {
    let until = Instant::now() + TAKES;
    let address = (host, port).to_socket_addrs().ok()?.next()?;
    let socket = TcpStream::connect_timeout(&address, TAKES).ok()?;
    let look = Arc::new(KeyKindLook::default());
    let mut provider = default_provider();
    provider.kx_groups.push(&NamedCurve);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(look.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    // It always fails: the verifier refuses each certificate.
    let _ = connection.complete_io(&mut Until { socket, until });
    look.is_p521.load(Ordering::Relaxed).then_some(P521)
}

/// The curve in the list of those for key exchange: with TLS 1.2, a server has a certificate only
/// for a curve that is in it (RFC 8422, section 5.1). No key is exchanged by it.
#[derive(Debug)]
struct NamedCurve;

impl SupportedKxGroup for NamedCurve {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        Err(refused())
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

/// Remembers the kind of the server's key.
#[derive(Debug, Default)]
struct KeyKindLook {
    is_p521: AtomicBool,
}

fn refused() -> rustls::Error {
    rustls::Error::General("only looked at".to_owned())
}

impl ServerCertVerifier for KeyKindLook {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let key = ParsedCertificate::try_from(own)?.subject_public_key_info();
        self.is_p521.store(is_of_p521(&key), Ordering::Relaxed);
        Err(refused())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refused())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refused())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let others = default_provider().signature_verification_algorithms;
        let mut all = others.supported_schemes();
        all.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        all
    }
}

/// A connection with one time limit for all reads and writes.
struct Until {
    socket: TcpStream,
    until: Instant,
}

impl Until {
    fn left(&self) -> std::io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Error::from(ErrorKind::TimedOut))
        } else {
            Ok(left)
        }
    }
}

impl Read for Until {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(bytes)
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}
