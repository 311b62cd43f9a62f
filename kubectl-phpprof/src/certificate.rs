//! What a certificate is, where it matters for who takes it: version, kind of key, dates and use.
//!
//! Pure. It verifies no signature.
//!
//! Invariant: an answer is read out of the certificate; what cannot be read is not an answer.

use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};
use x509_parser::public_key::PublicKey;

/// The most letters of a subject in a message.
const SUBJECT: usize = 200;

/// A property by which rustls refuses a server's certificate that Go takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Odd {
    /// Subject, and the version.
    Version(String, u32),
    /// Subject, and the bits of its RSA key.
    RsaBits(String, usize),
    /// It says that it is an authority, and is not listed as one.
    Authority(String),
}

/// A refusal for such a property.
#[derive(thiserror::Error)]
#[error("{odd} ({cause})")]
pub struct RefusedCertificate {
    pub odd: Odd,
    pub cause: String,
}

/// rustls shows another library's error by `Debug`, also to a user.
impl std::fmt::Debug for RefusedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Odd::Version(subject, version) => write!(
                f,
                "the server's certificate {subject} is of X.509 version {version}, without extensions; version 3 is needed"
            ),
            Odd::RsaBits(subject, bits) => write!(
                f,
                "the server's certificate {subject} has an RSA key of {bits} bits; 2048 to 8192 are needed"
            ),
            Odd::Authority(subject) => write!(
                f,
                "the server's certificate {subject} is marked as an authority (CA:TRUE), and is not itself in the kubeconfig's"
            ),
        }
    }
}

impl Odd {
    /// What makes a good one.
    pub fn remedy(&self) -> &'static str {
        match self {
            Odd::Version(..) => {
                "sign the server's certificate with extensions: openssl x509 -req … -extfile FILE with subjectAltName=… in it"
            }
            Odd::RsaBits(..) => {
                "give the server a larger key: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256, or RSA of 2048 bits"
            }
            Odd::Authority(..) => {
                "put the server's certificate itself into certificate-authority-data, or sign it with basicConstraints=CA:FALSE"
            }
        }
    }
}

/// The first such property in a chain. The first certificate is the server's own.
pub fn odd<'a>(chain: impl Iterator<Item = &'a CertificateDer<'a>>) -> Option<Odd> {
    chain.enumerate().find_map(|(position, der)| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = shown(&certificate);
        if position == 0 && certificate.version() != X509Version::V3 {
            return Some(Odd::Version(
                subject,
                certificate.version().0.saturating_add(1),
            ));
        }
        let bits = bits_of(&certificate).filter(|bits| !(2048..=8192).contains(bits));
        if let Some(bits) = bits {
            return Some(Odd::RsaBits(subject, bits));
        }
        (position == 0 && certificate.is_ca()).then_some(Odd::Authority(subject))
    })
}

/// The subject for a terminal: a server that nobody trusts yet has written it.
fn shown(certificate: &X509Certificate<'_>) -> String {
    let subject = certificate.subject().to_string();
    subject
        .chars()
        .filter(|letter| !letter.is_control())
        .take(SUBJECT)
        .collect()
}

/// The subject with the place, for messages.
pub fn named(der: &CertificateDer<'_>, place: &str) -> String {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => format!("{} in {place}", shown(&certificate)),
        Err(_) => place.to_owned(),
    }
}

/// The size of its RSA key.
pub fn rsa_bits(der: &CertificateDer<'_>) -> Option<usize> {
    bits_of(&X509Certificate::from_der(der).ok()?.1)
}

fn bits_of(certificate: &X509Certificate<'_>) -> Option<usize> {
    let PublicKey::RSA(key) = certificate.public_key().parsed().ok()? else {
        return None;
    };
    let modulus = key.modulus.iter().skip_while(|byte| **byte == 0);
    let mut modulus = modulus.peekable();
    let leading = modulus
        .peek()
        .map_or(0, |byte| byte.leading_zeros() as usize);
    Some(modulus.count() * 8 - leading)
}

/// The SubjectPublicKeyInfo, in DER.
pub fn public_key<'a>(der: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate.subject_pki.raw)
}

/// Whether a certificate may sign others at this time: webpki asks nothing of an anchor
/// (crypto/x509 `isValid` and `CheckSignatureFrom` do).
pub fn may_sign(der: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return false;
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    let is_current =
        (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now);
    // Before version 3, no certificate says whether it is an authority's.
    let is_authority = certificate.version() != X509Version::V3 || certificate.is_ca();
    let usage = certificate.key_usage();
    let signs = usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    is_current && is_authority && signs
}

/// Refuses a certificate out of its time, or for another use than a server's (crypto/x509 `isValid`
/// and `Verify`).
pub fn check_time_and_use(der: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let wrong = |error| Err(rustls::Error::InvalidCertificate(error));
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return wrong(CertificateError::BadEncoding);
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() {
        return wrong(CertificateError::NotValidYet);
    }
    if now > validity.not_after.timestamp() {
        return wrong(CertificateError::Expired);
    }
    match certificate.extended_key_usage() {
        Ok(Some(usage)) if !usage.value.server_auth && !usage.value.any => {
            wrong(CertificateError::InvalidPurpose)
        }
        Ok(_) => Ok(()),
        Err(_) => wrong(CertificateError::BadEncoding),
    }
}
