mod callable;
mod computed;
mod cost;
mod generator;
mod included;
mod left;
mod string;

use super::generator::OBJECT_CLASS;
use super::static_method::ZEND_FETCH_CLASS_PARENT;
use super::*;
use crate::function::FunctionKey;
use crate::layouts::{Machine, ROWS, layout_of};
use crate::op::{
    ASSIGN_OBJ, DO_FCALL, FETCH_OBJ_FUNC_ARG, FETCH_OBJ_R, FRAMELESS_ICALL_0, INIT_FCALL_BY_NAME,
    INIT_METHOD_CALL, INIT_STATIC_METHOD_CALL, NEW, RETURN, SEND_VAL, SEND_VAR, SEND_VAR_EX,
};
use crate::testing::{BLOCK, EngineImage, FILE, NewOp, UserFunction};

const CACHE: u64 = 0x13_0000;
const CALLEE: u64 = 0x15_0000;
const CLASS: u64 = 0x16_0000;
const STACK: u64 = 0x20_0000;
const OBJECT: u64 = 0x30_0000;
const SLOT: u32 = 16;

/// A caller whose code is `INIT_*, DO_*` (or one op alone), and the callee above it.
struct Scene {
    image: EngineImage,
    code: UserFunction,
    caller: Frame,
    callee: Frame,
    callee_function: ZendFunction,
    /// Whether the callee's code is in shared memory.
    is_shared: bool,
    /// Whether the callee has called something.
    has_called: bool,
    /// The address of `zend_flf_functions`.
    frameless: Option<u64>,
    copy: Copy,
}

impl Scene {
    /// The site's only literal is `literal`, its cache slot is empty; the callee is `callee`.
    fn new(layout: &'static Layout, opcodes: &[u8], literal: &str, callee: &str) -> Self {
        let mut image = EngineImage::new(layout);
        let op = |&opcode: &u8| NewOp {
            opcode,
            op1: (opcode == NEW).then_some(literal),
            op2: Some(literal),
            cache_slot: Some(SLOT),
            ..NewOp::default()
        };
        let code = image.user(Some("caller"), &opcodes.iter().map(op).collect::<Vec<_>>());
        image.room(CACHE, 64);
        let key = FunctionKey {
            code: CALLEE + BLOCK,
            last: 2,
            kind: 2,
            name: image.string(callee),
            filename: image.string(FILE),
            ..FunctionKey::default()
        };
        image.put_function(CALLEE, &key);
        Self {
            caller: Frame {
                address: STACK,
                func: code.func,
                opline: code.op(opcodes.len() as u64 - 1),
                run_time_cache: CACHE,
                ..Frame::default()
            },
            callee: Frame {
                address: STACK + 0x100,
                func: CALLEE,
                prev: STACK,
                ..Frame::default()
            },
            callee_function: image.function_at(CALLEE).unwrap(),
            is_shared: false,
            has_called: true,
            frameless: None,
            copy: Copy::default(),
            image,
            code,
        }
    }

    /// Fills the site's cache slot, whose second word is a method.
    fn cached(mut self, offset: usize, value: u64) -> Self {
        self.image.put_word(CACHE, SLOT as usize + offset, value);
        self
    }

    fn name_caller(&mut self, name: &str) {
        let mut key = self.image.function_at(self.code.func).unwrap().key;
        key.name = self.image.string(name);
        self.image.put_function(self.code.func, &key);
    }

    fn name_internal_caller(&mut self, name: &str) {
        let mut key = self.image.function_at(self.code.func).unwrap().key;
        (key.kind, key.name, key.scope) = (1, self.image.string(name), 0);
        self.image.put_function(self.code.func, &key);
    }

    fn with_top(mut self) -> Self {
        self.callee.call_info |= self.image.layout.call_info.top;
        self
    }

    fn method_of(mut self, class: &str) -> Self {
        self.image.room(CLASS, BLOCK);
        let name = self.image.string(class);
        let row = &self.image.layout.class_entry;
        self.image.put_word(CLASS, row.name, name);
        let mut key = self.callee_function.key;
        key.scope = CLASS;
        self.image.put_function(CALLEE, &key);
        self.callee_function = self.image.function_at(CALLEE).unwrap();
        self.image.room(OBJECT, 0x100);
        self.image.put_word(OBJECT, OBJECT_CLASS as usize, CLASS);
        let scope = self.image.layout.function.scope;
        self.image.put_word(self.code.func, scope, CLASS);
        self.caller.this = OBJECT;
        self.callee.this = OBJECT;
        self.callee.this_type = IS_OBJECT;
        self
    }

    fn check(&self, expected: Evidence) {
        let op = Op::read(&self.image, self.image.layout, self.caller.opline).unwrap();
        self.check_at(Some(&op), expected);
    }

    fn check_at(&self, op: Option<&Op>, expected: Evidence) {
        let Layout { major, minor, .. } = self.image.layout;
        self.with_site(|site| {
            assert_eq!(site.judge(op), expected, "{major}.{minor}");
        });
    }

    fn with_site(&self, look: impl FnOnce(&Site<'_, EngineImage>)) {
        self.with_site_in(&self.image, look);
    }

    /// The same for a site that is read through this memory.
    fn with_site_in<M: Memory>(&self, memory: &M, look: impl FnOnce(&Site<'_, M>)) {
        let caller_function = self.image.function_at(self.code.func).unwrap();
        look(&Site {
            memory,
            layout: self.image.layout,
            copy: &self.copy,
            executor_globals: self.image.executor_globals,
            compiler_globals: None,
            frameless_functions: self.frameless,
            through: None,
            caller: EdgeSide {
                frame: &self.caller,
                function: &caller_function,
                scope: caller_function.key.scope,
                is_passing: !caller_function.key.is_named(),
                has_own_opline: true,
            },
            callee: EdgeSide {
                frame: &self.callee,
                function: &self.callee_function,
                scope: self.callee_function.key.scope,
                is_passing: !self.callee_function.key.is_named() && !self.is_shared,
                has_own_opline: self.has_called,
            },
        });
    }
}

/// Proven by the caller's code alone.
const PROVEN: Evidence = Evidence::Proven(Relation::Nothing, Words::Code);

#[test]
fn in_each_version_a_literal_names_the_callee() {
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        Scene::new(layout, &call, "Work", "work").check(PROVEN);
        Scene::new(layout, &call, "other", "work").check(Evidence::Refuted);
    }
}

#[test]
fn cache_slot_names_the_callee() {
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        let scene = |value| Scene::new(layout, &call, "renamed", "work").cached(0, value);
        scene(CALLEE).check(Evidence::Proven(Relation::Nothing, Words::Cache));
        scene(CALLEE + 0x100).check(Evidence::Refuted);
        let call = [INIT_METHOD_CALL, DO_FCALL];
        Scene::new(layout, &call, "renamed", "work")
            .method_of("C")
            .cached(8, CALLEE)
            .check(Evidence::Proven(Relation::SameThis, Words::Cache));
    }
}

/// Two different objects, in the variable that was passed and in its argument.
#[test]
fn argument_contradicts_its_variable() {
    for layout in ROWS {
        let (from, to) = (80_u32, 96_u32);
        let passed = Relation::Passed { from, to };
        let send = |opcode: u8, op2_type: u8| {
            let call = [INIT_FCALL_BY_NAME, opcode, SEND_VAL, DO_FCALL];
            let mut scene = Scene::new(layout, &call, "work", "work");
            scene.image.put_op(&Op {
                address: scene.code.op(1),
                op1: from,
                op2: 0,
                result: to,
                extended_value: 0,
                lineno: 0,
                opcode,
                op1_type: layout.op_types.is_cv,
                op2_type,
            });
            scene
        };
        let unused = layout.op_types.is_unused;
        let proven = |check| Evidence::Proven(check, Words::Code);
        send(SEND_VAR, unused).check(proven(passed));
        send(SEND_VAR_EX, unused).check(proven(passed));
        send(SEND_VAR, layout.op_types.is_const).check(PROVEN);
        send(FETCH_OBJ_R, unused).check(PROVEN);

        let [contradicted, confirmed, unknown] = [(true, false), (false, true), (false, false)];
        let said = |value: u64, kind: u8| {
            let mut image = EngineImage::new(layout);
            image.room(STACK, 0x200);
            image.put_zval(STACK + u64::from(from), OBJECT, IS_OBJECT);
            image.put_zval(STACK + 0x100 + u64::from(to), value, kind);
            let copy = image.copy(STACK, 0x200);
            let frame = |address| Frame {
                address,
                ..Frame::default()
            };
            let (caller, callee) = (&frame(STACK), &frame(STACK + 0x100));
            (
                passed.contradicted(&copy, caller, callee),
                passed.confirmed(&copy, caller, callee),
            )
        };
        assert_eq!(said(OBJECT, IS_OBJECT), confirmed);
        assert_eq!(said(OBJECT + 8, IS_OBJECT), contradicted);
        assert_eq!(
            said(OBJECT + 8, IS_STRING),
            unknown,
            "it was assigned since"
        );
    }
}

/// A frame's `func` from one call and its `run_time_cache` from another.
#[test]
fn foreign_cache_says_nothing() {
    const OWN: u64 = 0x18_0000;
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        let check = |own: u64, expected: Evidence| {
            let mut scene = Scene::new(layout, &call, "renamed", "work").cached(0, CALLEE);
            let stored = layout.function.run_time_cache;
            scene.image.put_word(scene.code.func, stored, OWN);
            scene.image.put_word(OWN, 0, own);
            scene.check(expected);
        };
        check(CACHE, PROVEN);
        check(CACHE + 0x40, Evidence::Refuted);
        // It is made at the function's first call.
        check(0, Evidence::Proven(Relation::Nothing, Words::Cache));
    }
}

/// If an extension has replaced `zend_execute_ex`, every user callee has ZEND_CALL_TOP.
#[test]
fn engines_callee_needs_a_naming_site() {
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        Scene::new(layout, &call, "work", "work")
            .with_top()
            .check(PROVEN);
        let mut other = Scene::new(layout, &call, "work", "handler").with_top();
        other.check(Evidence::Open);
        // `zend_internal_function`: the engine calls none by itself.
        other.callee_function.key.kind = 1;
        other.check(Evidence::Refuted);
        other = other.method_of("C").with_top();
        other.callee_function.key.kind = 1;
        other.check(Evidence::Open);
    }
}

#[test]
fn trait_method_keeps_its_first_name_until_php8() {
    for layout in ROWS {
        let mut scene =
            Scene::new(layout, &[INIT_METHOD_CALL, DO_FCALL], "Renamed", "orig").method_of("C");
        let table = CLASS + layout.class_entry.function_table as u64;
        scene.image.put_table(table, &[("renamed", CALLEE)]);
        scene.check(if layout.major == 7 {
            Evidence::Proven(Relation::SameThis, Words::Frames)
        } else {
            Evidence::Refuted
        });
    }
}

#[test]
fn property_fetch_calls_its_hook() {
    let layout = layout_of(Machine::X86_64, 8, 4).unwrap();
    for opcode in [FETCH_OBJ_R, FETCH_OBJ_FUNC_ARG] {
        let scene = |property| Scene::new(layout, &[opcode], property, "$p::get").method_of("C");
        scene("p").check(Evidence::Proven(Relation::SameThis, Words::Frames));
        scene("q").check(Evidence::Refuted);
    }
}

/// Callees of the engine are marked, and no site names them; but the engine calls a hook only for
/// its own property.
#[test]
fn engines_hook_belongs_to_its_propertys_op() {
    let layout = layout_of(Machine::X86_64, 8, 4).unwrap();
    let check = |opcode, property, callee, expected| {
        let scene = Scene::new(layout, &[opcode], property, callee);
        scene.method_of("C").with_top().check(expected);
    };
    check(ASSIGN_OBJ, "p", "$p::set", Evidence::Open);
    check(ASSIGN_OBJ, "p", "$p::get", Evidence::Refuted);
    check(ASSIGN_OBJ, "q", "$p::set", Evidence::Refuted);
    check(FETCH_OBJ_R, "p", "$p::set", Evidence::Refuted);
    check(FETCH_OBJ_R, "q", "$p::get", Evidence::Refuted);
    check(RETURN, "p", "$p::get", Evidence::Refuted);
    // A destructor, and a magic method.
    check(RETURN, "p", "__destruct", Evidence::Open);
    check(FETCH_OBJ_R, "p", "__get", Evidence::Open);
    check(ASSIGN_OBJ, "p", "__set", Evidence::Open);
}

#[test]
fn hook_has_its_own_objects_value() {
    let layout = layout_of(Machine::X86_64, 8, 4).unwrap();
    let scene = |caller| {
        let mut scene = Scene::new(layout, &[FETCH_OBJ_R], "p", "$p::get").method_of("C");
        scene.name_caller(caller);
        scene
    };
    scene("$p::set").check(Evidence::Refuted);
    scene("$p::get").with_top().check(Evidence::Refuted);
    scene("$q::get").check(Evidence::Proven(Relation::SameThis, Words::Frames));
    let mut other = scene("$p::get").with_top();
    other.callee.this = OBJECT + 8;
    other.check(Evidence::Open);
}

#[test]
fn a_new_object_is_built_by_its_class() {
    for layout in ROWS {
        let scene = |constructor: u64| {
            let mut scene = Scene::new(layout, &[NEW, DO_FCALL], "C", "__construct")
                .method_of("C")
                .cached(0, CLASS);
            let row = &layout.class_entry;
            scene.image.put_word(CLASS, row.constructor, constructor);
            scene
        };
        // The closure's code names its class, which is a better proof than the cache in its frame.
        scene(CALLEE).check(PROVEN);
        let inherited = scene(CALLEE).method_of("Parent");
        inherited.check(Evidence::Proven(Relation::Nothing, Words::Cache));
        scene(CALLEE + 0x100).check(Evidence::Refuted);
        // `zend_pass_function` replaces a missing constructor.
        let mut nameless = scene(0);
        let key = FunctionKey {
            code: CALLEE + BLOCK,
            kind: 1,
            ..FunctionKey::default()
        };
        nameless.image.put_function(CALLEE, &key);
        nameless.callee_function = nameless.image.function_at(CALLEE).unwrap();
        nameless.check(Evidence::Proven(Relation::Nothing, Words::Cache));
    }
}

#[test]
fn op_number_names_a_frameless_function() {
    const TABLE: u64 = 0x17_0000;
    let layout = layout_of(Machine::X86_64, 8, 4).unwrap();
    let check = |func: u64, address: u64, expected: Evidence| {
        let mut scene = Scene::new(layout, &[FRAMELESS_ICALL_0], "", "class_exists");
        let number = layout.zend_op.extended_value;
        scene.image.put_half(scene.code.code, number, 3);
        scene.image.put_word(TABLE, 0, TABLE + 8);
        scene.image.put_word(TABLE + 8, 3 * 8, CALLEE);
        scene.frameless = Some(TABLE);
        scene.callee = Frame {
            address,
            ..frameless::frame(&scene.caller, func)
        };
        scene.check(expected);
    };
    check(CALLEE, 0, Evidence::Proven(Relation::Nothing, Words::Code));
    check(CALLEE + 8, 0, Evidence::Refuted);
    // A callee with a frame was not called by this op.
    check(CALLEE, STACK + 0x100, Evidence::Refuted);
}

/// A look can show the function of one call on the object of another: the engine writes one after
/// the other.
#[test]
fn name_proves_methods_of_its_class_only() {
    let check = |object: &str, caller: &str, expected: Evidence| {
        for layout in ROWS {
            let ops = [INIT_METHOD_CALL, DO_FCALL];
            let mut scene = Scene::new(layout, &ops, "work", "work").method_of("C");
            let (child, other) = (scene.image.class("Child"), scene.image.class("Other"));
            scene
                .image
                .put_word(child, layout.class_entry.parent, CLASS);
            let class = |name| match name {
                "C" => CLASS,
                "Child" => child,
                _ => other,
            };
            let at = OBJECT_CLASS as usize;
            scene.image.put_word(OBJECT, at, class(object));
            let scope = layout.function.scope;
            scene.image.put_word(scene.code.func, scope, class(caller));
            scene.check(expected);
        }
    };
    let proven = Evidence::Proven(Relation::SameThis, Words::Frames);
    check("C", "C", proven);
    check("Child", "C", proven);
    check("Child", "Child", proven);
    check("C", "Child", Evidence::Open);
    check("Other", "Other", Evidence::Open);
    check("Other", "C", Evidence::Open);
    // An object that cannot be read refutes nothing.
    for layout in ROWS {
        let ops = [INIT_METHOD_CALL, DO_FCALL];
        let mut scene = Scene::new(layout, &ops, "work", "work").method_of("C");
        (scene.caller.this, scene.callee.this) = (u64::MAX, u64::MAX);
        scene.check(proven);
    }
}

/// The site names another class than the constructor's, as `new $class` names none: the object in
/// its result proves it.
#[test]
fn new_proves_its_objects_constructor() {
    for layout in ROWS {
        let check = |object: u64, kind: u8, expected: Evidence| {
            let mut scene =
                Scene::new(layout, &[NEW, DO_FCALL], "C", "__construct").method_of("Parent");
            scene.image.room(STACK, 0x200);
            scene.image.put_zval(STACK, object, kind);
            scene.copy = scene.image.copy(STACK, 0x200);
            scene.check(expected);
        };
        let proven = Evidence::Proven(Relation::Nothing, Words::Operand(STACK));
        check(OBJECT, IS_OBJECT, proven);
        check(OBJECT + 8, IS_OBJECT, Evidence::Open);
        check(OBJECT, IS_OBJECT + 1, Evidence::Open);
    }
}

/// The callee is the constructor of the caller's parent class, whatever the object is: no word of a
/// frame names it.
#[test]
fn callers_class_names_the_parents_constructor() {
    let check = |fetch: u32, constructor: u64, words: Words| {
        for layout in ROWS {
            let ops = [INIT_STATIC_METHOD_CALL, DO_FCALL];
            let mut scene = Scene::new(layout, &ops, "", "__construct").method_of("Parent");
            let (row, types) = (&layout.class_entry, &layout.op_types);
            let init = Op::read(&scene.image, layout, scene.code.op(0)).unwrap();
            scene.image.put_op(&Op {
                op1: fetch,
                op1_type: types.is_unused,
                op2_type: types.is_unused,
                ..init
            });
            let child = scene.image.class("Child");
            scene.image.put_word(child, row.parent, CLASS);
            scene.image.put_word(CLASS, row.constructor, constructor);
            let scope = layout.function.scope;
            scene.image.put_word(scene.code.func, scope, child);
            scene.check(Evidence::Proven(Relation::Nothing, words));
        }
    };
    check(ZEND_FETCH_CLASS_PARENT, CALLEE, Words::Code);
    // The constructor of another class in between, or of `self` and `static`, needs the frames.
    check(ZEND_FETCH_CLASS_PARENT, CALLEE + 8, Words::Frames);
    check(ZEND_FETCH_CLASS_PARENT - 1, CALLEE, Words::Frames);
}
