//! Has the workers of the next turn read on their own CPUs, and takes what was read.
//!
//! `read/own_cpu.rs` says why. Invariant: a worker's reader is lent only while the loop sleeps.

use std::sync::Arc;

use smallvec::SmallVec;

use super::RunLoop;
use super::member::{Member, OwnRead};
use super::schedule::WakeSchedule;
use crate::read::clocks::Mark;
use crate::read::own_cpu::{CpuReaders, JobAnswer, ReadJob, WakeTimes};

/// Without a worker on its own CPU the loop wakes up so much later than the readers, to find their
/// answers; nanoseconds.
const READS_TAKE: u64 = 60_000;
/// How often it looks again for answers of readers that are late; it sleeps twice as long each time.
const LOOKS: u32 = 6;

/// The CPU that this thread is bound to: that of most workers that are due.
#[derive(Debug, Default)]
pub(super) struct Home {
    cpu: Option<usize>,
    /// A CPU that has had more of them in this many turns in a row.
    better: Option<(usize, u32)>,
    /// In how many turns in a row none was due.
    idle: u32,
}

/// In this many turns in a row another CPU has to have more workers. To move costs milliseconds on
/// a busy machine: the thread then has no claim to the CPU yet.
const MOVES_AFTER: u32 = 4;
/// After this many turns without a worker the thread is not bound any more.
const LEAVES_AFTER: u32 = 16;

impl Home {
    /// Where the thread should be, by the CPUs of the workers that are due.
    fn next(&mut self, cpus: &[usize]) -> Option<usize> {
        let count = |cpu: usize| cpus.iter().filter(|&&other| other == cpu).count();
        let Some(&best) = cpus.iter().max_by_key(|&&cpu| count(cpu)) else {
            self.idle += 1;
            if self.idle >= LEAVES_AFTER {
                self.cpu = None;
            }
            return self.cpu;
        };
        self.idle = 0;
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

impl RunLoop<'_> {
    /// Lends the readers of the workers that the next turn reads on other CPUs than this thread's.
    pub(super) fn arm(&mut self, schedule: &WakeSchedule) {
        let Some(readers) = &mut self.on_own_cpu else {
            return;
        };
        let due = schedule.due();
        let (group, groups) = schedule.next_group();
        let mut jobs: SmallVec<[(usize, usize); 64]> = SmallVec::new();
        for index in (group..self.members.len()).step_by(groups) {
            if let Some(cpu) = cpu_of(&mut self.members[index], readers) {
                jobs.push((index, cpu));
            }
        }
        let cpus: SmallVec<[usize; 64]> = jobs.iter().map(|&(_, cpu)| cpu).collect();
        let home = self.home.next(&cpus);
        if home != self.sampler.own_cpu {
            self.sampler.own_cpu = home.filter(|&cpu| readers.bind(cpu));
            if self.sampler.own_cpu.is_none() {
                readers.unbind();
                self.home = Home::default();
            }
        }
        if !CpuReaders::is_in_time(due, self.clock.now()) {
            return;
        }
        for (index, cpu) in jobs {
            let member = &mut self.members[index];
            if Some(cpu) != self.sampler.own_cpu {
                lend(readers, member, index, cpu);
            }
        }
        readers.arm(WakeTimes {
            due,
            next: schedule.due_after(),
        });
    }

    /// Lets this thread, and those that it starts, run on each CPU.
    pub(super) fn leave_home(&mut self) {
        if let Some(readers) = &mut self.on_own_cpu
            && self.sampler.own_cpu.take().is_some()
        {
            readers.unbind();
            self.home = Home::default();
        }
    }

    /// How long the reads of the next turn take, if this thread has none of its own.
    pub(super) fn reads_take(&self) -> u64 {
        let is_armed = self.on_own_cpu.as_ref().is_some_and(CpuReaders::is_armed);
        if is_armed && self.sampler.own_cpu.is_none() {
            READS_TAKE
        } else {
            0
        }
    }

    /// The workers whose readers are lent.
    pub(super) fn lent(&self) -> SmallVec<[usize; 64]> {
        let readers = self.on_own_cpu.iter();
        readers.flat_map(CpuReaders::lent).collect()
    }

    /// Takes the readers back, with their answers; waits for these if the turn `is_due`.
    pub(super) fn collect(&mut self, is_due: bool) {
        let Some(readers) = self
            .on_own_cpu
            .as_mut()
            .filter(|readers| readers.is_armed())
        else {
            return;
        };
        if is_due {
            for look in 0..LOOKS {
                if readers.are_done() {
                    break;
                }
                let current = self.clock.now();
                self.clock.sleep_until(current + (READS_TAKE << look));
            }
        }
        let members = &mut self.members;
        let mut unused = Vec::new();
        readers.collect(|job, answer, at| {
            let Some(member) = members.get_mut(job.index) else {
                return;
            };
            member.worker.take_back(job.reader);
            member.worker.place = job.place;
            if matches!(answer, JobAnswer::Observed { .. } | JobAnswer::StillAsleep) {
                member.read = Some(OwnRead {
                    answer,
                    observation: job.observation,
                    at,
                });
            } else {
                unused.push(job.observation);
            }
        });
        unused.into_iter().for_each(|memory| readers.keep(memory));
    }
}

/// The CPU on which a worker can be read; `None` if there is none, or it is between requests.
fn cpu_of(member: &mut Member, readers: &CpuReaders) -> Option<usize> {
    if member.asleep.is_some_and(|asleep| asleep.stack.is_none()) {
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
    let asleep = member.asleep.and_then(|asleep| match asleep.mark {
        Mark::Thread(numbers) => Some(numbers),
        Mark::Process(_) => None,
    });
    let job = ReadJob {
        index,
        reader,
        watch,
        layout: process.engine.layout,
        shared_ranges: Arc::clone(&process.shared_ranges),
        asleep,
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
    fn home_is_left_without_workers() {
        let mut home = Home::default();
        assert_eq!(home.next(&[]), None);
        assert_eq!(home.next(&[1]), Some(1));
        for _ in 1..LEAVES_AFTER {
            assert_eq!(home.next(&[]), Some(1));
        }
        assert_eq!(home.next(&[]), None);
        assert_eq!(home.next(&[2]), Some(2));
    }
}
