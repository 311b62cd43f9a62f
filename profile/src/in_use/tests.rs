//! Reports on profiles as samplers write them: a path has one frame for each step, and its leaf is
//! what is held. They are built here, so this is not what a sampler has read.

use super::*;
use crate::proto::Profile;
use crate::{Builder, FrameRef, NoiseScale, Settings, View, svg};

const READ: &str = r#"{"phpprof":"0.1.0","inHeap":{"workers":2,"moments":1,"heapBytes":20971520,"freeBytes":1048576,"heldBytes":9}}"#;

/// Paths from the root on, with count and bytes.
fn heap(rows: &[(&[&str], i64, i64)]) -> Profile {
    let mut builder = Builder::new(Settings::in_use());
    for (path, count, bytes) in rows {
        let frame = |name: &&'static str| FrameRef {
            name,
            ..FrameRef::default()
        };
        let path: Vec<&'static str> = path.iter().map(|it| leaked(it)).collect();
        let stack: Vec<_> = path.iter().rev().map(frame).collect();
        builder.add(&stack, &[*count, *bytes], &[]);
    }
    builder.comment(READ);
    builder.finish()
}

fn leaked(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

const ITEMS: &str = "Shop\\Cache::$items";
const LINES: &str = "Shop\\Order::$lines";

/// A cache that has this many orders with two lines each, and little else.
fn shop(orders: i64) -> Profile {
    heap(&[
        (&[ITEMS, "array"], 1, orders * 16),
        (&[ITEMS, "[int key]", "Shop\\Order"], orders, orders * 128),
        (&[ITEMS, "[int key]", LINES, "array"], orders, orders * 56),
        (
            &[ITEMS, "[int key]", LINES, "[n]", "Shop\\Line"],
            orders * 2,
            orders * 1024,
        ),
        (&["[global variable]", "Shop\\Kernel"], 1, 40_000),
        (&["[no path]", "Shop\\Cycle"], 3, 60_000),
    ])
}

#[test]
fn classes_and_paths_are_listed_by_bytes() {
    let report = InUseReport::of(&shop(1000), None);
    insta::assert_snapshot!(report.text(Some(100)));
    let narrow = report.text(Some(60));
    let of_tables = narrow.lines().filter(|line| line.starts_with(' '));
    let widest = of_tables.map(columns).max();
    assert!(widest <= Some(60), "{narrow}");
}

#[test]
fn growth_comes_first_in_a_comparison() {
    let report = InUseReport::of(&shop(3000), Some(&shop(1000)));
    insta::assert_snapshot!(report.text(Some(100)));
    assert!(report.advice()[0].contains(ITEMS), "{:?}", report.advice());
    let shrunk = InUseReport::of(&shop(1000), Some(&shop(3000)));
    assert!(shrunk.paths.is_empty());
    assert!(shrunk.advice()[0].starts_with("Nothing grew"));
    assert_eq!(shrunk.classes[0].class, "Shop\\Line");
}

#[test]
fn all_classes_add_up_to_what_is_held() {
    let names: Vec<String> = (0..300).map(|number| format!("Shop\\C{number}")).collect();
    let mut builder = Builder::new(Settings::in_use());
    for name in &names {
        let frame = FrameRef {
            name,
            ..FrameRef::default()
        };
        builder.add(&[frame], &[1, 100], &[]);
    }
    let report = InUseReport::of(&builder.finish(), None);
    assert_eq!((report.classes.len(), report.more_classes), (200, 100));
    assert_eq!(report.held.bytes, 30_000);
    assert!(report.paths.len() <= 40);
}

#[test]
fn markdown_names_stay_in_their_cells() {
    let profile = heap(&[(&["a|b`c\n# d", "Shop\\Order"], 1, 100)]);
    let text = InUseReport::of(&profile, None).markdown("web`x");
    insta::assert_snapshot!(text);
}

#[test]
fn data_has_steps_text_and_advice() {
    let data = InUseReport::of(&shop(1000), Some(&shop(1000))).json();
    assert_eq!(data["read"]["workers"], 2);
    assert_eq!(data["heldBefore"]["bytes"], data["held"]["bytes"]);
    let data = InUseReport::of(&shop(1000), None).json();
    let path = &data["paths"][0];
    assert_eq!(path["steps"][0], ITEMS);
    assert!(path["path"].as_str().unwrap().starts_with(ITEMS));
    assert!(data["advice"].as_array().is_some_and(|it| !it.is_empty()));
    assert_eq!(data["losses"].as_array().map(Vec::len), Some(1));
}

#[test]
fn empty_heaps_say_when_to_look() {
    let report = InUseReport::of(&heap(&[]), None);
    assert_eq!(report.advice().len(), 1);
    assert!(report.advice()[0].contains("while requests run"));
}

#[test]
fn pictures_of_growth_measure_by_before() {
    let (before, after) = (shop(100), shop(400));
    let (view, scale) = (View::default(), NoiseScale::BY_SAMPLES);
    let picture = svg::differential(&before, &after, &view, "growth", scale).unwrap();
    for words in [
        "parts of all that was there before",
        "Shop\\Cache::$items (55.04 % before, 220.14 % after)",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    assert!(!picture.contains("chance"), "{picture}");
}
