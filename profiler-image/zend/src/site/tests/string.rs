//! Conversions to a string: ops, and `implode`.

use super::*;
use crate::op::{
    ASSIGN_DIM_OP, ASSIGN_OBJ_OP, ASSIGN_OP, ASSIGN_STATIC_PROP_OP, CAST, CONCAT, ECHO,
    FAST_CONCAT, ROPE_ADD, ROPE_END, ROPE_INIT,
};
use crate::zval::{IS_ARRAY, IS_LONG, IS_REFERENCE};

const FIRST: u32 = 112;
const SECOND: u32 = 128;
const LIST: u64 = 0x32_0000;
const REFERENCE: u64 = 0x33_0000;
const ZEND_SUB: u32 = 2;
const OP_DATA: u8 = 137;

fn proven(offset: u64) -> Evidence {
    Evidence::Proven(Relation::Nothing, Words::Operand(STACK + offset))
}

/// A method of [`OBJECT`] that the engine called, above these ops.
fn scene(layout: &'static Layout, opcodes: &[u8], method: &str) -> Scene {
    let mut scene = Scene::new(layout, opcodes, "", method)
        .method_of("C")
        .with_top();
    scene.image.room(STACK, 0x100);
    scene
}

/// Puts an object into one variable, and the caller at its first op, whose operands are both
/// variables.
fn with_object(mut scene: Scene, variable: u32, extended_value: u32) -> Scene {
    let layout = scene.image.layout;
    let at = scene.code.op(0);
    let op = Op {
        op1: FIRST,
        op2: SECOND,
        extended_value,
        op1_type: layout.op_types.is_cv,
        op2_type: layout.op_types.is_cv,
        ..Op::read(&scene.image, layout, at).unwrap()
    };
    scene.image.put_op(&op);
    scene
        .image
        .put_zval(STACK + u64::from(variable), OBJECT, IS_OBJECT);
    scene.caller.opline = at;
    scene.copy = scene.image.copy(STACK, 0x100);
    scene
}

/// Whether an op with this opcode and `extended_value` converts its operands.
fn check(opcode: u8, extended_value: u32, [first, second]: [bool; 2], since_7_4: bool) {
    for layout in ROWS {
        let is_known = layout.rules.has_assign_op || !since_7_4;
        for (variable, converts) in [(FIRST, first), (SECOND, second)] {
            let of = |method: &str| {
                with_object(scene(layout, &[opcode], method), variable, extended_value)
            };
            of("__toString").check(if converts && is_known {
                proven(variable.into())
            } else {
                Evidence::Open
            });
            of("__destruct").check(Evidence::Open);
        }
    }
}

#[test]
fn converting_op_proves_the_objects_method() {
    check(CONCAT, 0, [true, true], false);
    check(FAST_CONCAT, 0, [true, true], false);
    for rope in [ROPE_INIT, ROPE_ADD, ROPE_END] {
        check(rope, 0, [false, true], false);
    }
    check(ECHO, 0, [true, false], true);
    check(CAST, u32::from(IS_STRING), [true, false], true);
    check(CAST, u32::from(IS_LONG), [false, false], true);
    check(ASSIGN_OP, u32::from(CONCAT), [false, true], true);
    check(ASSIGN_OP, ZEND_SUB, [false, false], true);
    check(ASSIGN_OBJ, 0, [false, false], true);
}

#[test]
fn part_assignment_converts_the_next_ops_value() {
    for layout in ROWS.iter().filter(|row| row.rules.has_assign_op) {
        for opcode in [ASSIGN_DIM_OP, ASSIGN_OBJ_OP, ASSIGN_STATIC_PROP_OP] {
            let mut scene = scene(layout, &[opcode, OP_DATA], "__toString");
            let data = Op {
                op1: FIRST,
                op1_type: layout.op_types.is_cv,
                ..Op::read(&scene.image, layout, scene.code.op(1)).unwrap()
            };
            scene.image.put_op(&data);
            let concat = u32::from(CONCAT);
            let of_value = with_object(scene, FIRST, concat);
            of_value.check(proven(FIRST.into()));
        }
    }
}

#[test]
fn object_behind_a_reference_is_converted() {
    for layout in ROWS {
        let mut scene = with_object(scene(layout, &[CONCAT], "__toString"), FIRST, 0);
        let at = STACK + u64::from(FIRST);
        scene.image.put_zval(REFERENCE + 8, OBJECT, IS_OBJECT);
        scene.image.put_zval(at, REFERENCE, IS_REFERENCE);
        scene.copy = scene.image.copy(STACK, 0x100);
        scene.check(proven(FIRST.into()));
        scene.image.put_zval(at, OBJECT + 8, IS_OBJECT);
        scene.copy = scene.image.copy(STACK, 0x100);
        scene.check(Evidence::Open);
    }
}

#[test]
fn implode_converts_its_arrays_objects() {
    for layout in ROWS {
        let first = layout.execute_data.first_argument as u64;
        let check = |function: &str, index: u64, object: u64, expected: Evidence| {
            let mut scene = scene(layout, &[DO_FCALL], "__toString");
            scene.name_internal_caller(function);
            let list = [Zval(7, 4), Zval(object, IS_OBJECT)];
            scene.image.put_list(LIST, &list);
            let at = STACK + first + index * 16;
            scene.image.put_zval(at, LIST, IS_ARRAY);
            scene.copy = scene.image.copy(STACK, 0x100);
            scene.check_at(None, expected);
        };
        for function in ["implode", "join"] {
            for index in [0, 1] {
                check(function, index, OBJECT, proven(first + index * 16));
            }
        }
        check("implode", 1, OBJECT + 8, Evidence::Open);
        check("count", 0, OBJECT, Evidence::Open);
    }
}
