//! Callees that a freed name tells, which was read together with the frames.

use super::*;
use crate::op::{INIT_DYNAMIC_CALL, INIT_USER_CALL};
use crate::string_hash::hash_of;

const OPERAND: u32 = 112;
const NAME: u64 = 0x32_0000;
const IS_VAR: u8 = 4;
/// `ZEND_CONCAT` (Zend/zend_vm_opcodes.h), which makes an argument of the call.
const ARGUMENT: u8 = 8;
/// Where the heap has put the next free block.
const NEXT_FREE: u64 = 0x32_0040;

/// A site whose temporary operand was this name, which was freed, and a read of it with the frames.
fn freed(layout: &'static Layout, init: u8, name: &str) -> Scene {
    let mut scene = Scene::new(layout, &[init, ARGUMENT, DO_FCALL], "", "work");
    scene.image.room(STACK, 0x100);
    scene.put_operand(OPERAND, IS_VAR);
    scene
        .image
        .put_zval(STACK + u64::from(OPERAND), NAME, IS_STRING);
    scene.copy = scene.image.copy(STACK, 0x100);
    scene.image.put_string(NAME, name);
    scene.image.put_word(NAME, 0, NEXT_FREE);
    // From 8.4 on, the heap also overwrites the end of the block, here of 32 bytes.
    scene.image.put_word(NAME, 24, NEXT_FREE);
    scene.read_beside();
    scene
}

impl Scene {
    fn put_operand(&mut self, op2: u32, op2_type: u8) {
        let init = Op::read(&self.image, self.image.layout, self.code.op(0)).unwrap();
        self.image.put_op(&Op {
            op2,
            op2_type,
            ..init
        });
    }

    /// Reads the name together with the frames.
    fn read_beside(&mut self) {
        self.copy.beside.make_room([(NAME, HEADER)].into_iter());
        for pieces in self.copy.beside.pieces() {
            for piece in pieces {
                self.image.read(piece.address, piece.bytes).unwrap();
            }
        }
    }

    /// Checks the answer, and what the site asks to be read with the frames.
    fn check_left(&self, expected: Evidence, left: Option<(u64, usize)>) {
        self.check(expected);
        let op = Op::read(&self.image, self.image.layout, self.caller.opline).unwrap();
        self.with_site(|site| assert_eq!(site.left_by(&op), left));
    }
}

/// The bytes of a string before its text.
const HEADER: usize = 24;
const LEFT: Option<(u64, usize)> = Some((NAME, HEADER));
const OF_ONE_MOMENT: Evidence =
    Evidence::Proven(Relation::Nothing, Words::Operand(STACK + OPERAND as u64));
const NAMED: Evidence =
    Evidence::Proven(Relation::Nothing, Words::Temporary(STACK + OPERAND as u64));

#[test]
fn freed_name_read_with_frames_names_it() {
    for layout in ROWS {
        for init in [INIT_DYNAMIC_CALL, INIT_USER_CALL] {
            freed(layout, init, "work").check_left(NAMED, LEFT);
            freed(layout, init, "other").check_left(Evidence::Open, LEFT);
        }
    }
}

#[test]
fn freed_name_read_later_names_nothing() {
    for layout in ROWS {
        let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
        scene.copy = scene.image.copy(STACK, 0x100);
        scene.check_left(Evidence::Open, LEFT);
    }
}

#[test]
fn held_temporary_names_the_callee() {
    for layout in ROWS {
        let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
        scene.image.put_string(NAME, "work");
        scene.copy = scene.image.copy(STACK, 0x100);
        scene.check(NAMED);
    }
}

/// The string may be an argument by now.
#[test]
fn written_temporary_needs_one_moment() {
    for layout in ROWS {
        let size = layout.zend_op.sizeof as u64;
        for (back, result, expected) in [
            (0, OPERAND + 16, NAMED),
            (0, OPERAND, OF_ONE_MOMENT),
            (1, OPERAND, OF_ONE_MOMENT),
        ] {
            let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
            let address = scene.caller.opline - back * size;
            let op = Op::read(&scene.image, layout, address).unwrap();
            scene.image.put_op(&Op { result, ..op });
            scene.check(expected);
        }
    }
}

#[test]
fn one_read_beside_looks_shows_the_name() {
    for layout in ROWS {
        for shown in 0..3 {
            let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
            for (read, pieces) in scene.copy.beside.pieces().into_iter().enumerate() {
                pieces
                    .filter(|_| read != shown)
                    .for_each(|piece| piece.bytes.fill(0));
            }
            scene.image.put_string(NAME, "other");
            scene.check(NAMED);
        }
    }
}

/// What it left above the caller may have been named by an argument that was where the temporary
/// is.
#[test]
fn freed_name_names_no_engines_call() {
    for layout in ROWS {
        let scene = freed(layout, INIT_DYNAMIC_CALL, "work").with_top();
        scene.check_left(Evidence::Open, LEFT);
    }
}

/// The memory is used again, or was not a name that the engine has searched for.
#[test]
fn bytes_without_their_hash_are_no_name() {
    for layout in ROWS {
        let row = &layout.zend_string;
        for (word, value) in [(row.h, 0), (row.h, hash_of(b"other")), (row.len, u64::MAX)] {
            let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
            scene.image.put_word(NAME, word, value);
            scene.read_beside();
            scene.check_left(Evidence::Open, LEFT);
        }
    }
}

/// A variable's string is not freed: it is read from where it is.
#[test]
fn only_temporary_strings_are_read_with_frames() {
    for layout in ROWS {
        let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
        scene.put_operand(OPERAND, layout.op_types.is_cv);
        scene.check_left(Evidence::Open, None);
        let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
        scene
            .image
            .put_zval(STACK + u64::from(OPERAND), NAME, IS_OBJECT);
        scene.copy = scene.image.copy(STACK, 0x100);
        scene.read_beside();
        scene.check_left(Evidence::Open, None);
        // No string is there: it would end the whole read.
        for address in [NAME + 4, u64::MAX - 7] {
            let mut scene = freed(layout, INIT_DYNAMIC_CALL, "work");
            let operand = STACK + u64::from(OPERAND);
            scene.image.put_zval(operand, address, IS_STRING);
            scene.copy = scene.image.copy(STACK, 0x100);
            scene.check_left(Evidence::Open, None);
        }
    }
}
