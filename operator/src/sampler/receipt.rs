//! What a sampler reports: the short receipt in its termination message, and the full one in its
//! profile.
//!
//! Invariant: neither is trusted. Numbers are within bounds, text is short and printable, and a
//! claim counts only after the store has confirmed it.

use phpprof_crds::{MissedProcesses, PhpRuntime, ProfileQuality, TargetReason, UploadRoute};
use phpprof_profile::SampleSource;
use phpprof_profile::in_use::InHeap;
use serde::Deserialize;

/// The longest short receipt that the contract allows.
const SHORT: usize = 120;
/// The longest full receipt that the contract allows.
const FULL: usize = 4096;
/// The most workers whose busy share is kept.
const MAX_BUSY_PERCENTS: usize = 64;
/// No sampler takes more samples per second.
const MAX_RATE: f64 = 10_000.0;
/// A SHA-256 in base64url without padding.
const SHA256: usize = 43;

/// The line in the termination message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShortReceipt {
    Uploaded(UploadReceipt),
    NotAfterPassed,
    /// A resident sampler's lease ended.
    LeaseEnded,
    Failed {
        reason: TargetReason,
        detail: String,
    },
}

/// What the sampler says that it stored, or what the operator found by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadReceipt {
    /// If the sampler has said it.
    pub route: Option<UploadRoute>,
    pub samples: i64,
    pub size: u64,
    pub sha256: String,
}

#[derive(Deserialize)]
struct ReceiptLine {
    reason: String,
    #[serde(default)]
    detail: String,
    samples: Option<i64>,
    size: Option<u64>,
    sha256: Option<String>,
}

impl ShortReceipt {
    /// `None` if the message is not a receipt of the contract.
    pub fn parse(message: &str) -> Option<Self> {
        let line = message.trim();
        if line.len() > SHORT {
            return None;
        }
        let line: ReceiptLine = serde_json::from_str(line).ok()?;
        match line.reason.as_str() {
            "NotAfterPassed" => Some(ShortReceipt::NotAfterPassed),
            "LeaseEnded" => Some(ShortReceipt::LeaseEnded),
            reason @ ("Uploaded" | "Relayed") => {
                let receipt = UploadReceipt {
                    route: Some(match reason {
                        "Relayed" => UploadRoute::Relay,
                        _ => UploadRoute::Direct,
                    }),
                    samples: line.samples.filter(|samples| *samples >= 0)?,
                    size: line.size?,
                    sha256: line.sha256.filter(|sum| is_sha256(sum))?,
                };
                Some(ShortReceipt::Uploaded(receipt))
            }
            reason => Some(ShortReceipt::Failed {
                reason: TargetReason::of_receipt(reason)?,
                detail: printable(&line.detail, SHORT),
            }),
        }
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == SHA256
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// The first comment of a pod's profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FullReceipt {
    /// The sampler's contract number; 0 if it gives none.
    pub contract: u32,
    pub php: PhpRuntime,
    pub workers: i64,
    pub workers_not_sampled: i64,
    /// Absent from older samplers.
    pub missed: Option<MissedProcesses>,
    pub busy_percents: Vec<i64>,
    pub samples: i64,
    pub quality: ProfileQuality,
    pub duration_seconds: i64,
    pub effective_samples_per_second: Option<f64>,
    #[serde(rename = "samplerCPUMilliseconds")]
    pub sampler_cpu_milliseconds: i64,
    pub sampler_peak_bytes: i64,
    /// How heaps were read, if the run was for what is in them.
    pub in_heap: Option<InHeap>,
}

impl FullReceipt {
    /// `None` if the profile does not start with a receipt of the contract.
    pub fn of(profile: &impl SampleSource) -> Option<Self> {
        let comment = profile
            .head()
            .comments()
            .next()
            .filter(|comment| comment.len() <= FULL)?;
        let mut receipt: FullReceipt = serde_json::from_str(comment).ok()?;
        receipt.busy_percents.truncate(MAX_BUSY_PERCENTS);
        receipt.effective_samples_per_second = receipt
            .effective_samples_per_second
            .filter(|rate| (0.0..=MAX_RATE).contains(rate));
        let php = &mut receipt.php;
        for text in [&mut php.version, &mut php.sapi, &mut php.jit] {
            *text = printable(text, 64);
        }
        Some(receipt)
    }
}

/// The text without control characters, cut to this many bytes.
pub fn printable(text: &str, limit: usize) -> String {
    let mut kept = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if kept.len() + character.len_utf8() > limit {
            break;
        }
        kept.push(character);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use phpprof_profile::{Builder, Settings};

    #[track_caller]
    fn check(message: &str, expected: Option<ShortReceipt>) {
        assert_eq!(ShortReceipt::parse(message), expected);
    }

    #[test]
    fn every_receipt_of_the_contract_is_understood() {
        for line in include_str!("../../../contract/receipts.jsonl").lines() {
            assert!(ShortReceipt::parse(line).is_some(), "{line}");
        }
    }

    #[test]
    fn a_failure_keeps_its_reason_and_its_detail() {
        check(
            r#"{"reason":"UnsupportedVersion","detail":"9.2.29"}"#,
            Some(ShortReceipt::Failed {
                reason: TargetReason::UnsupportedVersion,
                detail: "9.2.29".into(),
            }),
        );
    }

    #[test]
    fn what_is_not_a_receipt_is_not_believed() {
        check("", None);
        check("panicked at main.rs", None);
        check(r#"{"reason":"Complete"}"#, None);
        check(r#"{"reason":"Uploaded","samples":1,"size":2}"#, None);
        check(
            r#"{"reason":"Uploaded","samples":1,"size":2,"sha256":"../../x"}"#,
            None,
        );
        check(
            r#"{"reason":"Uploaded","samples":-1,"size":2,"sha256":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}"#,
            None,
        );
        check(
            &format!(
                r#"{{"reason":"NoPhpFound","detail":"{}"}}"#,
                "x".repeat(200)
            ),
            None,
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_status() {
        check(
            r#"{"reason":"UploadRefused","detail":"\u001b[31m403\n"}"#,
            Some(ShortReceipt::Failed {
                reason: TargetReason::UploadRefused,
                detail: "[31m403".into(),
            }),
        );
    }

    fn full(comment: &str) -> FullReceipt {
        let mut builder = Builder::new(Settings::default());
        builder.comment(comment);
        FullReceipt::of(&builder.finish()).unwrap()
    }

    #[test]
    fn a_receipt_may_lack_later_fields() {
        let receipt = full(r#"{"samples":3,"quality":{"unstable":1},"samplesPerSecond":99}"#);
        assert_eq!((receipt.samples, receipt.quality.unstable), (3, 1));
        assert_eq!(receipt.workers_not_sampled, 0);
        assert_eq!(receipt.effective_samples_per_second, None);
        assert_eq!(receipt.quality.cpu_unattributed_milliseconds, 0);
    }

    #[test]
    fn a_receipt_may_have_a_later_samplers_fields() {
        let receipt = full(r#"{"workers":4,"new":{"a":[1]},"quality":{"taken":7,"new":1}}"#);
        assert_eq!((receipt.workers, receipt.quality.taken), (4, 7));
    }

    #[test]
    fn a_rate_no_sampler_has_is_not_believed() {
        for (said, believed) in [("98.7", Some(98.7)), ("-1", None), ("1e300", None)] {
            let receipt = full(&format!(r#"{{"effectiveSamplesPerSecond":{said}}}"#));
            assert_eq!(receipt.effective_samples_per_second, believed, "{said}");
        }
    }

    #[test]
    fn the_full_receipt_of_the_contract_is_understood() {
        let receipt: FullReceipt =
            serde_json::from_str(include_str!("../../../contract/comment.json")).unwrap();
        insta::assert_debug_snapshot!(receipt);
    }
}
