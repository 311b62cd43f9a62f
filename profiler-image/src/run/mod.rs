//! The loop: look for workers, wait for the next turn, read those due, ask the quiescent reader, until the time is over.
//!
//! One thread does it all beside the quiescent reader. The duration counts from the first turn in which a worker was there. The
//! sampler holds itself to a CPU budget: beyond it the rate is halved, and the receipt says so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nix::sched::CpuSet;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use phpprof_zend::engine::Engine;

use crate::read::quiescent::QuiescentReader;
use crate::sample::{Quality, Sampler};
use crate::target::Scope;
use crate::target::diagnosis::Refused;
use crate::target::process::calls::Calls;
use crate::target::scanner::{Report, Scanner};

pub mod aggregate;
mod budget;
pub mod lateness;
mod member;
mod quiescent;
pub mod schedule;
pub mod snapshot;
pub mod stop;
mod time;
mod turn;

use aggregate::{ANY_WORKER, Aggregate};
use budget::Budget;
use lateness::Lateness;
use member::Member;
use quiescent::ASK_AT_LEAST;
use schedule::{Schedule, Turn};
use snapshot::{Counted, Keep, Samples, Snapshot};
use stop::Stop;
pub use time::own_cpu;
use time::{SECOND, now, sleep_until};

/// The budget and the checkpoints are looked after this often.
const LOOK_EVERY: u64 = SECOND / 10;
/// A target without PHP is given up after this; a starting container may not have run it yet.
const GIVE_UP_AFTER: u64 = 3 * SECOND / 2;
/// Workers of one run that are told apart: where they come and go, the samples of later ones are summed together.
const MAX_SEEN: usize = 4096;

/// What to record.
#[derive(Debug, Clone)]
pub struct Options {
    pub scope: Scope,
    pub samples_per_second: u32,
    pub duration: Duration,
    /// Ends the run after so many samples, however long it has taken.
    pub max_samples: Option<u64>,
    /// Takes samples one after the other instead of on time.
    pub unpaced: bool,
    /// Keeps the time between requests, as `[idle]`.
    pub include_idle: bool,
    /// Share of one core that the sampler may use, in percent; nothing holds it without one.
    pub cpu_budget_percent: Option<u32>,
    /// CPUs that the quiescent reader is held to; all that the kernel allows by default.
    pub quiescent_cpus: Option<CpuSet>,
    /// Ends the run from outside, as a signal does.
    pub stop: Stop,
    /// Keeps what was sampled so far while the run goes on.
    pub checkpoints: Option<Arc<dyn Keep>>,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// SIGTERM, SIGINT, SIGHUP, or a request that was cancelled: what was sampled is kept.
    Stopped,
    /// All workers went away before the time was over.
    WorkersGone,
}

/// What a sample's labels say of its worker.
#[derive(Debug, Clone)]
pub struct Seen {
    pub pid: i32,
    pub engine: Arc<Engine>,
}

/// A run's result.
#[derive(Debug)]
pub struct Recording {
    pub sampler: Sampler,
    pub aggregate: Aggregate,
    pub engine: Arc<Engine>,
    /// The JIT had compiled code for a worker.
    pub jit: bool,
    /// The workers of the run, by the number that their samples were summed under ([`crate::target::process::Process::tid`]).
    pub seen: HashMap<i32, Seen>,
    /// For each worker that was busy at least once: the share of its turns in which it was, in percent.
    pub busy_percents: Vec<u8>,
    pub ended: Ended,
    /// Unix time of the first turn, and how long the run took.
    pub began_unix_nanoseconds: i64,
    pub took: Duration,
    /// Between two samples of a worker: as it was asked for, and as it was kept.
    pub asked_period: Duration,
    pub effective_period: Duration,
    /// CPU time of workers that no running sample could be given.
    pub cpu_unattributed: Duration,
    /// Calls of the kernel that looked at targets, from the first turn to the last.
    pub calls: Calls,
    /// Those of turns that found a worker between two requests.
    pub idle_calls: Calls,
    /// How late the turns were.
    pub lateness: Lateness,
}

/// Why nothing could be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no PHP was found")]
    NoPhp(Option<Refused>),
    #[error("stopped before the first sample")]
    Stopped,
    #[error("the kernel refused what the sampler needs of it")]
    Kernel(#[from] nix::Error),
    #[error("the quiescent reader could not be started")]
    QuiescentReader(#[from] std::io::Error),
    #[error("the scanner could not be started")]
    Scanner(#[source] std::io::Error),
}

/// Records.
///
/// # Errors
/// A [`RecordError`]; nothing was sampled then.
pub fn record(options: &Options) -> Result<Recording, RecordError> {
    let mask = SigSet::thread_get_mask()?;
    let signals = stop_signals()?;
    let recording = Run::new(options).and_then(|mut run| {
        run.wait_for_workers(&signals)?;
        Ok(run.record(&signals))
    });
    // While the profile is delivered a signal ends the process again, as users expect.
    mask.thread_set_mask()?;
    recording
}

/// The state of the loop.
struct Run<'a> {
    options: &'a Options,
    scanner: Scanner,
    /// The most telling reason so far why a process of the target was not taken.
    refused: Option<Arc<Refused>>,
    is_target_gone: bool,
    members: Vec<Member>,
    sampler: Sampler,
    aggregate: Aggregate,
    quiescent: QuiescentReader,
    period: u64,
    next_look: u64,
    next_ask: u64,
    ask_interval: u64,
    budget: Budget,
    busy_percents: Vec<u8>,
    /// Nanoseconds of CPU that no sample could be given, of workers that have ended.
    cpu_unattributed: u64,
    idle_calls: Calls,
    lateness: Lateness,
    engine: Option<Arc<Engine>>,
    /// The JIT has compiled code for a worker.
    jit: bool,
    seen: HashMap<i32, Seen>,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options) -> Result<Self, RecordError> {
        // The default slack of 50 µs would be added to each wake-up.
        let _ = nix::sys::prctl::set_timerslack(1);
        Ok(Self {
            options,
            scanner: Scanner::start(options.scope.clone()).map_err(RecordError::Scanner)?,
            refused: None,
            is_target_gone: false,
            members: Vec::new(),
            sampler: Sampler::new(),
            aggregate: Aggregate::default(),
            quiescent: QuiescentReader::start(options.quiescent_cpus)?,
            period: asked_period(options),
            next_look: 0,
            next_ask: 0,
            ask_interval: ASK_AT_LEAST,
            budget: Budget::new(None, asked_period(options), 0, now(), u64::MAX),
            busy_percents: Vec::new(),
            cpu_unattributed: 0,
            idle_calls: Calls::default(),
            lateness: Lateness::default(),
            engine: None,
            jit: false,
            seen: HashMap::new(),
        })
    }

    fn wait_for_workers(&mut self, signals: &SignalFd) -> Result<(), RecordError> {
        let began = now();
        loop {
            if stopped(signals) || self.options.stop.is_requested() {
                return Err(RecordError::Stopped);
            }
            let Some(report) = self.scanner.wait(Duration::from_nanos(LOOK_EVERY)) else {
                continue;
            };
            self.follow(report, now());
            if !self.members.is_empty() {
                return Ok(());
            }
            // PHP that cannot be sampled will not become so by waiting.
            let hopeless = self.refused.as_deref().is_some_and(Refused::is_final);
            if hopeless || now() - began > GIVE_UP_AFTER {
                return Err(RecordError::NoPhp(
                    self.refused.take().map(Arc::unwrap_or_clone),
                ));
            }
        }
    }

    fn record(mut self, signals: &SignalFd) -> Recording {
        let began_unix_nanoseconds =
            clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.num_nanoseconds());
        let (began, calls) = (now(), Calls::now());
        let until = began + u64::try_from(self.options.duration.as_nanos()).unwrap_or(u64::MAX / 2);
        let percent = self
            .options
            .cpu_budget_percent
            .filter(|_| !self.options.unpaced);
        self.budget = Budget::new(percent, self.period, own_cpu(), began, until);
        let mut schedule = Schedule::new(began, self.period, self.members.len());
        let ended = loop {
            if !self.options.unpaced {
                sleep_until(schedule.due().min(until).min(self.next_look));
            }
            let current = now();
            let max = self.options.max_samples;
            if current >= until || max.is_some_and(|max| self.samples() >= max) {
                break Ended::Done;
            }
            if self.options.unpaced || current >= schedule.due() {
                let turn = self.turn(&mut schedule, current);
                self.take(turn);
                self.take_quiescent_answer();
            }
            // New workers are noticed within 100 ms of their begin, the scan's own time: nothing may be added to that.
            while let Some(report) = self.scanner.poll() {
                self.follow(report, current);
                schedule.follow(self.period, self.members.len());
            }
            if current >= self.next_look {
                self.next_look = current + LOOK_EVERY;
                if let Some(ended) = self.look(signals, began_unix_nanoseconds, current, began) {
                    break ended;
                }
                schedule.follow(self.period, self.members.len());
            }
        };
        // The last proofs are no part of the time that was sampled.
        let took = Duration::from_nanos(now() - began);
        let calls = Calls::now().since(calls);
        self.ask_at_the_end();
        self.finish(ended, began_unix_nanoseconds, took, calls)
    }

    /// What is looked after ten times a second: whether the run shall end, the budget, the checkpoints.
    fn look(
        &mut self,
        signals: &SignalFd,
        began_unix_nanoseconds: i64,
        current: u64,
        began: u64,
    ) -> Option<Ended> {
        if stopped(signals) || self.options.stop.is_requested() {
            return Some(Ended::Stopped);
        }
        // The target may be between two workers; one that is gone takes the sampler with it.
        if self.is_target_gone {
            return Some(Ended::WorkersGone);
        }
        self.hold_budget(current);
        let took = Duration::from_nanos(current - began);
        self.keep_so_far(began_unix_nanoseconds, took);
        None
    }

    fn turn(&mut self, schedule: &mut Schedule, current: u64) -> Turn {
        if self.options.unpaced {
            return Turn {
                group: 0,
                groups: 1,
                missed: 0,
            };
        }
        self.lateness.add(current.saturating_sub(schedule.due()));
        let turn = schedule.take(current);
        let members = self.members.len().div_ceil(turn.groups) as u64;
        self.sampler.quality.late += turn.missed * members;
        self.sampler.quality.due += turn.missed * members;
        turn
    }

    /// Takes over what a scan has found.
    fn follow(&mut self, report: Report, current: u64) {
        let changes = report.changes;
        self.refused = report.refused;
        self.is_target_gone = report.is_target_gone;
        for tid in changes.gone {
            if let Some(index) = self
                .members
                .iter()
                .position(|member| member.worker.process.tid == tid)
            {
                let mut member = self.members.remove(index);
                self.sampler.functions.forget(&mut member.worker.local);
                self.count(member);
            }
        }
        for family in changes.families_gone {
            self.sampler.forget_family(family);
        }
        for process in changes.new {
            self.engine
                .get_or_insert_with(|| Arc::clone(&process.engine));
            let seen = Seen {
                pid: process.pid,
                engine: Arc::clone(&process.engine),
            };
            let is_told_apart = tell_apart(&mut self.seen, process.tid, seen);
            let summed_as = if is_told_apart {
                process.tid
            } else {
                ANY_WORKER
            };
            self.members.push(Member::new(process, summed_as, current));
        }
    }

    /// Takes a worker that has ended into the account.
    fn count(&mut self, mut member: Member) {
        member.settle(&mut self.aggregate);
        self.jit |= member.worker.reader.has_jit_code == Some(true);
        self.busy_percents.extend(member.busy_percent());
        self.cpu_unattributed += member.cpu_unattributed();
    }

    /// Does what the budget allows.
    fn hold_budget(&mut self, current: u64) {
        let checkpoints = self.options.checkpoints.as_ref();
        if checkpoints.is_some_and(|checkpoints| checkpoints.have_worked()) {
            // Once a minute; the rate would be cut for it.
            self.budget.leave_out(own_cpu(), current);
        }
        let allowed = self.budget.look(own_cpu(), current);
        (self.period, self.sampler.has_room) = (allowed.period, allowed.proof);
    }

    fn keep_so_far(&mut self, began_unix_nanoseconds: i64, took: Duration) {
        let (Some(checkpoints), Some(engine)) = (&self.options.checkpoints, self.engine.clone())
        else {
            return;
        };
        let counted = Counted {
            quality: self.sampler.quality,
            idle: self.idle_calls,
        };
        checkpoints.observe(took, &counted);
        checkpoints.keep(took, &mut || {
            self.snapshot(&engine, began_unix_nanoseconds, took)
        });
    }

    fn snapshot(
        &mut self,
        engine: &Arc<Engine>,
        began_unix_nanoseconds: i64,
        took: Duration,
    ) -> Snapshot {
        for member in &mut self.members {
            member.settle(&mut self.aggregate);
        }
        let has_jit_code = |member: &Member| member.worker.reader.has_jit_code == Some(true);
        let busy = self.members.iter().filter_map(Member::busy_percent);
        let unattributed: u64 = self.members.iter().map(Member::cpu_unattributed).sum();
        Snapshot {
            samples: Samples::of(&self.sampler, &self.aggregate),
            engine: Arc::clone(engine),
            jit: self.jit || self.members.iter().any(has_jit_code),
            seen: self.seen.clone(),
            busy_percents: self.busy_percents.iter().copied().chain(busy).collect(),
            began_unix_nanoseconds,
            took,
            asked_period: Duration::from_nanos(asked_period(self.options)),
            effective_period: Duration::from_nanos(self.budget.effective_period(now())),
            cpu_unattributed: Duration::from_nanos(self.cpu_unattributed + unattributed),
        }
    }

    fn samples(&self) -> u64 {
        let Quality { taken, idle, .. } = self.sampler.quality;
        taken - idle
    }

    fn finish(
        mut self,
        ended: Ended,
        began_unix_nanoseconds: i64,
        took: Duration,
        calls: Calls,
    ) -> Recording {
        let effective_period = Duration::from_nanos(self.budget.effective_period(now()));
        for member in std::mem::take(&mut self.members) {
            self.count(member);
        }
        // `wait_for_workers` has found one.
        let engine = self
            .engine
            .expect("a run begins with its first worker, which brings its engine");
        Recording {
            sampler: self.sampler,
            aggregate: self.aggregate,
            engine,
            jit: self.jit,
            seen: self.seen,
            busy_percents: self.busy_percents,
            ended,
            began_unix_nanoseconds,
            took,
            asked_period: Duration::from_nanos(asked_period(self.options)),
            effective_period,
            cpu_unattributed: Duration::from_nanos(self.cpu_unattributed),
            calls,
            idle_calls: self.idle_calls,
            lateness: self.lateness,
        }
    }
}

/// Notes a worker where there is room, or where its number was another's before.
fn tell_apart(seen: &mut HashMap<i32, Seen>, tid: i32, worker: Seen) -> bool {
    let has_room = seen.len() < MAX_SEEN || seen.contains_key(&tid);
    if has_room {
        seen.insert(tid, worker);
    }
    has_room
}

fn asked_period(options: &Options) -> u64 {
    SECOND / u64::from(options.samples_per_second.max(1))
}

/// SIGTERM, SIGINT and SIGHUP are taken as a request to stop, and looked at between two turns. As PID 1 of nothing and without
/// a handler a container would ignore SIGTERM. Whoever starts the sampler with `nohup` wants it to outlive its terminal.
fn stop_signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    if !stop::is_hangup_ignored() {
        set.add(Signal::SIGHUP);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

fn stopped(signals: &SignalFd) -> bool {
    matches!(signals.read_signal(), Ok(Some(_)))
}
