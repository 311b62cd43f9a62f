//! Callees that a callable names: an internal caller's argument, and a site's operand.

use super::*;
use crate::closure::FUNCTION;
use crate::op::{INIT_DYNAMIC_CALL, INIT_USER_CALL};
use crate::zval::{IS_ARRAY, IS_REFERENCE};

const OPERAND: u32 = 112;
const NAME_OPERAND: u32 = 128;
const LIST: u64 = 0x32_0000;
const REFERENCE: u64 = 0x33_0000;
const IS_VAR: u8 = 4;

/// The content of a test's zval.
#[derive(Clone, Copy)]
enum Value {
    Text(&'static str),
    Object(u64),
    /// A reference to an object.
    Reference(u64),
    Pair(&'static Value, &'static str),
}

/// A value as a zval: its word, and its type.
fn zval(image: &mut EngineImage, value: Value) -> Zval {
    match value {
        Value::Text(text) => Zval(image.string(text), IS_STRING),
        Value::Object(address) => Zval(address, IS_OBJECT),
        Value::Reference(object) => {
            image.put_zval(REFERENCE + 8, object, IS_OBJECT);
            Zval(REFERENCE, IS_REFERENCE)
        }
        Value::Pair(target, name) => {
            let zvals = [zval(image, *target), zval(image, Value::Text(name))];
            image.put_list(LIST, &zvals);
            Zval(LIST, IS_ARRAY)
        }
    }
}

fn put(scene: &mut Scene, at: u64, value: Value) {
    let Zval(word, kind) = zval(&mut scene.image, value);
    scene.image.put_zval(STACK + at, word, kind);
    scene.copy = scene.image.copy(STACK, 0x100);
}

const OPERAND_NAMES_IT: Evidence =
    Evidence::Proven(Relation::Nothing, Words::Operand(STACK + OPERAND as u64));

/// Values, each with whether it names the method `C::work` called on [`OBJECT`].
const OF_METHOD: &[(Value, bool)] = &[
    (Value::Pair(&Value::Object(OBJECT), "Work"), true),
    (Value::Pair(&Value::Reference(OBJECT), "work"), true),
    (Value::Pair(&Value::Text("\\c"), "work"), true),
    (Value::Text("C::work"), true),
    (Value::Pair(&Value::Object(OBJECT + 8), "work"), false),
    (Value::Pair(&Value::Object(OBJECT), "other"), false),
    (Value::Pair(&Value::Text("D"), "work"), false),
    (Value::Text("D::work"), false),
    (Value::Text("work"), false),
    (Value::Object(OBJECT), false),
];

/// The same of the function `work`.
const OF_FUNCTION: &[(Value, bool)] = &[
    (Value::Text("work"), true),
    (Value::Text("\\Work"), true),
    (Value::Text("other"), false),
    (Value::Text("C::work"), false),
    (Value::Pair(&Value::Object(OBJECT), "work"), false),
];

/// Each of them, with whether the callee is a method.
fn values() -> impl Iterator<Item = (bool, Value, bool)> {
    let of = |is_method: bool, values: &'static [(Value, bool)]| {
        let values = values.iter();
        values.map(move |&(value, names)| (is_method, value, names))
    };
    of(true, OF_METHOD).chain(of(false, OF_FUNCTION))
}

fn scene(layout: &'static Layout, opcodes: &[u8], is_method: bool) -> Scene {
    let mut scene = Scene::new(layout, opcodes, "", "work");
    scene.image.room(STACK, 0x100);
    if is_method {
        scene.method_of("C")
    } else {
        scene
    }
}

/// Gives the first op these operands instead of literals.
fn put_operands(scene: &mut Scene, op1: u32, op1_type: u8) {
    let init = Op::read(&scene.image, scene.image.layout, scene.code.op(0)).unwrap();
    scene.image.put_op(&Op {
        op1,
        op1_type,
        op2: NAME_OPERAND,
        op2_type: scene.image.layout.op_types.is_cv,
        ..init
    });
}

#[test]
fn a_callable_in_an_operand_names_the_callee() {
    for layout in ROWS {
        for init in [INIT_DYNAMIC_CALL, INIT_USER_CALL] {
            for (is_method, value, names) in values() {
                let mut scene = scene(layout, &[init, DO_FCALL], is_method);
                let at = scene.code.op(0);
                scene.image.put_half(at, layout.zend_op.op2, OPERAND);
                put(&mut scene, u64::from(OPERAND), value);
                scene.check(if names {
                    OPERAND_NAMES_IT
                } else {
                    Evidence::Open
                });
            }
        }
    }
}

#[test]
fn internal_function_calls_its_callable_argument() {
    for layout in ROWS {
        let first = layout.execute_data.first_argument as u64;
        let check =
            |function: &str, index: u64, (is_method, value): (bool, Value), proven: bool| {
                let mut scene = scene(layout, &[DO_FCALL], is_method).with_top();
                scene.name_internal_caller(function);
                let at = first + index * 16;
                put(&mut scene, at, value);
                scene.check_at(
                    None,
                    if proven {
                        Evidence::Proven(Relation::Nothing, Words::Operand(STACK + at))
                    } else {
                        Evidence::Open
                    },
                );
            };
        for (is_method, value, names) in values() {
            check("call_user_func_array", 0, (is_method, value), names);
            check("usort", 1, (is_method, value), names);
            // The callable is another argument, and this function calls none.
            check("usort", 0, (is_method, value), false);
            check("function_exists", 0, (is_method, value), false);
        }
    }
}

#[test]
fn operands_name_a_method() {
    for layout in ROWS {
        let types = &layout.op_types;
        let check = |op1_type: u8, name: &'static str, object: u64, proven: Option<Relation>| {
            let mut scene = scene(layout, &[INIT_METHOD_CALL, DO_FCALL], true);
            put_operands(&mut scene, OPERAND, op1_type);
            put(&mut scene, u64::from(OPERAND), Value::Object(object));
            put(&mut scene, u64::from(NAME_OPERAND), Value::Text(name));
            let words = Words::Operand(STACK + u64::from(NAME_OPERAND));
            scene.check(proven.map_or(Evidence::Open, |check| Evidence::Proven(check, words)));
        };
        check(types.is_cv, "Work", OBJECT, Some(Relation::ThisIn(OPERAND)));
        check(IS_VAR, "work", OBJECT, Some(Relation::Nothing));
        // `$this->$name()`: the frames have the object.
        check(types.is_unused, "work", 0, Some(Relation::SameThis));
        check(types.is_cv, "other", OBJECT, None);
        check(types.is_cv, "work", OBJECT + 8, None);
        check(IS_VAR, "work", OBJECT + 8, None);
    }
}

#[test]
fn closure_operand_needs_opline_in_shared_code() {
    for layout in ROWS {
        let check = |named: bool, object: u64, change: &dyn Fn(&mut Scene)| {
            let mut scene = scene(layout, &[INIT_DYNAMIC_CALL, DO_FCALL], false);
            let at = scene.code.op(0);
            scene.image.put_half(at, layout.zend_op.op2, OPERAND);
            put(&mut scene, u64::from(OPERAND), Value::Object(object));
            scene.callee.call_info |= layout.call_info.closure;
            scene.callee.opline = scene.callee_function.key.code;
            scene.is_shared = true;
            change(&mut scene);
            scene.check(if named {
                OPERAND_NAMES_IT
            } else {
                Evidence::Open
            });
        };
        let closure = CALLEE - FUNCTION;
        check(true, closure, &|_| {});
        check(false, closure + 8, &|_| {});
        check(false, closure, &|scene| scene.callee.call_info = 0);
        // Another closure, with other code, may have taken this address since.
        check(false, closure, &|scene| scene.callee.opline += 1 << 20);
        check(false, closure, &|scene| scene.has_called = false);
        check(false, closure, &|scene| {
            // Code that other code may have replaced.
            scene.is_shared = false;
            scene.callee_function.key.passing = true;
        });
        if layout.call_info.fake_closure != 0 {
            check(false, closure, &|scene| {
                scene.callee.call_info |= layout.call_info.fake_closure;
            });
        }
    }
}
