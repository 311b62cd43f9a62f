//! Runs profilers on a target, each as a process of its own, and measures their cost.
//!
//! Invariant: the kernel reports what a profiler used (`getrusage` of ended children,
//! `/proc/PID/status`); only the number of its samples comes from the profiler.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::cells::{BenchCell, Length};
use crate::edges::{Wrong, wrong};
use crate::peers;
use crate::record::{RecordOptions, RunOutput};
use crate::target::BenchTarget;
use crate::workload::WorkloadKind;

/// How often memory is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The longest time for a profiler to begin and to end.
const GRACE: Duration = Duration::from_secs(30);
/// How long strace watches a peer.
const STRACE_SECONDS: u64 = 3;

/// A profiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Profiler {
    Ours,
    /// An earlier build of this benchmark, with its phpprof.
    Before(PathBuf),
    Phpspy(PathBuf),
    Pfp(PathBuf),
}

/// The result of one run of a profiler.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slice {
    pub due: u64,
    /// Turns that were taken, also those that found an idle worker; for peers, samples.
    pub taken: u64,
    /// Samples of busy workers.
    pub busy: u64,
    pub unstable: Option<u64>,
    pub wrong: Option<Wrong>,
    pub usage: ProcessUsage,
    /// What phpprof reports in addition.
    pub said: Option<RunOutput>,
    /// System calls for each sample of a peer, counted by strace.
    pub traced_calls_per_sample: Option<f64>,
}

/// The resources that a process used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessUsage {
    pub user_seconds: f64,
    pub system_seconds: f64,
    /// The peak of resident memory, and the part of it that is not of files.
    pub resident_kib: u64,
    pub anonymous_kib: u64,
}

impl Profiler {
    /// phpprof, then the profilers of `PEERS`, such as `phpspy=/path pfp=/path`. `phpprof-before`
    /// is the `bench` of an earlier commit.
    pub fn all(peers: &str) -> Result<Vec<Self>> {
        let mut all = vec![Self::Ours];
        for peer in peers.split_whitespace() {
            let (name, path) = peer
                .split_once('=')
                .with_context(|| format!("PEERS has NAME=PATH, not {peer}"))?;
            ensure!(Path::new(path).is_file(), "{path} is not a program");
            all.push(match name {
                "phpprof-before" => Self::Before(path.into()),
                "phpspy" => Self::Phpspy(path.into()),
                "pfp" => Self::Pfp(path.into()),
                _ => bail!("{name} is not a known peer"),
            });
        }
        Ok(all)
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours => "phpprof",
            Self::Before(_) => "phpprof-before",
            Self::Phpspy(_) => "phpspy",
            Self::Pfp(_) => "pfp",
        }
    }

    /// Whether it can sample such a cell at all.
    pub fn can(&self, cell: &BenchCell) -> bool {
        match self {
            Self::Ours | Self::Before(_) => true,
            // Neither of them follows threads or short-lived processes, or reads by the file.
            Self::Phpspy(_) | Self::Pfp(_) => {
                let follows = !matches!(
                    cell.workload.kind,
                    WorkloadKind::FrankenPhp(_) | WorkloadKind::Parent(_)
                );
                follows && !cell.mem && cell.busy > 0
            }
        }
    }

    /// Runs it once.
    pub fn run(&self, cell: &BenchCell, target: &BenchTarget, length: &Length) -> Result<Slice> {
        match self {
            Self::Ours => ours(&std::env::current_exe()?, cell, target, length),
            Self::Before(program) => ours(program, cell, target, length),
            Self::Phpspy(program) => peer(cell, target, length, |out, seconds| {
                peers::phpspy(program, cell, target, out, seconds)
            }),
            Self::Pfp(program) => peer(cell, target, length, |out, seconds| {
                peers::pfp(program, cell, target, out, seconds)
            }),
        }
    }
}

/// The options of phpprof for a cell.
pub fn asked(cell: &BenchCell, target: &BenchTarget, length: &Length) -> RecordOptions {
    RecordOptions {
        pids: target.pids(),
        samples_per_second: cell.rate,
        seconds: length.slice.as_secs(),
        steady_after_seconds: length.steady_after.as_secs(),
        mem: cell.mem,
        stacks: cell.workload.edges.is_some(),
    }
}

/// The command for these options.
pub fn own_command(asked: &RecordOptions) -> Result<Command> {
    own_command_of(&std::env::current_exe()?, asked)
}

fn own_command_of(program: &Path, asked: &RecordOptions) -> Result<Command> {
    let mut command = Command::new(program);
    command.arg("record").arg(serde_json::to_string(asked)?);
    Ok(command)
}

fn ours(program: &Path, cell: &BenchCell, target: &BenchTarget, length: &Length) -> Result<Slice> {
    let out = tempfile::NamedTempFile::new()?;
    let mut command = own_command_of(program, &asked(cell, target, length))?;
    command.stdout(out.reopen()?);
    let usage = run(command, length.slice + GRACE)?;
    let said: RunOutput = serde_json::from_str(&fs::read_to_string(out.path())?)
        .context("the sampler has not said what it counted")?;
    let stacks = said
        .stacks
        .iter()
        .map(|(stack, samples)| (&stack[..], *samples));
    Ok(Slice {
        due: said.whole.due,
        taken: said.whole.taken,
        busy: said.whole.taken - said.whole.idle,
        unstable: Some(said.unstable),
        wrong: cell.workload.edges.map(|known| wrong(known, stacks)),
        usage,
        said: Some(said),
        traced_calls_per_sample: None,
    })
}

fn peer(
    cell: &BenchCell,
    target: &BenchTarget,
    length: &Length,
    command: impl Fn(&Path, u64) -> Result<Command>,
) -> Result<Slice> {
    let seconds = length.slice.as_secs();
    let out = tempfile::NamedTempFile::new()?;
    let usage = run(command(out.path(), seconds)?, length.slice + GRACE)?;
    let stacks = peers::stacks(&read(out.path())?);
    let taken = stacks.len() as u64;
    let known = cell.workload.edges;
    let each = stacks.iter().map(|stack| (&stack[..], 1));
    let traced = tempfile::NamedTempFile::new()?;
    let calls = traced_calls(&command(traced.path(), STRACE_SECONDS)?)?;
    let samples = peers::stacks(&read(traced.path())?).len();
    target_is_there(target)?;
    Ok(Slice {
        due: u64::from(cell.rate) * seconds * cell.busy as u64,
        taken,
        busy: taken,
        unstable: None,
        wrong: known.map(|known| wrong(known, each)),
        usage,
        said: None,
        traced_calls_per_sample: (samples > 0).then(|| calls as f64 / samples as f64),
    })
}

fn read(path: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

fn target_is_there(target: &BenchTarget) -> Result<()> {
    let pids = target.pids();
    let gone = pids
        .iter()
        .find(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    gone.map_or(Ok(()), |pid| bail!("the target, process {pid}, has ended"))
}

/// Runs a program to its end, and returns its resources. One at a time: the kernel sums up the
/// children that have ended.
fn run(mut command: Command, within: Duration) -> Result<ProcessUsage> {
    let before = ended_children()?;
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {:?}", command.get_program()))?;
    let mut usage = ProcessUsage::default();
    let until = Instant::now() + within;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        look(&child, &mut usage);
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            bail!("{:?} has not ended in time", command.get_program());
        }
        std::thread::sleep(LOOK_EVERY);
    };
    ensure!(
        status.success(),
        "{:?} has ended with {status}",
        command.get_program()
    );
    let after = ended_children()?;
    usage.user_seconds = after[0] - before[0];
    usage.system_seconds = after[1] - before[1];
    Ok(usage)
}

fn ended_children() -> Result<[f64; 2]> {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1_000_000.0;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok([seconds(usage.user_time()), seconds(usage.system_time())])
}

/// The peak of the process's own memory: `getrusage` would also count its parent's memory at the
/// fork.
fn look(child: &Child, usage: &mut ProcessUsage) {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", child.id())) else {
        return;
    };
    let kib = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    usage.resident_kib = usage.resident_kib.max(kib("VmHWM:"));
    usage.anonymous_kib = usage.anonymous_kib.max(kib("RssAnon:"));
}

/// Runs a program under `strace -c`, and returns the sum of its calls.
fn traced_calls(command: &Command) -> Result<u64> {
    let table = strace(command, Stdio::null())?;
    Ok(table.iter().map(|(_, calls)| calls).sum())
}

/// How often a program has made each call, by `strace -c`.
pub fn strace(command: &Command, out: impl Into<Stdio>) -> Result<Vec<(String, u64)>> {
    let table = tempfile::NamedTempFile::new()?;
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-c", "-U", "name,calls", "-o"])
        .arg(table.path())
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(File::create("/dev/null")?);
    let status = strace
        .status()
        .context("strace is needed: apt-get install strace")?;
    ensure!(status.success(), "strace has ended with {status}");
    let text = fs::read_to_string(table.path())?;
    let row = |line: &str| {
        let (name, calls) = line.split_once(char::is_whitespace)?;
        let calls = calls.trim().parse().ok()?;
        (name != "total").then(|| (name.to_owned(), calls))
    };
    Ok(text.lines().filter_map(row).collect())
}
