//! TLS for the relay, with the operator's own certificate. Samplers identify it by its key.
//!
//! Invariant: a renewed key is used from the next connection on.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use rcgen::CertificateParams;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version::TLS13};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::http::connections::{self, Bounds, Handshake};
use crate::http::keyring::Keyring;
use crate::http::keys::{KeyError, key_pair};
use crate::http::listen::listen;
use crate::metrics::PortMetrics;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// It lasts longer than a long poll, an upload or the wait for a store that does not answer. A
/// sampler's header has the key and its grant.
pub(crate) const BOUNDS: Bounds = Bounds::new(512, Duration::from_secs(120), 8 << 10);

/// Why the relay cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PinnedError {
    /// The keyring's key is not usable for TLS.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// rcgen could not make a certificate with the key.
    #[error("making the relay's certificate failed")]
    Certificate(#[from] rcgen::Error),
    /// rustls does not accept the certificate with its key.
    #[error("the relay's key cannot be used")]
    Tls(#[from] rustls::Error),
    /// For instance, another process uses the port.
    #[error("opening the relay's port failed")]
    Listen(#[from] std::io::Error),
}

/// The certificate that is served now.
#[derive(Debug)]
pub struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    /// A certificate of the keyring's first key.
    pub fn new(keyring: &Keyring) -> Result<Self, PinnedError> {
        Ok(Certificate(RwLock::new(Arc::new(certified(keyring)?))))
    }

    /// Replaces the certificate after the keys were renewed.
    pub fn renew(&self, keyring: &Keyring) -> Result<(), PinnedError> {
        let renewed = Arc::new(certified(keyring)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(current.clone())
    }
}

/// Nobody checks its names and dates: samplers identify it by its key.
fn certified(keyring: &Keyring) -> Result<CertifiedKey, PinnedError> {
    let der = keyring.keys().certificate;
    let certificate =
        CertificateParams::new(vec!["phpprof-relay".to_owned()])?.self_signed(&key_pair(&der)?)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der));
    Ok(CertifiedKey::new(
        vec![CertificateDer::from(certificate.der().to_vec())],
        any_supported_type(&key)?,
    ))
}

/// Serves until the process ends.
pub async fn serve(
    address: SocketAddr,
    certificate: Arc<Certificate>,
    router: Router,
    metrics: PortMetrics,
) -> Result<(), PinnedError> {
    let listener = listen(address).await?;
    serve_on(listener, certificate, router, metrics).await
}

async fn serve_on(
    listener: TcpListener,
    certificate: Arc<Certificate>,
    router: Router,
    metrics: PortMetrics,
) -> Result<(), PinnedError> {
    let config = ServerConfig::builder_with_protocol_versions(&[&TLS13])
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let handshake: Handshake<_> = Arc::new(move |stream| {
        let accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream));
        async move { accepted.await.ok()?.ok() }.boxed()
    });
    match connections::serve(listener, handshake, BOUNDS, router, metrics).await {}
}

/// A relay for tests, on a port of this machine.
#[cfg(test)]
pub(crate) async fn start(keyring: &Keyring, router: Router) -> (SocketAddr, Arc<Certificate>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let certificate = Arc::new(Certificate::new(keyring).expect("keys make a certificate"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let metrics = crate::metrics::Metrics::default().port(crate::metrics::Port::Relay);
    tokio::spawn(serve_on(listener, certificate.clone(), router, metrics));
    (address, certificate)
}
