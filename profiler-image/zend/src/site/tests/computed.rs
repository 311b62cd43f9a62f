//! Callees that a temporary operand named, which its ops compute once more.

use super::*;
use crate::closure::FUNCTION;
use crate::hash::Index;
use crate::op::{ADD_ARRAY_ELEMENT, FETCH_DIM_R, INIT_ARRAY, INIT_DYNAMIC_CALL, INIT_USER_CALL};
use crate::zval::{IS_ARRAY, IS_LONG};

const VARIABLE: u32 = 112;
const OTHER: u32 = 128;
const KEY: u32 = 176;
const TEMPORARIES: [u32; 2] = [144, 160];
const ARRAY: u64 = 0x32_0000;
const OBJECT_ROOM: u64 = 0x80;
const PROPERTY: u64 = 40;
const IS_VAR: u8 = 4;
const JMP: u8 = 42;

const VARIABLE_NAMES_IT: Evidence =
    Evidence::Proven(Relation::Nothing, Words::Operand(STACK + VARIABLE as u64));

/// An op's operands, each a type and a number, and its result.
struct Code {
    opcode: u8,
    op1: (u8, u32),
    op2: (u8, u32),
    result: u32,
}

impl Scene {
    fn put_code(&mut self, code: &[Code]) {
        for (index, op) in (0..).zip(code) {
            self.image.put_op(&Op {
                address: self.code.op(index),
                op1: op.op1.1,
                op2: op.op2.1,
                result: op.result,
                extended_value: SLOT,
                lineno: 0,
                opcode: op.opcode,
                op1_type: op.op1.0,
                op2_type: op.op2.0,
            });
        }
    }

    fn put_variable(&mut self, variable: u32, zval: Zval) {
        self.image.room(STACK, 0x100);
        let at = STACK + u64::from(variable);
        self.image.put_zval(at, zval.0, zval.1);
        self.copy = self.image.copy(STACK, 0x100);
    }
}

/// `($this->factories[$id])()`: the closure that `cart` names is the callee's.
fn factory(layout: &'static Layout) -> Scene {
    let types = &layout.op_types;
    let calls = [FETCH_OBJ_R, FETCH_DIM_R, INIT_DYNAMIC_CALL, DO_FCALL];
    let mut scene = Scene::new(layout, &calls, "factories", "work");
    let unused = (types.is_unused, 0);
    let [first, second] = TEMPORARIES;
    scene.put_code(&[
        Code {
            opcode: FETCH_OBJ_R,
            op1: unused,
            op2: unused,
            result: first,
        },
        Code {
            opcode: FETCH_DIM_R,
            op1: (IS_VAR, first),
            op2: (types.is_cv, VARIABLE),
            result: second,
        },
        Code {
            opcode: INIT_DYNAMIC_CALL,
            op1: unused,
            op2: (IS_VAR, second),
            result: 0,
        },
    ]);
    let closures = [("cart", CALLEE - FUNCTION), ("price", OBJECT)];
    let closures =
        closures.map(|(id, closure)| (Index::Text(id.as_bytes()), Zval(closure, IS_OBJECT)));
    scene.image.put_array(ARRAY, &closures);
    scene.image.room(OBJECT, OBJECT_ROOM);
    scene.image.put_word(OBJECT, 16, CLASS);
    scene.image.put_zval(OBJECT + PROPERTY, ARRAY, IS_ARRAY);
    scene.caller.this = OBJECT;
    scene.callee.call_info |= layout.call_info.closure;
    scene.callee.opline = scene.callee_function.key.code;
    scene.is_shared = true;
    let id = scene.image.string("cart");
    scene.put_variable(VARIABLE, Zval(id, IS_STRING));
    scene.cached(0, CLASS).cached(8, PROPERTY)
}

fn check_factory(layout: &'static Layout, expected: Evidence, change: impl FnOnce(&mut Scene)) {
    let mut scene = factory(layout);
    change(&mut scene);
    scene.check(expected);
}

#[test]
fn element_of_own_property_names_the_callee() {
    for layout in ROWS {
        if layout.rules.cache_slots_in_literals {
            check_factory(layout, Evidence::Open, |_| {});
            continue;
        }
        check_factory(layout, VARIABLE_NAMES_IT, |_| {});
        check_factory(layout, Evidence::Open, |scene| {
            let id = scene.image.string("price");
            scene.put_variable(VARIABLE, Zval(id, IS_STRING));
        });
        check_factory(layout, Evidence::Open, |scene| {
            scene.put_variable(VARIABLE, Zval(0, IS_LONG));
        });
        // The array has the closure and its code, whatever the frame's opline is.
        check_factory(layout, VARIABLE_NAMES_IT, |scene| {
            (scene.has_called, scene.callee.opline) = (false, 0);
        });
        // There is other code by now.
        check_factory(layout, Evidence::Open, |scene| {
            let key = FunctionKey {
                line_start: 9,
                ..scene.callee_function.key
            };
            scene.image.put_function(CALLEE, &key);
        });
        // The slot is of another class, or of a dynamic property.
        check_factory(layout, Evidence::Open, |scene| {
            scene.image.put_word(OBJECT, 16, CLASS + 8);
        });
        check_factory(layout, Evidence::Open, |scene| {
            scene.image.put_word(CACHE, SLOT as usize + 8, u64::MAX);
        });
        // Another branch can lead to the site.
        check_factory(layout, Evidence::Open, |scene| {
            let at = scene.code.op(1);
            scene.image.put_byte(at, layout.zend_op.opcode, JMP);
        });
    }
}

/// `call_user_func([$object, $step[0]])`: the callee is the method `work` of the object.
fn step(layout: &'static Layout) -> Scene {
    let types = &layout.op_types;
    let calls = [
        INIT_ARRAY,
        FETCH_DIM_R,
        ADD_ARRAY_ELEMENT,
        INIT_USER_CALL,
        DO_FCALL,
    ];
    let mut scene = Scene::new(layout, &calls, "call_user_func", "work").method_of("C");
    let unused = (types.is_unused, 0);
    let [pair, name] = TEMPORARIES;
    scene.put_code(&[
        Code {
            opcode: INIT_ARRAY,
            op1: (types.is_cv, OTHER),
            op2: unused,
            result: pair,
        },
        Code {
            opcode: FETCH_DIM_R,
            op1: (types.is_cv, VARIABLE),
            op2: (types.is_cv, KEY),
            result: name,
        },
        Code {
            opcode: ADD_ARRAY_ELEMENT,
            op1: (IS_VAR, name),
            op2: unused,
            result: pair,
        },
        Code {
            opcode: INIT_USER_CALL,
            op1: unused,
            op2: (IS_VAR, pair),
            result: 0,
        },
    ]);
    let text = scene.image.string("Work");
    let array = [(Index::Number(0), Zval(text, IS_STRING))];
    scene.image.put_array(ARRAY, &array);
    scene.put_variable(VARIABLE, Zval(ARRAY, IS_ARRAY));
    scene.put_variable(OTHER, Zval(OBJECT, IS_OBJECT));
    scene.put_variable(KEY, Zval(0, IS_LONG));
    scene
}

fn check_step(layout: &'static Layout, is_proven: bool, change: impl FnOnce(&mut Scene)) {
    let mut scene = step(layout);
    change(&mut scene);
    let key = Words::Operand(STACK + u64::from(KEY));
    scene.check(if is_proven {
        Evidence::Proven(Relation::Nothing, key)
    } else {
        Evidence::Open
    });
}

#[test]
fn pair_made_by_the_site_names_the_callee() {
    for layout in ROWS {
        check_step(layout, true, |_| {});
        check_step(layout, false, |scene| {
            scene.put_variable(OTHER, Zval(OBJECT + 8, IS_OBJECT));
        });
        check_step(layout, false, |scene| {
            scene.put_variable(KEY, Zval(1, IS_LONG));
        });
        check_step(layout, false, |scene| {
            let other = scene.image.string("other");
            scene.image.put_list(ARRAY, &[Zval(other, IS_STRING)]);
        });
        // The pair has keys.
        check_step(layout, false, |scene| {
            let at = scene.code.op(0);
            let kind = layout.op_types.is_cv;
            scene.image.put_byte(at, layout.zend_op.op2_type, kind);
        });
    }
}
