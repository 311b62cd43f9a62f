//! The flag `--fibers` of `phpprof record`: with what it goes, and what is printed at the end.

use phpprof::failure::{Reason, SamplerFailure};
use phpprof::request::asked::RequestFilter;
use phpprof::run::Recording;

use super::say;

/// Refuses fibers together with a filter of requests: they belong to none.
pub fn check(fibers: bool, filter: &RequestFilter) -> Result<(), SamplerFailure> {
    let message = "a suspended fiber belongs to no HTTP request: leave out --fibers, or what keeps only some requests";
    let refused = || SamplerFailure::new(Reason::Usage, "requests", message);
    (!fibers || !filter.is_on())
        .then_some(())
        .ok_or_else(refused)
}

/// Prints how many fibers were suspended, and what is not known of them.
pub fn summarize(recording: &Recording) {
    let Some(told) = recording.facts.fibers else {
        return;
    };
    if told.visits > 0 {
        say(&format!(
            "at most {} fibers of a worker were suspended at once, in {} visits",
            told.most, told.visits
        ));
    }
    for (count, words) in [
        (
            told.unproven,
            "suspended fibers have stacks that could not be proven, and end in [unstable]",
        ),
        (
            told.lost,
            "suspended fibers, or places in tables of objects, are left out for lack of time or room",
        ),
        (
            told.refused,
            "times, the fibers of a worker could not be read: PHP runs without its memory manager (USE_ZEND_ALLOC=0), or with another one",
        ),
        (
            told.without,
            "workers have no fibers: PHP has them since 8.1",
        ),
    ] {
        if count > 0 {
            say(&format!("{count} {words}"));
        }
    }
}
