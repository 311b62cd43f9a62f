//! The relay's answers to a resident sampler: what to do, and when to ask again
//! (`contract/runs.json`).
//!
//! Pure. Invariant: whatever the text is, the result is within the bounds below, and an error
//! quotes nothing of it. A run with other work than to record this container is refused alone.
//! Everything else that breaks the contract refuses the whole answer: a wrong form, a wrong time,
//! and a run without a valid key or receipt grant, because its end could not be reported.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::deliver::grants::{DeliveryRoute, NEXT, WriteGrant, check_printable, is_pinned};
use crate::deliver::put::{PutVerdict, verdict_of_call};
use crate::deliver::relay_client::{self, CallError};
use crate::failure::{Reason, SamplerFailure};

/// The environment variable with the first poll's URL and grant.
pub const ASK: &str = "PHPPROF_ASK";
/// The longest body of an answer, in bytes.
pub const LONGEST: usize = 256 << 10;
const RUNS_AT_MOST: usize = 64;
const ARGUMENTS_AT_MOST: usize = 64;
const VARIABLES_AT_MOST: usize = 8;
const LONGEST_KEY: usize = 1024;
const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;
const ASK_AGAIN_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;
const HOLD_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;

/// The poll's URL and grant.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct PollAccess {
    /// The relay's URL; contains nothing secret.
    pub url: String,
    /// They contain the grant to poll.
    pub headers: BTreeMap<String, String>,
    /// SHA-256 of the keys that the relay may have, in base64url.
    pub pins: Vec<String>,
}

/// Only what is no grant.
impl std::fmt::Debug for PollAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// The relay's instructions for the sampler.
#[derive(Debug, Clone)]
pub struct Instructions {
    /// When the next poll is due, by a fifth more or less at random.
    pub ask_again: Duration,
    /// How long the relay keeps the next poll open, until there is news.
    pub hold: Option<Duration>,
    /// Counted from the answer on.
    pub lease: Duration,
    /// The next poll's URL and grant.
    pub ask: PollAccess,
    /// In the order in which they begin.
    pub runs: Vec<AssignedRun>,
}

/// A run that the relay assigns.
#[derive(Debug, Clone)]
pub struct AssignedRun {
    /// The key of its profile, which names the run.
    pub key: String,
    /// The grant for its receipt.
    pub receipt: WriteGrant,
    /// What to do, or why it is not done.
    pub work: Result<Work, &'static str>,
}

/// The input of a run's process.
#[derive(Clone, PartialEq, Eq)]
pub struct Work {
    /// The arguments, as of the container of a sampler for one run.
    pub arguments: Vec<String>,
    /// The environment, which contains grants.
    pub environment: BTreeMap<String, String>,
}

/// Only what is not a grant.
impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

/// The result of a poll.
#[derive(Debug, Clone)]
pub enum PollResult {
    /// The relay has answered.
    Answer(Box<Instructions>),
    /// The sampler has to end, for this reason.
    End(SamplerFailure),
    /// There is no answer, but another poll may succeed.
    Nothing(PollError),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollError {
    /// The cause, which quotes nothing of a grant.
    pub why: String,
    /// The server has none of the expected keys.
    pub is_untrusted: bool,
}

impl PollAccess {
    /// Parses the environment variable.
    ///
    /// # Errors
    /// A [`SamplerFailure`] that quotes nothing of it.
    pub fn parse(text: &str) -> Result<Self, SamplerFailure> {
        let ask: Result<Self, _> = serde_json::from_str(text);
        let ask = ask.map_err(|_| "it is not JSON of the expected form");
        let ask = ask.and_then(|ask| ask.check().map(|()| ask));
        ask.map_err(|what| {
            SamplerFailure::new(Reason::Usage, ASK, format!("{ASK}: {what}; {NEXT}"))
        })
    }

    fn check(&self) -> Result<(), &'static str> {
        if !self.url.starts_with("https://") {
            return Err("the URL begins with https://");
        }
        if !is_pinned(&self.pins) {
            return Err("there are 1 to 4 pins");
        }
        check_printable([&self.url], &self.headers)
    }
}

/// Interprets an answer, for the sampler of this container.
#[must_use]
pub fn heard(
    called: Result<relay_client::RelayResponse, CallError>,
    container_id: &str,
) -> PollResult {
    match called {
        Ok(answer) if answer.status == 200 => match parse(&answer.body, container_id) {
            Ok(answer) => PollResult::Answer(Box::new(answer)),
            Err(what) => nothing(format!("the answer is refused: {what}")),
        },
        Ok(answer) if answer.status == 410 => {
            let message = "profiling was stopped here";
            PollResult::End(SamplerFailure::new(Reason::LeaseEnded, "HTTP 410", message))
        }
        Ok(answer) if answer.status == 403 => PollResult::End(refusal(Ok(answer))),
        Ok(answer) => nothing(format!("HTTP {}", answer.status)),
        Err(error @ CallError::Untrusted) => PollResult::Nothing(PollError {
            why: error.to_string(),
            is_untrusted: true,
        }),
        Err(CallError::Unreachable(why) | CallError::Broken(why)) => nothing(why),
    }
}

fn nothing(why: String) -> PollResult {
    PollResult::Nothing(PollError {
        why,
        is_untrusted: false,
    })
}

fn refusal(called: Result<relay_client::RelayResponse, CallError>) -> SamplerFailure {
    match verdict_of_call(called) {
        PutVerdict::SourceNotPod(addresses) => {
            let message =
                format!("the relay refuses the poll because of its source address: {addresses}");
            SamplerFailure::new(Reason::SourceNotPod, addresses, message)
        }
        _ => {
            let message = "the relay refuses the poll with HTTP 403; has the grant expired?";
            SamplerFailure::new(Reason::UploadRefused, "HTTP 403", message)
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerText {
    ask_again_seconds: u64,
    hold_seconds: Option<u64>,
    lease_seconds: u64,
    ask: PollAccess,
    runs: Vec<RunText>,
}

#[derive(Deserialize)]
struct RunText {
    key: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    receipt: WriteGrant,
}

/// Parses an answer for the sampler of this container.
///
/// # Errors
/// What is expected, in a few words.
pub fn parse(text: &str, container_id: &str) -> Result<Instructions, &'static str> {
    if text.len() > LONGEST {
        return Err("it is longer than 256 KiB");
    }
    let answer: AnswerText =
        serde_json::from_str(text).map_err(|_| "it is not JSON of the expected form")?;
    answer.ask.check()?;
    if !LEASE_SECONDS.contains(&answer.lease_seconds) {
        return Err("leaseSeconds is 1 to 86400");
    }
    if !ASK_AGAIN_SECONDS.contains(&answer.ask_again_seconds) {
        return Err("askAgainSeconds is 1 to 3600");
    }
    if answer
        .hold_seconds
        .is_some_and(|seconds| !HOLD_SECONDS.contains(&seconds))
    {
        return Err("holdSeconds is 1 to 60");
    }
    if answer.runs.len() > RUNS_AT_MOST {
        return Err("there are at most 64 runs");
    }
    let run = |run| checked(run, container_id);
    Ok(Instructions {
        ask_again: Duration::from_secs(answer.ask_again_seconds),
        hold: answer.hold_seconds.map(Duration::from_secs),
        lease: Duration::from_secs(answer.lease_seconds),
        ask: answer.ask,
        runs: answer.runs.into_iter().map(run).collect::<Result<_, _>>()?,
    })
}

/// Checks a run. Without a valid grant for its receipt it is an error, because the run's end could
/// not be reported.
fn checked(run: RunText, container_id: &str) -> Result<AssignedRun, &'static str> {
    let is_printable = run.key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if run.key.is_empty() || run.key.len() > LONGEST_KEY || !is_printable {
        return Err("a key is 1 to 1024 characters of printable ASCII");
    }
    run.receipt.check()?;
    if run.receipt.route != DeliveryRoute::Relay {
        return Err("a receipt goes over the relay");
    }
    let work = Work {
        arguments: run.arguments,
        environment: run.environment,
    };
    Ok(AssignedRun {
        key: run.key,
        receipt: run.receipt,
        work: work.check(container_id).map(|()| work),
    })
}

impl Work {
    /// Checks that it records this container, and writes only to this process and by its grants.
    fn check(&self, container_id: &str) -> Result<(), &'static str> {
        if self.arguments.len() > ARGUMENTS_AT_MOST {
            return Err("it has over 64 arguments");
        }
        if self.arguments.first().is_none_or(|word| word != "record") {
            return Err("it does not record");
        }
        let mut containers = self
            .arguments
            .iter()
            .filter_map(|argument| argument.strip_prefix("--container-id"));
        let is_ours = |text: &str| text.strip_prefix('=') == Some(container_id);
        if !containers.next().is_some_and(is_ours) || containers.next().is_some() {
            return Err("it is for another container");
        }
        // With the second of them, `record` accepts no --output.
        let has = |flag| self.arguments.iter().any(|argument| argument == flag);
        if !has("--receipt=-") || !has("--grants-on-stdin") {
            return Err("it has no --receipt=- or no --grants-on-stdin");
        }
        if self.environment.len() > VARIABLES_AT_MOST {
            return Err("it has over 8 variables");
        }
        if self
            .environment
            .keys()
            .all(|name| name.starts_with("PHPPROF_"))
        {
            Ok(())
        } else {
            Err("its variables do not begin with PHPPROF_")
        }
    }
}

#[cfg(test)]
mod tests;
