//! Sums samples by stack, labels of the request, and worker: memory grows with distinct stacks, not
//! with time.
//!
//! Invariant: no time is lost. Without room for all, samples are summed without the worker
//! (`withoutWorker` in the receipt), then without the labels of the request (`withoutLabels`), and
//! then without the stack; what cannot be proven is summed under a frame that says so.

use rustc_hash::FxHashMap;

use crate::request::values::SetId;
use crate::stack::call_tree::{CallPaths, CallTree, PathId};
use crate::stack::edges::Edges;
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::{Ending, SummedStack};
use crate::target::process::held::Held;

/// Beyond this many sums, new ones are without a candidate for their call path.
const MAX_WITH_CANDIDATE: usize = 21_504;
/// Beyond this many sums, new ones are without the worker.
const MAX_BY_WORKER: usize = 28_672;
/// Beyond this many sums, new ones are without the labels of the request: what ran says more than
/// for whom, and thousands of routes would fill the table with the same stacks.
const MAX_BY_LABELS: usize = 43_008;
/// Beyond this many sums, new ones are without the stack. It is the capacity of a hash table of
/// 2^16, in three megabytes.
const MAX_SUMS: usize = 57_344;

/// The worker of samples without room for their own.
pub const ANY_WORKER: i32 = 0;

/// A frame of a sample: the function, and the line being executed in it.
pub type FrameLine = (NameId, u32);

/// The sums of the samples of one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackSum {
    /// The number of samples.
    pub samples: i64,
    /// The time that they represent.
    pub wall_nanoseconds: i64,
    /// The CPU time of those in which the worker ran.
    pub cpu_nanoseconds: i64,
    /// By how many bytes heaps became larger than before in their request.
    pub heap_growth: i64,
    /// How many of the added bytes are still held; negative if older memory was freed.
    pub heap_change: i64,
    /// Fibers that visits have seen suspended. They are of no sample.
    pub fibers: i64,
    /// The time for which they were suspended.
    pub suspended_nanoseconds: i64,
}

impl StackSum {
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
        self.fibers = self.fibers.saturating_add(other.fibers);
        let time = other.suspended_nanoseconds;
        self.suspended_nanoseconds = self.suspended_nanoseconds.saturating_add(time);
    }

    /// What few stacks have.
    fn further(&self) -> FurtherSums {
        let time = self.suspended_nanoseconds;
        [self.heap_growth, self.heap_change, self.fibers, time]
    }
}

/// A stack, and the labels of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labelled {
    /// The stack.
    pub stack: SummedStack,
    /// The labels of its request.
    pub labels: SetId,
    /// Whether the worker could continue.
    pub held: Held,
}

impl From<SummedStack> for Labelled {
    fn from(stack: SummedStack) -> Self {
        Self {
            stack,
            labels: SetId::default(),
            held: Held::No,
        }
    }
}

/// A stack with labels, and its worker (a thread id).
type SumKey = (Labelled, i32);

/// Samples, wall time and CPU time: the part of a [`StackSum`] that each stack has.
type TimeSums = [i64; 3];

/// Growth and change of heaps, suspended fibers and their time.
type FurtherSums = [i64; 4];

/// The same for stacks in which they are not all zero.
type Further = FxHashMap<SumKey, FurtherSums>;

/// All samples of a run.
#[derive(Debug, Default)]
pub struct Aggregate {
    sums: FxHashMap<SumKey, TimeSums>,
    /// Its keys are in `sums`, too. It is empty unless it was requested, because a run without it
    /// has no memory for it.
    further: Further,
    /// Samples whose request has labels that had no room.
    without_labels: i64,
}

fn times(sum: &StackSum) -> TimeSums {
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
    paths: CallPaths,
    sums: Vec<(SumKey, TimeSums)>,
    further: Further,
    /// Samples whose request has labels that had no room.
    pub without_labels: i64,
}

/// The samples of one stack and worker.
#[derive(Debug, Clone, Copy)]
pub struct Settlement {
    path: PathId,
    leaf: Option<NameId>,
    /// The labels of the request.
    pub labels: SetId,
    /// Whether the worker could continue.
    pub held: Held,
    /// The number of the worker; [`ANY_WORKER`] for those without room.
    pub tid: i32,
    /// The sums of its samples.
    pub sum: StackSum,
}

/// How a stack is shown: its calls as far as they are proven, and a frame for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShownStack {
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
    pub fn full(&self, lines: &[FrameLine]) -> Option<Full> {
        if self.leaf == Some(FunctionNames::OVERFLOW) {
            let has_lost_all = self.path == PathId::NONE && self.tid == ANY_WORKER;
            return Some(if has_lost_all {
                Full::Stacks
            } else {
                Full::Paths
            });
        }
        let mut names = lines.iter().map(|(name, _)| *name);
        names
            .any(|name| name == FunctionNames::OVERFLOW)
            .then_some(Full::Names)
    }

    /// Whether both are of the same stack, whatever their workers and requests are.
    #[must_use]
    pub fn is_of_stack(&self, other: &Self) -> bool {
        (self.path, self.leaf) == (other.path, other.leaf)
    }
}

impl Settled {
    /// Calls `give` for the stacks by worker, each once and in order: a list of them would be as
    /// large as their source. Returns how many samples were cut.
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
            if stack.leaf == Some(FunctionNames::UNSTABLE) {
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
        let further = self.further.get(&key).copied().unwrap_or_default();
        let [heap_growth, heap_change, fibers, suspended_nanoseconds] = further;
        let sum = StackSum {
            samples,
            wall_nanoseconds,
            cpu_nanoseconds,
            heap_growth,
            heap_change,
            fibers,
            suspended_nanoseconds,
        };
        Some(self.settlement_of(key.0, key.1, sum))
    }

    /// The sums of a sample under its stack as it is shown.
    #[must_use]
    pub fn settlement_of(&self, sample: Labelled, tid: i32, sum: StackSum) -> Settlement {
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
    pub fn shown(&self, stack: SummedStack) -> ShownStack {
        if stack.candidate != PathId::NONE && self.paths.is_proven(stack.candidate) {
            return ShownStack {
                path: self.paths.proven(stack.candidate),
                leaf: None,
            };
        }
        let is_proven = self.paths.is_proven(stack.path);
        let leaf = match stack.ending {
            Ending::Full if is_proven => Some(FunctionNames::OVERFLOW),
            Ending::Whole if is_proven => stack.phase,
            _ => Some(FunctionNames::UNSTABLE),
        };
        ShownStack {
            path: self.paths.proven(stack.path),
            leaf,
        }
    }

    /// How many lines each stack has.
    pub fn depths(&self) -> impl Iterator<Item = usize> {
        let depths = self.paths.depths();
        self.sums.iter().map(move |((sample, _), _)| {
            let ShownStack { path, leaf } = self.shown(sample.stack);
            let depth = depths.get(path.0 as usize).copied().unwrap_or(0);
            usize::from(depth) + usize::from(leaf.is_some())
        })
    }

    /// Writes a stack's lines, root first.
    pub fn lines(&self, settlement: &Settlement, lines: &mut Vec<FrameLine>) {
        let Settlement { path, leaf, .. } = *settlement;
        self.lines_of(ShownStack { path, leaf }, lines);
    }

    /// Writes the lines of a shown stack, root first.
    pub fn lines_of(&self, shown: ShownStack, lines: &mut Vec<FrameLine>) {
        self.paths.lines(shown.path, lines);
        lines.extend(shown.leaf.map(|leaf| (leaf, 0)));
    }
}

impl Aggregate {
    /// Adds one sample of a worker. Its CPU time and heap are added later by [`Aggregate::merge`].
    pub fn add(&mut self, sample: impl Into<Labelled>, tid: i32, wall_nanoseconds: i64) {
        self.merge(sample.into(), tid, StackSum::of_one(wall_nanoseconds));
    }

    /// Adds sums to a stack: from elsewhere, or values that become known after the sample.
    pub fn merge(&mut self, sample: Labelled, tid: i32, sum: StackSum) {
        let key = self.key(sample, tid);
        self.note_labels(sample, key, sum.samples);
        add(self.sums.entry(key).or_default(), times(&sum));
        let further = sum.further();
        if further != FurtherSums::default() {
            add(self.further.entry(key).or_default(), further);
        }
    }

    /// Adds all of another aggregate.
    pub fn absorb(&mut self, other: Self) {
        self.without_labels = self.without_labels.saturating_add(other.without_labels);
        for ((sample, tid), sum) in other.sums {
            let key = self.key(sample, tid);
            self.note_labels(sample, key, sum[0]);
            add(self.sums.entry(key).or_default(), sum);
        }
        for ((sample, tid), further) in other.further {
            let key = self.key(sample, tid);
            add(self.further.entry(key).or_default(), further);
        }
    }

    /// Counts samples that keep their stack under this key, but not their labels.
    fn note_labels(&mut self, sample: Labelled, key: SumKey, samples: i64) {
        if key.0.labels != sample.labels && key.0.stack != SummedStack::NO_ROOM {
            self.without_labels = self.without_labels.saturating_add(samples);
        }
    }

    /// The key under which the samples of a stack are summed: without room, without the candidate,
    /// the worker, the labels, and then the stack.
    fn key(&self, sample: Labelled, tid: i32) -> SumKey {
        let count = self.sums.len();
        let plain = Labelled {
            stack: SummedStack {
                candidate: PathId::NONE,
                ..sample.stack
            },
            ..sample
        };
        let bare = Labelled {
            labels: SetId::default(),
            ..plain
        };
        let key = [
            (count < MAX_WITH_CANDIDATE, (sample, tid)),
            (count < MAX_BY_WORKER, (plain, tid)),
            (count < MAX_BY_LABELS, (plain, ANY_WORKER)),
            (count < MAX_SUMS - 1, (bare, ANY_WORKER)),
        ]
        .into_iter()
        .find_map(|(has_room, key)| (has_room || self.sums.contains_key(&key)).then_some(key));
        key.unwrap_or((SummedStack::NO_ROOM.into(), ANY_WORKER))
    }

    /// Settles the stacks: all edges proven, or cut below the first that is not. A stack whose
    /// samples all waited for a CPU has nothing left without that label.
    #[must_use]
    pub fn settle(&self, tree: &CallTree, edges: &Edges) -> Settled {
        let has_any =
            |key: &SumKey, sum: &TimeSums| *sum != [0; 3] || self.further.contains_key(key);
        let sums = self.sums.iter().filter(|(key, sum)| has_any(key, sum));
        Settled {
            paths: tree.settle(edges),
            sums: sums.map(|(&key, &sum)| (key, sum)).collect(),
            further: self.further.clone(),
            without_labels: self.without_labels,
        }
    }
}

#[cfg(test)]
mod tests;
