use super::*;
use crate::layouts::{Machine, layout_of};
use crate::testing::EngineImage;

const BASE: u64 = 0x5555_0000_0000;
/// The address of the image's only writable segment.
const DATA: u64 = BASE + 0x2000;
const TABLE: u64 = 0x7e00_0000_0000;
const ENTRIES: u64 = TABLE + 0x1000;
const BUCKETS: u64 = 2;
/// The variables with the ids, each in a word.
const IDS_AT: IdsAt = IdsAt {
    executor: TABLE - 8,
    compiler: TABLE - 16,
    sapi: Some(TABLE - 24),
    core: None,
    executor_offset: None,
};
const CORE_AT: u64 = TABLE - 32;

/// An image whose writable segment has a pointer to a table at word 5, its size 8 bytes before, and
/// noise elsewhere. An entry is its thread and the next entry.
fn engine(layout: &'static Layout, table: &[(u64, u64)]) -> (EngineImage, Image) {
    engine_with(layout, table, &[])
}

/// The same, with these headers before that of the writable segment: type, flags, address and
/// length.
fn engine_with(
    layout: &'static Layout,
    table: &[(u64, u64)],
    before: &[(u32, u32, u64, u64)],
) -> (EngineImage, Image) {
    let mut engine = EngineImage::new(layout);
    let headers = [&[(1, 4, 0, 0x1000)], before, &[(1, 6, DATA - BASE, 0x80)]].concat();
    engine.put_elf(BASE, &headers);
    engine.room(DATA, 0x80);
    // A pointer that leads nowhere, one that leads into the image, and one to what is not a table.
    let words = [0x7eee_0000_0000, 1, ENTRIES, BASE + 0x10, BUCKETS, TABLE];
    for (index, word) in words.into_iter().enumerate() {
        engine.put_word(DATA, index * 8, word);
    }
    engine.room(TABLE, BUCKETS * 8);
    for (at, id) in [(8, 3), (16, 2), (24, 1), (32, u32::MAX)] {
        engine.put_half(TABLE - at, 0, id);
    }
    for (index, &(thread_id, next)) in table.iter().enumerate() {
        let entry = ENTRIES + index as u64 * 0x100;
        if (index as u64) < BUCKETS {
            engine.put_word(TABLE, index * 8, entry);
        }
        let resources = [0x80, 0x81, 0x82].map(|offset| entry + offset);
        engine.put_thread(entry, thread_id, next, &resources);
    }
    let image = Image::read(&engine, BASE).unwrap();
    (engine, image)
}

fn check(table: &[(u64, u64)], expected: Option<&[u64]>) {
    for (major, minor) in [(7, 0), (7, 4), (8, 5)] {
        let layout = layout_of(Machine::Aarch64, major, minor).unwrap();
        let (engine, image) = engine(layout, table);
        let found = Threads::find(&engine, layout, &image, IDS_AT, |thread| {
            thread.executor_globals == thread.sapi_globals.unwrap() + 2
        });
        let threads = found.map(|found| {
            assert_eq!(found.table_at, DATA + 40);
            let listed = found.list(&engine, layout).unwrap();
            listed.iter().map(|thread| thread.thread_id).collect()
        });
        assert_eq!(threads, expected.map(<[u64]>::to_vec));
    }
}

#[test]
fn thread_table_is_found_among_pointers() {
    check(&[(0x100, 0), (0x101, 0)], Some(&[0x100, 0x101]));
    check(&[(0x100, 0)], Some(&[0x100]));
}

#[test]
fn table_with_misplaced_threads_is_refused() {
    check(&[(0x101, 0), (0x100, 0)], None);
    check(&[], None);
}

#[test]
fn a_chain_that_leads_to_itself_is_none() {
    check(&[(0x100, ENTRIES), (0x101, 0)], None);
}

#[test]
fn segments_beyond_the_address_space_are_skipped() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let last = u64::MAX - 3;
    let hostile = [
        (1, 6, last.wrapping_sub(BASE), 0),
        (1, 6, last.wrapping_sub(BASE), 0x1000),
    ];
    let (engine, image) = engine_with(layout, &[(0x100, 0), (0x101, 0)], &hostile);
    assert_eq!(image.writable()[0], (last, 0));
    let found = Threads::find(&engine, layout, &image, IDS_AT, |_| true).unwrap();
    assert_eq!(found.table_at, DATA + 40);
}

#[test]
fn last_id_has_no_collector_globals() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let (engine, image) = engine(layout, &[(0x100, 0), (0x101, 0)]);
    let core = Some(CORE_AT);
    let found = Threads::find(&engine, layout, &image, IdsAt { core, ..IDS_AT }, |_| true).unwrap();
    let listed = found.list(&engine, layout).unwrap();
    assert_eq!(listed[0].gc_globals, None);
}

#[test]
fn beginning_thread_is_left_out() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let (mut engine, image) = engine(layout, &[(0x100, 0), (0x101, 0)]);
    let found = Threads::find(&engine, layout, &image, IDS_AT, |_| true).unwrap();
    // `allocate_new_resource` links the entry before its storage is filled.
    engine.put_word(ENTRIES, 8, 0);
    let listed = found.list(&engine, layout).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].thread_id, 0x101);
}
