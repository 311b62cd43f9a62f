//! What `phpprof record --heap` prints about heaps at its end.

use phpprof::run::Recording;

use super::say;

/// A heap is near `memory_limit` from this percentage on: `near-memory-limit` in
/// profile/src/findings.
const NEAR: u64 = 80;

/// Prints the size of the highest heap, and for how many workers nothing is known.
pub fn summarize(recording: &Recording) {
    let Some(told) = recording.facts.heap else {
        return;
    };
    if let Some(highest) = told.highest {
        let sizes = highest.sizes;
        let of_limit = sizes.limit.map(|limit| percent(sizes.real_peak, limit));
        let limit = match of_limit {
            Some(percent) if percent >= NEAR => format!(", near memory_limit: {percent} %"),
            Some(percent) => format!(", {percent} % of memory_limit"),
            None => String::new(),
        };
        say(&format!(
            "the highest heap had {:.1} MiB{limit}",
            sizes.peak as f64 / f64::from(1 << 20)
        ));
    }
    if told.without_heap > 0 {
        say(&format!(
            "the heaps of {} workers cannot be read: PHP runs without its memory manager (USE_ZEND_ALLOC=0), or with another one",
            told.without_heap
        ));
    }
}

fn percent(bytes: u64, limit: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 100 / u128::from(limit.max(1))).unwrap_or(u64::MAX)
}
