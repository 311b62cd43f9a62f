//! Reads workers on their own CPUs, at times that were drawn beforehand.
//!
//! A thread that is bound to a CPU and sleeps there is woken by that CPU's own timer. The timer
//! interrupts whatever runs there, at any instruction, and while the thread reads, the worker does
//! not run. So the read is of one moment, and which moment does not depend on the stack: a function
//! is read as often as it runs, however short its calls are.
//!
//! A wake-up from another CPU would not do. The kernel marks the worker before its CPU hears of the
//! interrupt, so the worker often gives way at the end of its next system call, and functions that
//! make system calls have nearly all samples (measured: 99.5 % for 84 %).
//!
//! The loop's own thread reads the workers of one CPU, and a [`CpuReader`] those of each other one.
//! Invariant: an answer is [`JobAnswer::Observed`] only if the worker was asleep, or waited for the
//! reader's CPU, when its stack had been read.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::Pid;
use phpprof_zend::Layout;

use super::clocks::SchedStat;
use super::place::{KnownPlace, OwnCpu, OwnTimes, Stands, now};
use super::punctuality::{Punctuality, is_late};
use super::quiescent::{Heads, Observation, observe};
use super::reader::Reader;
use crate::raw::shorten_slices;
use crate::target::process::stat::Watch;

/// The largest number of readers. The workers of further CPUs are read from another CPU.
const MAX_READERS: usize = 64;
/// A turn that is due sooner than this, in nanoseconds, begins before a reader can fall asleep.
const SOONEST: u64 = 15_000;
/// The time slices of threads that read, in nanoseconds. With longer ones a thread that wakes up
/// does not get the CPU of a worker that has woken up in the last three milliseconds: what runs
/// after a sleep would not be sampled.
pub const SLICE: u64 = 100_000;
/// A worker to read.
#[derive(Debug)]
pub struct ReadJob {
    /// The worker's index among the members.
    pub index: usize,
    /// The worker's reader, lent to the job.
    pub reader: Box<Reader>,
    /// Tells where the worker is.
    pub watch: Arc<Watch>,
    /// The row of the worker's engine.
    pub layout: &'static Layout,
    /// Memory that the worker shares with others.
    pub shared_ranges: Arc<[Range<u64>]>,
    /// Its numbers when it was last read and did not run: if they are the same, it is not read.
    pub unmoved: Option<SchedStat>,
    /// Where it was last seen.
    pub place: KnownPlace,
    /// Memory for the answer.
    pub observation: Observation,
}

/// What a reader found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAnswer {
    /// The turn was not reached yet.
    Pending,
    /// The worker has not run since it was last read.
    Unmoved,
    /// The job's observation is the worker's stack.
    Observed {
        /// Where the worker was.
        stands: Stands,
        /// Its numbers after the read.
        numbers: SchedStat,
        /// Whether it was on the CPU when the reader came there, if that is in doubt.
        was_on_cpu: Option<bool>,
    },
    /// There was no moment: the worker ran on another CPU, or has no stack.
    Elsewhere,
    /// The reader was kept from its CPU, and the worker has run since it was last read.
    Late,
}

/// When the readers wake up; nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WakeTimes {
    /// The next turn.
    pub due: u64,
    /// The turn after that.
    pub next: u64,
}

/// The readers, one for each CPU but that of the loop's thread.
#[derive(Debug)]
pub struct CpuReaders {
    /// The CPUs of this process.
    all: CpuSet,
    /// Those that may be used.
    allowed: CpuSet,
    readers: Vec<CpuReader>,
    /// Memory of answers that were used.
    spare: Vec<Observation>,
    /// The workers whose readers are lent.
    lent: Vec<usize>,
    unfinished: Arc<Unfinished>,
}

/// How many readers have not done their jobs yet.
#[derive(Debug, Default)]
struct Unfinished {
    count: Mutex<usize>,
    none: Condvar,
}

#[derive(Debug)]
struct CpuReader {
    cpu: usize,
    shared: Arc<SharedTurn>,
    given: Vec<ReadJob>,
    punctuality: Punctuality,
    _handle: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct SharedTurn {
    turn: Mutex<ReaderTurn>,
    armed: Condvar,
}

/// The turn of one reader.
#[derive(Debug, Default)]
struct ReaderTurn {
    wakes: WakeTimes,
    jobs: Vec<(ReadJob, JobAnswer)>,
    /// The reader was kept from its CPU.
    is_late: bool,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// There is nothing to do.
    #[default]
    Empty,
    /// The jobs wait for their time.
    Armed,
    /// The jobs were done at this time.
    Done(u64),
    /// The run is over.
    Over,
}

/// What a reader does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    End,
    /// Wait until there are jobs.
    Wait,
    SleepUntil(u64),
    Read,
}

impl Stage {
    /// The next step at this time.
    fn step(self, wakes: WakeTimes, now: u64) -> Step {
        let WakeTimes { due, next } = wakes;
        let sleep_or = |until: u64, step: Step| {
            if now < until {
                Step::SleepUntil(until)
            } else {
                step
            }
        };
        match self {
            Self::Over => Step::End,
            Self::Empty => Step::Wait,
            Self::Armed => sleep_or(due, Step::Read),
            // It falls asleep here, so that the next turn's timer is this CPU's.
            Self::Done(_) => sleep_or(next, Step::Wait),
        }
    }
}

impl CpuReaders {
    /// No reader yet. `allowed` restricts their CPUs, as an exclusive cpuset would.
    ///
    /// # Errors
    /// If this process cannot ask which CPUs it may use.
    pub fn new(allowed: Option<CpuSet>) -> std::io::Result<Self> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        Ok(Self {
            all,
            allowed: allowed.unwrap_or(all),
            readers: Vec::new(),
            spare: Vec::new(),
            lent: Vec::new(),
            unfinished: Arc::default(),
        })
    }

    /// Whether workers on this CPU can be read there.
    #[must_use]
    pub fn may_use(&self, cpu: usize) -> bool {
        let mut readers = self.readers.iter();
        let has_room = match readers.find(|reader| reader.cpu == cpu) {
            Some(reader) => reader.punctuality.may_be_bound(),
            None => self.readers.len() < MAX_READERS,
        };
        self.allowed.is_set(cpu).unwrap_or(false) && has_room
    }

    /// Begins to prepare a turn.
    pub fn prepare(&mut self) {
        for reader in &mut self.readers {
            reader.punctuality.pass();
        }
    }

    /// Binds this thread to a CPU. Returns whether it is bound; if not, that CPU is not tried
    /// again.
    pub fn bind(&mut self, cpu: usize) -> bool {
        let mut one = CpuSet::new();
        let is_bound = one.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(0), &one).is_ok();
        if !is_bound {
            let _ = self.allowed.unset(cpu);
        }
        is_bound
    }

    /// Lets this thread run on each CPU again.
    pub fn unbind(&self) {
        let _ = sched_setaffinity(Pid::from_raw(0), &self.all);
    }

    /// Whether jobs are out.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.lent.is_empty()
    }

    /// The workers whose readers are lent.
    #[must_use]
    pub fn lent(&self) -> &[usize] {
        &self.lent
    }

    /// Memory for a job's answer.
    pub fn spare(&mut self) -> Observation {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back the memory of an answer.
    pub fn keep(&mut self, observation: Observation) {
        self.spare.push(observation);
    }

    /// Gives a job to the reader of a CPU.
    ///
    /// # Errors
    /// The job, if no thread can be started. That CPU is not tried again.
    pub fn give(&mut self, cpu: usize, job: ReadJob) -> Result<(), Box<ReadJob>> {
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.cpu == cpu) {
            reader.given.push(job);
            return Ok(());
        }
        match CpuReader::start(cpu, Arc::clone(&self.unfinished)) {
            Ok(mut reader) => {
                reader.given.push(job);
                self.readers.push(reader);
                Ok(())
            }
            Err(_) => {
                let _ = self.allowed.unset(cpu);
                Err(Box::new(job))
            }
        }
    }

    /// Whether there is time to arm the readers for a turn.
    #[must_use]
    pub fn is_in_time(due: u64, now: u64) -> bool {
        due >= now.saturating_add(SOONEST)
    }

    /// Sends the given jobs off.
    pub fn arm(&mut self, wakes: WakeTimes) {
        let with_jobs = self.readers.iter_mut().filter(|it| !it.given.is_empty());
        let mut unfinished = self.unfinished.lock();
        for reader in with_jobs {
            *unfinished += 1;
            let mut turn = reader.shared.lock();
            turn.wakes = wakes;
            turn.stage = Stage::Armed;
            let lent = reader.given.iter().map(|job| job.index);
            self.lent.extend(lent);
            let jobs = reader.given.drain(..);
            turn.jobs.extend(jobs.map(|job| (job, JobAnswer::Pending)));
            drop(turn);
            reader.shared.armed.notify_one();
        }
    }

    /// Waits until each reader has done its jobs, but not for longer.
    pub fn wait(&self, longest: Duration) {
        let unfinished = self.unfinished.lock();
        let waited = self
            .unfinished
            .none
            .wait_timeout_while(unfinished, longest, |count| *count > 0);
        drop(waited);
    }

    /// Takes all jobs back: each with its answer, and when that was given. `take` returns memory
    /// that is not needed.
    pub fn collect(
        &mut self,
        mut take: impl FnMut(ReadJob, JobAnswer, u64) -> Option<Observation>,
    ) {
        self.lent.clear();
        *self.unfinished.lock() = 0;
        for reader in &mut self.readers {
            let mut turn = reader.shared.lock();
            let at = match turn.stage {
                Stage::Done(at) => at,
                _ => 0,
            };
            if at == 0 {
                turn.stage = Stage::Empty;
            }
            if at > 0 && !turn.jobs.is_empty() {
                reader.punctuality.note(turn.is_late);
            }
            for (job, answer) in turn.jobs.drain(..) {
                self.spare.extend(take(job, answer, at));
            }
        }
    }
}

impl Drop for CpuReaders {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.shared.lock().stage = Stage::Over;
            reader.shared.armed.notify_one();
        }
    }
}

impl Unfinished {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One reader has done its jobs.
    fn finish_one(&self) {
        let mut count = self.lock();
        // Jobs that were taken back count no more.
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.none.notify_one();
        }
    }
}

impl SharedTurn {
    fn lock(&self) -> MutexGuard<'_, ReaderTurn> {
        // A reader that has panicked has answered no job by halves.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CpuReader {
    fn start(cpu: usize, unfinished: Arc<Unfinished>) -> std::io::Result<Self> {
        let mut set = CpuSet::new();
        set.set(cpu)?;
        let shared = Arc::<SharedTurn>::default();
        let of_thread = Arc::clone(&shared);
        let handle = Builder::new()
            .name(format!("cpu{cpu}"))
            .stack_size(256 << 10)
            .spawn(move || {
                if sched_setaffinity(Pid::from_raw(0), &set).is_ok() {
                    // The default slack of 50 µs would be added to each wake-up.
                    let _ = nix::sys::prctl::set_timerslack(1);
                    shorten_slices(SLICE);
                    read_turns(&of_thread, cpu, &unfinished);
                }
            })?;
        Ok(Self {
            cpu,
            shared,
            given: Vec::new(),
            punctuality: Punctuality::default(),
            _handle: handle,
        })
    }
}

/// Reads turn by turn, until the run is over.
fn read_turns(shared: &SharedTurn, cpu: usize, unfinished: &Unfinished) {
    let (mut heads, mut own) = (Heads::default(), OwnTimes::open());
    let mut turn = shared.lock();
    loop {
        match turn.stage.step(turn.wakes, now()) {
            Step::End => return,
            Step::Wait => {
                let armed = shared.armed.wait(turn);
                turn = armed.unwrap_or_else(PoisonError::into_inner);
            }
            Step::SleepUntil(at) => {
                drop(turn);
                sleep_until(at);
                turn = shared.lock();
            }
            Step::Read => {
                let came_at = now();
                let arrival = own.come();
                let here = OwnCpu {
                    number: cpu,
                    used: arrival.used,
                };
                turn.is_late = is_late(turn.wakes.due, came_at, arrival);
                let is_late = turn.is_late;
                for (job, answer) in &mut turn.jobs {
                    *answer = if is_unmoved(job) {
                        JobAnswer::Unmoved
                    } else if is_late {
                        JobAnswer::Late
                    } else {
                        let read = read(job, here, came_at, &own, &mut heads);
                        read.unwrap_or(JobAnswer::Elsewhere)
                    };
                }
                turn.stage = Stage::Done(now());
                drop(turn);
                unfinished.finish_one();
                turn = shared.lock();
            }
        }
    }
}

/// The numbers of a job's worker now.
fn numbers(job: &ReadJob) -> Option<SchedStat> {
    job.watch.numbers().map(SchedStat::from)
}

/// Whether a job's worker has not run since it was last read.
fn is_unmoved(job: &ReadJob) -> bool {
    job.unmoved.is_some() && job.unmoved == numbers(job)
}

/// Reads one worker; `None` if there is no moment.
fn read(
    job: &mut ReadJob,
    here: OwnCpu,
    came_at: u64,
    own: &OwnTimes,
    heads: &mut Heads,
) -> Option<JobAnswer> {
    let (reader, observation) = (&mut job.reader, &mut job.observation);
    let is_read = observe(reader, job.layout, &job.shared_ranges, observation, heads);
    let numbers = numbers(job)?;
    let watch = &job.watch;
    let stands = job.place.find(here, numbers, now(), || watch.state())?;
    is_read?;
    let is_in_doubt = stands == Stands::Displaced && !job.place.is_steady;
    Some(JobAnswer::Observed {
        stands,
        numbers,
        was_on_cpu: if is_in_doubt {
            own.was_on_cpu(watch, came_at)
        } else {
            None
        },
    })
}

fn sleep_until(at: u64) {
    let time = TimeSpec::nanoseconds(i64::try_from(at).unwrap_or(i64::MAX));
    let _ = clock_nanosleep(
        ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &time,
    );
}

#[cfg(test)]
mod tests;
