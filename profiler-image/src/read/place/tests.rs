//! Where a worker is by its numbers, and what it did.

use super::*;

/// The CPU on which the reading thread is.
const CPU: OwnCpu = OwnCpu { number: 1, used: 0 };

fn look(run_nanoseconds: u64, slices: u64) -> SchedStat {
    SchedStat {
        run_nanoseconds,
        slices,
        ..SchedStat::default()
    }
}

/// A worker that has run since it was first seen, and how often its state was asked for.
struct Followed {
    place: KnownPlace,
    now: u64,
    slices: u64,
    ran: u64,
    /// The CPU time of the reading thread.
    used: u64,
}

const PERIOD: u64 = 1_000_000;
/// What the reading thread takes in each.
const STAY: u64 = 40_000;

impl Followed {
    fn begin() -> Self {
        let (place, now) = (KnownPlace::default(), PERIOD);
        Self {
            place,
            now,
            slices: 5,
            ran: 0,
            used: 0,
        }
    }

    /// A sample of CPU 1 after a period, of which the worker has run this part.
    fn sample(&mut self, ran: u64, slices: u64, state: &'static str) -> (Option<Stands>, u32) {
        (self.now, self.ran, self.slices) =
            (self.now + PERIOD, self.ran + ran, self.slices + slices);
        self.used += STAY;
        let mut asked = 0;
        let numbers = look(self.ran, self.slices);
        let own = OwnCpu {
            number: 1,
            used: self.used,
        };
        let found = self.place.find(own, numbers, self.now, || {
            asked += 1;
            let (state, cpu) = state.split_once(' ')?;
            Some((state.chars().next()?, cpu.parse().ok()?))
        });
        (found, asked)
    }
}

#[test]
fn place_is_asked_for_unless_it_follows() {
    let mut worker = Followed::begin();
    let displaced = Some(Stands::Displaced);
    assert_eq!(worker.sample(PERIOD, 1, "R 1"), (displaced, 1));
    for _ in 0..TRUSTED {
        assert_eq!(worker.sample(PERIOD - STAY, 1, "R 9"), (displaced, 0));
        assert!(worker.place.is_steady);
    }
    // Trust ends.
    assert_eq!(worker.sample(PERIOD, 1, "R 1"), (displaced, 1));
    // It was put on a CPU more often.
    assert_eq!(worker.sample(PERIOD, 2, "R 0"), (None, 1));
    assert_eq!(worker.sample(PERIOD, 1, "S 0"), (Some(Stands::Asleep), 1));
    assert_eq!(worker.place.cpu, Some(0));
}

#[test]
fn worker_that_slept_is_not_steady() {
    let mut worker = Followed::begin();
    worker.sample(PERIOD, 1, "R 1");
    worker.sample(PERIOD - STAY - 10_000, 1, "R 1");
    assert!(worker.place.is_steady);
    worker.sample(PERIOD - STAY - 20_000, 1, "R 1");
    assert!(!worker.place.is_steady);
}

#[test]
fn kernel_that_does_not_count_tells_nothing() {
    let mut place = KnownPlace::default();
    assert_eq!(place.find(CPU, look(9, 0), 1, || Some(('R', 1))), None);
}

/// Finds a worker by its waits so far, after the reading thread has used this CPU time.
fn find_after(place: &mut KnownPlace, delay_nanoseconds: u64, own: OwnCpu, state: char) -> u64 {
    let numbers = SchedStat {
        delay_nanoseconds,
        ..look(0, 5)
    };
    place.find(own, numbers, PERIOD, || Some((state, own.number)));
    place.gave_way
}

#[test]
fn displaced_worker_waits_for_the_reader() {
    let mut place = KnownPlace::default();
    let here = |used: u64| OwnCpu { number: 1, used };
    // The thread has had the CPU before, when it displaced nobody.
    assert_eq!(find_after(&mut place, 700, here(500), 'R'), 0);
    assert_eq!(find_after(&mut place, 741, here(540), 'R'), 40);
    // It waited for others, too.
    assert_eq!(find_after(&mut place, 9741, here(580), 'R'), 80);
    // It slept while the thread read on.
    assert_eq!(find_after(&mut place, 9771, here(680), 'S'), 110);
    assert_eq!(find_after(&mut place, 9999, here(720), 'R'), 110);
    // Another thread's time is not this one's.
    let there = OwnCpu {
        number: 2,
        used: 9000,
    };
    assert_eq!(find_after(&mut place, 10_039, there, 'R'), 110);
}

#[test]
fn worker_was_on_cpu_until_this_thread_came() {
    let (came, stayed) = (1_000_000, 40_000);
    assert!(was_on_cpu(came, came, stayed));
    // The kernel's tick came meanwhile.
    assert!(was_on_cpu(came, came + stayed, stayed));
    assert!(!was_on_cpu(came - SLACK - stayed - 1, came, stayed));
}

#[test]
fn activity_follows_from_where_the_worker_stands() {
    let queued = Activity::Queued { displaced: false };
    let rows = [
        (
            "was on the CPU",
            Stands::Displaced,
            false,
            Some(true),
            Activity::Ran,
        ),
        ("was not", Stands::Displaced, false, Some(false), queued),
        (
            "runs all the time",
            Stands::Displaced,
            true,
            None,
            Activity::Ran,
        ),
        (
            "nothing tells",
            Stands::Displaced,
            false,
            None,
            Activity::Runnable,
        ),
        ("sleeps", Stands::Asleep, false, None, Activity::Slept),
    ];
    for (case, stands, is_steady, was_on_cpu, expected) in rows {
        assert_eq!(
            activity_here(stands, is_steady, was_on_cpu),
            expected,
            "{case}"
        );
    }
}
