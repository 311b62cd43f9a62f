//! What resident samplers ask the relay for: their runs (`contract/runs.json`).
//!
//! Who asks is judged here; which runs there are, and what a run may write, `reconcile::residents` says.
//!
//! Invariant: nobody learns of a run, nor gets a grant of it, but who has shown what the sampler of that pod was given, in time.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, Uri};
use futures::future::BoxFuture;
use jiff::Timestamp;
use url::form_urlencoded;

use crate::http::grants::{Bearer, Refused, refuse, verify_source};
use crate::http::keyring::Keyring;
use crate::http::keys::KeyError;
use crate::http::source::VerifySource;
use crate::sampler::offer::{Answer, Ask, Asker};

pub const RUNS: &str = "/v1/runs";

/// Answers who has shown that it may ask; nothing where the sampler shall end. The error says why it cannot be answered now.
pub type Runs =
    Box<dyn Fn(Asker) -> BoxFuture<'static, Result<Option<Answer>, String>> + Send + Sync>;

/// What lets this sampler ask until then, at the relay at this address.
pub fn ask(
    keyring: &Keyring,
    address: &str,
    asker: &Asker,
    until: Timestamp,
) -> Result<Ask, KeyError> {
    let expires = until.as_second();
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("sampler", &asker.ephemeral_container_name)
        .append_pair("namespace", &asker.namespace)
        .append_pair("pod", &asker.pod_uid)
        .append_pair("from", &asker.pod_addresses)
        .append_pair("expires", &expires.to_string())
        .finish();
    let authorization = format!("Bearer {}", keyring.ask(asker, expires));
    Ok(Ask {
        url: format!("{address}{RUNS}?{query}"),
        headers: [("authorization".to_owned(), authorization)].into(),
        pins: keyring.keys().pins()?,
    })
}

/// The sampler that asks, once what it shows was checked.
pub fn asked(
    keyring: &Keyring,
    (now, verify): (Timestamp, VerifySource),
    peer: Option<IpAddr>,
    (uri, headers): (&Uri, &HeaderMap),
) -> Result<Asker, Refused> {
    let shown = Bearer::of(uri, headers);
    let asker = Asker {
        namespace: shown.value("namespace").to_owned(),
        pod_uid: shown.value("pod").to_owned(),
        pod_addresses: shown.value("from").to_owned(),
        ephemeral_container_name: shown.value("sampler").to_owned(),
    };
    let expires = shown.expires();
    if !keyring.is_ask(&asker, expires, shown.token) {
        return refuse(
            StatusCode::FORBIDDEN,
            "it may not ask for the runs of this sampler at this time",
        );
    }
    if now.as_second() > expires {
        return refuse(StatusCode::FORBIDDEN, "the lease has ended");
    }
    let name = &asker.ephemeral_container_name;
    verify_source(verify, peer, &asker.pod_addresses, name)?;
    Ok(asker)
}
