//! Finds the stacks of a profile that match a rule.
//!
//! Invariant: each stack occurs once, with its own value only.

use std::collections::HashMap;

use super::facts::{Highest, PathValues, PhpFacts, ProfileFacts};
use super::rules::{COMPILING, FindingRule, Measure, Opcache, Shows};
use crate::waiting::is_php;

/// A stack's part of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackPart {
    pub node: usize,
    pub value: i64,
    /// The function that the finding is about.
    pub focus: usize,
}

#[derive(Debug)]
pub(super) enum SeenParts {
    Stacks(Vec<StackPart>),
    /// The share of the whole profile, if the finding has no stacks.
    Whole(f64),
    /// A heap, and its share of its limit.
    Heap(f64, Highest),
}

/// The largest self share of a caller of long calls, and the fewest samples of its calls that make
/// this meaningful.
const FLAT_OF_CALLER: f64 = 0.005;
const SAMPLES_OF_CALLS: i64 = 200;

/// A statement that is prepared for each run takes at least this share of preparing and running
/// together.
const PREPARING: f64 = 0.15;
const PREPARE: &[&str] = &[
    "PDO::prepare",
    "mysqli_prepare",
    "mysqli::prepare",
    "mysqli_stmt_prepare",
    "mysqli_stmt::prepare",
    "pg_prepare",
    "SQLite3::prepare",
    "oci_parse",
    "sqlsrv_prepare",
    "odbc_prepare",
];
const EXECUTE: &[&str] = &[
    "PDOStatement::execute",
    "mysqli_stmt_execute",
    "mysqli_stmt::execute",
    "pg_execute",
    "SQLite3Stmt::execute",
    "oci_execute",
    "sqlsrv_execute",
    "odbc_execute",
];

pub(super) fn seen(rule: &FindingRule, facts: &ProfileFacts<'_>) -> Option<SeenParts> {
    let by_stack =
        |focus: &dyn Fn(usize) -> Option<usize>| Some(stacks(rule.measure, facts, focus));
    let marks = |names: &[&str]| marked(facts, names);
    let leaf = |node: usize| facts.nodes.get(node).map(|node| node.function);
    let has = |marks: &[bool], function: usize| marks.get(function).copied().unwrap_or(false);
    let ends_in = |names: &[&str]| {
        let marks = marks(names);
        by_stack(&|node| leaf(node).filter(|leaf| has(&marks, *leaf)))
    };
    match rule.shows {
        Shows::Leaf(names) => ends_in(names),
        Shows::Waits(kind) => Some(waits(facts, |node, it| (it == kind).then(|| leaf(node))?)),
        Shows::WaitsBelow(names) => {
            let above = nearest(facts, &marks(names));
            Some(waits(facts, |node, _| above.get(node).copied().flatten()))
        }
        Shows::Below(names, without) => {
            let (above, without) = (nearest(facts, &marks(names)), marks(without));
            by_stack(&|node| {
                let is_left_out = leaf(node).is_some_and(|leaf| has(&without, leaf));
                above.get(node).copied().flatten().filter(|_| !is_left_out)
            })
        }
        Shows::LeafBelow {
            below,
            leaf: leaves,
            or_below,
        } => {
            let (above, leaves) = (nearest(facts, &marks(below)), marks(leaves));
            let or_above = nearest(facts, &marks(or_below));
            by_stack(&|node| {
                let is_leaf = leaf(node).is_some_and(|leaf| has(&leaves, leaf));
                let one = above.get(node).copied().flatten().filter(|_| is_leaf);
                or_above.get(node).copied().flatten().or(one)
            })
        }
        Shows::CalledBy(names) => {
            let callees = called_by(facts, &marks(names));
            by_stack(&|node| callees.get(node).copied().flatten())
        }
        Shows::LongCalls(names) => Some(long_calls(facts, &marks(names))),
        Shows::PreparesAgain => Some(prepares_again(facts)),
        Shows::LittleForTheJit => little_for_the_jit(facts, rule.least),
        Shows::AllBusy => all_busy(facts, rule.least),
        Shows::Compiles(state) => has_opcache(facts, state).then(|| ends_in(COMPILING))?,
        Shows::Xdebug => with_xdebug(facts, rule.least),
        Shows::HandlesErrors => {
            let marks: Vec<bool> = (0..facts.functions.len())
                .map(|function| facts.errors.is_marked(function))
                .collect();
            let outermost = outermost(facts, &marks);
            by_stack(&|node| outermost.get(node).copied().flatten())
        }
        Shows::NearTheLimit => {
            let (share, heap) = facts.nearest_to_limit()?;
            (share >= rule.least).then(|| SeenParts::Heap(share, heap.clone()))
        }
    }
}

/// The stacks that have a focus, each with what it has of the measure.
fn stacks(
    measure: Measure,
    facts: &ProfileFacts<'_>,
    focus: &dyn Fn(usize) -> Option<usize>,
) -> SeenParts {
    let nodes = facts.nodes.iter().enumerate().skip(1);
    let stacks = nodes.filter(|(_, node)| node.flat != PathValues::default());
    let stacks = stacks.filter_map(|(index, node)| {
        Some(StackPart {
            node: index,
            focus: focus(index)?,
            value: of(measure, node.flat),
        })
    });
    SeenParts::Stacks(stacks.collect())
}

fn of(measure: Measure, values: PathValues) -> i64 {
    match measure {
        Measure::Cpu => values.cpu,
        Measure::Wall => values.wall,
        Measure::Workers | Measure::Limit | Measure::Samples => 0,
    }
}

/// For each function, whether it is an internal function with one of these names.
fn marked(facts: &ProfileFacts<'_>, names: &[&str]) -> Vec<bool> {
    let functions = facts.functions.iter();
    // Composer's loader is the only one written in PHP.
    let is_meant = |name: &str, file: &str| {
        names.contains(&name) && (!is_php(file) || name.starts_with("Composer\\"))
    };
    functions.map(|(name, file)| is_meant(name, file)).collect()
}

/// For each node, the marked function that is nearest to the leaf, including the leaf itself.
fn nearest(facts: &ProfileFacts<'_>, marks: &[bool]) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = Vec::with_capacity(facts.nodes.len());
    for node in &facts.nodes {
        let is_marked = marks.get(node.function).copied().unwrap_or(false);
        let above = found.get(node.parent).copied().flatten();
        found.push(if is_marked {
            Some(node.function)
        } else {
            above
        });
    }
    found
}

/// For each node, the marked function that is nearest to the root, including the leaf itself.
fn outermost(facts: &ProfileFacts<'_>, marks: &[bool]) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = Vec::with_capacity(facts.nodes.len());
    for node in &facts.nodes {
        let is_marked = marks.get(node.function).copied().unwrap_or(false);
        let above = found.get(node.parent).copied().flatten();
        found.push(above.or(is_marked.then_some(node.function)));
    }
    found
}

/// For each node, the function on its path that a marked one called, if any.
fn called_by(facts: &ProfileFacts<'_>, marks: &[bool]) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = Vec::with_capacity(facts.nodes.len());
    for node in &facts.nodes {
        let caller = facts.nodes.get(node.parent).map(|parent| parent.function);
        let is_called = caller.is_some_and(|caller| marks.get(caller).copied().unwrap_or(false));
        let above = found.get(node.parent).copied().flatten();
        found.push(above.or(is_called.then_some(node.function)));
    }
    found
}

fn waits(facts: &ProfileFacts<'_>, focus: impl Fn(usize, &str) -> Option<usize>) -> SeenParts {
    let nodes = facts.nodes.iter().enumerate();
    let stacks = nodes.filter(|(_, node)| node.flat.waits > 0);
    let stacks = stacks.filter_map(|(index, node)| {
        Some(StackPart {
            node: index,
            value: node.flat.waits,
            focus: focus(index, facts.kinds.get(&node.function)?)?,
        })
    });
    SeenParts::Stacks(stacks.collect())
}

/// A function that is called often also costs its caller time. A function that is called rarely and
/// takes long does not.
fn long_calls(facts: &ProfileFacts<'_>, marks: &[bool]) -> SeenParts {
    let mut calls: HashMap<usize, i64> = HashMap::new();
    let is_marked = |function: usize| marks.get(function).copied().unwrap_or(false);
    let leaves = || {
        let nodes = facts.nodes.iter().enumerate();
        nodes.filter(|(_, node)| is_marked(node.function) && node.flat.cpu > 0)
    };
    for (_, node) in leaves() {
        let sum = calls.entry(node.parent).or_default();
        *sum = sum.saturating_add(node.flat.samples);
    }
    let is_long = |parent: usize| {
        let calls = calls.get(&parent).copied().unwrap_or(0);
        let flat = facts.nodes.get(parent).map_or(0, |node| node.flat.samples);
        calls >= SAMPLES_OF_CALLS && flat as f64 <= FLAT_OF_CALLER * calls as f64
    };
    let stacks = leaves().filter(|(_, node)| is_long(node.parent));
    let stacks = stacks.map(|(index, node)| StackPart {
        node: index,
        value: node.flat.cpu,
        focus: node.function,
    });
    SeenParts::Stacks(stacks.collect())
}

/// Finds functions that prepare a statement about as often as they run it. The function is the
/// nearest one above both. Preparing takes almost no time if a statement is prepared once and run
/// often, or if it takes long to run.
fn prepares_again(facts: &ProfileFacts<'_>) -> SeenParts {
    let (prepare, execute) = (marked(facts, PREPARE), marked(facts, EXECUTE));
    let is = |marks: &[bool], function: usize| marks.get(function).copied().unwrap_or(false);
    // The times that are not assigned yet, for each node: preparing, running, and the stacks of
    // both.
    let mut open: HashMap<usize, (i64, i64, Vec<usize>)> = HashMap::new();
    let mut stacks = Vec::new();
    for (index, node) in facts.nodes.iter().enumerate().rev() {
        let (mut prepares, mut runs, mut both) = open.remove(&index).unwrap_or_default();
        if is(&prepare, node.function) {
            prepares = prepares.saturating_add(node.flat.wall);
            both.push(index);
        } else if is(&execute, node.function) {
            runs = runs.saturating_add(node.flat.wall);
            both.push(index);
        }
        let all = prepares.saturating_add(runs);
        if prepares == 0 || runs == 0 {
            if !both.is_empty() && index != 0 {
                let above = open.entry(node.parent).or_default();
                above.0 = above.0.saturating_add(prepares);
                above.1 = above.1.saturating_add(runs);
                above.2.append(&mut both);
            }
        } else if prepares as f64 >= PREPARING * all as f64 {
            let nodes = both
                .iter()
                .filter_map(|at| Some((*at, facts.nodes.get(*at)?)));
            stacks.push((
                all,
                nodes
                    .map(|(at, it)| StackPart {
                        node: at,
                        value: it.flat.wall,
                        focus: node.function,
                    })
                    .collect::<Vec<_>>(),
            ));
        }
    }
    // Only one call path counts: many paths with a little each are many different queries.
    let most = stacks.into_iter().max_by_key(|(all, _)| *all);
    SeenParts::Stacks(most.map_or_else(Vec::new, |(_, stacks)| stacks))
}

/// The share of PHP's own code in all time, if the JIT is on in each pod and the share is certainly
/// below `least`.
fn little_for_the_jit(facts: &ProfileFacts<'_>, least: f64) -> Option<SeenParts> {
    if facts.receipts.iter().any(|receipt| receipt.php.jit != "on") {
        return None;
    }
    let own = facts
        .nodes
        .iter()
        .filter(|node| facts.is_php(node.function));
    let (cpu, samples) = own.fold((0_i64, 0_i64), |(cpu, samples), node| {
        (
            cpu.saturating_add(node.flat.cpu),
            samples.saturating_add(node.flat.samples),
        )
    });
    let all = facts.total;
    let share =
        (cpu as f64 / all.wall.max(1) as f64).max(samples as f64 / all.samples.max(1) as f64);
    let doubt = 2.0 * (least * (1.0 - least) / all.samples.max(1) as f64).sqrt();
    (all.samples >= SAMPLES_OF_CALLS && share + doubt <= least).then_some(SeenParts::Whole(share))
}

/// The share of turns at which a worker was busy, if there are several workers and no pod had idle
/// ones.
fn all_busy(facts: &ProfileFacts<'_>, least: f64) -> Option<SeenParts> {
    let busy = facts.receipts.iter().map(|receipt| {
        let (taken, idle) = (receipt.quality.taken, receipt.quality.idle);
        let share = 1.0 - idle as f64 / taken.max(1) as f64;
        (receipt.workers >= 2 && taken >= SAMPLES_OF_CALLS).then_some(share)
    });
    let shares: Vec<f64> = busy.collect::<Option<_>>()?;
    let lowest = shares.into_iter().fold(1.0, f64::min);
    (lowest >= least).then_some(SeenParts::Whole(lowest))
}

/// Whether opcache is in this state in each pod.
fn has_opcache(facts: &ProfileFacts<'_>, state: Opcache) -> bool {
    facts.receipts.iter().all(|receipt| {
        let PhpFacts {
            opcache,
            opcache_restarts,
            ..
        } = &receipt.php;
        match state {
            Opcache::Off => opcache == "off",
            Opcache::Full => opcache == "full",
            Opcache::Restarted => opcache == "on" && *opcache_restarts > 0,
        }
    })
}

/// The share of turns in pods with Xdebug.
fn with_xdebug(facts: &ProfileFacts<'_>, least: f64) -> Option<SeenParts> {
    let with = facts
        .receipts
        .iter()
        .filter(|receipt| receipt.php.xdebug == "on");
    let turns = with
        .map(|receipt| receipt.quality.taken)
        .fold(0, i64::saturating_add);
    let share = turns as f64 / facts.turns().max(1) as f64;
    (share >= least).then_some(SeenParts::Whole(share))
}
