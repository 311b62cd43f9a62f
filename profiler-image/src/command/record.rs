//! `phpprof record`: its arguments, its run, and its messages.

mod moment;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use nix::sys::signal::{SigSet, Signal};
use phpprof::contract;
use phpprof::deliver::environment::Environment;
use phpprof::deliver::grants::DeliveryRoute;
use phpprof::deliver::output_file::OutputFile;
use phpprof::deliver::pprof::{ProfileFile, output, per_second};
use phpprof::deliver::receipt::{self, base64url};
use phpprof::deliver::server_time::NodeDeadlines;
use phpprof::deliver::timeline::timeline;
use phpprof::deliver::{cancellation, upload};
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::now::{self, Begin};
use phpprof::request::asked::RequestSettings;
use phpprof::run::fibers::FiberSchedule;
use phpprof::run::snapshot::Keep;
use phpprof::run::stop::StopSwitch;
use phpprof::run::{Recording, RecordingOptions, RunEnd, record};
use phpprof::target::Scope;
use phpprof::target::discovery::Missed;
use phpprof_profile::timeline::{MAX_BYTES, Timeline, encode_within};
use phpprof_profile::waiting;
use ring::digest;

use super::delivery::Delivery;
use super::host::{self, Host};
use super::{
    HOW, OUTPUT, POD, WHAT, behave, end, failure_of, fibers, heap, of_sampler, requests, say,
    tell_without_room,
};

/// The seconds of a run that lasts until the user ends it.
const ENDLESS: u64 = u64::MAX;
const LONGEST: u64 = 86_400;

#[derive(Args)]
#[command(group(ArgGroup::new("what")), after_help = host::EXAMPLES)]
pub struct RecordArguments {
    /// Process to sample, with its descendants (a php-fpm master selects its workers). May be
    /// repeated.
    #[arg(short, long, value_name = "PID", group = "what", help_heading = WHAT)]
    pid: Vec<i32>,
    /// Sample every PHP process that this user may read.
    #[arg(short, long, group = "what", help_heading = WHAT)]
    all: bool,
    /// Sample the PHP processes of the container with this id.
    #[arg(long, value_name = "ID", group = "what", help_heading = WHAT)]
    container_id: Option<String>,
    /// How long to sample, from the first sample, at most a day: 30, 30s, 2m, 1h. 0 means until
    /// Ctrl-C, which keeps the samples. Default: 10 s; for a program, until it ends.
    #[arg(short, long, alias = "duration-seconds", value_name = "TIME", value_parser = seconds, help_heading = HOW)]
    duration: Option<u64>,
    /// Samples per second for each worker.
    #[arg(short = 'F', long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = HOW)]
    samples_per_second: u32,
    /// Also keep the time between HTTP requests, as `[idle]`.
    #[arg(long, help_heading = HOW)]
    include_idle: bool,
    /// Also show which stacks made the heap grow (sample type heap_growth), and how much of it they
    /// still hold (heap_change). With --snapshot: what each worker's memory is made of. The sampler
    /// keeps sizes and names of classes, never contents.
    #[arg(long, help_heading = HOW)]
    heap: bool,
    /// Also show where fibers are suspended, below [suspended], in sample types of their own: how
    /// many were seen (fibers), and for how long (suspended). Wall and CPU time do not change. With
    /// --snapshot: the fibers of each worker.
    #[arg(long, help_heading = HOW)]
    fibers: bool,
    /// Show once where every worker is, instead of sampling.
    #[arg(long, hide_short_help = true, help_heading = POD)]
    snapshot: bool,
    /// Show once what is in every worker's heap, and who holds it, instead of sampling: a profile
    /// with the sample types inuse_objects and inuse_space. It has names of classes, functions and
    /// declared properties, never contents.
    #[arg(long, conflicts_with_all = ["snapshot", "heap", "fibers", "live"], hide_short_help = true, help_heading = POD)]
    heap_snapshot: bool,
    /// Also send each second's samples to the relay, as long as somebody reads them there.
    #[arg(long, hide_short_help = true, help_heading = POD)]
    live: bool,
    /// Percent of one core that the sampler may use; 0 means no limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=400), help_heading = HOW)]
    cpu_budget_percent: u32,
    #[command(flatten)]
    host: host::Arguments,
    /// Where to write the profile; - is standard output. Default, in a pod: upload the profile with
    /// the grants in PHPPROF_GRANTS.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Label to add to each sample, as KEY=VALUE. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, help_heading = OUTPUT)]
    label: Vec<(String, String)>,
    /// Print only errors.
    #[arg(short, long, help_heading = OUTPUT)]
    quiet: bool,
    /// Read the variables PHPPROF_GRANTS, PHPPROF_CHECKPOINTS and PHPPROF_CA_BUNDLE from standard
    /// input, as one JSON object.
    #[arg(long, conflicts_with = "output", hide_short_help = true, help_heading = POD)]
    grants_on_stdin: bool,
    /// Unix time after which the sampler does not start.
    #[arg(long, value_name = "SECONDS", hide_short_help = true, help_heading = POD)]
    not_after: Option<u64>,
    /// Unix time until which an upload is retried.
    #[arg(long, value_name = "SECONDS", hide_short_help = true, help_heading = POD)]
    upload_until: Option<u64>,
    /// Where to write the receipt; - is standard output.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = POD)]
    pub receipt: Option<PathBuf>,
    #[command(flatten)]
    requests: requests::LabelArguments,
}

impl RecordArguments {
    /// Whether each worker is looked at once, instead of being sampled for a time.
    fn is_moment(&self) -> bool {
        self.snapshot || self.heap_snapshot
    }
}

/// Records, delivers, and writes the receipt.
pub fn main(arguments: &RecordArguments) -> ExitCode {
    let receipt = arguments.receipt.as_deref();
    // What the end needs is checked first: a run must not fail at its end because of a mistyped
    // path or grant.
    let begun = scope(arguments).and_then(|scope| {
        let host = Host::begin(&arguments.host, arguments.output.as_deref())?;
        Ok((scope, host))
    });
    let (scope, mut host) = match begun {
        Ok(begun) => begun,
        Err(failure) => return end(Err(failure), receipt),
    };
    let code = end(run(arguments, scope, &mut host), receipt);
    host.end(code)
}

/// What a run needs until its end.
struct Prepared {
    options: RecordingOptions,
    deadlines: NodeDeadlines,
    delivery: Option<Delivery>,
    /// For a snapshot.
    begin: Option<Arc<Begin>>,
    /// Where the list of requests goes on a host.
    list: Option<OutputFile>,
}

/// Records and delivers; returns the receipt.
fn run(
    arguments: &RecordArguments,
    scope: Option<Scope>,
    host: &mut Host,
) -> Result<String, SamplerFailure> {
    let Some(prepared) = prepare(arguments, scope, host)? else {
        say("started after --not-after: nothing to do");
        return Ok(receipt::failed(Reason::NotAfterPassed, ""));
    };
    let options = &prepared.options;
    let recording = record(options);
    host.be_still();
    let recording = recording.map_err(|error| host.explain(&error, failure_of(&error, options)))?;
    if options.stop.is_drop() {
        return Err(upload::dropped());
    }
    deliver(arguments, host, prepared, recording)
}

/// Checks and opens all that a run needs; `None` if it is too late to begin.
fn prepare(
    arguments: &RecordArguments,
    scope: Option<Scope>,
    host: &mut Host,
) -> Result<Option<Prepared>, SamplerFailure> {
    let asked_of_requests = arguments.requests.asked()?;
    fibers::check(arguments.fibers, &asked_of_requests.filter)?;
    let list = arguments
        .requests
        .file()
        .map(OutputFile::open)
        .transpose()?;
    // A process that is not dumpable cannot open its own /dev/stdout, and its children would not be
    // dumpable. This precedes the grants.
    behave();
    let delivery = if host.writes() {
        None
    } else {
        Some(Delivery::new(&environment(arguments)?)?)
    };
    if delivery.is_some() {
        outlast_sigterm()?;
    }
    let Some(deadlines) = deadlines(arguments, delivery.as_ref()) else {
        return Ok(None);
    };
    let duration = upload::time_to_sample(
        time(arguments),
        upload::unix_seconds(),
        deadlines.upload_until,
    );
    let stop = host.stop.clone();
    let begin = arguments.is_moment().then(|| Arc::new(Begin::default()));
    let checkpoints = match &begin {
        Some(begin) => Some(Arc::clone(begin) as Arc<dyn Keep>),
        None => checkpoints(arguments, delivery.as_ref(), &stop)?,
    };
    let mut options = options(arguments, duration, stop, checkpoints, asked_of_requests);
    options.scope = host.scope().or(scope).ok_or_else(host::nothing_chosen)?;
    host.prepare(&arguments.host, &mut options, arguments.quiet);
    if let Some(delivery) = &delivery {
        cancellation::listen(&options.stop, &delivery.grants, &delivery.agents);
    }
    let rate = arguments.samples_per_second;
    let how_long = match duration {
        ENDLESS => host.end_of_endless().to_owned(),
        seconds => format!("for {seconds} s"),
    };
    if !arguments.quiet {
        say(&format!("sampling {how_long} at {rate} samples a second"));
    }
    Ok(Some(Prepared {
        options,
        deadlines,
        delivery,
        begin,
        list,
    }))
}

/// Blocks SIGTERM, which `record` reads while it samples. A kubelet that ends a pod sends it once
/// to each container, and kills after the pod's grace (CRI, `StopContainer`): until then, the
/// samples can still be stored.
fn outlast_sigterm() -> Result<(), SamplerFailure> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    let blocked = set.thread_block();
    blocked.map_err(|error| SamplerFailure::new(Reason::Internal, error.desc(), error.desc()))
}

/// Builds the profile, and delivers or keeps it; returns the receipt.
fn deliver(
    arguments: &RecordArguments,
    host: &mut Host,
    prepared: Prepared,
    mut recording: Recording,
) -> Result<String, SamplerFailure> {
    let Prepared {
        options,
        deadlines,
        delivery,
        begin,
        list,
    } = prepared;
    let mut snapshot = recording.snapshot();
    let requests = recording.recorder.take().filter(|_| begin.is_none());
    let mut requests = requests.map(|recorder| timeline(recorder, &snapshot));
    let until = deadlines
        .upload_until
        .unwrap_or_else(|| upload::unix_seconds() + 60);
    if let Some(delivery) = &delivery {
        // The list comes before the profile, because the profile's receipt ends the run and reports
        // on the list. But if the sampler ends with its pod, there is only time for the profile.
        let is_cut = recording.ended != RunEnd::Done && !options.stop.is_requested();
        let list = requests.take().filter(|_| !is_cut);
        snapshot.list_stored = delivery.store_requests(list, until, &options.stop);
    }
    let spoken = delivery.as_ref().map(|delivery| delivery.spoken);
    let of_sampler = || of_sampler(spoken.unwrap_or(contract::NUMBER));
    let output = match &begin {
        Some(begin) => moment::output(arguments, &snapshot, begin, of_sampler),
        None => output(&snapshot, &arguments.label, of_sampler()),
    };
    let bytes = &output.bytes;
    let mut route = DeliveryRoute::Direct;
    let written = host.keep(bytes, requests.as_ref())?;
    if let (Some(file), Some(requests)) = (list, requests) {
        file.keep(&list_of(requests)?)?;
    }
    if !arguments.quiet {
        summarize(&recording, &output, &options);
        if let Some(written) = written {
            say(&format!("{} samples, {written}", output.samples));
        }
    }
    if let Some(Delivery { grants, agents, .. }) = &delivery {
        route = upload::upload(&grants.profile, agents, bytes, until, &options.stop)?;
        say(&format!("uploaded {} bytes, {route:?}", bytes.len()));
    }
    let sha256 = base64url(digest::digest(&digest::SHA256, bytes).as_ref());
    Ok(receipt::stored(route, output.samples, bytes.len(), &sha256))
}

/// The deadlines by this node's clock; `None` if it is too late to begin.
fn deadlines(arguments: &RecordArguments, delivery: Option<&Delivery>) -> Option<NodeDeadlines> {
    let asked = NodeDeadlines {
        not_after: arguments.not_after,
        upload_until: arguments.upload_until,
    };
    let server_now = || delivery.and_then(Delivery::server_now);
    let deadlines = asked.holding(upload::unix_seconds(), server_now)?;
    if deadlines != asked {
        say("this node's clock is ahead; the deadlines are moved by the difference");
    }
    Some(deadlines)
}

/// Stores the samples so far, or shows them to a reader, while the run continues.
fn checkpoints(
    arguments: &RecordArguments,
    delivery: Option<&Delivery>,
    stop: &StopSwitch,
) -> Result<Option<Arc<dyn Keep>>, SamplerFailure> {
    let Some(delivery) = delivery else {
        return Ok(None);
    };
    if arguments.live {
        return delivery.live(&arguments.label, stop);
    }
    let checkpoints = delivery.checkpoints(&arguments.label, stop);
    Ok(checkpoints.map(|checkpoints| Arc::new(checkpoints) as Arc<dyn Keep>))
}

/// The list of requests as a file.
fn list_of(requests: Timeline) -> Result<Vec<u8>, SamplerFailure> {
    let file = encode_within(requests, MAX_BYTES);
    file.map_err(|error| SamplerFailure::new(Reason::Internal, "requests", error.to_string()))
}

fn environment(arguments: &RecordArguments) -> Result<Environment, SamplerFailure> {
    if arguments.grants_on_stdin {
        Environment::read(std::io::stdin().lock())
    } else {
        Ok(Environment::of_process())
    }
}

fn options(
    arguments: &RecordArguments,
    seconds: u64,
    stop: StopSwitch,
    checkpoints: Option<Arc<dyn Keep>>,
    requests: RequestSettings,
) -> RecordingOptions {
    RecordingOptions {
        scope: Scope::All,
        samples_per_second: if arguments.is_moment() {
            now::SAMPLES_PER_SECOND
        } else {
            arguments.samples_per_second
        },
        duration: match seconds {
            _ if arguments.is_moment() => now::TAKES,
            ENDLESS => Duration::MAX,
            seconds => Duration::from_secs(seconds),
        },
        max_samples: None,
        unpaced: false,
        include_idle: arguments.include_idle || arguments.is_moment(),
        only_running: false,
        heap: arguments.heap && !arguments.snapshot,
        fibers: arguments.fibers.then_some(if arguments.snapshot {
            FiberSchedule::AtEnd
        } else {
            FiberSchedule::Spread
        }),
        of_program: false,
        cpu_budget_percent: (arguments.cpu_budget_percent > 0)
            .then_some(arguments.cpu_budget_percent),
        quiescent_cpus: None,
        stop,
        checkpoints,
        requests,
    }
}

/// What to sample; `None` for a program, which has to be started first.
fn scope(arguments: &RecordArguments) -> Result<Option<Scope>, SamplerFailure> {
    let scope = match &arguments.container_id {
        Some(id) => Some(Scope::Container(id.clone())),
        None if arguments.all => Some(Scope::All),
        None if !arguments.pid.is_empty() => Some(Scope::Pids(arguments.pid.clone())),
        None => arguments.host.pattern().map(Scope::Fitting),
    };
    match scope {
        None if !arguments.host.has_program() => Err(host::nothing_chosen()),
        scope => Ok(scope),
    }
}

fn time(arguments: &RecordArguments) -> u64 {
    let default = if arguments.host.has_program() {
        ENDLESS
    } else {
        10
    };
    arguments.duration.unwrap_or(default)
}

fn summarize(recording: &Recording, output: &ProfileFile, options: &RecordingOptions) {
    let quality = recording.sampler.quality;
    let how = match recording.ended {
        RunEnd::Done => "",
        RunEnd::Stopped if options.of_program => ", the program has ended",
        RunEnd::Stopped => ", stopped early",
        RunEnd::WorkersGone => ", the target has ended",
    };
    say(&format!(
        "PHP {} ({}), {} workers: {} samples, {} idle, {} late{how}",
        recording.facts.engine.version,
        recording.facts.engine.sapi,
        recording.facts.busy.workers(),
        output.samples,
        quality.idle,
        quality.late
    ));
    if let Some(count) = recording.facts.not_running {
        say(&format!("{count} samples of sleeping workers are left out"));
    }
    for line in output.untold.lines() {
        say(&line);
    }
    if let Some(told) = output.lost.told() {
        say(&told);
    }
    if let Some(told) = output.unnamed.told() {
        say(&told);
    }
    if let Some(told) = waiting::told_of_stopped(quality.stopped, quality.taken - quality.idle) {
        say(&told);
    }
    let busy =
        (quality.taken - quality.idle) as f64 * recording.facts.effective_period.as_secs_f64();
    if let Some(told) = waiting::told_of_cpu(recording.facts.cpu_waited.as_secs_f64(), busy) {
        say(&told);
    }
    let workers = recording.facts.seen.values().map(|seen| seen.pid);
    if let Some(told) = host::of_masters(&options.scope, workers) {
        say(&told);
    }
    tell_without_room(recording.facts.without_room);
    tell_missed(recording.facts.missed);
    requests::summarize(recording);
    heap::summarize(recording);
    fibers::summarize(recording);
    let [asked, kept] = [
        recording.facts.asked_period,
        recording.facts.effective_period,
    ]
    .map(per_second);
    // Single turns come late on each machine.
    if kept < 0.95 * asked {
        say(&format!(
            "{kept:.1} samples per second instead of {asked:.0}: the sampler reached its CPU budget (--cpu-budget-percent), or the machine had no CPU left; set a lower rate with -F, or allow more CPU"
        ));
    }
}

/// Says what came and went unseen.
fn tell_missed(missed: Option<Missed>) {
    let Some(missed) = missed.filter(|missed| *missed != Missed::default()) else {
        return;
    };
    say(&format!(
        "{:.2} s of CPU time of ended child processes is not in any sample; up to {} processes came and went unseen",
        missed.reaped.as_secs_f64(),
        missed.processes
    ));
}

fn seconds(text: &str) -> Result<u64, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let unit = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let seconds = number.parse().ok().and_then(|it: u64| it.checked_mul(unit));
    match seconds {
        Some(0) => Ok(ENDLESS),
        Some(seconds @ 1..=LONGEST) => Ok(seconds),
        Some(_) => Err("a duration must be at most a day; 0 samples until Ctrl-C".to_owned()),
        None => Err("a duration must be like 30, 30s, 2m or 1h; 0 samples until Ctrl-C".to_owned()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label must be KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests;
