//! The account of a heap, and its objects: chunks, lists of free elements, huge blocks, the table
//! of objects, classes and closures.

use phpprof_zend::heap::account::{MmReading, read};
use phpprof_zend::heap::objects::{HeapObjects, ObjectsWalk};
use phpprof_zend::heap::of_chunk;
use phpprof_zend::layouts::{Layout, ROWS};

use crate::image::FuzzImage;

/// The largest cost of a heap that fits into the fuzzer's bytes.
const READS: u64 = 500_000;
const BYTES: u64 = 1 << 31;

/// What was found in an image.
pub struct FuzzedHeap {
    /// The account and the blocks.
    pub read: MmReading,
    /// The objects, if there is a table of them.
    pub objects: Option<HeapObjects>,
}

/// The heap of an image, whose words are a row, the address of any of the heap's chunks, and that
/// of the executor's globals.
pub fn of_image(input: &[u8]) -> Option<FuzzedHeap> {
    let image = FuzzImage::parse(input, READS, BYTES);
    let [row, chunk, globals] = image.words;
    let layout: &Layout = ROWS.get(usize::try_from(row).ok()? % ROWS.len())?;
    let read = read(&image, layout, of_chunk(&image, layout, chunk)?).ok()?;
    let walk = ObjectsWalk {
        seed: chunk,
        is_over: &|| false,
    };
    let objects = walk.read(&image, layout, globals, &read.blocks).ok();
    Some(FuzzedHeap { read, objects })
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    let Some(heap) = of_image(input) else {
        return;
    };
    let account = heap.read.account;
    let _ = (account.unaccounted(), account.reclaimable());
    assert!(account.chunks > 0 && account.free_bytes() <= account.chunks << 21);
    if let Some(objects) = heap.objects {
        assert!(objects.classes.len() <= 256 && objects.one_of <= 1 << 13);
    }
}
