//! Has the workers of the next turn read on their own CPUs, and takes what was read.
//!
//! `read/own_cpu.rs` says why. Invariant: a worker's reader is lent only while the loop sleeps.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::member::{Member, OwnRead};
use super::schedule::WakeSchedule;
use super::{RunLoop, WAIT_FOR_TURN};
use crate::read::clocks::Mark;
use crate::read::own_cpu::{CpuReaders, JobAnswer, ReadJob, WakeTimes};
use crate::read::place::{OwnCpu, OwnTimes};
use crate::read::punctuality::{Punctuality, is_late};

/// Without a worker on its own CPU the loop wakes up so much later than the readers, to find their
/// answers; nanoseconds.
const READS_TAKE: u64 = 60_000;
/// The longest time that it waits for answers of readers that are late.
const LONGEST_WAIT: Duration = Duration::from_millis(4);

/// The CPU that this thread is bound to: that of most workers that are due.
#[derive(Debug, Default)]
struct Home {
    cpu: Option<usize>,
    /// A CPU that has had more of them in this many turns in a row.
    better: Option<(usize, u32)>,
}

/// In this many turns in a row another CPU has to have more workers. To move there costs some
/// turns: the thread waits until the time slice of who runs there is over. A worker that goes from
/// CPU to CPU with each sleep would lose the turns after its sleeps.
const MOVES_AFTER: u32 = 64;

impl Home {
    /// Where the thread should be, by the CPUs of the workers that are due.
    fn next(&mut self, cpus: &[usize]) -> Option<usize> {
        let count = |cpu: usize| cpus.iter().filter(|&&other| other == cpu).count();
        let Some(&best) = cpus.iter().max_by_key(|&&cpu| count(cpu)) else {
            return self.cpu;
        };
        let Some(now) = self.cpu else {
            self.cpu = Some(best);
            return self.cpu;
        };
        if count(now) == count(best) {
            self.better = None;
            return self.cpu;
        }
        let turns = match self.better {
            Some((cpu, turns)) if cpu == best => turns + 1,
            _ => 1,
        };
        self.better = Some((best, turns));
        if turns >= MOVES_AFTER {
            (self.cpu, self.better) = (Some(best), None);
        }
        self.cpu
    }
}

/// What reads on the workers' own CPUs, and how this thread came to its turn.
pub(super) struct OwnCpuTurns {
    /// `None` if workers are not read on their own CPUs.
    pub readers: Option<CpuReaders>,
    pub times: OwnTimes,
    /// When this thread woke up for this turn.
    pub came_at: u64,
    home: Home,
    punctuality: Punctuality,
    /// It was kept from its CPU in this turn.
    pub is_late: bool,
}

impl OwnCpuTurns {
    /// Without readers.
    pub fn new() -> Self {
        Self {
            readers: None,
            times: OwnTimes::open(),
            came_at: 0,
            home: Home::default(),
            punctuality: Punctuality::default(),
            is_late: false,
        }
    }
}

impl RunLoop<'_> {
    /// Lends the readers of the workers that the next turn reads on other CPUs than this thread's.
    pub(super) fn arm(&mut self, schedule: &WakeSchedule) {
        self.own.punctuality.pass();
        if !self.own.punctuality.may_be_bound() {
            self.leave_home();
            return;
        }
        let Some(readers) = &mut self.own.readers else {
            return;
        };
        readers.prepare();
        let due = schedule.due();
        let (group, groups) = schedule.next_group();
        let mut jobs: SmallVec<[(usize, usize); 64]> = SmallVec::new();
        for index in (group..self.members.len()).step_by(groups) {
            if let Some(cpu) = cpu_of(&mut self.members[index], readers) {
                jobs.push((index, cpu));
            }
        }
        let cpus: SmallVec<[usize; 64]> = jobs.iter().map(|&(_, cpu)| cpu).collect();
        let home = self.own.home.next(&cpus);
        let bound_to = self.sampler.own_cpu.map(|own| own.number);
        if home != bound_to {
            let bound_to = home.filter(|&cpu| readers.bind(cpu));
            self.sampler.own_cpu = bound_to.map(|number| OwnCpu { number, used: 0 });
            if self.sampler.own_cpu.is_none() {
                readers.unbind();
                self.own.home = Home::default();
            }
        }
        if !CpuReaders::is_in_time(due, self.clock.now()) {
            return;
        }
        for (index, cpu) in jobs {
            let member = &mut self.members[index];
            if self.sampler.own_cpu.is_none_or(|own| own.number != cpu) {
                lend(readers, member, index, cpu);
            }
        }
        readers.arm(WakeTimes {
            due,
            next: schedule.due_after(),
        });
    }

    /// Notes that this thread woke up for a turn that was due then.
    pub(super) fn come(&mut self, due: u64, current: u64) {
        self.own.came_at = current;
        self.own.is_late = false;
        if let Some(own) = &mut self.sampler.own_cpu {
            let arrival = self.own.times.come();
            own.used = arrival.used;
            self.own.is_late = is_late(due, current, arrival);
            self.own.punctuality.note(self.own.is_late);
        }
    }

    /// Lets this thread, and those that it starts, run on each CPU.
    pub(super) fn leave_home(&mut self) {
        if let Some(readers) = &mut self.own.readers
            && self.sampler.own_cpu.take().is_some()
        {
            readers.unbind();
            self.own.home = Home::default();
        }
    }

    /// How long the reads of the next turn take, if this thread has none of its own.
    fn reads_take(&self) -> u64 {
        let is_armed = self.own.readers.as_ref().is_some_and(CpuReaders::is_armed);
        if is_armed && self.sampler.own_cpu.is_none() {
            READS_TAKE
        } else {
            0
        }
    }

    /// The next turn, or the look before it if it cannot wait for the turn.
    pub(super) fn next_wake_up(&self, schedule: &WakeSchedule) -> u64 {
        let due = schedule.due();
        if due <= self.next_look + WAIT_FOR_TURN {
            due + self.reads_take()
        } else {
            self.next_look
        }
    }

    /// Sleeps until the next turn or look, or until the run is to end.
    pub(super) fn sleep(&mut self, schedule: &WakeSchedule, until: u64) {
        if self.options.unpaced {
            return;
        }
        self.arm(schedule);
        let next = self.next_wake_up(schedule);
        let is_over = self.clock.now() >= until;
        self.clock
            .sleep_until(if is_over { next } else { next.min(until) });
    }

    /// The workers whose readers are lent.
    pub(super) fn lent(&self) -> SmallVec<[usize; 64]> {
        let readers = self.own.readers.as_ref();
        readers.map_or_else(SmallVec::new, |readers| {
            SmallVec::from_slice(readers.lent())
        })
    }

    /// Takes the readers back, with their answers; waits for these if the turn `is_due`.
    pub(super) fn collect(&mut self, is_due: bool) {
        let Some(readers) = self
            .own
            .readers
            .as_mut()
            .filter(|readers| readers.is_armed())
        else {
            return;
        };
        if is_due {
            readers.wait(LONGEST_WAIT);
        }
        let members = &mut self.members;
        readers.collect(|job, answer, at| {
            let Some(member) = members.get_mut(job.index) else {
                return Some(job.observation);
            };
            member.worker.take_back(job.reader);
            member.worker.place = job.place;
            if let JobAnswer::Pending | JobAnswer::Elsewhere = answer {
                return Some(job.observation);
            }
            member.read = Some(OwnRead {
                answer,
                observation: job.observation,
                at,
            });
            None
        });
    }
}

/// The CPU on which a worker can be read; `None` if there is none, or it is between requests.
fn cpu_of(member: &mut Member, readers: &CpuReaders) -> Option<usize> {
    if member.is_idle() {
        return None;
    }
    let watch = member.worker.watch()?;
    let cpu = member.worker.place.cpu;
    let cpu = cpu.or_else(|| Some(watch.state()?.1))?;
    member.worker.place.cpu = Some(cpu);
    readers.may_use(cpu).then_some(cpu)
}

/// Lends a worker's reader to the thread of a CPU.
fn lend(readers: &mut CpuReaders, member: &mut Member, index: usize, cpu: usize) {
    let Some(watch) = member.worker.watch() else {
        return;
    };
    let observation = readers.spare();
    let process = Arc::clone(&member.worker.process);
    let mut reader = member.worker.lend();
    reader.is_here = true;
    if let Some(request) = &mut reader.request {
        request.begin();
    }
    let unmoved = member.unmoved.and_then(|unmoved| match unmoved.mark {
        Mark::Thread(numbers) => Some(numbers),
        Mark::Process(_) => None,
    });
    let job = ReadJob {
        index,
        reader,
        watch,
        layout: process.engine.layout,
        shared_ranges: Arc::clone(&process.shared_ranges),
        unmoved,
        place: member.worker.place,
        observation,
    };
    if let Err(job) = readers.give(cpu, job) {
        member.worker.take_back(job.reader);
        readers.keep(job.observation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_where_most_workers_are() {
        let mut home = Home::default();
        assert_eq!(home.next(&[3, 5, 5]), Some(5));
        // As many elsewhere are no reason to move.
        assert_eq!(home.next(&[3, 5]), Some(5));
        for _ in 1..MOVES_AFTER {
            assert_eq!(home.next(&[3, 3, 5]), Some(5));
        }
        assert_eq!(home.next(&[3, 3, 5]), Some(3));
    }

    #[test]
    fn home_stays_if_others_have_more_in_turn() {
        let mut home = Home::default();
        assert_eq!(home.next(&[1]), Some(1));
        for turn in 0..100 {
            assert_eq!(home.next(&[2 + turn % 2]), Some(1));
        }
    }

    #[test]
    fn home_stays_without_workers() {
        let mut home = Home::default();
        assert_eq!(home.next(&[]), None);
        assert_eq!(home.next(&[1]), Some(1));
        assert_eq!(home.next(&[]), Some(1));
    }
}
