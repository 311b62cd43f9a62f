//! What a waiting `run` shows: one line for the request, one for each of its pods.
//!
//! It is pure: it takes the request and the time, and returns lines.
//!
//! Invariant: time left is counted from the moment a pod was first seen sampling, and is never
//! negative.

use std::collections::HashMap;
use std::time::Duration;

use crate::duration::text;
use crate::request::{RequestView, ShownOutcome, TargetView};
use crate::table::{cut, printable};

/// The most pods that are listed. More are only counted.
const LISTED: usize = 12;

#[derive(Debug, Default)]
pub struct RunProgress {
    /// When a pod was first seen sampling, counted from the beginning.
    sampling_since: HashMap<String, Duration>,
}

impl RunProgress {
    /// The lines for the state at `elapsed` after the beginning.
    pub fn lines(
        &mut self,
        request: &RequestView<'_>,
        elapsed: Duration,
        width: usize,
    ) -> Vec<String> {
        let mut lines = vec![head(request, elapsed)];
        let targets: Vec<_> = request.targets().collect();
        let longest = targets
            .iter()
            .map(|target| target.pod().chars().count())
            .max()
            .unwrap_or(0);
        for target in targets.iter().take(LISTED) {
            let state = self.state(target, request, elapsed);
            lines.push(format!("  {:<longest$}   {state}", printable(target.pod())));
        }
        if targets.len() > LISTED {
            lines.push(format!("  and {} more pods", targets.len() - LISTED));
        }
        lines.iter().map(|line| cut(line, width)).collect()
    }

    fn state(
        &mut self,
        target: &TargetView<'_>,
        request: &RequestView<'_>,
        elapsed: Duration,
    ) -> String {
        let is_of_heaps = request.words("/spec/mode") == "Heap";
        match target.state() {
            "Sampling" if is_of_heaps => "reading the heaps".to_owned(),
            "Sampling" => {
                let key = format!(
                    "{} {}",
                    target.pod(),
                    target.words("/ephemeralContainerName")
                );
                let since = *self.sampling_since.entry(key).or_insert(elapsed);
                let whole = u64::try_from(request.number("/spec/durationSeconds")).unwrap_or(0);
                let left = whole.saturating_sub((elapsed.saturating_sub(since)).as_secs());
                match left {
                    0 => "sampled, uploading".to_owned(),
                    left => format!("sampling, {} left", text(left)),
                }
            }
            "Pending" | "" => "starting its sampler".to_owned(),
            "Verifying" => "stored, being verified".to_owned(),
            "Uploaded" => {
                let what = if is_of_heaps {
                    "objects, arrays and strings"
                } else {
                    "samples"
                };
                let samples = target.number("/samples");
                let samples = samples.map_or_else(String::new, |count| format!(", {count} {what}"));
                let cut = match target.reason() {
                    "" => String::new(),
                    reason => format!(", cut off: {}", printable(reason)),
                };
                format!("done{samples}{cut}")
            }
            "Failed" => format!("failed: {}", target.reason()),
            state => printable(state),
        }
    }
}

fn head(request: &RequestView<'_>, elapsed: Duration) -> String {
    let reason = match request.reason() {
        "" => "Waiting for the operator",
        reason => reason,
    };
    let selected = request.number("/status/selected");
    let done = request.number("/status/succeeded");
    let failed = request.number("/status/failed");
    let mut line = format!("{:>4}  {}", text(elapsed.as_secs()), printable(reason));
    if selected > 0 {
        line.push_str(&format!(", {done} of {selected} pods done"));
    }
    if failed > 0 {
        line.push_str(&format!(", {failed} failed"));
    }
    line
}

/// The last line: the outcome.
pub fn ending(request: &RequestView<'_>) -> String {
    let name = request.name();
    let message = printable(request.message());
    match request.outcome() {
        ShownOutcome::Complete => format!("{name}: {}: {message}", request.reason()),
        ShownOutcome::Failed => format!("{name} failed: {}: {message}", request.reason()),
        ShownOutcome::InProgress => format!("{name}: {}", request.reason()),
    }
}
