//! Whether a thread that reads on a CPU comes there at the times that were drawn: pure.
//!
//! A thread that the kernel keeps from the CPU gets it where another program gives it up: at the
//! end of a time slice, at a wait, or at a call in which the kernel looks who is next. Which stack
//! is there then depends on the stack, so such a turn is no sample. Beside other programs that is
//! one in ten to twenty turns: a thread that wakes up gets the CPU at once only if no other program
//! is due earlier (`check_preempt_wakeup_fair`, kernel/sched/fair.c). In a profile of a program
//! beside four busy ones, `getrusage` had 5 % of the CPU time instead of 0.3.

use super::place::CpuArrival;

/// A turn is late after this many nanoseconds.
const LATE: u64 = 50_000;
/// Of this many turns, the thread may be late in this many.
const TURNS: u32 = 128;
const MOST_LATE: u32 = 16;
/// After that, it is not bound for this many turns.
const RESTS: u32 = 2048;

/// Whether a thread was kept from its CPU when a turn was due. One that only woke up late, as on a
/// CPU that was asleep, was not.
#[must_use]
pub fn is_late(due: u64, came_at: u64, arrival: CpuArrival) -> bool {
    came_at.saturating_sub(due) > LATE && arrival.waited > LATE
}

/// Whether a thread comes in time on a CPU. Where it often does not, too many samples would be
/// lost, so its workers are read from another CPU.
#[derive(Debug, Default)]
pub struct Punctuality {
    turns: u32,
    late: u32,
    /// So many turns are left in which the thread is not bound.
    rests: u32,
}

impl Punctuality {
    /// Notes whether the thread was late for a turn.
    pub fn note(&mut self, is_late: bool) {
        self.turns += 1;
        self.late += u32::from(is_late);
        if self.late > MOST_LATE {
            self.rests = RESTS;
        }
        if self.turns >= TURNS || self.rests > 0 {
            (self.turns, self.late) = (0, 0);
        }
    }

    /// Notes a turn for which the thread did not come there.
    pub fn pass(&mut self) {
        self.rests = self.rests.saturating_sub(1);
    }

    /// Whether the thread may be bound to the CPU.
    #[must_use]
    pub fn may_be_bound(&self) -> bool {
        self.rests == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_thread_was_kept_from_its_cpu() {
        let arrival = |waited| CpuArrival { used: 0, waited };
        assert!(is_late(1000, 1000 + LATE + 1, arrival(LATE + 1)));
        assert!(!is_late(1000, 1000 + LATE, arrival(LATE + 1)));
        // Its CPU was asleep, or the machine's was another's.
        assert!(!is_late(1000, 1000 + 9 * LATE, arrival(LATE)));
    }

    #[test]
    fn thread_that_is_often_late_rests() {
        let mut punctuality = Punctuality::default();
        // In time, and late now and then.
        for turn in 0..10 * TURNS {
            punctuality.note(turn % TURNS < MOST_LATE);
        }
        assert!(punctuality.may_be_bound());
        (0..=MOST_LATE).for_each(|_| punctuality.note(true));
        assert!(!punctuality.may_be_bound());
        (1..RESTS).for_each(|_| punctuality.pass());
        assert!(!punctuality.may_be_bound());
        punctuality.pass();
        assert!(punctuality.may_be_bound());
    }
}
