//! What a run knows of the processes that come and go.
//!
//! Invariant: what the scanner reports is applied once, by the loop.

use std::sync::Arc;
use std::time::Duration;

use crate::target::diagnosis::Refused;
use crate::target::discovery::Missed;
use crate::target::process::last_pid::LastPid;
use crate::target::scanner::{Scan, ScanReport};

/// Failed workers that the next short look checks; a scan checks the others.
const MAX_FAILED: usize = 64;

/// The scanner, and when it has to look again.
pub(super) struct ProcessWatch<'a> {
    pub scanner: Box<dyn Scan + 'a>,
    last_pid: LastPid,
    /// The same, asked in each turn.
    pub newest: LastPid,
    /// Processes that could not be read in this turn.
    pub failed: Vec<i32>,
    /// A process may become PHP soon, so the next turn looks even if nothing is born.
    pub is_fresh: bool,
    pub next_quick: u64,
    /// What came and went unseen before the run, and the CPU time in samples of workers that have
    /// ended.
    missed_before: Missed,
    missed: Option<Missed>,
    pub sampled_of_ended: u64,
    /// A worker could not be read, so it may have ended or done an `execve`.
    pub may_be_gone: bool,
    /// The best reason so far why a process of the target was not sampled.
    pub refused: Option<Arc<Refused>>,
    pub is_target_gone: bool,
    /// The most workers at one time that were not sampled, because the limit of open files had no
    /// room for them.
    pub without_room: usize,
}

impl<'a> ProcessWatch<'a> {
    pub fn new(scanner: Box<dyn Scan + 'a>) -> Self {
        Self {
            scanner,
            last_pid: LastPid::open(),
            newest: LastPid::open(),
            failed: Vec::new(),
            is_fresh: false,
            next_quick: 0,
            missed_before: Missed::default(),
            missed: None,
            sampled_of_ended: 0,
            may_be_gone: false,
            refused: None,
            is_target_gone: false,
            without_room: 0,
        }
    }

    /// Begins to count what comes and goes unseen; waits this long for the scan that is under way.
    pub fn begin(&mut self, patience: Duration) {
        self.missed_before = self.scanner.missed(patience).unwrap_or_default();
        self.sampled_of_ended = 0;
    }

    /// Takes over what a scan says of the target.
    pub fn note(&mut self, report: &ScanReport) {
        self.refused.clone_from(&report.refused);
        self.is_target_gone = report.is_target_gone;
        self.without_room = self.without_room.max(report.without_room);
    }

    /// Notes that a process could not be read.
    pub fn note_failed(&mut self, pid: Option<i32>) {
        if self.failed.len() < MAX_FAILED {
            let new = pid.filter(|pid| !self.failed.contains(pid));
            self.failed.extend(new);
        }
        self.may_be_gone = true;
    }

    /// Has the scanner look if a process has begun or may have ended.
    pub fn ask_if_moved(&mut self) {
        // Both are asked: each forgets what it has reported.
        if std::mem::take(&mut self.may_be_gone) | self.last_pid.take_move() {
            self.scanner.ask();
        }
    }

    /// What came and went unseen since the begin; what was last known if a scan does not end in
    /// this time. Outside a container, numbers of processes are also those of other programs.
    pub fn missed(&mut self, patience: Duration, is_container: bool) -> Option<Missed> {
        let missed = self.scanner.missed(patience);
        self.missed = missed
            .map(|missed| self.since_begin(missed, is_container))
            .or(self.missed);
        self.missed
    }

    fn since_begin(&self, until_now: Missed, is_container: bool) -> Missed {
        let before = self.missed_before;
        let reaped = until_now.reaped.saturating_sub(before.reaped);
        let reaped = reaped.saturating_sub(Duration::from_nanos(self.sampled_of_ended));
        let counts = is_container || !reaped.is_zero();
        let processes = until_now.processes.saturating_sub(before.processes);
        Missed {
            processes: if counts { processes } else { 0 },
            reaped,
        }
    }
}
