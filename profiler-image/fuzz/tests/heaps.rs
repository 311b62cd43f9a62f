//! The seeds of heaps, and what their accounts are: heaps that are laid out by a row, because a
//! real one has far more bytes than a fuzzer takes. `UPDATE_SEEDS=1` writes them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use phpprof_fuzz::heap::of_image;
use phpprof_fuzz::image::encode;
use phpprof_zend::heap::objects::ObjectLosses;
use phpprof_zend::layouts::{Layout, ROWS};
use phpprof_zend::testing::heap::HeapImage;
use phpprof_zend::testing::objects::{ObjectsImage, TestClass};
use phpprof_zend::unwind::Frame;

/// How many fibers an image of a version with fibers has.
const FIBERS: usize = 2;

/// A heap with blocks of each kind.
fn filled(mut image: HeapImage) -> HeapImage {
    let runs: Vec<_> = (0..3).map(|_| image.small(6)).collect();
    let wide = image.small(16);
    let free: Vec<_> = (0..73)
        .flat_map(|index| runs.iter().skip(1).map(move |run| (*run, index)))
        .collect();
    image.free(6, &free);
    image.free(16, &[(wide, 40), (wide, 3)]);
    image.large(20);
    image.huge(3 << 20);
    image.huge(4 << 20);
    image.cached();
    image.settle();
    image
}

/// The same with objects: of two classes, an enum and a closure, a free place, and two suspended
/// fibers.
fn with_objects(layout: &'static Layout, heap: HeapImage) -> ObjectsImage {
    let mut image = ObjectsImage::new(layout);
    image.heap = heap;
    for (name, kind) in [
        ("Shop\\Order", TestClass::User),
        ("Shop\\Suit", TestClass::Enum),
        ("Generator", TestClass::Internal),
    ] {
        let class = image.class(name, kind);
        for _ in 0..20 {
            image.object(class, 6);
        }
    }
    let closure = image.class("Closure", TestClass::Internal);
    image.closure(closure, "{closure}", 12);
    image.places.push(1);
    let fiber = image.class("Fiber", TestClass::Internal);
    let frames = ["suspend", "task"].map(|name| Frame {
        func: image.engine.internal(name, 0),
        ..Frame::default()
    });
    for _ in 0..FIBERS {
        image.fiber(fiber, &frames);
    }
    image.settle();
    image
}

fn seed(row: usize, image: &ObjectsImage) -> Vec<u8> {
    let engine = image.engine.bytes();
    let bytes = image.heap.memory().bytes().chain(engine).collect();
    let globals = image.engine.executor_globals;
    encode([row as u64, HeapImage::chunk_at(0), globals], &bytes)
}

#[test]
fn seeds_are_whole_heaps() -> Result<()> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds/heap");
    let find = |major, minor| {
        let is_it = |row: &Layout| (row.major, row.minor) == (major, minor);
        ROWS.iter().position(is_it).context("no row")
    };
    for (name, row, is_other) in [
        ("php-7.4", find(7, 4)?, false),
        ("php-8.2", find(8, 2)?, true),
        ("php-8.5", find(8, 5)?, false),
    ] {
        let layout = &ROWS[row];
        let image = filled(if is_other {
            HeapImage::in_other_form(layout)
        } else {
            HeapImage::new(layout)
        });
        let image = with_objects(layout, image);
        let (path, seed) = (folder.join(name), seed(row, &image));
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            fs::create_dir_all(&folder)?;
            fs::write(&path, &seed)?;
        }
        ensure!(fs::read(&path)? == seed, "{name} is stale: UPDATE_SEEDS=1");
        let heap = of_image(&seed).context("no account")?;
        let account = heap.read.account;
        ensure!(account.unaccounted() == 0, "{account:?}");
        ensure!((account.huge_blocks, account.cached_chunks) == (2, 1));
        let objects = heap.objects.context("no objects")?;
        let found: u64 = objects.classes.iter().map(|it| it.instances).sum();
        let fibers = if layout.fiber.is_some() { FIBERS } else { 0 };
        ensure!(heap.fibers == vec![2; fibers], "{:?}", heap.fibers);
        let expected = (61 + fibers as u64, 1);
        ensure!((found, objects.free) == expected, "{objects:?}");
        ensure!(objects.losses == ObjectLosses::default(), "{objects:?}");
        phpprof_fuzz::heap::run(&seed);
    }
    Ok(())
}
