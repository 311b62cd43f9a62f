//! What the operator lets the sampler write, out of its environment (`contract/env.json`).
//!
//! Invariant: an error quotes nothing of a grant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::receipt::{Failure, Reason};

/// The environment variable that holds the grants; it is the only secret in a target pod.
pub const GRANTS: &str = "PHPPROF_GRANTS";
/// Of rungs and pins.
const AT_MOST: usize = 4;

/// What the sampler may write.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// Ways to write the profile, in the order in which they are tried.
    pub profile: Vec<Grant>,
}

/// A way to deliver a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Rung {
    /// To the store itself.
    Direct,
    /// Over the operator.
    Relay,
}

/// A create-only write of one key, and where to ask whether to stop.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub rung: Rung,
    pub method: String,
    pub url: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub stop: String,
    /// SHA-256 of the keys that the server may have, in base64url; where there is none, a CA vouches for it.
    #[serde(default)]
    pub pins: Vec<String>,
}

impl Grants {
    /// Parses the environment variable.
    ///
    /// # Errors
    /// A [`Failure`] that quotes nothing of the grant.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |what: String| Failure::new(Reason::Usage, "grants", format!("{GRANTS}: {what}"));
        let grants: Self = serde_json::from_str(text).map_err(|error| {
            bad(format!(
                "not the JSON of contract/README.md (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        if grants.profile.is_empty() || grants.profile.len() > AT_MOST {
            return Err(bad(format!("there are 1 to {AT_MOST} grants")));
        }
        for grant in &grants.profile {
            grant.check().map_err(|what| bad(what.to_owned()))?;
        }
        Ok(grants)
    }
}

impl Grant {
    fn check(&self) -> Result<(), &'static str> {
        if self.method != "PUT" {
            return Err("the method of a grant is PUT");
        }
        if !self.url.starts_with("https://") || !self.stop.starts_with("https://") {
            return Err("the URLs of a grant begin with https://");
        }
        let pinned = !self.pins.is_empty() && self.pins.len() <= AT_MOST;
        if pinned != (self.rung == Rung::Relay) {
            return Err("the relay's keys are pinned, and a store's are not");
        }
        let texts = [&self.url, &self.stop].into_iter();
        let mut texts = texts.chain(self.headers.iter().flat_map(|(name, value)| [name, value]));
        // Nothing in it can end a line of a request.
        match texts.all(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
            true => Ok(()),
            false => Err("a grant is printable ASCII"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grants_of_the_contract_are_understood() {
        let env: serde_json::Value =
            serde_json::from_str(include_str!("../../contract/env.json")).unwrap();
        let grants = Grants::parse(env[GRANTS].as_str().unwrap()).unwrap();
        let rungs: Vec<Rung> = grants.profile.iter().map(|grant| grant.rung).collect();
        assert_eq!(rungs, [Rung::Direct, Rung::Relay]);
        assert_eq!(grants.profile[0].headers["if-none-match"], "*");
        assert_eq!(grants.profile[1].pins.len(), 2);
    }

    #[track_caller]
    fn check_refused(grant: &str) {
        let failure = Grants::parse(grant).unwrap_err();
        assert_eq!(failure.reason, Reason::Usage);
        assert!(!failure.message.contains("secret"), "{failure}");
    }

    #[test]
    fn bad_grants_are_refused_without_quoting_them() {
        let direct = |method: &str, url: &str, more: &str| {
            format!(
                r#"{{"profile":[{{"rung":"Direct","method":"{method}","url":"{url}","stop":"https://secret"{more}}}]}}"#
            )
        };
        check_refused("secret");
        check_refused(r#"{"profile":[]}"#);
        check_refused(&direct("POST", "https://secret", ""));
        check_refused(&direct("PUT", "http://secret", ""));
        check_refused(&direct("PUT", "https://secret", r#","secret":1"#));
        check_refused(&direct("PUT", "https://secret", r#","pins":["secret"]"#));
        check_refused(&direct("PUT", r"https://secret\r\nx:", ""));
        check_refused(&direct("PUT", "https://s", "").replace("Direct", "Relay"));
    }
}
