//! The command line: what was typed, and what it means.
//!
//! In a pod the operator types it (`contract/args.json`); on a host people do. The last act is always the receipt and
//! its exit code.

mod delivery;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use nix::sys::signal::{SigSet, Signal};
use phpprof::deliver::grants::UploadRoute;
use phpprof::deliver::output_file::OutputFile;
use phpprof::deliver::pprof::{Cost, Output, output, per_second};
use phpprof::deliver::receipt::{self, base64url};
use phpprof::deliver::server_time::Deadlines;
use phpprof::deliver::{cancellation, upload};
use phpprof::failure::{Failure, Reason};
use phpprof::run::snapshot::Keep;
use phpprof::run::stop::Stop;
use phpprof::run::{Ended, Options, RecordError, Recording, own_cpu, record};
use phpprof::target::Scope;
use phpprof::target::diagnosis::{explain, gather};
use ring::digest;

use crate::delivery::Delivery;

/// Sampling profiler for PHP: reads the stacks of running PHP processes out of their memory.
#[derive(Parser)]
#[command(name = "phpprof", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record a profile and write it as pprof.
    #[command(group(ArgGroup::new("what").required(true).args(["pid", "all", "container_id"])))]
    Record(Record),
}

#[derive(Args)]
struct Record {
    /// Process to sample, with its descendants (a php-fpm master stands for its workers); may be given several times.
    #[arg(short, long, value_name = "PID")]
    pid: Vec<i32>,
    /// Sample every PHP process that this user may read.
    #[arg(short, long)]
    all: bool,
    /// Sample the PHP processes of the container with this id.
    #[arg(long, value_name = "ID")]
    container_id: Option<String>,
    /// Samples a second, of each worker.
    #[arg(short = 'F', long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples_per_second: u32,
    /// How long to sample, from the first sample on.
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    duration_seconds: u64,
    /// Keep the time between requests too, as `[idle]`.
    #[arg(long)]
    include_idle: bool,
    /// Share of one core that the sampler may use, in percent; 0 for no such limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=400))]
    cpu_budget_percent: u32,
    /// Where to write the profile; without it the profile is uploaded with the grants in PHPPROF_GRANTS.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Unix time after which nothing is begun.
    #[arg(long, value_name = "SECONDS")]
    not_after: Option<u64>,
    /// Unix time until which an upload is tried.
    #[arg(long, value_name = "SECONDS")]
    upload_until: Option<u64>,
    /// Where to write the receipt.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Label of each sample, as KEY=VALUE; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
}

fn main() -> ExitCode {
    let Command::Record(arguments) = Cli::parse().command;
    let result = run(&arguments);
    let line = match &result {
        Ok(line) => line.clone(),
        Err(failure) => {
            say(&format!("{:?}: {failure}", failure.reason));
            receipt::failed(failure.reason, &failure.detail)
        }
    };
    if let Some(path) = &arguments.receipt
        && let Err(error) = std::fs::write(path, &line)
    {
        let path = path.display();
        say(&format!(
            "the receipt could not be written to {path}: {error}"
        ));
    }
    ExitCode::from(result.err().map_or(0, |failure| failure.reason.exit_code()))
}

/// Records and delivers; gives the receipt.
fn run(arguments: &Record) -> Result<String, Failure> {
    // What is needed at the end is looked at first: a run must not fail for a mistyped grant when it is over.
    let file = arguments.output.as_deref().map(OutputFile::open);
    let file = file.transpose()?;
    // After that: what is not dumpable cannot open its own /dev/stdout. Before the grants are read.
    behave();
    let delivery = match &arguments.output {
        Some(_) => None,
        None => Some(Delivery::from_environment()?),
    };
    let asked = Deadlines {
        not_after: arguments.not_after,
        upload_until: arguments.upload_until,
    };
    let server_now = || delivery.as_ref().and_then(Delivery::server_now);
    let Some(deadlines) = asked.holding(upload::unix_seconds(), server_now) else {
        say("started after --not-after: nothing to do");
        return Ok(receipt::failed(Reason::NotAfterPassed, ""));
    };
    if deadlines != asked {
        say("this node's clock is ahead; the deadlines are moved by as much");
    }
    let duration = upload::time_to_sample(
        arguments.duration_seconds,
        upload::unix_seconds(),
        deadlines.upload_until,
    );
    let stop = Stop::default();
    let checkpoints = delivery
        .as_ref()
        .and_then(|delivery| delivery.checkpoints(&arguments.label, &stop))
        .map(|checkpoints| Arc::new(checkpoints) as Arc<dyn Keep>);
    let options = options(arguments, duration, stop, checkpoints);
    if let Some(delivery) = &delivery {
        cancellation::listen(&options.stop, &delivery.grants, &delivery.agents);
    }
    let rate = arguments.samples_per_second;
    say(&format!(
        "sampling for {duration} s at {rate} samples a second"
    ));
    let recording = record(&options).map_err(|error| failure_of(&error, &options))?;
    if options.stop.is_drop() {
        return Err(upload::dropped());
    }
    let output = output(&recording.snapshot(), &arguments.label, cost());
    let bytes = &output.bytes;
    let mut route = UploadRoute::Direct;
    if let Some(file) = file {
        file.keep(bytes)?;
    }
    if let Some(path) = arguments.output.as_ref().filter(|path| path.is_file()) {
        let path = path.display();
        say(&format!(
            "wrote {path}; look at it with: go tool pprof -top {path}"
        ));
    }
    summarize(&recording, &output);
    if let Some(Delivery { grants, agents, .. }) = &delivery {
        let until = deadlines
            .upload_until
            .unwrap_or_else(|| upload::unix_seconds() + 60);
        route = upload::upload(&grants.profile, agents, bytes, until, &options.stop)?;
        say(&format!("uploaded {} bytes, {route:?}", bytes.len()));
    }
    let sha256 = base64url(digest::digest(&digest::SHA256, bytes).as_ref());
    Ok(receipt::stored(route, output.samples, bytes.len(), &sha256))
}

fn options(
    arguments: &Record,
    seconds: u64,
    stop: Stop,
    checkpoints: Option<Arc<dyn Keep>>,
) -> Options {
    Options {
        scope: scope(arguments),
        samples_per_second: arguments.samples_per_second,
        duration: Duration::from_secs(seconds),
        max_samples: None,
        unpaced: false,
        include_idle: arguments.include_idle,
        cpu_budget_percent: (arguments.cpu_budget_percent > 0)
            .then_some(arguments.cpu_budget_percent),
        quiescent_cpus: None,
        stop,
        checkpoints,
    }
}

fn scope(arguments: &Record) -> Scope {
    match &arguments.container_id {
        Some(id) => Scope::Container(id.clone()),
        None if arguments.all => Scope::All,
        None => Scope::Pids(arguments.pid.clone()),
    }
}

/// A guest in somebody's pod: the first to go when memory is short, and closed to others of the same user, since the
/// environment holds the grants. The end of a terminal ends the sampling, not what comes after: a shell says it twice.
fn behave() {
    let mut hangup = SigSet::empty();
    hangup.add(Signal::SIGHUP);
    let _ = hangup.thread_block();
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let _ = nix::sys::prctl::set_dumpable(false);
}

fn cost() -> Cost {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    Cost {
        cpu_milliseconds: own_cpu() / 1_000_000,
        peak_bytes: usage.map_or(0, |usage| {
            u64::try_from(usage.max_rss()).unwrap_or(0) * 1024
        }),
    }
}

/// Says something to whoever is still there: a terminal that was closed is no reason to lose a profile.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "phpprof: {text}");
}

fn summarize(recording: &Recording, output: &Output) {
    let quality = recording.sampler.quality;
    let how = match recording.ended {
        Ended::Done => "",
        Ended::Stopped => ", stopped early",
        Ended::WorkersGone => ", the target has ended",
    };
    say(&format!(
        "PHP {} ({}), {} workers: {} samples, {} turns idle, {} late{how}",
        recording.engine.version,
        recording.engine.sapi,
        recording.busy_percents.len(),
        output.samples,
        quality.idle,
        quality.late
    ));
    if output.without_worker > 0 {
        say(&format!(
            "{} samples found no room by worker: they have their stack, and no pid",
            output.without_worker
        ));
    }
    let [asked, kept] = [recording.asked_period, recording.effective_period].map(per_second);
    if kept < 0.98 * asked {
        say(&format!(
            "{kept:.1} samples a second instead of {asked:.0}: ask for less with -F, or allow more CPU with --cpu-budget-percent"
        ));
    }
}

fn failure_of(error: &RecordError, options: &Options) -> Failure {
    match error {
        RecordError::NoPhp(refused) => explain(&options.scope, refused.as_ref(), gather),
        RecordError::Stopped if options.stop.is_requested() => {
            Failure::new(Reason::Cancelled, "", "cancelled before the first sample")
        }
        RecordError::Stopped => {
            Failure::new(Reason::TargetExited, "", "stopped before the first sample")
        }
        RecordError::Kernel(cause) => {
            Failure::new(Reason::Internal, cause.desc(), format!("{error}: {cause}"))
        }
        RecordError::Scanner(cause) => {
            Failure::new(Reason::Internal, "scanner", format!("{error}: {cause}"))
        }
        RecordError::QuiescentReader(cause) => Failure::new(
            Reason::Internal,
            "quiescent reader",
            format!("{error}: {cause}"),
        ),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_the_contract_are_understood() {
        let arguments: Vec<String> =
            serde_json::from_str(include_str!("../../contract/args.json")).unwrap();
        let cli =
            Cli::try_parse_from(std::iter::once("phpprof".to_owned()).chain(arguments)).unwrap();
        let Command::Record(record) = cli.command;
        assert_eq!(
            record.label[1],
            ("pod".to_owned(), "web-7d9f5c6b8-x2x4z".to_owned())
        );
        assert!(matches!(scope(&record), Scope::Container(id) if id.len() == 64));
    }

    #[test]
    fn a_host_may_ask_for_ten_thousand_samples_a_second_and_for_no_budget() {
        let cli = Cli::try_parse_from([
            "phpprof",
            "record",
            "--all",
            "-F",
            "10000",
            "--cpu-budget-percent=0",
        ])
        .unwrap();
        let Command::Record(record) = cli.command;
        assert_eq!(record.samples_per_second, 10_000);
        assert_eq!(
            options(&record, 10, Stop::default(), None).cpu_budget_percent,
            None
        );
    }

    #[test]
    fn bad_arguments_are_refused() {
        for arguments in [
            &["record"][..],
            &["record", "--all", "--pid=1"],
            &["record", "--all", "-F", "0"],
            &["record", "--all", "-F", "10001"],
            &["record", "--all", "--cpu-budget-percent=-1"],
        ] {
            assert!(
                Cli::try_parse_from([&["phpprof"], arguments].concat()).is_err(),
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn sha256_is_written_as_base64url() {
        let empty = digest::digest(&digest::SHA256, b"");
        assert_eq!(
            base64url(empty.as_ref()),
            "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
        );
    }
}
