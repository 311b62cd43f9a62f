//! What the demo application can do, so that a profile of it can be told from a wrong one.

use anyhow::{Result, ensure};
use phpprof_profile::{Lookup, Profile};

/// The code path of 60 %.
pub const LARGEST: &str = r"Demo\Checkout\Cart::checkout";
/// Where every stack begins.
pub const ROOT: &str = "{main}";
/// A leaf that is no function: time below its caller, where the sampler could not prove which callee it was.
pub const UNSTABLE: &str = "[unstable]";

/// Whether the application can make that call, by calls written as demo/calls.txt is.
fn can_call(calls: &str, caller: &str, callee: &str) -> bool {
    let is = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    };
    let mut of_caller = false;
    for line in calls.lines() {
        match line.strip_prefix("  ") {
            Some(pattern) if of_caller && is(pattern, callee) => return true,
            Some(_) => {}
            None => of_caller = is(line, caller),
        }
    }
    false
}

/// Each stack of the profile is one that the application can have: from {main} on, by calls that it can make, or those that what
/// runs it makes of its own.
pub fn check_stacks(profile: &Profile, own_calls: &str) -> Result<()> {
    let calls = include_str!("../../demo/calls.txt").to_owned() + own_calls;
    let lookup = Lookup::new(profile);
    for sample in &profile.sample {
        // What the engine does (`[compiling]`, `[autoload]`, …) is no call.
        let stack: Vec<&str> = lookup
            .frames(sample)
            .map(|frame| frame.name)
            .filter(|name| !name.starts_with('[') || *name == UNSTABLE)
            .collect();
        let root = stack.last().copied().unwrap_or(UNSTABLE);
        ensure!(
            root == ROOT || root == UNSTABLE,
            "a stack begins at {root}: {stack:?}"
        );
        for pair in stack.windows(2) {
            let (callee, caller) = (pair[0], pair[1]);
            ensure!(
                callee == UNSTABLE || can_call(&calls, caller, callee),
                "{caller} cannot call {callee}: {stack:?}"
            );
        }
    }
    Ok(())
}
