//! A worker in a run: when it was last sampled, whether it has slept since, and which of its
//! samples still wait for their CPU time.

use std::sync::Arc;

use nix::sched::sched_getcpu;

use super::aggregate::{Aggregate, StackSum};
use super::fiber_turn::FiberTurn;
use super::heap::HeapAccount;
use super::recorder::Recorder;
use super::requests::{Fate, Served};
use super::schedule::{IDLE_TOGETHER, SampleSlot, SampleTurn};
use super::time::SECOND;
use crate::read::clocks::{Mark, SchedStat};
use crate::read::cpu_shares::{ClockedSample, CpuShares};
use crate::read::on_cpu::{Activity, Contention, CountsOfRead, CpuProofs, Presence};
use crate::read::own_cpu::JobAnswer;
use crate::read::quiescent::Observation;
use crate::read::wait_shares::{WaitSample, WaitShares};
use crate::read::worker::Worker;
use crate::stack::names::NameId;
use crate::stack::trace::SummedStack;
use crate::target::process::Process;
use crate::target::process::held::{Held, HeldFiles};

/// Nanoseconds between two checks of the program.
const CHECK_EVERY: u64 = 80 * SECOND / 1000;

/// After this many samples in which a worker ran, it is not expected to sleep in the next one.
const RUNS: u32 = 8;

/// The kernel counts the time of a thread that runs at each of its ticks, at least a hundred times
/// a second.
const STILL_FOR: u64 = SECOND / 20;

/// A worker in a run.
#[derive(Debug)]
pub struct Member {
    pub worker: Worker,
    /// The number that its samples are summed under: its thread's, or
    /// [`ANY_WORKER`](super::aggregate::ANY_WORKER).
    pub summed_as: i32,
    /// When it was sampled last, or attached; nanoseconds of the monotonic clock.
    pub sampled_at: u64,
    /// The end of the time that its samples represent so far.
    sampled_to: Option<u64>,
    /// When to check whether its process still runs the program that was examined.
    check_at: u64,
    /// When to ask for its error handler again; see [`super::error_handlers`].
    pub handler_due: u64,
    /// When its suspended fibers are visited.
    pub fibers: FiberTurn,
    /// What was read on its own CPU in this turn.
    pub read: Option<OwnRead>,
    /// What it was last read as, if it did not run then.
    pub unmoved: Option<Unmoved>,
    /// Opened when it is first asked what holds it.
    held_files: Option<HeldFiles>,
    /// In how many samples up to the last it ran.
    ran: u32,
    /// The numbers of its thread when they last changed, or were doubted, and when that was.
    moved: Option<(SchedStat, u64)>,
    /// How many turns it was busy, and how many it was between requests, in parts of a turn
    /// ([`IDLE_TOGETHER`]).
    busy_turns: u64,
    idle_turns: u64,
    /// Whether its last sample was in a request.
    was_in_request: bool,
    /// For how many of these its sample in this turn stands.
    pub stands_for: u64,
    /// The requests that it serves, if they are requested.
    pub served: Served,
    /// The changes of its heap, if they are requested.
    pub heap: Option<HeapAccount>,
    cpu: CpuShares<LeafFate>,
    /// Its waits for a CPU.
    waits: WaitShares<Fate>,
    /// Whether it has waited for a CPU lately.
    pub contention: Contention,
    /// CPU time that it has used between requests, in nanoseconds, unless samples have it.
    cpu_idle: u64,
}

/// What was read on a worker's own CPU.
#[derive(Debug)]
pub struct OwnRead {
    pub answer: JobAnswer,
    pub observation: Observation,
    /// When; nanoseconds of the monotonic clock.
    pub at: u64,
}

/// A worker that did not run when it was read.
#[derive(Debug, Clone, Copy)]
pub struct Unmoved {
    /// The worker's mark, which is the same until it runs.
    pub mark: Mark,
    /// `None` between requests.
    pub stack: Option<SummedStack>,
    /// Whether it could go on; `None` if nobody has asked yet.
    pub held: Option<Held>,
    /// It waits for a CPU; if not, it sleeps.
    pub is_queued: bool,
}

/// What a worker did in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It did not sleep, and nothing shows that it waited for a CPU.
    Ran,
    /// It waited for a CPU.
    Queued,
    Slept(Held),
}

/// A sample that waits for its CPU time.
#[derive(Debug, Clone, Copy)]
pub struct LeafFate {
    pub fate: Fate,
    /// The function of its leaf as far as it was known when the sample was taken; any between
    /// requests.
    pub leaf: NameId,
}

/// A sample that waits for its CPU time, and for its wait.
#[derive(Debug, Clone, Copy)]
pub struct UnspentSample {
    pub sample: LeafFate,
    /// The time that it represents, in nanoseconds.
    pub wall: u64,
}

/// What the scheduler told in a sample.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerSight {
    /// The worker's numbers.
    pub look: SchedStat,
    /// What the worker did.
    pub activity: Activity,
}

impl Did {
    /// Whether it could continue.
    #[must_use]
    pub fn held(self) -> Held {
        match self {
            Did::Ran | Did::Queued => Held::No,
            Did::Slept(held) => held,
        }
    }
}

impl Member {
    /// A worker that was just found.
    #[must_use]
    pub fn new(process: Arc<Process>, summed_as: i32, now: u64) -> Self {
        Self {
            worker: Worker::new(process),
            summed_as,
            sampled_at: now,
            sampled_to: None,
            check_at: now,
            handler_due: now,
            fibers: FiberTurn::new(now),
            read: None,
            unmoved: None,
            held_files: None,
            ran: 0,
            moved: None,
            busy_turns: 0,
            idle_turns: 0,
            was_in_request: false,
            stands_for: IDLE_TOGETHER,
            served: Served::default(),
            heap: None,
            cpu: CpuShares::default(),
            waits: WaitShares::default(),
            contention: Contention::default(),
            cpu_idle: 0,
        }
    }

    /// Notes that it was forked a moment ago: what its clock has until its first sample is its own.
    pub fn begin_now(&mut self) {
        self.cpu = CpuShares::from_birth();
        self.waits = WaitShares::from_birth();
    }

    /// Whether it has had no sample yet.
    #[must_use]
    pub fn is_unsampled(&self) -> bool {
        self.sampled_to.is_none()
    }

    /// Whether its PHP has fibers.
    #[must_use]
    pub fn has_fibers(&self) -> bool {
        self.worker.process.engine.layout.fiber.is_some()
    }

    /// Its CPU time since it is watched, in nanoseconds.
    #[must_use]
    pub fn cpu_seen(&self) -> u64 {
        self.cpu.seen()
    }

    /// The worker's mark before it is read, unless it has run for so long, without a wait for a
    /// CPU, that its clock, which the kernel reads slowly while it runs, is not worth it. If it
    /// sleeps nonetheless, it is only read once more.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let is_wanted = self.ran < RUNS || self.contention.is_likely();
        is_wanted.then(|| self.worker.clocks.mark())?
    }

    /// What it did in a sample. The numbers are those before the stack was read, and after; it
    /// sleeps after that, or not.
    pub fn activity(
        &mut self,
        before: Option<SchedStat>,
        after: Option<SchedStat>,
        is_asleep: bool,
        told: &mut CpuProofs,
    ) -> Activity {
        if is_asleep {
            return Activity::Slept;
        }
        if !self.contention.is_likely() {
            return Activity::Runnable;
        }
        let looks = before.zip(after);
        let activity = looks.and_then(|(before, after)| self.watched(before, after));
        match activity {
            None => told.uncounted += 1,
            Some(Activity::Changed) => told.changed += 1,
            Some(_) => {}
        }
        activity.unwrap_or(Activity::Runnable)
    }

    /// The same by the counts of its switches; `None` if these tell nothing.
    fn watched(&mut self, before: SchedStat, after: SchedStat) -> Option<Activity> {
        let clocks = &mut self.worker.clocks;
        let departures = clocks.departures()?;
        let counts = CountsOfRead {
            before,
            after,
            departures,
            last: clocks.look().ok()?,
        };
        match counts.presence() {
            Presence::On => Some(Activity::Ran),
            Presence::Changed => Some(Activity::Changed),
            Presence::Uncounted => {
                clocks.ignore_departures();
                None
            }
            Presence::Off => {
                let (state, cpu) = clocks.state()?;
                if state != 'R' {
                    return Some(Activity::Slept);
                }
                let ran_before = self.cpu.last().map(|look| look.run_nanoseconds);
                let has_run = ran_before.is_some_and(|before| before < after.run_nanoseconds);
                let here = sched_getcpu() == Ok(cpu);
                let displaced = here && has_run;
                Some(Activity::Queued { displaced })
            }
        }
    }

    /// Notes that it is asked in this turn, in which so many workers were between requests.
    pub fn ask(&mut self, turn: &SampleTurn, idle: usize) {
        let from = turn.from_of_idle(idle).filter(|_| self.is_idle());
        self.sampled_to = from.or(self.sampled_to);
        self.stands_for = from.map_or(IDLE_TOGETHER, |_| idle as u64);
    }

    /// Whether it served a request, or ran a script, when it was last sampled.
    #[must_use]
    pub fn is_in_request(&self) -> bool {
        self.was_in_request
    }

    /// Counts a sample in a request, or between two.
    pub fn count_turn(&mut self, in_request: bool) {
        let turns = if in_request {
            &mut self.busy_turns
        } else {
            &mut self.idle_turns
        };
        *turns += self.stands_for;
        self.was_in_request = in_request;
    }

    /// Whether it slept between requests when it was last asked.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_idle = |unmoved: Unmoved| unmoved.stack.is_none() && !unmoved.is_queued;
        self.unmoved.is_some_and(is_idle)
    }

    /// What it was read as if it has not run since, by its current mark.
    #[must_use]
    pub fn still_unmoved(&self, mark: Option<Mark>) -> Option<Unmoved> {
        self.unmoved.filter(|unmoved| Some(unmoved.mark) == mark)
    }

    /// Notes a sample now; returns the time that it represents: the rest of the slots up to the
    /// current one, or without a schedule the time since the last sample.
    pub fn sampled(&mut self, now: u64, slot: Option<SampleSlot>) -> SampleSlot {
        let last = std::mem::replace(&mut self.sampled_at, now);
        let represented = match slot {
            Some(slot) => slot.since(self.sampled_to, last),
            None => SampleSlot {
                from: last,
                to: now,
            },
        };
        self.sampled_to = self.sampled_to.max(Some(represented.to));
        represented
    }

    /// Whether it seems to run, but the kernel has not counted that for [`STILL_FOR`]: it waits for
    /// a CPU, or was stopped in its code. Then it is asked at most as often.
    pub fn stands_still(&mut self, look: Option<SchedStat>, now: u64) -> bool {
        let Some(look) = look else {
            return false;
        };
        let since = self.moved.filter(|(last, _)| *last == look);
        let stands = since.is_some_and(|(_, since)| now.saturating_sub(since) >= STILL_FOR);
        if since.is_none() || stands {
            self.moved = Some((look, now));
        }
        stands
    }

    /// Asks the kernel whether it can continue.
    #[must_use]
    pub fn held(&mut self) -> Held {
        let (pid, tid) = (self.worker.process.pid, self.worker.process.tid);
        let open = || HeldFiles::open(pid, tid);
        self.held_files.get_or_insert_with(open).held()
    }

    /// Remembers whether it ran in its newest sample.
    pub fn note(&mut self, ran: bool) {
        self.ran = if ran { self.ran.saturating_add(1) } else { 0 };
    }

    /// Whether its process still runs the program that was examined, checked about ten times a
    /// second: an `execve` gives it another memory, in which the same addresses may have other
    /// contents.
    pub fn runs_the_same_program(&mut self, now: u64) -> bool {
        if now < self.check_at {
            return true;
        }
        let process = &self.worker.process;
        let is_same =
            process.memory.bound_word(process.engine.fingerprint_at) == Ok(process.fingerprint);
        if is_same {
            self.check_at = now + CHECK_EVERY;
        }
        is_same
    }

    /// The percentage of its turns in which it was busy, if it ever was.
    #[must_use]
    pub fn busy_percent(&self) -> Option<u8> {
        let turns = self.busy_turns + self.idle_turns;
        let percent = (self.busy_turns * 100 + turns / 2).checked_div(turns)?;
        u8::try_from(percent).ok().filter(|_| self.busy_turns > 0)
    }

    /// Tells its samples that wait for their CPU time, or hold memory, what became of their request
    /// if that was young.
    pub fn decide(&mut self) {
        let Some(is_kept) = self.served.decided() else {
            return;
        };
        let decide = |fate: &mut Fate| *fate = fate.decided(is_kept);
        self.cpu.each(|sample| decide(&mut sample.fate));
        self.waits.each(decide);
        if let Some(heap) = &mut self.heap {
            heap.each(decide);
        }
    }

    /// Takes the CPU time that has become visible in the newest sample, and distributes it to the
    /// samples in which the worker ran; the same with the waits for a CPU. `newest` is the sample
    /// and its wall time.
    pub fn spend(
        &mut self,
        seen: SchedulerSight,
        newest: UnspentSample,
        aggregate: &mut Aggregate,
        recorder: Option<&mut Recorder>,
    ) {
        let (summed_as, tid) = (self.summed_as, self.worker.process.tid);
        let (served, idle) = (&mut self.served, &mut self.cpu_idle);
        let give = give_to(served, idle, aggregate, recorder, summed_as, tid);
        let SchedulerSight { look, activity } = seen;
        // Its waits for the sampler are none that it would have without it.
        let gave_way = self.worker.place.gave_way;
        let look = SchedStat {
            delay_nanoseconds: look.delay_nanoseconds.saturating_sub(gave_way),
            ..look
        };
        let UnspentSample { sample, wall } = newest;
        let newest = ClockedSample {
            at: self.sampled_at,
            look,
            activity,
            sample,
        };
        self.cpu.add(newest, give);
        self.contention.add(self.sampled_at, look);
        let is_queued = matches!(activity, Activity::Queued { .. });
        let newest = WaitSample {
            wall,
            is_queued,
            sample: sample.fate,
        };
        let served = &mut self.served;
        let label = |fate, share| served.label_wait(fate, summed_as, share, aggregate);
        self.waits.add(look, newest, label);
    }

    /// Distributes the CPU time so far to the samples, before they are read.
    pub fn settle(&mut self, aggregate: &mut Aggregate, recorder: Option<&mut Recorder>) {
        let (summed_as, tid) = (self.summed_as, self.worker.process.tid);
        let (served, idle) = (&mut self.served, &mut self.cpu_idle);
        let give = give_to(served, idle, aggregate, recorder, summed_as, tid);
        self.cpu.settle(give);
        let served = &mut self.served;
        let label = |fate, share| served.label_wait(fate, summed_as, share, aggregate);
        self.waits.settle(label);
    }

    /// How long it has waited for a CPU since it is watched, in nanoseconds.
    #[must_use]
    pub fn waited(&self) -> u64 {
        self.waits.seen()
    }

    /// CPU time that no sample was given, in nanoseconds: it was used between requests, or no
    /// sample saw the worker running.
    #[must_use]
    pub fn cpu_unattributed(&self) -> u64 {
        self.cpu_idle + self.cpu.waiting()
    }
}

fn give_to(
    served: &mut Served,
    idle: &mut u64,
    aggregate: &mut Aggregate,
    mut recorder: Option<&mut Recorder>,
    summed_as: i32,
    tid: i32,
) -> impl FnMut(LeafFate, u64) {
    move |LeafFate { fate, leaf }, nanoseconds| {
        if fate == Fate::Idle {
            *idle += nanoseconds;
        }
        if let (Some(recorder), Some(number)) = (&mut recorder, fate.request()) {
            recorder.give_cpu(tid, number, leaf, nanoseconds);
        }
        let cpu = StackSum {
            cpu_nanoseconds: i64::try_from(nanoseconds).unwrap_or(i64::MAX),
            ..StackSum::default()
        };
        served.give(fate, summed_as, cpu, aggregate);
    }
}
