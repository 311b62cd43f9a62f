//! Judges the release itself, without a workload: what the chart's test asks.
//!
//! Invariant: the store is good only by the operator's own word. A setting of the Deployment is
//! none.

use super::{Check, CheckVerdict, ObservedRelease, api, check, operator, reached, store_as_told};

pub fn check_release(observed: &ObservedRelease) -> Vec<Check> {
    vec![
        api(observed),
        operator(observed),
        store(observed),
        reached(observed),
    ]
}

fn store(observed: &ObservedRelease) -> Check {
    match &observed.store {
        Ok(facts) => store_as_told(observed, facts, ""),
        Err(why) => check(
            "store",
            CheckVerdict::Unknown,
            format!("how the operator's store is cannot be read: {why}"),
            "try again in some seconds, or ask for the Role …-operator-results",
        ),
    }
}
