use super::*;
use crate::layouts::{Machine, layout_of};
use crate::memory::Recorded;

const BASE: u64 = 0x5555_0000_0000;
/// Where the image's one writable segment lies.
const DATA: u64 = BASE + 0x2000;
const TABLE: u64 = 0x7f00_0000_0000;
const ENTRIES: u64 = TABLE + 0x1000;
const BUCKETS: u32 = 2;
const IDS: Ids = Ids {
    executor: 3,
    compiler: 2,
    sapi: Some(1),
    core: None,
    executor_offset: None,
};

/// An image whose writable segment holds a pointer to a table at word 5, its size 8 bytes before, and noise elsewhere.
fn memory(table: &[(u64, u64)]) -> (Recorded, Image) {
    let mut header = vec![0_u8; 64 + 2 * 56];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = 183;
    header[32] = 64;
    header[54] = 56;
    header[56] = 2;
    for (index, (flags, address, size)) in [(4_u32, 0_u64, 0x1000_u64), (6, 0x2000, 0x80)]
        .into_iter()
        .enumerate()
    {
        let at = 64 + index * 56;
        header[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
        header[at + 4..at + 8].copy_from_slice(&flags.to_le_bytes());
        header[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
        header[at + 40..at + 48].copy_from_slice(&size.to_le_bytes());
    }
    let mut data = vec![0_u8; 0x80];
    let mut word =
        |index: usize, value: u64| data[index * 8..][..8].copy_from_slice(&value.to_le_bytes());
    // A pointer that leads nowhere, one that leads into the image, and one to what is no table.
    word(0, 0x7eee_0000_0000);
    word(1, 1);
    word(2, ENTRIES);
    word(3, BASE + 0x10);
    word(4, u64::from(BUCKETS));
    word(5, TABLE);
    let mut memory = Recorded::default();
    memory.put(BASE, header);
    memory.put(DATA, data);
    for (bucket, first) in (0..u64::from(BUCKETS)).zip([0_usize, 1]) {
        memory.put_word(
            TABLE + bucket * 8,
            table
                .get(first)
                .map_or(0, |_| ENTRIES + first as u64 * 0x100),
        );
    }
    for (index, &(thread_id, next)) in table.iter().enumerate() {
        let at = ENTRIES + index as u64 * 0x100;
        memory.put_word(at, at + 0x40);
        memory.put_word(at + 8, 3);
        memory.put_word(at + 16, thread_id);
        memory.put_word(at + 24, next);
        for slot in 0..3 {
            memory.put_word(at + 0x40 + slot * 8, at + 0x80 + slot);
        }
    }
    let image = Image::read(&memory, BASE).unwrap();
    (memory, image)
}

fn check(table: &[(u64, u64)], expected: Option<&[u64]>) {
    for (major, minor) in [(7, 0), (7, 4), (8, 5)] {
        let layout = layout_of(Machine::Aarch64, major, minor).unwrap();
        let (memory, image) = memory(table);
        let found = Threads::find(&memory, layout, &image, IDS, |thread| {
            thread.executor_globals == thread.sapi_globals.unwrap() + 2
        });
        let threads = found.map(|found| {
            assert_eq!(found.table_at, DATA + 40);
            let listed = found.list(&memory, layout).unwrap();
            listed.iter().map(|thread| thread.thread_id).collect()
        });
        assert_eq!(threads, expected.map(<[u64]>::to_vec));
    }
}

#[test]
fn the_table_is_found_among_other_pointers_with_all_its_threads() {
    check(&[(0x100, 0), (0x101, 0)], Some(&[0x100, 0x101]));
    check(&[(0x100, 0)], Some(&[0x100]));
}

#[test]
fn a_table_whose_threads_are_in_the_wrong_bucket_is_none() {
    check(&[(0x101, 0), (0x100, 0)], None);
    check(&[], None);
}

#[test]
fn a_chain_that_leads_to_itself_is_none() {
    check(&[(0x100, ENTRIES), (0x101, 0)], None);
}

#[test]
fn a_thread_that_is_just_beginning_is_left_out() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let (mut memory, image) = memory(&[(0x100, 0), (0x101, 0)]);
    let found = Threads::find(&memory, layout, &image, IDS, |_| true).unwrap();
    // `allocate_new_resource` links the entry before its storage is filled.
    memory.put_word(ENTRIES + 8, 0);
    let listed = found.list(&memory, layout).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].thread_id, 0x101);
}
