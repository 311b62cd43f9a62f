//! Who calls a function, and what it calls: a part of a profile as a tree that begins at one
//! function or call path.
//!
//! It draws nothing. A function that calls itself counts at its outermost call, so that no time is
//! counted twice.
//!
//! Invariant: node 0 is where the tree begins. A parent comes before its children, and its value is
//! the sum of theirs and of its own.

use std::collections::{BTreeSet, HashMap};

use crate::stacks::{StackStep, Stacks};

/// A function of the tree, at one call path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunedNode {
    /// Its index in [`Stacks::functions`]; `None` for the root of everything.
    pub function: Option<usize>,
    /// Node 0 has 0.
    pub depth: usize,
    /// The line of the function in which most of the value is; 0 if it is not known.
    pub line: i64,
    /// The value that ends here: of the function itself, or of stacks that have no further caller.
    pub flat: i64,
    /// The value with all children.
    pub cum: i64,
    children: Vec<usize>,
    lines: HashMap<i64, i64>,
}

/// A tree of callers or callees, by call path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedTree {
    /// Empty if no stack has what was asked for.
    pub nodes: Vec<PrunedNode>,
    known: HashMap<(usize, usize), usize>,
}

impl PrunedTree {
    /// What is called below the path, root first: each step is one of these functions. Without a
    /// path, everything.
    #[must_use]
    pub fn below(stacks: &Stacks<'_>, path: &[BTreeSet<usize>]) -> Self {
        let mut tree = PrunedTree::empty();
        for (steps, value) in stacks.chosen() {
            let is_below = steps.len() >= path.len()
                && path
                    .iter()
                    .zip(steps)
                    .all(|(one, step)| one.contains(&step.0));
            if !is_below {
                continue;
            }
            match path.len().checked_sub(1) {
                Some(last) => tree.add(steps.iter().skip(last), value),
                None => tree.add_to_root(steps, value),
            }
        }
        tree.settled()
    }

    /// What these functions call, whoever calls them.
    #[must_use]
    pub fn callees(stacks: &Stacks<'_>, functions: &BTreeSet<usize>) -> Self {
        let mut tree = PrunedTree::empty();
        for (steps, value) in stacks.chosen() {
            if let Some(at) = outermost(steps, functions) {
                tree.add(steps.iter().skip(at), value);
            }
        }
        tree.settled()
    }

    /// Who calls these functions: the children of a node are its callers.
    #[must_use]
    pub fn callers(stacks: &Stacks<'_>, functions: &BTreeSet<usize>) -> Self {
        let mut tree = PrunedTree::empty();
        for (steps, value) in stacks.chosen() {
            if let Some(at) = outermost(steps, functions) {
                tree.add(steps.iter().take(at + 1).rev(), value);
            }
        }
        tree.settled()
    }

    /// The largest nodes, at most this many, each below its parent and the largest child first.
    #[must_use]
    pub fn outline(&self, most: usize) -> Vec<&PrunedNode> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        // A parent is at least as large as its children and comes before them, so no child is kept
        // without it.
        order.sort_by_key(|index| (std::cmp::Reverse(self.size(*index)), *index));
        let kept: BTreeSet<usize> = order.into_iter().take(most).collect();
        let mut shown = Vec::new();
        let mut next = vec![0];
        while let Some(index) = next.pop() {
            let Some(node) = self.nodes.get(index).filter(|_| kept.contains(&index)) else {
                continue;
            };
            shown.push(node);
            let mut children = node.children.clone();
            children.sort_by_key(|child| (self.size(*child), std::cmp::Reverse(*child)));
            next.extend(children);
        }
        shown
    }

    fn size(&self, index: usize) -> i64 {
        self.nodes.get(index).map_or(0, |node| node.cum)
    }

    fn empty() -> Self {
        PrunedTree {
            nodes: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Adds a stack whose first step is node 0.
    fn add<'s>(&mut self, mut steps: impl Iterator<Item = &'s StackStep>, value: i64) {
        let Some((function, line)) = steps.next() else {
            return;
        };
        if self.nodes.is_empty() {
            self.nodes.push(PrunedNode {
                function: Some(*function),
                ..PrunedNode::default()
            });
        }
        self.count(0, *line, value);
        self.add_below(steps, value);
    }

    fn add_to_root(&mut self, steps: &[StackStep], value: i64) {
        if self.nodes.is_empty() {
            self.nodes.push(PrunedNode::default());
        }
        self.count(0, 0, value);
        self.add_below(steps.iter(), value);
    }

    fn add_below<'s>(&mut self, steps: impl Iterator<Item = &'s StackStep>, value: i64) {
        let mut at = 0;
        for (function, line) in steps {
            at = self.child(at, *function);
            self.count(at, *line, value);
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.flat = node.flat.saturating_add(value);
        }
    }

    fn count(&mut self, at: usize, line: i64, value: i64) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.cum = node.cum.saturating_add(value);
            let sum = node.lines.entry(line).or_default();
            *sum = sum.saturating_add(value);
        }
    }

    fn child(&mut self, parent: usize, function: usize) -> usize {
        let next = self.nodes.len();
        let child = *self.known.entry((parent, function)).or_insert(next);
        if child == next {
            let depth = self.nodes.get(parent).map_or(0, |node| node.depth) + 1;
            self.nodes.push(PrunedNode {
                function: Some(function),
                depth,
                ..PrunedNode::default()
            });
            if let Some(node) = self.nodes.get_mut(parent) {
                node.children.push(child);
            }
        }
        child
    }

    /// The tree with each node's line.
    fn settled(mut self) -> Self {
        for node in &mut self.nodes {
            let lines = std::mem::take(&mut node.lines).into_iter();
            // Of equal lines, the first.
            let most = lines.max_by_key(|(line, value)| (*value, std::cmp::Reverse(*line)));
            node.line = most.map_or(0, |(line, _)| line);
        }
        self
    }
}

fn outermost(steps: &[StackStep], functions: &BTreeSet<usize>) -> Option<usize> {
    steps
        .iter()
        .position(|(function, _)| functions.contains(function))
}

/// A line that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// The line's function, an index into [`Stacks::functions`].
    pub function: usize,
    /// 0 for code that has no lines.
    pub line: i64,
    /// The value of the line itself.
    pub flat: i64,
    /// The value with all that the line calls. A line that is on a stack several times counts once.
    pub cum: i64,
}

/// The lines of all functions, the largest value of their own first.
#[must_use]
pub fn lines(stacks: &Stacks<'_>) -> Vec<LineRow> {
    let mut sums: HashMap<StackStep, (i64, i64)> = HashMap::new();
    for (steps, value) in stacks.chosen() {
        let distinct: BTreeSet<&StackStep> = steps.iter().collect();
        for step in distinct {
            let (_, cum) = sums.entry(*step).or_default();
            *cum = cum.saturating_add(value);
        }
        if let Some(leaf) = steps.last() {
            let (flat, _) = sums.entry(*leaf).or_default();
            *flat = flat.saturating_add(value);
        }
    }
    let mut rows: Vec<LineRow> = sums
        .into_iter()
        .map(|((function, line), (flat, cum))| LineRow {
            function,
            line,
            flat,
            cum,
        })
        .collect();
    rows.sort_by_key(|row| {
        let size = std::cmp::Reverse((row.flat, row.cum));
        (size, row.function, row.line)
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FrameRef, Profile, Settings, View};

    /// Each stack root first, as `name:line`, with its value.
    fn profile(stacks: &[(&[&str], i64)]) -> Profile {
        let mut builder = Builder::new(Settings::default());
        for (steps, value) in stacks {
            let frames: Vec<FrameRef<'_>> = steps
                .iter()
                .rev()
                .map(|step| {
                    let (name, line) = step.split_once(':').unwrap();
                    FrameRef {
                        name,
                        file: "/srv/a.php",
                        start_line: 1,
                        line: line.parse().unwrap(),
                    }
                })
                .collect();
            builder.add(&frames, &[*value, 0, *value], &[]);
        }
        builder.finish()
    }

    const STACKS: [(&[&str], i64); 4] = [
        (&["main:1", "page:7", "query:20", "wait:0"], 50),
        (&["main:1", "page:8", "query:21", "wait:0"], 20),
        (&["main:2", "job:9", "query:20"], 10),
        (&["main:1", "page:7"], 5),
    ];

    fn numbers(stacks: &Stacks<'_>, name: &str) -> BTreeSet<usize> {
        let all = stacks.functions.iter().enumerate();
        let named = all.filter(|(_, function)| function.name == name);
        named.map(|(number, _)| number).collect()
    }

    fn outlined(stacks: &Stacks<'_>, tree: &PrunedTree, most: usize) -> Vec<String> {
        let shown = tree.outline(most).into_iter().map(|node| {
            let name = node.function.map_or("all", |it| stacks.functions[it].name);
            let blanks = " ".repeat(node.depth);
            format!("{blanks}{name}:{} {}/{}", node.line, node.flat, node.cum)
        });
        shown.collect()
    }

    #[track_caller]
    fn check(tree: impl Fn(&Stacks<'_>) -> PrunedTree, most: usize, expected: &[&str]) {
        let profile = profile(&STACKS);
        let stacks = Stacks::of(&profile, &View::default()).unwrap();
        assert_eq!(outlined(&stacks, &tree(&stacks), most), expected);
    }

    #[test]
    fn callers_have_the_line_of_their_call() {
        let callers = |stacks: &Stacks<'_>| PrunedTree::callers(stacks, &numbers(stacks, "query"));
        let whole = [
            "query:20 0/80",
            " page:7 0/70",
            "  main:1 70/70",
            " job:9 0/10",
            "  main:2 10/10",
        ];
        check(callers, 9, &whole);
        check(callers, 3, &whole[..3]);
    }

    #[test]
    fn callees_are_those_of_all_callers() {
        let callees = |stacks: &Stacks<'_>| PrunedTree::callees(stacks, &numbers(stacks, "query"));
        check(callees, 9, &["query:20 10/80", " wait:0 70/70"]);
    }

    #[test]
    fn a_path_shows_what_is_below_it() {
        let below = |stacks: &Stacks<'_>| {
            let path = ["main", "page"].map(|name| numbers(stacks, name));
            PrunedTree::below(stacks, &path)
        };
        check(
            below,
            9,
            &["page:7 5/75", " query:20 0/70", "  wait:0 70/70"],
        );
        check(
            |stacks| PrunedTree::below(stacks, &[]),
            3,
            &["all:0 0/85", " main:1 0/85", "  page:7 5/75"],
        );
        let none = |stacks: &Stacks<'_>| PrunedTree::below(stacks, &[numbers(stacks, "page")]);
        check(none, 9, &[]);
    }

    #[test]
    fn recursion_counts_at_its_outermost_call() {
        let profile = profile(&[(&["main:1", "walk:5", "walk:6", "walk:7"], 30)]);
        let stacks = Stacks::of(&profile, &View::default()).unwrap();
        let walk = numbers(&stacks, "walk");
        let callers = PrunedTree::callers(&stacks, &walk);
        assert_eq!(
            outlined(&stacks, &callers, 9),
            ["walk:5 0/30", " main:1 30/30"]
        );
        let callees = PrunedTree::callees(&stacks, &walk);
        assert_eq!(
            outlined(&stacks, &callees, 9),
            ["walk:5 0/30", " walk:6 0/30", "  walk:7 30/30"]
        );
    }

    #[test]
    fn lines_have_their_own_time_first() {
        let profile = profile(&STACKS);
        let stacks = Stacks::of(&profile, &View::default()).unwrap();
        let shown: Vec<_> = lines(&stacks)
            .iter()
            .map(|row| {
                let name = stacks.functions[row.function].name;
                (name, row.line, row.flat, row.cum)
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("wait", 0, 70, 70),
                ("query", 20, 10, 60),
                ("page", 7, 5, 55),
                ("main", 1, 0, 75),
                ("query", 21, 0, 20),
                ("page", 8, 0, 20),
                ("main", 2, 0, 10),
                ("job", 9, 0, 10),
            ]
        );
    }
}
