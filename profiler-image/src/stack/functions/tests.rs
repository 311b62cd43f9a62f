use phpprof_zend::layouts::{Machine, layout_of};
use phpprof_zend::memory::Recorded;

use super::*;

/// Where the test's functions, names and code lie; each function has its own hundred of bytes in each.
const FUNCTIONS: u64 = 0x10_0000;
const STRINGS: u64 = 0x20_0000;
const CODE: u64 = 0x30_0000;
const FILE: u64 = 0x2f_0000;
const GLOBALS: u64 = 0x50_0000;
const PAGE: u64 = 0x40_0000;
/// Code from here on is in memory that the engine's processes share.
const SHARED: Range<u64> = 0x31_0000..0x3f_0000;

fn zend_string(text: &str) -> Vec<u8> {
    let mut bytes = vec![0_u8; 24];
    bytes[4] = 6;
    bytes[16..24].copy_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(128, 0);
    bytes
}

/// Puts a function into the memory; gives the frame of a call of it.
fn put(memory: &mut Recorded, number: u64, name: &str, is_user: bool) -> Frame {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let row = &layout.function;
    let mut head = vec![0_u8; HEAD];
    let mut word =
        |offset: usize, value: u64| head[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    word(row.function_name, STRINGS + number * 0x100);
    word(
        if is_user { row.opcodes } else { row.handler },
        CODE + number * 0x1000,
    );
    if is_user {
        word(row.filename, FILE);
        head[row.last] = 4;
    }
    head[row.type_] = if is_user { 2 } else { 1 };
    memory.put(FUNCTIONS + number * 0x100, head);
    memory.put(STRINGS + number * 0x100, zend_string(name));
    memory.put(FILE, zend_string("/a.php"));
    let frame = PAGE + number * 0x100;
    let func = FUNCTIONS + number * 0x100;
    memory.put(frame, vec![0_u8; 128]);
    memory.put_word(frame + layout.execute_data.func as u64, func);
    put_top(memory, PAGE + 0xffff);
    Frame {
        address: frame,
        func,
        opline: CODE + number * 0x1000,
        ..Frame::default()
    }
}

/// Says which frame is the top of the page.
fn put_top(memory: &mut Recorded, top: u64) {
    let row = &layout_of(Machine::X86_64, 8, 2).unwrap().executor_globals;
    for (offset, value) in [
        (row.vm_stack, PAGE),
        (row.vm_stack_end, PAGE + 0x4_0000),
        (row.current_execute_data, top),
        (row.function_table, 0),
    ] {
        memory.put_word(GLOBALS + offset as u64, value);
    }
}

fn place<'a>(memory: &'a Recorded, shared: &'a mut Map, local: &'a mut Map) -> Place<'a, Recorded> {
    Place {
        memory,
        layout: layout_of(Machine::X86_64, 8, 2).unwrap(),
        executor_globals: GLOBALS,
        shared_ranges: std::slice::from_ref(&SHARED),
        shared,
        local,
        request_ends: true,
        now: 1,
    }
}

/// Functions, an engine's and a worker's map, and memory without anything in it.
fn nothing_known() -> (Functions, (Map, Map), Recorded) {
    Default::default()
}

/// The names of the frames, as one worker whose requests' ends are seen would give them.
fn names(
    codes: &mut Functions,
    memory: &Recorded,
    maps: &mut (Map, Map),
    frames: &[Frame],
) -> Vec<String> {
    let mut ids = Vec::new();
    let mut place = place(memory, &mut maps.0, &mut maps.1);
    codes.identify(&mut place, frames, &mut ids);
    ids.into_iter()
        .map(|id| {
            id.map_or_else(String::new, |id| {
                let name = codes.name(id, false);
                codes.names.get(name).name.clone()
            })
        })
        .collect()
}

#[test]
fn an_internal_function_keeps_its_name_when_a_request_ends() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let internal = put(&mut memory, 1, "array_map", false);
    let user = put(&mut memory, 2, "first", true);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[internal, user]),
        ["array_map", "first"]
    );
    codes.forget(&mut maps.1);
    let later = put(&mut memory, 3, "second", true);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[later, internal]),
        ["second", "array_map"]
    );
}

#[test]
fn the_opline_that_an_earlier_call_left_in_a_frame_does_not_name_an_internal_function() {
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
fn a_name_that_was_replaced_in_place_is_read_again_in_the_next_request() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let user = put(&mut memory, 2, "before", true);
    assert_eq!(names(&mut codes, &memory, &mut maps, &[user]), ["before"]);
    codes.forget(&mut maps.1);
    let user = put(&mut memory, 2, "afterwards", true);
    assert_eq!(
        names(&mut codes, &memory, &mut maps, &[user]),
        ["afterwards"]
    );
}

#[test]
fn evaled_code_whose_file_name_came_to_lie_where_anothers_was_has_its_own_name_again() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 2, "", true);
    let row = &layout_of(Machine::X86_64, 8, 2).unwrap().function;
    // No name, and ZEND_EVAL_CODE.
    memory.put_word(frame.func + row.function_name as u64, 0);
    let mut kind = memory.word(frame.func + row.type_ as u64).unwrap();
    kind = (kind & !0xff) | 4;
    memory.put_word(frame.func + row.type_ as u64, kind);
    put_top(&mut memory, frame.address);
    // The engine computes no hash of them, and they are of one length.
    for line in ["33", "34", "33"] {
        let file = format!("/a.php({line}) : eval()'d code");
        memory.put(FILE, zend_string(&file));
        assert_eq!(
            names(&mut codes, &memory, &mut maps, &[frame]),
            [format!("eval {file}")]
        );
    }
    assert_eq!(codes.arena.len(), 2);
}

#[test]
fn names_are_right_after_more_codes_than_are_remembered() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let (_, mut others, _) = nothing_known();
    let early = put(&mut memory, 1, "early", true);
    assert_eq!(names(&mut codes, &memory, &mut others, &[early]), ["early"]);
    // Each is another function at the same place.
    for number in 0..200 {
        let name = format!("f{number}");
        let frame = put(&mut memory, 2, &name, true);
        let mut place = place(&memory, &mut maps.0, &mut maps.1);
        place.request_ends = false;
        let mut ids = Vec::new();
        codes.identify(&mut place, &[frame], &mut ids);
        let id = codes.name(ids[0].unwrap(), false);
        assert_eq!(codes.names.get(id).name, name);
        assert!(codes.bytes <= MAX_BYTES + (4 << 10));
    }
    // Its id has been given to another since.
    assert_eq!(names(&mut codes, &memory, &mut others, &[early]), ["early"]);
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
fn a_name_is_taken_only_while_a_live_frame_has_the_function() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let user = put(&mut memory, 2, "percent", true);
    put_top(&mut memory, user.address - 0x80);
    assert_eq!(names(&mut codes, &memory, &mut maps, &[user]), [""]);
    put_top(&mut memory, 0);
    assert_eq!(names(&mut codes, &memory, &mut maps, &[user]), [""]);
    put_top(&mut memory, user.address);
    assert_eq!(names(&mut codes, &memory, &mut maps, &[user]), ["percent"]);
}

#[test]
fn code_in_shared_memory_outlives_its_request_only_together_with_its_class() {
    let (mut shared, mut local) = (Map::default(), Map::default());
    let memory = Recorded::default();
    let place = place(&memory, &mut shared, &mut local);
    let check = |scope: u64, expected: bool| {
        let key = Key {
            code: SHARED.start,
            last: 4,
            kind: 2,
            passing: false,
            name: STRINGS,
            scope,
            filename: FILE,
            line_start: 1,
            module: 0,
        };
        assert_eq!(outlives(&place, &key), expected, "{scope:x}");
    };
    check(0, true);
    check(SHARED.start, true);
    check(STRINGS, false);
}
