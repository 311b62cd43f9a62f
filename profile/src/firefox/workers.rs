//! The stacks of each worker: those that the timeline saw at a time, and the others.
//!
//! Invariant: the values of a worker's timed and other stacks add up to those of its samples. A
//! moment takes no more than the profile has of its stack. A list is not trusted: each stack is in
//! memory once, however many moments have it, and moments beyond [`MOST_WORK`] stay without a time
//! and are counted.

use std::collections::{BTreeMap, HashMap};

use crate::lookup::Lookup;
use crate::proto::{Profile, Sample};
use crate::stacks::{FunctionRef, Numbers, StackStep, View, add, label_value};
use crate::timeline::{Moment, Timeline, TimelineRequest};
use crate::top_levels::plain;
use crate::waiting::LABEL;

/// The most frames of moments that are looked up, and values that are looked at for them: a few
/// times what the largest list of a real run needs.
const MOST_WORK: usize = 1 << 24;

/// A worker. Without its own rows in a profile, its pid is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkerId {
    /// Empty on a host.
    pub pod: String,
    pub pid: i64,
    pub thread: i64,
}

/// The values of a stack, by what its workers waited for.
pub(super) type ByWait<'a> = BTreeMap<Option<&'a str>, Vec<i64>>;

/// A stack that was seen at a time.
#[derive(Debug)]
pub(super) struct PlacedStack<'a> {
    /// Nanoseconds since the run began. The same applies to `end`.
    pub begin: i64,
    pub end: i64,
    /// An index in [`FoundWorkers::stacks`].
    pub stack: usize,
    pub waits: Option<&'a str>,
    pub values: Vec<i64>,
}

/// What a worker did.
#[derive(Debug, Default)]
pub(super) struct WorkerRun<'a> {
    pub id: WorkerId,
    /// In the order of time.
    pub timed: Vec<PlacedStack<'a>>,
    /// By the index in [`FoundWorkers::stacks`].
    pub untimed: BTreeMap<usize, ByWait<'a>>,
    pub requests: Vec<&'a TimelineRequest>,
}

/// All workers, and the functions of their stacks.
#[derive(Debug)]
pub(super) struct FoundWorkers<'a> {
    pub functions: Vec<FunctionRef<'a>>,
    /// Each root first, in their order.
    pub stacks: Vec<Vec<StackStep>>,
    pub runs: Vec<WorkerRun<'a>>,
    /// The number of moments that were left out.
    pub left_out: u64,
}

/// The workers of the samples and requests in the view. The profile has the label of waits.
pub(super) fn workers<'a>(
    profile: &'a Profile,
    view: &View,
    timeline: Option<&'a Timeline>,
) -> FoundWorkers<'a> {
    let lookup = Lookup::new(profile);
    let mut numbers = Numbers::default();
    let mut runs: BTreeMap<WorkerId, WorkerRun<'a>> = BTreeMap::new();
    let mut known: HashMap<Vec<StackStep>, usize> = HashMap::new();
    let samples = profile.sample.iter();
    for sample in samples.filter(|sample| view.has_labels(profile, sample)) {
        if sample.value.iter().all(|value| *value == 0) {
            continue;
        }
        let steps = numbers.steps(&lookup, sample, false);
        let run = runs.entry(id_of(profile, sample)).or_default();
        let waits = label(profile, sample, LABEL).map(|label| profile.string(label.str));
        let next = known.len();
        let stack = *known.entry(steps).or_insert(next);
        let by_wait = run.untimed.entry(stack).or_default();
        add(by_wait.entry(waits).or_default(), &sample.value);
    }
    let functions = numbers.functions;
    let stacks = in_order(known, runs.values_mut());
    let mut left_out = 0;
    if let Some(timeline) = timeline {
        let mut paths = MomentStacks::new(timeline, &functions, &stacks);
        let wall = profile.value_index("wall");
        for request in timeline.requests.iter().filter(|it| is_in(view, it)) {
            place(&mut runs, &mut paths, wall, request);
        }
        left_out = paths.left_out;
    }
    let runs = runs.into_iter().map(|(id, mut run)| {
        run.timed.sort_by_key(|timed| timed.begin);
        WorkerRun { id, ..run }
    });
    // A pod whose samples all went to its workers is not a worker.
    let runs = runs.filter(|run| !run.is_empty()).collect();
    FoundWorkers {
        functions,
        stacks,
        runs,
        left_out,
    }
}

/// The stacks in their order. Their new numbers are given to the workers.
fn in_order<'r, 'a: 'r>(
    known: HashMap<Vec<StackStep>, usize>,
    runs: impl Iterator<Item = &'r mut WorkerRun<'a>>,
) -> Vec<Vec<StackStep>> {
    let mut stacks: Vec<_> = known.into_iter().collect();
    stacks.sort_unstable();
    let numbers = stacks.iter().enumerate();
    let numbers: HashMap<usize, usize> = numbers.map(|(new, (_, old))| (*old, new)).collect();
    for run in runs {
        let untimed = std::mem::take(&mut run.untimed).into_iter();
        let untimed = untimed.filter_map(|(old, it)| Some((*numbers.get(&old)?, it)));
        run.untimed = untimed.collect();
    }
    stacks.into_iter().map(|(steps, _)| steps).collect()
}

impl WorkerRun<'_> {
    fn is_empty(&self) -> bool {
        self.timed.is_empty() && self.untimed.is_empty() && self.requests.is_empty()
    }
}

fn label<'a>(profile: &Profile, sample: &'a Sample, key: &str) -> Option<&'a crate::proto::Label> {
    let mut labels = sample.label.iter();
    labels.find(|label| profile.string(label.key) == key)
}

fn id_of(profile: &Profile, sample: &Sample) -> WorkerId {
    let text = |key| label(profile, sample, key).map(|label| label_value(profile, label));
    let number = |key| text(key).and_then(|text| text.parse().ok());
    WorkerId {
        pod: text("pod").unwrap_or_default().into_owned(),
        pid: number("pid").unwrap_or(0),
        thread: number("thread").unwrap_or(0),
    }
}

/// Whether a request has the labels of the view that requests can have.
fn is_in(view: &View, request: &TimelineRequest) -> bool {
    view.labels.iter().all(|(key, value)| match key.as_str() {
        "pod" => request.pod == *value,
        "pid" => request.pid.to_string() == *value,
        "thread" => request.thread.to_string() == *value,
        "method" => request.method == *value,
        "route" => request.route == *value,
        "script" => request.script == *value,
        "trace_id" => request.trace_id == *value,
        _ => true,
    })
}

/// Gives a request to its worker, and moves what its moments saw to their times.
fn place<'a>(
    runs: &mut BTreeMap<WorkerId, WorkerRun<'a>>,
    paths: &mut MomentStacks<'_>,
    wall: Option<usize>,
    request: &'a TimelineRequest,
) {
    let id = WorkerId {
        pod: request.pod.clone(),
        pid: request.pid.into(),
        thread: request.thread.into(),
    };
    // A merged profile may have added up the workers of a pod.
    let of_pod = WorkerId {
        pod: request.pod.clone(),
        ..WorkerId::default()
    };
    let mut timed = Vec::new();
    for moment in request.moments.iter().filter(|_| wall.is_some()) {
        let Some(stack) = paths.of(moment.node) else {
            continue;
        };
        let mut at = request.begin.saturating_add(moment.begin).max(0);
        let mut left = moment.duration;
        for id in [&id, &of_pod] {
            let Some(run) = runs.get_mut(id) else {
                continue;
            };
            let kinds = run.untimed.get(&stack).map_or(0, BTreeMap::len);
            paths.room = paths.room.saturating_sub(kinds);
            for taken in run.take(stack, moment, wall, left) {
                left -= taken.length;
                timed.push(PlacedStack {
                    begin: at,
                    end: at.saturating_add(taken.length),
                    stack,
                    waits: taken.waits,
                    values: taken.values,
                });
                at = at.saturating_add(taken.length);
            }
        }
    }
    let run = runs.entry(id).or_default();
    run.timed.extend(timed);
    run.requests.push(request);
}

/// A part of a stack's values.
struct TakenPart<'a> {
    length: i64,
    waits: Option<&'a str>,
    values: Vec<i64>,
}

impl<'a> WorkerRun<'a> {
    /// Takes up to this much wall time of a stack, with the same part of its other values. A moment
    /// that waits first takes time that waits.
    fn take(
        &mut self,
        stack: usize,
        moment: &Moment,
        wall: Option<usize>,
        mut left: i64,
    ) -> Vec<TakenPart<'a>> {
        let Some(by_wait) = self.untimed.get_mut(&stack) else {
            return Vec::new();
        };
        let mut order: Vec<_> = by_wait.keys().copied().collect();
        order.sort_by_key(|waits| waits.is_some() != moment.waits);
        let mut parts = Vec::new();
        for waits in order {
            let Some(values) = by_wait.get_mut(&waits) else {
                continue;
            };
            let has = wall.and_then(|wall| values.get(wall).copied()).unwrap_or(0);
            let length = has.min(left);
            if length <= 0 {
                continue;
            }
            left -= length;
            let part = part_of(values, length, has);
            for (rest, value) in values.iter_mut().zip(&part) {
                *rest = rest.saturating_sub(*value);
            }
            if values.iter().all(|value| *value == 0) {
                by_wait.remove(&waits);
            }
            parts.push(TakenPart {
                length,
                waits,
                values: part,
            });
        }
        if by_wait.is_empty() {
            self.untimed.remove(&stack);
        }
        parts
    }
}

/// `length / of` of each value.
fn part_of(values: &[i64], length: i64, of: i64) -> Vec<i64> {
    let part = |value: &i64| {
        let part = i128::from(*value) * i128::from(length) / i128::from(of.max(1));
        i64::try_from(part).unwrap_or(*value)
    };
    values.iter().map(part).collect()
}

/// The stacks of a timeline's nodes among those of the profile.
struct MomentStacks<'t> {
    timeline: &'t Timeline,
    /// The profile's functions by those of the timeline.
    functions: Vec<Option<usize>>,
    stacks: &'t [Vec<StackStep>],
    deepest: usize,
    known: HashMap<u32, Option<usize>>,
    /// The rest of [`MOST_WORK`].
    room: usize,
    left_out: u64,
}

impl<'t> MomentStacks<'t> {
    fn new(
        timeline: &'t Timeline,
        functions: &[FunctionRef<'_>],
        stacks: &'t [Vec<StackStep>],
    ) -> Self {
        let by_name = functions.iter().enumerate().rev();
        let by_name: HashMap<_, _> = by_name
            .map(|(number, it)| ((plain(it.name, it.file), it.file), number))
            .collect();
        let functions = timeline.functions.iter().map(|function| {
            let name = plain(&function.name, &function.file);
            by_name.get(&(name, function.file.as_str())).copied()
        });
        MomentStacks {
            timeline,
            functions: functions.collect(),
            stacks,
            deepest: stacks.iter().map(Vec::len).max().unwrap_or(0),
            known: HashMap::new(),
            room: MOST_WORK,
            left_out: 0,
        }
    }

    /// The index of a moment's stack; `None` if the profile does not have it, or without room.
    fn of(&mut self, leaf: u32) -> Option<usize> {
        if self.room == 0 {
            self.left_out += 1;
            return None;
        }
        if let Some(known) = self.known.get(&leaf) {
            return *known;
        }
        let found = self.find(leaf);
        self.known.insert(leaf, found);
        found
    }

    fn find(&mut self, leaf: u32) -> Option<usize> {
        let (mut steps, mut at) = (Vec::new(), Some(leaf));
        while let Some(number) = at.filter(|_| steps.len() <= self.deepest) {
            self.room = self.room.saturating_sub(1);
            let node = self.timeline.nodes.get(number as usize)?;
            let function = self.functions.get(node.function as usize)?;
            steps.push(((*function)?, i64::from(node.line)));
            // A parent comes before its children, so this ends.
            at = node.parent.filter(|parent| *parent < number);
        }
        steps.reverse();
        self.stacks.binary_search(&steps).ok()
    }
}
