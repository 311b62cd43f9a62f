//! The stacks of each worker: those that the timeline saw at a time, and the others.
//!
//! Invariant: the values of a worker's timed and other stacks add up to those of its samples. A
//! moment takes no more than the profile has of its stack.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::lookup::Lookup;
use crate::proto::{Profile, Sample};
use crate::stacks::{FunctionRef, Numbers, StackStep, View, add, label_value};
use crate::timeline::{Moment, Timeline, TimelineRequest};
use crate::top_levels::plain;
use crate::waiting::LABEL;

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
    pub steps: Vec<StackStep>,
    pub waits: Option<&'a str>,
    pub values: Vec<i64>,
}

/// What a worker did.
#[derive(Debug, Default)]
pub(super) struct WorkerRun<'a> {
    pub id: WorkerId,
    /// In the order of time.
    pub timed: Vec<PlacedStack<'a>>,
    /// Root first.
    pub untimed: BTreeMap<Vec<StackStep>, ByWait<'a>>,
    pub requests: Vec<&'a TimelineRequest>,
}

/// All workers, and the functions of their stacks.
#[derive(Debug)]
pub(super) struct FoundWorkers<'a> {
    pub functions: Vec<FunctionRef<'a>>,
    pub runs: Vec<WorkerRun<'a>>,
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
    let samples = profile.sample.iter();
    for sample in samples.filter(|sample| view.has_labels(profile, sample)) {
        if sample.value.iter().all(|value| *value == 0) {
            continue;
        }
        let steps = numbers.steps(&lookup, sample, false);
        let run = runs.entry(id_of(profile, sample)).or_default();
        let waits = label(profile, sample, LABEL).map(|label| profile.string(label.str));
        let by_wait = run.untimed.entry(steps).or_default();
        add(by_wait.entry(waits).or_default(), &sample.value);
    }
    let functions = numbers.functions;
    if let Some(timeline) = timeline {
        let mut paths = MomentSteps::new(timeline, &functions);
        let wall = profile.value_index("wall");
        for request in timeline.requests.iter().filter(|it| is_in(view, it)) {
            place(&mut runs, &mut paths, wall, request);
        }
    }
    let runs = runs.into_iter().map(|(id, mut run)| {
        run.timed.sort_by_key(|timed| timed.begin);
        WorkerRun { id, ..run }
    });
    // A pod whose samples all went to its workers is not a worker.
    let runs = runs.filter(|run| !run.is_empty()).collect();
    FoundWorkers { functions, runs }
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
    paths: &mut MomentSteps<'_>,
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
        let Some(steps) = paths.of(moment.node) else {
            continue;
        };
        let mut at = request.begin.saturating_add(moment.begin).max(0);
        let mut left = moment.duration;
        for id in [&id, &of_pod] {
            let Some(run) = runs.get_mut(id) else {
                continue;
            };
            for taken in run.take(steps, moment, wall, left) {
                left -= taken.length;
                timed.push(PlacedStack {
                    begin: at,
                    end: at.saturating_add(taken.length),
                    steps: steps.to_vec(),
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
        steps: &[StackStep],
        moment: &Moment,
        wall: Option<usize>,
        mut left: i64,
    ) -> Vec<TakenPart<'a>> {
        let Some(by_wait) = self.untimed.get_mut(steps) else {
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
            self.untimed.remove(steps);
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

/// The stacks of a timeline's nodes, by the functions of the profile.
struct MomentSteps<'t> {
    timeline: &'t Timeline,
    functions: HashMap<(Cow<'t, str>, &'t str), usize>,
    known: HashMap<u32, Option<Vec<StackStep>>>,
}

impl<'t> MomentSteps<'t> {
    fn new(timeline: &'t Timeline, functions: &[FunctionRef<'t>]) -> Self {
        let by_name = functions.iter().enumerate().rev();
        let by_name = by_name.map(|(number, it)| ((plain(it.name, it.file), it.file), number));
        MomentSteps {
            timeline,
            functions: by_name.collect(),
            known: HashMap::new(),
        }
    }

    /// Root first; `None` if the profile does not have one of its functions.
    fn of(&mut self, leaf: u32) -> Option<&[StackStep]> {
        if !self.known.contains_key(&leaf) {
            let steps = self.steps(leaf);
            self.known.insert(leaf, steps);
        }
        self.known.get(&leaf)?.as_deref()
    }

    fn steps(&self, leaf: u32) -> Option<Vec<StackStep>> {
        let (mut steps, mut at) = (Vec::new(), Some(leaf));
        while let Some(number) = at {
            let node = self.timeline.nodes.get(number as usize)?;
            let function = self.timeline.functions.get(node.function as usize)?;
            let key = (
                plain(&function.name, &function.file),
                function.file.as_str(),
            );
            steps.push((*self.functions.get(&key)?, i64::from(node.line)));
            // A parent comes before its children, so this ends.
            at = node.parent.filter(|parent| *parent < number);
        }
        steps.reverse();
        Some(steps)
    }
}
