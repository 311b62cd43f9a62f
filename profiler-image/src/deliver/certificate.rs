//! What is wrong with a store's certificate, in words.
//!
//! Invariant: an error that is not about a certificate is none of these. The words fit a receipt,
//! and name the property and not the certificate, which a foreign server chooses.

pub(super) mod look;

use rustls::{CertificateError, Error, PeerIncompatible, PeerMisbehaved};

/// What is wrong; `None` if the error is not about the server's certificate or key.
pub(super) fn what_is_wrong(error: &Error) -> Option<&'static str> {
    match error {
        Error::InvalidCertificate(error) => Some(of_certificate(error)),
        // rustls with ring verifies no signature of P-521; the server then has none to offer.
        Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon)
        | Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)
        | Error::AlertReceived(rustls::AlertDescription::HandshakeFailure) => Some(UNSUPPORTED),
        _ => None,
    }
}

/// For [`look::curve`] to say more.
pub(super) const UNSUPPORTED: &str = "key or signature not supported (P-521?)";
const P521: &str = "its key is on the curve P-521, which samplers do not accept";
const SIGNED_BY_P521: &str = "a CA's P-521 key signed it, which samplers do not accept";

/// Whether an algorithm's parameters, in DER, name the curve secp521r1: 1.3.132.0.35 (RFC 5480,
/// section 2.1.1.1).
fn is_of_p521(der: &[u8]) -> bool {
    const OID: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];
    der.windows(OID.len()).take(64).any(|window| window == OID)
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        // A CA with the name of a trusted one has signed it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no trusted CA signed it"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name"
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            public_key_algorithm_id,
            ..
        } if is_of_p521(public_key_algorithm_id) => SIGNED_BY_P521,
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => UNSUPPORTED,
        // webpki's errors of which rustls has no kind of its own come with their words.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is a CA's own (CA:TRUE), not a server's"
        }
        other if other.to_string().contains("UnsupportedCertVersion") => {
            "it is not of X.509 version 3"
        }
        _ => "it is not valid",
    }
}

#[cfg(test)]
mod tests;
