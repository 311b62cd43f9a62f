//! Finds what an experienced PHP engineer would point out in a profile first.
//!
//! [`RULES`] are data, `seen` finds the matching stacks, and `facts` has the data that they need. A
//! profile without phpprof's receipt has no findings, because its names mean something else.
//! Neither has one with so few samples that chance could have caused the share.
//!
//! Invariant: a finding's share is of the measure that it names. The stacks that it shows belong to
//! that share, or ran when the heap was at its highest.

mod errors;
mod facts;
mod rules;
mod seen;

use serde::Serialize;

use crate::source::SampleSource;
use crate::stacks::View;
use crate::unnamed::Counts;

use errors::phrase;
pub use errors::{ErrorPlace, handler_name};
use facts::{Highest, PathValues, ProfileFacts};
use rules::Shows;
pub use rules::{FindingRule, Measure, RULES};
use seen::{SeenParts, seen};

/// The most stacks of a finding, and the most functions of a stack, that are shown.
const STACKS: usize = 3;
const DEPTH: usize = 16;

/// The id of the finding that no rule has.
pub const UNSTABLE: &str = "unstable";

/// The id of the finding of workers that wait for a CPU: no rule, because no function causes it.
pub const CPU_THROTTLED: &str = "cpu-throttled";

/// The smallest share of waits for a CPU that is reported.
pub const LEAST_FOR_CPU: f64 = 0.10;

/// The fewest samples of a finding.
const LEAST_SAMPLES: f64 = 20.0;

/// A rule's finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The rule's id.
    pub id: &'static str,
    /// In percent of the measure `of`, with two decimals.
    pub share: f64,
    /// The measure of the share.
    pub of: Measure,
    /// The text for users: what was found, and what to do.
    pub sentence: String,
    /// The function with most of the share, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionPlace>,
    /// The heaviest stacks.
    pub stacks: Vec<FindingStack>,
    /// The code that raises errors, if the finding is about these, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ErrorPlace>,
}

impl Finding {
    /// The sentence without a word of the profiled program, whose names could say anything: the
    /// function is in its own field.
    #[must_use]
    pub fn advice(&self) -> String {
        let Some(rule) = RULES.iter().find(|rule| rule.id == self.id) else {
            return self.sentence.clone();
        };
        let sentence = rule.sentence.replace("{request}", "");
        let sentence = sentence.replace("{places}", "the callers of that function");
        match sentence.strip_prefix("{function}") {
            Some(rest) => format!("The function{rest}"),
            None => sentence.replace("{function}", "the function"),
        }
    }
}

/// A function, identified by name and file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionPlace {
    /// The name in the profile.
    pub name: String,
    /// Where it is declared.
    pub file: String,
}

/// A stack, and its part of the finding's share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FindingStack {
    /// In percent of the same measure as the finding's share.
    pub share: f64,
    /// The innermost functions, root first.
    pub functions: Vec<String>,
    /// Whether functions at the root's side are left out.
    pub cut: bool,
}

/// The findings for the samples in the view, the largest share first.
pub fn findings<S: SampleSource + ?Sized>(source: &S, view: &View) -> Vec<Finding> {
    let Some(facts) = ProfileFacts::of(source, view) else {
        return Vec::new();
    };
    let mut found: Vec<(&FindingRule, Finding)> = Vec::new();
    for rule in &RULES {
        let is_told = |id: &str| found.iter().any(|(rule, _)| rule.id == id);
        if !facts.may(rule) || rule.unless.iter().any(|id| is_told(id)) {
            continue;
        }
        let finding = seen(rule, &facts).and_then(|seen| judge(rule, &facts, &seen));
        found.extend(finding.map(|finding| (rule, finding)));
    }
    let mut found: Vec<Finding> = found.into_iter().map(|(_, finding)| finding).collect();
    found.extend(without_name(facts.unnamed()));
    found.extend(without_cpu(&facts));
    found.sort_by(|one, other| other.share.total_cmp(&one.share));
    found
}

/// What the sampler itself could not do, if that is much: no rule, because no program has to
/// change.
fn without_name(counts: Counts) -> Option<Finding> {
    let share = counts.too_many()?;
    Some(Finding {
        id: UNSTABLE,
        share: percent(share),
        of: Measure::Samples,
        sentence: counts.sentence(),
        function: None,
        stacks: Vec::new(),
        places: Vec::new(),
    })
}

/// Workers that could run and had no CPU, if that is much.
fn without_cpu(facts: &ProfileFacts<'_>) -> Option<Finding> {
    let total = facts.amount(Measure::Wall);
    let share = facts.for_cpu as f64 / total.value.max(1) as f64;
    if share < LEAST_FOR_CPU || total.samples * share < LEAST_SAMPLES {
        return None;
    }
    let throttled = facts.throttled();
    let seconds = throttled.milliseconds as f64 / 1000.0;
    let cause = match throttled.periods {
        0 => String::new(),
        periods => {
            format!(" (its limit stopped the container in {periods} periods, for {seconds:.1} s)")
        }
    };
    Some(Finding {
        id: CPU_THROTTLED,
        share: percent(share),
        of: Measure::Wall,
        sentence: format!(
            "Workers could run and waited for a CPU{cause}: raise the CPU limit, or lower the number of workers. The label waiting=cpu shows where they waited."
        ),
        function: None,
        stacks: Vec::new(),
        places: Vec::new(),
    })
}

/// The finding, unless chance can have caused it.
fn judge(rule: &FindingRule, facts: &ProfileFacts<'_>, seen: &SeenParts) -> Option<Finding> {
    let total = facts.amount(rule.measure);
    let (value, share) = match seen {
        SeenParts::Stacks(stacks) => {
            let value = stacks
                .iter()
                .map(|stack| stack.value)
                .fold(0, i64::saturating_add);
            (value, value as f64 / total.value.max(1) as f64)
        }
        SeenParts::Whole(share) | SeenParts::Heap(share, _) => {
            ((share * total.value as f64) as i64, *share)
        }
    };
    let evidence = total.samples * share;
    // Two standard deviations of a share with this many samples.
    let doubt = 2.0 * (share * (1.0 - share).max(0.0) / total.samples.max(1.0)).sqrt();
    let is_said = match seen {
        SeenParts::Stacks(_) => {
            value > 0 && evidence >= LEAST_SAMPLES && share - doubt >= rule.least
        }
        SeenParts::Whole(_) => total.samples >= LEAST_SAMPLES,
        // This is not a share of samples.
        SeenParts::Heap(..) => true,
    };
    if !is_said {
        return None;
    }
    let stacks: &[seen::StackPart] = match seen {
        SeenParts::Stacks(stacks) => stacks,
        SeenParts::Whole(_) | SeenParts::Heap(..) => &[],
    };
    let heap = match seen {
        SeenParts::Heap(_, heap) => Some(heap),
        _ => None,
    };
    let function = focus(facts, stacks);
    let name = function
        .as_ref()
        .map_or("", |function| function.name.as_str());
    let places = places(rule, facts, total.value);
    Some(Finding {
        id: rule.id,
        share: percent(share),
        of: rule.measure,
        sentence: rule
            .sentence
            .replace("{function}", name)
            .replace("{request}", &request(heap))
            .replace("{places}", &phrase(&places)),
        stacks: match heap {
            Some(heap) => of_heap(heap, share),
            None => shown(facts, stacks, total.value),
        },
        function,
        places,
    })
}

/// The code that raises errors, if the rule is about these.
fn places(rule: &FindingRule, facts: &ProfileFacts<'_>, total: i64) -> Vec<ErrorPlace> {
    match rule.shows {
        Shows::HandlesErrors => facts.errors.places(&facts.functions, total),
        _ => Vec::new(),
    }
}

/// The request, as a phrase within a sentence.
fn request(heap: Option<&Highest>) -> String {
    let route = heap.and_then(|heap| heap.route.as_deref());
    route.map_or_else(String::new, |route| format!(" (in {route})"))
}

/// The stack when the heap was at its highest, if it was seen.
fn of_heap(heap: &Highest, share: f64) -> Vec<FindingStack> {
    if heap.stack.is_empty() {
        return Vec::new();
    }
    let functions = heap.stack.iter().take(DEPTH).rev().cloned().collect();
    vec![FindingStack {
        share: percent(share),
        functions,
        cut: true,
    }]
}

/// The function with most of the values.
fn focus(facts: &ProfileFacts<'_>, stacks: &[seen::StackPart]) -> Option<FunctionPlace> {
    let mut sums = vec![0_i64; facts.functions.len()];
    for stack in stacks {
        if let Some(sum) = sums.get_mut(stack.focus) {
            *sum = sum.saturating_add(stack.value);
        }
    }
    // Of equal functions, the first.
    let (function, _) = sums
        .iter()
        .enumerate()
        .filter(|(_, sum)| **sum > 0)
        .max_by(|(a, one), (b, other)| one.cmp(other).then(b.cmp(a)))?;
    facts
        .functions
        .get(function)
        .map(|(name, file)| FunctionPlace {
            name: (*name).to_owned(),
            file: (*file).to_owned(),
        })
}

fn shown(facts: &ProfileFacts<'_>, stacks: &[seen::StackPart], total: i64) -> Vec<FindingStack> {
    let mut order: Vec<&seen::StackPart> = stacks.iter().collect();
    order.sort_by(|one, other| (other.value, one.node).cmp(&(one.value, other.node)));
    let show = |stack: &&seen::StackPart| {
        let path = facts.path(stack.node);
        let names = path.iter().skip(path.len().saturating_sub(DEPTH));
        FindingStack {
            share: percent(stack.value as f64 / total.max(1) as f64),
            functions: names
                .map(|function| facts.name(*function).to_owned())
                .collect(),
            cut: path.len() > DEPTH,
        }
    };
    order.iter().take(STACKS).map(show).collect()
}

fn percent(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}

/// A sum, and the number of samples that it is based on.
#[derive(Clone, Copy, Debug)]
struct FindingAmount {
    value: i64,
    samples: f64,
}

impl ProfileFacts<'_> {
    /// The total of a measure.
    fn amount(&self, measure: Measure) -> FindingAmount {
        let PathValues {
            samples, cpu, wall, ..
        } = self.total;
        let value = match measure {
            Measure::Wall => wall,
            Measure::Cpu => cpu,
            Measure::Workers | Measure::Limit | Measure::Samples => self.turns(),
        };
        let samples = match measure {
            Measure::Workers | Measure::Limit | Measure::Samples => value as f64,
            // A waiting sample is not evidence about CPU time. A late sample counts once, although
            // it stands for more time.
            _ if self.period > 0 => (value as f64 / self.period as f64).min(samples as f64),
            _ => samples as f64,
        };
        FindingAmount { value, samples }
    }
}

#[cfg(test)]
mod tests;
