//! Closures whose code was replaced by a restart of opcache.

use super::*;

const NAME: u64 = SHARED.start + 0x8000;
const CLOSURE_FILE: u64 = SHARED.start + 0x8100;
const OP: u64 = 32;

/// Makes the function of the frame a closure of that line, with this many ops from there on.
fn put_closure(memory: &mut EngineImage, frame: &Frame, line: u32, code: u64, last: u32) {
    memory.put_string(NAME, "{closure}");
    memory.put_string(CLOSURE_FILE, "/a.php");
    let key = Key {
        code,
        last,
        kind: 2,
        passing: true,
        name: NAME,
        filename: CLOSURE_FILE,
        line_start: line,
        ..Key::default()
    };
    memory.put_function(frame.func, &key);
}

/// A closure that is always at a call, as one that maps an array, is never the leaf: its opline alone tells its code.
#[test]
fn a_closure_whose_code_was_not_checked_for_long_is_looked_at_again() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let callee = put(&mut memory, 1, "strlen", false);
    let mut closure = put(&mut memory, 2, "", true);
    closure.call_info = memory.layout.call_info.closure;
    closure.opline = SHARED.start + 3 * OP;
    put_closure(&mut memory, &closure, 5, SHARED.start, 8);
    let mut named = |memory: &EngineImage, now: u64| {
        let mut ids = Vec::new();
        let mut place = place(memory, &mut maps.0, &mut maps.1);
        place.now = now;
        codes.begin();
        codes.identify(&mut place, &[callee, closure], &mut ids, |_, _| stands(2));
        let id = codes.name(ids[1].unwrap(), false);
        codes.names.get(id).name.to_owned()
    };
    assert_eq!(named(&memory, 1), "{closure:/a.php:5}");
    // After the restart, another closure's code lies inside the old one's.
    put_closure(&mut memory, &closure, 9, SHARED.start + 2 * OP, 4);
    assert_eq!(named(&memory, 2), "{closure:/a.php:5}");
    let late = 1 + TRUSTED_NANOSECONDS;
    assert_eq!(named(&memory, late), "{closure:/a.php:9}");
    assert_eq!(named(&memory, late + 1), "{closure:/a.php:9}");
}
