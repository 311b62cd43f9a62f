//! The commands, and what is common to them: how a process begins, and its receipt at the end.

pub mod call;
pub mod delivery;
pub mod fibers;
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
use phpprof::deliver::pprof::OfSampler;
use phpprof::deliver::receipt;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::run::{RecordError, RecordingOptions, own_cpu};
use phpprof::target::diagnosis::{explain, gather};
use phpprof::target::files;

/// The heading of these options in `--help`.
const WHAT: &str = "What to sample";
const HOW: &str = "How";
const REQUESTS: &str = "Requests";
const OUTPUT: &str = "Output";
const POD: &str = "Delivery in a pod";

/// Writes the receipt, and returns the exit code.
pub fn end(result: Result<String, SamplerFailure>, path: Option<&Path>) -> ExitCode {
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

/// The CPU time and memory of this process until now, for a receipt under this number of the
/// contract. The peak is that of its own memory: `ru_maxrss` also counts the process that started
/// it, because Linux carries that figure over an exec (`exec_mmap` in fs/exec.c).
fn of_sampler(contract: u32) -> OfSampler {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    OfSampler {
        contract,
        cpu_milliseconds: own_cpu() / 1_000_000,
        peak_bytes: resident_peak(&status).unwrap_or(0),
    }
}

/// Parses `/proc/PID/status`: the most resident memory so far, in bytes.
fn resident_peak(status: &str) -> Option<u64> {
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn write(path: &Path, line: &str) -> std::io::Result<()> {
    if path.as_os_str() == "-" {
        writeln!(std::io::stdout(), "{line}")
    } else {
        std::fs::write(path, line)
    }
}

/// Makes this process a good guest in a pod. It is killed first if memory is short. Other processes
/// of the same user cannot read its environment, which holds the grants. A closed terminal ends the
/// sampling, but not the upload after it: a shell sends SIGHUP twice.
fn behave() {
    let mut hangup = SigSet::empty();
    hangup.add(Signal::SIGHUP);
    let _ = hangup.thread_block();
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let _ = nix::sys::prctl::set_dumpable(false);
    // A process that a resident sampler starts would otherwise have the name of /proc/self/exe.
    let _ = nix::sys::prctl::set_name(c"phpprof");
}

/// Prints a line. An error is ignored: a closed terminal must not lose a profile.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "phpprof: {text}");
}

/// Tells how many workers were not sampled for want of files.
fn tell_without_room(workers: usize) {
    if workers > 0 {
        let limit = files::limit();
        say(&format!(
            "{workers} workers were not sampled: the limit of open files ({limit}) is too low; raise it (ulimit -Hn), or sample fewer processes"
        ));
    }
}

/// Tells for how many workers there was no time to read their memory.
fn tell_unread_memory(workers: usize) {
    if workers > 0 {
        say(&format!(
            "the memory of {workers} workers was not read: there was no time left; choose fewer processes"
        ));
    }
}

/// Why there is no recording.
fn failure_of(error: &RecordError, options: &RecordingOptions) -> SamplerFailure {
    match error {
        RecordError::NoPhp(refused) => explain(&options.scope, refused.as_ref(), gather),
        RecordError::Stopped if options.stop.is_requested() => {
            SamplerFailure::new(Reason::Cancelled, "", "cancelled before the first sample")
        }
        RecordError::Stopped => {
            SamplerFailure::new(Reason::TargetExited, "", "stopped before the first sample")
        }
        RecordError::Kernel(cause) => {
            SamplerFailure::new(Reason::Internal, cause.desc(), format!("{error}: {cause}"))
        }
        RecordError::Scanner(cause) => {
            SamplerFailure::new(Reason::Internal, "scanner", format!("{error}: {cause}"))
        }
        RecordError::QuiescentReader(cause) => SamplerFailure::new(
            Reason::Internal,
            "quiescent reader",
            format!("{error}: {cause}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_a_line_of_the_status() {
        let status = "VmPeak:\t   90000 kB\nVmHWM:\t    3072 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(resident_peak(status), Some(3_145_728));
        assert_eq!(resident_peak("VmHWM:\tmany kB\n"), None);
        assert_eq!(resident_peak(""), None);
    }
}
