//! The Firefox Profiler's processed profile format, version 60, as gzipped JSON
//! (github.com/firefox-devtools/profiler: `src/types/profile.ts` and
//! `docs-developer/CHANGELOG-formats.md`). The Firefox Profiler upgrades older versions.
//!
//! Each worker is a thread. Samples in a pprof have no times, but a timeline has those of the
//! slowest requests, so theirs are where they were seen. All others come after the end of the run,
//! in the order of their stacks, and a marker says so.
//!
//! Invariant: the weights of all threads add up to the total of the chosen sample type, and the CPU
//! deltas to that of `cpu`.

mod columns;
mod file;
mod markers;
mod tables;
#[cfg(test)]
mod tests;
mod threads;
mod workers;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::proto::Profile;
use crate::stacks::{View, ViewError};
use crate::timeline::Timeline;
use crate::waiting::labelled;
use file::FirefoxFile;
use threads::{SampleUnit, ThreadWriter};
use workers::workers;

/// Writes the samples in the view, and the requests that the timeline has.
///
/// # Errors
/// A [`ViewError`] if the profile has no such sample type.
pub fn firefox(
    profile: &Profile,
    view: &View,
    title: &str,
    timeline: Option<&Timeline>,
) -> Result<Vec<u8>, ViewError> {
    let chosen = view.index(profile)?;
    let profile = labelled(profile);
    let found = workers(&profile, view, timeline);
    let unit = SampleUnit::of(&profile, chosen);
    let mut writer = ThreadWriter::new(&found, unit, timeline, title);
    let threads = found.runs.iter().map(|run| writer.thread(run)).collect();
    let mut file = FirefoxFile::new(&profile, timeline, title, writer.finish(), threads);
    file.tell_left_out(found.left_out);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Serialising strings and numbers to a `Vec` cannot fail.
    let written = serde_json::to_writer(&mut gzip, &file);
    Ok(written
        .ok()
        .and_then(|()| gzip.finish().ok())
        .unwrap_or_default())
}

/// Milliseconds, in which the format has times and weights.
fn milliseconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e6
}
