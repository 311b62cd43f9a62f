//! What is asked about a verdict: the query of the address, and Flagger's payload. Pure.
//!
//! Invariant: a run's name that leaves here may be the end of an object's name, and reaches
//! nothing but an object of such a name.

use serde::Deserialize;

use crate::comparison::runs::{LONGEST_RUN, is_run};

/// What lets a rollout go on, besides a verdict that is not worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GateAllowance {
    /// That there is no verdict yet.
    pub running: bool,
    /// That the profiles do not decide it.
    pub inconclusive: bool,
}

/// The query: `run=NAME&allow=running,inconclusive`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VerdictQuestion {
    /// The run of a template.
    pub run: Option<String>,
    /// The run by the payload, which counts if the query names none.
    pub payload_run: Option<String>,
    pub allowed: GateAllowance,
}

impl VerdictQuestion {
    /// Reads the query of an address. Its values have no character that needs an escape.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut question = Self::default();
        for pair in query.split('&').filter(|it| !it.is_empty()) {
            match pair.split_once('=') {
                Some(("run", run)) => question.run = Some(checked(run)?),
                Some(("allow", words)) => {
                    for word in words.split([',']).filter(|it| !it.is_empty()) {
                        match word {
                            "running" => question.allowed.running = true,
                            "inconclusive" => question.allowed.inconclusive = true,
                            _ => return Err(
                                "allow takes running, inconclusive, or both with a comma between them"
                                    .to_owned(),
                            ),
                        }
                    }
                }
                _ => {
                    return Err(
                        "the query takes run=NAME and allow=running,inconclusive, and nothing else"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(question)
    }

    /// The run by the query, else by the payload.
    pub fn any_run(&self) -> Option<&str> {
        self.run.as_deref().or(self.payload_run.as_deref())
    }
}

fn checked(run: &str) -> Result<String, String> {
    if is_run(run) {
        Ok(run.to_owned())
    } else {
        Err(format!(
            "run must have 1 to {LONGEST_RUN} lower-case letters, digits and -, and begin and end with a letter or digit, for instance 7d9f5c6b8"
        ))
    }
}

/// The part of Flagger's payload that is used
/// (`pkg/apis/flagger/v1beta1/canary.go`, `CanaryWebhookPayload`).
#[derive(Deserialize)]
struct FlaggerPayload {
    /// The hash of what the canary runs.
    #[serde(default)]
    checksum: String,
}

/// The run that a payload names by its checksum. An empty payload names none.
pub(super) fn run_of_payload(bytes: &[u8]) -> Result<Option<String>, String> {
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let payload: FlaggerPayload = serde_json::from_slice(bytes).map_err(|_| {
        "the payload must be empty, or the JSON of Flagger's webhooks with checksum".to_owned()
    })?;
    match payload.checksum.as_str() {
        "" => Ok(None),
        checksum => checked(checksum).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, run: Option<&str>, running: bool, inconclusive: bool) {
        let expected = VerdictQuestion {
            run: run.map(str::to_owned),
            payload_run: None,
            allowed: GateAllowance {
                running,
                inconclusive,
            },
        };
        assert_eq!(VerdictQuestion::parse(query), Ok(expected), "{query}");
    }

    #[test]
    fn a_query_names_run_and_what_is_allowed() {
        check("", None, false, false);
        check("run=7d9f5c6b8", Some("7d9f5c6b8"), false, false);
        check("allow=running", None, true, false);
        check("allow=inconclusive,running&run=a", Some("a"), true, true);
        check("allow=&", None, false, false);
    }

    #[test]
    fn other_queries_are_refused_with_a_hint() {
        for (query, words) in [
            ("run=", "run must have 1 to 63"),
            ("run=../x", "run must have 1 to 63"),
            ("run=%2e", "run must have 1 to 63"),
            ("allow=worse", "allow takes running"),
            ("token=x", "the query takes run=NAME"),
            ("run", "the query takes run=NAME"),
        ] {
            let said = VerdictQuestion::parse(query).unwrap_err();
            assert!(said.contains(words), "{query}: {said}");
        }
    }

    #[test]
    fn a_payloads_checksum_names_the_run() {
        let flagger = br#"{"name": "web", "namespace": "shop", "phase": "Progressing",
            "checksum": "85d557f47b", "metadata": {"any": "thing"}}"#;
        assert_eq!(run_of_payload(flagger), Ok(Some("85d557f47b".to_owned())));
        for none in [&b""[..], b" \n", b"{}", br#"{"checksum": ""}"#] {
            assert_eq!(run_of_payload(none), Ok(None));
        }
        for bad in [&b"x"[..], b"7", br#"{"checksum": "../a"}"#, b"\xff"] {
            assert!(run_of_payload(bad).is_err());
        }
    }
}
