//! The time of functions, lines, routes and workers, in the last tick and since the beginning, and
//! how their shares change from window to window.
//!
//! Invariant: each kind has at most [`MAX_ROWS`] rows. Later ones are added up in one more row, so
//! that no time is lost.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::builder::FIBERS;
use crate::lookup::Lookup;
use crate::noise::{NoisePart, NoiseScale, points, squared_error};
use crate::proto::{Profile, Sample};
use crate::stacks::label_value;
use crate::top_levels::whole;

/// The most separate rows of each kind.
pub const MAX_ROWS: usize = 20_000;
const OTHER: &str = "(other)";
const NO_REQUEST: &str = "(no request)";

/// What the rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// By function.
    Functions,
    /// By the line that was being executed.
    Lines,
    /// By the label `route`.
    Routes,
    /// By process or thread.
    Workers,
}

impl Tab {
    /// From left to right.
    pub const ALL: [Tab; 4] = [Tab::Functions, Tab::Lines, Tab::Routes, Tab::Workers];
}

/// Nanoseconds on the wall's clock and on a CPU.
pub(crate) type WallAndCpu = [i64; 2];

/// The time of one row: self time, and including its callees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    pub flat: WallAndCpu,
    pub cum: WallAndCpu,
    /// The squared errors of the self times.
    pub errors: [f64; 2],
}

impl Used {
    fn add(&mut self, other: &Used) {
        add(&mut self.flat, other.flat);
        add(&mut self.cum, other.cum);
        for (sum, more) in self.errors.iter_mut().zip(other.errors) {
            *sum += more;
        }
    }
}

/// A row's sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub now: Used,
    pub all: Used,
    pub windows: Windows,
    /// What a worker did most in the last tick.
    pub doing: String,
}

/// The shortest window whose shares are compared with those of the one before it, in nanoseconds.
pub(super) const WINDOW: i64 = 5_000_000_000;

/// How a row's share of self time changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareTrend {
    /// It is larger than before.
    Rose,
    /// It is smaller than before.
    Fell,
}

/// The self time of a row in a window, and its squared errors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowSum {
    flat: WallAndCpu,
    errors: [f64; 2],
}

/// The window that is open, the last one, and the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Windows {
    open: WindowSum,
    last: WindowSum,
    before: WindowSum,
}

impl Windows {
    fn add(&mut self, used: &Used) {
        add(&mut self.open.flat, used.flat);
        for (sum, more) in self.open.errors.iter_mut().zip(used.errors) {
            *sum += more;
        }
    }

    fn turn(&mut self) {
        self.before = self.last;
        self.last = std::mem::take(&mut self.open);
    }
}

/// The name of a row, and its place.
pub(crate) type Name = (String, String);

/// All rows, and their totals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    tables: [HashMap<Name, Sum>; 4],
    /// The totals of all samples.
    pub now: WallAndCpu,
    pub all: WallAndCpu,
    /// The totals of all samples, and the time that each window has.
    pub windows: Windows,
    pub window_spans: [i64; 3],
    /// Nanoseconds of the last tick, and of all ticks.
    pub span: i64,
    pub spans: i64,
    pub ticks: u64,
}

/// The rows of one tick, by borrowed names.
#[derive(Default)]
struct Tick<'a> {
    functions: HashMap<(Cow<'a, str>, &'a str), Used>,
    lines: HashMap<(Cow<'a, str>, &'a str, i64), Used>,
    routes: HashMap<String, Used>,
    workers: HashMap<String, LiveWorker>,
}

#[derive(Default)]
struct LiveWorker {
    used: Used,
    /// The largest wall time of its samples, and what that sample did.
    most: i64,
    doing: String,
}

impl Sums {
    pub fn table(&self, tab: Tab) -> &HashMap<Name, Sum> {
        &self.tables[tab as usize]
    }

    /// Adds the samples since the previous tick, from one or several samplers. The tick has this
    /// many nanoseconds.
    pub fn add(&mut self, profiles: &[Profile], span: i64) {
        for sum in self.tables.iter_mut().flat_map(HashMap::values_mut) {
            sum.now = Used::default();
            sum.doing.clear();
        }
        self.now = [0; 2];
        self.span = span;
        self.spans = self.spans.saturating_add(self.span);
        self.ticks += 1;
        for profile in profiles {
            self.add_one(profile);
        }
        let now = self.now;
        add(&mut self.all, now);
        self.window_spans[0] = self.window_spans[0].saturating_add(span);
        if self.window_spans[0] >= WINDOW {
            self.turn_windows();
        }
    }

    fn turn_windows(&mut self) {
        let sums = self.tables.iter_mut().flat_map(HashMap::values_mut);
        sums.for_each(|sum| sum.windows.turn());
        self.windows.turn();
        let [open, last, _] = self.window_spans;
        self.window_spans = [0, open, last];
    }

    /// Whether the row's share of self time changed by more than chance from the last window but
    /// one to the last one.
    pub fn trend(&self, tab: Tab, sum: &Sum, clock: usize) -> Option<ShareTrend> {
        let [_, last, before] = self.window_spans;
        let part = |sum: &WindowSum, all: &WindowSum, span: i64| NoisePart {
            value: sum.flat[clock],
            error: sum.errors[clock],
            total: match tab {
                Tab::Workers => span,
                _ => all.flat[clock],
            },
            // The seconds of a window do not vary.
            error_of_all: (tab != Tab::Workers).then_some(all.errors[clock]),
        };
        let after = part(&sum.windows.last, &self.windows.last, last);
        let before = part(&sum.windows.before, &self.windows.before, before);
        if after.total <= 0 || before.total <= 0 {
            return None;
        }
        let share = |part: NoisePart| 100.0 * part.value as f64 / part.total as f64;
        let change = share(after) - share(before);
        let bound = points(before, after, NoiseScale::BY_SAMPLES);
        match change {
            change if change > bound => Some(ShareTrend::Rose),
            change if change < -bound => Some(ShareTrend::Fell),
            _ => None,
        }
    }

    fn add_one(&mut self, profile: &Profile) {
        let lookup = Lookup::new(profile);
        let mut tick = Tick::default();
        let indices = ["wall", "cpu"].map(|name| profile.value_index(name));
        let count = profile.value_index("samples");
        let fibers = profile.value_index(FIBERS[0].0);
        for sample in &profile.sample {
            let value = |index: Option<usize>| sample.value.get(index?).copied();
            let times = indices.map(|index| value(index).unwrap_or(0).max(0));
            // A suspended fiber is not a sample of its worker.
            if times == [0, 0] && value(fibers).unwrap_or(0) != 0 {
                continue;
            }
            let used = Used {
                flat: times,
                cum: times,
                errors: times.map(|time| squared_error(sample, time, count)),
            };
            add(&mut self.now, times);
            self.windows.add(&used);
            tick.add(profile, &lookup, sample, &used);
        }
        let [functions, lines, routes, workers] = &mut self.tables;
        for ((name, file), used) in tick.functions {
            row(functions, (name.into_owned(), file.to_owned()), &used);
        }
        for ((name, file, line), used) in tick.lines {
            // Code written in C has no line.
            let name = match line {
                0 => (name.into_owned(), file.to_owned()),
                line => (format!("{file}:{line}"), name.into_owned()),
            };
            row(lines, name, &used);
        }
        for (route, used) in tick.routes {
            row(routes, (route, String::new()), &used);
        }
        for (name, worker) in tick.workers {
            row(workers, (name, String::new()), &worker.used).doing = worker.doing;
        }
    }
}

impl<'a> Tick<'a> {
    /// Adds a sample with its times.
    fn add(&mut self, profile: &Profile, lookup: &Lookup<'a>, sample: &Sample, all: &Used) {
        let times = all.flat;
        let (mut functions, mut lines) = (HashSet::new(), HashSet::new());
        let mut leaf = None;
        for frame in lookup.frames(sample) {
            let own = if leaf.is_none() {
                *all
            } else {
                Used::default()
            };
            // Whether the document root is known may change each second.
            let name = whole(frame.name, frame.file);
            leaf.get_or_insert_with(|| name.clone());
            let function = (name.clone(), frame.file);
            let cum = |is_first: bool| if is_first { times } else { [0; 2] };
            let used = |is_first| Used {
                cum: cum(is_first),
                ..own
            };
            let of_function = used(functions.insert(function.clone()));
            self.functions
                .entry(function)
                .or_default()
                .add(&of_function);
            // Phases of the engine have no file.
            if !frame.file.is_empty() {
                let line = (name, frame.file, frame.line);
                let of_line = used(lines.insert(line.clone()));
                self.lines.entry(line).or_default().add(&of_line);
            }
        }
        let label = |key: &str| {
            let mut labels = sample.label.iter();
            labels
                .find(|label| profile.string(label.key) == key)
                .map(|label| label_value(profile, label).into_owned())
        };
        let route = route(&label);
        let of_route = route.clone().unwrap_or_else(|| NO_REQUEST.to_owned());
        self.routes.entry(of_route).or_default().add(all);
        let Some(name) = worker(&label) else { return };
        let worker = self.workers.entry(name).or_default();
        worker.used.add(all);
        if times[0] >= worker.most {
            worker.most = times[0];
            let leaf = leaf.unwrap_or_default();
            worker.doing = match route {
                Some(route) => format!("{leaf} · {route}"),
                None => leaf.into_owned(),
            };
        }
    }
}

/// The row with this name after adding the time, if there is room.
fn row<'t>(table: &'t mut HashMap<Name, Sum>, name: Name, used: &Used) -> &'t mut Sum {
    let is_known = table.len() < MAX_ROWS || table.contains_key(&name);
    let other = || (OTHER.to_owned(), String::new());
    let sum = table
        .entry(if is_known { name } else { other() })
        .or_default();
    sum.now.add(used);
    sum.all.add(used);
    sum.windows.add(used);
    sum
}

/// Method and route of a request; only its script if the others are not recorded.
fn route(label: &impl Fn(&str) -> Option<String>) -> Option<String> {
    match (label("method"), label("route")) {
        (Some(method), Some(route)) => Some(format!("{method} {route}")),
        (None, Some(route)) => Some(route),
        _ => label("script"),
    }
}

/// A worker's name for users: its pod, if there are several, and its number.
fn worker(label: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let pid = label("pid")?;
    let number = match label("thread") {
        Some(thread) => format!("{pid}/{thread}"),
        None => pid,
    };
    Some(match label("pod") {
        Some(pod) => format!("{pod} {number}"),
        None => number,
    })
}

fn add(sum: &mut WallAndCpu, more: WallAndCpu) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}
