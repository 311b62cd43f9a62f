//! The facts that rules use: the call paths of a profile by functions, with their sums, and the
//! receipts.
//!
//! Workers, pods and lines are added up. Time outside of requests is not used.
//!
//! Invariant: a parent's number is below its children's.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

use super::errors::ErrorPaths;
use super::rules::{FindingRule, Only};
use crate::labels::OF_ENGINES;
use crate::lookup::Lookup;
use crate::proto::{Profile, Sample};
use crate::source::SampleSource;
use crate::stacks::{Numbers, StackStep, View};
use crate::unnamed::Counts;
use crate::waiting::{WaitingTimes, is_for_cpu, is_php, waits_for_events};

const IDLE: &str = "[idle]";
/// The label with the SAPI of a sample's worker.
const SAPI: &str = OF_ENGINES[1];

/// More call paths than real programs have. Their tables take at most 150 bytes each, less than the
/// page that is drawn afterwards.
const MOST_NODES: usize = 300_000;

/// The sums of a call path, or of the whole profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathValues {
    pub samples: i64,
    pub cpu: i64,
    pub wall: i64,
    /// The part of the wall time that waits.
    pub waits: i64,
}

impl PathValues {
    pub fn add(&mut self, other: PathValues) {
        self.samples = self.samples.saturating_add(other.samples);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.wall = self.wall.saturating_add(other.wall);
        self.waits = self.waits.saturating_add(other.waits);
    }
}

/// A call path by functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathNode {
    pub parent: usize,
    /// The largest number for the root, which has no function.
    pub function: usize,
    pub flat: PathValues,
}

/// The part of a receipt that rules use (`contract/comment.json`).
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct ReceiptFacts {
    pub php: PhpFacts,
    pub workers: usize,
    #[serde(default)]
    pub samples: i64,
    pub quality: QualityFacts,
    /// Left out by a sampler that could not read it.
    #[serde(default)]
    pub throttled: Option<Throttled>,
    /// Present if it was asked for.
    #[serde(default)]
    pub heap: Heap,
}

/// What the CPU limit of a target has cost.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct Throttled {
    pub periods: u64,
    pub milliseconds: u64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct Heap {
    pub highest: Option<Highest>,
}

/// The highest heap of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Highest {
    pub real_peak_bytes: u64,
    pub limit_bytes: Option<u64>,
    pub route: Option<String>,
    /// Leaf first.
    pub stack: Vec<String>,
}

impl Highest {
    /// The heap's share of its limit; `None` without a limit.
    pub fn share(&self) -> Option<f64> {
        let limit = self.limit_bytes.filter(|limit| *limit > 0)?;
        Some((self.real_peak_bytes as f64 / limit as f64).min(1.0))
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct PhpFacts {
    pub version: String,
    pub sapi: String,
    pub jit: String,
    /// Empty if it is not known. The same applies to the next fields.
    #[serde(default)]
    pub xdebug: String,
    #[serde(default)]
    pub opcache: String,
    #[serde(default)]
    pub opcache_restarts: u64,
    /// Functions of `set_error_handler`, by their names in stacks.
    #[serde(default)]
    pub error_handlers: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct QualityFacts {
    pub taken: i64,
    pub idle: i64,
    #[serde(default)]
    pub unstable: i64,
    /// 0 in receipts of older samplers.
    #[serde(default)]
    pub unnamed: i64,
}

#[derive(Debug)]
pub(super) struct ProfileFacts<'a> {
    /// Name and file.
    pub functions: Vec<(&'a str, &'a str)>,
    /// What a function waits for when it waits, by the function's number.
    pub kinds: HashMap<usize, &'static str>,
    pub nodes: Vec<PathNode>,
    pub total: PathValues,
    /// The part of the wall time in which workers waited for a CPU.
    pub for_cpu: i64,
    pub period: i64,
    pub receipts: Vec<ReceiptFacts>,
    pub errors: ErrorPaths,
}

/// The numbers of nodes, by parent and function.
type KnownNodes = HashMap<(usize, usize), usize>;

impl<'a> ProfileFacts<'a> {
    /// `None` if there are no receipts, not the sample types of phpprof, or too many call paths.
    pub fn of<S: SampleSource + ?Sized>(source: &'a S, view: &View) -> Option<Self> {
        let profile = source.head();
        let mut facts = ProfileFacts::empty(profile);
        let index = ["samples", "cpu", "wall"].map(|name| profile.value_index(name));
        let ([Some(samples), Some(cpu), Some(wall)], false) = (index, facts.receipts.is_empty())
        else {
            return None;
        };
        let waiting = WaitingTimes::of(source);
        let lookup = Lookup::new(profile);
        let (mut numbers, mut known) = (Numbers::default(), KnownNodes::new());
        source.each(&mut |sample| {
            if facts.nodes.len() > MOST_NODES || !view.has_labels(profile, sample) {
                return;
            }
            let path = numbers.steps(&lookup, sample, true);
            let new = numbers.functions.iter().skip(facts.functions.len());
            facts.functions.extend(new.map(|it| (it.name, it.file)));
            facts.errors.learn(&facts.functions);
            let value = |index: usize| sample.value.get(index).copied().unwrap_or(0);
            let split = waiting.as_ref().and_then(|waiting| waiting.split(sample));
            let waited = |index: usize| {
                let values = split.as_ref().map(|(_, values)| values);
                values
                    .and_then(|values| values.get(index))
                    .copied()
                    .unwrap_or(0)
            };
            let mut kind = split.as_ref().map(|(kind, _)| *kind);
            let mut values = PathValues {
                samples: value(samples),
                cpu: value(cpu),
                wall: value(wall),
                waits: waited(wall),
            };
            // Newer samplers leave out what a worker waits between its requests.
            if kind.is_some() && facts.is_in_loop(profile, sample, &path) {
                kind = None;
                values = PathValues {
                    samples: values.samples.saturating_sub(waited(samples)),
                    wall: values.wall.saturating_sub(waited(wall)),
                    waits: 0,
                    ..values
                };
            }
            let is_busy = facts.add(&path, values, kind, &mut known);
            if is_busy && is_for_cpu(profile, sample) {
                facts.for_cpu = facts.for_cpu.saturating_add(values.wall);
            }
        });
        (facts.nodes.len() <= MOST_NODES).then_some(facts)
    }

    /// Whether a sample is of a worker that waits for events of its loop.
    fn is_in_loop(&self, profile: &Profile, sample: &Sample, path: &[StackStep]) -> bool {
        let mut labels = sample.label.iter();
        let label = labels.find(|label| profile.string(label.key) == SAPI);
        let of_receipt = || self.receipts.first().map(|it| it.php.sapi.as_str());
        let sapi = label
            .map(|label| profile.string(label.str))
            .or_else(of_receipt);
        let names = path
            .iter()
            .rev()
            .map(|step| Cow::Borrowed(self.name(step.0)));
        waits_for_events(sapi.unwrap_or_default(), names)
    }

    fn empty(profile: &Profile) -> Self {
        let receipts = profile.comments().map(serde_json::from_str);
        let receipts: Vec<ReceiptFacts> = receipts.filter_map(Result::ok).collect();
        let handlers = receipts.iter().flat_map(|it| &it.php.error_handlers);
        ProfileFacts {
            errors: ErrorPaths::new(handlers.cloned()),
            functions: Vec::new(),
            kinds: HashMap::new(),
            nodes: vec![PathNode {
                parent: 0,
                function: usize::MAX,
                flat: PathValues::default(),
            }],
            total: PathValues::default(),
            for_cpu: 0,
            period: profile.period,
            receipts,
        }
    }

    /// Adds a sample; returns whether it is of a request.
    fn add(
        &mut self,
        path: &[StackStep],
        values: PathValues,
        kind: Option<&'static str>,
        known: &mut KnownNodes,
    ) -> bool {
        if path
            .last()
            .is_some_and(|(leaf, _)| self.name(*leaf) == IDLE)
        {
            return false;
        }
        let mut at = 0;
        for &(function, _) in path {
            let next = self.nodes.len();
            let parent = at;
            at = *known.entry((parent, function)).or_insert(next);
            if at == next {
                self.nodes.push(PathNode {
                    parent,
                    function,
                    flat: PathValues::default(),
                });
            }
        }
        self.total.add(values);
        self.errors.add(path, &self.functions, values.wall);
        if let Some(node) = self.nodes.get_mut(at) {
            node.flat.add(values);
        }
        if let (Some((leaf, _)), Some(kind)) = (path.last(), kind) {
            self.kinds.insert(*leaf, kind);
        }
        true
    }

    pub fn name(&self, function: usize) -> &'a str {
        self.functions.get(function).map_or("", |(name, _)| name)
    }

    /// Whether it is PHP code and not part of the engine.
    pub fn is_php(&self, function: usize) -> bool {
        self.functions
            .get(function)
            .is_some_and(|(_, file)| is_php(file))
    }

    /// The functions of a node, root first.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some(node) = self.nodes.get(at).filter(|_| at != 0) {
            path.push(node.function);
            at = node.parent;
        }
        path.reverse();
        path
    }

    /// The heap that came nearest to its limit, and its share of the limit.
    pub fn nearest_to_limit(&self) -> Option<(f64, &Highest)> {
        let heaps = self.receipts.iter();
        let heaps = heaps.filter_map(|receipt| receipt.heap.highest.as_ref());
        let shares = heaps.filter_map(|heap| Some((heap.share()?, heap)));
        shares.max_by(|(one, _), (other, _)| one.total_cmp(other))
    }

    /// The turns at which workers were sampled, from all receipts.
    pub fn turns(&self) -> i64 {
        let taken = self.receipts.iter().map(|receipt| receipt.quality.taken);
        taken.fold(0, i64::saturating_add)
    }

    /// What CPU limits have cost all targets.
    pub fn throttled(&self) -> Throttled {
        let known = self.receipts.iter().filter_map(|receipt| receipt.throttled);
        known.fold(Throttled::default(), |sum, one| Throttled {
            periods: sum.periods.saturating_add(one.periods),
            milliseconds: sum.milliseconds.saturating_add(one.milliseconds),
        })
    }

    /// What the receipts say of samples without a name.
    pub fn unnamed(&self) -> Counts {
        let receipts = self.receipts.iter().map(|receipt| Counts {
            samples: receipt.samples,
            unstable: receipt.quality.unstable,
            unnamed: receipt.quality.unnamed,
            restarts: receipt.php.opcache_restarts,
        });
        receipts.fold(Counts::default(), Counts::and)
    }

    /// Whether a rule applies to this profile at all.
    pub fn may(&self, rule: &FindingRule) -> bool {
        let all =
            |test: fn(&PhpFacts) -> bool| self.receipts.iter().all(|receipt| test(&receipt.php));
        match rule.only {
            Only::Everywhere => all(|_| true),
            Only::Serving => all(|php| php.sapi != "cli"),
            Only::Preloading => all(|php| php.sapi != "cli" && has_preloading(&php.version)),
        }
    }
}

/// Whether the version is 7.4 or later.
fn has_preloading(version: &str) -> bool {
    let mut numbers = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (7, 4)
}
