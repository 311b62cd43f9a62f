//! PHP that stands still in a scene: real, or from its recording. Both are observed in the same
//! way, and judged by the same truth.

pub mod list;
pub mod live;
pub mod scenes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::read::heap::HeapWatch;
use phpprof::read::reader::Reader;
use phpprof::request::asked::{RequestSettings, labels};
use phpprof::run::stop::StopSwitch;
use phpprof::run::{RecordingOptions, record};
use phpprof::target::Scope;
use phpprof::target::discovery::Discovery;
use phpprof_profile::{DecodeLimits, Lookup, View, decode, findings, place_name};
use phpprof_zend::function::{FunctionKey, HEAD};
use phpprof_zend::memory::Memory as _;
use phpprof_zend::opcache::{Script, read_scripts};
use phpprof_zend::text::ZendString;
use serde_json::Value;

use scenes::{Scene, Server};

/// A finding needs twenty; and the most that they may take on a busy machine.
const SAMPLES: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(20);
/// A worker that waits has none, whatever the time.
const IDLE: Duration = Duration::from_millis(400);

/// What a sampler says of a process that stands still.
#[derive(Debug)]
pub struct Observed {
    /// Samples by stack, root first, without the folder of files.
    pub stacks: BTreeMap<String, i64>,
    /// The values of labels.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    pub findings: Vec<&'static str>,
    pub receipt: Value,
    pub memory: Memory,
}

pub fn observe(pid: i32, scene: &Scene) -> Result<Observed> {
    let recording = record(&RecordingOptions {
        scope: Scope::Pids(vec![pid]),
        samples_per_second: 999,
        duration: match scene.server {
            Server::FpmAfterwards => IDLE,
            _ => PATIENCE,
        },
        max_samples: Some(SAMPLES),
        unpaced: false,
        include_idle: true,
        only_running: false,
        heap: true,
        fibers: None,
        of_program: false,
        cpu_budget_percent: None,
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        checkpoints: None,
        requests: RequestSettings {
            labels: labels("Method,Route,Script,TraceID").map_err(anyhow::Error::msg)?,
            ..RequestSettings::default()
        },
    })?;
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let (mut stacks, mut labels) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for sample in &profile.sample {
        let names = lookup.frames(sample);
        let names = names.map(|frame| place_name(frame.name, frame.file, frame.start_line));
        let mut names: Vec<_> = names.collect();
        names.reverse();
        let stack = names.join(";").replace("/srv/", "");
        *stacks.entry(stack).or_default() += sample.value[0];
        for label in &sample.label {
            let value = profile.string(label.str).to_owned();
            let of_key = labels.entry(profile.string(label.key).to_owned());
            of_key.or_default().insert(value);
        }
    }
    let receipt = profile.comments().next().context("no receipt")?;
    let found = findings(&profile, &View::default());
    Ok(Observed {
        stacks,
        labels,
        findings: found.iter().map(|finding| finding.id).collect(),
        receipt: serde_json::from_str(receipt)?,
        memory: memory(pid)?,
    })
}

/// What a worker's memory has beside its stack.
#[derive(Debug)]
pub struct Memory {
    /// The size of the heap, its peak, and its limit.
    pub heap: Option<[u64; 3]>,
    /// The scripts in opcache.
    pub scripts: Vec<String>,
}

fn memory(pid: i32) -> Result<Memory> {
    let found = Discovery::new(Scope::Pids(vec![pid])).scan().new;
    let process = found.first().context("no worker")?;
    let layout = process.engine.layout;
    let mut reader = Reader::new(process);
    reader.heap_watch = Some(HeapWatch::new(layout));
    // It is found through the first stack, and read with the next one.
    for _ in 0..3 {
        reader.read()?;
    }
    let mut scripts = Vec::new();
    read_scripts(
        &*process.memory,
        layout,
        &process.shared_ranges,
        &mut scripts,
    );
    let name = |script: &Script| -> Option<String> {
        let mut head = [0; HEAD];
        process.memory.read(script.main_op_array, &mut head).ok()?;
        let key = FunctionKey::of_script(layout, &head, script.opcodes)?;
        let file = ZendString::read(&*process.memory, layout, key.filename)?;
        String::from_utf8(file.bytes.to_vec()).ok()
    };
    let mut scripts: Vec<String> = scripts.iter().filter_map(name).collect();
    scripts.sort();
    Ok(Memory {
        heap: reader
            .heap_watch
            .and_then(|watch| watch.sizes())
            .map(|sizes| [sizes.size, sizes.peak, sizes.limit.unwrap_or(0)]),
        scripts,
    })
}
/// What is a secret of the request of all scenes that have one.
const SECRETS: [&str; 3] = [
    "qsecretq",
    "4815162342",
    "6f1c0c5e-2c3b-4a56-9d0a-5b7d1c9e8f70",
];
const MEBIBYTE: u64 = 1 << 20;

/// Checks what was observed of a scene against the script, and what PHP said of the moment.
pub fn check(scene: &Scene, truth: &[String], observed: &Observed) -> Result<()> {
    let [backtrace, version, scripts, heap] = truth else {
        bail!("the script said {truth:?}");
    };
    let expected = scene.expected();
    ensure!(
        observed.stacks.keys().eq([&expected]),
        "{expected} in place of {:?}",
        observed.stacks
    );
    // PHP itself says the same of its calls.
    let calls = scenes::calls_of(&expected);
    ensure!(
        calls == scenes::calls_of(backtrace),
        "{calls:?}, not {backtrace}"
    );
    let php = &observed.receipt["php"];
    ensure!(php["version"] == **version, "{php}, not {version}");
    let is_cached = scene.server == Server::CommandLine { opcache: true };
    ensure!(
        php["opcache"] == if is_cached { "on" } else { "off" },
        "{php}"
    );
    for &(label, value) in scene.labels {
        let found = observed.labels.get(label).into_iter().flatten();
        ensure!(found.eq([value]), "{label}: {:?}", observed.labels);
    }
    let all = format!("{:?} {}", observed.labels, observed.receipt);
    let told = SECRETS.iter().find(|secret| all.contains(**secret));
    ensure!(told.is_none(), "{told:?} is told: {all}");
    if let Some(finding) = scene.finding {
        let found = &observed.findings;
        ensure!(found.contains(&finding), "{finding}: {found:?}");
    }
    if is_cached {
        let listed: Vec<&str> = scripts.split(';').filter(|it| !it.is_empty()).collect();
        ensure!(!listed.is_empty(), "opcache has no scripts");
        let found = &observed.memory.scripts;
        ensure!(*found == listed, "{found:?}, not {listed:?}");
    }
    // After the request of a worker that waits, its heap is another one.
    if scene.server != Server::FpmAfterwards {
        check_heap(scene, heap, observed.memory.heap)?;
    }
    Ok(())
}

/// The peak is exactly what PHP said; of what the heap holds, the call that said it has freed a
/// little.
fn check_heap(scene: &Scene, said: &str, found: Option<[u64; 3]>) -> Result<()> {
    let said: Vec<u64> = said.split(' ').filter_map(|it| it.parse().ok()).collect();
    let (&[held, peak], Some([size, highest, limit])) = (&said[..], found) else {
        bail!("{found:?}, not {said:?}");
    };
    ensure!(highest == peak, "a peak of {highest}, not {peak}");
    ensure!(
        size.abs_diff(held) < MEBIBYTE / 32,
        "{size} bytes, not {held}"
    );
    let expected = scene.memory_limit * MEBIBYTE;
    ensure!(limit == expected, "a limit of {limit}, not {expected}");
    Ok(())
}
