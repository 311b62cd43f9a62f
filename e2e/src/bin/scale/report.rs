//! The measurements, each next to its limit if it has one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::say;

use crate::audit::CallCounts;

/// The limits of the design and docs/promises.md.
const CALLS_PER_TARGET: f64 = 4.0;
const STATUS_PATCHES: f64 = 12.0;
pub const MEMORY_MIB: f64 = 150.0;

struct Row {
    what: String,
    measured: f64,
    unit: &'static str,
    limit: Option<f64>,
}

impl Row {
    fn holds(&self) -> bool {
        self.limit.is_none_or(|limit| self.measured <= limit)
    }
}

#[derive(Default)]
pub struct ScaleReport(Vec<Row>);

impl ScaleReport {
    /// Adds a measurement, and prints it at once.
    pub fn add(&mut self, what: &str, measured: f64, unit: &'static str, limit: Option<f64>) {
        let row = Row {
            what: what.to_owned(),
            measured,
            unit,
            limit,
        };
        let beside = match limit {
            Some(limit) if row.holds() => format!(" (at most {limit})"),
            Some(limit) => format!(" (at most {limit}: BROKEN)"),
            None => String::new(),
        };
        say(&format!("    {what:<58} {measured:>10.2} {unit}{beside}"));
        self.0.push(row);
    }

    pub fn time(&mut self, what: &str, took: Duration) {
        self.add(what, took.as_secs_f64(), "s", None);
    }

    /// Adds the median of many times, and the longest one.
    pub fn times(&mut self, what: &str, mut all: Vec<Duration>) {
        all.sort_unstable();
        let middle = all.get(all.len() / 2).copied().unwrap_or_default();
        self.time(&format!("{what}, median"), middle);
        self.time(
            &format!("{what}, longest"),
            all.last().copied().unwrap_or_default(),
        );
    }

    pub fn calls(&mut self, phase: &str, calls: &CallCounts, targets: usize) {
        let per_target = |count: usize| count as f64 / targets.max(1) as f64;
        for (kind, count) in &calls.others {
            self.add(
                &format!("{phase}: {kind}, per target"),
                per_target(*count),
                "calls",
                None,
            );
        }
        self.add(
            &format!("{phase}: calls per target"),
            per_target(calls.others()),
            "calls",
            Some(CALLS_PER_TARGET),
        );
        self.add(
            &format!("{phase}: watches, pages of their lists, lease"),
            calls.watches as f64,
            "calls",
            None,
        );
        let patches: usize = calls.status_patches.values().sum();
        let mean = patches as f64 / calls.status_patches.len().max(1) as f64;
        self.add(
            &format!("{phase}: status patches of a request, mean"),
            mean,
            "patches",
            None,
        );
        let most = calls.most_status_patches() as f64;
        self.add(
            &format!("{phase}: status patches of a request, most"),
            most,
            "patches",
            Some(STATUS_PATCHES),
        );
        for (code, count) in &calls.refused {
            self.add(
                &format!("{phase}: answers {code}"),
                *count as f64,
                "calls",
                None,
            );
        }
    }

    /// Whether all limits hold.
    pub fn holds(&self) -> bool {
        self.0.iter().all(Row::holds)
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = "what,measured,unit,limit,holds\n".to_owned();
        for row in &self.0 {
            let limit = row.limit.map(|limit| limit.to_string()).unwrap_or_default();
            writeln!(
                text,
                "\"{}\",{:.3},{},{limit},{}",
                row.what,
                row.measured,
                row.unit,
                row.holds()
            )?;
        }
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_its_limit_does_not_hold() {
        let mut report = ScaleReport::default();
        report.add("memory", 150.0, "MiB", Some(MEMORY_MIB));
        report.add("time", 1e9, "s", None);
        assert!(report.holds());
        report.add("memory", 150.1, "MiB", Some(MEMORY_MIB));
        assert!(!report.holds());
    }
}
