//! Functions whose memory was given to others, by a restart of opcache or the end of a request.

use phpprof_zend::function::HEAD;
use phpprof_zend::memory::Memory as _;

use super::*;
use crate::read::lasting::Lasting;

const NAME: u64 = SHARED.start + 0x8000;
const CLOSURE_FILE: u64 = SHARED.start + 0x8100;
const OP: u64 = 32;

/// Makes the function of the frame a closure of that line, with this many ops from there on.
fn put_closure(memory: &mut EngineImage, frame: &Frame, line: u32, code: u64, last: u32) {
    memory.put_string(NAME, "{closure}");
    memory.put_string(CLOSURE_FILE, "/a.php");
    let key = FunctionKey {
        code,
        last,
        kind: 2,
        passing: true,
        name: NAME,
        filename: CLOSURE_FILE,
        line_start: line,
        ..FunctionKey::default()
    };
    memory.put_function(frame.func, &key);
}

/// A closure that is always at a call, as one that maps an array, is never the leaf: its opline
/// alone tells its code.
#[test]
fn unchecked_closure_is_looked_at_again() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let callee = put(&mut memory, 1, "strlen", false);
    let mut closure = put(&mut memory, 2, "", true);
    closure.call_info = memory.layout.call_info.closure;
    closure.opline = SHARED.start + 3 * OP;
    put_closure(&mut memory, &closure, 5, SHARED.start, 8);
    let mut named = |memory: &EngineImage, now: u64| {
        let mut ids = Vec::new();
        let mut place = place(memory, &mut maps.shared, &mut maps.local);
        place.now = now;
        codes.begin();
        codes.identify(&mut place, &[callee, closure], &mut ids, |_, _| stands(2));
        let id = codes.name(ids[1].unwrap(), false);
        codes.names.get(id).name.to_string()
    };
    assert_eq!(named(&memory, 1), "{closure:/a.php:5}");
    // After the restart, another closure's code lies inside the old one's.
    put_closure(&mut memory, &closure, 9, SHARED.start + 2 * OP, 4);
    assert_eq!(named(&memory, 2), "{closure:/a.php:5}");
    let late = 1 + TRUSTED_NANOSECONDS;
    assert_eq!(named(&memory, late), "{closure:/a.php:9}");
    assert_eq!(named(&memory, late + 1), "{closure:/a.php:9}");
}

/// The counters of an opcache that was told to restart that often.
fn restarts(manual: u8) -> Restarts {
    let mut restarts = Restarts::default();
    restarts.0[16] = manual;
    restarts
}

/// Names a frame whose stack was read with these restarts, while opcache counts them at `COUNTERS`.
fn named(
    codes: &mut Functions,
    memory: &EngineImage,
    maps: &mut Maps,
    frame: &Frame,
    read_with: Restarts,
) -> Option<String> {
    let mut lasting = Lasting::new(memory, Some(COUNTERS));
    lasting.follow(read_with);
    let mut ids = Vec::new();
    let mut place = place_in(&lasting, memory, &mut maps.shared, &mut maps.local);
    place.restarts = read_with;
    codes.begin();
    codes.identify(&mut place, &[*frame], &mut ids, |_, _| stands(1));
    let name = codes.name(ids[0]?, false);
    Some(codes.names.get(name).name.to_string())
}

const COUNTERS: u64 = SHARED.end - 0x1000;

/// Puts a method of a class in opcache's memory: before and after a restart, all addresses and
/// texts but the class's name are the same.
fn put_method(memory: &mut EngineImage, class_name: &str) -> Frame {
    let [name, file, class, class_name_at, func, code] =
        [0, 1, 2, 3, 4, 5].map(|number| SHARED.start + 0x8000 + number * 0x400);
    memory.put_string(name, "go");
    memory.put_string(file, "/a.php");
    memory.put_string(class_name_at, class_name);
    memory.put_word(class, memory.layout.class_entry.name, class_name_at);
    let key = FunctionKey {
        code,
        last: 4,
        kind: 2,
        name,
        scope: class,
        filename: file,
        ..FunctionKey::default()
    };
    memory.put_function(func, &key);
    Frame {
        address: memory.page + 0x100,
        func,
        opline: code,
        ..Frame::default()
    }
}

#[test]
fn restart_ends_the_meaning_of_addresses() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    memory.put(COUNTERS, &restarts(1).0);
    let frame = put_method(&mut memory, "Before");
    let mut check = |memory: &EngineImage, read_with: u8, expected: Option<&str>| {
        let read_with = restarts(read_with);
        let name = named(&mut codes, memory, &mut maps, &frame, read_with);
        assert_eq!(name.as_deref(), expected);
    };
    check(&memory, 1, Some("Before::go"));
    // Everything in memory is another class's by now, but the stack is of before.
    put_method(&mut memory, "After");
    memory.put(COUNTERS, &restarts(2).0);
    check(&memory, 1, Some("Before::go"));
    check(&memory, 2, Some("After::go"));
}

/// The restart came between the read of the stack and that of the name.
#[test]
fn stack_before_a_restart_gets_no_later_name() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put_method(&mut memory, "After");
    memory.put(COUNTERS, &restarts(2).0);
    let mut read_with = |count| named(&mut codes, &memory, &mut maps, &frame, restarts(count));
    assert_eq!(read_with(1), None);
    assert_eq!(read_with(2).as_deref(), Some("After::go"));
}

#[test]
fn what_a_restart_has_ended_takes_no_memory() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put_method(&mut memory, "Cart");
    let mut bytes = Vec::new();
    for count in 1..=3 {
        memory.put(COUNTERS, &restarts(count).0);
        let name = named(&mut codes, &memory, &mut maps, &frame, restarts(count));
        assert!(name.is_some());
        bytes.push((codes.bytes, codes.arena.len()));
    }
    assert!(bytes.iter().all(|taken| *taken == bytes[0]), "{bytes:?}");
}

/// A worker's own map has ids of the shared one, which the first worker to see the restart drops.
#[test]
fn each_worker_forgets_at_its_own_next_stack() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let mut other = Map::default();
    memory.put(COUNTERS, &restarts(1).0);
    let frame = put_method(&mut memory, "Cart");
    // The other worker has a copy of the function in its own memory.
    let copy = FUNCTIONS + 0x100;
    let mut head = [0; HEAD];
    memory.read(frame.func, &mut head).unwrap();
    memory.put(copy, &head);
    let of_other = Frame {
        func: copy,
        ..frame
    };
    let mut name_in = |memory: &EngineImage, local: &mut Map, frame: &Frame, count: u8| {
        std::mem::swap(&mut maps.local, local);
        let name = named(&mut codes, memory, &mut maps, frame, restarts(count));
        std::mem::swap(&mut maps.local, local);
        name
    };
    let mut own = Map::default();
    let cart = Some("Cart::go".to_owned());
    assert_eq!(name_in(&memory, &mut other, &of_other, 1), cart);
    memory.put(COUNTERS, &restarts(2).0);
    put_method(&mut memory, "Basket");
    let basket = Some("Basket::go".to_owned());
    assert_eq!(name_in(&memory, &mut own, &frame, 2), basket);
    assert_eq!(name_in(&memory, &mut other, &of_other, 2), basket);
}

/// Without opcache's memory, the next request has functions of its own at the same addresses.
#[test]
fn next_requests_function_names_no_old_frame() {
    let check = |began: u64, is_named: bool| {
        let (mut codes, mut maps, mut memory) = nothing_known();
        let mut frame = put(&mut memory, 2, "second", true);
        frame.address = 0xdead_0000;
        let (layout, globals) = (memory.layout, memory.executor_globals);
        let functions = memory.block();
        memory.put_word(globals, layout.executor_globals.function_table, functions);
        memory.put_table(functions, &[("second", frame.func)]);
        let time = memory.block();
        memory.put_word(time, 0, 7);
        let mut place = place(&memory, &mut maps.shared, &mut maps.local);
        place.request = Some((time, began));
        let mut ids = Vec::new();
        codes.identify(&mut place, &[frame], &mut ids, |_, _| Stand::default());
        assert_eq!(ids[0].is_some(), is_named);
    };
    check(7, true);
    check(6, false);
}
