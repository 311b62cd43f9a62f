use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PAGE: u64 = 0x7f00_0000_0000;

/// A frame for each (function, opline), the root first, as they lie on a VM stack; leaf first as unwinding has them.
fn stack(calls: &[(u64, u64)]) -> Vec<Frame> {
    let address = |index: usize| PAGE + 0x20 + index as u64 * 0x60;
    let mut frames: Vec<Frame> = calls
        .iter()
        .enumerate()
        .map(|(index, &(func, opline))| Frame {
            address: address(index),
            func,
            opline,
            prev: index.checked_sub(1).map_or(0, address),
            ..Frame::default()
        })
        .collect();
    frames.reverse();
    frames
}

/// Holds a stack against a later one, whose top is its leaf.
fn check_common(frames: &[(u64, u64)], again: &[(u64, u64)], expected: usize) {
    let (frames, again) = (stack(frames), stack(again));
    let top = again.first().map_or(0, |leaf| leaf.address);
    let is_live = |frame: &Frame| frame.address <= top;
    assert_eq!(common(&frames, &again, is_live), expected);
}

#[test]
fn what_has_not_moved_stands() {
    let whole = [(1, 10), (2, 20), (3, 30)];
    check_common(&whole, &whole, 3);
    // The leaf has run on, and so has what it called.
    check_common(&whole, &[(1, 10), (2, 20), (3, 31)], 3);
    check_common(&whole, &[(1, 10), (2, 20), (3, 31), (4, 40)], 3);
}

#[test]
fn what_has_returned_does_not_stand() {
    check_common(&[(1, 10), (2, 20), (3, 30)], &[(1, 10), (2, 21)], 2);
    check_common(&[(1, 10)], &[], 0);
}

#[test]
fn another_function_in_the_same_place_does_not_stand() {
    check_common(
        &[(1, 10), (2, 20), (3, 30)],
        &[(1, 10), (2, 20), (4, 30)],
        2,
    );
}

/// The caller has returned from the first call, and its next one has put the same function into the same place.
#[test]
fn the_same_function_called_from_another_line_does_not_stand() {
    check_common(
        &[(1, 10), (2, 20), (3, 30)],
        &[(1, 10), (2, 21), (3, 30)],
        2,
    );
    check_common(
        &[(1, 10), (2, 20), (3, 30)],
        &[(1, 11), (2, 20), (3, 30)],
        1,
    );
}

/// A read that began before a return finds the frame in its copy, above the top that the read ends with.
#[test]
fn what_a_call_left_in_memory_does_not_stand() {
    let frames = stack(&[(1, 10), (2, 20), (3, 30)]);
    let below = frames[1].address;
    assert_eq!(common(&frames, &frames, |frame| frame.address <= below), 2);
}

#[test]
fn a_function_without_a_frame_stands_with_its_caller() {
    let absent = Frame {
        func: 9,
        ..Frame::default()
    };
    let check = |again: &[(u64, u64)], expected: usize| {
        let mut frames = stack(&[(1, 10), (2, 20), (3, 30)]);
        frames.insert(1, absent);
        let again = stack(again);
        assert_eq!(common(&frames, &again, |_| true), expected);
    };
    check(&[(1, 10), (2, 20), (3, 30)], 4);
    // Another function was called on its behalf, or nothing any more.
    check(&[(1, 10), (2, 20), (4, 30)], 3);
    check(&[(1, 10), (2, 20)], 3);
    // Its caller has gone on.
    check(&[(1, 10), (2, 21), (3, 30)], 2);
}

#[test]
fn pauses_have_every_length_and_do_not_repeat() {
    let mut state = 0;
    let pauses: Vec<u64> = (0..4096)
        .map(|_| {
            state = uneven(state);
            state % MAX_TURNS
        })
        .collect();
    for length in 0..MAX_TURNS {
        let times = pauses.iter().filter(|&&pause| pause == length).count();
        assert!((16..=160).contains(&times), "{length}: {times} times");
    }
    let row = &pauses[..12];
    let repeats = pauses[1..].windows(12).filter(|other| *other == row);
    assert_eq!(repeats.count(), 0);
}

/// Calls with so few functions and lines that two stacks have much in common.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((1..3_u64, 0..2_u64), 1..7)
}

proptest! {
    /// Each frame that stands is there again, in the same call of the same callers, and the next one is not.
    #[test]
    fn what_stands_is_the_common_part_and_all_of_it(frames in calls(), again in calls()) {
        let of = |calls: &[(u64, u64)], index: usize| calls.get(index).map(|&(func, _)| (func, calls[..index].iter().map(|call| call.1).collect::<Vec<_>>()));
        let stood = common(&stack(&frames), &stack(&again), |_| true);
        prop_assert!(stood <= frames.len());
        for index in 0..stood {
            prop_assert_eq!(of(&frames, index), of(&again, index));
        }
        if stood < frames.len() {
            prop_assert_ne!(of(&frames, stood), of(&again, stood));
        }
    }

    /// The lower part of one stack with the upper part of another, where a caller below the cut is at another call: the edge
    /// across the cut stands in no read of either.
    #[test]
    fn a_pair_of_frames_from_different_moments_stands_in_neither(
        lower in vec((1..3_u64, 0..2_u64), 1..4), moved in any::<prop::sample::Index>(), one in calls(), other in calls(),
    ) {
        let mut later = lower.clone();
        later[moved.index(lower.len())].1 += 2;
        let (left, right) = ([(3, 0)], [(4, 0)]);
        let mix = [&lower[..], &right, &other].concat();
        for read in [[&lower[..], &left, &one].concat(), [&later[..], &right, &other].concat()] {
            prop_assert!(common(&stack(&mix), &stack(&read), |_| true) <= lower.len());
        }
    }
}
