//! The thread that looks for workers, so that a long look delays no sample; and the short look that
//! the sampling thread takes itself.
//!
//! It scans ten times a second while something may change soon ([`Discovery::rest`]). Otherwise it
//! sleeps for a second, or until it is asked: the sampling thread is awake anyway, and tells each
//! 70 ms, at the price of one short read, whether a process has started. A wake-up of another
//! thread costs as much as a sample. What is born or ends between two scans, the sampling thread
//! sees in its turns ([`Scanner::quick`]): it shares the discovery with this thread, and passes
//! over a look while a scan is under way. The thread's CPU time counts as the sampler's. It ends
//! with the [`Scanner`], at the latest after the current scan.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::time::ClockId;

use super::Scope;
use super::diagnosis::Refused;
use super::discovery::{Discovery, Missed};
use super::process::calls::cpu_time;
use super::threads::Changes;

/// The shortest interval between two scans. New and ended workers are noticed within 100 ms: this
/// interval, a scan, and a turn.
const SCAN_EVERY: Duration = Duration::from_millis(80);
/// Scans take at most one in this many parts of a core; but there is at least one each second.
const SHARE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The interval between two scans for a program that has just started: PHP takes some milliseconds
/// from its start to its first line.
const HURRY: Duration = Duration::from_millis(1);
/// The shortest interval between two scans for processes that have done an `execve`.
const AGAIN_EVERY: Duration = Duration::from_millis(4);
/// These take at most one in this many parts of a core, once they have used up their stock. A
/// process is examined then instead of in the scan that would follow.
const SHARE_OF_AGAIN: u32 = 100;
const STOCK_OF_AGAIN: Duration = Duration::from_millis(30);
/// Reports that may wait; with more, the thread waits.
const MAX_WAITING: usize = 16;
const STACK_BYTES: usize = 256 << 10;

/// The result of a scan.
#[derive(Debug)]
pub struct ScanReport {
    /// The workers that began and ended.
    pub changes: Changes,
    /// The best reason so far why a process of the target was not sampled.
    pub refused: Option<Arc<Refused>>,
    /// The target has ended for good.
    pub is_target_gone: bool,
    /// Workers that are not sampled now, because the limit of open files has no room for them.
    pub without_room: usize,
    /// How its new workers were found.
    pub found: Found,
}

/// How workers were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// By a scan: they may have been there for a while.
    ByScan,
    /// They were forked since the last look.
    Forked,
    /// They have begun with an `execve` some looks ago, and their CPU time so far is in part that
    /// of the program before it.
    Started,
}

impl ScanReport {
    fn of(discovery: &Discovery, changes: Changes, found: Found) -> Self {
        Self {
            changes,
            refused: discovery.refused().cloned(),
            is_target_gone: discovery.is_target_gone(),
            without_room: discovery.without_room(),
            found,
        }
    }
}

/// What the scanner is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Scan,
    /// Examine processes that have done an `execve`.
    Again,
}

/// What a run asks of a scanner. A test gives its runs one that finds what the test says.
pub trait Scan {
    /// Looks at what was born since the last look, and at these processes, which could not be read:
    /// the reports that wait, and that of this look. `None` while a scan is under way. The second
    /// value says whether the next look is worth it even if nothing is born.
    fn quick(&self, failed: &[i32]) -> Option<(Vec<ScanReport>, bool)>;

    /// What came and went unseen until now; `None` if a scan does not end in this time.
    fn missed(&self, patience: Duration) -> Option<Missed>;

    /// Asks for a scan, as soon as the last one is an interval ago.
    fn ask(&self);

    /// The oldest report that was not taken yet; never waits.
    fn poll(&self) -> Option<ScanReport>;

    /// The same, but waits for a report.
    fn wait(&self, at_most: Duration) -> Option<ScanReport>;
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Scanner {
    reports: Receiver<ScanReport>,
    /// Asks for a scan; closed when the run is over.
    asks: SyncSender<Ask>,
    discovery: Arc<Mutex<Discovery>>,
}

impl Scanner {
    /// Starts the thread, and the first scan. `hurries` if the target has just started: it is
    /// scanned without a pause until its first worker is found.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(scope: Scope, hurries: bool) -> std::io::Result<Self> {
        let (outbox, reports) = sync_channel(MAX_WAITING);
        let (asks, asked) = sync_channel(1);
        let discovery = Arc::new(Mutex::new(Discovery::new(scope)));
        let of_thread = Arc::clone(&discovery);
        Builder::new()
            .name("scanner".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // Signals are for the sampling thread.
                let _ = SigSet::all().thread_block();
                scan_until_over(&of_thread, hurries, &outbox, &asked);
            })?;
        Ok(Self {
            reports,
            asks,
            discovery,
        })
    }
}

impl Scan for Scanner {
    fn quick(&self, failed: &[i32]) -> Option<(Vec<ScanReport>, bool)> {
        let mut discovery = match self.discovery.try_lock() {
            Ok(discovery) => discovery,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // A scan sends its report before it gives the discovery back, so these are older than the
        // look.
        let mut reports: Vec<ScanReport> = std::iter::from_fn(|| self.poll()).collect();
        let quick = discovery.quick(failed);
        if quick.asks {
            let _ = self.asks.try_send(Ask::Again);
        }
        for (changes, found) in [
            (quick.changes, Found::Forked),
            (quick.started, Found::Started),
        ] {
            if !changes.new.is_empty() || !changes.gone.is_empty() {
                reports.push(ScanReport::of(&discovery, changes, found));
            }
        }
        Some((reports, quick.goes_on))
    }

    fn missed(&self, patience: Duration) -> Option<Missed> {
        let began = Instant::now();
        loop {
            // The thread may wait for room for a report, which nobody takes now.
            match self.discovery.try_lock() {
                Ok(mut discovery) => return Some(discovery.missed()),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner().missed()),
                Err(TryLockError::WouldBlock) if began.elapsed() >= patience => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn ask(&self) {
        // It has been asked already, or it has ended.
        let _ = self.asks.try_send(Ask::Scan);
    }

    fn poll(&self) -> Option<ScanReport> {
        self.reports.try_recv().ok()
    }

    fn wait(&self, at_most: Duration) -> Option<ScanReport> {
        self.reports.recv_timeout(at_most).ok()
    }
}

fn scan_until_over(
    discovery: &Mutex<Discovery>,
    mut hurries: bool,
    outbox: &SyncSender<ScanReport>,
    asked: &Receiver<Ask>,
) {
    let mut stock = Stock::default();
    let mut ask = Ask::Scan;
    loop {
        let (began, cpu) = (Instant::now(), own_cpu());
        let mut discovery = lock(discovery);
        if hurries {
            discovery.hurry();
        }
        let changes = match ask {
            Ask::Scan => discovery.scan(),
            Ask::Again => discovery.scan_known(),
        };
        let rest = discovery.rest();
        let report = ScanReport::of(&discovery, changes, Found::ByScan);
        hurries &= report.changes.new.is_empty();
        let (took, used) = (began.elapsed(), own_cpu().saturating_sub(cpu));
        let is_over = outbox.send(report).is_err();
        drop(discovery);
        if is_over {
            return;
        }
        if ask == Ask::Again {
            stock.spend(used, began);
        }
        let pause = if hurries {
            HURRY
        } else {
            SCAN_EVERY
                .saturating_sub(took)
                .max(used * (SHARE - 1))
                .min(LONGEST_PAUSE)
        };
        let again = if stock.allows(Instant::now()) {
            AGAIN_EVERY.min(pause)
        } else {
            pause
        };
        match wait(asked, ScanPause::new(pause, again, pause.max(rest))) {
            Some(next) => ask = next,
            None => return,
        }
    }
}

fn lock(discovery: &Mutex<Discovery>) -> MutexGuard<'_, Discovery> {
    discovery.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wait for the next scan: how long it is in all, and what comes then.
#[derive(Debug, Clone, Copy)]
struct ScanPause {
    length: Duration,
    then: Ask,
    for_scan: Duration,
    for_again: Duration,
}

impl ScanPause {
    /// `at_most`, if nobody asks for a scan or for [`Ask::Again`] before; at least the time for
    /// each.
    fn new(for_scan: Duration, for_again: Duration, at_most: Duration) -> Self {
        Self {
            length: at_most,
            then: Ask::Scan,
            for_scan,
            for_again,
        }
    }

    fn hear(&mut self, ask: Ask) {
        let (least, is_sooner) = match ask {
            // A scan does what the other does.
            Ask::Scan => (self.for_scan, self.for_scan <= self.length),
            Ask::Again => (self.for_again, self.for_again < self.length),
        };
        if is_sooner {
            (self.length, self.then) = (least, ask);
        }
    }
}

/// Waits; `None` when the run is over.
fn wait(asked: &Receiver<Ask>, mut pause: ScanPause) -> Option<Ask> {
    let began = Instant::now();
    loop {
        match asked.recv_timeout(pause.length.saturating_sub(began.elapsed())) {
            Ok(ask) => pause.hear(ask),
            Err(RecvTimeoutError::Timeout) => return Some(pause.then),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// The CPU time that scans for processes after their `execve` may use.
#[derive(Debug, Default)]
struct Stock {
    used: Duration,
    since: Option<Instant>,
}

impl Stock {
    fn spend(&mut self, used: Duration, now: Instant) {
        self.refill(now);
        self.used += used;
    }

    fn allows(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.used < STOCK_OF_AGAIN
    }

    fn refill(&mut self, now: Instant) {
        let since = self.since.replace(now).unwrap_or(now);
        let more = now.saturating_duration_since(since) / SHARE_OF_AGAIN;
        self.used = self.used.saturating_sub(more);
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
        let discovery = Mutex::new(Discovery::new(Scope::Pids(Vec::new())));
        let thread =
            std::thread::spawn(move || scan_until_over(&discovery, false, &outbox, &asked));
        assert!(reports.recv().unwrap().changes.new.is_empty());
        drop(run);
        thread.join().unwrap();
    }

    #[test]
    fn a_pause_lasts_until_the_soonest_ask() {
        let [again, scan, most] = [1, 3, 60].map(Duration::from_secs);
        let after = |asks: &[Ask]| {
            let mut pause = ScanPause::new(scan, again, most);
            asks.iter().for_each(|ask| pause.hear(*ask));
            (pause.then, pause.length)
        };
        assert_eq!(after(&[]), (Ask::Scan, most));
        assert_eq!(after(&[Ask::Scan]), (Ask::Scan, scan));
        assert_eq!(after(&[Ask::Again]), (Ask::Again, again));
        assert_eq!(after(&[Ask::Scan, Ask::Again]), (Ask::Again, again));
        assert_eq!(after(&[Ask::Again, Ask::Scan]), (Ask::Again, again));
        // A scan does what the other does.
        let mut same = ScanPause::new(again, again, most);
        same.hear(Ask::Again);
        same.hear(Ask::Scan);
        assert_eq!((same.then, same.length), (Ask::Scan, again));
    }

    #[test]
    fn a_wait_ends_with_what_was_asked_last() {
        let (asks, asked) = sync_channel(1);
        let none = Duration::ZERO;
        let long = Duration::from_secs(60);
        asks.send(Ask::Again).unwrap();
        assert_eq!(
            wait(&asked, ScanPause::new(long, none, long)),
            Some(Ask::Again)
        );
        // Nobody asks.
        assert_eq!(
            wait(&asked, ScanPause::new(none, none, none)),
            Some(Ask::Scan)
        );
        drop(asks);
        assert_eq!(wait(&asked, ScanPause::new(none, none, long)), None);
    }

    #[test]
    fn scans_after_an_execve_cost_little_cpu() {
        let (mut stock, mut now) = (Stock::default(), Instant::now());
        let mut used = Duration::ZERO;
        for _ in 0..60_000 {
            now += Duration::from_millis(1);
            if stock.allows(now) {
                used += Duration::from_micros(500);
                stock.spend(Duration::from_micros(500), now);
            }
        }
        let most = STOCK_OF_AGAIN + Duration::from_secs(60) / SHARE_OF_AGAIN;
        assert!(used <= most + Duration::from_millis(1), "{used:?}");
        assert!(used >= most - Duration::from_millis(1), "{used:?}");
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
