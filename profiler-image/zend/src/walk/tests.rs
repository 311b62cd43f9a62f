use proptest::prelude::*;

use super::*;
use crate::layouts::{Machine, layout_of};
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
    let end = walk(
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
        walk(
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
        walk(&Recorded::default(), layout_of(Machine::X86_64, 8, 2).unwrap(), &mut copy, start, &mut frames);
        walk(&Recorded::default(), layout_of(Machine::X86_64, 8, 2).unwrap(), &mut copy, BASE, &mut frames);
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
        walk(&memory, layout_of(Machine::X86_64, 8, 2).unwrap(), &mut copy, BASE + 32, &mut frames);
        prop_assert!(frames.len() <= MAX_FRAMES);
    }
}
