//! The full receipt's data about what a run was asked for: pure. Who compares two profiles needs it
//! (`phpprof_profile::alike`).
//!
//! Invariant: it takes at most 400 bytes, whatever the filter is, and equal filters are written
//! alike.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ring::digest;
use serde::Serialize;

use crate::request::asked::{RequestFilter, SampleLabel};
use crate::run::facts::RunAsked;

/// Of a filter that takes more bytes, only a hash is written: the receipt has little room.
const MAX_FILTER: usize = 256;
/// This part of the hash distinguishes filters.
const HASH: usize = 16;

/// What of requests was asked for, and which samples were kept.
#[derive(Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct AskedData {
    /// The keys of the labels of requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterData>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_idle: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_running: bool,
}

/// A filter of requests, as the API has it; or only its hash.
#[derive(Debug, Default, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct FilterData {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub methods: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub scripts: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_request_age_milliseconds: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_young: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl AskedData {
    pub fn of(asked: &RunAsked) -> Self {
        let labels = SampleLabel::ALL.into_iter();
        Self {
            labels: labels
                .filter(|label| asked.labels[*label as usize])
                .map(SampleLabel::key)
                .collect(),
            filter: asked.filter.is_on().then(|| FilterData::of(&asked.filter)),
            include_idle: asked.include_idle,
            only_running: asked.only_running,
        }
    }
}

impl FilterData {
    fn of(filter: &RequestFilter) -> Self {
        let age = filter.min_age.map(|age| age.as_millis());
        let whole = Self {
            path_prefix: filter.path_prefix.clone(),
            methods: filter.methods.iter().cloned().collect(),
            scripts: filter.scripts.iter().cloned().collect(),
            min_request_age_milliseconds: age.map(|age| u64::try_from(age).unwrap_or(u64::MAX)),
            include_young: filter.include_young,
            sha256: None,
        };
        let text = serde_json::to_string(&whole).unwrap_or_default();
        if text.len() <= MAX_FILTER {
            return whole;
        }
        let hash = digest::digest(&digest::SHA256, text.as_bytes());
        let mut digits = String::new();
        for byte in hash.as_ref().iter().take(HASH) {
            // Writing to a string cannot fail.
            let _ = write!(digits, "{byte:02x}");
        }
        Self {
            sha256: Some(digits),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(asked: &RunAsked, expected: &str) {
        let text = serde_json::to_string(&AskedData::of(asked)).unwrap();
        assert_eq!(text, expected);
    }

    #[test]
    fn asked_is_written_as_the_api_has_it() {
        check(&RunAsked::default(), "{}");
        let mut asked = RunAsked {
            include_idle: true,
            ..RunAsked::default()
        };
        asked.labels[SampleLabel::Route as usize] = true;
        asked.labels[SampleLabel::RequestAge as usize] = true;
        check(
            &asked,
            r#"{"labels":["route","request_age"],"includeIdle":true}"#,
        );
        let filter = RequestFilter {
            path_prefix: Some("/shop".to_owned()),
            methods: vec!["PUT".to_owned(), "POST".to_owned()],
            scripts: Vec::new(),
            min_age: Some(Duration::from_millis(500)),
            include_young: true,
        };
        let asked = RunAsked {
            filter,
            only_running: true,
            ..RunAsked::default()
        };
        check(
            &asked,
            r#"{"filter":{"pathPrefix":"/shop","methods":["POST","PUT"],"minRequestAgeMilliseconds":500,"includeYoung":true},"onlyRunning":true}"#,
        );
    }

    #[test]
    fn a_long_filter_is_written_as_hash() {
        let of = |script: &str| {
            let scripts = vec![script.repeat(100), "index.php".to_owned()];
            let filter = RequestFilter {
                scripts,
                ..RequestFilter::default()
            };
            AskedData::of(&RunAsked {
                labels: [true; SampleLabel::COUNT],
                filter,
                include_idle: true,
                only_running: true,
            })
        };
        let text = serde_json::to_string(&of("shop/")).unwrap();
        assert!(
            text.len() <= 400 && text.contains(r#""sha256":""#),
            "{text}"
        );
        assert_eq!(of("shop/"), of("shop/"));
        assert_ne!(of("shop/"), of("blog/"));
    }
}
