//! TLS to an API server: who is trusted, and the user's own certificate.
//!
//! It opens no connection.
//!
//! Invariant: what Go's crypto/tls takes from an administrator is taken here: a certificate that
//! stands itself among the authorities is trusted as it is (crypto/x509 `Verify`: "if
//! opts.Roots.contains(c)"), and a user's own certificate is sent unread, so that the server judges
//! it. Names, dates and signatures are checked as ever; only what may sign is an authority for
//! others (crypto/x509 `isValid`).

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::certificate;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0} has no certificate that can be read")]
    NoAuthority(String),
    #[error("this machine has no certificate authorities")]
    NoSystemAuthority,
    #[error("the authorities cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
    #[error("{0} has no certificate")]
    NoCertificate(String),
    #[error("{0} has no private key: PKCS#8, PKCS#1 or SEC1 in PEM, not encrypted")]
    NoKey(String),
    #[error(
        "the key of {name} has {bits} bits; TLS libraries for Rust accept RSA keys of 2048 to 8192 bits"
    )]
    KeySize { name: String, bits: usize },
    #[error("the key in {name} cannot be used")]
    Key {
        name: String,
        #[source]
        error: rustls::Error,
    },
    #[error("the key in {key} does not belong to the certificate in {certificate}")]
    Mismatch { certificate: String, key: String },
}

impl TlsError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            TlsError::KeySize { .. } => {
                "have a certificate made for a new key: openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout user.key -subj /O=GROUP/CN=USER -out user.csr"
            }
            TlsError::Mismatch { .. } => {
                "compare their public keys: openssl x509 -noout -pubkey -in CERTIFICATE; openssl pkey -pubout -in KEY"
            }
            TlsError::NoKey(_) | TlsError::Key { .. } => {
                "look at the key with: openssl pkey -noout -text -in KEY; a key on the curves P-256, P-384 and P-521, Ed25519, or RSA of 2048 to 8192 bits can be used"
            }
            _ => "look at the certificate with: openssl x509 -noout -text -in FILE",
        }
    }
}

/// A PEM that was read, and what the kubeconfig calls it.
pub struct Pem {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The user's certificate of the moment: a plugin may have renewed it, or a file.
#[derive(Clone, Debug, Default)]
pub struct Current(Arc<RwLock<HeldIdentity>>);

#[derive(Debug, Default)]
struct HeldIdentity {
    identity: Option<Arc<CertifiedKey>>,
    /// How often it was another one.
    turn: u64,
}

impl Current {
    pub fn set(&self, identity: Arc<CertifiedKey>) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if held
            .identity
            .as_ref()
            .is_none_or(|it| it.cert != identity.cert)
        {
            held.turn += 1;
        }
        held.identity = Some(identity);
    }

    /// Another number than before: a connection with the certificate of before shows who the user
    /// was.
    pub fn turn(&self) -> u64 {
        self.held().turn
    }

    fn held(&self) -> RwLockReadGuard<'_, HeldIdentity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.held().identity.clone()
    }

    fn has_certs(&self) -> bool {
        self.held().identity.is_some()
    }
}

/// Whose certificate the server may have.
pub enum Authorities {
    System,
    Named(Pem),
    Anyone,
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub fn config(authorities: &Authorities, identity: Current) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = match authorities {
        Authorities::Anyone => Verifier::Anyone,
        Authorities::Named(pem) => {
            let certificates = certificates(&pem.bytes);
            let none = || TlsError::NoAuthority(pem.name.clone());
            Verifier::Listed(ListedAuthorities::new(certificates, none)?)
        }
        Authorities::System => {
            let found = rustls_native_certs::load_native_certs().certs;
            match ListedAuthorities::new(found, || TlsError::NoSystemAuthority) {
                Ok(listed) => Verifier::Listed(listed),
                // A server without TLS needs none.
                Err(TlsError::NoSystemAuthority) => Verifier::Nobody,
                Err(error) => return Err(error),
            }
        }
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(identity));
    // A resumed session is the old user's. Go keeps none either, unless it is told to.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// A user's certificate with its key. Their consistency is checked where the certificate can be
/// read: rustls reads no version 1.
pub fn identity(certificate: &Pem, key: &Pem) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(&certificate.bytes);
    let Some(own) = chain.first() else {
        return Err(TlsError::NoCertificate(certificate.name.clone()));
    };
    let secret = private_key(&key.bytes).ok_or_else(|| TlsError::NoKey(key.name.clone()))?;
    let bits = certificate::rsa_bits(own);
    let signer = aws_lc_rs::sign::any_supported_type(&secret).map_err(|error| match bits {
        Some(bits) if !(2048..=8192).contains(&bits) => TlsError::KeySize {
            name: certificate::named(own, &certificate.name),
            bits,
        },
        _ => TlsError::Key {
            name: key.name.clone(),
            error,
        },
    })?;
    if let (Some(public), Some(wanted)) = (signer.public_key(), certificate::public_key(own))
        && public.as_ref() != wanted
    {
        return Err(TlsError::Mismatch {
            certificate: certificate.name.clone(),
            key: key.name.clone(),
        });
    }
    Ok(Arc::new(CertifiedKey::new(chain, signer)))
}

/// As Go's `AppendCertsFromPEM`: what is not a certificate is passed over.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::pem_slice_iter(pem).flatten().collect()
}

fn private_key(pem: &[u8]) -> Option<PrivateKeyDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    PrivateKeyDer::from_pem_slice(pem).ok()
}

/// Verifies by a list of authorities.
#[derive(Debug)]
struct ListedAuthorities {
    inner: Arc<WebPkiServerVerifier>,
    /// One of the certificates may sign others. Without one, `inner` is for the signatures of the
    /// handshake alone.
    has_authority: bool,
    certificates: Vec<CertificateDer<'static>>,
}

impl ListedAuthorities {
    fn new(
        certificates: Vec<CertificateDer<'static>>,
        none: impl FnOnce() -> TlsError,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let now = UnixTime::now();
        let authorities = certificates
            .iter()
            .filter(|it| certificate::may_sign(it, now))
            .cloned();
        let (taken, _) = roots.add_parsable_certificates(authorities);
        let has_authority = taken > 0;
        if !has_authority {
            let (taken, _) = roots.add_parsable_certificates(certificates.iter().cloned());
            if taken == 0 {
                return Err(none());
            }
        }
        Ok(ListedAuthorities {
            has_authority,
            inner: WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()?,
            certificates,
        })
    }

    /// Whether the certificate is itself among the authorities, for this name and time.
    fn is_listed(
        &self,
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, rustls::Error> {
        if !self
            .certificates
            .iter()
            .any(|it| it.as_ref() == own.as_ref())
        {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        certificate::check_time_and_use(own, now)?;
        Ok(true)
    }

    /// Whether the server has this certificate, and an authority stands for it.
    fn check(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.is_listed(own, name, now)? {
            return Ok(ServerCertVerified::assertion());
        }
        if !self.has_authority {
            return Err(CertificateError::UnknownIssuer.into());
        }
        self.inner
            .verify_server_cert(own, intermediates, name, ocsp, now)
            .map_err(|error| explained(error, own, intermediates))
    }
}

/// Judges a server's certificate, and the signature by which the server shows that it has the key.
#[derive(Debug)]
enum Verifier {
    Listed(ListedAuthorities),
    /// On a machine without authorities.
    Nobody,
    /// `insecure-skip-tls-verify`.
    Anyone,
}

impl Verifier {
    /// The signature of a handshake, of either version of TLS.
    fn signed(
        &self,
        own: &CertificateDer<'_>,
        check: impl FnOnce(&WebPkiServerVerifier) -> Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self {
            Verifier::Listed(listed) => {
                check(&listed.inner).map_err(|error| explained(error, own, &[]))
            }
            Verifier::Nobody => Err(CertificateError::UnknownIssuer.into()),
            Verifier::Anyone => Ok(HandshakeSignatureValid::assertion()),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self {
            Verifier::Listed(listed) => listed.check(own, intermediates, name, ocsp, now),
            Verifier::Nobody => Err(rustls::Error::General(format!(
                "{}; give the cluster a certificate-authority, or name a file with SSL_CERT_FILE",
                TlsError::NoSystemAuthority
            ))),
            Verifier::Anyone => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(own, |it| it.verify_tls12_signature(message, own, signed))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(own, |it| it.verify_tls13_signature(message, own, signed))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The refusal, with what it is about the certificate if that is a thing that Go would take.
fn explained(
    error: rustls::Error,
    own: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> rustls::Error {
    use CertificateError as Why;
    // What Go refuses as well.
    let common = matches!(
        &error,
        rustls::Error::InvalidCertificate(
            Why::Expired
                | Why::ExpiredContext { .. }
                | Why::NotValidYet
                | Why::NotValidYetContext { .. }
                | Why::NotValidForName
                | Why::NotValidForNameContext { .. }
                | Why::UnknownIssuer
        )
    );
    let chain = std::iter::once(own).chain(intermediates);
    match certificate::odd(chain).filter(|_| !common) {
        Some(odd) => rustls::Error::InvalidCertificate(CertificateError::Other(
            rustls::OtherError(Arc::new(certificate::RefusedCertificate {
                odd,
                cause: error.to_string(),
            })),
        )),
        None => error,
    }
}
