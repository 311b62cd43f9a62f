//! What each command does, and what all of them do: begin as a guest, end with a receipt.

pub mod call;
pub mod delivery;
pub mod heap;
#[cfg(feature = "host")]
pub mod host;
#[cfg(not(feature = "host"))]
#[path = "pod.rs"]
pub mod host;
pub mod record;
pub mod requests;
pub mod resident;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use phpprof::deliver::pprof::Cost;
use phpprof::deliver::receipt;
use phpprof::failure::{Failure, Reason};
use phpprof::run::{Options, RecordError, own_cpu};
use phpprof::target::diagnosis::{explain, gather};

/// What `--help` has its options under.
const WHAT: &str = "What to sample";
const HOW: &str = "How";
const REQUESTS: &str = "Requests";
const OUTPUT: &str = "Output";
const POD: &str = "Delivery in a pod";

/// Writes the receipt, and gives the exit code.
pub fn end(result: Result<String, Failure>, path: Option<&Path>) -> ExitCode {
    let line = match &result {
        Ok(line) => line.clone(),
        Err(failure) => {
            say(&format!("{:?}: {failure}", failure.reason));
            receipt::failed(failure.reason, &failure.detail)
        }
    };
    if let Some(path) = path
        && let Err(error) = write(path, &line)
    {
        let path = path.display();
        say(&format!(
            "the receipt could not be written to {path}: {error}"
        ));
    }
    ExitCode::from(result.err().map_or(0, |failure| failure.reason.exit_code()))
}

/// What this process has cost until now.
fn cost() -> Cost {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    Cost {
        cpu_milliseconds: own_cpu() / 1_000_000,
        peak_bytes: usage.map_or(0, |usage| {
            u64::try_from(usage.max_rss()).unwrap_or(0) * 1024
        }),
    }
}

fn write(path: &Path, line: &str) -> std::io::Result<()> {
    match path.as_os_str() == "-" {
        true => writeln!(std::io::stdout(), "{line}"),
        false => std::fs::write(path, line),
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
    // One that a resident sampler has started is called after /proc/self/exe else.
    let _ = nix::sys::prctl::set_name(c"phpprof");
}

/// Says something to whoever is still there: a terminal that was closed is no reason to lose a profile.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "phpprof: {text}");
}

/// Why there is no recording.
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
