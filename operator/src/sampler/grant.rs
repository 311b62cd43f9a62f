//! What lets a sampler store its profile, in the format of its environment.

use phpprof_crds::UploadRoute;
use serde::Serialize;

/// Lets its holder write one key, which must not exist, and ask whether to stop.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct KeyGrant {
    pub route: UploadRoute,
    pub method: String,
    pub url: String,
    pub headers: std::collections::BTreeMap<String, String>,
    /// Where to ask whether to stop. Empty for a checkpoint: its sampler asks at the grant of the
    /// whole profile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop: String,
    /// Where to send each second of a live request; otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub live: String,
    /// Pins of the server's key. Empty if a certificate authority vouches for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
}

/// Only what is no grant.
impl std::fmt::Debug for KeyGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant")
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sampler::container::ContainerSettings;
    use crate::sampler::offer::{OfferedRun, PollGrant};

    #[test]
    fn no_grant_is_shown_by_debug() {
        let one = || BTreeMap::from([("name".to_owned(), "hidden".to_owned())]);
        let grant = KeyGrant {
            route: UploadRoute::Relay,
            method: "PUT".into(),
            url: "https://x/hidden".into(),
            headers: one(),
            stop: "hidden".into(),
            live: "hidden".into(),
            pins: Vec::new(),
        };
        let ask = PollGrant {
            url: "https://x".into(),
            headers: one(),
            pins: Vec::new(),
        };
        let run = OfferedRun {
            key: "k".into(),
            arguments: Vec::new(),
            environment: one(),
            receipt: grant.clone(),
        };
        let given = ContainerSettings::for_test(Vec::new(), one().into_iter().collect());
        let shown = format!("{grant:?} {ask:?} {run:?} {given:?}");
        assert!(
            shown.contains("Relay") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}
