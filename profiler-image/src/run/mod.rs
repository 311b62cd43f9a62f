//! The loop: look for workers, wait for the next turn, read those due, ask the quiescent reader,
//! until the time is over.
//!
//! One thread does all of this; only the quiescent reader and the scanner have their own. The
//! duration counts from the first turn with a worker. The sampler stays within a CPU budget: above
//! it, proofs are left out first, then the rate is lowered by a third at a time, and the receipt
//! says so. The state of Xdebug and of opcache is read from one worker after the first samples, and
//! once more at the end.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use phpprof_zend::engine::Engine;

use crate::raw::shorten_slices;
use crate::read::heap::HeapWatch;
use crate::read::own_cpu::{CpuReaders, SLICE};
use crate::read::request_watch::RequestWatch;
use crate::sample::StackSampler;
use crate::target::diagnosis::Refused;
use crate::target::files::raise_limit;
use crate::target::process::calls::SystemCallCounts;
use crate::target::process::throttle::{ThrottleCounts, ThrottleFile};
use crate::target::scanner::{Found, Scan, ScanReport, Scanner};

pub mod aggregate;
mod begin;
mod budget;
pub mod cells;
mod error_handlers;
mod event_loops;
pub mod facts;
mod fiber_turn;
pub mod fibers;
mod first;
pub mod heap;
pub mod lateness;
mod member;
pub mod moments;
mod newborn;
mod outcome;
mod own_cpu;
mod quiescent;
pub mod recorder;
mod recording;
pub mod requests;
pub mod schedule;
pub mod seen;
pub mod seen_handlers;
pub mod snapshot;
pub mod stop;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod time;
mod totals;
mod turn;
mod watch;

use aggregate::{ANY_WORKER, Aggregate};
use budget::Budget;
use fibers::FiberVisits;
use heap::HeapAccount;
use lateness::Lateness;
use member::Member;
use own_cpu::OwnCpuTurns;
use quiescent::QuiescentAsks;
use recorder::Recorder;
pub use recording::{RecordError, Recording, RecordingOptions};
use requests::RunRequests;
use schedule::{SampleSlot, WakeSchedule};
pub use seen::WorkerLabels;
use seen::Workers;
use seen_handlers::SeenHandlers;
use snapshot::RunCounts;
pub use snapshot::RunEnd;
use time::{Clock, SECOND, SystemClock};
pub use time::{own_cpu, seed};
use totals::RunTotals;
use watch::ProcessWatch;

/// How often processes that have started, the budget and the checkpoints are checked. A new worker
/// is noticed within 100 ms: this, the turn that it waits for, and a scan.
const LOOK_EVERY: u64 = 70 * SECOND / 1000;
/// A look waits so long for the next turn: a wake-up of its own would cost as much as a sample.
const WAIT_FOR_TURN: u64 = 11 * SECOND / 1000;
/// After this time a target without PHP is given up; a starting container may not run it yet.
const GIVE_UP_AFTER: u64 = 3 * SECOND / 2;
/// How long the begin and the end of a run wait for the scan that is under way.
const SCAN_TAKES: Duration = Duration::from_millis(200);
/// And after this time if even the first scan of processes has no end.
const FIRST_SCAN_TAKES: u64 = 10 * SECOND;

/// Runs the sampler.
///
/// # Errors
/// A [`RecordError`]; nothing was sampled then.
pub fn record(options: &RecordingOptions) -> Result<Recording, RecordError> {
    let mask = SigSet::thread_get_mask()?;
    let signals = if options.of_program {
        None
    } else {
        Some(stop::signals()?)
    };
    let recording = RunLoop::new(options).and_then(|mut run| {
        let engine = run.wait_for_workers(signals.as_ref())?;
        Ok(run.record(signals.as_ref(), engine))
    });
    // What the caller starts later would inherit both.
    shorten_slices(0);
    let _ = nix::sys::prctl::set_timerslack(0);
    // While the profile is delivered a signal ends the process again, as users expect; SIGTERM only
    // where the caller has not blocked it.
    mask.thread_set_mask()?;
    recording
}

/// What is settled when a run begins.
struct Begun {
    /// The engine of the worker that was found first.
    engine: Arc<Engine>,
    unix_nanoseconds: i64,
    at: u64,
    /// When it shall end.
    until: u64,
}

/// The state of the loop.
struct RunLoop<'a> {
    options: &'a RecordingOptions,
    clock: Box<dyn Clock + 'a>,
    watch: ProcessWatch<'a>,
    members: Vec<Member>,
    sampler: StackSampler,
    aggregate: Aggregate,
    /// The samples that were already given, if each is given once.
    given: Aggregate,
    requests: RunRequests,
    recorder: Option<Recorder>,
    asking: QuiescentAsks,
    own: OwnCpuTurns,
    /// What the due times are drawn with.
    seed: u32,
    period: u64,
    /// The slot of the current turn.
    slot: Option<SampleSlot>,
    next_look: u64,
    budget: Budget,
    /// Of the workers that have ended, and of all turns.
    totals: RunTotals,
    /// What the limit of the control group cost, and what it had cost when the run began.
    throttle: Option<(ThrottleFile, ThrottleCounts)>,
    lateness: Lateness,
    /// How many turns were taken.
    turns: u32,
    /// Whether a leaf of this name says what it waits for.
    says: turn::Says,
    workers: Workers,
    error_handlers: SeenHandlers,
    fibers: FiberVisits,
}

impl<'a> RunLoop<'a> {
    fn new(options: &'a RecordingOptions) -> Result<Self, RecordError> {
        // The default slack of 50 µs would be added to each wake-up.
        let _ = nix::sys::prctl::set_timerslack(1);
        raise_limit();
        let scanner = Scanner::start(options.scope.clone(), options.of_program)
            .map_err(RecordError::Scanner)?;
        let mut run = Self::by(options, Box::new(SystemClock), Box::new(scanner))?;
        if !options.unpaced {
            shorten_slices(SLICE);
            run.own.readers = Some(CpuReaders::new(options.quiescent_cpus)?);
        }
        Ok(run)
    }

    /// A run by this clock, of the workers that this scanner finds.
    fn by(
        options: &'a RecordingOptions,
        clock: Box<dyn Clock + 'a>,
        scanner: Box<dyn Scan + 'a>,
    ) -> Result<Self, RecordError> {
        let budget = Budget::new(None, asked_period(options), 0, clock.now(), u64::MAX);
        Ok(Self {
            options,
            clock,
            watch: ProcessWatch::new(scanner),
            members: Vec::new(),
            sampler: StackSampler::new(),
            aggregate: Aggregate::default(),
            given: Aggregate::default(),
            requests: RunRequests::new(&options.requests),
            recorder: None,
            asking: QuiescentAsks::start(options.quiescent_cpus)?,
            own: OwnCpuTurns::new(),
            seed: time::seed(),
            period: asked_period(options),
            slot: None,
            next_look: 0,
            budget,
            totals: RunTotals::default(),
            throttle: None,
            lateness: Lateness::default(),
            turns: 0,
            says: turn::Says::default(),
            workers: Workers::default(),
            error_handlers: SeenHandlers::default(),
            fibers: FiberVisits::default(),
        })
    }

    /// Waits until there is a worker, and returns its engine.
    fn wait_for_workers(&mut self, signals: Option<&SignalFd>) -> Result<Arc<Engine>, RecordError> {
        let began = self.clock.now();
        let mut patience = FIRST_SCAN_TAKES;
        let mut wait = None;
        loop {
            if stop::is_signalled(signals) || self.options.stop.is_requested() {
                return Err(RecordError::Stopped);
            }
            // Without a worker the scanner needs no request.
            if let Some(report) = self.watch.scanner.wait(Duration::from_nanos(LOOK_EVERY)) {
                self.follow(report, self.clock.now());
                patience = GIVE_UP_AFTER;
            }
            if let Some(first) = self.members.first() {
                return Ok(Arc::clone(&first.worker.process.engine));
            }
            // Waiting does not help if this PHP cannot be sampled.
            let hopeless = self.watch.refused.as_deref().is_some_and(Refused::is_final);
            let waited = self.clock.now() - began;
            let is_late = !self.options.of_program
                && waited > patience
                && waited > *wait.get_or_insert_with(|| first::wait(self.options));
            if hopeless || is_late {
                return Err(RecordError::NoPhp(
                    self.watch.refused.take().map(Arc::unwrap_or_clone),
                ));
            }
        }
    }

    fn record(mut self, signals: Option<&SignalFd>, engine: Arc<Engine>) -> Recording {
        let calls = SystemCallCounts::now();
        let begun = self.begin(engine);
        let (began, until) = (begun.at, begun.until);
        let mut schedule = WakeSchedule::new(self.seed, began, self.period, self.members.len());
        let ended = loop {
            self.sleep(&schedule, until);
            let current = self.clock.now();
            if current < schedule.due() {
                self.collect(false);
            }
            if self.is_done(current, until) {
                break RunEnd::Done;
            }
            if self.options.unpaced || current >= schedule.due() {
                self.come(schedule.due(), current);
                let turn = self.turn(&mut schedule, current);
                self.take(turn);
                self.take_newborn(turn, current);
                self.take_quiescent_answer();
            }
            // New workers are noticed within 100 ms of their begin, which the scan itself takes:
            // nothing may delay that.
            while let Some(report) = self.watch.scanner.poll() {
                self.follow(report, current);
                schedule.follow(self.period, self.members.len());
            }
            if current >= self.next_look {
                self.next_look = current + LOOK_EVERY;
                if let Some(ended) = self.look(signals, &begun, current) {
                    break ended;
                }
                schedule.follow(self.period, self.members.len());
            }
        };
        // The proofs at the end do not count as sampled time.
        let took = Duration::from_nanos(self.clock.now() - began);
        self.collect(false);
        self.visit_fibers_at_the_end(&begun, began + took.as_nanos() as u64);
        self.leave_home();
        let calls = SystemCallCounts::now().since(calls);
        self.ask_at_the_end();
        self.finish(ended, &begun, took, calls)
    }

    /// Checks some ten times a second whether the run has to end, whether to look for workers, the
    /// budget, and the checkpoints.
    fn look(&mut self, signals: Option<&SignalFd>, begun: &Begun, current: u64) -> Option<RunEnd> {
        if stop::is_signalled(signals) || self.options.stop.is_requested() {
            return Some(RunEnd::Stopped);
        }
        // The target may be between two workers; a target that is gone takes the sampler with it.
        if self.watch.is_target_gone {
            return Some(RunEnd::WorkersGone);
        }
        self.watch.ask_if_moved();
        self.hold_budget(current);
        // A program may have ended when the run ends, so its extensions are read now.
        if self.totals.extensions.is_none() && self.samples() > 0 {
            self.read_extensions(&begun.engine);
        }
        self.read_error_handler(current);
        self.visit_fibers(begun, current);
        self.keep_so_far(begun, Duration::from_nanos(current - begun.at));
        None
    }

    /// Applies the result of a scan.
    fn follow(&mut self, report: ScanReport, current: u64) {
        self.watch.note(&report);
        let changes = report.changes;
        for tid in changes.gone {
            if let Some(index) = self
                .members
                .iter()
                .position(|member| member.worker.process.tid == tid)
            {
                let mut member = self.members.remove(index);
                self.sampler.functions.forget(&mut member.worker.local);
                self.workers.end(member.summed_as);
                if member.worker.process.has_parent {
                    self.watch.sampled_of_ended += member.cpu_seen();
                }
                self.count(member);
            }
        }
        for family in changes.families_gone {
            self.sampler.forget_family(family);
        }
        for process in changes.new {
            let seen = WorkerLabels {
                pid: process.pid,
                engine: Arc::clone(&process.engine),
            };
            let is_told_apart = self.workers.tell_apart(process.tid, seen);
            let summed_as = if is_told_apart {
                process.tid
            } else {
                ANY_WORKER
            };
            let mut member = Member::new(process, summed_as, current);
            if report.found == Found::Forked {
                member.begin_now();
            }
            if self.requests.asked().is_on() {
                let wanted = self.requests.asked().wanted();
                let watch = RequestWatch::new(&member.worker.process, wanted);
                member.worker.reader.request = Some(watch);
            }
            if self.options.heap {
                let process = &member.worker.process;
                member.heap = Some(HeapAccount::new(process));
                member.worker.reader.heap_watch = Some(HeapWatch::new(process.engine.layout));
            }
            self.members.push(member);
        }
    }

    /// Adds the data of a worker that has ended.
    fn count(&mut self, mut member: Member) {
        member.settle(&mut self.aggregate, self.recorder.as_mut());
        self.requests.idle(&mut member.served, self.clock.now());
        if let Some(recorder) = &mut self.recorder {
            recorder.idle(member.worker.process.tid);
        }
        self.totals.count(&member);
    }

    /// Applies the budget.
    fn hold_budget(&mut self, current: u64) {
        let checkpoints = self.options.checkpoints.as_ref();
        if checkpoints.is_some_and(|checkpoints| checkpoints.have_worked()) {
            // This runs once a minute. Without this the rate would be reduced because of it.
            self.budget.leave_out(self.clock.own_cpu(), current);
        }
        let allowed = self.budget.look(self.clock.own_cpu(), current);
        (self.period, self.sampler.has_room) = (allowed.period, allowed.proof);
    }

    /// Reads the extensions from the first worker with the receipt's engine that has them.
    fn read_extensions(&mut self, engine: &Engine) {
        let processes = self.members.iter().map(|member| &member.worker.process);
        let mut ours = processes.filter(|process| process.engine.module == engine.module);
        let read = ours.find_map(|process| process.extensions());
        self.totals.extensions = read.or(self.totals.extensions);
    }

    fn keep_so_far(&mut self, begun: &Begun, took: Duration) {
        let Some(checkpoints) = &self.options.checkpoints else {
            return;
        };
        let counted = RunCounts {
            quality: self.sampler.quality,
            idle: self.totals.idle_calls,
            workers: self.members.len(),
            samples: self.samples(),
        };
        checkpoints.observe(took, &counted);
        checkpoints.keep(took, &mut || {
            // A thread is started to keep it, which shall run anywhere.
            self.leave_home();
            let snapshot = self.snapshot(begun, took);
            if checkpoints.gives_once() {
                // CPU time that samples get later has separate rows until the end.
                self.given.absorb(std::mem::take(&mut self.aggregate));
            }
            snapshot
        });
    }
}

fn asked_period(options: &RecordingOptions) -> u64 {
    SECOND / u64::from(options.samples_per_second.max(1))
}
