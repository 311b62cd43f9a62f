//! The tools `callers` and `callees`: a pruned tree around a function or a call path.
//!
//! Rows are in the order of the tree, each with its depth. The largest are kept.
//!
//! Invariant: no row stands without its parent.

use phpprof_profile::Stacks;
use phpprof_profile::calls::{PrunedNode, PrunedTree};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, percent};
use super::ask::{CalleesAsked, CallersAsked, most};
use super::head::{TypeHead, is_code};
use super::part::{AskedPart, functions};
use super::quote::{quoted, quoted_path};
use crate::failure::{Exit, Failure};
use crate::source::ProfileSource;

const ROWS: usize = 30;
/// Smaller parts of the tree's own total are not shown.
const LEAST_PERCENT: f64 = 0.5;
/// How many rows have suggestions.
const FOLLOWED: usize = 3;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallsBody {
    #[serde(flatten)]
    head: TypeHead,
    /// What the depths are.
    order: &'static str,
    /// The share of the whole part that the tree has.
    tree_percent: f64,
    rows: Vec<CallRow>,
    left_out: usize,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct CallRow {
    depth: usize,
    function: String,
    file: String,
    /// Of a caller the line of its call; of others the hottest one. 0 if it is not known.
    line: i64,
    /// `None` in a tree of callers, whose own time is not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    self_percent: Option<f64>,
    total_percent: f64,
}

pub fn callers(
    source: &ProfileSource,
    place: &AgentPlace,
    asked: &CallersAsked,
) -> Result<AgentAnswer, Failure> {
    let part = AskedPart::new(&asked.profile, asked.sample_type.as_deref(), &asked.labels);
    let chosen = part.of(&source.profile)?;
    let stacks = chosen.stacks()?;
    let wanted = functions(&stacks, &asked.function, asked.file.as_deref())?;
    let tree = PrunedTree::callers(&stacks, &wanted);
    let shown = ShownTree {
        stacks: &stacks,
        tree: &tree,
        order: "depth 0 is the function, depth 1 are its callers, depth 2 theirs",
        has_self: false,
    };
    let rows = shown.rows(most(asked.most, ROWS));
    let mut next = AgentNexts::default();
    let code = rows
        .iter()
        .filter(|row| row.depth > 0 && is_code(&row.file));
    for row in code.take(FOLLOWED) {
        let function = json!({"function": row.function, "file": row.file});
        next.add("lines", "the hot lines of this caller", part.and(function));
    }
    next.add(
        "callees",
        "the tree from the entry point on",
        part.and(json!({})),
    );
    shown.answer(place, most(asked.most, ROWS), &next)
}

pub fn callees(
    source: &ProfileSource,
    place: &AgentPlace,
    asked: &CalleesAsked,
) -> Result<AgentAnswer, Failure> {
    let part = AskedPart::new(&asked.profile, asked.sample_type.as_deref(), &asked.labels);
    let chosen = part.of(&source.profile)?;
    let stacks = chosen.stacks()?;
    let tree = callee_tree(&stacks, asked)?;
    let shown = ShownTree {
        stacks: &stacks,
        tree: &tree,
        order: "depth 0 is where the tree begins, each function stands below its caller",
        has_self: true,
    };
    let count = most(asked.most, ROWS);
    let rows = shown.rows(count);
    let mut next = AgentNexts::default();
    // The functions with most time of their own: that is what a tree is read for.
    let mut hot: Vec<&CallRow> = rows.iter().filter(|row| !row.function.is_empty()).collect();
    let own = |row: &CallRow| row.self_percent.unwrap_or(0.0);
    hot.sort_by(|one, other| own(other).total_cmp(&own(one)));
    for row in hot.into_iter().take(FOLLOWED) {
        if is_code(&row.file) {
            let function = json!({"function": row.function, "file": row.file});
            next.add(
                "lines",
                "the hot lines of this function",
                part.and(function),
            );
        } else {
            let function = json!({"function": row.function});
            next.add("callers", "which code calls this", part.and(function));
        }
    }
    if let Some(path) = deepest(&rows).filter(|_| asked.function.is_none()) {
        let path = json!({"path": path});
        next.add("callees", "zoom into the largest path", part.and(path));
    }
    shown.answer(place, count, &next)
}

fn callee_tree(stacks: &Stacks<'_>, asked: &CalleesAsked) -> Result<PrunedTree, Failure> {
    let wrong = |message: &str, hint: &str| Failure::new(Exit::Usage, message, hint);
    let tree = match (&asked.function, asked.path.as_slice()) {
        (Some(_), [_, ..]) => {
            return Err(wrong(
                "function and path exclude each other",
                "give one of them",
            ));
        }
        (Some(function), []) => {
            let wanted = functions(stacks, function, asked.file.as_deref())?;
            PrunedTree::callees(stacks, &wanted)
        }
        (None, path) => {
            let steps = path.iter().map(|name| functions(stacks, name, None));
            PrunedTree::below(stacks, &steps.collect::<Result<Vec<_>, _>>()?)
        }
    };
    if tree.nodes.is_empty() {
        return Err(wrong(
            "no stack begins with this path",
            "begin at the entry point, as the tool callees shows it without a path",
        ));
    }
    Ok(tree)
}

/// The path to the largest leaf of the shown tree, without the root of everything.
fn deepest(rows: &[CallRow]) -> Option<Vec<String>> {
    // Each row's first child is its largest.
    let first = rows.iter().enumerate();
    let chain = first.take_while(|(index, row)| row.depth == *index);
    let names = chain.map(|(_, row)| row.function.clone());
    let path: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    (path.len() > 1).then_some(path)
}

struct ShownTree<'a> {
    stacks: &'a Stacks<'a>,
    tree: &'a PrunedTree,
    order: &'static str,
    /// Whether what ends at a node is the function's own time.
    has_self: bool,
}

impl ShownTree<'_> {
    fn total(&self) -> i64 {
        self.stacks.total(self.stacks.chosen)
    }

    fn of_tree(&self) -> i64 {
        self.tree.nodes.first().map_or(0, |node| node.cum)
    }

    fn rows(&self, count: usize) -> Vec<CallRow> {
        let nodes = self.tree.outline(count).into_iter();
        let least = LEAST_PERCENT;
        let large = nodes.filter(|node| percent(node.cum, self.of_tree()).abs() >= least);
        large.map(|node| self.row(node)).collect()
    }

    fn row(&self, node: &PrunedNode) -> CallRow {
        let function = node.function.and_then(|it| self.stacks.functions.get(it));
        CallRow {
            depth: node.depth,
            function: quoted(function.map_or("", |it| it.name)),
            file: quoted_path(function.map_or("", |it| it.file)),
            line: node.line,
            self_percent: self.has_self.then(|| percent(node.flat, self.total())),
            total_percent: percent(node.cum, self.total()),
        }
    }

    fn answer(
        &self,
        place: &AgentPlace,
        count: usize,
        next: &AgentNexts,
    ) -> Result<AgentAnswer, Failure> {
        let (name, unit) = self.stacks.sample_type();
        let body = |count: usize| {
            let rows = self.rows(count);
            CallsBody {
                head: TypeHead::of(name, unit, self.total()),
                order: self.order,
                tree_percent: percent(self.of_tree(), self.total()),
                left_out: self.tree.nodes.len().saturating_sub(rows.len()),
                rows,
            }
        };
        AgentAnswer::fitted(place, count, body, next)
    }
}
