//! Sums samples by stack, labels of the request, and worker: memory grows with distinct stacks, not with time.
//!
//! Invariant: no time is lost. Without room for a worker of its own, samples are summed without the worker (`withoutWorker` in the
//! receipt); what cannot be proven is summed under a frame that says so.

use rustc_hash::FxHashMap;

use crate::request::values::SetId;
use crate::stack::call_tree::{CallTree, PathId, Paths};
use crate::stack::edges::Edges;
use crate::stack::names::{NameId, Names};
use crate::stack::trace::{Ending, Stack};
use crate::target::process::held::Held;

/// Beyond this many sums, new ones are without a candidate for their call path,
const MAX_WITH_CANDIDATE: usize = 21_504;
/// beyond this many without the worker,
const MAX_BY_WORKER: usize = 28_672;
/// and beyond this many without the stack. It is the capacity of a hash table of 2^16, in three megabytes.
const MAX_SUMS: usize = 57_344;

/// The worker of samples without room for their own.
pub const ANY_WORKER: i32 = 0;

/// A frame of a sample: the function, and the line being executed in it.
pub type Line = (NameId, u32);

/// The sums of the samples of one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// The number of samples.
    pub samples: i64,
    /// The time that they represent.
    pub wall_nanoseconds: i64,
    /// The CPU time of those in which the worker ran.
    pub cpu_nanoseconds: i64,
    /// By how many bytes heaps became larger than before in their request,
    pub heap_growth: i64,
    /// and how many of the added bytes are still held; negative if older memory was freed.
    pub heap_change: i64,
}

impl Sum {
    /// One sample that represents this time.
    pub(crate) fn of_one(wall_nanoseconds: i64) -> Self {
        Self {
            samples: 1,
            wall_nanoseconds,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.wall_nanoseconds = self.wall_nanoseconds.saturating_add(other.wall_nanoseconds);
        self.cpu_nanoseconds = self.cpu_nanoseconds.saturating_add(other.cpu_nanoseconds);
        self.heap_growth = self.heap_growth.saturating_add(other.heap_growth);
        self.heap_change = self.heap_change.saturating_add(other.heap_change);
    }
}

/// A stack, and the labels of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labelled {
    /// The stack.
    pub stack: Stack,
    /// The labels of its request.
    pub labels: SetId,
    /// Whether the worker could go on.
    pub held: Held,
}

impl From<Stack> for Labelled {
    fn from(stack: Stack) -> Self {
        Self {
            stack,
            labels: SetId::default(),
            held: Held::No,
        }
    }
}

/// A stack with labels, and its worker (a thread id).
type Key = (Labelled, i32);

/// Samples, wall time and CPU time: the part of a [`Sum`] that each stack has.
type Times = [i64; 3];

/// Growth and change of heaps, for stacks in which they are not zero.
type Heaps = FxHashMap<Key, [i64; 2]>;

/// All samples of a run.
#[derive(Debug, Default)]
pub struct Aggregate {
    sums: FxHashMap<Key, Times>,
    /// Its keys are in `sums`, too. It is empty unless it was requested, because a run without it has no memory for it.
    heaps: Heaps,
}

fn times(sum: &Sum) -> Times {
    [sum.samples, sum.wall_nanoseconds, sum.cpu_nanoseconds]
}

fn add<const N: usize>(sums: &mut [i64; N], more: [i64; N]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

/// All samples at a moment: a copy of the numbers.
#[derive(Debug)]
pub struct Settled {
    paths: Paths,
    sums: Vec<(Key, Times)>,
    heaps: Heaps,
}

/// The samples of one stack and worker.
#[derive(Debug, Clone, Copy)]
pub struct Settlement {
    path: PathId,
    leaf: Option<NameId>,
    /// The labels of the request.
    pub labels: SetId,
    /// Whether the worker could go on.
    pub held: Held,
    /// The number of the worker; [`ANY_WORKER`] for those without room.
    pub tid: i32,
    /// The sums of its samples.
    pub sum: Sum,
}

/// How a stack is shown: its calls as far as they are proven, and a frame for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shown {
    path: PathId,
    leaf: Option<NameId>,
}

/// The table of the sampler that had no room for a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// That of names.
    Names,
    /// That of call paths.
    Paths,
    /// That of sums.
    Stacks,
}

impl Settlement {
    /// The table without room for it, if any; `lines` are its own.
    #[must_use]
    pub fn full(&self, lines: &[Line]) -> Option<Full> {
        if self.leaf == Some(Names::OVERFLOW) {
            let has_lost_all = self.path == PathId::NONE && self.tid == ANY_WORKER;
            return Some(if has_lost_all {
                Full::Stacks
            } else {
                Full::Paths
            });
        }
        let mut names = lines.iter().map(|(name, _)| *name);
        names
            .any(|name| name == Names::OVERFLOW)
            .then_some(Full::Names)
    }

    /// Whether both are of the same stack, whatever their workers and requests are.
    #[must_use]
    pub fn is_of_stack(&self, other: &Self) -> bool {
        (self.path, self.leaf) == (other.path, other.leaf)
    }
}

impl Settled {
    /// Calls `give` for the stacks by worker, each once and in order: a list of them would be as large as their source.
    /// Returns how many samples were cut.
    pub fn each(&self, mut give: impl FnMut(Settlement)) -> i64 {
        let key = |stack: &Settlement| {
            let Settlement {
                path,
                leaf,
                labels,
                held,
                tid,
                ..
            } = *stack;
            (path, leaf, labels, held, tid)
        };
        let mut order: Vec<u32> = (0..).take(self.sums.len()).collect();
        order.sort_unstable_by_key(|&index| self.settlement(index).as_ref().map(key));
        let (mut unstable, mut last) = (0, None::<Settlement>);
        for stack in order.iter().filter_map(|&index| self.settlement(index)) {
            if stack.leaf == Some(Names::UNSTABLE) {
                unstable += stack.sum.samples;
            }
            match &mut last {
                Some(last) if key(last) == key(&stack) => last.sum.add(stack.sum),
                _ => last.replace(stack).into_iter().for_each(&mut give),
            }
        }
        last.into_iter().for_each(give);
        unstable
    }

    /// The same as a list.
    #[must_use]
    pub fn sum(&self) -> (Vec<Settlement>, i64) {
        let mut stacks = Vec::new();
        let unstable = self.each(|stack| stacks.push(stack));
        (stacks, unstable)
    }

    fn settlement(&self, index: u32) -> Option<Settlement> {
        let &(key, times) = self.sums.get(index as usize)?;
        let [samples, wall_nanoseconds, cpu_nanoseconds] = times;
        let [heap_growth, heap_change] = self.heaps.get(&key).copied().unwrap_or_default();
        let sum = Sum {
            samples,
            wall_nanoseconds,
            cpu_nanoseconds,
            heap_growth,
            heap_change,
        };
        Some(self.settlement_of(key.0, key.1, sum))
    }

    /// The sums of a sample under its stack as it is shown.
    #[must_use]
    pub fn settlement_of(&self, sample: Labelled, tid: i32, sum: Sum) -> Settlement {
        let Labelled {
            stack,
            labels,
            held,
        } = sample;
        let shown = self.shown(stack);
        Settlement {
            path: shown.path,
            leaf: shown.leaf,
            labels,
            held,
            tid,
            sum,
        }
    }

    /// How a stack is shown.
    #[must_use]
    pub fn shown(&self, stack: Stack) -> Shown {
        if stack.candidate != PathId::NONE && self.paths.is_proven(stack.candidate) {
            return Shown {
                path: self.paths.proven(stack.candidate),
                leaf: None,
            };
        }
        let is_proven = self.paths.is_proven(stack.path);
        let leaf = match stack.ending {
            Ending::Full if is_proven => Some(Names::OVERFLOW),
            Ending::Whole if is_proven => stack.phase,
            _ => Some(Names::UNSTABLE),
        };
        Shown {
            path: self.paths.proven(stack.path),
            leaf,
        }
    }

    /// How many lines each stack has.
    pub fn depths(&self) -> impl Iterator<Item = usize> {
        let depths = self.paths.depths();
        self.sums.iter().map(move |((sample, _), _)| {
            let Shown { path, leaf } = self.shown(sample.stack);
            let depth = depths.get(path.0 as usize).copied().unwrap_or(0);
            usize::from(depth) + usize::from(leaf.is_some())
        })
    }

    /// Writes a stack's lines, root first.
    pub fn lines(&self, settlement: &Settlement, lines: &mut Vec<Line>) {
        let Settlement { path, leaf, .. } = *settlement;
        self.lines_of(Shown { path, leaf }, lines);
    }

    /// Writes the lines of a shown stack, root first.
    pub fn lines_of(&self, shown: Shown, lines: &mut Vec<Line>) {
        self.paths.lines(shown.path, lines);
        lines.extend(shown.leaf.map(|leaf| (leaf, 0)));
    }
}

impl Aggregate {
    /// Adds one sample of a worker. Its CPU time and heap are added later by [`Aggregate::merge`].
    pub fn add(&mut self, sample: impl Into<Labelled>, tid: i32, wall_nanoseconds: i64) {
        self.merge(sample.into(), tid, Sum::of_one(wall_nanoseconds));
    }

    /// Adds sums to a stack: from elsewhere, or values that become known after the sample.
    pub fn merge(&mut self, sample: Labelled, tid: i32, sum: Sum) {
        let key = self.key(sample, tid);
        add(self.sums.entry(key).or_default(), times(&sum));
        let heap = [sum.heap_growth, sum.heap_change];
        if heap != [0, 0] {
            add(self.heaps.entry(key).or_default(), heap);
        }
    }

    /// Adds all of another aggregate.
    pub fn absorb(&mut self, other: Self) {
        for ((sample, tid), sum) in other.sums {
            let key = self.key(sample, tid);
            add(self.sums.entry(key).or_default(), sum);
        }
        for ((sample, tid), heap) in other.heaps {
            let key = self.key(sample, tid);
            add(self.heaps.entry(key).or_default(), heap);
        }
    }

    /// The key under which the samples of a stack are summed: without room, without the candidate, the worker, and then the stack.
    fn key(&self, sample: Labelled, tid: i32) -> Key {
        let count = self.sums.len();
        let plain = Labelled {
            stack: Stack {
                candidate: PathId::NONE,
                ..sample.stack
            },
            ..sample
        };
        let key = [
            (count < MAX_WITH_CANDIDATE, (sample, tid)),
            (count < MAX_BY_WORKER, (plain, tid)),
            (count < MAX_SUMS - 1, (plain, ANY_WORKER)),
        ]
        .into_iter()
        .find_map(|(has_room, key)| (has_room || self.sums.contains_key(&key)).then_some(key));
        key.unwrap_or((Stack::NO_ROOM.into(), ANY_WORKER))
    }

    /// Settles the stacks: all edges proven, or cut below the first that is not.
    #[must_use]
    pub fn settle(&self, tree: &CallTree, edges: &Edges) -> Settled {
        Settled {
            paths: tree.settle(edges),
            sums: self.sums.iter().map(|(&key, &sum)| (key, sum)).collect(),
            heaps: self.heaps.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::call_tree::Call;
    use crate::stack::edges::{Edge, Known};
    use phpprof_zend::site::Check;

    /// The lines of all stacks with their sums, of a tree `[truncated] -> [idle]` whose second edge is open.
    fn settled(stack: impl Fn(PathId) -> Stack, is_proven: bool) -> (Vec<(Vec<Line>, Sum)>, i64) {
        let (mut edges, mut tree, mut aggregate) =
            (Edges::default(), CallTree::default(), Aggregate::default());
        let edge = Edge {
            site: (Names::TRUNCATED, 4),
            via: None,
            callee: Names::IDLE,
        };
        let Known::Open(id) = edges.open(edge) else {
            panic!("not open")
        };
        let open = Call {
            edge: Some(id),
            ..Call::default()
        };
        let main = tree.add(PathId::NONE, Names::TRUNCATED, 0, 7, Call::default());
        let leaf = tree.add(main.unwrap(), Names::IDLE, 0, 8, open).unwrap();
        aggregate.add(stack(leaf), 42, 10);
        aggregate.add(stack(leaf), 42, 10);
        let cpu = Sum {
            cpu_nanoseconds: 5,
            ..Sum::default()
        };
        aggregate.merge(stack(leaf).into(), 42, cpu);
        if is_proven {
            edges.prove(edge, Check::Nothing);
        }
        let settled = aggregate.settle(&tree, &edges);
        let (stacks, unstable) = settled.sum();
        let lines = |stack: &Settlement| {
            let mut lines = Vec::new();
            settled.lines(stack, &mut lines);
            (lines, stack.sum)
        };
        (stacks.iter().map(lines).collect(), unstable)
    }

    const SUM: Sum = Sum {
        samples: 2,
        wall_nanoseconds: 20,
        cpu_nanoseconds: 5,
        heap_growth: 0,
        heap_change: 0,
    };

    #[track_caller]
    fn check(stack: Stack, is_proven: bool, leaves: &[Line], unstable: i64) {
        let of = |path| Stack { path, ..stack };
        let (stacks, cut) = settled(of, is_proven);
        let lines = [&[(Names::TRUNCATED, 7)], leaves].concat();
        assert_eq!((stacks, cut), (vec![(lines, SUM)], unstable));
    }

    #[test]
    fn an_open_stack_is_whole_when_its_edge_was_proven_and_cut_when_not() {
        let stack = Stack {
            path: PathId::NONE,
            ending: Ending::Whole,
            phase: None,
            candidate: PathId::NONE,
        };
        check(stack, false, &[(Names::UNSTABLE, 0)], 2);
        check(stack, true, &[(Names::IDLE, 8)], 0);
    }

    #[test]
    fn a_candidate_that_was_proven_takes_the_place_of_its_path() {
        let candidate_of = |path| Stack {
            path: PathId::NONE,
            ending: Ending::Cut,
            phase: None,
            candidate: path,
        };
        let (stacks, unstable) = settled(candidate_of, true);
        let lines = vec![(Names::TRUNCATED, 7), (Names::IDLE, 8)];
        assert_eq!((stacks, unstable), (vec![(lines, SUM)], 0));
        let (stacks, unstable) = settled(candidate_of, false);
        let lines = vec![(Names::UNSTABLE, 0)];
        assert_eq!((stacks, unstable), (vec![(lines, SUM)], 2));
    }

    /// What becomes known of a sample later has to find the key of its sample.
    #[test]
    fn candidates_that_find_no_room_are_left_out() {
        let (mut tree, mut aggregate) = (CallTree::default(), Aggregate::default());
        let stack = |candidate| Stack {
            candidate,
            ..Stack::of_phase(Names::IDLE)
        };
        for op in 0..30_000 {
            let added = tree.add(PathId::NONE, Names::IDLE, op, op, Call::default());
            let sample = stack(added.unwrap()).into();
            aggregate.add(sample, 42, 1);
            aggregate.merge(sample, 42, Sum::default());
        }
        assert_eq!(aggregate.sums.len(), MAX_WITH_CANDIDATE + 1);
        let left = (stack(PathId::NONE).into(), 42);
        let samples = aggregate.sums.get(&left).map(|times| times[0]);
        assert_eq!(samples, Some(30_000 - MAX_WITH_CANDIDATE as i64));
    }

    #[test]
    fn a_phase_is_the_leaf_of_a_whole_stack() {
        let stack = |ending| Stack {
            path: PathId::NONE,
            ending,
            phase: Some(Names::COMPILING),
            candidate: PathId::NONE,
        };
        let whole = (Names::IDLE, 8);
        check(
            stack(Ending::Whole),
            true,
            &[whole, (Names::COMPILING, 0)],
            0,
        );
        check(stack(Ending::Whole), false, &[(Names::UNSTABLE, 0)], 2);
        check(stack(Ending::Cut), true, &[whole, (Names::UNSTABLE, 0)], 2);
        check(stack(Ending::Full), true, &[whole, (Names::OVERFLOW, 0)], 0);
    }

    #[test]
    fn what_heaps_did_stands_beside_the_samples_of_its_stack() {
        let mut aggregate = Aggregate::default();
        let stack = Stack::of_phase(Names::IDLE);
        aggregate.add(stack, 7, 1);
        aggregate.add(stack, 8, 1);
        let heap = Sum {
            heap_growth: 5,
            heap_change: -3,
            ..Sum::default()
        };
        aggregate.merge(stack.into(), 7, heap);
        aggregate.merge(stack.into(), 7, heap);
        let settled = aggregate.settle(&CallTree::default(), &Edges::default());
        let (stacks, _) = settled.sum();
        let sums = stacks.iter().map(|stack| {
            let sum = stack.sum;
            (sum.samples, sum.heap_growth, sum.heap_change)
        });
        assert_eq!(sums.collect::<Vec<_>>(), [(1, 10, -6), (1, 0, 0)]);
    }

    #[test]
    fn workers_that_find_no_room_are_summed_together() {
        let mut aggregate = Aggregate::default();
        let stack = Stack::of_phase(Names::IDLE);
        (1..100_000).for_each(|tid| aggregate.add(stack, tid, 1));
        assert_eq!(aggregate.sums.len(), MAX_BY_WORKER + 1);
        let settled = aggregate.settle(&CallTree::default(), &Edges::default());
        let (stacks, _) = settled.sum();
        let all: i64 = stacks.iter().map(|stack| stack.sum.samples).sum();
        assert_eq!(all, 99_999);
        assert!(stacks.iter().any(|stack| stack.tid == ANY_WORKER));
    }

    #[test]
    fn stacks_that_find_no_room_are_summed_as_what_is_over_the_cap() {
        let (mut tree, mut aggregate) = (CallTree::default(), Aggregate::default());
        let edges = Edges::default();
        let mut path = PathId::NONE;
        for op in 0..57_000 {
            let added = tree.add(PathId::NONE, Names::IDLE, op, op, Call::default());
            path = added.unwrap_or(path);
            for ending in [Ending::Whole, Ending::Cut] {
                let stack = Stack {
                    path,
                    ending,
                    phase: None,
                    candidate: PathId::NONE,
                };
                aggregate.add(stack, 42, 1);
            }
        }
        assert_eq!(aggregate.sums.len(), MAX_SUMS);
        let settled = aggregate.settle(&tree, &edges);
        let (stacks, _) = settled.sum();
        let all: i64 = stacks.iter().map(|stack| stack.sum.samples).sum();
        assert_eq!(all, 114_000);
        let over = stacks
            .iter()
            .find(|stack| stack.leaf == Some(Names::OVERFLOW));
        assert!(over.is_some_and(|over| over.sum.samples > 50_000));
    }
}
