//! The whole file: what was recorded and when, the shared tables, and the threads.
//!
//! Invariant: the threads that are visible at first exist.

use std::cmp::Reverse;

use serde::Serialize;
use serde_json::{Value, json};

use super::columns::SharedColumns;
use super::markers::schemas;
use super::milliseconds;
use super::tables::{CATEGORIES, FrameCategory, kinds};
use super::threads::{FirefoxThread, interval};
use crate::proto::Profile;
use crate::timeline::Timeline;

/// The version of the processed profile format that is written.
const VERSION: u32 = 60;
/// The version of Gecko's own format, which readers of the processed one ignore.
const GECKO_VERSION: u32 = 32;
/// The most threads that are visible at first. Each is a track.
const VISIBLE: usize = 32;

/// The file.
#[derive(Serialize)]
pub(super) struct FirefoxFile {
    meta: Value,
    libs: [u8; 0],
    shared: SharedColumns,
    threads: Vec<FirefoxThread>,
}

impl FirefoxFile {
    pub fn new(
        profile: &Profile,
        timeline: Option<&Timeline>,
        title: &str,
        shared: SharedColumns,
        threads: Vec<FirefoxThread>,
    ) -> Self {
        FirefoxFile {
            meta: meta(profile, timeline, title, &threads),
            libs: [],
            shared,
            threads,
        }
    }

    /// Says how many moments have no time, among what the Firefox Profiler shows of the profile.
    pub fn tell_left_out(&mut self, moments: u64) {
        if moments > 0 {
            self.meta["extra"] = json!([{
                "label": "List of requests",
                "entries": [{
                    "label": "Moments left out, because there are too many",
                    "format": "integer",
                    "value": moments,
                }],
            }]);
        }
    }
}

fn meta(
    profile: &Profile,
    timeline: Option<&Timeline>,
    title: &str,
    threads: &[FirefoxThread],
) -> Value {
    let began = timeline.map_or(profile.time_nanos, |it| it.began_unix_nanoseconds);
    let end = threads.iter().map(|thread| thread.end).max().unwrap_or(0);
    let mut visible: Vec<_> = (0..threads.len()).collect();
    visible.sort_by_key(|index| Reverse(threads.get(*index).map(|thread| thread.length)));
    visible.truncate(VISIBLE);
    let selected: Vec<_> = visible.first().copied().into_iter().collect();
    visible.sort_unstable();
    json!({
        "preprocessedProfileVersion": VERSION,
        "version": GECKO_VERSION,
        "product": title,
        "importedFrom": concat!("phpprof ", env!("CARGO_PKG_VERSION")),
        "interval": milliseconds(interval(profile)),
        "startTime": milliseconds(began),
        "profilingStartTime": 0.0,
        "profilingEndTime": milliseconds(end),
        "processType": 0,
        "stackwalk": 0,
        "symbolicated": true,
        "symbolicationNotSupported": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "categories": categories(),
        "markerSchema": schemas(),
        "initialVisibleThreads": visible,
        "initialSelectedThreads": selected,
        "keepProfileThreadOrder": true,
    })
}

fn categories() -> Value {
    let categories = CATEGORIES.iter().enumerate();
    let categories = categories.map(|(index, (name, color))| {
        let kinds: Vec<_> = if index == FrameCategory::Waiting as usize {
            kinds().collect()
        } else {
            vec!["Other"]
        };
        json!({"name": name, "color": color, "subcategories": kinds})
    });
    categories.collect()
}
