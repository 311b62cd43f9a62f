//! Tells a run from outside that it has to end early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

const GO_ON: u8 = 0;
const KEEP: u8 = 1;
const DROP: u8 = 2;

/// Whether to stop, and whether to keep the samples.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch(Arc<AtomicU8>);

impl StopSwitch {
    /// Whether the run has to end.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) != GO_ON
    }

    /// Whether the samples are not wanted any more.
    #[must_use]
    pub fn is_drop(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DROP
    }

    /// Applies the operator's answer.
    pub fn request(&self, word: &str) {
        let told = if word.trim() == "drop" { DROP } else { KEEP };
        self.0.fetch_max(told, Ordering::Relaxed);
    }
}

/// Handles SIGTERM, SIGINT and SIGHUP as requests to stop, which are read between two turns.
/// Without a handler, the sampler would ignore SIGTERM as PID 1 of a container. A sampler that was
/// started with `nohup` outlives its terminal.
pub(super) fn signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    if !is_hangup_ignored() {
        set.add(Signal::SIGHUP);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

pub(super) fn is_signalled(signals: Option<&SignalFd>) -> bool {
    signals.is_some_and(|signals| matches!(signals.read_signal(), Ok(Some(_))))
}

/// Whether this process was started with SIGHUP ignored. A blocked signal is queued even then.
#[must_use]
pub fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, Signal::SIGHUP)
}

/// Parses `/proc/PID/status`: a mask in hexadecimal digits, whose lowest bit is signal 1.
fn ignores(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_in_the_mask() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, Signal::SIGHUP) && ignores(status, Signal::SIGPIPE));
        assert!(!ignores(status, Signal::SIGINT) && !ignores("", Signal::SIGHUP));
    }

    #[test]
    fn what_is_dropped_is_not_kept_again() {
        let stop = StopSwitch::default();
        assert!(!stop.is_requested());
        stop.request("keep");
        assert!(stop.is_requested() && !stop.is_drop());
        stop.request("drop\n");
        stop.request("keep");
        assert!(stop.is_drop());
    }
}
