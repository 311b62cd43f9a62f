//! The account of a heap, its objects, and who holds them: chunks, lists of free elements, huge
//! blocks, the table of objects, classes, closures, and suspended fibers with their stacks; tables
//! of classes and functions, calls, arrays, references and properties.

use phpprof_zend::heap::account::{MmReading, read};
use phpprof_zend::heap::blocks::HeapBlocks;
use phpprof_zend::heap::holders::{HeldMemory, HeldObjects, MAX_NODES, PathStep};
use phpprof_zend::heap::objects::{FibersWalk, HeapObjects, ObjectsWalk};
use phpprof_zend::heap::of_chunk;
use phpprof_zend::layouts::{Layout, ROWS};
use phpprof_zend::unwind::{Copy, MAX_FRAMES};

use crate::image::FuzzImage;

/// The largest cost of a heap that fits into the fuzzer's bytes.
const READS: u64 = 500_000;
const BYTES: u64 = 1 << 31;
/// How many stacks of fibers are read.
const FIBERS: usize = 64;

/// What was found in an image.
pub struct FuzzedHeap {
    /// The account and the blocks.
    pub read: MmReading,
    /// The objects, if there is a table of them.
    pub objects: Option<HeapObjects>,
    /// Who holds them.
    pub held: HeldObjects,
    /// All that is held, the last step of each path, and the objects that no path reaches.
    pub all: HeldObjects,
    /// The same: from path number 1 on.
    pub steps: Vec<PathStep>,
    /// The same: absent without a table.
    pub others: Option<HeapObjects>,
    /// The longest path to objects of the largest classes.
    pub longest_path: usize,
    /// How many frames each suspended fiber has whose stack could be read.
    pub fibers: Vec<usize>,
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
    let place = HeldMemory {
        memory: &image,
        layout,
        blocks: &read.blocks,
        executor_globals: globals,
        // The same words serve as the compiler's.
        compiler_globals: globals,
    };
    let held = HeldObjects::read(&place, &|| false);
    let classes = objects.iter().flat_map(|objects| objects.classes.iter());
    let paths = classes.flat_map(|class| held.of(&image, layout, &class.keys, 3));
    let longest_path = paths.map(|it| it.path.len()).max().unwrap_or(0);
    let mut all = HeldObjects::read_all(&place, &|| false);
    let seen = all.take_seen();
    let others = walk.read_without(&image, layout, globals, &read.blocks, Some(&seen));
    let steps = all.named(&place, &|| false);
    let fibers = fibers(&image, layout, globals, &read.blocks);
    Some(FuzzedHeap {
        all,
        steps,
        others: others.ok(),
        read,
        objects,
        held,
        longest_path,
        fibers,
    })
}

fn fibers(image: &FuzzImage, layout: &Layout, globals: u64, blocks: &HeapBlocks) -> Vec<usize> {
    let walk = FibersWalk {
        seed: globals,
        most: FIBERS,
        is_over: &|| false,
    };
    let found = walk.read(image, layout, globals, blocks);
    let (mut copy, mut frames) = (Copy::default(), Vec::new());
    let kept = found.map(|found| found.kept).unwrap_or_default();
    let depths = kept.iter().filter_map(|fiber| {
        let read = fiber.read_stack(image, layout, blocks, &mut copy, &mut frames);
        read.is_ok().then_some(frames.len())
    });
    depths.collect()
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    let Some(heap) = of_image(input) else {
        return;
    };
    let account = heap.read.account;
    assert!(heap.fibers.len() <= FIBERS && heap.fibers.iter().all(|&depth| depth < MAX_FRAMES));
    let _ = (account.unaccounted(), account.reclaimable());
    assert!(account.chunks > 0 && account.free_bytes() <= account.chunks << 21);
    assert!(heap.held.objects <= MAX_NODES as u64 && heap.longest_path <= 480);
    // Each block counts once, so all of them together are no more than the heap has.
    let bytes: u64 = heap.all.rows().map(|row| row.amount.bytes).sum();
    let most = (account.chunks << 21).saturating_add(account.huge_bytes);
    assert!(bytes.saturating_add(heap.all.rest.bytes) <= most);
    let is_before = |(at, step): (usize, &PathStep)| step.before <= at && step.name.len() <= 2048;
    assert!(heap.steps.iter().enumerate().all(is_before));
    assert!(heap.all.rows().all(|row| row.path <= heap.steps.len()));
    let reached = heap.others.map_or(0, |it| it.reached);
    assert!(reached <= heap.objects.as_ref().map_or(0, |it| it.places));
    if let Some(objects) = heap.objects {
        assert!(objects.classes.len() <= 256 && objects.one_of <= 1 << 13);
    }
}
