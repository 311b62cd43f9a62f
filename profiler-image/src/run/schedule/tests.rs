//! When turns are due, and what samples at random moments of their slots show of loops that are in
//! step with the slots.

use proptest::prelude::*;

use super::*;
use crate::read::clocks::SchedStat;
use crate::read::cpu_shares::{ClockedSample, CpuShares};
use crate::read::on_cpu::Activity;

const PERIOD: u64 = 1_000_000_000 / 99;
/// How many standard deviations of a binomial distribution a share may be off: once in two million
/// rows by chance, and the seeds are fixed.
const DEVIATIONS: f64 = 5.0;

/// The times and turns of a schedule whose turns are all taken in time.
fn turns(mut schedule: WakeSchedule, count: usize) -> Vec<(u64, SampleTurn)> {
    let next = || {
        let due = schedule.due();
        (due, schedule.take(due))
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Checks that `count` samples have this share within a binomial bound.
#[track_caller]
fn check_share(of: u64, count: u64, expected: f64, what: &str) {
    let (count, found) = (count as f64, of as f64 / count as f64);
    let bound = DEVIATIONS * (expected * (1.0 - expected) / count).sqrt();
    let is_within = (found - expected).abs() <= bound;
    assert!(
        is_within,
        "{what}: {found:.4} instead of {expected:.4} ± {bound:.4}"
    );
}

#[test]
fn few_workers_are_read_in_one_wake_up() {
    for (_, turn) in turns(WakeSchedule::new(1, 0, PERIOD, TOGETHER), 9) {
        assert_eq!((turn.group, turn.groups, turn.missed), (0, 1, 0));
    }
}

#[test]
fn each_turn_is_inside_its_slot() {
    let (start, groups) = (7, 3);
    let schedule = WakeSchedule::new(5, start, PERIOD, TOGETHER * 2 + 1);
    for (tick, (due, turn)) in (0..).zip(turns(schedule, 600)) {
        let part = PERIOD / groups;
        assert!((start + tick * part..start + (tick + 1) * part).contains(&due));
        let slot = turn.slot.unwrap();
        assert_eq!(slot.from, start + tick / groups * part * groups);
        assert_eq!(slot.to, slot.from + part * groups);
    }
}

#[test]
fn turn_is_uniform_in_its_slot() {
    const ROWS: usize = 20_000;
    for workers in [1, TOGETHER * 3] {
        let groups = workers.div_ceil(TOGETHER);
        let mut tenths = [0; 10];
        for (due, turn) in turns(WakeSchedule::new(3, 0, PERIOD, workers), ROWS * groups) {
            let Some(slot) = turn.slot.filter(|_| turn.group == 0) else {
                continue;
            };
            let length = slot.to - slot.from;
            tenths[usize::try_from((due - slot.from) * 10 / length).unwrap()] += 1;
        }
        for count in tenths {
            check_share(count, ROWS as u64, 0.1, "a tenth of the slot");
        }
    }
}

/// Checks the shares of the samples, and of the time that they represent, of a function that takes
/// the first half of a loop of this length. Only some turns have a sample.
#[track_caller]
fn check_loop(slots: f64, workers: usize, has_sample: impl Fn(u64) -> bool) {
    let length = (PERIOD as f64 * slots) as u64;
    let (mut count, mut first, mut wall) = (0, 0, [0; 2]);
    let mut sampled_to = None;
    let turns = turns(WakeSchedule::new(11, 0, PERIOD, workers), 40_000);
    for (number, (due, turn)) in (0..).zip(turns) {
        let slot = turn.slot.filter(|_| turn.group == 0 && has_sample(number));
        let Some(slot) = slot.map(|slot| slot.since(sampled_to, 0)) else {
            continue;
        };
        sampled_to = Some(slot.to);
        let is_first = due % length < length / 2;
        count += 1;
        first += u64::from(is_first);
        wall[usize::from(is_first)] += slot.to - slot.from;
    }
    let what = format!("a loop of {slots} slots, {workers} workers");
    check_share(first, count, 0.5, &what);
    // As a number of samples.
    let of_first = wall[1] * count / (wall[0] + wall[1]);
    check_share(of_first, count, 0.5, &format!("wall time in {what}"));
}

#[test]
fn samples_are_not_in_step_with_loops() {
    for slots in [0.5, 1.0, 1.01, 2.0] {
        for workers in [1, TOGETHER * 2] {
            check_loop(slots, workers, |_| true);
        }
    }
}

#[test]
fn missed_turns_leave_the_shares_right() {
    for slots in [0.5, 1.0, 1.01, 2.0] {
        check_loop(slots, 1, |number| number % 3 == 0);
    }
}

/// The plainest loop there is: 5 ms of work, then a sleep, whose end is a little late.
#[test]
fn equal_work_and_sleep_share_samples() {
    const MILLISECOND: u64 = 1_000_000;
    let length = 10 * MILLISECOND + 50_000;
    for rate in [49, 97, 99, 199, 999] {
        let schedule = WakeSchedule::new(17, 0, 1000 * MILLISECOND / rate, 1);
        let count = rate * 10;
        let turns = turns(schedule, usize::try_from(count).unwrap());
        let works = |due: u64| due % length < 5 * MILLISECOND;
        let working = turns.iter().filter(|(due, _)| works(*due)).count();
        let share = 5.0 / 10.05;
        check_share(working as u64, count, share, &format!("{rate} Hz"));
    }
}

/// The same loop's CPU time: what `usleep` itself uses, to fall asleep and to wake up, is a
/// hundredth of it. The loop drifts through even due times in seconds, and all CPU time of seconds
/// then went to the few samples that met a running worker.
#[test]
fn sleep_of_a_loop_has_its_cpu() {
    const MICROSECOND: u64 = 1000;
    const WORK: u64 = 5000 * MICROSECOND;
    const SLEEP: u64 = 5000 * MICROSECOND;
    const WAKES: u64 = 50 * MICROSECOND;
    for rate in [49, 97, 99, 199, 999] {
        let count = rate * 120;
        let (mut shares, mut cpu) = (CpuShares::default(), [0; 2]);
        let schedule = WakeSchedule::new(29, 0, 1_000_000 * MICROSECOND / rate, 1);
        for (due, _) in turns(schedule, usize::try_from(count).unwrap()) {
            let (loops, at) = (due / (WORK + SLEEP + WAKES), due % (WORK + SLEEP + WAKES));
            let slept = at.saturating_sub(WORK + SLEEP);
            let look = SchedStat {
                run_nanoseconds: loops * (WORK + WAKES) + at.min(WORK) + slept,
                delay_nanoseconds: 0,
                slices: 1 + loops * 2,
            };
            let activity = if at < WORK || slept > 0 {
                Activity::Runnable
            } else {
                Activity::Slept
            };
            let newest = ClockedSample {
                at: due,
                look,
                activity,
                sample: usize::from(slept > 0),
            };
            shares.add(newest, |function, time| cpu[function] += time);
        }
        // In samples, of which half show a running worker.
        let all = cpu[0] + cpu[1];
        let (of_sleep, running) = (cpu[1] * count / 2 / all, count / 2);
        let share = WAKES as f64 / (WORK + WAKES) as f64;
        check_share(of_sleep, running, share, &format!("{rate} Hz"));
    }
}

#[test]
fn passed_turns_are_counted_without_shift() {
    let mut schedule = WakeSchedule::new(1, 0, 100, 1);
    schedule.take(schedule.due());
    // By then the turn of the fourth slot is due, or that of the third is the newest.
    let turn = schedule.take(399);
    assert_eq!(turn.missed, 2);
    assert_eq!(turn.slot, Some(SampleSlot { from: 300, to: 400 }));
    assert!((400..500).contains(&schedule.due()));
}

#[test]
fn turn_not_due_is_not_missed() {
    for seed in 0..100 {
        let mut schedule = WakeSchedule::new(seed, 0, 1000, 1);
        let second = schedule.due_of(1);
        let turn = schedule.take(second - 1);
        assert_eq!(turn.missed, 0, "{seed}");
        assert_eq!(schedule.due(), second);
    }
}

#[test]
fn groupwise_late_turns_starve_none() {
    let mut schedule = WakeSchedule::new(1, 0, 100, TOGETHER * 2);
    let count = 10_000;
    let first = (0..count)
        .filter(|_| schedule.take(schedule.due() + 100).group == 0)
        .count();
    check_share(first as u64, count, 0.5, "turns of the first group");
}

#[test]
fn the_seed_and_the_time_decide_alone() {
    let due = |seed, start, skipped: usize| {
        let schedule = WakeSchedule::new(seed, start, PERIOD, 1);
        turns(schedule, 100)
            .into_iter()
            .skip(skipped)
            .map(|(due, _)| due)
            .collect::<Vec<_>>()
    };
    assert_eq!(due(1, 0, 0), due(1, 0, 0));
    // A schedule that begins later has the same turns as one that is under way.
    assert_eq!(due(1, 0, 60)[..40], due(1, 60 * PERIOD, 0)[..40]);
    assert_ne!(due(1, 0, 0), due(2, 0, 0));
}

#[test]
fn new_period_begins_at_the_slots_end() {
    let mut schedule = WakeSchedule::new(1, 0, 100, 1);
    let turn = schedule.take(schedule.due());
    schedule.follow(150, 1);
    let next = schedule.take(schedule.due());
    assert_eq!(turn.slot, Some(SampleSlot { from: 0, to: 100 }));
    assert_eq!(next.slot, Some(SampleSlot { from: 100, to: 250 }));
    // What stays the same changes nothing.
    let before = schedule.clone();
    schedule.follow(150, TOGETHER);
    assert_eq!(schedule, before);
}

#[test]
fn sample_represents_slots_since_the_last() {
    let slot = SampleSlot { from: 500, to: 600 };
    let from = |sampled_to, attached| slot.since(sampled_to, attached).from;
    assert_eq!(from(Some(500), 0), 500);
    assert_eq!(from(Some(200), 0), 200);
    // After a new number of groups a slot may be sampled twice.
    assert_eq!(from(Some(600), 0), 600);
    assert_eq!(from(Some(650), 0), 600);
    // A new worker's first slot, in which it was attached, or the one before.
    assert_eq!(from(None, 530), 500);
    assert_eq!(from(None, 401), 500);
    // Its turns of two whole slots were missed.
    assert_eq!(from(None, 290), 300);
}

/// Workers that begin at any moment and live for a fifth of a slot: the time of their samples is
/// their lives'.
#[test]
fn short_lives_have_their_time() {
    let (mut sampled, mut count) = (0, 0_u64);
    let turns = turns(WakeSchedule::new(23, 0, PERIOD, 1), 20_000);
    for (number, (due, turn)) in (0_u64..).zip(&turns) {
        // One in each slot, whose moment moves through it.
        let slot = turn.slot.unwrap();
        let begins = slot.from + number * 7919 % (PERIOD * 4 / 5);
        count += 1;
        if (begins..begins + PERIOD / 5).contains(due) {
            let slot = slot.since(None, begins);
            assert_eq!(slot.to - slot.from, PERIOD);
            sampled += 1;
        }
    }
    check_share(sampled, count, 0.2, "the time of short lives");
}

#[test]
fn some_of_many_idle_workers_are_asked() {
    let mut asked = [0; 2];
    for (_, turn) in turns(WakeSchedule::new(29, 0, PERIOD, 1), 20_000) {
        assert!((0..16).all(|index| turn.asks(index, 16)));
        let count = |indexes: std::ops::Range<usize>| {
            let asked = indexes.filter(|&index| turn.asks(index, 64));
            u64::try_from(asked.count()).unwrap()
        };
        asked[0] += count(0..64);
        asked[1] += count(3..4);
    }
    check_share(asked[0], 64 * 20_000, 0.25, "all idle workers");
    check_share(asked[1], 20_000, 0.25, "one idle worker");
}

#[test]
fn without_a_schedule_all_are_asked() {
    let turn = SampleTurn {
        group: 0,
        groups: 1,
        missed: 0,
        slot: None,
    };
    assert!((0..64).all(|index| turn.asks(index, 64)));
}

/// A worker whose requests take three and a half slots, and begin at random: the time of its busy
/// samples is that of its requests, though only a quarter of its idle turns are asked.
#[test]
fn busy_time_is_kept_where_few_are_asked() {
    let (mut busy, mut represented, mut was_idle) = (0, 0, true);
    let turns = turns(WakeSchedule::new(31, 0, PERIOD, 1), 40_000);
    let count = turns.len() as u64;
    for (due, turn) in turns {
        // Requests begin every ten slots, at a place that moves.
        let is_busy = (due + due / (PERIOD * 1000) * 7919) % (PERIOD * 10) < PERIOD * 7 / 2;
        busy += u64::from(is_busy);
        if was_idle && !turn.asks(0, 64) {
            continue;
        }
        let slot = turn.slot.unwrap();
        let idle_from = turn.from_of_idle(64).unwrap();
        let from = if was_idle { idle_from } else { slot.from };
        represented += u64::from(is_busy) * (slot.to - from) / PERIOD;
        was_idle = !is_busy;
    }
    check_share(busy, count, 0.35, "busy turns");
    check_share(
        represented,
        count,
        0.35,
        "the time that busy samples represent",
    );
}

proptest! {
    #[test]
    fn each_worker_has_one_turn_in_each_slot(seed: u32, workers in 1_usize..200, period in 1_000_u64..1_000_000_000) {
        let schedule = WakeSchedule::new(seed, 0, period, workers);
        let groups = usize::try_from(schedule.groups).unwrap();
        let mut sampled = vec![0; workers];
        for (number, (due, turn)) in turns(schedule, groups * 3).into_iter().enumerate() {
            (turn.group..workers).step_by(turn.groups).for_each(|worker| sampled[worker] += 1);
            let slot = turn.slot.unwrap();
            prop_assert!((slot.from..slot.to).contains(&due));
            if number % groups == groups - 1 {
                prop_assert!(sampled.iter().all(|&count| count == number / groups + 1));
            }
        }
    }

    #[test]
    fn schedule_waits_two_parts_at_most(seed: u32, period in 1_000_u64..1_000_000_000, late in 0_u64..10_000_000_000) {
        let mut schedule = WakeSchedule::new(seed, 0, period, 1);
        let now = schedule.due() + late;
        let turn = schedule.take(now);
        prop_assert!(schedule.due() > now && schedule.due() <= now + 2 * period);
        prop_assert!(turn.missed <= late / period + 1);
    }
}
