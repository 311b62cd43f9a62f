//! The variables that the operator gives a run: from the process's environment, or from standard
//! input, which no other process can read.
//!
//! Invariant: the input is bounded, and errors do not quote it.

use std::collections::BTreeMap;
use std::io::Read;

use super::addresses::RELAY_ADDRESSES;
use super::grants::{CHECKPOINT_TIMES, CHECKPOINTS, DIRECT_CHECKSUM, GRANTS, REQUESTS};
use super::put::CA_BUNDLE;
use crate::contract;
use crate::failure::{Reason, SamplerFailure};

/// The largest JSON on the standard input, in bytes.
pub const AT_MOST: u64 = 2 << 20;

/// Variables by their names, [`GRANTS`], [`CHECKPOINTS`], [`CHECKPOINT_TIMES`], [`REQUESTS`],
/// [`RELAY_ADDRESSES`], [`DIRECT_CHECKSUM`] and [`CA_BUNDLE`] among them.
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let variable = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
        let names = [
            contract::VARIABLE,
            GRANTS,
            CHECKPOINTS,
            CHECKPOINT_TIMES,
            REQUESTS,
            RELAY_ADDRESSES,
            DIRECT_CHECKSUM,
            CA_BUNDLE,
        ];
        Self(names.into_iter().filter_map(variable).collect())
    }

    /// Reads all of `input`, which is one JSON object whose values are strings.
    ///
    /// # Errors
    /// A [`SamplerFailure`] if it is something else, or longer than [`AT_MOST`].
    pub fn read(input: impl Read) -> Result<Self, SamplerFailure> {
        let bad = |what: &str| SamplerFailure::new(Reason::Usage, "standard input", what);
        let mut text = String::new();
        input
            .take(AT_MOST + 1)
            .read_to_string(&mut text)
            .map_err(|_| bad("standard input is not text"))?;
        if text.len() as u64 > AT_MOST {
            return Err(bad("standard input is longer than 2 MiB"));
        }
        let variables = serde_json::from_str(&text);
        variables
            .map(Self)
            .map_err(|_| bad("standard input is not one JSON object of strings"))
    }

    /// A variable, if it is set to more than blanks.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name)?.as_str();
        Some(text).filter(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_strings_is_an_environment() {
        let input = r#"{"PHPPROF_GRANTS": "{}", "PHPPROF_CA_BUNDLE": " "}"#;
        let environment = Environment::read(input.as_bytes()).ok().unwrap();
        assert_eq!(environment.get(GRANTS), Some("{}"));
        assert_eq!(environment.get(CA_BUNDLE), None);
        assert_eq!(environment.get(CHECKPOINTS), None);
    }

    #[track_caller]
    fn check_refused(input: &[u8]) {
        let failure = Environment::read(input).err().unwrap();
        assert_eq!(failure.reason, Reason::Usage);
        assert!(!failure.message.contains("secret"), "{failure}");
    }

    #[test]
    fn anything_else_is_refused_without_quoting_it() {
        check_refused(b"");
        check_refused(b"secret");
        check_refused(br#"{"secret": 1}"#);
        check_refused(br#"{"secret": "1"} {"secret": "2"}"#);
        check_refused(b"\xff");
        // Valid JSON, except that it is too long.
        let long = " ".repeat(2 << 20);
        check_refused(format!("{{}}{long}").as_bytes());
        assert!(Environment::read(format!("{{}}{}", &long[2..]).as_bytes()).is_ok());
    }
}
