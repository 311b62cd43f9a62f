//! The workers that a dump cannot show, because no sampler has a sample of them: they ended, or
//! could not be read.
//!
//! Invariant: if there are any, each form of a dump has their number, also without other workers.

use serde::Deserialize;

use crate::proto::Profile;

/// How many workers the samplers knew of that are not among [`super::workers`], by the receipts of
/// all pods.
pub fn without_sample(profile: &Profile) -> usize {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ReceiptOfSnapshot {
        #[serde(default)]
        workers_without_sample: usize,
    }
    let receipts = profile.comments().map(serde_json::from_str);
    receipts
        .filter_map(|receipt: Result<ReceiptOfSnapshot, _>| receipt.ok())
        .fold(0, |sum, it| sum.saturating_add(it.workers_without_sample))
}

/// The end of the last line if workers have no sample.
pub(super) fn further(without_sample: usize) -> String {
    match without_sample {
        0 => String::new(),
        count => format!("; {count} more without a sample"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{json, memory_text, text};
    use super::*;
    use crate::{Builder, Settings};

    #[test]
    fn an_empty_dump_counts_workers_without_sample() {
        let empty = json(&[], 2);
        let empty: serde_json::Value = serde_json::from_str(&empty).unwrap();
        assert_eq!(
            empty,
            serde_json::json!({"workers": [], "withoutSample": 2})
        );
        let line = "0 waiting, 0 running, 0 idle; 2 more without a sample\n";
        assert_eq!(text(&[], 2), line);
        assert_eq!(
            memory_text(&[], 2),
            "0 workers, 0 idle; 2 more without a sample\n"
        );
    }

    #[test]
    fn workers_without_sample_are_those_of_all_pods() {
        let mut builder = Builder::new(Settings::default());
        for comment in [
            r#"{"workersWithoutSample":2}"#,
            "{}",
            "[",
            r#"{"workersWithoutSample":3}"#,
        ] {
            builder.comment(comment);
        }
        assert_eq!(without_sample(&builder.finish()), 5);
    }
}
