//! When each worker is read: a pure function of a seed and time.
//!
//! Time is divided into slots of one period, and each worker has one sample in each slot, at an
//! offset that is drawn from the whole slot. Even due times would be in step with programs: a loop
//! as long as the period shows one of its functions only, and one that is almost as long drifts
//! through them for seconds. A wake-up costs more than a read: workers due together are read in
//! one, up to [`TOGETHER`]. More are groups: each has a turn in each slot, and which part of the
//! slot it gets is drawn as well.
//!
//! Invariant: due times follow from the seed and the slot's begin alone, so lateness does not add
//! up, and whatever turns are missed, each moment of a slot is as likely as any other.

/// The number of workers that one wake-up reads.
pub const TOGETHER: usize = 64;
/// Of those that were between requests, so many are asked in a turn, on average.
pub const IDLE_TOGETHER: u64 = 16;

/// The plan of the wake-ups. Times are nanoseconds of one monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeSchedule {
    seed: u32,
    period: u64,
    start: u64,
    /// Wake-ups since `start`.
    tick: u64,
    groups: u64,
}

/// The time that a sample represents. A sample at a random moment of it shows each function as
/// often as it runs there, so its length does not depend on the moment: the time between two
/// samples does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSlot {
    /// Its begin.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// The current work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTurn {
    /// Which group of workers is due: those whose index is this number modulo the number of groups.
    pub group: usize,
    /// How many groups there are.
    pub groups: usize,
    /// Whole turns of this and other groups that were missed.
    pub missed: u64,
    /// The slot of its samples; `None` without a schedule.
    pub slot: Option<SampleSlot>,
}

impl SampleTurn {
    /// Whether to ask a worker that was between requests, one of `idle` in this turn. Most stay so,
    /// and each question costs a call. It is drawn, whatever was drawn before.
    #[must_use]
    pub fn asks(&self, index: usize, idle: usize) -> bool {
        let Some(slot) = self.slot else {
            return true;
        };
        let random = mixed(mixed(slot.from) ^ index as u64);
        scaled(random, idle as u64) < IDLE_TOGETHER
    }

    /// The begin of the time that such a worker's sample represents if it is asked; `None` if all
    /// are. It represents as many slots as there are idle workers for each that is asked. So each
    /// moment of a request counts once, on average: with this sample, or with one that followed an
    /// earlier one. The slots in which nobody asked would not do: most were before the request.
    #[must_use]
    pub fn from_of_idle(&self, idle: usize) -> Option<u64> {
        let slot = self.slot.filter(|_| idle as u64 > IDLE_TOGETHER)?;
        let missed = self.missed / self.groups as u64;
        let slots = u128::from(slot.to - slot.from) * u128::from(missed + 1);
        let represents = slots * idle as u128 / u128::from(IDLE_TOGETHER);
        Some(
            slot.to
                .saturating_sub(u64::try_from(represents).unwrap_or(u64::MAX)),
        )
    }
}

impl WakeSchedule {
    /// A schedule that begins now.
    #[must_use]
    pub fn new(seed: u32, now: u64, period: u64, workers: usize) -> Self {
        Self {
            seed,
            period: period.max(1),
            start: now,
            tick: 0,
            groups: groups(workers),
        }
    }

    /// When the next turn is due.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.due_of(self.tick)
    }

    /// When the turn after the next one is due.
    #[must_use]
    pub fn due_after(&self) -> u64 {
        self.due_of(self.tick + 1)
    }

    /// The group of the next turn, and how many there are.
    #[must_use]
    pub fn next_group(&self) -> (usize, usize) {
        let index = |number: u64| usize::try_from(number).unwrap_or(0);
        (index(self.group_of(self.tick)), index(self.groups))
    }

    /// Takes the turn that is due at `now`, the newest if several have passed.
    pub fn take(&mut self, now: u64) -> SampleTurn {
        // The newest tick whose part of a slot has begun, or if that is not due yet, the one
        // before.
        let begun = now.saturating_sub(self.start) / self.interval();
        let newest = if self.due_of(begun) <= now {
            begun
        } else {
            begun.saturating_sub(1)
        };
        let tick = newest.max(self.tick);
        let missed = tick - self.tick;
        self.tick = tick + 1;
        let slot = self.slot_of(tick);
        let group = self.group_of(tick);
        let index = |number: u64| usize::try_from(number).unwrap_or(0);
        SampleTurn {
            group: index(group),
            groups: index(self.groups),
            missed,
            slot: Some(slot),
        }
    }

    /// Applies a new number of workers, or a new period, from the end of the last turn's part of
    /// its slot on.
    pub fn follow(&mut self, period: u64, workers: usize) {
        let groups = groups(workers);
        if groups != self.groups || period != self.period {
            self.start = self.begin_of(self.tick);
            self.tick = 0;
            self.groups = groups;
            self.period = period.max(1);
        }
    }

    fn interval(&self) -> u64 {
        (self.period / self.groups).max(1)
    }

    /// When a tick's part of its slot begins.
    fn begin_of(&self, tick: u64) -> u64 {
        self.start + tick * self.interval()
    }

    fn due_of(&self, tick: u64) -> u64 {
        let begin = self.begin_of(tick);
        begin + scaled(self.drawn(begin, Draw::Offset), self.interval())
    }

    /// Each slot begins with a random group, so each group is in each part of a slot equally often.
    fn group_of(&self, tick: u64) -> u64 {
        let slot = self.slot_of(tick);
        let first = scaled(self.drawn(slot.from, Draw::Group), self.groups);
        (first + tick % self.groups) % self.groups
    }

    fn slot_of(&self, tick: u64) -> SampleSlot {
        let slot = tick / self.groups;
        SampleSlot {
            from: self.begin_of(slot * self.groups),
            to: self.begin_of((slot + 1) * self.groups),
        }
    }

    /// A random number for a time.
    fn drawn(&self, at: u64, draw: Draw) -> u64 {
        mixed(mixed(at) ^ (u64::from(self.seed) << 1 | draw as u64))
    }
}

/// What is drawn.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Offset,
    Group,
}

impl SampleSlot {
    /// The same with the slots before in which a worker should have been sampled: since the end of
    /// the last one that has a sample, or since it was attached. A worker's first slot counts as a
    /// whole: as many workers begin before the moment of their first slot as after it.
    #[must_use]
    pub fn since(self, sampled_to: Option<u64>, attached: u64) -> Self {
        let length = self.to.saturating_sub(self.from).max(1);
        let whole = self.from.saturating_sub(attached) / length * length;
        let from = sampled_to.unwrap_or(self.from - whole);
        Self {
            from: from.min(self.to),
            ..self
        }
    }
}

/// The part of `whole` that a random number says.
fn scaled(random: u64, whole: u64) -> u64 {
    let scaled = (u128::from(random) * u128::from(whole)) >> 64;
    u64::try_from(scaled).unwrap_or(0)
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn groups(workers: usize) -> u64 {
    workers.div_ceil(TOGETHER).max(1) as u64
}

#[cfg(test)]
mod tests;
