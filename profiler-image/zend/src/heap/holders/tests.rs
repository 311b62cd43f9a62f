//! Heaps whose objects are held by a static property, and heaps that lie.

use super::*;
use crate::heap::account;
use crate::heap::objects::ObjectsWalk;
use crate::layouts::ROWS;
use crate::testing::objects::{ObjectsImage, TestClass};
use crate::zval::ZVAL;

/// The bin of 56 bytes.
const ARRAY: usize = 6;

/// A heap with a class whose static property is a list.
struct StaticList {
    image: ObjectsImage,
    layout: &'static Layout,
    cache: u64,
    /// The list, and its elements.
    list: u64,
    data: u64,
}

impl StaticList {
    fn new(layout: &'static Layout) -> Self {
        let mut image = ObjectsImage::new(layout);
        let cache = image.class("Shop\\Cache", TestClass::User);
        let (list, data) = (image.element(ARRAY), image.heap.large(1));
        image.put_list(list, data, 8);
        let statics = image.element(ARRAY);
        image.put_zval(statics, Zval(list, IS_ARRAY));
        let row = &layout.class_entry;
        let engine = &mut image.engine;
        engine.put_half(cache, row.default_static_members_count, 1);
        engine.put_word(cache, row.default_static_members_table + 8, statics);
        // A private property.
        let (name, property) = (engine.string("\0Shop\\Cache\0items"), engine.block());
        engine.room(property, 64);
        engine.put_half(property, 4, row.static_member);
        engine.put_word(property, 8, name);
        engine.put_table(cache + row.properties_info as u64, &[("items", property)]);
        let classes = engine.block();
        engine.put_table(classes, &[("shop\\cache", cache)]);
        let (globals, row) = (engine.executor_globals, &layout.executor_globals);
        engine.put_word(globals, row.class_table, classes);
        engine.put_table(globals + row.symbol_table as u64, &[]);
        let functions = engine.block();
        engine.put_table(functions, &[]);
        engine.put_word(globals, row.function_table, functions);
        engine.put_table(cache + layout.class_entry.function_table as u64, &[]);
        Self {
            image,
            layout,
            cache,
            list,
            data,
        }
    }

    fn keep(&mut self, number: u64, zval: Zval) {
        let layout = self.layout;
        let size = if layout.rules.packed_arrays_of_zvals {
            ZVAL
        } else {
            layout.zend_array.bucket_sizeof
        };
        self.image.put_zval(self.data + number * size as u64, zval);
    }

    /// A string that is not interned.
    fn string(&mut self, bin: usize) -> u64 {
        let at = self.image.element(bin);
        self.image.heap.put(at, &1_u32.to_le_bytes());
        let kind = u32::from(IS_STRING);
        self.image.heap.put(at + 4, &kind.to_le_bytes());
        at
    }

    /// All that is held, by path, kind and amount, and the bytes of objects that are not.
    fn walk_all(&mut self) -> (Vec<(String, String, HeldAmount)>, u64) {
        self.image.settle();
        let (image, layout) = (&self.image, self.layout);
        let heap = account::read(image.heap.memory(), layout, image.heap.heap()).unwrap();
        let place = HeldMemory {
            memory: image,
            layout,
            blocks: &heap.blocks,
            executor_globals: image.engine.executor_globals,
            compiler_globals: 0,
        };
        let mut held = HeldObjects::read_all(&place, &|| false);
        assert!(held.is_whole && held.rest == HeldAmount::default());
        let steps = held.named(&place, &|| false);
        let path = |mut number: usize| {
            let mut path = String::new();
            while let Some(step) = number.checked_sub(1).map(|at| &steps[at]) {
                assert!(step.before < number);
                (path, number) = (format!("/{}{path}", step.name), step.before);
            }
            path
        };
        let rows = held.rows().map(|row| {
            let kind = match row.kind {
                HeldKind::Object(key) => held.class_name(key).unwrap_or("?").to_owned(),
                kind => format!("{kind:?}"),
            };
            (path(row.path), kind, row.amount)
        });
        let rows = rows.collect();
        let walk = ObjectsWalk {
            seed: 1,
            is_over: &|| false,
        };
        let (globals, seen) = (image.engine.executor_globals, held.take_seen());
        let others = walk.read_without(image, layout, globals, &heap.blocks, Some(&seen));
        let others = others.unwrap();
        assert_eq!(others.reached, held.objects);
        (rows, others.classes.iter().map(|it| it.bytes).sum())
    }

    fn walk(&mut self) -> HeldObjects {
        self.image.settle();
        let (image, layout) = (&self.image, self.layout);
        let heap = account::read(image.heap.memory(), layout, image.heap.heap()).unwrap();
        let place = HeldMemory {
            memory: image,
            layout,
            blocks: &heap.blocks,
            executor_globals: image.engine.executor_globals,
            compiler_globals: 0,
        };
        HeldObjects::read(&place, &|| false)
    }

    fn paths(&self, held: &HeldObjects, class: u64) -> Vec<(String, u64)> {
        let paths = held.of(&self.image, self.layout, &[ClassKey::of(class)], 3);
        let paths = paths.into_iter().map(|it| (it.path, it.instances));
        paths.collect()
    }
}

#[test]
fn static_list_holds_its_objects_in_each_version() {
    for layout in ROWS {
        let mut kept = StaticList::new(layout);
        let order = kept.image.class("Shop\\Order", TestClass::User);
        for number in 0..3 {
            let object = kept.image.object(order, 11);
            kept.keep(number, Zval(object, IS_OBJECT));
        }
        // It is in no list.
        kept.image.object(order, 11);
        let held = kept.walk();
        assert!(held.is_whole && held.objects == 3, "{held:?}");
        let expected = [("Shop\\Cache::$items[n]".to_owned(), 3)];
        assert_eq!(kept.paths(&held, order), expected, "{}", layout.minor);
        assert_eq!(kept.paths(&held, kept.cache), []);
    }
}

#[test]
fn properties_lead_further_and_cycles_end() {
    let layout = &ROWS[0];
    let mut kept = StaticList::new(layout);
    let node = kept.image.class("Node", TestClass::User);
    let row = &layout.class_entry;
    let engine = &mut kept.image.engine;
    engine.put_half(node, row.default_properties_count, 1);
    let (name, property) = (engine.string("next"), engine.block());
    engine.room(property, 64);
    let offset = layout.zend_object.properties_table;
    engine.put_half(property, 0, offset as u32);
    engine.put_word(property, 8, name);
    engine.put_table(node + row.properties_info as u64, &[("next", property)]);
    let nodes: Vec<u64> = (0..5).map(|_| kept.image.object(node, 11)).collect();
    for (index, at) in nodes.iter().enumerate() {
        let next = Zval(nodes[(index + 1) % nodes.len()], IS_OBJECT);
        kept.image.put_zval(at + offset as u64, next);
    }
    kept.keep(0, Zval(nodes[0], IS_OBJECT));
    // A list that is in itself.
    kept.keep(1, Zval(kept.list, IS_ARRAY));
    let held = kept.walk();
    let expected = [
        ("Shop\\Cache::$items[n] → Node::$next".to_owned(), 4),
        ("Shop\\Cache::$items[n]".to_owned(), 1),
    ];
    assert_eq!(kept.paths(&held, node), expected);
    assert!(held.is_whole);
}

#[test]
fn lying_values_are_not_followed() {
    let layout = &ROWS[0];
    let mut kept = StaticList::new(layout);
    let order = kept.image.class("Shop\\Order", TestClass::User);
    let object = kept.image.object(order, 11);
    for (number, zval) in (0..).zip([
        Zval(object + 1, IS_OBJECT),
        Zval(0x7f00_0000_0000, IS_OBJECT),
        Zval(u64::MAX, IS_ARRAY),
        // An object as an array, and a list as an object.
        Zval(object, IS_ARRAY),
        Zval(kept.list, IS_OBJECT),
    ]) {
        kept.keep(number, zval);
    }
    let held = kept.walk();
    assert_eq!((held.objects, held.is_whole), (0, true));
}

/// Each of the engine's tables, and a static property: what hangs there is then not known.
#[test]
fn what_cannot_be_read_is_said() {
    let layout = &ROWS[0];
    let row = &layout.executor_globals;
    for table in [
        row.class_table,
        row.function_table,
        row.current_execute_data,
    ] {
        let mut kept = StaticList::new(layout);
        let globals = kept.image.engine.executor_globals;
        kept.image.engine.put_word(globals, table, 0x10);
        assert!(!kept.walk().is_whole, "{table}");
    }
    let mut kept = StaticList::new(layout);
    let count = layout.class_entry.default_static_members_count;
    let cache = kept.cache;
    kept.image.engine.put_half(cache, count, u32::MAX);
    assert!(!kept.walk().is_whole);
}

#[test]
fn list_beyond_the_bound_is_said() {
    let mut kept = StaticList::new(&ROWS[0]);
    let (list, data) = (kept.list, kept.data);
    kept.image.put_list(list, data, 1 << 30);
    assert!(!kept.walk().is_whole);
}

#[test]
fn time_that_is_over_is_said() {
    let mut kept = StaticList::new(&ROWS[0]);
    kept.image.settle();
    let heap = account::read(
        kept.image.heap.memory(),
        kept.layout,
        kept.image.heap.heap(),
    )
    .unwrap();
    let place = HeldMemory {
        memory: &kept.image,
        layout: kept.layout,
        blocks: &heap.blocks,
        executor_globals: kept.image.engine.executor_globals,
        compiler_globals: 0,
    };
    assert!(!HeldObjects::read(&place, &|| true).is_whole);
}

#[test]
fn all_kinds_are_counted_once_by_path() {
    for layout in ROWS {
        let mut kept = StaticList::new(layout);
        let order = kept.image.class("Shop\\Order", TestClass::User);
        let object = kept.image.object(order, 11);
        // Nobody holds it.
        kept.image.object(order, 11);
        let [one, twice, interned] = [5, 7, 5].map(|bin| kept.string(bin));
        let flag = if (layout.major, layout.minor) < (7, 3) {
            1 << 9
        } else {
            1 << 6
        };
        let kind: u32 = u32::from(IS_STRING) | flag;
        kept.image.heap.put(interned + 4, &kind.to_le_bytes());
        let reference = kept.image.element(3);
        kept.image.put_zval(reference + 8, Zval(twice, IS_STRING));
        let (inner, data) = (kept.image.element(ARRAY), kept.image.element(20));
        kept.image.put_list(inner, data, 1);
        kept.image.put_zval(data, Zval(one, IS_STRING));
        for (number, zval) in (0..).zip([
            Zval(object, IS_OBJECT),
            Zval(object, IS_OBJECT),
            Zval(twice, IS_STRING),
            Zval(interned, IS_STRING),
            Zval(reference, IS_REFERENCE),
            Zval(inner, IS_ARRAY),
            // The middle of a string, and an object as a string.
            Zval(one + 8, IS_STRING),
        ]) {
            kept.keep(number, zval);
        }
        let (rows, others) = kept.walk_all();
        let row = |path: &str, kind: &str, count: u64, bytes: u64| {
            let amount = HeldAmount { count, bytes };
            (path.to_owned(), kind.to_owned(), amount)
        };
        let items = "/Shop\\Cache::$items";
        let of_item = format!("{items}/[n]");
        let expected = [
            row(items, "Array", 1, 56 + 4096),
            row(&of_item, "Shop\\Order", 1, 128),
            row(&of_item, "Reference", 1, 32),
            // A list in a list has the same path.
            row(&of_item, "Array", 1, 56 + 640),
            row(&of_item, "String", 2, 48 + 64),
        ];
        assert_eq!(rows, expected, "{}.{}", layout.major, layout.minor);
        assert_eq!(others, 128);
    }
}

#[test]
fn strings_and_blocks_that_lie_count_once() {
    let layout = &ROWS[0];
    let mut kept = StaticList::new(layout);
    let string = kept.string(5);
    // Two arrays with the same entries, and one with those of the list that has it.
    let arrays = [kept.image.element(ARRAY), kept.image.element(ARRAY)];
    let own = kept.image.element(ARRAY);
    let data = kept.image.element(20);
    for array in arrays {
        kept.image.put_list(array, data, 2);
    }
    let of_list = kept.data;
    kept.image.put_list(own, of_list, 8);
    kept.image.put_zval(data, Zval(string, IS_STRING));
    // Not in the heap, and not a string.
    let array = arrays[0];
    kept.image
        .put_zval(data + 16, Zval(0x7f00_0000_0000, IS_STRING));
    for (number, zval) in (0..).zip([
        Zval(arrays[0], IS_ARRAY),
        Zval(arrays[1], IS_ARRAY),
        Zval(own, IS_ARRAY),
        Zval(array, IS_STRING),
    ]) {
        kept.keep(number, zval);
    }
    let (rows, _) = kept.walk_all();
    let bytes: u64 = rows.iter().map(|(.., amount)| amount.bytes).sum();
    // Four arrays, the entries of two of them, and the string.
    assert_eq!(bytes, 4 * 56 + 4096 + 640 + 48, "{rows:?}");
}

#[test]
fn steps_without_time_have_no_names() {
    let layout = &ROWS[0];
    let mut kept = StaticList::new(layout);
    kept.image.settle();
    let image = &kept.image;
    let heap = account::read(image.heap.memory(), layout, image.heap.heap()).unwrap();
    let place = HeldMemory {
        memory: image,
        layout,
        blocks: &heap.blocks,
        executor_globals: image.engine.executor_globals,
        compiler_globals: 0,
    };
    let mut held = HeldObjects::read_all(&place, &|| false);
    let steps = held.named(&place, &|| true);
    assert!(!held.is_whole && steps.iter().all(|step| step.name == "?"));
}
