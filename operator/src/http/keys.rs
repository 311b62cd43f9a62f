//! The operator's own keys for grants, links and the relay's certificate: how they are stored and
//! renewed.
//!
//! It does not talk to the cluster; `keyring` keeps them in their Secret.
//!
//! Invariant: after one renewal, everything that was signed, and every sampler that pinned the
//! certificate, still works: the operator still accepts the previous key, and samplers had already
//! pinned the next certificate's.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use phpprof_decide::limits::later;
use rcgen::{KeyPair, PublicKeyData as _};

/// Much longer than any sampler lives, so that no sampler sees two renewals.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);
const SECRET_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the Secret has no usable {0}; delete its data to have the operator make new keys")]
    Unusable(&'static str),
    #[error("making a key failed")]
    Make,
}

/// The content of the Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Signs access keys and links. It is never renewed, because access keys are in statuses.
    pub access: Vec<u8>,
    /// Signs grants.
    pub grants: Vec<u8>,
    /// The previous key for grants.
    pub grants_before: Vec<u8>,
    /// The key of the relay's certificate: PKCS#8 in DER.
    pub certificate: Vec<u8>,
    /// The key of the next certificate.
    pub certificate_next: Vec<u8>,
    pub renewed: Timestamp,
}

impl Keys {
    pub fn new(now: Timestamp) -> Result<Self, KeyError> {
        Ok(Keys {
            access: random()?,
            grants: random()?,
            grants_before: random()?,
            certificate: certificate_key()?,
            certificate_next: certificate_key()?,
            renewed: now,
        })
    }

    pub fn is_old(&self, now: Timestamp) -> bool {
        now > later(self.renewed, RENEWED_AFTER)
    }

    pub fn renew(self, now: Timestamp) -> Result<Self, KeyError> {
        Ok(Keys {
            access: self.access,
            grants: random()?,
            grants_before: self.grants,
            certificate: self.certificate_next,
            certificate_next: certificate_key()?,
            renewed: now,
        })
    }

    /// The keys as the data of a Secret.
    pub fn to_data(&self) -> BTreeMap<String, ByteString> {
        let renewed = self.renewed.to_string().into_bytes();
        [
            ("access", &self.access),
            ("grants", &self.grants),
            ("grants-before", &self.grants_before),
            ("certificate", &self.certificate),
            ("certificate-next", &self.certificate_next),
            ("renewed", &renewed),
        ]
        .map(|(name, bytes)| (name.to_owned(), ByteString(bytes.clone())))
        .into()
    }

    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Result<Self, KeyError> {
        let bytes = |name: &'static str| {
            let value = data.get(name).ok_or(KeyError::Unusable(name))?;
            Ok(value.0.clone())
        };
        let secret = |name| {
            let value: Vec<u8> = bytes(name)?;
            match value.len() {
                SECRET_BYTES => Ok(value),
                _ => Err(KeyError::Unusable(name)),
            }
        };
        let key = |name| {
            let value: Vec<u8> = bytes(name)?;
            key_pair(&value).map_err(|_| KeyError::Unusable(name))?;
            Ok(value)
        };
        let renewed = String::from_utf8(bytes("renewed")?).unwrap_or_default();
        Ok(Keys {
            access: secret("access")?,
            grants: secret("grants")?,
            grants_before: secret("grants-before")?,
            certificate: key("certificate")?,
            certificate_next: key("certificate-next")?,
            renewed: renewed.parse().map_err(|_| KeyError::Unusable("renewed"))?,
        })
    }

    /// What a sampler pins: the SHA-256 of the current and the next certificate's public key, in
    /// base64url.
    pub fn pins(&self) -> Result<Vec<String>, KeyError> {
        [&self.certificate, &self.certificate_next]
            .into_iter()
            .map(|der| {
                let public = key_pair(der)?.subject_public_key_info();
                let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &public);
                Ok(URL_SAFE_NO_PAD.encode(hash))
            })
            .collect()
    }
}

fn random() -> Result<Vec<u8>, KeyError> {
    let mut bytes = vec![0; SECRET_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| KeyError::Make)?;
    Ok(bytes)
}

fn certificate_key() -> Result<Vec<u8>, KeyError> {
    let pair = KeyPair::generate().map_err(|_| KeyError::Make)?;
    Ok(pair.serialize_der())
}

/// The key pair of a PKCS#8.
pub fn key_pair(der: &[u8]) -> Result<KeyPair, KeyError> {
    KeyPair::try_from(der).map_err(|_| KeyError::Unusable("certificate"))
}

/// Signs the parts. They must not contain a line break.
pub fn token(key: &[u8], parts: &[&str]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    URL_SAFE_NO_PAD.encode(hmac::sign(&key, parts.join("\n").as_bytes()))
}

/// Whether the token signs these parts. The comparison takes the same time for every wrong token.
pub fn is_token(key: &[u8], parts: &[&str], token: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let unbroken = parts.iter().all(|part| !part.contains('\n'));
    let tag = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    unbroken && hmac::verify(&key, parts.join("\n").as_bytes(), &tag).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn keys_come_out_of_their_secret_unchanged() {
        let keys = Keys::new(at(0)).unwrap();
        let read = Keys::from_data(&keys.to_data()).unwrap();
        assert_eq!(read.to_data(), keys.to_data());
        assert_eq!(read.pins().unwrap(), keys.pins().unwrap());
    }

    #[test]
    fn a_secret_without_a_key_says_which() {
        let mut data = Keys::new(at(0)).unwrap().to_data();
        data.insert("grants".into(), ByteString(vec![1]));
        let error = Keys::from_data(&data).err().map(|error| error.to_string());
        assert_eq!(
            error.unwrap(),
            "the Secret has no usable grants; delete its data to have the operator make new keys"
        );
    }

    #[test]
    fn after_renewal_pinned_certificate_and_old_grants_hold() {
        let old = Keys::new(at(0)).unwrap();
        assert!(!old.is_old(at(29 * 86400)));
        assert!(old.is_old(at(31 * 86400)));
        let new = old.clone().renew(at(31 * 86400)).unwrap();
        assert_eq!(new.pins().unwrap()[0], old.pins().unwrap()[1]);
        assert_eq!(new.grants_before, old.grants);
        assert_eq!(new.access, old.access);
        assert_ne!(new.grants, old.grants);
    }

    #[test]
    fn a_token_depends_only_on_parts_and_key() {
        let token_ = token(b"key", &["grant", "a/b", "u"]);
        assert!(is_token(b"key", &["grant", "a/b", "u"], &token_));
        assert!(!is_token(b"other", &["grant", "a/b", "u"], &token_));
        assert!(!is_token(b"key", &["grant", "a/b", "v"], &token_));
        assert!(!is_token(b"key", &["grant\na/b", "u"], &token_));
        assert!(!is_token(b"key", &["grant", "a/b", "u"], ""));
    }
}
