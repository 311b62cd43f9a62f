//! A clock and a scanner for tests of the loop: time passes when a run sleeps or works, as the test
//! says. No test waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::time::{Clock, SECOND, SystemClock};
use crate::target::discovery::Missed;
use crate::target::process::Process;
use crate::target::scanner::{Found, Scan, ScanReport};
use crate::target::threads::Changes;

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn now() -> u64 {
    SystemClock.now()
}

/// A clock that stands unless somebody sleeps. All times are nanoseconds.
#[derive(Debug)]
pub(crate) struct FakeClock {
    now: Cell<u64>,
    cpu: Cell<u64>,
    /// The CPU time that is used between two sleeps.
    pub work: Cell<u64>,
    /// How much later than asked a sleep ends.
    pub late: Cell<u64>,
}

impl FakeClock {
    /// A clock at a time that is not a multiple of a period.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(1_234_567_891),
            cpu: Cell::new(0),
            work: Cell::new(0),
            late: Cell::new(0),
        })
    }

    fn use_cpu(&self, nanoseconds: u64) {
        self.cpu.set(self.cpu.get() + nanoseconds);
        self.now.set(self.now.get() + nanoseconds);
    }
}

impl Clock for Rc<FakeClock> {
    fn now(&self) -> u64 {
        self.now.get()
    }

    fn unix_nanoseconds(&self) -> i64 {
        1_700_000_000_000_000_000
    }

    fn own_cpu(&self) -> u64 {
        self.cpu.get()
    }

    fn sleep_until(&self, at: u64) {
        self.use_cpu(self.work.get());
        if at > self.now.get() {
            self.now.set(at + self.late.get());
        }
    }
}

/// A scanner that gives its reports at their times, counted from the clock's begin.
#[derive(Debug)]
pub(crate) struct FakeScanner {
    clock: Rc<FakeClock>,
    reports: RefCell<VecDeque<(u64, ScanReport)>>,
}

impl FakeScanner {
    pub fn new(clock: &Rc<FakeClock>, reports: Vec<(Duration, ScanReport)>) -> Self {
        let begin = clock.now.get();
        let at = |after: Duration| begin + after.as_nanos() as u64;
        let reports = reports
            .into_iter()
            .map(|(after, report)| (at(after), report));
        Self {
            clock: Rc::clone(clock),
            reports: RefCell::new(reports.collect()),
        }
    }
}

impl Scan for FakeScanner {
    fn quick(&self, _failed: &[i32]) -> Option<(Vec<ScanReport>, bool)> {
        Some((Vec::new(), false))
    }

    fn missed(&self, _patience: Duration) -> Option<Missed> {
        Some(Missed::default())
    }

    fn ask(&self) {}

    fn poll(&self) -> Option<ScanReport> {
        let mut reports = self.reports.borrow_mut();
        let (at, _) = reports.front()?;
        if *at > self.clock.now.get() {
            return None;
        }
        reports.pop_front().map(|(_, report)| report)
    }

    fn wait(&self, at_most: Duration) -> Option<ScanReport> {
        let until = self.clock.now.get() + at_most.as_nanos() as u64;
        let next = self.reports.borrow().front().map(|(at, _)| *at);
        let at = next.unwrap_or(u64::MAX).clamp(self.clock.now.get(), until);
        self.clock.now.set(at);
        self.poll()
    }
}

/// What a scan reports that has found these workers.
pub(crate) fn found(workers: Vec<Process>) -> ScanReport {
    ScanReport {
        changes: Changes {
            new: workers.into_iter().map(Arc::new).collect(),
            ..Changes::default()
        },
        refused: None,
        is_target_gone: false,
        without_room: 0,
        found: Found::ByScan,
    }
}

/// What a scan reports once the target has ended.
pub(crate) fn gone() -> ScanReport {
    ScanReport {
        is_target_gone: true,
        ..found(Vec::new())
    }
}

pub(crate) const SECONDS: fn(u64) -> Duration = Duration::from_secs;
pub(crate) const MILLISECOND: u64 = SECOND / 1000;
