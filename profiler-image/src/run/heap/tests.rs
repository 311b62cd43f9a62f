//! Tests of the heap's accounts.

use super::*;
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::SummedStack;

fn account(ends_with_request: bool) -> HeapAccount {
    HeapAccount {
        ends_with_request,
        is_either: false,
        before: None,
        last: None,
        added: VecDeque::new(),
        highest: None,
    }
}

fn fate(phase: NameId) -> Fate {
    Fate::Summed(0, SummedStack::of_phase(phase).into())
}

/// Growth and net change at each read of a heap with this size and peak, in a request of that time.
fn seen(account: &mut HeapAccount, looks: &[(u64, u64, u64)]) -> Vec<(i64, i64)> {
    account.last = account.last.or(Some(fate(FunctionNames::STARTUP)));
    let mut look = |&(size, peak, request_time): &(u64, u64, u64)| {
        let sizes = Sizes {
            size,
            peak,
            real_peak: peak,
            limit: None,
        };
        let heap = HeapSizes { size, peak };
        let mut given = StackSum::default();
        let now = SeenHeap { heap, request_time };
        account.add(now, sizes, WorkerState::Runs, |_, sum| given.add(sum));
        (given.heap_growth, given.heap_change)
    };
    looks.iter().map(&mut look).collect()
}

#[track_caller]
fn check(ends_with_request: bool, looks: &[(u64, u64, u64)], expected: &[(i64, i64)]) {
    assert_eq!(seen(&mut account(ends_with_request), looks), expected);
}

#[test]
fn heap_before_the_first_look_is_nobodys() {
    check(true, &[(50, 60, 0), (50, 60, 0)], &[(0, 0), (0, 0)]);
}

#[test]
fn peaks_advance_and_signed_change_are_given() {
    let looks = [(10, 10, 7), (30, 40, 7), (5, 40, 7), (50, 50, 7)];
    check(true, &looks, &[(0, 0), (30, 20), (0, -25), (10, 45)]);
}

#[test]
fn new_request_counts_from_nothing() {
    // The peak falls; or the time differs; or the worker was seen with an empty heap.
    check(true, &[(90, 99, 0), (20, 25, 0)], &[(0, 0), (25, 20)]);
    check(true, &[(20, 25, 7), (60, 80, 8)], &[(0, 0), (80, 60)]);
    let emptied = [(90, 99, 0), (0, 0, 0), (20, 25, 0)];
    check(true, &emptied, &[(0, 0), (0, 0), (25, 20)]);
}

#[test]
fn time_that_becomes_known_is_no_request() {
    let looks = [
        (20, 25, 7),
        (9, 9, 0),
        (30, 30, 8),
        (40, 40, 0),
        (50, 50, 8),
    ];
    let expected = [(0, 0), (9, 9), (21, 21), (10, 10), (10, 10)];
    check(true, &looks, &expected);
}

#[test]
fn reset_peak_is_no_growth() {
    let looks = [(20, 90, 7), (25, 30, 7), (25, 40, 7)];
    check(true, &looks, &[(0, 0), (0, 5), (10, 0)]);
    check(false, &[(20, 90, 7), (25, 30, 8)], &[(0, 0), (0, 5)]);
}

#[test]
fn changes_sum_to_what_is_left() {
    let looks = [
        (10, 10, 0),
        (80, 90, 7),
        (20, 90, 0),
        (95, 99, 8),
        (30, 99, 0),
    ];
    let given = seen(&mut account(false), &looks);
    assert_eq!(given.iter().map(|(_, net)| net).sum::<i64>(), 20);
    assert_eq!(given.iter().map(|(growth, _)| growth).sum::<i64>(), 89);
}

#[test]
fn peak_belongs_to_the_stack_seen() {
    let mut account = account(true);
    account.last = Some(fate(FunctionNames::STARTUP));
    seen(&mut account, &[(90, 99, 7)]);
    assert!(!account.highest.unwrap().is_seen);
    account.last = Some(fate(FunctionNames::LOADING));
    seen(&mut account, &[(95, 99, 7), (99, 99, 7)]);
    let loading: Labelled = SummedStack::of_phase(FunctionNames::LOADING).into();
    let highest = account.highest.unwrap();
    assert_eq!((highest.sample, highest.is_seen), (loading, true));
    let mut account = self::account(true);
    account.last = Some(fate(FunctionNames::STARTUP));
    seen(&mut account, &[(90, 99, 7)]);
    let highest = account.highest(account.last).unwrap();
    assert!(!highest.is_seen && highest.sizes.peak == 99);
    account.last = Some(fate(FunctionNames::COMPILING));
    seen(&mut account, &[(20, 30, 8)]);
    account.last = Some(fate(FunctionNames::SHUTDOWN));
    seen(&mut account, &[(10, 30, 8)]);
    let highest = account.highest(account.last).unwrap();
    let compiling: Labelled = SummedStack::of_phase(FunctionNames::COMPILING).into();
    assert_eq!((highest.sample, highest.is_seen), (compiling, true));
    assert_eq!(account.highest(Some(Fate::Dropped)), None);
    let mut told = HeapTold::default();
    told.offer(Some(highest));
    told.offer(None);
    assert_eq!(told.highest, Some(highest));
}

/// What each of two stacks holds after net changes, each seen in one of them.
fn held(changes: &[(NameId, i64)]) -> [i64; 2] {
    let mut account = account(false);
    let mut held = [0; 2];
    for (phase, net) in changes {
        account.change(*net, fate(*phase), |whose, sum| {
            held[usize::from(whose == fate(FunctionNames::COMPILING))] += sum.heap_change;
        });
    }
    held
}

#[test]
fn frees_reduce_the_last_adders() {
    let (one, other) = (FunctionNames::STARTUP, FunctionNames::COMPILING);
    assert_eq!(held(&[(one, 10), (other, -10)]), [0, 0]);
    assert_eq!(held(&[(one, 10), (other, 5), (one, -7)]), [8, 0]);
    assert_eq!(held(&[(one, 10), (other, 5), (other, -3)]), [10, 2]);
    assert_eq!(held(&[(one, 10), (other, -12)]), [0, -2]);
}

#[test]
fn only_the_newest_additions_can_be_taken_back() {
    let (one, other) = (FunctionNames::STARTUP, FunctionNames::COMPILING);
    let turns = i64::try_from(MAX_ADDED).unwrap();
    let mut changes: Vec<_> = (0..turns).flat_map(|_| [(one, 1), (other, 1)]).collect();
    changes.push((one, -2 * turns));
    let held = held(&changes);
    assert_eq!(held.iter().sum::<i64>(), 0);
    assert_eq!(held, [-turns / 2, turns / 2]);
}

#[test]
fn workers_kind_shows_in_its_wait() {
    let mut account = account(false);
    account.is_either = true;
    let (small, large) = ((20, 25, 0), (90, 99, 0));
    assert_eq!(seen(&mut account, &[large, small])[1], (0, -70));
    let wait = |account: &mut HeapAccount, worker| {
        let heap = HeapSizes::default();
        let sizes = Sizes {
            size: 0,
            peak: 0,
            real_peak: 0,
            limit: None,
        };
        let now = SeenHeap {
            heap,
            request_time: 0,
        };
        account.add(now, sizes, worker, |_, _| {});
    };
    wait(&mut account, WorkerState::Idle);
    assert_eq!(seen(&mut account, &[large, small])[1], (25, 20));
    wait(&mut account, WorkerState::Waits);
    assert_eq!(seen(&mut account, &[large, small])[1], (0, -70));
}

#[track_caller]
fn check_later(worker: WorkerState, size: u64, expected: Option<i64>) {
    let mut account = account(false);
    account.last = Some(fate(FunctionNames::COMPILING));
    seen(&mut account, &[(10, 10, 0)]);
    let heap = HeapSizes { size, peak: 10 };
    let sizes = Sizes {
        size,
        peak: 10,
        real_peak: 10,
        limit: None,
    };
    let now = SeenHeap {
        heap,
        request_time: 0,
    };
    let mut given = None;
    account.add(now, sizes, worker, |whose, sum| {
        assert_eq!(whose, fate(FunctionNames::COMPILING));
        given = Some(sum.heap_change);
    });
    assert_eq!(given, expected, "{worker:?}");
    assert_eq!(account.before, Some(now));
}

#[test]
fn frees_before_waiting_are_the_last_stacks() {
    check_later(WorkerState::Waits, 4, Some(-6));
    check_later(WorkerState::Waits, 10, None);
}

#[test]
fn engines_frees_at_the_end_are_nobodys() {
    check_later(WorkerState::BeginsOrEnds, 4, None);
    check_later(WorkerState::BeginsOrEnds, 12, Some(2));
    check_later(WorkerState::Idle, 4, None);
}
