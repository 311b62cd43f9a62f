//! Calls of the object store, as its owner and as the holder of a grant make them. They are signed
//! here and made from a pod.
//!
//! Invariant: no sampler gets what is signed here; the tests read grants from where the operator
//! put them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use phpprof_profile::{DecodeLimits, Profile, decode};
use serde::Deserialize;
use serde_json::json;

use crate::fixture::Fixture;
use crate::pods::{restricted, without_php};
use crate::release::PREFIX;
use crate::say;
use crate::store::{Answer, Call};

/// The pod of a fixture that calls the store.
const CALLER: &str = "caller";
/// How often calls are made that get no answer, and the pause before each further time.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

impl Fixture {
    /// Makes calls from a pod whose image has PHP.
    pub async fn call(&self, pod: &str, calls: &[Call]) -> Result<Vec<Answer>> {
        #[derive(Deserialize)]
        struct AnswerLine {
            status: u16,
            body: String,
            sent: String,
            error: String,
        }
        let authority = &self.store.files.authority;
        let input = json!({"authority": authority, "calls": calls}).to_string();
        let command = [
            "php",
            "-d",
            "memory_limit=-1",
            "-r",
            include_str!("http.php"),
        ];
        let output = self.exec(pod, &command, input.as_bytes()).await?;
        let lines: Vec<AnswerLine> =
            serde_json::from_slice(&output).context("the answers are not JSON")?;
        let answer = |line: AnswerLine| {
            let (status, body) = (line.status, STANDARD.decode(&line.body)?);
            Ok(Answer {
                status,
                body,
                sent: URL_SAFE_NO_PAD.encode(unhex(&line.sent)?),
                error: line.error,
            })
        };
        lines.into_iter().map(answer).collect()
    }

    /// Makes calls that the store's owner has signed. Each has to succeed. The store is not what is
    /// tested, so calls are made again if one gets no answer; all of them may be repeated.
    async fn call_as_owner(&self, calls: &[Call]) -> Result<Vec<Answer>> {
        let caller = [restricted(without_php(CALLER))];
        let started = self.store.caller.get_or_try_init(|| self.start(&caller));
        started.await?;
        let mut answers = self.call(CALLER, calls).await?;
        for _ in 1..TRIES {
            let Some(lost) = answers.iter().find(|answer| answer.status == 0) else {
                break;
            };
            say(&format!("the store is called again: {}", lost.error));
            tokio::time::sleep(PAUSE).await;
            answers = self.call(CALLER, calls).await?;
        }
        for (call, answer) in calls.iter().zip(&answers) {
            let (path, _) = call.url.split_once('?').unwrap_or_default();
            ensure!(
                (200..300).contains(&answer.status),
                "{} {path}: HTTP {} {}",
                call.method,
                answer.status,
                answer.error
            );
        }
        Ok(answers)
    }

    fn signed(&self, method: &str, key: &str) -> Call {
        Call::new(method, &self.store.files.sign(method, key, &[]))
    }

    /// The bytes of an object.
    pub async fn read(&self, key: &str) -> Result<Vec<u8>> {
        let mut answers = self.call_as_owner(&[self.signed("GET", key)]).await?;
        Ok(answers.pop().context("no answer")?.body)
    }

    /// A profile, decoded within the operator's bounds.
    pub async fn profile(&self, key: &str) -> Result<Profile> {
        Ok(decode(&self.read(key).await?, &DecodeLimits::default())?)
    }

    /// Writes an object that repeats these bytes, and returns its SHA-256 in the form of receipts.
    pub async fn write(&self, key: &str, body: &[u8], times: usize) -> Result<String> {
        let call = self.signed("PUT", key).body(body, times);
        let mut answers = self.call_as_owner(&[call]).await?;
        Ok(answers.pop().context("no answer")?.sent)
    }

    /// The keys of this fixture's namespace in the store.
    pub async fn keys(&self) -> Result<Vec<String>> {
        self.keys_in(&format!("{PREFIX}/{}/", self.namespace)).await
    }

    async fn keys_in(&self, folder: &str) -> Result<Vec<String>> {
        let query = [("list-type", "2"), ("prefix", folder)];
        let list = Call::new("GET", &self.store.files.sign("GET", "", &query));
        let mut answers = self.call_as_owner(&[list]).await?;
        let list = String::from_utf8(answers.pop().context("no answer")?.body)?;
        let rests = list.split("<Key>").skip(1);
        let keys = rests.filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()));
        Ok(keys.collect())
    }

    /// Deletes the objects of this fixture's namespace in the store, if the fixture has used the
    /// store.
    pub async fn clear_store(&self) -> Result<()> {
        if !self.store.caller.initialized() {
            return Ok(());
        }
        self.clear_folder(&format!("{PREFIX}/{}/", self.namespace))
            .await
    }

    /// Deletes what all earlier runs have left.
    pub async fn clear_all(&self) -> Result<()> {
        self.clear_folder(&format!("{PREFIX}/")).await
    }

    async fn clear_folder(&self, folder: &str) -> Result<()> {
        let keys = self.keys_in(folder).await?;
        let calls: Vec<Call> = keys.iter().map(|key| self.signed("DELETE", key)).collect();
        self.call_as_owner(&calls).await?;
        Ok(())
    }
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}
