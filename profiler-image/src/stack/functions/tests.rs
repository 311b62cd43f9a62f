mod bodies;
mod closures;
mod forgotten;
mod held;
mod known;
mod looks;
mod ops;
mod relinked;
mod restarted;
mod scripts;
mod torn;
mod unchecked;
mod volume;

use phpprof_zend::layouts::{Machine, layout_of};
use phpprof_zend::testing::{Counted, EngineImage};

use super::lifetime::outlives;
use super::*;

/// The addresses of the test's functions, names and code; each function has a hundred bytes of
/// each.
const FUNCTIONS: u64 = 0x10_0000;
const STRINGS: u64 = 0x20_0000;
const CODE: u64 = 0x30_0000;
const FILE: u64 = 0x2f_0000;
/// Code from here on is in memory that the engine's processes share.
const SHARED: Range<u64> = 0x31_0000..0x3f_0000;

/// The maps of an engine and of a worker.
#[derive(Default)]
struct Maps {
    shared: Map,
    local: Map,
}

fn of_8_2() -> &'static Layout {
    layout_of(Machine::X86_64, 8, 2).unwrap()
}

/// Puts a function into the memory; returns the frame of a call of it.
fn put(memory: &mut EngineImage, number: u64, name: &str, is_user: bool) -> Frame {
    let (name_at, code) = (STRINGS + number * 0x100, CODE + number * 0x1000);
    let frame = Frame {
        address: memory.page + number * 0x100,
        func: FUNCTIONS + number * 0x100,
        opline: code,
        ..Frame::default()
    };
    let key = FunctionKey {
        code,
        last: 4,
        kind: if is_user { 2 } else { 1 },
        name: name_at,
        filename: FILE,
        ..FunctionKey::default()
    };
    memory.put_string(FILE, "/a.php");
    memory.put_string(name_at, name);
    memory.put_function(frame.func, &key);
    memory.put_frame(&Frame { opline: 0, ..frame });
    memory.put_top(memory.page + 0x3fff);
    frame
}

fn place<'a>(
    memory: &'a EngineImage,
    shared: &'a mut Map,
    local: &'a mut Map,
) -> StackPlace<'a, EngineImage> {
    place_in(memory, memory, shared, local)
}

/// The image, as it is read through this memory.
fn place_in<'a, M: Memory>(
    memory: &'a M,
    image: &EngineImage,
    shared: &'a mut Map,
    local: &'a mut Map,
) -> StackPlace<'a, M> {
    StackPlace {
        memory,
        layout: image.layout,
        executor_globals: image.executor_globals,
        shared_ranges: std::slice::from_ref(&SHARED),
        restarts: Restarts::default(),
        request: None,
        shared,
        local,
        request_ends: true,
        arena: None,
        now: 1,
    }
}

/// No known functions, the maps of an engine and of a worker, and an engine that runs nothing.
fn nothing_known() -> (Functions, Maps, EngineImage) {
    let mut memory = EngineImage::new(of_8_2());
    // Behind each text and code is more memory, as in a process.
    memory.room(STRINGS, SHARED.end - STRINGS);
    (Functions::default(), Maps::default(), memory)
}

/// This many frames, from the root, stand.
fn stands(above: usize) -> Stand {
    Stand { below: 0, above }
}

/// The names of the frames, for a worker whose requests have a visible end.
fn names(
    codes: &mut Functions,
    memory: &EngineImage,
    maps: &mut Maps,
    frames: &[Frame],
) -> Vec<String> {
    let mut ids = Vec::new();
    let mut place = place(memory, &mut maps.shared, &mut maps.local);
    codes.identify(&mut place, frames, &mut ids, |_, _| stands(frames.len()));
    ids.into_iter()
        .map(|id| {
            id.map_or_else(String::new, |id| {
                let name = codes.name(id, false);
                codes.names.get(name).name.to_string()
            })
        })
        .collect()
}

#[test]
fn internal_function_keeps_its_name_between_requests() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let internal = put(&mut memory, 1, "array_map", false);
    let user = put(&mut memory, 2, "first", true);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[internal, user]),
        ["array_map", "first"]
    );
    codes.forget(&mut maps.local);
    let later = put(&mut memory, 3, "second", true);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[later, internal]),
        ["second", "array_map"]
    );
}

/// A function is trusted by its address until its check finds another one there, as after a restart
/// of opcache.
#[test]
fn check_finds_a_replaced_function() {
    let check = |is_replaced: bool, expected: &str| {
        let (mut codes, mut maps, mut memory) = nothing_known();
        let frame = put(&mut memory, 1, "array_map", false);
        let other = put(&mut memory, 2, "usort", false);
        assert_eq!(
            names(&mut codes, &memory, &mut maps, &[frame]),
            ["array_map"]
        );
        if is_replaced {
            memory.put_function(
                frame.func,
                &FunctionKey {
                    code: other.opline,
                    kind: 1,
                    name: STRINGS + 0x200,
                    ..FunctionKey::default()
                },
            );
        }
        assert_eq!(
            names(&mut codes, &memory, &mut maps, &[frame]),
            ["array_map"]
        );
        let mut place = place(&memory, &mut maps.shared, &mut maps.local);
        place.now = 2 + CHECKED_EVERY;
        codes.check(&mut place);
        assert_eq!(names(&mut codes, &memory, &mut maps, &[frame]), [expected]);
    };
    check(false, "array_map");
    check(true, "usort");
}

#[test]
fn stale_opline_names_no_internal_function() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let earlier = put(&mut memory, 0x20, "shelf", true);
    assert_eq!(names(&mut codes, &memory, &mut maps, &[earlier]), ["shelf"]);
    let callback = put(&mut memory, 2, "compare", true);
    let internal = Frame {
        opline: earlier.opline,
        ..put(&mut memory, 1, "usort", false)
    };
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[callback, internal]),
        ["compare", "usort"]
    );
}

#[test]
fn replaced_name_is_read_in_the_next_request() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let user = put(&mut memory, 2, "before", true);
    assert_eq!(names(&mut codes, &memory, &mut maps, &[user]), ["before"]);
    codes.forget(&mut maps.local);
    let user = put(&mut memory, 2, "afterwards", true);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[user]),
        ["afterwards"]
    );
}

#[test]
fn evaled_code_at_anothers_name_is_named_right() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let mut frame = put(&mut memory, 2, "", true);
    frame.call_info = of_8_2().call_info.code;
    // No name, and ZEND_EVAL_CODE.
    let row = &memory.layout.function;
    memory.put_word(frame.func, row.function_name, 0);
    memory.put_byte(frame.func, row.type_, 4);
    memory.put_top(frame.address);
    // The engine computes no hashes of these names, and they have the same length.
    for line in ["33", "34", "33"] {
        let file = format!("/a.php({line}) : eval()'d code");
        memory.put_string(FILE, &file);
        memory.put_word(FILE, of_8_2().zend_string.h, 0);
        assert_eq!(
            names(&mut codes, &memory, &mut maps, &[frame]),
            [format!("eval {file}")]
        );
    }
    assert_eq!(codes.arena.len(), 2);
}

#[test]
fn what_is_no_function_has_no_name() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let good = put(&mut memory, 1, "good", true);
    let torn = Frame {
        func: 0xdead_0000,
        ..good
    };
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[torn, good]),
        ["", "good"]
    );
}

#[test]
fn unheld_name_is_taken_while_its_frame_stands() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let user = put(&mut memory, 2, "percent", true);
    let other = put(&mut memory, 3, "discount", true);
    let mut check = |stand: usize, expected: [bool; 2]| {
        codes.begin();
        let mut ids = Vec::new();
        let mut place = place(&memory, &mut maps.shared, &mut maps.local);
        codes.identify(&mut place, &[other, user], &mut ids, |_, _| stands(stand));
        assert_eq!([ids[0].is_some(), ids[1].is_some()], expected);
    };
    check(0, [false, false]);
    check(1, [false, true]);
    check(2, [true, true]);
}

#[test]
fn looks_begin_at_the_lowest_unheld_name() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let main = put(&mut memory, 1, "total", true);
    let [user, other] =
        [(2, "percent"), (3, "discount")].map(|(at, name)| put(&mut memory, at, name, true));
    names(&mut codes, &memory, &mut maps, &[main]);
    let mut place = place(&memory, &mut maps.shared, &mut maps.local);
    let (mut ids, mut lowest) = (Vec::new(), None);
    codes.identify(&mut place, &[other, user, main], &mut ids, |frame, _| {
        lowest = Some(frame);
        stands(3)
    });
    assert_eq!(lowest, Some(2), "the first is known");
}

#[test]
fn unnamed_function_is_looked_at_once_more() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let user = put(&mut memory, 2, "percent", true);
    let mut is_named = |codes: &mut Functions, stand: usize| {
        let mut ids = Vec::new();
        let mut place = place(&memory, &mut maps.shared, &mut maps.local);
        codes.identify(&mut place, &[user], &mut ids, |_, _| stands(stand));
        ids[0].is_some()
    };
    assert!(!is_named(&mut codes, 0));
    assert!(!is_named(&mut codes, 1));
    codes.begin();
    assert!(is_named(&mut codes, 1));
}

#[test]
fn function_takes_a_few_hundred_bytes() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "total", true);
    names(&mut codes, &memory, &mut maps, &[frame]);
    assert!(codes.bytes < 512, "{}", codes.bytes);
}

/// The bottom of a fiber is a function of the engine without a name.
#[test]
fn nameless_engine_function_needs_no_standing_frame() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "", false);
    let key = FunctionKey {
        code: CODE,
        kind: 1,
        ..FunctionKey::default()
    };
    memory.put_function(frame.func, &key);
    let mut ids = Vec::new();
    let mut place = place(&memory, &mut maps.shared, &mut maps.local);
    codes.identify(&mut place, &[frame], &mut ids, |_, _| Stand::default());
    let code = codes.get(ids[0].unwrap()).unwrap();
    assert!(code.function.key.is_nameless());
    assert_eq!(codes.names.get(code.name).name, "");
}

#[test]
fn shared_code_outlives_requests_with_its_class() {
    let mut maps = Maps::default();
    let memory = EngineImage::new(of_8_2());
    let place = place(&memory, &mut maps.shared, &mut maps.local);
    let check = |scope: u64, expected: bool| {
        let key = FunctionKey {
            code: SHARED.start,
            last: 4,
            kind: 2,
            name: STRINGS,
            scope,
            filename: FILE,
            ..FunctionKey::default()
        };
        assert_eq!(outlives(&place, &key), expected, "{scope:x}");
    };
    check(0, true);
    check(SHARED.start, true);
    check(STRINGS, false);
}

/// A class inherits an internal method as a copy in the request's memory, which the next request
/// gives to another.
#[test]
fn inherited_internal_method_is_forgotten_with_its_request() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "current", false);
    let class = memory.class("ArrayIterator");
    let home = FUNCTIONS + 0x5000;
    memory.put_table(
        class + memory.layout.class_entry.function_table as u64,
        &[("current", home), ("rewind", home)],
    );
    let method = |number: u64| FunctionKey {
        code: CODE + number * 0x1000,
        kind: 1,
        name: STRINGS + number * 0x100,
        scope: class,
        ..FunctionKey::default()
    };
    let mut named = |memory: &EngineImage| names(&mut codes, memory, &mut maps, &[frame]);
    memory.put_function(home, &method(1));
    memory.put_function(frame.func, &method(1));
    assert_eq!(named(&memory), ["ArrayIterator::current"]);
    memory.put_string(STRINGS + 0x200, "rewind");
    memory.put_function(home, &method(2));
    memory.put_function(frame.func, &method(2));
    codes.forget(&mut maps.local);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[frame]),
        ["ArrayIterator::rewind"]
    );
}

/// Makes the function of a frame that of a file; returns the frame of a script.
fn put_script(memory: &mut EngineImage, frame: Frame, file: u64, path: &str) -> Frame {
    memory.put_string(file, path);
    let key = FunctionKey {
        code: frame.opline,
        last: 4,
        kind: 2,
        filename: file,
        ..FunctionKey::default()
    };
    memory.put_function(frame.func, &key);
    Frame {
        call_info: memory.layout.call_info.code,
        ..frame
    }
}

/// An included file has often ended by the time that its function is looked at: the allocator has
/// its first word then.
#[test]
fn script_is_known_if_it_holds_the_opline() {
    let check = |opline: u64, expected: &str| {
        let (mut codes, mut maps, mut memory) = nothing_known();
        let file = SHARED.end - 0x1000;
        let called = put(&mut memory, 0x20, "", true);
        let mut frame = put_script(&mut memory, called, file, "/included.php");
        memory.put_word(frame.func, 0, 0x7f00_dead_beef);
        frame.opline = opline;
        let named = names(&mut codes, &memory, &mut maps, &[frame]);
        assert_eq!(named, [expected], "{opline:x}");
    };
    let code = CODE + 0x20 * 0x1000;
    check(code + 32, "include /included.php");
    check(code + 4 * 32, "");
    check(0, "");
}

/// A file's code is trusted by its opline for a while; then its function is looked at, which may be
/// another file's since a restart of opcache.
#[test]
fn script_is_looked_at_again_after_long() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let called = put(&mut memory, 0x20, "", true);
    let files = [SHARED.end - 0x1000, SHARED.end - 0x2000];
    let frame = put_script(&mut memory, called, files[0], "/old.php");
    let mut named = |memory: &EngineImage, now: u64| {
        let mut ids = Vec::new();
        let mut place = place(memory, &mut maps.shared, &mut maps.local);
        place.now = now;
        codes.identify(&mut place, &[frame], &mut ids, |_, _| stands(1));
        let id = codes.name(ids[0].unwrap(), false);
        codes.names.get(id).name.to_string()
    };
    assert_eq!(named(&memory, 1), "include /old.php");
    put_script(&mut memory, called, files[1], "/new.php");
    assert_eq!(named(&memory, 2), "include /old.php");
    assert_eq!(named(&memory, 2 + TRUSTED_NANOSECONDS), "include /new.php");
}

#[test]
fn functions_are_searched_twice_while_one_stays_checked() {
    for functions in [0_usize, 1, 256, 257, 1000, 8000] {
        let searches = functions.div_ceil(SEARCHED_TOGETHER) as u64;
        let pause = pause(CHECKED_TOGETHER - 1, functions);
        assert!(pause >= BETWEEN_CHECKS && pause * searches <= CHECKED_EVERY / 2);
        assert_eq!(super::pause(CHECKED_TOGETHER, functions), BETWEEN_CHECKS);
    }
}
