//! Tests every row, also of versions and machines that are not available here, with an image that is laid out by it.
//!
//! The image is a whole small process: an ELF image with its dynamic symbols, the engine's globals (of a thread, in a
//! thread-safe build), tables, functions and a stack. What it does not prove: that a row is right; the headers from which it is
//! compiled and the recorded seeds prove that.

use anyhow::{Context, Result};
use phpprof_fuzz::image::{WORDS, encode};
use phpprof_fuzz::{engine, stack};
use phpprof_zend::layouts::{Layout, ROWS};
use phpprof_zend::op::{
    DO_ICALL, DO_UCALL, INIT_DYNAMIC_CALL, INIT_FCALL, INIT_STATIC_METHOD_CALL,
};
use phpprof_zend::testing::{EngineImage, FILE, NewOp};
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
/// The address of `tsrm_tls_table`, with its size before it.
const TABLE_AT: u64 = DATA + 0x3308;
const ENTRY: u64 = 0x7e00_0000_0000;

/// The image of one row's engine.
struct Scene {
    image: EngineImage,
    is_thread_safe: bool,
}

impl Scene {
    fn new(layout: &'static Layout, is_thread_safe: bool) -> Self {
        let mut image = EngineImage::new(layout);
        let globals = if is_thread_safe { ENTRY + 0x100 } else { DATA };
        (image.executor_globals, image.compiler_globals) = (globals, globals + 0x1800);
        image.room(DATA, DATA_SIZE);
        image.room(globals, 0x3000);
        let mut scene = Self {
            image,
            is_thread_safe,
        };
        scene.elf();
        scene.engine();
        scene
    }

    fn layout(&self) -> &'static Layout {
        self.image.layout
    }

    fn module(&mut self, name: &str, version: &str) -> u64 {
        let (row, image) = (&self.layout().module_entry, &mut self.image);
        let (at, name, version) = (image.block(), image.c_string(name), image.c_string(version));
        image.put_half(at, row.zend_api, image.layout.module_api);
        image.put_byte(at, row.zts, u8::from(self.is_thread_safe));
        image.put_word(at, row.name, name);
        image.put_word(at, row.version, version);
        at
    }

    /// Headers, dynamic section and symbols of the image.
    fn elf(&mut self) {
        let segments = [
            (1, 4, 0, 0x1000),
            (1, 6, DATA - ELF, DATA_SIZE),
            (2, 6, DYNAMIC - ELF, 0x100),
        ];
        self.image.put_elf(ELF, &segments);
        let entries = [(5, NAMES), (6, SYMBOLS), (0x6fff_fef5, HASH), (0, 0)];
        for (index, (tag, value)) in (0..).zip(entries) {
            self.image.put_word(DYNAMIC, index * 16, tag);
            self.image.put_word(DYNAMIC, index * 16 + 8, value);
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
                ("executor_globals", self.image.executor_globals),
                ("compiler_globals", self.image.compiler_globals),
            ]
        };
        let mut symbols = vec![
            ("execute_ex", ELF),
            ("module_registry", MODULES),
            ("sapi_module", SAPI),
        ];
        symbols.extend(globals);
        let image = &mut self.image;
        image.put(HASH, &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        image.put_half(HASH, 24, 1);
        let mut name_at = 1;
        for (index, (name, address)) in (0..).zip(&symbols) {
            let is_last = index as usize == symbols.len() - 1;
            let hash = name.bytes().fold(5381_u32, |hash, byte| {
                hash.wrapping_mul(33).wrapping_add(u32::from(byte))
            });
            image.put_half(HASH + 28 + index * 4, 0, hash & !1 | u32::from(is_last));
            let symbol = SYMBOLS + (index + 1) * 24;
            image.put_half(symbol, 0, name_at);
            image.put_byte(symbol, 6, 1);
            image.put_word(symbol, 8, address - ELF);
            image.put(NAMES + u64::from(name_at), name.as_bytes());
            name_at += u32::try_from(name.len()).unwrap_or(0) + 1;
        }
    }

    /// The structures that exist from the engine's start on.
    fn engine(&mut self) {
        let Layout { major, minor, .. } = self.layout();
        let core = self.module("Core", &format!("{major}.{minor}.9"));
        let module = self.module("standard", "");
        let image = &mut self.image;
        image.put_table(MODULES, &[("core", core)]);
        let name = image.c_string("cli");
        image.put_word(SAPI, 0, name);
        let (usleep, cart) = (image.internal("usleep", module), image.class("Cart"));
        let (functions, classes) = (image.block(), image.block());
        image.put_table(functions, &[("usleep", usleep)]);
        image.put_table(classes, &[("cart", cart)]);
        let row = &image.layout.executor_globals;
        image.put_word(image.executor_globals, row.function_table, functions);
        image.put_word(image.executor_globals, row.class_table, classes);
        let row = &image.layout.compiler_globals;
        image.put_word(image.compiler_globals, row.function_table, functions);
        image.put_word(image.compiler_globals, row.class_table, classes);
        self.stack(usleep, cart);
        if self.is_thread_safe {
            self.thread();
        }
    }

    /// `tsrm_tls_table` with one thread.
    fn thread(&mut self) {
        let image = &mut self.image;
        let heads = image.block();
        image.put_half(TABLE_AT - 4, 0, 1);
        image.put_word(TABLE_AT, 0, heads);
        image.put_word(heads, 0, ENTRY);
        let resources = [image.compiler_globals, image.executor_globals, 0];
        image.put_thread(ENTRY, ENTRY + 0x90_0000, 0, &resources);
        image.put_half(IDS, 0, 2);
        image.put_half(IDS, 8, 1);
        image.put_word(IDS, 16, image.executor_globals - ENTRY);
    }

    /// A call by a function whose code is one INIT and one DO: its name, class and line, and the two ops.
    fn call(&mut self, name: Option<&str>, scope: u64, line: u32, init: NewOp<'_>, call: u8) {
        let (row, image) = (&self.layout().function, &mut self.image);
        let function = image.user(name, &[init, call.into()]);
        image.put_word(function.func, row.scope, scope);
        image.put_half(function.func, row.line_start, line);
        let info = match image.top {
            0 => image.layout.call_info.top,
            _ => 0,
        };
        image.call(function.func, function.op(1), info);
    }

    /// `{main}` calls `checkout`, which calls `Cart::total`, which calls a closure, which calls `usleep`.
    fn stack(&mut self, usleep: u64, cart: u64) {
        let named = |function: &'static str| NewOp {
            opcode: INIT_FCALL,
            op2: Some(function),
            ..NewOp::default()
        };
        let total = NewOp {
            opcode: INIT_STATIC_METHOD_CALL,
            op1: Some("Cart"),
            ..named("total")
        };
        self.call(None, 0, 1, named("checkout"), DO_UCALL);
        self.call(Some("checkout"), 0, 3, total, DO_UCALL);
        self.call(Some("total"), cart, 7, INIT_DYNAMIC_CALL.into(), DO_UCALL);
        self.call(Some("{closure}"), cart, 8, named("usleep"), DO_ICALL);
        self.image.call(usleep, 0, 0);
    }

    /// The fuzzer's bytes.
    fn encoded(&self, words: [u64; WORDS]) -> Vec<u8> {
        encode(words, &self.image.bytes().collect())
    }

    fn check(&self) -> Result<()> {
        let Layout {
            major,
            minor,
            machine,
            ..
        } = self.layout();
        let what = format!(
            "{major}.{minor} {machine:?}, thread-safe: {}",
            self.is_thread_safe
        );
        let found = engine::of_image(&self.encoded([ELF, 0, 0]));
        let found = found.with_context(|| what.clone())?;
        assert_eq!(found.engine.layout, self.layout(), "{what}");
        assert_eq!(found.engine.version, format!("{major}.{minor}.9"), "{what}");
        assert_eq!(found.engine.sapi, "cli", "{what}");
        let engine = found.threads.first().unwrap_or(&found.engine);
        assert_eq!(
            engine.executor_globals, self.image.executor_globals,
            "{what}"
        );
        let row = ROWS.iter().position(|row| row == self.layout());
        let words = [
            row.context("no row")? as u64,
            engine.executor_globals,
            self.image.compiler_globals,
        ];
        let (_, stack) = stack::of_image(&self.encoded(words)).context("no row")?;
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
        // The closure's caller does not name it.
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

/// The image of one version with the number of the next.
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
        scene.image.put_table(MODULES, &[("core", core)]);
        let found = engine::of_image(&scene.encoded([ELF, 0, 0]));
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
