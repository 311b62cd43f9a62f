use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::layouts::{Machine, ROWS, layout_of};
use crate::memory::Recorded;
use crate::testing::EngineImage;

mod beside;
mod delegates;
mod outermost;

const BASE: u64 = 0x7e00_0000_0000;
/// The tests' functions, each by its number, are from here on; a frame whose number is 0 has none.
const FUNCTIONS: u64 = 0x5500_0000_0000;

fn of_8_2() -> &'static Layout {
    layout_of(Machine::X86_64, 8, 2).unwrap()
}

/// Frames, each by its address, function, `prev_execute_data` and call info.
fn image(layout: &'static Layout, frames: &[(u64, u64, u64, u32)]) -> EngineImage {
    let mut image = EngineImage::new(layout);
    for &(address, function, prev, call_info) in frames {
        image.put_frame(&Frame {
            address,
            func: if function == 0 {
                0
            } else {
                FUNCTIONS + function
            },
            prev,
            call_info,
            ..Frame::default()
        });
    }
    image
}

/// Unwinds frames of one page, each at its offset; nothing else is mapped.
fn check(
    frames: &[(u64, u64, u64, u32)],
    start: u64,
    expected_functions: &[u64],
    expected: UnwindEnd,
) {
    let at = |&(offset, func, prev, info): &_| (BASE + offset, func, prev, info);
    let mut page = image(of_8_2(), &frames.iter().map(at).collect::<Vec<_>>());
    page.room(BASE, 4096);
    let nothing = EngineImage::new(of_8_2());
    let found = functions(&nothing, &mut page.copy(BASE, 4096), start);
    assert_eq!(found, (expected_functions.to_vec(), expected));
}

/// The functions of unwound frames, and how that ended.
fn functions(image: &EngineImage, copy: &mut Copy, start: u64) -> (Vec<u64>, UnwindEnd) {
    let mut frames = Vec::new();
    let end = unwind(image, image.layout, copy, start, &mut frames);
    let functions = frames.iter().map(|frame| frame.func - FUNCTIONS);
    (functions.collect(), end)
}

/// The same for frames that are all outside the copy.
fn check_heap(image: &EngineImage, start: u64, expected: &[u64], end: UnwindEnd) {
    let Layout { major, minor, .. } = image.layout;
    let found = functions(image, &mut Copy::default(), start);
    assert_eq!(found, (expected.to_vec(), end), "{major}.{minor}");
}

const TOP: u32 = 1 << 17;

#[test]
fn lowest_frame_naming_its_caller_is_called() {
    let frames = [
        (32, 1, 0, TOP),
        (160, 2, 32, 0),
        (320, 3, 160, 0),
        (480, 4, 160, 0),
    ];
    let at = |&(offset, func, prev, info): &_| (BASE + offset, func, BASE + prev, info);
    let mut page = image(of_8_2(), &frames.iter().map(at).collect::<Vec<_>>());
    page.room(BASE, 4096);
    let copy = page.copy(BASE, 4096);
    let callee = |caller: u64, last: u64| copy.callee_of(of_8_2(), BASE + caller, BASE + last);
    assert_eq!(callee(32, 480), Some(BASE + 160));
    assert_eq!(callee(160, 480), Some(BASE + 320));
    // None up to there, above the last one, and beyond the copy.
    assert_eq!((callee(160, 319), callee(480, 4000)), (None, None));
    assert_eq!(callee(u64::MAX - BASE, u64::MAX - BASE), None);
    // The range is as large as the address space, so it is not searched.
    assert_eq!(copy.callee_of(of_8_2(), 0, BASE + 480), None);
    assert_eq!(copy.callee_of(of_8_2(), BASE + 480, u64::MAX), None);
}

#[test]
fn chain_to_an_engines_frame_is_whole() {
    let frames = [(32, 1, 0, TOP), (160, 2, BASE + 32, 0)];
    check(&frames, BASE + 160, &[2, 1], UnwindEnd::Root);
}

#[test]
fn chain_ending_at_a_pending_call_is_torn() {
    let frames = [(32, 1, 0, 0), (160, 2, BASE + 32, 0)];
    check(&frames, BASE + 160, &[2, 1], UnwindEnd::Torn);
}

/// Its flags are a remainder of an earlier call, and tell that the engine started it.
#[test]
fn half_pushed_frame_is_torn() {
    for (this_type, expected) in [
        (0, UnwindEnd::Root),
        (8, UnwindEnd::Root),
        (0xa0, UnwindEnd::Torn),
    ] {
        let mut image = EngineImage::new(of_8_2());
        image.put_frame(&Frame {
            address: BASE,
            func: FUNCTIONS,
            call_info: TOP,
            this_type,
            ..Frame::default()
        });
        let (_, end) = functions(&image, &mut Copy::default(), BASE);
        assert_eq!(end, expected, "{this_type:#x}");
    }
}

/// Two variables have taken its place; the second one's type is where `func` was.
#[test]
fn frame_of_a_variables_type_is_torn() {
    let check = |func: u64, expected: &[u64]| {
        let mut page = image(of_8_2(), &[(BASE + 32, 1, BASE + 0x2000, TOP)]);
        page.put_word(BASE + 32, of_8_2().execute_data.func, func);
        page.room(BASE, 4096);
        let mut copy = page.copy(BASE, 4096);
        let found = functions(&page, &mut copy, BASE + 32);
        assert_eq!(found, (expected.to_vec(), UnwindEnd::Torn), "{func:#x}");
        assert_eq!(copy.fetches(), expected.len(), "{func:#x}");
    };
    for kind in [0x6, 0x106, 0x307, 0x308] {
        check(kind, &[]);
        check(kind | 3 << 32, &[]);
    }
    check(1 << 32, &[]);
    check(FUNCTIONS + 0x308, &[0x308]);
}

#[test]
fn a_cycle_is_torn() {
    let frames = [(32, 1, BASE + 160, TOP), (160, 2, BASE + 32, 0)];
    check(&frames, BASE + 160, &[2, 1], UnwindEnd::Torn);
    check(&[(32, 1, BASE + 32, TOP)], BASE + 32, &[1], UnwindEnd::Torn);
}

#[test]
fn an_address_that_nobody_maps_is_torn() {
    check(&[(32, 1, 0x40, TOP)], BASE + 32, &[1], UnwindEnd::Torn);
    check(&[(32, 1, 0, TOP)], BASE + 33, &[], UnwindEnd::Torn);
}

#[test]
fn each_versions_chain_reaches_its_root() {
    for layout in ROWS {
        let (below, above) = (BASE, BASE + 0x1000);
        let frames = [(below, 1, 0, layout.call_info.top), (above, 2, below, 0)];
        check_heap(&image(layout, &frames), above, &[2, 1], UnwindEnd::Root);
    }
}

#[test]
fn dummy_frame_lies_below_calls_to_8_0() {
    for layout in ROWS {
        let top = layout.call_info.top;
        let (root, dummy, called) = (BASE, BASE + 0x1000, BASE + 0x2000);
        let mut image = image(layout, &[(root, 1, 0, top), (called, 2, dummy, top)]);
        image.put_frame(&Frame {
            address: dummy,
            // It has a copy of its caller's `This`.
            this: 0x40,
            prev: root,
            ..Frame::default()
        });
        if (layout.major, layout.minor) < (8, 1) {
            check_heap(&image, called, &[2, 1], UnwindEnd::Root);
        } else {
            check_heap(&image, called, &[2], UnwindEnd::Torn);
        }
    }
}

#[test]
fn circle_of_dummy_frames_is_torn() {
    let layout = layout_of(Machine::X86_64, 7, 4).unwrap();
    let image = image(layout, &[(BASE, 0, BASE, 0)]);
    check_heap(&image, BASE, &[], UnwindEnd::Torn);
}

#[test]
fn running_generator_has_a_caller() {
    for layout in ROWS.iter().filter(|layout| layout.call_info.generator != 0) {
        let check = |flags: u64, expected: &[u64], end: UnwindEnd| {
            let (generator, frame) = (BASE + 0x10_0000, BASE + 0x20_0000);
            let (top, flag) = (layout.call_info.top, layout.call_info.generator);
            let frames = [(BASE, 1, 0, top), (frame, 2, BASE, top | flag)];
            let mut image = image(layout, &frames);
            image.put_word(frame, layout.execute_data.return_value, generator);
            image.room(generator, 0x400);
            image.put_word(generator, layout.generator.flags, flags);
            check_heap(&image, frame, expected, end);
        };
        check(1, &[2, 1], UnwindEnd::Root);
        check(0, &[], UnwindEnd::Torn);
    }
}

#[test]
fn heap_frame_is_no_older_page() {
    let (first, second) = (BASE + 0x10_0000, BASE + 0x20_0100);
    let mut image = image(of_8_2(), &[(first, 1, second, TOP), (second, 2, 0, TOP)]);
    // What stands in a page's place for the page before it.
    image.put_word(first, of_8_2().vm_stack_prev, second - 0x100);
    image.room(second - 0x100, 0x100);
    let mut copy = Copy::default();
    assert_eq!(functions(&image, &mut copy, first).1, UnwindEnd::Root);
    assert!(
        copy.fetched.iter().any(|&(address, _)| address == second),
        "{:?}",
        copy.fetched
    );
}

#[test]
fn frames_on_an_older_page_cost_one_read() {
    let newer = BASE + 0x10_0000;
    let frames = [
        (BASE + 32, 1, 0, TOP),
        (BASE + 160, 2, BASE + 32, 0),
        (newer + 32, 3, BASE + 160, 0),
    ];
    let mut image = image(of_8_2(), &frames);
    image.put_word(newer, of_8_2().vm_stack_prev, BASE);
    image.room(BASE, 4096);
    image.room(newer, 4096);
    let mut copy = image.copy(newer, 4096);
    let found = functions(&image, &mut copy, newer + 32);
    assert_eq!(found, (vec![3, 2, 1], UnwindEnd::Root));
    assert_eq!(copy.fetches(), 1);
}

proptest! {
    #[test]
    fn the_walk_ends_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2048), start in any::<u64>()) {
        let mut copy = Copy { base: BASE, bytes, ..Copy::default() };
        let mut frames = Vec::new();
        unwind(&Recorded::default(), of_8_2(), &mut copy, start, &mut frames);
        unwind(&Recorded::default(), of_8_2(), &mut copy, BASE, &mut frames);
        prop_assert!(frames.len() <= MAX_FRAMES);
    }

    /// Words that are nearly right are worse than noise: each points somewhere into the page.
    #[test]
    fn the_walk_ends_on_plausible_words(words in proptest::collection::vec(0_u64..4096, 16..256)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| (BASE + word / 8 * 8).to_le_bytes()).collect();
        let mut memory = Recorded::default();
        memory.put(BASE, bytes.clone());
        let mut copy = Copy { base: BASE, bytes, ..Copy::default() };
        let mut frames = Vec::new();
        unwind(&memory, of_8_2(), &mut copy, BASE + 32, &mut frames);
        prop_assert!(frames.len() <= MAX_FRAMES);
    }
}

/// Three calls, the root first, as looks show them: each look has the oplines, and the functions,
/// of the calls. Returns how many of them stood, and how many are not contradicted.
fn agree<const CALLS: usize>(shown: &[[(u64, u64); CALLS]]) -> (usize, usize) {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let row = &layout.execute_data;
    let look = |calls: &[(u64, u64); CALLS]| {
        let mut bytes = vec![0; CALLS * 0x60];
        for (index, &(func, opline)) in calls.iter().enumerate() {
            let mut put = |offset: usize, value: u64| {
                let at = index * 0x60 + offset;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            };
            put(row.func, func);
            put(row.opline, opline);
        }
        bytes
    };
    let looks: Vec<Vec<u8>> = shown.iter().map(look).collect();
    let mut copy = Copy {
        base: 0x1000,
        bytes: vec![0; 0x60 * CALLS],
        hot: 0x1000,
        looks: looks.clone(),
        ..Copy::default()
    };
    copy.take_look(0);
    assert_eq!(copy.bytes, looks[0]);
    let mut frames: Vec<Frame> = (0..CALLS as u64)
        .rev()
        .map(|index| 0x1000 + index * 0x60)
        .map(|address| Frame::parse(layout, address, copy.at(address).unwrap()))
        .collect();
    // The body of a generator is on the heap.
    let body = Frame {
        address: 0x9000,
        ..frames[0]
    };
    frames.insert(0, body);
    let looks = 0..copy.looks.len();
    (
        copy.stood(layout, &frames, looks.clone()),
        copy.not_denied(layout, &frames, looks),
    )
}

#[test]
fn stood_ends_at_the_first_moved_caller() {
    let calls = [(1, 10), (2, 20), (3, 30)];
    let stood = |shown: &[[(u64, u64); 3]]| agree(shown).0;
    assert_eq!(stood(&[calls, calls, calls]), 3);
    assert_eq!(stood(&[calls, [(1, 10), (2, 20), (3, 31)]]), 3);
    assert_eq!(stood(&[calls, [(1, 10), (2, 21), (3, 30)]]), 2);
    assert_eq!(stood(&[calls, [(1, 10), (2, 20), (4, 30)]]), 2);
    assert_eq!(stood(&[calls, calls, [(5, 10), (2, 20), (3, 30)]]), 0);
}

#[test]
fn unseen_call_is_denied_with_its_caller() {
    let calls = [(1, 10), (2, 20), (3, 30)];
    let not_denied = |shown: &[[(u64, u64); 3]]| agree(shown).1;
    assert_eq!(not_denied(&[calls, calls]), 4);
    assert_eq!(not_denied(&[calls, [(1, 10), (2, 20), (3, 31)]]), 3);
    assert_eq!(not_denied(&[calls, [(1, 10), (2, 20), (4, 30)]]), 2);
}

/// Checks calls at these offsets of a page whose looks begin at 0x100, where the third look has
/// another byte.
#[track_caller]
fn check_below(offsets: &[u64], changed: Option<usize>, looks: Range<usize>, expected: bool) {
    let layout = of_8_2();
    let look = vec![1; 0x100];
    let mut copy = Copy {
        base: 0x1000,
        bytes: vec![1; 0x200],
        hot: 0x1100,
        looks: vec![look.clone(), look.clone(), look],
        ..Copy::default()
    };
    copy.take_look(0);
    if let Some(byte) = changed {
        copy.looks[2][byte] = 2;
    }
    let frame = |offset: &u64| Frame {
        address: 0x1000 + offset,
        ..Frame::default()
    };
    let frames: Vec<Frame> = offsets.iter().rev().map(frame).collect();
    assert_eq!(copy.stood_below(layout, &frames, looks), expected);
}

#[test]
fn calls_below_looks_stand_with_the_lowest() {
    let offsets = [0x20, 0x120, 0x180];
    check_below(&offsets, None, 0..3, true);
    // Its header, or what it was called with.
    check_below(&offsets, Some(0x20), 0..3, false);
    check_below(&offsets, Some(0x7f), 0..3, false);
    check_below(&offsets, Some(0x7f), 0..2, true);
    // What lies beside it, or belongs to its callee.
    check_below(&offsets, Some(0x1f), 0..3, true);
    check_below(&offsets, Some(0x80), 0..3, true);
}

#[test]
fn one_sided_looks_compare_nothing() {
    check_below(&[0x120, 0x180], Some(0x20), 0..3, true);
    check_below(&[0x20], Some(0x20), 0..3, true);
    check_below(&[], Some(0x20), 0..3, true);
    // The looks end within the lowest call above.
    check_below(&[0x20, 0x1e0], None, 0..3, false);
}

#[test]
fn first_frame_of_first_page_has_no_caller() {
    let layout = of_8_2();
    let mut copy = Copy {
        base: BASE,
        bytes: vec![0; 0x100],
        ..Copy::default()
    };
    assert!(copy.is_first(layout, BASE + 0x20));
    assert!(!copy.is_first(layout, BASE + 0x30));
    // The page has another one before it.
    copy.bytes[layout.vm_stack_prev + 4] = 1;
    assert!(!copy.is_first(layout, BASE + 0x20));
    assert!(!Copy::default().is_first(layout, 0x20), "nothing was read");
}

#[test]
fn zval_needs_all_looks_to_agree() {
    let look = |value: u8| vec![value; 64];
    let copy = Copy {
        base: 0x1000,
        bytes: [vec![9; 64], look(1)].concat(),
        hot: 0x1040,
        looks: vec![look(1), look(1), look(2)],
        ..Copy::default()
    };
    let shows = |address: u64, looks: Range<usize>| copy.shows(address, looks);
    assert!(shows(0x1040, 0..2) && shows(0x1070, 0..2));
    assert!(!shows(0x1040, 0..3), "one look has another");
    assert!(!shows(0x1040, 0..0), "there is none");
    assert!(!shows(0x1030, 0..2), "it lies below the looks");
    assert!(!shows(0x1071, 0..2), "it goes on behind them");
}
