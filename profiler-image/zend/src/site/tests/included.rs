//! Included files and eval()'d code.

use super::*;
use crate::op::INCLUDE_OR_EVAL;

const LINE: u32 = 7;
const ZEND_EVAL: u32 = 1;
const ZEND_INCLUDE: u32 = 2;
const ZEND_EVAL_CODE: u8 = 4;

/// A caller at an INCLUDE_OR_EVAL on [`LINE`], and code from this file.
fn check(kind: u32, file: &str, callee_is_eval: bool, is_proven: bool) {
    for layout in ROWS {
        let mut scene = Scene::new(layout, &[INCLUDE_OR_EVAL], "", "");
        let op = Op {
            extended_value: kind,
            lineno: LINE,
            ..Op::read(&scene.image, layout, scene.caller.opline).unwrap()
        };
        scene.image.put_op(&op);
        let mut key = scene.callee_function.key;
        (key.name, key.filename) = (0, scene.image.string(file));
        if callee_is_eval {
            key.kind = ZEND_EVAL_CODE;
        }
        scene.image.put_function(CALLEE, &key);
        scene.callee_function = scene.image.function_at(CALLEE).unwrap();
        scene.check(if is_proven {
            Evidence::Proven(Relation::Nothing, Words::Script)
        } else {
            Evidence::Refuted
        });
    }
}

#[test]
fn eval_runs_code_named_by_its_line() {
    let named = |line: u32| format!("{FILE}({line}) : eval()'d code");
    check(ZEND_EVAL, &named(LINE), true, true);
    check(ZEND_EVAL, &named(LINE + 1), true, false);
    check(ZEND_EVAL, "/other.php(7) : eval()'d code", true, false);
    check(ZEND_EVAL, "/other.php", false, false);
}

#[test]
fn include_runs_a_file() {
    check(ZEND_INCLUDE, "/other.php", false, true);
    check(
        ZEND_INCLUDE,
        &format!("{FILE}({LINE}) : eval()'d code"),
        true,
        false,
    );
}
