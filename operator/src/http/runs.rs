//! The relay's answers to resident samplers that ask for their runs (`contract/runs.json`).
//!
//! This file checks who asks. `reconcile::residents` decides which runs there are and what a run
//! may write.
//!
//! Invariant: held questions are bounded in number and time. A client learns of a run, or gets a
//! grant for it, only if it shows in time what the sampler of that pod was given.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;
use url::form_urlencoded;

use crate::http::grants::{Bearer, Presented, RefusedResponse, refuse, verify_source};
use crate::http::keyring::Keyring;
use crate::http::keys::KeyError;
use crate::sampler::contract;
use crate::sampler::offer::{PollGrant, ResidentPod, RunsOffer};

pub(crate) const RUNS: &str = "/v1/runs";

/// The answer for a sampler that may ask, under this number of the contract; `None` if the sampler
/// has to end. The error says why there is no answer now.
pub type Answers = Box<
    dyn Fn(ResidentPod, u32) -> BoxFuture<'static, Result<Option<RunsOffer>, String>> + Send + Sync,
>;

/// Waits until the answer differs from the runs with this digest, which the sampler already has.
pub type News = Box<dyn Fn(ResidentPod, String) -> BoxFuture<'static, ()> + Send + Sync>;

/// The most questions that are held at the same time, out of the relay's connections. Any more are
/// answered at once.
const HELD: usize = 128;
/// Shorter than the timeouts of proxies, and than the contract allows.
pub const HOLD: SignedDuration = SignedDuration::from_secs(25);

/// The answers to samplers, and the questions that wait.
pub struct Runs {
    answers: Answers,
    news: News,
    places: Semaphore,
}

impl Runs {
    /// Holds no question yet. `answers` makes the answer for a sampler, and `news` waits until it
    /// changes.
    pub fn new(answers: Answers, news: News) -> Self {
        Runs {
            answers,
            news,
            places: Semaphore::new(HELD),
        }
    }

    /// The answer. If there is nothing new and the sampler is willing to wait, it comes later.
    pub async fn answer(
        &self,
        asker: ResidentPod,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<RunsOffer>, String> {
        if let (Some(wait), Ok(_place)) = (preferred(headers), self.places.try_acquire()) {
            let shown = Bearer::of(uri, headers);
            let news = (self.news)(asker.clone(), shown.value(SEEN).to_owned());
            // The result is not needed: the answer shows whether there are news.
            let _ = tokio::time::timeout(wait, news).await;
        }
        let spoken = contract::spoken(number(headers))?;
        let mut answer = (self.answers)(asker, spoken).await?;
        if let Some(answer) = &mut answer
            && self.places.available_permits() == 0
        {
            answer.hold_seconds = None;
        }
        Ok(answer)
    }
}

/// How long the sampler is willing to wait for an answer: RFC 7240 section 4.3.
fn preferred(headers: &HeaderMap) -> Option<Duration> {
    let wait = headers
        .get("prefer")?
        .to_str()
        .ok()?
        .strip_prefix("wait=")?;
    let most = HOLD.unsigned_abs();
    Some(Duration::from_secs(wait.parse().ok()?).min(most))
}

/// The parameter of the next question that says which runs the sampler has. Only the operator reads
/// it.
const SEEN: &str = "seen";

/// A short digest of these runs.
pub fn digest<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for key in keys {
        context.update(key.as_bytes());
        context.update(b"\n");
    }
    URL_SAFE_NO_PAD.encode(&context.finish().as_ref()[..9])
}

impl PollGrant {
    /// The next question of a sampler that has the runs with this digest.
    #[must_use]
    pub fn having_seen(mut self, digest: &str) -> Self {
        self.url.push_str(&format!("&{SEEN}={digest}"));
        self
    }
}

/// Lets this sampler ask until this time, at the relay at this address.
pub fn ask(
    keyring: &Keyring,
    address: &str,
    asker: &ResidentPod,
    until: Timestamp,
) -> Result<PollGrant, KeyError> {
    let expires = until.as_second();
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("sampler", &asker.ephemeral_container_name)
        .append_pair("namespace", &asker.namespace)
        .append_pair("pod", &asker.pod_uid)
        .append_pair("from", &asker.pod_addresses)
        .append_pair("expires", &expires.to_string())
        .finish();
    let authorization = format!("Bearer {}", keyring.ask(asker, expires));
    Ok(PollGrant {
        url: format!("{address}{RUNS}?{query}"),
        headers: [("authorization".to_owned(), authorization)].into(),
        pins: keyring.keys().pins()?,
    })
}

/// The sampler that asks, after its credential was checked.
pub fn asked(keyring: &Keyring, presented: &Presented<'_>) -> Result<ResidentPod, RefusedResponse> {
    let shown = Bearer::of(presented.uri, presented.headers);
    let asker = ResidentPod {
        namespace: shown.value("namespace").to_owned(),
        pod_uid: shown.value("pod").to_owned(),
        pod_addresses: shown.value("from").to_owned(),
        ephemeral_container_name: shown.value("sampler").to_owned(),
    };
    let expires = shown.expires();
    if !keyring.is_ask(&asker, expires, shown.token) {
        return refuse(
            StatusCode::FORBIDDEN,
            "this grant may not ask for the runs of this sampler at this time",
        );
    }
    if presented.now.as_second() > expires {
        return refuse(StatusCode::FORBIDDEN, "the lease has ended");
    }
    let name = &asker.ephemeral_container_name;
    let (verify, peer) = (presented.verify, presented.peer);
    verify_source(verify, peer, &asker.pod_addresses, name)?;
    if let Err(message) = contract::spoken(number(presented.headers)) {
        return refuse(StatusCode::GONE, &message);
    }
    Ok(asker)
}

/// The contract number that the sampler sends: 0 if it sends none, and an unknown number if the
/// value is not a number.
fn number(headers: &HeaderMap) -> u32 {
    let Some(said) = headers.get(contract::HEADER) else {
        return 0;
    };
    let said = said.to_str().ok().and_then(|text| text.parse().ok());
    said.unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    fn asker() -> ResidentPod {
        ResidentPod {
            namespace: "shop".into(),
            pod_uid: "4f9c7a1d".into(),
            pod_addresses: String::new(),
            ephemeral_container_name: "phpprof-resident-0".into(),
        }
    }

    fn answer() -> RunsOffer {
        RunsOffer {
            ask_again_seconds: 30,
            hold_seconds: Some(25),
            lease_seconds: 900,
            ask: PollGrant {
                url: String::new(),
                headers: BTreeMap::new(),
                pins: Vec::new(),
            },
            runs: Vec::new(),
        }
    }

    async fn hold_seconds(runs: &Runs, prefer: Option<&str>) -> Option<i64> {
        let headers = prefer.map(|value| ("prefer".parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = headers.into_iter().collect();
        let uri = Uri::from_static("/v1/runs?seen=all");
        let answer = runs.answer(asker(), &uri, &headers).await;
        answer.unwrap().unwrap().hold_seconds
    }

    #[tokio::test(start_paused = true)]
    async fn questions_without_a_place_are_answered_at_once() {
        let news = Arc::new(Notify::new());
        let heard = news.clone();
        let runs = Arc::new(Runs::new(
            Box::new(|_, _| std::future::ready(Ok(Some(answer()))).boxed()),
            Box::new(move |_, _| heard.clone().notified_owned().boxed()),
        ));
        let began = tokio::time::Instant::now();
        let waiting: Vec<_> = (0..HELD)
            .map(|_| {
                let runs = runs.clone();
                tokio::spawn(async move { hold_seconds(&runs, Some("wait=60")).await })
            })
            .collect();
        while runs.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(hold_seconds(&runs, Some("wait=60")).await, None);
        assert_eq!(hold_seconds(&runs, None).await, None);
        assert_eq!(began.elapsed(), Duration::ZERO);
        news.notify_waiters();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        assert_eq!(hold_seconds(&runs, None).await, Some(25));
        // Nobody waits longer than the contract allows.
        hold_seconds(&runs, Some("wait=60")).await;
        assert_eq!(began.elapsed().as_secs(), HOLD.unsigned_abs().as_secs());
    }
}
