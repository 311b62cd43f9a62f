//! The seconds of a live request, from the replica of the operator that holds them.
//!
//! Invariant: an answer is bounded as other results are, and a second that is not understood is
//! left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{AccessKey, not_understood, safe, send};
use crate::connect::Cluster;
use crate::failure::Failure;

/// Seconds of a live request, including JSON's overhead.
const MAX_LIVE: usize = 4 << 20;
/// The most tries. If the operator has several replicas, only one holds live data, and the API
/// server chooses any.
const REPLICAS: u32 = 12;
/// The answers of the other replicas, and of a busy one.
const ELSEWHERE: u16 = 421;
const BUSY: u16 = 429;

/// The samples of one pod in one second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSecond {
    /// Larger than the numbers of all earlier seconds.
    pub number: i64,
    pub pod: String,
    pub container: String,
    pub profile: Vec<u8>,
}

#[derive(Deserialize)]
struct LiveAnswer {
    seconds: Vec<Value>,
}

impl LiveSecond {
    fn of(value: &Value) -> Option<Self> {
        let word = |key: &str| value[key].as_str();
        Some(LiveSecond {
            number: value["number"].as_i64()?,
            pod: word("pod")?.to_owned(),
            container: word("container")?.to_owned(),
            profile: STANDARD.decode(word("profile")?).ok()?,
        })
    }
}

/// The operator's data of a live request after this number.
pub async fn live(
    cluster: &Cluster,
    access_key: &AccessKey,
    after: i64,
) -> Result<Vec<LiveSecond>, Failure> {
    let question = serde_json::json!({"accessKey": access_key.key, "after": after}).to_string();
    let path = safe(&access_key.path)?;
    let mut tries = 0;
    let answer = loop {
        let body = question.clone().into_bytes();
        let answer = send(cluster, Method::POST, &path, body, MAX_LIVE).await?;
        tries += 1;
        match answer.code {
            ELSEWHERE if tries < REPLICAS => {}
            BUSY => return Ok(Vec::new()),
            _ => break answer.wanted(&cluster.suggest)?,
        }
    };
    let answer: LiveAnswer = serde_json::from_slice(&answer)
        .map_err(|error| not_understood(&cluster.suggest, &error))?;
    Ok(answer.seconds.iter().filter_map(LiveSecond::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_seconds_are_those_of_the_contract() {
        let golden = include_str!("../../../contract/live.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        let answer: LiveAnswer = serde_json::from_value(golden["answer"].clone()).unwrap();
        let second = LiveSecond::of(&answer.seconds[0]).unwrap();
        assert_eq!(
            (second.pod.as_str(), second.container.as_str()),
            ("web-7d9f5c6b8-x2x4z", "fpm")
        );
        assert!(second.number > golden["request"]["after"].as_i64().unwrap());
        assert_eq!(second.profile[..2], [0x1f, 0x8b]);
        assert_eq!(LiveSecond::of(&serde_json::json!({"number": 1})), None);
    }
}
