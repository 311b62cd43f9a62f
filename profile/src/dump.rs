//! Where each worker is, from the profile of a snapshot: as text and as JSON.
//!
//! Such a profile has one sample for each worker, with labels that describe its state. Invariant:
//! workers that may be stuck come first, and no name can move the terminal's cursor.

mod classes;
mod fibers;
mod further;
mod memory;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::proto::{Profile, Sample};
use crate::text::{columns, printable};
use crate::waiting::CPU;
use crate::{Lookup, SampleTag};

pub use classes::{
    ClassKind, ClassReport, ClassesReport, HeldByReport, LostObjectsReport, OtherClassesReport,
    ReachedReport,
};
use fibers::{DumpedWorkerKey, dump_frame, key_of};
pub use fibers::{SUSPENDED, SuspendedFibers};
use further::further;
pub use further::without_sample;
pub use memory::{
    BinReport, HeapReport, LostReport, MemoryLabels, MemoryReport, OpcacheReport, ResidentReport,
    memory_text,
};

/// The width of the column with functions, before that with files.
const FUNCTION: usize = 32;
/// The most frames of a stack in the text. JSON has all of them.
const FRAMES: usize = 64;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum DumpState {
    /// A signal or a debugger has stopped it, or its control group is frozen.
    Stopped,
    /// It sleeps in a request.
    Waiting,
    /// It runs on a CPU, or waits for one.
    Running,
    /// It serves no request.
    Idle,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DumpWorker {
    /// Set by the operator when it merges profiles; `None` on a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Set by the operator, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// In the sampler's PID namespace, which is the target's if it runs in a pod.
    pub pid: i64,
    /// The thread id, if PHP is thread-safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<i64>,
    /// The pool of php-fpm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// PHP's version, for instance `8.2.29`.
    pub php: String,
    /// In PHP's own spelling: `fpm-fcgi`, `cli`, `apache2handler`, …
    pub sapi: String,
    /// What it does.
    pub state: DumpState,
    /// It can run, and waits for a CPU.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_cpu: bool,
    /// What it waits in, if the kernel shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_call: Option<WaitingCall>,
    /// The request's method. Method, route and script are `None` without a request, or if they are
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path with ids replaced, without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The file that PHP was asked to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// How long its request has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_seconds: Option<f64>,
    /// Leaf first.
    pub stack: Vec<DumpFrame>,
    /// What its memory is made of, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// Its suspended fibers, if they were asked for: those with the same stack together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fibers: Option<Vec<SuspendedFibers>>,
}

impl DumpWorker {
    /// The labels of the worker's sample, with those of its memory. [`workers`] reads them again.
    /// Pod and container are not among them, because the sampler does not set them.
    pub fn labels<'a>(&'a self, memory: &'a MemoryLabels) -> Vec<SampleTag<'a>> {
        let state = match self.state {
            DumpState::Stopped => "stopped",
            DumpState::Waiting => "waiting",
            DumpState::Running => "running",
            DumpState::Idle => "idle",
        };
        let call = self.system_call.as_ref();
        let waits_on = match call {
            Some(call) => call.on.as_deref(),
            None => self.waits_for_cpu.then_some(CPU),
        };
        let words = [
            ("state", Some(state)),
            ("php", Some(self.php.as_str())),
            ("sapi", Some(self.sapi.as_str())),
            ("pool", self.pool.as_deref()),
            ("system_call", call.map(|call| call.name.as_str())),
            ("waits_on", waits_on),
            ("method", self.method.as_deref()),
            ("route", self.route.as_deref()),
            ("script", self.script.as_deref()),
            ("memory", memory.memory.as_deref()),
            ("classes", memory.classes.as_deref()),
        ];
        let milliseconds = |seconds: f64| (seconds * 1000.0) as i64;
        let numbers = [
            ("pid", Some(self.pid), ""),
            ("thread", self.thread, ""),
            ("peer_port", call.and_then(|call| call.peer_port), ""),
            (
                "request",
                self.request_seconds.map(milliseconds),
                "milliseconds",
            ),
        ];
        let words = words
            .into_iter()
            .filter_map(|(key, word)| Some(SampleTag::Str(key, word?)));
        let numbers = numbers
            .into_iter()
            .filter_map(|(key, number, unit)| Some(SampleTag::Num(key, number?, unit)));
        words.chain(numbers).collect()
    }
}

/// The system call that a worker waits in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingCall {
    /// For instance `poll`; `system call 12` if the name is not known.
    pub name: String,
    /// What it waits for, if a descriptor shows it: `file`, `pipe`, `socket`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The peer's port of a TCP socket: 3306 is MySQL's, for instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_port: Option<i64>,
}

/// A frame and the line being executed in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpFrame {
    /// The name in the profile.
    pub function: String,
    /// Empty for phases.
    pub file: String,
    /// The line being executed; 0 if it is not known.
    pub line: i64,
}

/// The workers in order. Empty if the profile is not that of a snapshot.
pub fn workers(profile: &Profile) -> Vec<DumpWorker> {
    let lookup = Lookup::new(profile);
    let mut found: BTreeMap<DumpedWorkerKey, (i64, DumpWorker)> = BTreeMap::new();
    for sample in &profile.sample {
        let Some(worker) = worker(profile, &lookup, sample) else {
            continue;
        };
        let weight = sample.value.first().copied().unwrap_or_default();
        let key = key_of(&worker);
        if found.get(&key).is_none_or(|(before, _)| *before < weight) {
            found.insert(key, (weight, worker));
        }
    }
    fibers::add(profile, &lookup, &mut found);
    ordered(found.into_values().map(|(_, worker)| worker).collect())
}

/// Stopped workers first, then waiting ones, running ones, and idle ones. Within each group, the
/// oldest request comes first.
pub fn ordered(mut workers: Vec<DumpWorker>) -> Vec<DumpWorker> {
    let age =
        |worker: &DumpWorker| Reverse((worker.request_seconds.unwrap_or(0.0) * 1000.0) as u64);
    workers.sort_by_key(|worker| (worker.state, age(worker)));
    workers
}

fn worker(profile: &Profile, lookup: &Lookup<'_>, sample: &Sample) -> Option<DumpWorker> {
    let label = |key: &str| {
        let mut labels = sample.label.iter();
        labels.find(|label| profile.string(label.key) == key)
    };
    let word = |key: &str| label(key).map(|it| profile.string(it.str).to_owned());
    let number = |key: &str| label(key).map(|it| it.num);
    let state = match word("state")?.as_str() {
        "stopped" => DumpState::Stopped,
        "waiting" => DumpState::Waiting,
        "running" => DumpState::Running,
        _ => DumpState::Idle,
    };
    let frames = lookup.frames(sample).map(dump_frame);
    Some(DumpWorker {
        pod: word("pod"),
        container: word("container"),
        pid: number("pid").unwrap_or_default(),
        thread: number("thread"),
        pool: word("pool"),
        php: word("php").unwrap_or_default(),
        sapi: word("sapi").unwrap_or_default(),
        state,
        waits_for_cpu: label("system_call").is_none() && word("waits_on").as_deref() == Some(CPU),
        system_call: word("system_call").map(|name| WaitingCall {
            name,
            on: word("waits_on"),
            peer_port: number("peer_port"),
        }),
        method: word("method"),
        route: word("route"),
        script: word("script"),
        request_seconds: number("request").map(|milliseconds| milliseconds as f64 / 1000.0),
        stack: match state {
            DumpState::Idle => Vec::new(),
            _ => frames.collect(),
        },
        memory: MemoryLabels {
            memory: word("memory"),
            classes: word("classes"),
        }
        .report(),
        fibers: None,
    })
}

/// All workers in one JSON document, and the number of further ones without a sample.
pub fn json(workers: &[DumpWorker], without_sample: usize) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Document<'a> {
        workers: &'a [DumpWorker],
        without_sample: usize,
    }
    // Serialising strings and numbers cannot fail.
    let text = serde_json::to_string_pretty(&Document {
        workers,
        without_sample,
    });
    text.unwrap_or_default() + "\n"
}

/// Each worker that is not idle or has suspended fibers, with its stack, leaf first, and those of
/// its fibers; and how many idle workers, and further ones without a sample, there are.
pub fn text(workers: &[DumpWorker], without_sample: usize) -> String {
    let mut text = String::new();
    let is_shown = |it: &&DumpWorker| it.state != DumpState::Idle || fibers::count(it) > 0;
    for worker in workers.iter().filter(is_shown) {
        text += &(head(worker) + "\n");
        for frame in worker.stack.iter().take(FRAMES) {
            text += &(line(frame) + "\n");
        }
        if let Some(more @ 1..) = worker.stack.len().checked_sub(FRAMES) {
            text += &format!("    and {more} more\n");
        }
        text += &fibers::text(worker);
        text.push('\n');
    }
    let count = |state| workers.iter().filter(|it| it.state == state).count();
    let [waiting, running, idle] =
        [DumpState::Waiting, DumpState::Running, DumpState::Idle].map(count);
    let stopped = match count(DumpState::Stopped) {
        0 => String::new(),
        stopped => format!("{stopped} stopped, "),
    };
    let further = further(without_sample);
    let suspended = fibers::all(workers);
    let states = format!("{stopped}{waiting} waiting, {running} running, {idle} idle");
    text + &format!("{states}{suspended}{further}\n")
}

fn head(worker: &DumpWorker) -> String {
    let mut head = match &worker.pod {
        Some(pod) => format!("{} pid {}", printable(pod), worker.pid),
        None => format!("pid {}", worker.pid),
    };
    if let Some(thread) = worker.thread {
        head += &format!(" thread {thread}");
    }
    if let Some(pool) = &worker.pool {
        head += &format!(" pool {}", printable(pool));
    }
    head += match worker.state {
        DumpState::Stopped => ": is stopped",
        DumpState::Waiting => ": waits",
        DumpState::Running if worker.waits_for_cpu => ": waits for a CPU",
        DumpState::Running => ": runs",
        DumpState::Idle => ": is idle",
    };
    if let (DumpState::Waiting | DumpState::Stopped, Some(leaf)) =
        (worker.state, worker.stack.first())
    {
        head += &format!(" in {}", printable(&leaf.function));
    }
    if let Some(call) = &worker.system_call {
        head += &format!(" ({})", of_call(call));
    }
    head + &of_request(worker)
}

/// The request that the worker serves, and for how long.
fn of_request(worker: &DumpWorker) -> String {
    let place = worker.route.as_ref().or(worker.script.as_ref());
    let words = [worker.method.as_ref(), place].into_iter().flatten();
    let mut words: Vec<_> = words.map(|word| printable(word).into_owned()).collect();
    if let Some(seconds) = worker.request_seconds {
        if words.is_empty() {
            words.push("request".to_owned());
        }
        words.push(format!("for {seconds:.1} s"));
    }
    if words.is_empty() {
        String::new()
    } else {
        format!("; {}", words.join(" "))
    }
}

fn of_call(call: &WaitingCall) -> String {
    let on = call
        .on
        .as_ref()
        .map(|on| format!(" on a {}", printable(on)));
    let port = call.peer_port.map(|port| format!(" to port {port}"));
    let [on, port] = [on, port].map(Option::unwrap_or_default);
    format!("{}{on}{port}", printable(&call.name))
}

fn line(frame: &DumpFrame) -> String {
    let (function, file) = (printable(&frame.function), printable(&frame.file));
    let place = match frame.line {
        0 => file,
        line => format!("{file}:{line}").into(),
    };
    let padding = " ".repeat(FUNCTION.saturating_sub(columns(&function)));
    let line = format!("    {function}{padding} {place}");
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FrameRef, SampleTag, Settings};

    impl DumpWorker {
        /// A worker that has no more than a state.
        pub(super) fn of_state(state: DumpState) -> Self {
            Self {
                pod: None,
                container: None,
                pid: 1,
                thread: None,
                pool: None,
                php: String::new(),
                sapi: String::new(),
                state,
                waits_for_cpu: false,
                system_call: None,
                method: None,
                route: None,
                script: None,
                request_seconds: None,
                stack: Vec::new(),
                memory: None,
                fibers: None,
            }
        }
    }

    fn frame<'a>(name: &'a str, file: &'a str, line: i64) -> FrameRef<'a> {
        FrameRef {
            name,
            file,
            line,
            ..FrameRef::default()
        }
    }

    fn profile() -> Profile {
        let mut builder = Builder::new(Settings::default());
        let stuck = [
            frame("mysqli_query", "<internal:mysqli>", 0),
            frame("{main}\u{1b}", "/srv/a.php", 3),
        ];
        let of = |pid, state| {
            [
                SampleTag::Str("pod", "web-1"),
                SampleTag::Str("php", "8.2.1"),
                SampleTag::Num("pid", pid, ""),
                SampleTag::Str("state", state),
            ]
        };
        builder.add(
            &[frame("f", "/srv/a.php", 9)],
            &[1, 0, 0],
            &of(8, "running"),
        );
        builder.add(&[frame("[idle]", "", 0)], &[1, 0, 0], &of(9, "idle"));
        for (pid, request) in [(6, 2_000), (7, 14_000)] {
            let labels = [
                &of(pid, "waiting")[..],
                &[
                    SampleTag::Str("pool", "www"),
                    SampleTag::Str("system_call", "poll"),
                    SampleTag::Str("waits_on", "socket"),
                    SampleTag::Num("peer_port", 3306, ""),
                    SampleTag::Str("method", "GET"),
                    SampleTag::Str("route", "/shop/{id}"),
                    SampleTag::Str("script", "index.php"),
                    SampleTag::Num("request", request, "milliseconds"),
                ],
            ];
            builder.add(&stuck, &[1, 0, 0], &labels.concat());
        }
        builder.finish()
    }

    #[test]
    fn stuck_workers_come_first_each_with_its_stack() {
        insta::assert_snapshot!(text(&workers(&profile()), 3));
    }

    #[test]
    fn programs_get_the_same() {
        insta::assert_snapshot!(json(&workers(&profile())[..1], 3));
    }

    #[test]
    fn a_worker_is_read_from_its_labels_unchanged() {
        for mut worker in workers(&profile()) {
            worker.memory = Some(MemoryReport {
                classes: Some(ClassesReport::default()),
                ..MemoryReport::default()
            });
            let mut builder = Builder::new(Settings::default());
            let frames = worker.stack.iter();
            let frames: Vec<_> = frames
                .map(|it| frame(&it.function, &it.file, it.line))
                .collect();
            let pod = worker.pod.as_deref().unwrap_or_default();
            let memory = MemoryLabels::of(worker.memory.as_ref());
            let labels = worker.labels(&memory);
            let labels = [vec![SampleTag::Str("pod", pod)], labels].concat();
            let mut keys = labels.iter().map(|label| match label {
                SampleTag::Str(key, _) | SampleTag::Num(key, ..) => *key,
            });
            assert!(keys.all(|key| crate::labels::all().any(|it| it == key)));
            builder.add(&frames, &[1, 0, 0], &labels);
            assert_eq!(workers(&builder.finish()), [worker]);
        }
    }

    #[test]
    fn stopped_workers_come_before_those_that_wait() {
        let mut workers = workers(&profile());
        workers[2].state = DumpState::Stopped;
        let text = text(&ordered(workers), 0);
        assert!(text.starts_with("web-1 pid 8: is stopped in f\n"), "{text}");
        assert!(
            text.ends_with("1 stopped, 2 waiting, 0 running, 1 idle\n"),
            "{text}"
        );
    }

    #[test]
    fn another_profile_has_no_workers_to_show() {
        let mut builder = Builder::new(Settings::default());
        builder.add(&[frame("f", "", 1)], &[1, 2, 3], &[]);
        assert!(workers(&builder.finish()).is_empty());
    }
}
