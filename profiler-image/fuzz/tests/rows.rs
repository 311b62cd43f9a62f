//! Every row, those of versions and machines that cannot be had here among them, on an image that is laid out by it.
//!
//! The image is a whole process in small: an ELF image with its dynamic symbols, the engine's globals (of a thread, in a
//! thread-safe build), tables, functions and a stack. What it does not show: that a row is right; the headers that it is
//! compiled from and the recorded seeds do.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use phpprof_fuzz::image::encode;
use phpprof_fuzz::{engine, stack};
use phpprof_zend::layouts::{Layout, Machine, ROWS};
use phpprof_zend::text::hash_of;
use phpprof_zend::unwind::End;

const ELF: u64 = 0x5555_0000_0000;
const HASH: u64 = ELF + 0x200;
const SYMBOLS: u64 = ELF + 0x300;
const NAMES: u64 = ELF + 0x500;
const DYNAMIC: u64 = ELF + 0x700;
/// The writable segment.
const DATA: u64 = ELF + 0x10_0000;
const DATA_SIZE: u64 = 0x4000;
const MODULES: u64 = DATA + 0x3000;
const SAPI: u64 = DATA + 0x3100;
const IDS: u64 = DATA + 0x3200;
/// Where `tsrm_tls_table` is, with its size before it.
const TABLE_AT: u64 = DATA + 0x3308;
const HEAP: u64 = 0x7f00_0000_0000;
const ENTRY: u64 = HEAP + 0x10_0000;
const PAGE: u64 = HEAP + 0x20_0000;
const FILE: &str = "/srv/a.php";

// Zend/zend_vm_opcodes.h.
const INIT_FCALL: u8 = 61;
const INIT_STATIC_METHOD_CALL: u8 = 113;
const INIT_DYNAMIC_CALL: u8 = 128;
const DO_ICALL: u8 = 129;
const DO_UCALL: u8 = 130;

/// The image of one row's engine.
struct Scene {
    layout: &'static Layout,
    is_thread_safe: bool,
    memory: BTreeMap<u64, u8>,
    /// Where the next thing on the heap goes.
    free: u64,
    executor_globals: u64,
    compiler_globals: u64,
}

/// One call: the INIT's opcode, its class and its function.
type Call<'a> = (u8, Option<&'a str>, Option<&'a str>);

impl Scene {
    fn new(layout: &'static Layout, is_thread_safe: bool) -> Self {
        let globals = if is_thread_safe { ENTRY + 0x100 } else { DATA };
        let mut scene = Self {
            layout,
            is_thread_safe,
            memory: BTreeMap::new(),
            free: HEAP,
            executor_globals: globals,
            compiler_globals: globals + 0x1800,
        };
        scene.put(DATA, &[0; DATA_SIZE as usize]);
        if is_thread_safe {
            scene.put(globals, &[0; 0x3000]);
        }
        scene.elf();
        scene.engine();
        scene
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.extend((address..).zip(bytes.iter().copied()));
    }

    fn word(&mut self, address: u64, offset: usize, value: u64) {
        self.put(address + offset as u64, &value.to_le_bytes());
    }

    fn half(&mut self, address: u64, offset: usize, value: u32) {
        self.put(address + offset as u64, &value.to_le_bytes());
    }

    fn byte(&mut self, address: u64, offset: usize, value: u8) {
        self.put(address + offset as u64, &[value]);
    }

    /// A block on the heap, zeroed.
    fn block(&mut self) -> u64 {
        const SIZE: usize = 0x200;
        let at = self.free;
        self.free += SIZE as u64;
        self.put(at, &[0; SIZE]);
        at
    }

    fn string(&mut self, text: &str) -> u64 {
        let at = self.block();
        let row = &self.layout.zend_string;
        self.byte(at, 4, 6);
        self.word(at, row.h, hash_of(text.as_bytes()));
        self.word(at, row.len, text.len() as u64);
        self.put(at + row.val as u64, text.as_bytes());
        at
    }

    fn c_string(&mut self, text: &str) -> u64 {
        let at = self.block();
        self.put(at, text.as_bytes());
        at
    }

    /// A hash table with one entry.
    fn table(&mut self, at: u64, key: &str, value: u64) {
        let row = &self.layout.zend_array;
        let data = self.block() + 0x100;
        let name = self.string(key);
        self.half(at, row.n_table_mask, u32::MAX);
        self.word(at, row.ar_data, data);
        self.half(at, row.n_num_used, 1);
        self.half(at, row.n_num_of_elements, 1);
        self.half(at, row.n_table_size, 1);
        self.word(data, 0, value);
        self.half(data, row.bucket_next, u32::MAX);
        self.word(data, row.bucket_h, hash_of(key.as_bytes()));
        self.word(data, row.bucket_key, name);
    }

    fn module(&mut self, name: &str, version: &str) -> u64 {
        let row = &self.layout.module_entry;
        let (at, name, version) = (self.block(), self.c_string(name), self.c_string(version));
        self.half(at, row.zend_api, self.layout.module_api);
        self.byte(at, row.zts, u8::from(self.is_thread_safe));
        self.word(at, row.name, name);
        self.word(at, row.version, version);
        at
    }

    /// Headers, dynamic section and symbols of the image.
    fn elf(&mut self) {
        let machine = match self.layout.machine {
            Machine::X86_64 => 62,
            Machine::Aarch64 => 183,
        };
        self.put(ELF, &[0; 0x1000]);
        self.put(ELF, b"\x7fELF\x02\x01");
        self.byte(ELF, 18, machine);
        self.word(ELF, 32, 64);
        self.put(ELF + 54, &[56, 0, 3, 0]);
        let segments = [
            (1, 4, 0, 0x1000),
            (1, 6, DATA - ELF, DATA_SIZE),
            (2, 6, DYNAMIC - ELF, 0x100),
        ];
        for (index, (kind, flags, address, size)) in (0..).zip(segments) {
            let at = ELF + 64 + index * 56;
            self.half(at, 0, kind);
            self.half(at, 4, flags);
            self.word(at, 16, address);
            self.word(at, 40, size);
        }
        let entries = [(5, NAMES), (6, SYMBOLS), (0x6fff_fef5, HASH), (0, 0)];
        for (index, (tag, value)) in (0..).zip(entries) {
            self.word(DYNAMIC + index * 16, 0, tag);
            self.word(DYNAMIC + index * 16, 8, value);
        }
        self.symbols();
    }

    /// One bucket with all symbols in its chain.
    fn symbols(&mut self) {
        let globals: &[(&str, u64)] = if self.is_thread_safe {
            &[
                ("executor_globals_id", IDS),
                ("compiler_globals_id", IDS + 8),
                ("executor_globals_offset", IDS + 16),
            ]
        } else {
            &[
                ("executor_globals", self.executor_globals),
                ("compiler_globals", self.compiler_globals),
            ]
        };
        let mut symbols = vec![
            ("execute_ex", ELF),
            ("module_registry", MODULES),
            ("sapi_module", SAPI),
        ];
        symbols.extend(globals);
        self.put(HASH, &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        self.half(HASH, 24, 1);
        let mut name_at = 1;
        for (index, (name, address)) in (0..).zip(&symbols) {
            let is_last = index as usize == symbols.len() - 1;
            let hash = name.bytes().fold(5381_u32, |hash, byte| {
                hash.wrapping_mul(33).wrapping_add(u32::from(byte))
            });
            self.half(HASH + 28 + index * 4, 0, hash & !1 | u32::from(is_last));
            let symbol = SYMBOLS + (index + 1) * 24;
            self.half(symbol, 0, name_at);
            self.byte(symbol, 6, 1);
            self.word(symbol, 8, address - ELF);
            self.put(NAMES + u64::from(name_at), name.as_bytes());
            name_at += u32::try_from(name.len()).unwrap_or(0) + 1;
        }
    }

    /// What there is from the engine's start on.
    fn engine(&mut self) {
        let Layout { major, minor, .. } = self.layout;
        let core = self.module("Core", &format!("{major}.{minor}.9"));
        self.table(MODULES, "core", core);
        let name = self.c_string("cli");
        self.word(SAPI, 0, name);
        let module = self.module("standard", "");
        let usleep = self.internal_function("usleep", module);
        let cart = self.class("Cart");
        let (functions, classes) = (self.block(), self.block());
        self.table(functions, "usleep", usleep);
        self.table(classes, "cart", cart);
        let (executor, compiler) = (&self.layout.executor_globals, &self.layout.compiler_globals);
        for (globals, function_table, class_table) in [
            (
                self.executor_globals,
                executor.function_table,
                executor.class_table,
            ),
            (
                self.compiler_globals,
                compiler.function_table,
                compiler.class_table,
            ),
        ] {
            self.word(globals, function_table, functions);
            self.word(globals, class_table, classes);
        }
        self.stack(usleep, cart);
        if self.is_thread_safe {
            self.thread();
        }
    }

    /// `tsrm_tls_table` with one thread.
    fn thread(&mut self) {
        let Some(row) = self.layout.tsrm_tls_entry.as_ref() else {
            return;
        };
        let (heads, storage) = (self.block(), self.block());
        self.half(TABLE_AT - 4, 0, 1);
        self.word(TABLE_AT, 0, heads);
        self.word(heads, 0, ENTRY);
        self.put(ENTRY, &[0; 0x100]);
        self.word(ENTRY, row.storage, storage);
        self.half(ENTRY, row.count, 3);
        self.word(ENTRY, row.thread_id, HEAP + 0x90_0000);
        self.word(storage, 0, self.compiler_globals);
        self.word(storage, 8, self.executor_globals);
        self.half(IDS, 0, 2);
        self.half(IDS, 8, 1);
        self.word(IDS, 16, self.executor_globals - ENTRY);
    }

    fn class(&mut self, name: &str) -> u64 {
        let (at, name) = (self.block(), self.string(name));
        self.word(at, self.layout.class_entry.name, name);
        at
    }

    fn internal_function(&mut self, name: &str, module: u64) -> u64 {
        let row = &self.layout.function;
        let (at, name) = (self.block(), self.string(name));
        self.byte(at, row.type_, 1);
        self.word(at, row.function_name, name);
        self.word(at, row.handler, ELF + 0x40);
        self.word(at, row.module, module);
        at
    }

    /// A function whose code is one call; it gives the function and its DO_*.
    fn user_function(
        &mut self,
        name: Option<&str>,
        scope: u64,
        line: u32,
        call: Call<'_>,
    ) -> (u64, u64) {
        let row = &self.layout.function;
        let (at, code, literals) = (self.block(), self.block(), self.block());
        let name = name.map_or(0, |name| self.string(name));
        let file = self.string(FILE);
        self.byte(at, row.type_, 2);
        self.word(at, row.function_name, name);
        self.word(at, row.scope, scope);
        self.word(at, row.opcodes, code);
        self.half(at, row.last, 2);
        self.word(at, row.filename, file);
        self.half(at, row.line_start, line);
        self.word(at, row.literals, literals);
        let (op, types) = (&self.layout.zend_op, &self.layout.op_types);
        let (init, class, function) = call;
        self.byte(code, op.opcode, init);
        let operands = [
            (class, op.op1, op.op1_type),
            (function, op.op2, op.op2_type),
        ];
        for (index, (text, operand, kind)) in (0..).zip(operands) {
            let Some(text) = text else { continue };
            let (literal, string) = (literals + index * 16, self.string(text));
            self.word(literal, 0, string);
            self.byte(literal, 8, 6);
            let base = if self.layout.rules.literals_in_op_array {
                literals
            } else {
                code
            };
            self.half(code, operand, u32::try_from(literal - base).unwrap_or(0));
            self.byte(code, kind, types.is_const);
        }
        let last = code + op.sizeof as u64;
        let is_internal = function == Some("usleep");
        self.byte(
            last,
            op.opcode,
            if is_internal { DO_ICALL } else { DO_UCALL },
        );
        (at, last)
    }

    /// `{main}` calls `checkout`, that `Cart::total`, that a closure, and that `usleep`.
    fn stack(&mut self, usleep: u64, cart: u64) {
        let functions = [
            self.user_function(None, 0, 1, (INIT_FCALL, None, Some("checkout"))),
            self.user_function(
                Some("checkout"),
                0,
                3,
                (INIT_STATIC_METHOD_CALL, Some("Cart"), Some("total")),
            ),
            self.user_function(Some("total"), cart, 7, (INIT_DYNAMIC_CALL, None, None)),
            self.user_function(
                Some("{closure}"),
                cart,
                8,
                (INIT_FCALL, None, Some("usleep")),
            ),
            (usleep, 0),
        ];
        self.put(PAGE, &[0; 0x1000]);
        let row = &self.layout.execute_data;
        let mut prev = 0;
        for (index, (function, opline)) in (0..).zip(functions) {
            let at = PAGE + self.layout.vm_stack_header + index * 0x100;
            self.word(at, row.func, function);
            self.word(at, row.opline, opline);
            self.word(at, row.prev_execute_data, prev);
            let info = &self.layout.call_info;
            let top = if index == 0 { info.top } else { 0 };
            self.half(at, row.this_type_info, top << info.shift);
            prev = at;
        }
        let row = &self.layout.executor_globals;
        self.word(self.executor_globals, row.current_execute_data, prev);
        self.word(self.executor_globals, row.vm_stack, PAGE);
        self.word(self.executor_globals, row.vm_stack_top, prev + 0x100);
        self.word(self.executor_globals, row.vm_stack_end, PAGE + 0x4_0000);
    }

    fn check(&self) -> Result<()> {
        let Layout {
            major,
            minor,
            machine,
            ..
        } = self.layout;
        let what = format!(
            "{major}.{minor} {machine:?}, thread-safe: {}",
            self.is_thread_safe
        );
        let found = engine::of_image(&encode([ELF, 0, 0], &self.memory));
        let found = found.with_context(|| what.clone())?;
        assert_eq!(found.engine.layout, self.layout, "{what}");
        assert_eq!(found.engine.version, format!("{major}.{minor}.9"), "{what}");
        assert_eq!(found.engine.sapi, "cli", "{what}");
        let engine = found.threads.first().unwrap_or(&found.engine);
        assert_eq!(engine.executor_globals, self.executor_globals, "{what}");
        let row = ROWS.iter().position(|row| row == self.layout);
        let words = [
            row.context("no row")? as u64,
            engine.executor_globals,
            self.compiler_globals,
        ];
        let (_, stack) = stack::of_image(&encode(words, &self.memory)).context("no row")?;
        assert_eq!(
            stack.names,
            [
                "usleep",
                "{closure:/srv/a.php:8}",
                "Cart::total",
                "checkout",
                "include /srv/a.php"
            ],
            "{what}"
        );
        assert_eq!(
            stack.files,
            ["<internal:standard>", FILE, FILE, FILE, FILE],
            "{what}"
        );
        assert_eq!(stack.end, End::Root, "{what}");
        // What calls the closure does not name it.
        assert_eq!(stack.proven, [true, false, true, true], "{what}");
        Ok(())
    }
}

#[test]
fn on_an_image_of_each_row_the_engine_is_found_and_its_stack_is_named() -> Result<()> {
    for layout in ROWS {
        Scene::new(layout, false).check()?;
    }
    Ok(())
}

#[test]
fn the_same_holds_for_a_thread_of_each_row() -> Result<()> {
    for layout in ROWS.iter().filter(|row| row.tsrm_tls_entry.is_some()) {
        Scene::new(layout, true).check()?;
    }
    Ok(())
}

/// The image of one version under the name of the next.
#[test]
fn an_engine_that_is_not_laid_out_as_its_version_says_is_refused() {
    for layout in ROWS {
        let next = ROWS
            .iter()
            .skip_while(|row| *row != layout)
            .find(|row| row.machine == layout.machine && row.module_api != layout.module_api);
        let Some(next) = next else { continue };
        let mut scene = Scene::new(layout, false);
        let core = scene.module("Core", &format!("{}.{}.9", next.major, next.minor));
        scene.table(MODULES, "core", core);
        let found = engine::of_image(&encode([ELF, 0, 0], &scene.memory));
        let refusal = found
            .err()
            .map(|refusal| refusal.to_string())
            .unwrap_or_default();
        assert!(
            refusal.contains("API number"),
            "{}.{}: {refusal}",
            layout.major,
            layout.minor
        );
    }
}
