//! The thread that looks for workers, so that a long look delays no sample.
//!
//! It scans ten times a second while something may change soon ([`Discovery::rest`]). Otherwise it sleeps for a second, or until
//! it is asked: the sampling thread is awake anyway, and tells each 70 ms, at the price of one short read, whether a process has started. A
//! wake-up of another thread costs as much as a sample. The thread's CPU time counts as the sampler's. It ends with the [`Scanner`], at
//! the latest after the current scan.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::time::ClockId;

use super::Scope;
use super::diagnosis::Refused;
use super::discovery::Discovery;
use super::process::calls::cpu_time;
use super::threads::Changes;

/// The shortest interval between two scans. New and ended workers are noticed within 100 ms: this interval, a scan, and a turn.
const SCAN_EVERY: Duration = Duration::from_millis(80);
/// Scans take at most one in this many parts of a core; but there is at least one each second.
const SHARE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The interval between two scans for a program that has just started: PHP takes some milliseconds from its start to its first line.
const HURRY: Duration = Duration::from_millis(1);
/// Reports that may wait; with more, the thread waits.
const MAX_WAITING: usize = 16;
const STACK_BYTES: usize = 256 << 10;

/// The result of a scan.
#[derive(Debug)]
pub struct Report {
    /// The workers that began and ended.
    pub changes: Changes,
    /// The best reason so far why a process of the target was not sampled.
    pub refused: Option<Arc<Refused>>,
    /// The target has ended for good.
    pub is_target_gone: bool,
    /// Workers that are not sampled now, because the limit of open files has no room for them.
    pub without_room: usize,
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Scanner {
    reports: Receiver<Report>,
    /// Asks for a scan; closed when the run is over.
    asks: SyncSender<()>,
}

impl Scanner {
    /// Starts the thread, and the first scan. `hurries` if the target has just started: it is scanned without a pause until
    /// its first worker is found.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(scope: Scope, hurries: bool) -> std::io::Result<Self> {
        let (outbox, reports) = sync_channel(MAX_WAITING);
        let (asks, asked) = sync_channel(1);
        Builder::new()
            .name("scanner".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // Signals are for the sampling thread.
                let _ = SigSet::all().thread_block();
                scan_until_over(Discovery::new(scope), hurries, &outbox, &asked);
            })?;
        Ok(Self { reports, asks })
    }

    /// Asks for a scan, as soon as the last one is an interval ago.
    pub fn ask(&self) {
        // It has been asked already, or it has ended.
        let _ = self.asks.try_send(());
    }

    /// The oldest report that was not taken yet; never waits.
    #[must_use]
    pub fn poll(&self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    /// The same, but waits for a report.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> Option<Report> {
        self.reports.recv_timeout(at_most).ok()
    }
}

fn scan_until_over(
    mut discovery: Discovery,
    mut hurries: bool,
    outbox: &SyncSender<Report>,
    asked: &Receiver<()>,
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
            without_room: discovery.without_room(),
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
        let is_over = !wait(asked, pause, pause.max(discovery.rest()));
        if is_over {
            return;
        }
    }
}

/// Waits, `at_least` if it is asked for a scan, otherwise `at_most`; false when the run is over.
fn wait(asked: &Receiver<()>, at_least: Duration, at_most: Duration) -> bool {
    let (began, mut length) = (Instant::now(), at_most);
    loop {
        match asked.recv_timeout(length.saturating_sub(began.elapsed())) {
            Ok(()) => length = at_least,
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// The CPU time of this thread.
fn own_cpu() -> Duration {
    cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_end_with_their_scanner() {
        let (outbox, reports) = sync_channel(MAX_WAITING);
        let (run, asked) = sync_channel(1);
        let discovery = Discovery::new(Scope::Pids(Vec::new()));
        let thread = std::thread::spawn(move || scan_until_over(discovery, false, &outbox, &asked));
        assert!(reports.recv().unwrap().changes.new.is_empty());
        drop(run);
        thread.join().unwrap();
    }

    #[test]
    fn a_wait_lasts_until_it_is_asked_but_at_least_its_least() {
        let (asks, asked) = sync_channel(1);
        let least = Duration::from_millis(30);
        asks.send(()).unwrap();
        let began = Instant::now();
        assert!(wait(&asked, least, Duration::from_secs(60)));
        assert!(began.elapsed() >= least);
        // Nobody asks.
        assert!(wait(&asked, Duration::ZERO, least));
        assert!(began.elapsed() >= 2 * least);
        drop(asks);
        assert!(!wait(&asked, Duration::ZERO, Duration::from_secs(60)));
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
