use super::*;
use crate::engine::find;
use crate::layouts::{Layout, ROWS};
use crate::testing::Counted;
use crate::testing::process::{ENTRY, IDS, MODULES, ProcessImage, TABLE_AT};

const BASE: u64 = 0x5555_0000_0000;
/// Where the second process has its executable.
const ELSEWHERE: u64 = 0x5613_2000_0000;
const BUILD_ID: &[u8] = b"0123456789abcdefghij";

/// Each row, and whether it is thread-safe.
fn kinds() -> impl Iterator<Item = (&'static Layout, bool)> {
    let kind = |row: &'static Layout| {
        let safe = row.tsrm_tls_entry.is_some().then_some(true);
        [Some(false), safe]
            .into_iter()
            .flatten()
            .map(move |it| (row, it))
    };
    ROWS.iter().flat_map(kind)
}

fn found(process: &ProcessImage) -> Engine {
    find(&process.image, &[process.module_of_executable()]).unwrap()
}

/// The engine of a process that was examined, and another process that runs the same program.
fn pair(layout: &'static Layout, is_safe: bool) -> (Engine, ProcessImage) {
    let known = ProcessImage::new(layout, is_safe, BASE, BUILD_ID);
    let other = ProcessImage::new(layout, is_safe, ELSEWHERE, BUILD_ID);
    (found(&known), other)
}

fn again(known: &Engine, process: &ProcessImage) -> Option<Result<Engine, EngineRefusal>> {
    known.relocated(&process.image, process.base, false)
}

#[test]
fn relocated_finds_the_same_in_fewer_reads() {
    for (layout, is_safe) in kinds() {
        let (known, other) = pair(layout, is_safe);
        assert!(known.is_recognisable("/usr/bin/php"));
        let searched = Counted::new(&other.image);
        let modules = [other.module_of_executable()];
        let expected = find(&searched, &modules).unwrap();
        let counted = Counted::new(&other.image);
        let engine = known.relocated(&counted, ELSEWHERE, false);
        let engine = engine.unwrap().unwrap();
        assert_eq!(format!("{engine:?}"), format!("{expected:?}"));
        let (calls, bytes) = (counted.calls(), counted.bytes());
        // In the smallest image that there is; a real one has megabytes of data.
        assert!(
            calls < searched.calls() && calls < 80 && bytes < 4000,
            "{calls} of {}, {bytes}",
            searched.calls()
        );
    }
}

#[test]
fn relocated_needs_the_same_build_or_file() {
    let check = |(of_known, of_other): (&'static [u8], &'static [u8]), is_same_file, expected| {
        for (layout, is_safe) in kinds() {
            let known = found(&ProcessImage::new(layout, is_safe, BASE, of_known));
            let other = ProcessImage::new(layout, is_safe, ELSEWHERE, of_other);
            let engine = known.relocated(&other.image, ELSEWHERE, is_same_file);
            assert_eq!(engine.map(|it| it.is_ok()), expected, "{of_known:?}");
        }
    };
    let other = b"0123456789abcdefghik";
    check((BUILD_ID, BUILD_ID), false, Some(true));
    check((BUILD_ID, other), true, None);
    check((BUILD_ID, b""), true, None);
    check((b"", BUILD_ID), true, None);
    check((b"", b""), true, Some(true));
    check((b"", b""), false, None);
}

#[test]
fn relocated_is_starting_without_a_version() {
    for (layout, is_safe) in kinds() {
        let (known, mut other) = pair(layout, is_safe);
        let core = other.module("Core", "4.2.9");
        other
            .image
            .put_table(ELSEWHERE + MODULES, &[("core", core)]);
        assert_eq!(
            again(&known, &other).unwrap().unwrap_err(),
            EngineRefusal::Starting
        );
        let core = other.module("Core", &known.version);
        other
            .image
            .put_table(ELSEWHERE + MODULES, &[("core", core)]);
        assert!(again(&known, &other).unwrap().is_ok());
    }
}

#[test]
fn relocated_reads_the_processs_own_ids() {
    for (layout, is_safe) in kinds().filter(|(_, is_safe)| *is_safe) {
        let (known, mut other) = pair(layout, is_safe);
        // More buckets, as a server with more threads asks for, and globals that were registered in
        // another order.
        let image = &mut other.image;
        let (heads, storage) = (image.block(), image.block());
        image.put_half(ELSEWHERE + TABLE_AT - 4, 0, 4);
        image.put_word(ELSEWHERE + TABLE_AT, 0, heads);
        let thread_id = ENTRY + 0x90_0000;
        image.put_word(heads, (thread_id % 4) as usize * 8, ENTRY);
        let resources = [0, image.executor_globals, image.compiler_globals];
        for (index, globals) in resources.into_iter().enumerate() {
            image.put_word(storage, index * 8, globals);
        }
        image.put_thread(ENTRY, thread_id, 0, &resources);
        image.put_half(ELSEWHERE + IDS, 8, 3);
        let engine = again(&known, &other).unwrap().unwrap();
        let threads = engine.threads.unwrap();
        let listed = threads.list(&other.image, engine.layout).unwrap();
        let [thread] = listed[..] else {
            panic!("{listed:?}");
        };
        let expected = (other.image.executor_globals, other.image.compiler_globals);
        let globals = (thread.executor_globals, thread.compiler_globals);
        assert_eq!(globals, expected);
    }
}

#[test]
fn relocated_refuses_a_table_that_is_none() {
    for (layout, is_safe) in kinds().filter(|(_, is_safe)| *is_safe) {
        for (at, value) in [
            (TABLE_AT - 4, 0),
            (TABLE_AT - 4, u32::MAX),
            (TABLE_AT, 0x10),
            (IDS, 0),
            (IDS + 8, 77),
        ] {
            let (known, mut other) = pair(layout, is_safe);
            other.image.put_half(ELSEWHERE + at, 0, value);
            let refusal = again(&known, &other).unwrap().unwrap_err();
            let expected = EngineRefusal::LayoutMismatch("no tsrm_tls_table");
            assert_eq!(refusal, expected, "{at:x} {value}");
        }
    }
}

#[test]
fn relocated_refuses_other_globals() {
    for (layout, is_safe) in kinds() {
        let (known, mut other) = pair(layout, is_safe);
        let row = &other.layout().compiler_globals;
        let (at, offset) = (other.image.compiler_globals, row.class_table);
        other.image.put_word(at, offset, 8);
        assert!(matches!(
            again(&known, &other),
            Some(Err(EngineRefusal::LayoutMismatch(_)))
        ));
    }
}

#[test]
fn relocated_refuses_another_images_address() {
    for (layout, is_safe) in kinds() {
        let (mut known, other) = pair(layout, is_safe);
        known.execute_hook = Some(BASE + 0x3000);
        assert!(again(&known, &other).is_some());
        known.execute_hook = Some(BASE + 0x100_0000);
        assert!(again(&known, &other).is_none());
    }
}

#[test]
fn is_recognisable_is_not_what_a_library_has() {
    for (layout, is_safe) in kinds() {
        let (known, _) = pair(layout, is_safe);
        assert!(!known.is_recognisable("/usr/sbin/apache2"));
    }
}
