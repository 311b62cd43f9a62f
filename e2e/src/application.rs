//! What the demo application can do: the tests tell a correct profile from a wrong one by it.

use std::borrow::Cow;

use anyhow::{Result, ensure};
use phpprof_profile::{Lookup, Profile, place_name};

/// The call path that takes 60 % of the time.
pub const LARGEST: &str = r"Demo\Checkout\Cart::checkout";
/// The root frame of every stack.
pub const ROOT: &str = "{main}";
/// A leaf frame that is not a function: time below its caller for which the sampler could not prove
/// the callee.
pub const UNSTABLE: &str = "[unstable]";

/// Whether the application can make that call; `calls` has the format of demo/calls.txt.
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

/// Checks that the application can have each stack of the profile: from {main} on, each frame is
/// called by its caller in demo/calls.txt or in `own_calls`, the calls that the runtime itself
/// makes.
pub fn check_stacks(profile: &Profile, own_calls: &str) -> Result<()> {
    let calls = include_str!("../../demo/calls.txt").to_owned() + own_calls;
    let lookup = Lookup::new(profile);
    for sample in &profile.sample {
        // What the engine does (`[compiling]`, `[autoload]`, …) is not a call.
        let stack: Vec<Cow<'_, str>> = lookup
            .frames(sample)
            .map(|frame| place_name(frame.name, frame.file, frame.start_line))
            .filter(|name| !name.starts_with('[') || name == UNSTABLE)
            .collect();
        let root = stack.last().map_or(UNSTABLE, |root| root);
        ensure!(
            root == ROOT || root == UNSTABLE,
            "a stack begins at {root}: {stack:?}"
        );
        for pair in stack.windows(2) {
            let (callee, caller) = (&*pair[0], &*pair[1]);
            ensure!(
                callee == UNSTABLE || can_call(&calls, caller, callee),
                "{caller} cannot call {callee}: {stack:?}"
            );
        }
    }
    Ok(())
}
