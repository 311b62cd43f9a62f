//! `phpprof resident`: its arguments, and how it ends.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use phpprof::contract;
use phpprof::deliver::addresses::{RELAY_ADDRESSES, ResolvedRelay};
use phpprof::deliver::receipt;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::resident::answer::{ASK, PollAccess};
use phpprof::resident::{ResidentOptions, reside};

use super::{behave, say};

const FIRST_ANSWER_SECONDS: RangeInclusive<u64> = 1..=3600;
const IDLE_SECONDS: RangeInclusive<u64> = 1..=31_536_000;

#[derive(Args, PartialEq, Eq, Debug)]
pub struct ResidentArguments {
    /// Container whose PHP processes are sampled. Runs for another container are refused.
    #[arg(long, value_name = "ID")]
    container_id: String,
    /// How long the sampler waits for the relay's first answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(FIRST_ANSWER_SECONDS))]
    first_answer_seconds: u64,
    /// How long the sampler stays without a run.
    #[arg(long, value_name = "SECONDS", default_value_t = 21_600, value_parser = clap::value_parser!(u64).range(IDLE_SECONDS))]
    idle_seconds: u64,
    /// Where to write the receipt; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
}

impl ResidentArguments {
    /// Reads exactly the arguments of `contract/resident.json`.
    pub fn of_contract([id, first_answer, idle, receipt]: [&str; 4]) -> Option<Self> {
        let seconds = |word: &str, flag: &str, range: RangeInclusive<u64>| {
            let value = word.strip_prefix(flag)?.parse().ok();
            value.filter(|it| range.contains(it))
        };
        let first_answer = seconds(
            first_answer,
            "--first-answer-seconds=",
            FIRST_ANSWER_SECONDS,
        );
        Some(Self {
            container_id: id.strip_prefix("--container-id=")?.to_owned(),
            first_answer_seconds: first_answer?,
            idle_seconds: seconds(idle, "--idle-seconds=", IDLE_SECONDS)?,
            receipt: Some(receipt.strip_prefix("--receipt=")?.into()),
        })
    }
}

/// Runs until the lease is over; returns the receipt.
pub fn run(arguments: &ResidentArguments) -> Result<String, SamplerFailure> {
    // This precedes reading the environment, which holds a grant.
    behave();
    contract::spoken(std::env::var(contract::VARIABLE).ok().as_deref())?;
    let ended = reside(ResidentOptions {
        container_id: arguments.container_id.clone(),
        ask: PollAccess::parse(&std::env::var(ASK).unwrap_or_default())?,
        addresses: ResolvedRelay::parse(std::env::var(RELAY_ADDRESSES).ok().as_deref()),
        first_answer: Duration::from_secs(arguments.first_answer_seconds),
        idle: Duration::from_secs(arguments.idle_seconds),
    });
    match ended.reason {
        Reason::LeaseEnded => {
            say(&ended.message);
            Ok(receipt::failed(ended.reason, &ended.detail))
        }
        _ => Err(ended),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{SamplerCli, SamplerCommand};

    #[test]
    fn the_arguments_of_the_contract_are_understood() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/resident.json")).unwrap();
        let words = golden["arguments"].as_array().unwrap().iter();
        let words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
        let parsed = SamplerCli::try_parse_from(std::iter::once(&"phpprof").chain(&words));
        let SamplerCommand::Resident(resident) = parsed.unwrap().command else {
            panic!("another command");
        };
        assert_eq!(resident.container_id.len(), 64);
        assert_eq!(resident.first_answer_seconds, 60);
        assert_eq!(resident.idle_seconds, 21_600);
        let receipt = resident.receipt.as_ref().unwrap();
        assert_eq!(receipt.as_os_str(), "/dev/termination-log");
        let [_, id, seconds, idle, receipt] = words[..] else {
            panic!("{words:?}");
        };
        assert_eq!(
            ResidentArguments::of_contract([id, seconds, idle, receipt]),
            Some(resident)
        );
        assert_eq!(
            ResidentArguments::of_contract([id, "--first-answer-seconds=0", idle, receipt]),
            None
        );
        assert_eq!(
            ResidentArguments::of_contract([seconds, id, idle, receipt]),
            None
        );
    }
}
