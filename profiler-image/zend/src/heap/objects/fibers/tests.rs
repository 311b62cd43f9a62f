use proptest::prelude::*;

use super::*;
use crate::heap::account;
use crate::heap::objects::{FiberFault, SuspendedFiber};
use crate::layouts::ROWS;
use crate::memory::MemoryFault;
use crate::testing::Counted;
use crate::testing::objects::{ObjectsImage, TestClass, TestFiber};
use crate::unwind::{Copy, Frame};

/// Rows of versions that have fibers.
fn rows() -> impl Iterator<Item = &'static Layout> {
    ROWS.iter().filter(|row| row.fiber.is_some())
}

fn blocks(image: &ObjectsImage) -> HeapBlocks {
    let layout = image.engine.layout;
    account::read_blocks(image.heap.memory(), layout, image.heap.heap()).unwrap()
}

fn find(image: &ObjectsImage, most: usize) -> FoundFibers {
    let walk = FibersWalk {
        seed: 7,
        most,
        is_over: &|| false,
    };
    let globals = image.engine.executor_globals;
    walk.read(image, image.engine.layout, globals, &blocks(image))
        .unwrap()
}

fn stack(image: &ObjectsImage, fiber: &SuspendedFiber) -> Result<Vec<Frame>, FiberFault> {
    let (mut copy, mut frames) = (Copy::default(), Vec::new());
    let layout = image.engine.layout;
    fiber
        .read_stack(image, layout, &blocks(image), &mut copy, &mut frames)
        .map(|()| frames)
}

/// Two functions, the upper one called by the lower one.
fn frames(image: &mut ObjectsImage) -> [Frame; 2] {
    ["suspend", "task"].map(|name| Frame {
        func: image.engine.internal(name, 0),
        ..Frame::default()
    })
}

/// An image with this many suspended fibers among other objects.
fn image(layout: &'static Layout, fibers: usize) -> (ObjectsImage, Vec<TestFiber>) {
    let mut image = ObjectsImage::new(layout);
    let class = image.class("Fiber", TestClass::Internal);
    let closure = image.class("Closure", TestClass::Internal);
    let frames = frames(&mut image);
    let mut all = Vec::new();
    for _ in 0..fibers {
        // Blocks of the same size, in all versions.
        image.object(closure, 16);
        image.object(closure, 17);
        all.extend(image.fiber(class, &frames));
    }
    image.places.extend([1, 7 << 1 | 1]);
    image.settle();
    (image, all)
}

#[test]
fn suspended_fibers_of_each_version_are_found() {
    for layout in rows() {
        let (image, fibers) = image(layout, 20);
        let found = find(&image, 100);
        assert_eq!((found.seen, found.one_of), (20, 1));
        assert_eq!(found.losses, FiberLosses::default());
        let addresses = found.kept.iter().map(SuspendedFiber::address);
        assert!(addresses.eq(fibers.iter().map(|it| it.address)));
        for (fiber, of_test) in found.kept.iter().zip(&fibers) {
            let frames = stack(&image, fiber).unwrap();
            assert_eq!(frames.len(), 2);
            assert_eq!(frames[0].address, of_test.top);
        }
    }
}

#[test]
fn versions_without_fibers_have_none() {
    for layout in ROWS.iter().filter(|row| row.fiber.is_none()) {
        let mut image = ObjectsImage::new(layout);
        let class = image.class("Fiber", TestClass::User);
        image.object(class, 17);
        image.settle();
        let counted = Counted::new(&image);
        let walk = FibersWalk {
            seed: 7,
            most: 9,
            is_over: &|| false,
        };
        let globals = image.engine.executor_globals;
        let found = walk.read(&counted, layout, globals, &blocks(&image));
        assert_eq!((found, counted.calls()), (Ok(FoundFibers::default()), 0));
    }
}

/// A change of one fiber after which it is not found.
#[track_caller]
fn check_hidden(change: impl Fn(&mut ObjectsImage, &ZendFiber, u64)) {
    for layout in rows() {
        let row = layout.fiber.as_ref().unwrap();
        let (mut image, fibers) = image(layout, 2);
        change(&mut image, row, fibers[0].address);
        let found = find(&image, 9);
        let addresses = found.kept.iter().map(SuspendedFiber::address);
        assert!(addresses.eq([fibers[1].address]), "{}", layout.minor);
    }
}

#[test]
fn only_suspended_fibers_are_found() {
    for status in [0, 1, 3, u64::from(u32::MAX)] {
        check_hidden(move |image, row, at| image.heap.put_word(at + row.status as u64, status));
    }
    // It has resumed another one.
    check_hidden(|image, row, at| image.heap.put_word(at + row.caller as u64, at));
    // It was never started.
    check_hidden(|image, row, at| image.heap.put_word(at + row.kind as u64, 0));
    check_hidden(|image, row, at| image.heap.put_word(at + row.execute_data as u64, 0));
    // It was freed, and its block has another object.
    check_hidden(|image, _, at| image.heap.put_word(at, 0));
}

#[test]
fn a_class_of_php_code_is_not_fibers() {
    for layout in rows() {
        let mut image = ObjectsImage::new(layout);
        let class = image.class("Fiber", TestClass::User);
        let frames = frames(&mut image);
        image.fiber(class, &frames);
        image.settle();
        assert_eq!(find(&image, 9).seen, 0);
    }
}

#[test]
fn too_many_fibers_are_drawn_evenly() {
    let (image, fibers) = image(rows().next().unwrap(), 60);
    let mut counts = vec![0_u32; fibers.len()];
    let globals = image.engine.executor_globals;
    for seed in 0..1000 {
        let walk = FibersWalk {
            seed: seed << 32,
            most: 6,
            is_over: &|| false,
        };
        let found = walk
            .read(&image, image.engine.layout, globals, &blocks(&image))
            .unwrap();
        assert_eq!((found.seen, found.kept.len()), (60, 6));
        for fiber in found.kept {
            let is_it = |it: &TestFiber| it.address == fiber.address();
            counts[fibers.iter().position(is_it).unwrap()] += 1;
        }
    }
    // 100 each: five standard deviations are 48.
    assert!(counts.iter().all(|it| it.abs_diff(100) < 48), "{counts:?}");
}

#[test]
fn walk_ends_with_its_time() {
    let (image, _) = image(rows().next().unwrap(), 5);
    let walk = FibersWalk {
        seed: 7,
        most: 9,
        is_over: &|| true,
    };
    let globals = image.engine.executor_globals;
    let found = walk.read(&image, image.engine.layout, globals, &blocks(&image));
    let found = found.unwrap();
    assert_eq!((found.seen, found.losses.late), (0, 17));
}

#[test]
fn unreadable_places_are_counted() {
    struct Cut<'a>(&'a ObjectsImage, u64);
    impl Memory for Cut<'_> {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
            let is_cut = (address..address + bytes.len() as u64).contains(&self.1);
            let read = (!is_cut).then(|| self.0.read(address, bytes));
            read.unwrap_or(Err(MemoryFault::Unmapped))
        }
    }
    let (image, fibers) = image(rows().next().unwrap(), 5);
    let walk = FibersWalk {
        seed: 7,
        most: 9,
        is_over: &|| false,
    };
    let globals = image.engine.executor_globals;
    let lost = |at: u64| {
        let memory = Cut(&image, at);
        let found = walk.read(&memory, image.engine.layout, globals, &blocks(&image));
        let found = found.unwrap();
        (found.seen, found.losses.unreadable)
    };
    assert_eq!(lost(image.table + 8), (0, 17));
    assert_eq!(lost(fibers[2].address + 200).0, 4);
    assert!(lost(fibers[2].address + 200).1 == 1);
}

/// What reading a fiber's stack says after a change.
#[track_caller]
fn check_fault(expected: FiberFault, change: impl Fn(&mut ObjectsImage, &ZendFiber, TestFiber)) {
    for layout in rows() {
        let row = layout.fiber.as_ref().unwrap();
        let (mut image, fibers) = image(layout, 1);
        let found = find(&image, 9);
        change(&mut image, row, fibers[0]);
        assert_eq!(stack(&image, &found.kept[0]), Err(expected));
    }
}

#[test]
fn fiber_that_runs_again_has_no_stack() {
    let resumed = FiberFault::Resumed;
    check_fault(resumed, |image, row, fiber| {
        image.heap.put_word(fiber.address + row.status as u64, 1);
    });
    check_fault(resumed, |image, row, fiber| {
        let other = fiber.top - 8;
        image
            .heap
            .put_word(fiber.address + row.execute_data as u64, other);
    });
    check_fault(resumed, |image, _, fiber| {
        image.heap.put_word(fiber.address, 0)
    });
}

#[test]
fn stacks_that_lead_elsewhere_are_refused() {
    let torn = FiberFault::Torn;
    let prev = |image: &ObjectsImage| image.engine.layout.execute_data.prev_execute_data as u64;
    // To itself, to another frame again, out of the page, and to nothing above the bottom.
    check_fault(torn, move |image, _, fiber| {
        image.heap.put_word(fiber.top + prev(image), fiber.top);
    });
    check_fault(torn, move |image, _, fiber| {
        let bottom = fiber.page + image.engine.layout.vm_stack_header;
        image.heap.put_word(bottom + prev(image), fiber.top);
    });
    check_fault(torn, move |image, _, fiber| {
        image.heap.put_word(fiber.top + prev(image), 0x10);
    });
    check_fault(torn, move |image, _, fiber| {
        image.heap.put_word(fiber.top + prev(image), 0);
    });
}

#[test]
fn stack_outside_of_the_heap_is_refused() {
    for layout in rows() {
        let row = layout.fiber.as_ref().unwrap();
        for (offset, word) in [
            (row.execute_data, 0x7fff_0000_0000),
            (row.execute_data, 0x7f10_0000_1003),
            (row.execute_data, u64::MAX - 7),
            (row.stack_bottom, 0x7fff_0000_0000),
            (row.stack_bottom, 8),
        ] {
            let (mut image, fibers) = image(layout, 1);
            image.heap.put_word(fibers[0].address + offset as u64, word);
            let found = find(&image, 9);
            assert_eq!(stack(&image, &found.kept[0]), Err(FiberFault::Torn));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a fiber's memory holds, finding it and its stack ends.
    #[test]
    fn any_fiber_has_an_end(
        row in 0..rows().count(),
        words in proptest::collection::vec((0_u64..40, any::<u64>()), 1..12),
        near in proptest::collection::vec((0_u64..64, 0_u64..2048), 1..12),
    ) {
        let (mut image, fibers) = image(rows().nth(row).unwrap(), 2);
        let [first, other] = [fibers[0], fibers[1]];
        for (word, value) in &words {
            image.heap.put_word(first.address + word * 8, *value);
        }
        // Words of the stack that lead somewhere on the same page.
        for (word, offset) in &near {
            image.heap.put_word(other.page + word * 8, other.page + offset * 8);
        }
        for fiber in find(&image, 9).kept {
            let _ = stack(&image, &fiber);
        }
    }
}
