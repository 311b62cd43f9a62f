use proptest::prelude::*;

use super::*;
use crate::layouts::ROWS;
use crate::memory::Recorded;
use crate::testing::heap::HeapImage;

fn account_of(memory: &Recorded, layout: &Layout, heap: u64) -> Result<MmAccount, MmRefusal> {
    read(memory, layout, heap).map(|reading| reading.account)
}

/// Rows whose heaps are known.
fn known() -> impl Iterator<Item = &'static Layout> {
    ROWS.iter().filter(|row| row.mm_heap.main_chunk > 0)
}

/// A heap with each kind of block, and how much of it is free in bins.
fn fill(image: &mut HeapImage) {
    let first = image.small(6);
    let second = image.small(6);
    let wide = image.small(16);
    let free: Vec<_> = (0..73).map(|index| (second, index)).collect();
    image.free(6, &[&free[..], &[(first, 4), (first, 70)]].concat());
    image.free(16, &[(wide, 63), (wide, 12)]);
    image.large(10);
    image.large(500);
    image.huge(3 << 20);
    image.huge(5 << 20);
    image.cached();
    image.cached();
    image.settle();
}

#[track_caller]
fn check_filled(image: &HeapImage, layout: &Layout) {
    let account = account_of(image.memory(), layout, image.heap()).unwrap();
    assert_eq!(account.losses, MmLosses::default());
    assert_eq!((account.unaccounted(), account.is_steady), (0, true));
    assert_eq!(account.sizes.size, image.size());
    let elements = BinUse {
        runs: 2,
        used: 71,
        free: 75,
        free_runs: 1,
    };
    assert_eq!(account.bins[6], elements);
    assert_eq!(account.bins[16].used, 62);
    assert_eq!(account.reclaimable(), PAGE_SIZE);
    assert_eq!(account.free_bytes(), 75 * 56 + 2 * 320);
    assert_eq!((account.large_runs, account.large_pages), (2, 510));
    assert_eq!((account.huge_blocks, account.huge_bytes), (2, 8 << 20));
    assert_eq!((account.chunks, account.cached_chunks), (2, 2));
    assert_eq!(account.free_pages, 2 * 511 - 510 - 7 - 2);
}

#[test]
fn each_versions_blocks_add_up_to_its_size() {
    for layout in known() {
        let mut image = HeapImage::new(layout);
        fill(&mut image);
        check_filled(&image, layout);
    }
}

#[test]
fn form_of_other_releases_is_seen() {
    let others = known().filter(|row| row.mm_heap.sizeof_other > 0);
    let mut count = 0;
    for layout in others {
        let mut image = HeapImage::in_other_form(layout);
        fill(&mut image);
        check_filled(&image, layout);
        count += 1;
    }
    assert!(count >= 6);
}

#[test]
fn heap_is_found_through_any_chunk() {
    let layout = &ROWS[0];
    let image = HeapImage::new(layout);
    let found = super::super::find(image.memory(), layout, image.vm_stack());
    assert_eq!(found, Some(image.heap()));
    assert_eq!(
        super::super::of_chunk(image.memory(), layout, HeapImage::chunk_at(0)),
        found
    );
    assert_eq!(super::super::of_chunk(image.memory(), layout, 8), None);
}

#[test]
fn unknown_forms_are_refused() {
    let layout = &ROWS[0];
    let mut image = HeapImage::new(layout);
    assert_eq!(
        account_of(image.memory(), layout, image.heap() + 8),
        Err(MmRefusal::NoHeap)
    );
    assert_eq!(
        account_of(&Recorded::default(), layout, image.heap()),
        Err(MmRefusal::Unreadable(MemoryFault::Unmapped))
    );
    let main_chunk = image.tail(layout.mm_heap.main_chunk);
    image.put_word(main_chunk, 0);
    let refused = account_of(image.memory(), layout, image.heap());
    assert_eq!(refused, Err(MmRefusal::UnknownForm));
}

/// The losses of a filled heap after a change.
fn losses(change: impl Fn(&mut HeapImage, &Layout)) -> MmLosses {
    let layout = &ROWS[0];
    let mut image = HeapImage::new(layout);
    fill(&mut image);
    change(&mut image, layout);
    let account = account_of(image.memory(), layout, image.heap()).unwrap();
    account.losses
}

#[test]
fn what_cannot_be_followed_is_counted() {
    let of = |chunks, lists, huge| MmLosses {
        chunks,
        pages: 0,
        lists,
        huge,
    };
    let next = |layout: &Layout| layout.mm_chunk.next as u64;
    // A ring that does not come back to its start, and one that leads nowhere.
    let ring = |target: u64| {
        losses(move |image, layout| image.put_word(HeapImage::chunk_at(1) + next(layout), target))
    };
    assert_eq!(ring(HeapImage::chunk_at(1)), of(0, 0, 0));
    assert_eq!(ring(0x1234), of(0, 0, 0));
    let lost = losses(|image, layout| image.put_word(HeapImage::chunk_at(0) + next(layout), 8));
    assert_eq!((lost.chunks, lost.huge > 0 || lost.lists > 0), (1, true));
    let foreign = losses(|image, _| image.put_word(HeapImage::chunk_at(1), 0));
    assert_eq!(foreign.chunks, 1);
    let cached = |image: &mut HeapImage, layout: &Layout| {
        let at = HeapImage::chunk_at(1000);
        image.put_word(at + next(layout), at);
    };
    assert_eq!(losses(cached).chunks, MAX_CHUNKS as u64 - 2);
    let huge = losses(|image, layout| {
        let head = image.tail(layout.mm_heap.huge_list);
        image.put_word(head, 0x6666_0000);
    });
    assert_eq!(huge, of(0, 0, 1));
    let list = losses(|image, layout| {
        let slot = image.heap() + (layout.mm_heap.free_slot + 8 * 6) as u64;
        image.put_word(slot, 0x6666_0000);
    });
    assert_eq!(list, of(0, 1, 0));
}

/// Its count of free pages and their bits differ: those of the next chunk are known all the same.
#[test]
fn chunk_in_allocation_does_not_end_ring() {
    let layout = &ROWS[0];
    let mut image = HeapImage::new(layout);
    image.chunk();
    image.chunk();
    image.settle();
    let whole = account_of(image.memory(), layout, image.heap()).unwrap();
    assert_eq!((whole.chunks, whole.losses), (3, MmLosses::default()));
    let free_pages = layout.mm_chunk.free_pages as u64;
    image.put(HeapImage::chunk_at(1) + free_pages, &7_u32.to_le_bytes());
    let account = account_of(image.memory(), layout, image.heap()).unwrap();
    assert_eq!((account.chunks, account.losses.chunks), (2, 1));
    assert_eq!(account.losses.huge, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn account_of_any_words_ends(
        words in proptest::collection::vec((0_u64..512, any::<u64>(), any::<bool>()), 0..64),
    ) {
        let layout = &ROWS[0];
        let mut image = HeapImage::new(layout);
        fill(&mut image);
        for (at, word, is_near) in words {
            // Words that lead into the heap are followed further than any others.
            let word = if is_near {
                HeapImage::chunk_at(word % 3) + (word >> 8) % CHUNK_SIZE
            } else {
                word
            };
            image.put_word(HeapImage::chunk_at(0) + at * 8, word);
        }
        if let Ok(account) = account_of(image.memory(), layout, image.heap()) {
            prop_assert!(account.chunks <= MAX_CHUNKS as u64);
            prop_assert!(account.huge_blocks <= MAX_HUGE);
            let _ = (account.unaccounted(), account.reclaimable());
        }
    }
}
