//! Folded stacks for flamegraph.pl and speedscope: `root;caller;leaf value`, one line for each
//! stack.
//!
//! It keeps names only, because the format has no files and lines.
//!
//! Invariant: the values of all lines add up to the total, and no name can begin a line or a frame.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::stacks::Stacks;
use crate::text::{is_special, marked};

/// The frame of a stack without frames. The format needs at least one.
const NO_FRAME: &str = "[unknown]";

pub fn folded(stacks: &Stacks<'_>) -> String {
    let names: Vec<_> = stacks
        .functions
        .iter()
        .map(|function| clean(function.name))
        .collect();
    let mut lines: BTreeMap<String, i64> = BTreeMap::new();
    for (steps, value) in stacks.chosen().filter(|(_, value)| *value != 0) {
        let frames: Vec<_> = steps
            .iter()
            .filter_map(|(function, _)| names.get(*function))
            .map(String::as_str)
            .collect();
        let stack = match frames.as_slice() {
            [] => NO_FRAME.to_owned(),
            frames => frames.join(";"),
        };
        let sum = lines.entry(stack).or_default();
        *sum = sum.saturating_add(value);
    }
    let mut text = String::new();
    for (stack, value) in lines {
        let _ = writeln!(text, "{stack} {value}");
    }
    text
}

/// A name without the characters that separate frames and lines: they are shown as their bytes.
fn clean(name: &str) -> String {
    // A PHP name may begin with another space, such as U+00A0.
    match name.trim_matches(' ') {
        "" => "[anonymous]".to_owned(),
        name => marked(name, |letter| letter == ';' || is_special(letter)),
    }
}
