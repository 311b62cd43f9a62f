//! The thread that looks for workers, so that a long look delays no sample.
//!
//! It always runs: ten wake-ups per second cost less than predicting which look will be long. Its CPU time is
//! the sampler's. It ends with the [`Scanner`], at the latest when the look that is under way is over.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::time::{ClockId, clock_gettime};

use super::Scope;
use super::diagnosis::Refused;
use super::discovery::Discovery;
use super::threads::Changes;

/// New and ended workers are noticed within 100 ms: this, a scan, and a turn.
const SCAN_EVERY: Duration = Duration::from_millis(80);
/// Scans that take much CPU time take no more of a core than one in so many; but there is one each second.
const SHARE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at a program that has only begun: PHP takes some milliseconds from its start to its first line.
const HURRY: Duration = Duration::from_millis(1);
/// Reports that may wait; the thread waits with the next one.
const MAX_WAITING: usize = 16;
const STACK_BYTES: usize = 256 << 10;

/// What a scan has found.
#[derive(Debug)]
pub struct Report {
    /// Workers that began and ended.
    pub changes: Changes,
    /// The most telling reason so far why a process of the target was not taken.
    pub refused: Option<Arc<Refused>>,
    /// The target has ended for good.
    pub is_target_gone: bool,
}

/// The thread.
#[derive(Debug)]
pub struct Scanner {
    reports: Receiver<Report>,
    /// Closed when the run is over.
    _run: SyncSender<()>,
}

impl Scanner {
    /// Starts the thread, and the first scan. `hurries` where the target has only begun: it is looked at without a pause until
    /// its first worker is there.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start(scope: Scope, hurries: bool) -> std::io::Result<Self> {
        let (outbox, reports) = sync_channel(MAX_WAITING);
        let (run, over) = sync_channel(0);
        Builder::new()
            .name("scanner".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // They are the sampling thread's.
                let _ = SigSet::all().thread_block();
                scan_until_over(Discovery::new(scope), hurries, &outbox, &over);
            })?;
        Ok(Self { reports, _run: run })
    }

    /// The oldest report that was not taken yet; never waits.
    #[must_use]
    pub fn poll(&self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    /// The same, waiting for it.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> Option<Report> {
        self.reports.recv_timeout(at_most).ok()
    }
}

fn scan_until_over(
    mut discovery: Discovery,
    mut hurries: bool,
    outbox: &SyncSender<Report>,
    over: &Receiver<()>,
) {
    loop {
        let (began, cpu) = (Instant::now(), own_cpu());
        if hurries {
            discovery.hurry();
        }
        let report = Report {
            changes: discovery.scan(),
            refused: discovery.refused().cloned(),
            is_target_gone: discovery.is_target_gone(),
        };
        hurries &= report.changes.new.is_empty();
        let (took, used) = (began.elapsed(), own_cpu().saturating_sub(cpu));
        if outbox.send(report).is_err() {
            return;
        }
        let pause = match hurries {
            true => HURRY,
            false => SCAN_EVERY
                .saturating_sub(took)
                .max(used * (SHARE - 1))
                .min(LONGEST_PAUSE),
        };
        if over.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// CPU time of this thread.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_end_with_their_scanner() {
        let (outbox, reports) = sync_channel(MAX_WAITING);
        let (run, over) = sync_channel(0);
        let discovery = Discovery::new(Scope::Pids(Vec::new()));
        let thread = std::thread::spawn(move || scan_until_over(discovery, false, &outbox, &over));
        assert!(reports.recv().unwrap().changes.new.is_empty());
        drop(run);
        thread.join().unwrap();
    }

    #[test]
    fn scans_that_nobody_takes_are_bounded() {
        let scanner = Scanner::start(Scope::Pids(Vec::new()), false).unwrap();
        assert!(scanner.wait(Duration::from_secs(10)).is_some());
        std::thread::sleep(SCAN_EVERY * 2 * MAX_WAITING as u32);
        let waiting = std::iter::from_fn(|| scanner.poll()).count();
        assert!((1..=MAX_WAITING + 1).contains(&waiting), "{waiting}");
    }
}
