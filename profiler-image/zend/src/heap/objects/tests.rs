use proptest::prelude::*;

use super::*;
use crate::heap::account;
use crate::layouts::ROWS;
use crate::memory::MemoryFault;
use crate::testing::objects::{ObjectsImage, TestClass};
use crate::testing::{Counted, FILE};

/// A bin of 56 bytes, of 128, and of 320.
const SMALL: usize = 6;
const WIDE: usize = 11;
const WIDEST: usize = 16;

fn read_with(
    memory: &impl Memory,
    image: &ObjectsImage,
    walk: &ObjectsWalk<'_>,
) -> Result<HeapObjects, StoreRefusal> {
    let layout = image.engine.layout;
    let heap = account::read(image.heap.memory(), layout, image.heap.heap()).unwrap();
    let globals = image.engine.executor_globals;
    walk.read(memory, layout, globals, &heap.blocks)
}

fn read(image: &ObjectsImage) -> Result<HeapObjects, StoreRefusal> {
    let walk = ObjectsWalk {
        seed: 1,
        is_over: &|| false,
    };
    read_with(image, image, &walk)
}

fn rows(objects: &HeapObjects) -> Vec<(&str, u64, u64)> {
    let rows = objects.classes.iter();
    rows.map(|it| (it.name.as_str(), it.instances, it.bytes))
        .collect()
}

#[test]
fn each_versions_objects_are_counted_by_class() {
    for layout in ROWS {
        let mut image = ObjectsImage::new(layout);
        let order = image.class("Shop\\Order", TestClass::User);
        let cart = image.class("Shop\\Cart", TestClass::User);
        for number in 0..1000 {
            image.object(order, WIDE);
            if number % 4 == 0 {
                image.object(cart, SMALL);
            }
        }
        // A free place, and the object that is being freed.
        image.places.extend([7 << 1 | 1, image.places[3] | 1]);
        image.settle();
        let objects = read(&image).unwrap();
        assert_eq!(
            rows(&objects),
            [("Shop\\Order", 1000, 128_000), ("Shop\\Cart", 250, 14_000)]
        );
        assert_eq!((objects.free, objects.places), (2, 1252));
        assert_eq!(objects.losses, ObjectLosses::default());
        assert_eq!(objects.others, OtherClasses::default());
    }
}

#[test]
fn kinds_are_told_apart() {
    for layout in ROWS {
        let mut image = ObjectsImage::new(layout);
        let mut add = |name: &str, kind: TestClass| {
            let class = image.class(name, kind);
            image.object(class, SMALL);
        };
        add("Generator", TestClass::Internal);
        add("Fiber", TestClass::Internal);
        add("Suit", TestClass::Enum);
        // A class of this name in a namespace of its own would have it in its name.
        add("Closure", TestClass::User);
        image.settle();
        let objects = read(&image).unwrap();
        let kind_of = |name: &str| {
            let mut classes = objects.classes.iter();
            classes.find(|it| it.name == name).map(|it| it.kind)
        };
        assert_eq!(kind_of("Generator"), Some(ObjectKind::Generator));
        assert_eq!(kind_of("Fiber"), Some(ObjectKind::Fiber));
        let has_enums = layout.class_entry.enumeration != 0;
        let of_enum = if has_enums {
            ObjectKind::Enum
        } else {
            ObjectKind::Plain
        };
        assert_eq!(kind_of("Suit"), Some(of_enum));
        assert_eq!(kind_of("Closure"), Some(ObjectKind::Plain));
    }
}

#[test]
fn closures_are_told_apart_by_their_place() {
    for layout in ROWS {
        let mut image = ObjectsImage::new(layout);
        let closure = image.class("Closure", TestClass::Internal);
        let row = &layout.function;
        let first = image.engine.user(Some("{closure}"), &[1.into()]).func;
        image.engine.put_half(first, row.line_start, 12);
        for _ in 0..5 {
            image.closure_of(closure, first);
        }
        image.closure(closure, "{closure}", 40);
        image.closure(closure, "{closure:Shop\\Cart::total():50}", 50);
        let internal = image.engine.internal("strlen", 0);
        image.closure_of(closure, internal);
        // One without a function.
        image.object(closure, WIDEST);
        image.settle();
        let objects = read(&image).unwrap();
        let mut classes = objects.classes.iter();
        assert!(classes.all(|it| it.kind == ObjectKind::Closure));
        let places: Vec<_> = objects
            .classes
            .iter()
            .map(|it| (it.name.as_str(), it.place.as_deref(), it.instances))
            .collect();
        let place = |line: u32| format!("{FILE}:{line}");
        let expected = [
            (&*format!("{{closure:{FILE}:12}}"), Some(&*place(12)), 5),
            ("Closure", None, 1),
            ("strlen(...)", None, 1),
            (&*format!("{{closure:{FILE}:40}}"), Some(&*place(40)), 1),
            ("{closure:Shop\\Cart::total():50}", Some(&*place(50)), 1),
        ];
        assert_eq!(places, expected);
        assert_eq!(objects.classes[0].bytes, 5 * 320);
    }
}

#[test]
fn bytes_are_those_of_the_block() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("Wide", TestClass::User);
    let inner = image.class("ArrayObject", TestClass::Internal);
    let large = image.heap.large(3);
    image.object_at(large, class);
    // An extension's own fields come before the object.
    let element = image.object(inner, WIDE);
    image.places.pop();
    image.object_at(element + 40, inner);
    let huge = 0x7f50_0000_0000;
    image.heap.huge(3 << 20);
    image.engine.room(huge, 4096);
    image.heap.put(huge, &[0; 64]);
    image.object_at(huge, class);
    image.settle();
    let objects = read(&image).unwrap();
    let expected = [("Wide", 2, 3 * 4096 + (3 << 20)), ("ArrayObject", 1, 128)];
    assert_eq!(rows(&objects), expected);
}

#[test]
fn what_is_no_object_is_counted() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("Shop\\Order", TestClass::User);
    let row = &ROWS[0].zend_object;
    let objects: Vec<_> = (0..8).map(|_| image.object(class, SMALL)).collect();
    // Another place; no references; another type; a class that is none.
    image.heap.put(objects[0] + row.handle as u64, &[77]);
    image.heap.put(objects[1], &[0]);
    image.heap.put(objects[2] + 4, &[7]);
    image.heap.put_word(objects[3] + row.ce as u64, 0x1234);
    // A class that cannot be read, and one without a name.
    image.heap.put_word(objects[4] + row.ce as u64, 0x6666_0000);
    // Outside of the heap, between two words, in a page without a block, and nowhere.
    let outside = image.engine.executor_globals;
    let header = image.heap.heap();
    let strays = [outside, objects[6] + 4, header, 0, 0xffff_ffff_ffff_fff0];
    image.places.extend(strays);
    image.settle();
    let objects = read(&image).unwrap();
    assert_eq!(rows(&objects), [("Shop\\Order", 3, 168)]);
    let losses = ObjectLosses {
        unreadable: 0,
        outside: 5,
        inconsistent: 4,
        unnamed: 1,
        late: 0,
    };
    assert_eq!(objects.losses, losses);
    assert_eq!((objects.others.classes, objects.others.instances), (1, 1));
    assert_eq!(objects.places, 3 + 5 + 4 + 1);
}

#[test]
fn free_places_may_lead_in_circles() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("A", TestClass::User);
    image.object(class, SMALL);
    // Each names the other one as the next.
    image.places.extend([3 << 1 | 1, 2 << 1 | 1, 3 << 1 | 1]);
    image.settle();
    let objects = read(&image).unwrap();
    assert_eq!((objects.free, rows(&objects)), (3, vec![("A", 1, 56)]));
}

#[test]
fn table_that_lies_is_refused() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("A", TestClass::User);
    image.object(class, SMALL);
    image.settle();
    let table = image.table;
    let mut check = |table: u64, top: u32| {
        image.put_store(table, top);
        read(&image)
    };
    // As much as its block has, and one more.
    assert!(check(table, 512).is_ok());
    assert_eq!(check(table, 513), Err(StoreRefusal::NotInHeap));
    assert_eq!(check(table, u32::MAX / 2), Err(StoreRefusal::NotInHeap));
    for stray in [table + 4, 0x7f00_0000_0000, 1, u64::MAX] {
        assert_eq!(check(stray, 2), Err(StoreRefusal::NotInHeap));
    }
    let size = ROWS[0].executor_globals.objects_size;
    let globals = image.engine.executor_globals;
    image.put_store(table, 512);
    image.engine.put_half(globals, size, 511);
    assert_eq!(read(&image), Err(StoreRefusal::NotInHeap));
}

#[test]
fn worker_without_a_request_has_none() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("A", TestClass::User);
    image.object(class, SMALL);
    image.settle();
    let globals = image.engine.executor_globals;
    let active = ROWS[0].executor_globals.active;
    image.engine.put_byte(globals, active, 0);
    assert_eq!(read(&image), Ok(HeapObjects::default()));
    image.engine.put_byte(globals, active, 1);
    image.put_store(0, 7);
    assert_eq!(read(&image), Ok(HeapObjects::default()));
}

#[test]
fn name_without_its_hash_is_not_shown() {
    let layout = &ROWS[0];
    let mut image = ObjectsImage::new(layout);
    let class = image.class("Secret", TestClass::User);
    let evil = image.class("\u{1b}[2J\u{202e}x\nline", TestClass::User);
    image.object(class, SMALL);
    image.object(evil, WIDE);
    let name = image.engine.word(class + layout.class_entry.name as u64);
    let hash = layout.zend_string.h;
    image.engine.put_word(name.unwrap(), hash, 1 << 63 | 5);
    image.settle();
    let objects = read(&image).unwrap();
    let shown = "<1b>[2J<e2><80><ae>x<0a>line";
    assert_eq!(rows(&objects), [(shown, 1, 128)]);
    assert_eq!((objects.losses.unnamed, objects.others.bytes), (1, 56));
}

/// The object of a class ends after it was counted and before its class is named.
struct Ending<'a> {
    image: &'a ObjectsImage,
    object: u64,
    reads: std::cell::Cell<u32>,
}

impl Memory for Ending<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.image.read(address, bytes)?;
        if address == self.object {
            self.reads.set(self.reads.get() + 1);
            if self.reads.get() > 1 {
                bytes[8] ^= 1;
            }
        }
        Ok(())
    }
}

#[test]
fn name_of_an_object_that_ended_proves_nothing() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("A", TestClass::User);
    let object = image.object(class, SMALL);
    image.settle();
    let walk = ObjectsWalk {
        seed: 1,
        is_over: &|| false,
    };
    let reads = std::cell::Cell::new(0);
    let ending = Ending {
        image: &image,
        object,
        reads,
    };
    let objects = read_with(&ending, &image, &walk).unwrap();
    assert_eq!((rows(&objects), objects.losses.unnamed), (vec![], 1));
}

#[test]
fn further_classes_are_others() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let small = image.class("Small", TestClass::User);
    image.object(small, SMALL);
    for number in 0..classes::MAX_NAMED + 9 {
        let class = image.class(&format!("Class{number}"), TestClass::User);
        image.object(class, WIDE);
    }
    image.settle();
    let objects = read(&image).unwrap();
    assert_eq!(objects.classes.len(), classes::MAX_NAMED);
    let others = OtherClasses {
        classes: 10,
        instances: 10,
        bytes: 9 * 128 + 56,
    };
    assert_eq!(objects.others, others);
}

#[test]
fn time_that_is_over_is_told() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("A", TestClass::User);
    image.object(class, SMALL);
    image.places.resize(3 * WINDOW, 1);
    image.settle();
    let windows = std::cell::Cell::new(0);
    let is_over = || {
        windows.set(windows.get() + 1);
        windows.get() > 1
    };
    let walk = ObjectsWalk {
        seed: 1,
        is_over: &is_over,
    };
    let objects = read_with(&image, &image, &walk).unwrap();
    assert_eq!(rows(&objects), [("A", 1, 56)]);
    assert_eq!(objects.losses.late, 2 * WINDOW as u64);
    assert_eq!(objects.free, WINDOW as u64 - 2);
}

#[test]
fn reads_are_few_where_objects_are_near() {
    let mut image = ObjectsImage::new(&ROWS[0]);
    let class = image.class("A", TestClass::User);
    for _ in 0..3000 {
        image.object(class, SMALL);
    }
    image.settle();
    let walk = ObjectsWalk {
        seed: 1,
        is_over: &|| false,
    };
    let counted = Counted::new(&image);
    let objects = read_with(&counted, &image, &walk).unwrap();
    assert_eq!(rows(&objects), [("A", 3000, 168_000)]);
    assert!(counted.calls() < 20, "{} reads", counted.calls());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn objects_of_any_words_end(
        words in proptest::collection::vec((0_u64..4, 0_u64..512, any::<u64>(), any::<bool>()), 0..64),
    ) {
        let mut image = ObjectsImage::new(&ROWS[0]);
        let class = image.class("A", TestClass::User);
        let closure = image.class("Closure", TestClass::Internal);
        for line in 0..20 {
            image.object(class, SMALL);
            image.closure(closure, "{closure}", line);
        }
        image.settle();
        let globals = image.engine.executor_globals;
        for (place, at, word, is_near) in words {
            let word = if is_near { image.table + word % (4 << 20) } else { word };
            match place {
                0 => image.heap.put_word(image.table + at * 8, word),
                1 => image.heap.put_word(image.places[1 + at as usize % 40] + at % 16 * 8, word),
                2 => image.engine.put_word(class, at as usize % 64 * 8, word),
                _ => image.engine.put_word(globals, 816 + at as usize % 3 * 8, word),
            }
        }
        if let Ok(objects) = read(&image) {
            let found: u64 = objects.classes.iter().map(|it| it.instances).sum();
            let ObjectLosses { unreadable, outside, inconsistent, .. } = objects.losses;
            let lost = unreadable + outside + inconsistent;
            prop_assert_eq!(found + objects.others.instances + objects.free + lost, objects.places);
        }
    }
}
