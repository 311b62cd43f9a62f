//! Grants of the relay: how they are made, and how a request with a grant is checked.
//!
//! Invariant: a request gets a key only if it shows the pod's own grant for this key before the
//! grant expires.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, Uri, header};
use jiff::Timestamp;
use phpprof_crds::UploadRoute;
use url::form_urlencoded;

use crate::http::keyring::{GrantPod, Keyring};
use crate::http::keys::KeyError;
use crate::http::source::{VerifySource, mismatch};
use crate::sampler::grant::KeyGrant;

pub const OBJECT: &str = "/v1/object";
pub const STOP: &str = "/v1/stop";
pub const LIVE: &str = "/v1/live";

/// Why a request is refused, as text for readers of a sampler's log.
pub type RefusedResponse = (StatusCode, String);

pub fn refuse<T>(status: StatusCode, why: &str) -> Result<T, RefusedResponse> {
    Err((status, format!("{why}\n")))
}

/// A grant for the relay at this address, for `contract/env.json`.
pub fn grant(
    keyring: &Keyring,
    address: &str,
    pod: GrantPod<'_>,
    key: &str,
    until: Timestamp,
) -> Result<KeyGrant, KeyError> {
    let expires = until.as_second();
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("key", key)
        .append_pair("pod", pod.uid)
        .append_pair("from", pod.addresses)
        .append_pair("expires", &expires.to_string())
        .finish();
    let authorization = format!("Bearer {}", keyring.grant(pod, key, expires));
    Ok(KeyGrant {
        route: UploadRoute::Relay,
        method: "PUT".to_owned(),
        url: format!("{address}{OBJECT}?{query}"),
        headers: [("authorization".to_owned(), authorization)].into(),
        stop: format!("{address}{STOP}?{query}"),
        live: format!("{address}{LIVE}?{query}"),
        pins: keyring.keys().pins()?,
    })
}

/// What a grant opens.
pub struct Granted {
    pub key: String,
    /// The pod that the grant was made for.
    pub pod_uid: String,
}

/// A request that shows a grant, and what the grant is held against.
pub struct Presented<'a> {
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    /// The other side's address, if it is known.
    pub peer: Option<IpAddr>,
    pub verify: VerifySource,
    pub now: Timestamp,
}

/// What a request may write, after its grant was checked.
pub fn granted(keyring: &Keyring, presented: &Presented<'_>) -> Result<Granted, RefusedResponse> {
    let shown = Bearer::of(presented.uri, presented.headers);
    let key = shown.value("key");
    let pod = GrantPod {
        uid: shown.value("pod"),
        addresses: shown.value("from"),
    };
    let expires = shown.expires();
    if !keyring.is_grant(pod, key, expires, shown.token) {
        return refuse(
            StatusCode::FORBIDDEN,
            "the grant is not for this key, this pod and this time",
        );
    }
    if presented.now.as_second() > expires {
        return refuse(StatusCode::FORBIDDEN, "the grant has ended");
    }
    verify_source(presented.verify, presented.peer, pod.addresses, key)?;
    Ok(Granted {
        key: key.to_owned(),
        pod_uid: pod.uid.to_owned(),
    })
}

/// The credential of a request: the parameters of its URL, and a token that signs them.
pub struct Bearer<'a> {
    parameters: Vec<(String, String)>,
    pub token: &'a str,
}

impl<'a> Bearer<'a> {
    pub fn of(uri: &Uri, headers: &'a HeaderMap) -> Self {
        let query = uri.query().unwrap_or_default().as_bytes();
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        Bearer {
            parameters: form_urlencoded::parse(query).into_owned().collect(),
            token: token.unwrap_or_default(),
        }
    }

    /// Empty if the parameter is missing or occurs twice.
    pub fn value(&self, name: &str) -> &str {
        let mut values = self.parameters.iter().filter(|(key, _)| key == name);
        match (values.next(), values.next()) {
            (Some((_, value)), None) => value.as_str(),
            _ => "",
        }
    }

    /// In seconds since 1970.
    pub fn expires(&self) -> i64 {
        self.value("expires").parse().unwrap_or_default()
    }
}

/// Checks the address from which a grant is used.
pub fn verify_source(
    verify: VerifySource,
    peer: Option<IpAddr>,
    addresses: &str,
    key: &str,
) -> Result<(), RefusedResponse> {
    let Some(words) = peer.and_then(|peer| mismatch(peer, addresses)) else {
        return Ok(());
    };
    match verify {
        VerifySource::Off => Ok(()),
        VerifySource::Warn => {
            tracing::warn!(
                key,
                "a grant comes from an address that is not its pod's: {words}"
            );
            Ok(())
        }
        VerifySource::Enforce => refuse(StatusCode::FORBIDDEN, &format!("SourceNotPod: {words}")),
    }
}
