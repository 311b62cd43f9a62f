//! Judges the rights that a profile needs, by the API server's reviews.
//!
//! Invariant: a right that another one replaces, or that few profiles need, is no failure.

use super::{Allowed, Check, CheckVerdict, MAY_LOOK, MAY_PROFILE, ObservedRelease, check};

/// Rights whose result depends on other rights.
pub const PATCH_PODS: &str = "patch pods/ephemeralcontainers";
pub const PROFILE: &str = "profile profilerequests";
pub const HEAP: &str = "heap profilerequests";

pub fn right(observed: &ObservedRelease, right: &'static str, allowed: Allowed) -> Check {
    // The right is in the operator's own namespace, which is another one.
    let place = if right.contains("of the operator") {
        String::new()
    } else {
        format!(" in {}", observed.namespace)
    };
    let found = |may: &str| format!("you {may} {right}{place}");
    let (name, remedy) = purpose(right);
    let mut all = observed.rights.iter();
    let instead = all.any(|(other, allowed)| *other == PATCH_PODS && *allowed == Some(true));
    match allowed {
        Some(true) => check(name, CheckVerdict::Good, found("may"), ""),
        Some(false) => match without(right, instead) {
            Lacking::NoMatter(why) => {
                let found = format!("{}; {why}", found("may not"));
                check(name, CheckVerdict::Good, found, "")
            }
            Lacking::Unknown(why) => {
                let found = format!("{}; {why}", found("may not"));
                check(name, CheckVerdict::Unknown, found, remedy)
            }
            Lacking::Bad => check(name, CheckVerdict::Bad, found("may not"), remedy),
        },
        None => check(
            name,
            CheckVerdict::Unknown,
            format!("the check whether you may {right} failed"),
            remedy,
        ),
    }
}

/// What a right is for, and who has it.
fn purpose(right: &str) -> (&'static str, &'static str) {
    match right {
        HEAP => (
            MAY_PROFILE,
            "ask for it: the chart's ClusterRole for heaps has it, and by default the cluster roles edit and admin",
        ),
        PROFILE | PATCH_PODS | "create profilerequests" => (
            MAY_PROFILE,
            "ask for it: the chart's ClusterRole for profiling has it, and by default the cluster roles edit and admin",
        ),
        "get profilerequests" => (
            MAY_LOOK,
            "ask for it: the cluster roles view, edit and admin have it",
        ),
        _ => (
            MAY_LOOK,
            "ask the operator's administrator for it: the chart's role for readers of results has it (value results.readers)",
        ),
    }
}

/// What it means to lack a right.
enum Lacking {
    /// Why it does not matter.
    NoMatter(String),
    /// Why it may matter.
    Unknown(&'static str),
    Bad,
}

/// `instead`: the user may add containers to pods.
fn without(right: &str, instead: bool) -> Lacking {
    match right {
        PATCH_PODS => Lacking::NoMatter("only the dry run below needs it".to_owned()),
        PROFILE | HEAP if instead => {
            Lacking::NoMatter(format!("your right to {PATCH_PODS} suffices"))
        }
        // Most profiles are not of heaps.
        HEAP => Lacking::NoMatter("only kubectl phpprof heap and dump --memory need it".to_owned()),
        PROFILE => Lacking::Unknown("the chart's policies, if enabled, need this right"),
        _ => Lacking::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most profiles are not of heaps, so a user without that right is fit.
    #[test]
    fn lacking_the_right_to_heaps_is_no_failure() {
        for (may_patch, why) in [
            (false, "only kubectl phpprof heap and dump --memory need it"),
            (
                true,
                "your right to patch pods/ephemeralcontainers suffices",
            ),
        ] {
            let Lacking::NoMatter(said) = without(HEAP, may_patch) else {
                panic!("{why}");
            };
            assert_eq!(said, why);
        }
        assert!(matches!(without(PROFILE, false), Lacking::Unknown(_)));
        assert!(matches!(without("get profilerequests", true), Lacking::Bad));
    }
}
