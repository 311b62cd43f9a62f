mod generator;

use super::*;
use crate::function::Key;
use crate::layouts::{Machine, ROWS, layout_of};
use crate::memory::Recorded;
use crate::op::{
    DO_FCALL, FETCH_OBJ_FUNC_ARG, FETCH_OBJ_R, FRAMELESS_ICALL_0, INIT_FCALL_BY_NAME,
    INIT_METHOD_CALL, NEW, SEND_VAL, SEND_VAR, SEND_VAR_EX,
};
use crate::text::hash_of;

const CODE: u64 = 0x10_0000;
const LITERALS: u64 = 0x11_0000;
const STRINGS: u64 = 0x12_0000;
const CACHE: u64 = 0x13_0000;
const CALLER: u64 = 0x14_0000;
const CALLEE: u64 = 0x15_0000;
const CLASS: u64 = 0x16_0000;
const STACK: u64 = 0x20_0000;
const OBJECT: u64 = 0x30_0000;
const SLOT: u32 = 16;

/// A caller whose code is `INIT_*, DO_*` (or one op alone), and the callee above it.
struct Scene {
    layout: &'static Layout,
    memory: Recorded,
    caller: Frame,
    callee: Frame,
    callee_function: Function,
    /// The address of `zend_flf_functions`.
    frameless: Option<u64>,
    copy: Copy,
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0_u8; 16];
    bytes[4] = IS_STRING;
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
    bytes.resize(128, 0);
    bytes
}

fn function(name: &str, class: &str, scope: u64) -> Function {
    Function {
        key: Key {
            code: CODE,
            last: 2,
            kind: 2,
            passing: false,
            name: 8,
            scope,
            filename: 8,
            line_start: 1,
            module: 0,
        },
        name: format!("{class}{name}"),
        file: String::new(),
        function_name: name.as_bytes().to_vec(),
        class: class.as_bytes().to_vec(),
        fingerprints: [0, 0],
    }
}

impl Scene {
    /// The site's one literal is `literal`, its cache slot is empty; `callee` runs.
    fn new(layout: &'static Layout, opcodes: &[u8], literal: &str, callee: &str) -> Self {
        let mut scene = Self {
            layout,
            memory: Recorded::default(),
            caller: Frame {
                address: STACK,
                func: CALLER,
                opline: CODE + 32 * (opcodes.len() as u64 - 1),
                run_time_cache: CACHE,
                ..Frame::default()
            },
            callee: Frame {
                address: STACK + 0x100,
                func: CALLEE,
                prev: STACK,
                ..Frame::default()
            },
            callee_function: function(callee, "", 0),
            frameless: None,
            copy: Copy::default(),
        };
        let types = &layout.op_types;
        for (index, &opcode) in opcodes.iter().enumerate() {
            let at = CODE + index as u64 * 32;
            let mut op = vec![0_u8; 32];
            // Where the literal counts from the op, and where from the op_array's literals.
            let operand = if layout.rules.literals_in_op_array {
                32
            } else {
                u32::try_from(LITERALS + 32 - at).unwrap()
            };
            let (row, slot) = (&layout.zend_op, SLOT.to_le_bytes());
            op[row.op2..][..4].copy_from_slice(&operand.to_le_bytes());
            op[row.op1..][..4].copy_from_slice(&operand.to_le_bytes());
            if !layout.rules.cache_slots_in_literals {
                op[row.result..][..4].copy_from_slice(&slot);
            }
            op[row.opcode] = opcode;
            op[row.op1_type] = types.is_unused;
            op[row.op2_type] = types.is_const;
            if opcode == NEW {
                op[row.op1_type] = types.is_const;
                if !layout.rules.cache_slots_in_literals {
                    op[row.op2..][..4].copy_from_slice(&slot);
                }
            }
            scene.memory.put(at, op);
        }
        let mut zval = vec![0_u8; 16];
        zval[..8].copy_from_slice(&STRINGS.to_le_bytes());
        zval[8] = IS_STRING;
        zval[12..16].copy_from_slice(&SLOT.to_le_bytes());
        scene.memory.put(LITERALS + 32, zval);
        scene.memory.put(STRINGS, string(literal.as_bytes()));
        scene.memory.put(CACHE, vec![0_u8; 64]);
        let literals = CALLER + layout.function.literals as u64;
        scene.memory.put_word(literals, LITERALS);
        scene
    }

    /// Fills the site's cache slot, whose second word holds a method.
    fn cached(mut self, offset: u64, value: u64) -> Self {
        self.memory
            .put_word(CACHE + u64::from(SLOT) + offset, value);
        self
    }

    fn with_top(mut self) -> Self {
        self.callee.call_info |= self.layout.call_info.top;
        self
    }

    fn method_of(mut self, class: &str) -> Self {
        let name = String::from_utf8_lossy(&self.callee_function.function_name).into_owned();
        self.callee_function = function(&name, class, CLASS);
        self.caller.this = OBJECT;
        self.callee.this = OBJECT;
        self.callee.this_type = IS_OBJECT;
        self
    }

    fn check(&self, expected: Evidence) {
        let op = Op::read(&self.memory, self.layout, self.caller.opline).unwrap();
        self.check_at(Some(&op), expected);
    }

    fn check_at(&self, op: Option<&Op>, expected: Evidence) {
        let Layout { major, minor, .. } = self.layout;
        self.with_site(|site| {
            assert_eq!(site.judge(op), expected, "{major}.{minor}");
            if let Evidence::Proven(_, words @ Words::And(_)) = expected {
                assert!(site.stands(words), "{major}.{minor}");
            }
        });
    }

    fn with_site(&self, look: impl FnOnce(&Site<'_, Recorded>)) {
        let caller_function = function("caller", "", 0);
        look(&Site {
            memory: &self.memory,
            layout: self.layout,
            copy: &self.copy,
            executor_globals: 0,
            compiler_globals: None,
            frameless_functions: self.frameless,
            through: None,
            caller: Side {
                frame: &self.caller,
                function: &caller_function,
            },
            callee: Side {
                frame: &self.callee,
                function: &self.callee_function,
            },
        });
    }
}

/// Proven by the caller's code alone.
const PROVEN: Evidence = Evidence::Proven(Check::Nothing, Words::Code);

#[test]
fn in_each_version_a_literal_names_the_callee() {
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        Scene::new(layout, &call, "Work", "work").check(PROVEN);
        Scene::new(layout, &call, "other", "work").check(Evidence::Refuted);
    }
}

#[test]
fn in_each_version_a_cache_slot_says_whom_the_site_has_called() {
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        let scene = |value| Scene::new(layout, &call, "renamed", "work").cached(0, value);
        scene(CALLEE).check(Evidence::Proven(Check::Nothing, Words::Cache));
        scene(CALLEE + 0x100).check(Evidence::Refuted);
        let call = [INIT_METHOD_CALL, DO_FCALL];
        Scene::new(layout, &call, "renamed", "work")
            .method_of("C")
            .cached(8, CALLEE)
            .check(Evidence::Proven(Check::SameThis, Words::Cache));
    }
}

/// Two objects that differ, in the variable that was passed and in the argument that it became.
#[test]
fn an_argument_contradicts_the_variable_that_it_was_passed_from() {
    for layout in ROWS {
        let (from, to) = (80_u32, 96_u32);
        let passed = Check::Passed { from, to };
        let send = |opcode: u8, op2_type: u8| {
            let call = [INIT_FCALL_BY_NAME, opcode, SEND_VAL, DO_FCALL];
            let mut scene = Scene::new(layout, &call, "work", "work");
            let (at, row) = (CODE + 32, &layout.zend_op);
            for (offset, value) in [(row.op1, from), (row.result, to)] {
                let bytes = value.to_le_bytes().to_vec();
                scene.memory.put(at + offset as u64, bytes);
            }
            for (offset, value) in [
                (row.op1_type, layout.op_types.is_cv),
                (row.op2_type, op2_type),
            ] {
                scene.memory.put(at + offset as u64, vec![value]);
            }
            scene
        };
        let unused = layout.op_types.is_unused;
        let proven = |check| Evidence::Proven(check, Words::Code);
        send(SEND_VAR, unused).check(proven(passed));
        send(SEND_VAR_EX, unused).check(proven(passed));
        send(SEND_VAR, layout.op_types.is_const).check(PROVEN);
        send(FETCH_OBJ_R, unused).check(PROVEN);

        let holds = |value: u64, kind: u8| {
            let mut bytes = vec![0_u8; 0x200];
            for (at, object, kind) in [(from, OBJECT, IS_OBJECT), (0x100 + to, value, kind)] {
                bytes[at as usize..][..8].copy_from_slice(&object.to_le_bytes());
                bytes[at as usize + 8] = kind;
            }
            let mut copy = Copy::default();
            (copy.base, copy.bytes) = (STACK, bytes);
            let frame = |address| Frame {
                address,
                ..Frame::default()
            };
            !passed.contradicted(&copy, &frame(STACK), &frame(STACK + 0x100))
        };
        assert!(holds(OBJECT, IS_OBJECT));
        assert!(!holds(OBJECT + 8, IS_OBJECT));
        assert!(holds(OBJECT + 8, IS_STRING), "it was assigned since");
    }
}

/// A frame's `func` from one call and its `run_time_cache` from another.
#[test]
fn a_cache_that_is_not_the_callers_own_says_nothing() {
    const OWN: u64 = 0x18_0000;
    for layout in ROWS {
        let call = [INIT_FCALL_BY_NAME, DO_FCALL];
        let check = |own: u64, expected: Evidence| {
            let mut scene = Scene::new(layout, &call, "renamed", "work").cached(0, CALLEE);
            let stored = CALLER + layout.function.run_time_cache as u64;
            scene.memory.put_word(stored, OWN);
            scene.memory.put_word(OWN, own);
            scene.check(expected);
        };
        check(CACHE, PROVEN);
        check(CACHE + 0x40, Evidence::Refuted);
        // It is made when the function is called first.
        check(0, Evidence::Proven(Check::Nothing, Words::Cache));
    }
}

/// Where an extension has replaced `zend_execute_ex` every user callee has ZEND_CALL_TOP.
#[test]
fn a_callee_that_the_engine_started_is_proven_only_by_a_site_that_names_it() {
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
fn up_to_7_4_a_trait_method_runs_under_its_first_name() {
    for layout in ROWS {
        let mut scene =
            Scene::new(layout, &[INIT_METHOD_CALL, DO_FCALL], "Renamed", "orig").method_of("C");
        // The class's function table: one slot, one bucket, `renamed` => the callee.
        let row = &layout.zend_array;
        let table = CLASS + layout.class_entry.function_table as u64;
        let mut header = vec![0_u8; row.sizeof];
        header[row.n_table_mask..][..4].copy_from_slice(&(-1_i32).to_le_bytes());
        header[row.ar_data..][..8].copy_from_slice(&(CLASS + 0x1000).to_le_bytes());
        header[row.n_num_used] = 1;
        header[row.n_table_size] = 1;
        scene.memory.put(table, header);
        scene.memory.put(CLASS + 0x1000 - 4, vec![0_u8; 4 + 32]);
        scene.memory.put_word(CLASS + 0x1000, CALLEE);
        scene
            .memory
            .put_word(CLASS + 0x1000 + row.bucket_h as u64, hash_of(b"renamed"));
        scene
            .memory
            .put_word(CLASS + 0x1000 + row.bucket_key as u64, CLASS + 0x2000);
        scene.memory.put(CLASS + 0x2000, string(b"renamed"));
        scene.check(if layout.major == 7 {
            Evidence::Proven(Check::SameThis, Words::Frames)
        } else {
            Evidence::Refuted
        });
    }
}

#[test]
fn a_property_hook_is_called_by_the_fetch_of_its_property() {
    let layout = layout_of(Machine::X86_64, 8, 4).unwrap();
    for opcode in [FETCH_OBJ_R, FETCH_OBJ_FUNC_ARG] {
        let scene = |property| Scene::new(layout, &[opcode], property, "$p::get").method_of("C");
        scene("p").check(Evidence::Proven(Check::SameThis, Words::Frames));
        scene("q").check(Evidence::Refuted);
    }
}

#[test]
fn a_new_object_is_built_by_its_class() {
    for layout in ROWS {
        let scene = |constructor: u64| {
            let mut scene = Scene::new(layout, &[NEW, DO_FCALL], "C", "__construct")
                .method_of("C")
                .cached(0, CLASS);
            let at = CLASS + layout.class_entry.constructor as u64;
            scene.memory.put_word(at, constructor);
            scene
        };
        scene(CALLEE).check(Evidence::Proven(Check::Nothing, Words::Cache));
        scene(CALLEE + 0x100).check(Evidence::Refuted);
        // `zend_pass_function` stands for the constructor that a class does not have.
        let mut nameless = scene(0);
        nameless.callee_function = function("", "", 0);
        nameless.check(Evidence::Proven(Check::Nothing, Words::Cache));
    }
}

#[test]
fn a_function_without_a_frame_is_the_one_that_the_op_numbers() {
    const TABLE: u64 = 0x17_0000;
    let layout = layout_of(Machine::X86_64, 8, 4).unwrap();
    let check = |func: u64, address: u64, expected: Evidence| {
        let mut scene = Scene::new(layout, &[FRAMELESS_ICALL_0], "", "class_exists");
        let number = CODE + layout.zend_op.extended_value as u64;
        scene.memory.put(number, 3_u32.to_le_bytes().to_vec());
        scene.memory.put_word(TABLE, TABLE + 8);
        scene.memory.put_word(TABLE + 8 + 3 * 8, CALLEE);
        scene.frameless = Some(TABLE);
        scene.callee = Frame {
            address,
            ..frameless::frame(&scene.caller, func)
        };
        scene.check(expected);
    };
    check(CALLEE, 0, Evidence::Proven(Check::Nothing, Words::Code));
    check(CALLEE + 8, 0, Evidence::Refuted);
    // What has a frame was not called by this op.
    check(CALLEE, STACK + 0x100, Evidence::Refuted);
}
