//! Scripts whose op_array is gone.

use phpprof_zend::opcache::MAIN_OP_ARRAY;

use super::super::scripts::READ_EVERY;
use super::*;

const TABLE: u64 = SHARED.start + 0x1000;

/// Adds a script to opcache's table; returns a frame of it, whose function is not mapped any more.
fn cache(memory: &mut EngineImage, number: u64) -> Frame {
    let layout = memory.layout;
    let own = SHARED.start + 0x1_0000 * (number + 1);
    let (script, file, code) = (own, own + 0x1000, own + 0x2000);
    memory.put_opcache(SHARED.start, TABLE, u32::try_from(number + 1).unwrap());
    memory.room(TABLE, 0x200);
    memory.put_word(TABLE + 40 * number, 24, script);
    memory.put_string(file, format!("/part{number}.php"));
    let key = FunctionKey {
        code,
        last: 4,
        kind: 2,
        filename: file,
        ..FunctionKey::default()
    };
    memory.put_function(script + MAIN_OP_ARRAY, &key);
    Frame {
        address: memory.page + 0x100,
        func: 0xdead_0000,
        opline: code + layout.zend_op.sizeof as u64,
        call_info: layout.call_info.code,
        ..Frame::default()
    }
}

/// The frame's name at that time, if it has one. Nothing stands.
fn name(
    codes: &mut Functions,
    memory: &EngineImage,
    maps: &mut Maps,
    frame: Frame,
    now: u64,
) -> Option<String> {
    let mut place = place(memory, &mut maps.shared, &mut maps.local);
    place.now = now;
    let mut ids = Vec::new();
    codes.begin();
    codes.identify(&mut place, &[frame], &mut ids, |_, _| Stand::default());
    let name = codes.name(ids[0]?, false);
    Some(codes.names.get(name).name.to_string())
}

#[test]
fn ended_include_is_named_by_opcache() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = cache(&mut memory, 0);
    let mut check = |frame: Frame, expected: Option<&str>| {
        let name = name(&mut codes, &memory, &mut maps, frame, 1);
        assert_eq!(name.as_deref(), expected);
    };
    // Only the opline of a script's frame tells which code it runs, and only that of a script in
    // the table.
    let call_info = 0;
    check(Frame { call_info, ..frame }, None);
    let opline = frame.opline + 0x1000;
    check(Frame { opline, ..frame }, None);
    check(frame, Some("include /part0.php"));
}

#[test]
fn opcaches_table_is_read_once_a_second() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    cache(&mut memory, 0);
    let first = cache(&mut memory, 1);
    let mut check = |memory: &EngineImage, frame: Frame, now: u64, expected: Option<&str>| {
        let name = name(&mut codes, memory, &mut maps, frame, now);
        assert_eq!(name.as_deref(), expected);
    };
    check(&memory, first, 1, Some("include /part1.php"));
    let second = cache(&mut memory, 2);
    check(&memory, second, READ_EVERY, None);
    check(&memory, second, READ_EVERY + 1, Some("include /part2.php"));
}
