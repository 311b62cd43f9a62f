//! The page of what is in heaps: no words of time, and how the heaps were read.

use phpprof_profile::page::{differential, page};
use phpprof_profile::{Builder, FrameRef, NoiseScale, Profile, Settings, View};

use super::{FRAMES, found, frame, saved, with_axe};

/// A cache with this many orders, in workers of which some ran while they were read.
fn heap(orders: i64, moments: u64) -> Profile {
    let of = |name| FrameRef {
        name,
        ..FrameRef::default()
    };
    let mut builder = Builder::new(Settings::in_use());
    let path = ["Shop\\Cache::$items", "[int key]", "Shop\\Order::$html"].map(of);
    for (leaf, depth, bytes) in [
        ("array", 1, 4096),
        ("Shop\\Order", 2, 64),
        ("string", 3, 640),
    ] {
        let mut stack = vec![of(leaf)];
        stack.extend(path.iter().take(depth).rev().copied());
        builder.add(&stack, &[orders, orders * bytes], &[]);
    }
    builder.comment(format!(
        r#"{{"phpprof":"0.1.0","php":{{"version":"8.4.1","sapi":"cli"}},"workers":3,"quality":{{"taken":10,"idle":0,"unstable":1}},
        "samplesPerSecond":99,"effectiveSamplesPerSecond":12.0,"inHeap":{{"workers":3,"moments":{moments},"cut":1}}}}"#
    ));
    builder.finish()
}

#[test]
fn heaps_have_no_words_of_time() {
    let mut page = saved(&page(&heap(400, 2), &View::default(), "shop/heap", None).unwrap());
    let facts = page.browser.text("#facts");
    assert!(
        facts.contains("PHP 8.4.1 cli · 1 profile · 3 workers · 1 of 3 heaps torn: in these, an object may be missing or there twice · 1 heaps of which not all paths were followed"),
        "{facts}"
    );
    assert!(facts.ends_with("MiB inuse_space"), "{facts}");
    let shown = page.browser.eval("document.body.innerText");
    let shown = shown.as_str().unwrap();
    for word in [
        "unstable",
        "samples per second",
        "built in",
        "PHP code",
        "Function",
        "Folders",
    ] {
        assert!(!shown.contains(word), "{word}: {shown}");
    }
    for word in [
        "Class or step",
        "Paths",
        "key or variable",
        "Shop\\Order::$html",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // All, three steps, and what each of them leads to.
    assert_eq!(page.browser.eval(FRAMES).as_i64(), Some(7));
    page.picture("heaps.png");
    page.check_quiet();
}

#[test]
fn growth_of_heaps_is_drawn_and_accessible() {
    let (before, after) = (heap(100, 3), heap(400, 3));
    let view = View::default();
    let html = differential(&before, &after, &view, "growth", NoiseScale::BY_SAMPLES).unwrap();
    let mut page = saved(&html);
    with_axe(&mut page.browser);
    let facts = page.browser.text("#facts");
    assert!(facts.contains("each heap at one moment"), "{facts}");
    // 300 orders more, by each of the three kinds.
    let rows = page.browser.text("#rows");
    assert!(
        rows.contains("+1.37 MiB468.8 KiB → 1.83 MiBShop\\Cache::$items"),
        "{rows}"
    );
    assert_eq!(found(&mut page.browser, ""), "");
    page.browser.hover(&frame("Shop\\Cache::$items"));
    let tip = page.browser.text("#tip");
    assert!(tip.contains("468.8 KiB before, 1.83 MiB after"), "{tip}");
    assert!(page.browser.text("#legend").contains("more than before"));
    page.picture("heaps-growth.png");
}
