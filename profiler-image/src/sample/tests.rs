//! Whole samples of an engine in small, which lies in the memory of the test itself and does not move.

use std::sync::Arc;

use phpprof_zend::engine::{Engine, Module};
use phpprof_zend::jit::JitBuffer;
use phpprof_zend::layouts::{Machine, layout_of};
use phpprof_zend::phase::PhaseGlobals;

use super::*;
use crate::target::process::Process;

const SIZE: usize = 0x1_0000;
/// Offsets of what lies at a known place; after the page comes what is taken block by block.
const GLOBALS: u64 = 0;
const PAGE: u64 = 0x1000;
const PAGE_SIZE: u64 = 0x4000;
const BLOCKS: u64 = PAGE + PAGE_SIZE;
const BLOCK: u64 = 0x200;
/// Where a frame has the result of its op, and how far apart frames lie.
const RESULT: u32 = 0x60;
const FRAME: u64 = 0x80;

const IS_NULL: u8 = 1;
const IS_STRING: u8 = 6;
// Zend/zend_vm_opcodes.h.
const INIT_FCALL: u8 = 61;
const DO_UCALL: u8 = 130;
const FRAMELESS_ICALL_2: u8 = 205;
/// The place of the called function in `zend_flf_functions`.
const NUMBER: u32 = 3;

/// The engine of PHP 8.4, in whose code `{main}` calls `found`.
struct Scene {
    layout: &'static Layout,
    bytes: Vec<u8>,
    base: u64,
    free: u64,
    /// The top frame, and the page's first free place.
    top: u64,
    next: u64,
    /// Address of the pointer `zend_flf_functions`.
    table: u64,
    jit: Option<JitBuffer>,
}

impl Scene {
    fn new() -> Self {
        let bytes = vec![0; SIZE + 16];
        let mut scene = Self {
            layout: layout_of(Machine::X86_64, 8, 4).unwrap(),
            base: (bytes.as_ptr().addr() as u64).next_multiple_of(16),
            bytes,
            free: BLOCKS,
            top: 0,
            next: 0,
            table: 0,
            jit: None,
        };
        scene.next = scene.base + PAGE + scene.layout.vm_stack_header;
        let row = &scene.layout.executor_globals;
        let page = scene.base + PAGE;
        scene.word(scene.globals(), row.vm_stack, page);
        scene.word(scene.globals(), row.vm_stack_end, page + PAGE_SIZE);
        scene.table = scene.block();
        let main = scene.user(None, &[INIT_FCALL, DO_UCALL], "found");
        scene.call(main, 1, scene.layout.call_info.top);
        scene
    }

    /// `found` is the top frame, at an op that calls `function` without a frame and has this result by now.
    fn frameless(function: &str, result: u8) -> Self {
        let mut scene = Self::new();
        let internal = scene.internal(function);
        let functions = scene.block();
        scene.word(scene.table, 0, functions);
        scene.word(functions, NUMBER as usize * 8, internal);
        let found = scene.user(Some("found"), &[FRAMELESS_ICALL_2], "");
        scene.call(found, 0, 0);
        scene.put(scene.top + u64::from(RESULT) + 8, &[result]);
        scene
    }

    /// Sets a JIT buffer up, with so many bytes of compiled code in it.
    fn with_jit(mut self, code: u64) -> Self {
        let start = self.block();
        let end = start + BLOCK;
        self.word(end - 16, 0, start + 16 + code);
        self.word(end - 8, 0, start + 16);
        self.jit = Some(JitBuffer { start, end });
        self
    }

    fn globals(&self) -> u64 {
        self.base + GLOBALS
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let start = self.bytes.as_ptr().addr() as u64;
        let at = usize::try_from(address - start).unwrap();
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, address: u64, offset: usize, value: u64) {
        self.put(address + offset as u64, &value.to_le_bytes());
    }

    fn half(&mut self, address: u64, offset: usize, value: u32) {
        self.put(address + offset as u64, &value.to_le_bytes());
    }

    fn block(&mut self) -> u64 {
        self.free += BLOCK;
        self.base + self.free - BLOCK
    }

    fn string(&mut self, text: &str) -> u64 {
        let (at, row) = (self.block(), &self.layout.zend_string);
        self.put(at + 4, &[IS_STRING]);
        self.word(at, row.len, text.len() as u64);
        self.put(at + row.val as u64, text.as_bytes());
        at
    }

    fn internal(&mut self, name: &str) -> u64 {
        let row = &self.layout.function;
        let (at, name, handler) = (self.block(), self.string(name), self.block());
        self.put(at + row.type_ as u64, &[1]);
        self.word(at, row.function_name, name);
        self.word(at, row.handler, handler);
        at
    }

    /// A function and its code. The first op's literal is `literal`.
    fn user(&mut self, name: Option<&str>, opcodes: &[u8], literal: &str) -> (u64, u64) {
        let row = &self.layout.function;
        let (at, code, zval) = (self.block(), self.block(), self.block());
        let (name, file) = (
            name.map_or(0, |name| self.string(name)),
            self.string("/a.php"),
        );
        self.put(at + row.type_ as u64, &[2]);
        self.word(at, row.function_name, name);
        self.word(at, row.opcodes, code);
        self.half(at, row.last, u32::try_from(opcodes.len()).unwrap());
        self.word(at, row.filename, file);
        self.half(at, row.line_start, 1);
        let literal = self.string(literal);
        self.word(zval, 0, literal);
        self.put(zval + 8, &[IS_STRING]);
        let (op, types) = (&self.layout.zend_op, &self.layout.op_types);
        for (index, &opcode) in (0..).zip(opcodes) {
            let at = code + index * op.sizeof as u64;
            self.put(at + op.opcode as u64, &[opcode]);
            self.half(at, op.lineno, 7);
        }
        self.half(code, op.op2, u32::try_from(zval - code).unwrap());
        self.put(code + op.op2_type as u64, &[types.is_const]);
        if opcodes == [FRAMELESS_ICALL_2] {
            self.half(code, op.extended_value, NUMBER);
            self.half(code, op.result, RESULT);
        }
        (at, code)
    }

    /// Puts the frame of a call on the stack.
    fn call(&mut self, (function, code): (u64, u64), op: u64, call_info: u32) {
        let (at, row) = (self.next, &self.layout.execute_data);
        self.word(at, row.func, function);
        self.word(
            at,
            row.opline,
            code + op * self.layout.zend_op.sizeof as u64,
        );
        self.word(at, row.prev_execute_data, self.top);
        let info = call_info << self.layout.call_info.shift;
        self.half(at, row.this_type_info, info);
        (self.top, self.next) = (at, at + FRAME);
        let row = &self.layout.executor_globals;
        self.word(self.globals(), row.current_execute_data, self.top);
        self.word(self.globals(), row.vm_stack_top, self.next);
    }

    fn worker(&self) -> Worker {
        let engine = Engine {
            layout: self.layout,
            version: "8.4.0".to_owned(),
            sapi: "fpm-fcgi".to_owned(),
            executor_globals: self.globals(),
            fingerprint_at: self.globals(),
            request_time: None,
            phase_globals: PhaseGlobals::default(),
            frameless_functions: Some(self.table),
            threads: None,
            module: Module {
                base: self.base,
                path: "php".to_owned(),
            },
            build_id: String::new(),
        };
        Worker::new(Arc::new(Process::of_this_test(engine, self.jit)))
    }

    /// Takes one sample: the names of its stack, root first, and whether all of it is proven.
    fn sampled(&self) -> (Vec<String>, bool) {
        let mut sampler = Sampler::new();
        let Outcome::Sample(Sampled { stack, .. }) = sampler.sample(&mut self.worker(), 1) else {
            panic!("no sample")
        };
        let names = stack.lines.iter().map(|&(id, _)| {
            let names = &sampler.functions.names;
            names.get(id).name.clone()
        });
        let is_settled = |&(_, edge): &(u32, EdgeId)| sampler.edges.is_settled(edge);
        let is_proven = !stack.unstable && stack.open.iter().all(is_settled);
        (names.collect(), is_proven)
    }

    fn check(&self, expected: &[&str]) {
        let (names, is_proven) = self.sampled();
        assert_eq!(names, expected);
        assert!(is_proven);
    }
}

#[test]
fn a_call_without_a_frame_is_the_leaf_while_its_result_is_null() {
    Scene::frameless("strpos", IS_NULL).check(&["{main}", "found", "strpos"]);
}

/// The caller's opline stays where it is until the next op begins.
#[test]
fn a_call_without_a_frame_that_has_its_result_is_over() {
    Scene::frameless("strpos", 0).check(&["{main}", "found"]);
    Scene::frameless("strpos", IS_STRING).check(&["{main}", "found"]);
}

/// Code of the JIT does not save the opline of what calls nobody: it may be that of any call before.
#[test]
fn under_the_jit_no_call_without_a_frame_is_a_leaf() {
    let scene = || Scene::frameless("strpos", IS_NULL);
    scene().with_jit(32).check(&["{main}", "found"]);
    // Debian's 8.4 sets a buffer up for a JIT that is disabled.
    scene().with_jit(0).check(&["{main}", "found", "strpos"]);
}

#[test]
fn a_number_that_no_function_has_adds_no_leaf() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    let functions = scene.block();
    scene.word(scene.table, 0, functions);
    scene.check(&["{main}", "found"]);
}

/// The engine calls a callback with ZEND_CALL_TOP; no site names it, but nothing moves here.
#[test]
fn what_is_called_back_stands_above_the_function_without_a_frame() {
    for code in [0, 32] {
        let mut scene = Scene::frameless("implode", IS_NULL).with_jit(code);
        let text = scene.user(Some("text"), &[DO_UCALL], "");
        scene.call(text, 0, scene.layout.call_info.top);
        scene.check(&["{main}", "found", "implode", "text"]);
    }
}

/// A frame that an ordinary call pushed was not called by an op that pushes none: the two are from different moments.
#[test]
fn what_was_not_called_back_has_no_caller_at_a_call_without_a_frame() {
    let mut scene = Scene::frameless("implode", IS_NULL);
    let text = scene.user(Some("text"), &[DO_UCALL], "");
    scene.call(text, 0, 0);
    let (names, is_proven) = scene.sampled();
    assert_eq!(
        (&names[..], is_proven),
        (&["{main}".to_owned(), "found".to_owned()][..], false)
    );
}
