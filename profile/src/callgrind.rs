//! Callgrind's format (valgrind.org/docs/manual/cl-format.html), for KCachegrind and
//! callgrind_annotate.
//!
//! A sampler sees no calls. If the format needs the number of calls, it gets the number of stacks
//! with the call.
//!
//! Invariant: the self costs of all functions add up to the totals. A call that is on a stack
//! several times (recursion) counts once in its inclusive cost. No name can begin a line.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::stacks::{Stacks, add};
use crate::text::printable;

/// The function of a stack without frames.
const NO_FRAME: &str = "[unknown]";

/// Caller, line of the call, callee.
type CallEdge = (usize, i64, usize);

#[derive(Default)]
struct Costs {
    /// The self costs of a function and line.
    flat: BTreeMap<(usize, i64), Vec<i64>>,
    /// The number of stacks with the call, and the callee's cost including its callees.
    calls: BTreeMap<CallEdge, (u64, Vec<i64>)>,
}

pub fn callgrind(stacks: &Stacks<'_>) -> String {
    let costs = sum(stacks);
    let events: Vec<_> = stacks
        .sample_types
        .iter()
        .map(|(name, unit)| format!("{}_{}", word(name), word(unit)))
        .collect();
    let totals: Vec<_> = (0..events.len()).map(|index| stacks.total(index)).collect();
    let mut text = String::from("# callgrind format\nversion: 1\ncreator: phpprof\n");
    let _ = writeln!(
        text,
        "positions: line\nevents: {}\nsummary: {}",
        events.join(" "),
        numbers(&totals)
    );
    let functions: std::collections::BTreeSet<_> = costs
        .flat
        .keys()
        .map(|(function, _)| *function)
        .chain(costs.calls.keys().map(|(caller, _, _)| *caller))
        .collect();
    let mut names = Names::new(stacks);
    for function in functions {
        let _ = writeln!(text, "\n{}", names.function("fl", "fn", function));
        let all_lines = (function, i64::MIN)..=(function, i64::MAX);
        for ((_, line), values) in costs.flat.range(all_lines) {
            let _ = writeln!(text, "{} {}", line.max(&0), numbers(values));
        }
        let all_calls = (function, i64::MIN, 0)..=(function, i64::MAX, usize::MAX);
        for ((_, line, callee), (count, values)) in costs.calls.range(all_calls) {
            let start = stacks
                .functions
                .get(*callee)
                .map_or(0, |callee| callee.start_line);
            let _ = writeln!(
                text,
                "{}\ncalls={count} {}\n{} {}",
                names.function("cfi", "cfn", *callee),
                start.max(0),
                line.max(&0),
                numbers(values)
            );
        }
    }
    text
}

fn sum(stacks: &Stacks<'_>) -> Costs {
    let no_frame = stacks.functions.len();
    let mut costs = Costs::default();
    for (steps, values) in &stacks.stacks {
        let leaf = steps.last().copied().unwrap_or((no_frame, 0));
        add(costs.flat.entry(leaf).or_default(), values);
        let mut seen = HashSet::new();
        for pair in steps.windows(2) {
            let [(caller, line), (callee, _)] = *pair else {
                continue;
            };
            if seen.insert((caller, callee)) {
                let (count, sums) = costs.calls.entry((caller, line, callee)).or_default();
                *count += 1;
                add(sums, values);
            }
        }
    }
    costs
}

/// Names by number. A name is written out where it first occurs.
struct Names<'s, 'a> {
    stacks: &'s Stacks<'a>,
    files: BTreeMap<&'a str, usize>,
    spelled: HashSet<(&'static str, usize)>,
}

impl<'s, 'a> Names<'s, 'a> {
    fn new(stacks: &'s Stacks<'a>) -> Self {
        Names {
            stacks,
            files: BTreeMap::new(),
            spelled: HashSet::new(),
        }
    }

    /// Writes two lines: the file and the function.
    fn function(&mut self, file_key: &str, key: &str, function: usize) -> String {
        let known = self.stacks.functions.get(function);
        let (file, name) = known.map_or(("", NO_FRAME), |known| (known.file, known.name));
        let next = self.files.len() + 1;
        let file_number = *self.files.entry(file).or_insert(next);
        let file = self.spell("file", file_number, file);
        let name = self.spell("function", function + 1, name);
        format!("{file_key}={file}\n{key}={name}")
    }

    fn spell(&mut self, kind: &'static str, number: usize, name: &str) -> String {
        if self.spelled.insert((kind, number)) {
            format!("({number}) {}", clean(name))
        } else {
            format!("({number})")
        }
    }
}

fn numbers(values: &[i64]) -> String {
    let words: Vec<_> = values.iter().map(i64::to_string).collect();
    words.join(" ")
}

/// A name without line breaks.
fn clean(name: &str) -> Cow<'_, str> {
    // A PHP name may begin with another space, such as U+00A0.
    match name.trim_matches(' ') {
        "" => Cow::Borrowed("???"),
        name => printable(name),
    }
}

/// Makes one word, because the name of an event is one word.
fn word(text: &str) -> String {
    text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}
