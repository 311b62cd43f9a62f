//! Text that opens something.
//!
//! Invariant: Debug does not print it, so that no log and no message of a test has it; JSON does,
//! which is how it reaches whom it is for.

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An access key, a token or a password.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Default, PartialEq, Eq)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct Secret(String);

impl Secret {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { "…" })
    }
}

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(text.to_owned())
    }
}

/// For a flag or a variable.
impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::{ProfileArchiveStatus, ProfileLink, ProfileRequestStatus, ProfileResult};

    #[test]
    fn status_hides_its_key_from_debug() {
        let profile = ProfileResult {
            access_key: "hidden".into(),
            ..ProfileResult::default()
        };
        let link = ProfileLink {
            name: "Flame graph".into(),
            url: "https://x/#hidden".into(),
        };
        let status = ProfileRequestStatus {
            access_key: "hidden".into(),
            profile: Some(profile),
            links: vec![link],
            ..ProfileRequestStatus::default()
        };
        let archive = ProfileArchiveStatus {
            access_key: "hidden".into(),
            ..ProfileArchiveStatus::default()
        };
        let shown = format!("{status:?} {archive:?}");
        assert!(
            shown.contains("access_key: …") && shown.contains("Flame graph"),
            "{shown}"
        );
        assert!(!shown.contains("hidden"), "{shown}");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["accessKey"], "hidden");
        let read: ProfileRequestStatus = serde_json::from_value(json).unwrap();
        assert_eq!(read, status);
    }
}
