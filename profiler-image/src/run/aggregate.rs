//! Samples summed by stack and worker, in place: memory grows with distinct stacks, not with time.
//!
//! A stack whose edges are not all proven yet is kept with the edges that are open; [`Aggregate::settle`] decides at the
//! end, and on the way for what is kept of a run that goes on. Invariant: no time is lost. What cannot be kept or proven is summed under a frame that says so.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::stack::call_tree::CallTree;
use crate::stack::edges::Edges;
use crate::stack::names::Names;
use crate::stack::trace::{Line, Stack};

/// What all stacks together may take; further new ones are summed as [`Names::OVERFLOW`].
const MAX_BYTES: usize = 24 << 20;

/// What samples of one stack amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    pub samples: i64,
    pub wall_nanoseconds: i64,
    pub cpu_nanoseconds: i64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.wall_nanoseconds = self.wall_nanoseconds.saturating_add(other.wall_nanoseconds);
        self.cpu_nanoseconds = self.cpu_nanoseconds.saturating_add(other.cpu_nanoseconds);
    }
}

/// Index of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackId(u32);

/// All samples of a run.
#[derive(Debug, Default)]
pub struct Aggregate {
    stacks: Vec<Stack>,
    by_stack: FxHashMap<Stack, StackId>,
    /// By stack and worker (a thread id).
    sums: FxHashMap<(StackId, i32), Sum>,
    bytes: usize,
}

/// All samples as they stood at a moment.
#[derive(Debug)]
pub struct Settled {
    /// By their index, root first, and whether a part was cut off.
    stacks: Vec<(Vec<Line>, bool)>,
    sums: FxHashMap<(StackId, i32), Sum>,
}

impl Settled {
    /// The stacks, root first, by worker, and how many samples were cut.
    #[must_use]
    pub fn sum(&self) -> (HashMap<(Vec<Line>, i32), Sum>, i64) {
        let mut summed: HashMap<(Vec<Line>, i32), Sum> = HashMap::new();
        let mut unstable = 0;
        for (&(id, tid), &sum) in &self.sums {
            let Some((lines, is_cut)) = self.stacks.get(id.0 as usize) else {
                continue;
            };
            if *is_cut {
                unstable += sum.samples;
            }
            summed.entry((lines.clone(), tid)).or_default().add(sum);
        }
        (summed, unstable)
    }
}

impl Aggregate {
    /// Adds one sample of a worker; CPU time comes later, by [`Aggregate::add_cpu`].
    pub fn add(&mut self, id: StackId, tid: i32, wall_nanoseconds: i64) {
        let sum = Sum {
            samples: 1,
            wall_nanoseconds,
            cpu_nanoseconds: 0,
        };
        self.sums.entry((id, tid)).or_default().add(sum);
    }

    /// Adds CPU time to a stack that has been sampled.
    pub fn add_cpu(&mut self, id: StackId, tid: i32, cpu_nanoseconds: i64) {
        let sum = Sum {
            cpu_nanoseconds,
            ..Sum::default()
        };
        self.sums.entry((id, tid)).or_default().add(sum);
    }

    /// Decides the open stacks as they stand: all edges proven and the path confirmed, or cut below the first that is not. It takes as
    /// long as there are stacks: what takes longer is [`Settled::sum`], which needs nothing of a run that goes on.
    #[must_use]
    pub fn settle(&self, edges: &Edges, call_tree: &CallTree) -> Settled {
        let doubt = call_tree.doubt();
        let decide = |stack: &Stack| {
            let unproven = stack.open.iter().find(|(_, edge)| !edges.is_settled(*edge));
            let proven = unproven.map_or(stack.lines.len(), |&(index, _)| index as usize);
            let confirmed = stack.unconfirmed.map_or(stack.lines.len(), |context| {
                call_tree.trusted_lines(context, &doubt)
            });
            let kept = proven.min(confirmed);
            let mut lines = stack.lines.get(..kept).unwrap_or(&stack.lines).to_vec();
            let is_cut = stack.unstable || lines.len() < stack.lines.len();
            if is_cut {
                lines.push((Names::UNSTABLE, 0));
            } else {
                lines.extend(stack.phase.map(|phase| (phase, 0)));
            }
            for &index in stack.autoloaders.iter().rev() {
                if (index as usize) < kept {
                    lines.insert(index as usize, (Names::AUTOLOAD, 0));
                }
            }
            (lines, is_cut)
        };
        Settled {
            stacks: self.stacks.iter().map(decide).collect(),
            sums: self.sums.clone(),
        }
    }

    /// The index of a stack, a new one at its first sight.
    pub fn id(&mut self, stack: &Stack) -> StackId {
        if let Some(&id) = self.by_stack.get(stack) {
            return id;
        }
        // Each stack is kept twice, as a key and by its index.
        let bytes = 2
            * (size_of::<Stack>()
                + size_of_val(&stack.lines[..])
                + size_of_val(&stack.open[..])
                + size_of_val(&stack.autoloaders[..]))
            + 64;
        if self.bytes + bytes > MAX_BYTES {
            let overflow = Stack {
                lines: vec![(Names::OVERFLOW, 0)],
                ..Stack::default()
            };
            if let Some(&id) = self.by_stack.get(&overflow) {
                return id;
            }
            return self.insert(overflow, 0);
        }
        self.insert(stack.clone(), bytes)
    }

    fn insert(&mut self, stack: Stack, bytes: usize) -> StackId {
        let id = StackId(u32::try_from(self.stacks.len()).unwrap_or(u32::MAX));
        self.bytes += bytes;
        self.stacks.push(stack.clone());
        self.by_stack.insert(stack, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::edges::{Edge, Known};
    use crate::stack::names::{Name, NameId};
    use phpprof_zend::site::Check;

    fn names(count: u32) -> Vec<NameId> {
        let mut names = Names::default();
        (0..count)
            .map(|index| {
                names.intern(Name {
                    name: index.to_string(),
                    file: String::new(),
                    start_line: 0,
                })
            })
            .collect()
    }

    #[test]
    fn an_open_stack_is_whole_when_its_edge_was_proven_and_cut_when_not() {
        let (mut edges, mut aggregate) = (Edges::default(), Aggregate::default());
        let ids = names(3);
        let edge = Edge {
            site: (ids[0], 4),
            via: None,
            callee: ids[1],
        };
        let Known::Open(id) = edges.open(edge) else {
            panic!("not open")
        };
        let lines: Vec<Line> = ids.iter().map(|&id| (id, 7)).collect();
        let stack = Stack {
            lines: lines.clone(),
            open: vec![(1, id)],
            ..Stack::default()
        };
        let at = aggregate.id(&stack);
        aggregate.add(at, 42, 10);
        aggregate.add(at, 42, 10);
        aggregate.add_cpu(at, 42, 5);
        let sum = Sum {
            samples: 2,
            wall_nanoseconds: 20,
            cpu_nanoseconds: 5,
        };

        let (settled, unstable) = aggregate.settle(&edges, &CallTree::default()).sum();
        assert_eq!(
            settled,
            HashMap::from([((vec![lines[0], (Names::UNSTABLE, 0)], 42), sum)])
        );
        assert_eq!(unstable, 2);

        edges.prove(edge, Check::Nothing);
        let (settled, unstable) = aggregate.settle(&edges, &CallTree::default()).sum();
        assert_eq!(settled, HashMap::from([((lines, 42), sum)]));
        assert_eq!(unstable, 0);
    }

    #[test]
    fn a_phase_is_the_leaf_of_a_whole_stack_and_an_autoloader_stands_below_its_mark() {
        let (edges, mut aggregate) = (Edges::default(), Aggregate::default());
        let ids = names(2);
        let lines: Vec<Line> = ids.iter().map(|&id| (id, 7)).collect();
        let mut check = |unstable: bool, expected_leaf: NameId| {
            let stack = Stack {
                lines: lines.clone(),
                autoloaders: vec![1],
                phase: Some(Names::COMPILING),
                unstable,
                ..Stack::default()
            };
            let id = aggregate.id(&stack);
            aggregate.add(id, 42, 10);
            let (settled, _) = aggregate.settle(&edges, &CallTree::default()).sum();
            let autoload = (Names::AUTOLOAD, 0);
            let expected = vec![lines[0], autoload, lines[1], (expected_leaf, 0)];
            assert!(settled.contains_key(&(expected, 42)), "{settled:?}");
        };
        check(false, Names::COMPILING);
        check(true, Names::UNSTABLE);
    }

    #[test]
    fn stacks_over_the_memory_cap_are_summed_together() {
        let mut aggregate = Aggregate::default();
        let ids = names(1);
        for line in 0..2000 {
            let stack = Stack {
                lines: vec![(ids[0], line); 4096],
                ..Stack::default()
            };
            let id = aggregate.id(&stack);
            aggregate.add(id, 1, 1);
        }
        assert!(aggregate.bytes <= MAX_BYTES);
        let (settled, _) = aggregate
            .settle(&Edges::default(), &CallTree::default())
            .sum();
        assert_eq!(settled.values().map(|sum| sum.samples).sum::<i64>(), 2000);
        assert!(settled.contains_key(&(vec![(Names::OVERFLOW, 0)], 1)));
    }
}
