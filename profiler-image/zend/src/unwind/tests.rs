use proptest::prelude::*;

use super::*;
use crate::layouts::{Machine, ROWS, layout_of};
use crate::memory::Recorded;

const BASE: u64 = 0x7f00_0000_0000;

/// A page with frames at the given offsets: (offset, func, prev, call_info).
fn page(frames: &[(usize, u64, u64, u32)]) -> Copy {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let mut bytes = vec![0_u8; 4096];
    for &(offset, func, prev, info) in frames {
        let row = &layout.execute_data;
        bytes[offset + row.func..][..8].copy_from_slice(&func.to_le_bytes());
        bytes[offset + row.prev_execute_data..][..8].copy_from_slice(&prev.to_le_bytes());
        bytes[offset + row.this_type_info..][..4].copy_from_slice(&info.to_le_bytes());
    }
    Copy {
        base: BASE,
        bytes,
        ..Copy::default()
    }
}

fn check(frames: &[(usize, u64, u64, u32)], start: u64, expected_functions: &[u64], expected: End) {
    let mut found = Vec::new();
    let end = unwind(
        &Recorded::default(),
        layout_of(Machine::X86_64, 8, 2).unwrap(),
        &mut page(frames),
        start,
        &mut found,
    );
    assert_eq!(
        found.iter().map(|frame| frame.func).collect::<Vec<_>>(),
        expected_functions
    );
    assert_eq!(end, expected);
}

const TOP: u32 = 1 << 17;

#[test]
fn a_chain_to_a_frame_that_the_engine_started_is_whole() {
    check(
        &[(32, 1, 0, TOP), (160, 2, BASE + 32, 0)],
        BASE + 160,
        &[2, 1],
        End::Root,
    );
}

#[test]
fn a_chain_that_ends_at_a_pending_call_is_torn() {
    check(
        &[(32, 1, 0, 0), (160, 2, BASE + 32, 0)],
        BASE + 160,
        &[2, 1],
        End::Torn,
    );
}

#[test]
fn a_cycle_is_torn() {
    check(
        &[(32, 1, BASE + 160, TOP), (160, 2, BASE + 32, 0)],
        BASE + 160,
        &[2, 1],
        End::Torn,
    );
    check(&[(32, 1, BASE + 32, TOP)], BASE + 32, &[1], End::Torn);
}

#[test]
fn an_address_that_nobody_maps_is_torn() {
    check(&[(32, 1, 0x40, TOP)], BASE + 32, &[1], End::Torn);
    check(&[(32, 1, 0, TOP)], BASE + 33, &[], End::Torn);
}

/// Writes a frame as this version lays it out.
fn put_frame(memory: &mut Recorded, layout: &Layout, address: u64, frame: (u64, u64, u64, u32)) {
    let (func, this, prev, info) = frame;
    let row = &layout.execute_data;
    memory.put(address, vec![0_u8; FETCH]);
    memory.put_word(address + row.func as u64, func);
    memory.put_word(address + row.this as u64, this);
    memory.put_word(address + row.prev_execute_data as u64, prev);
    memory.put(
        address + row.this_type_info as u64,
        (info << layout.call_info.shift).to_le_bytes().to_vec(),
    );
}

/// The functions of unwound frames that all lie outside the copy.
fn functions(memory: &Recorded, layout: &Layout, start: u64) -> (Vec<u64>, End) {
    let mut frames = Vec::new();
    let end = unwind(memory, layout, &mut Copy::default(), start, &mut frames);
    (frames.iter().map(|frame| frame.func).collect(), end)
}

#[test]
fn in_each_version_a_chain_is_followed_to_its_root() {
    for layout in ROWS {
        let mut memory = Recorded::default();
        put_frame(&mut memory, layout, BASE, (1, 0, 0, layout.call_info.top));
        put_frame(&mut memory, layout, BASE + 0x1000, (2, 0, BASE, 0));
        let found = functions(&memory, layout, BASE + 0x1000);
        assert_eq!(found, (vec![2, 1], End::Root));
    }
}

#[test]
fn up_to_8_0_a_dummy_frame_lies_below_what_the_engine_calls() {
    for layout in ROWS {
        let top = layout.call_info.top;
        let mut memory = Recorded::default();
        put_frame(&mut memory, layout, BASE, (1, 0, 0, top));
        // It has a copy of its caller's `This`.
        put_frame(&mut memory, layout, BASE + 0x1000, (0, 0x40, BASE, 0));
        put_frame(
            &mut memory,
            layout,
            BASE + 0x2000,
            (2, 0, BASE + 0x1000, top),
        );
        let expected = if (layout.major, layout.minor) < (8, 1) {
            (vec![2, 1], End::Root)
        } else {
            (vec![2], End::Torn)
        };
        assert_eq!(functions(&memory, layout, BASE + 0x2000), expected);
    }
}

#[test]
fn dummy_frames_that_lead_to_each_other_are_torn() {
    let layout = layout_of(Machine::X86_64, 7, 4).unwrap();
    let mut memory = Recorded::default();
    put_frame(&mut memory, layout, BASE, (0, 0, BASE, 0));
    assert_eq!(functions(&memory, layout, BASE), (vec![], End::Torn));
}

/// `outer` delegates to `middle`, `middle` to `inner`, which runs.
#[test]
fn in_each_version_delegating_generators_stand_between_the_running_one_and_its_caller() {
    for layout in ROWS {
        let row = &layout.generator;
        let generator = |index: u64| BASE + index * 0x10_0000;
        let (outer, middle, inner) = (generator(1), generator(2), generator(3));
        let heap_frame = |generator: u64| generator + 0x1000;
        let mut memory = Recorded::default();
        let top = layout.call_info.top;
        put_frame(&mut memory, layout, BASE, (1, 0, 0, top));
        for (index, (generator, parent)) in [(outer, middle), (middle, inner), (inner, 0)]
            .into_iter()
            .enumerate()
        {
            memory.put(generator, vec![0_u8; 0x400]);
            memory.put_word(generator + row.execute_data as u64, heap_frame(generator));
            memory.put_word(generator + row.node_parent as u64, parent);
            // A leaf knows the root, which is the one that runs; other nodes know a leaf.
            let children = u64::from(generator != outer);
            memory.put_word(generator + row.node_children as u64, children);
            let ptr = if generator == outer { inner } else { outer };
            memory.put_word(generator + row.node_ptr as u64, ptr);
            let frame = (10 + index as u64, 0, outer + row.execute_fake as u64, top);
            put_frame(&mut memory, layout, heap_frame(generator), frame);
        }
        let fake = outer + row.execute_fake as u64;
        put_frame(&mut memory, layout, fake, (0, outer, BASE, 0));
        let found = functions(&memory, layout, heap_frame(inner));
        assert_eq!(
            found,
            (vec![12, 11, 10, 1], End::Root),
            "{}.{}",
            layout.major,
            layout.minor
        );
    }
}

#[test]
fn in_each_version_a_generator_has_a_caller_once_it_is_marked_as_running() {
    for layout in ROWS.iter().filter(|layout| layout.call_info.generator != 0) {
        let check = |flags: u64, expected: (Vec<u64>, End)| {
            let (generator, frame) = (BASE + 0x10_0000, BASE + 0x20_0000);
            let (top, flag) = (layout.call_info.top, layout.call_info.generator);
            let mut memory = Recorded::default();
            put_frame(&mut memory, layout, BASE, (1, 0, 0, top));
            put_frame(&mut memory, layout, frame, (2, 0, BASE, top | flag));
            memory.put_word(frame + layout.execute_data.return_value as u64, generator);
            memory.put_word(generator + layout.generator.flags as u64, flags);
            assert_eq!(functions(&memory, layout, frame), expected);
        };
        check(1, (vec![2, 1], End::Root));
        check(0, (vec![], End::Torn));
    }
}

#[test]
fn a_frame_on_the_heap_is_not_taken_for_an_older_page() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let mut memory = Recorded::default();
    let (first, second) = (BASE + 0x10_0000, BASE + 0x20_0100);
    put_frame(&mut memory, layout, first, (1, 0, second, TOP));
    // What stands in a page's place for the page before it.
    memory.put_word(first + layout.vm_stack_prev as u64, second - 0x100);
    memory.put(second - 0x100, vec![0; 0x100]);
    put_frame(&mut memory, layout, second, (2, 0, 0, TOP));
    let mut copy = Copy::default();
    let mut frames = Vec::new();
    assert_eq!(
        unwind(&memory, layout, &mut copy, first, &mut frames),
        End::Root
    );
    assert!(
        copy.fetched.iter().any(|&(address, _)| address == second),
        "{:?}",
        copy.fetched
    );
}

#[test]
fn frames_on_an_older_page_cost_one_read() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let older = page(&[(32, 1, 0, TOP), (160, 2, BASE + 32, 0)]);
    let mut memory = Recorded::default();
    memory.put(BASE, older.bytes);
    let mut newer = page(&[(32, 3, BASE + 160, 0)]);
    newer.base = BASE + 0x10_0000;
    newer.bytes[layout.vm_stack_prev..][..8].copy_from_slice(&BASE.to_le_bytes());
    let mut frames = Vec::new();
    assert_eq!(
        unwind(
            &memory,
            layout,
            &mut newer,
            BASE + 0x10_0000 + 32,
            &mut frames
        ),
        End::Root
    );
    assert_eq!(frames.len(), 3);
    assert_eq!(newer.fetches(), 1);
}

proptest! {
    #[test]
    fn the_walk_ends_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2048), start in any::<u64>()) {
        let mut copy = Copy { base: BASE, bytes, ..Copy::default() };
        let mut frames = Vec::new();
        unwind(&Recorded::default(), layout_of(Machine::X86_64, 8, 2).unwrap(), &mut copy, start, &mut frames);
        unwind(&Recorded::default(), layout_of(Machine::X86_64, 8, 2).unwrap(), &mut copy, BASE, &mut frames);
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
        unwind(&memory, layout_of(Machine::X86_64, 8, 2).unwrap(), &mut copy, BASE + 32, &mut frames);
        prop_assert!(frames.len() <= MAX_FRAMES);
    }
}
