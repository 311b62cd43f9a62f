use proptest::collection::vec;
use proptest::prelude::*;

use phpprof_zend::layouts::{Machine, layout_of};

use super::*;

const HOT: u64 = 0x7f00_0000_0000;
const HEAP: u64 = 0x5500_0000_0000;

fn layout() -> &'static Layout {
    layout_of(Machine::X86_64, 8, 2).unwrap()
}

fn address(index: usize) -> u64 {
    HOT + 0x20 + index as u64 * 0x60
}

/// A frame for each (function, opline), the root first, as they lie on a VM stack; leaf first as
/// unwinding has them.
fn stack(calls: &[(u64, u64)]) -> Vec<Frame> {
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

fn header(frame: &Frame) -> Header {
    let row = &layout().execute_data;
    let mut header = Header::default();
    let mut put = |offset: usize, word: u64| {
        header.0[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    };
    put(row.opline, frame.opline);
    put(row.func, frame.func);
    put(row.prev_execute_data, frame.prev);
    header
}

impl LooksShown {
    /// How many of the frames stand, from the root.
    fn standing(&mut self, frames: &[Frame]) -> usize {
        self.frames = frames.len();
        self.stand(layout(), frames, TopChoice::Between).above
    }

    /// Puts a frame of the stack's page into each look.
    fn put(&mut self, frame: &Frame) {
        let at = usize::try_from(frame.address - HOT).unwrap();
        let size = layout().execute_data.sizeof;
        for look in &mut self.looks {
            look[at..at + size].copy_from_slice(&header(frame).0[..size]);
        }
    }

    /// Puts frames outside the stack's page into each look.
    fn put_elsewhere(&mut self, frames: &[Frame]) {
        self.elsewhere = frames.iter().map(|frame| frame.address).collect();
        for headers in &mut self.headers {
            for (place, frame) in headers.iter_mut().zip(frames) {
                *place = header(frame);
            }
        }
    }
}

/// The looks at these stacks in turn; above each stack are the frames that `left` left there.
fn shown(left: &[(u64, u64)], stacks: &[&[(u64, u64)]]) -> LooksShown {
    let mut shown = LooksShown {
        hot: HOT,
        ..LooksShown::default()
    };
    for look in 0..LOOKS {
        let now = stack(stacks[look % stacks.len()]);
        let mut bytes = vec![0_u8; 0x1000];
        for frame in stack(left).iter().chain(&now) {
            let at = usize::try_from(frame.address - HOT).unwrap();
            let size = layout().execute_data.sizeof;
            bytes[at..at + size].copy_from_slice(&header(frame).0[..size]);
        }
        shown.looks.push(bytes);
        if look == 0 {
            shown.tops = [now.first().map_or(0, |leaf| leaf.address).to_le_bytes(); LOOKS + 1];
        }
    }
    shown
}

fn check(frames: &[(u64, u64)], stacks: &[&[(u64, u64)]], expected: usize) {
    let stands = shown(&[], stacks).standing(&stack(frames));
    assert_eq!(stands, expected);
}

#[test]
fn what_has_not_moved_stands() {
    let whole = [(1, 10), (2, 20), (3, 30)];
    check(&whole, &[&whole], 3);
    // The leaf has run on, and so has its callee.
    check(&whole, &[&[(1, 10), (2, 20), (3, 31)]], 3);
    let more = [(1, 10), (2, 20), (3, 31), (4, 40)];
    check(&whole, &[&whole, &more], 3);
}

#[test]
fn what_has_returned_does_not_stand() {
    check(&[(1, 10), (2, 20), (3, 30)], &[&[(1, 10), (2, 21)]], 2);
    check(&[(1, 10)], &[&[]], 0);
}

#[test]
fn another_function_in_place_does_not_stand() {
    let whole = [(1, 10), (2, 20), (3, 30)];
    check(&whole, &[&[(1, 10), (2, 20), (4, 30)]], 2);
    // Not even if only one look shows it.
    let other: &[(u64, u64)] = &[(1, 10), (2, 20), (4, 30)];
    check(&whole, &[&whole, other], 2);
}

/// The caller has returned from the first call, and its next call has put the same function into
/// the same place.
#[test]
fn function_called_from_another_line_does_not_stand() {
    let whole = [(1, 10), (2, 20), (3, 30)];
    check(&whole, &[&[(1, 10), (2, 21), (3, 30)]], 2);
    check(&whole, &[&[(1, 11), (2, 20), (3, 30)]], 1);
}

#[test]
fn remains_of_a_call_do_not_stand() {
    let whole = [(1, 10), (2, 20), (3, 30)];
    let mut shown = shown(&whole, &[&[(1, 10), (2, 20)]]);
    assert_eq!(shown.standing(&stack(&whole)), 2);
}

/// The earlier caller has fewer variables than the current one: the frame that its callee left is
/// between the current one's variables, below the top, and the current caller stands at its call.
#[test]
fn remains_below_the_top_do_not_stand() {
    let calls = [(1, 10), (2, 20)];
    let (left, now) = (address(2), address(2) + 0x20);
    let callee = |address: u64, func: u64| Frame {
        address,
        func,
        prev: self::address(1),
        ..Frame::default()
    };
    let mut shown = shown(&[], &[&calls]);
    for look in &mut shown.looks {
        // The header of the later callee does not overwrite these words of the earlier one.
        for frame in [callee(now, 4), callee(left, 3)] {
            let at = usize::try_from(frame.address - HOT).unwrap();
            let row = &layout().execute_data;
            for (offset, word) in [(row.func, frame.func), (row.prev_execute_data, frame.prev)] {
                look[at + offset..at + offset + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    shown.tops = [now.to_le_bytes(); LOOKS + 1];
    let mut stand = |leaf: Frame| shown.standing(&[&[leaf][..], &stack(&calls)].concat());
    assert_eq!(stand(callee(now, 4)), 3);
    assert_eq!(stand(callee(left, 3)), 2);
}

/// The body of a generator is on the heap, and its frame stays there while it does not run.
#[test]
fn generator_body_stands_while_on_top() {
    let calls = [(1, 10), (2, 20)];
    let body = Frame {
        address: HEAP,
        func: 5,
        prev: address(1),
        ..Frame::default()
    };
    let frames = [&[body][..], &stack(&calls)].concat();
    let stands = |body: Frame, top: u64| {
        let mut shown = shown(&[], &[&calls]);
        shown.put_elsewhere(&[body]);
        shown.tops = [top.to_le_bytes(); LOOKS + 1];
        shown.standing(&frames)
    };
    assert_eq!(stands(body, HEAP), 3);
    assert!(stands(Frame { func: 6, ..body }, HEAP) < 3);
    assert!(stands(Frame { prev: 0, ..body }, HEAP) < 3);
    // It does not run: the code that resumed it is the top.
    assert_eq!(stands(body, address(1)), 2);
    // The top of another stack tells nothing.
    assert_eq!(stands(body, HEAP + 0x1000), 0);
}

/// Two calls above the body of a generator have returned, and so has the generator; another
/// function has taken the place of the upper one.
#[test]
fn generator_body_under_another_call_does_not_stand() {
    let calls = [(1, 10), (2, 20)];
    let body = Frame {
        address: HEAP,
        func: 5,
        prev: address(1),
        ..Frame::default()
    };
    let called = |func: u64, prev: u64| Frame {
        address: address(2),
        func,
        prev,
        ..Frame::default()
    };
    let frames = [&[called(3, HEAP), body][..], &stack(&calls)].concat();
    let stands = |now: Frame| {
        let mut shown = shown(&[], &[&calls]);
        shown.put_elsewhere(&[body]);
        shown.put(&now);
        shown.tops = [address(2).to_le_bytes(); LOOKS + 1];
        shown.standing(&frames)
    };
    assert_eq!(stands(called(3, HEAP)), 4);
    assert_eq!(stands(called(4, HEAP)), 3);
    assert_eq!(stands(called(4, address(1))), 2);
}

/// The body of a generator iterates another one. Both have ended, and the inner one's memory is now
/// a third body, which has called the same function; the frame of the outer one's call is still
/// there.
#[test]
fn generator_body_resumed_elsewhere_does_not_stand() {
    let calls = [(1, 10), (2, 20)];
    let body = |address: u64, func: u64, prev: u64| Frame {
        address,
        func,
        prev,
        ..Frame::default()
    };
    let outer = body(HEAP, 5, address(1));
    let inner = |prev: u64| body(HEAP + 0x100, 6, prev);
    let called = body(address(2), 3, HEAP + 0x100);
    let frames = [&[called, inner(HEAP), outer][..], &stack(&calls)].concat();
    let stands = |resumed_by: u64| {
        let mut shown = shown(&[], &[&calls]);
        shown.put_elsewhere(&[inner(resumed_by), outer]);
        shown.put(&called);
        shown.tops = [called.address.to_le_bytes(); LOOKS + 1];
        shown.standing(&frames)
    };
    assert_eq!(stands(HEAP), 5);
    assert_eq!(stands(address(1)), 2);
    assert_eq!(stands(HEAP + 0x200), 0);
}

#[test]
fn frameless_function_stands_with_its_caller() {
    let absent = Frame {
        func: 9,
        ..Frame::default()
    };
    let check = |now: &[(u64, u64)], expected: usize| {
        let mut frames = stack(&[(1, 10), (2, 20), (3, 30)]);
        frames.insert(1, absent);
        let stands = shown(&[], &[now]).standing(&frames);
        assert_eq!(stands, expected);
    };
    check(&[(1, 10), (2, 20), (3, 30)], 4);
    // Another function was called through it, or none any more.
    check(&[(1, 10), (2, 20), (4, 30)], 2);
    check(&[(1, 10), (2, 20)], 2);
    // Its caller has moved on.
    check(&[(1, 10), (2, 21), (3, 30)], 2);
}

/// Calls with so few functions and lines that two stacks have much in common.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((1..3_u64, 0..2_u64), 1..7)
}

proptest! {
    /// Each frame that stands is there again, in the same call of the same callers, and the next
    /// one is not.
    #[test]
    fn stand_is_the_common_part(frames in calls(), again in calls()) {
        let of = |calls: &[(u64, u64)], index: usize| calls.get(index).map(|&(func, _)| (func, calls[..index].iter().map(|call| call.1).collect::<Vec<_>>()));
        let stands = shown(&[], &[&again]).standing(&stack(&frames));
        prop_assert!(stands <= frames.len());
        for index in 0..stands {
            prop_assert_eq!(of(&frames, index), of(&again, index));
        }
        if stands < frames.len() {
            prop_assert_ne!(of(&frames, stands), of(&again, stands));
        }
    }

    /// The lower part of one stack with the upper part of another; a caller below the cut is at
    /// another call: the edge across the cut stands in no look at either.
    #[test]
    fn frames_of_different_moments_do_not_stand(
        lower in vec((1..3_u64, 0..2_u64), 1..4), moved in any::<prop::sample::Index>(), one in calls(), other in calls(),
    ) {
        let mut later = lower.clone();
        later[moved.index(lower.len())].1 += 2;
        let (left, right) = ([(3, 0)], [(4, 0)]);
        let mix = [&lower[..], &right, &other].concat();
        for look in [[&lower[..], &left, &one].concat(), [&later[..], &right, &other].concat()] {
            prop_assert!(shown(&[], &[&look]).standing(&stack(&mix)) <= lower.len());
        }
    }
}

/// The program makes its top call after the first look.
#[test]
fn function_stands_if_each_look_leads_to_it() {
    let (before, after) = ([(1, 10), (2, 20)], [(1, 10), (2, 20), (3, 30)]);
    let mut shown = shown(&[], &[&before, &after]);
    let [callers, callee] = [&before[..], &after[..]].map(|stack_of| stack(stack_of)[0].address);
    shown.tops = [callers, callee, callee].map(u64::to_le_bytes);
    let frames = stack(&before);
    shown.frames = frames.len();
    let stand = |tops| shown.stand(layout(), &frames, tops).above;
    assert_eq!(
        (stand(TopChoice::Between), stand(TopChoice::NextTo)),
        (0, 2)
    );
    shown.tops = [callee; LOOKS + 1].map(u64::to_le_bytes);
    let stand = shown.stand(layout(), &frames, TopChoice::NextTo);
    assert_eq!(stand.above, 0, "nothing leads to it in the first look");
}
