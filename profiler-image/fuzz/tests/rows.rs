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
use phpprof_zend::testing::process::{MODULES, ProcessImage};
use phpprof_zend::testing::{FILE, NewOp};
use phpprof_zend::unwind::UnwindEnd;

const ELF: u64 = 0x5555_0000_0000;

/// The image of one row's engine, with a stack.
struct Scene {
    process: ProcessImage,
    is_thread_safe: bool,
}

impl Scene {
    fn new(layout: &'static Layout, is_thread_safe: bool) -> Self {
        let process = ProcessImage::new(layout, is_thread_safe, ELF, b"");
        let (usleep, cart) = (process.usleep, process.cart);
        let mut scene = Self {
            process,
            is_thread_safe,
        };
        scene.stack(usleep, cart);
        scene
    }

    fn layout(&self) -> &'static Layout {
        self.process.layout()
    }

    /// A call by a function whose code is one INIT and one DO: its name, class and line, and the two ops.
    fn call(&mut self, name: Option<&str>, scope: u64, line: u32, init: NewOp<'_>, call: u8) {
        let (row, image) = (&self.layout().function, &mut self.process.image);
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
        self.process.image.call(usleep, 0, 0);
    }

    /// The fuzzer's bytes.
    fn encoded(&self, words: [u64; WORDS]) -> Vec<u8> {
        encode(words, &self.process.image.bytes().collect())
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
            engine.executor_globals, self.process.image.executor_globals,
            "{what}"
        );
        let row = ROWS.iter().position(|row| row == self.layout());
        let words = [
            row.context("no row")? as u64,
            engine.executor_globals,
            self.process.image.compiler_globals,
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
        assert_eq!(stack.end, UnwindEnd::Root, "{what}");
        // The closure's caller does not name it.
        assert_eq!(stack.proven, [true, false, true, true], "{what}");
        Ok(())
    }
}

#[test]
fn each_rows_engine_and_stack_are_found() -> Result<()> {
    for layout in ROWS {
        Scene::new(layout, false).check()?;
    }
    Ok(())
}

#[test]
fn each_rows_thread_is_found() -> Result<()> {
    for layout in ROWS.iter().filter(|row| row.tsrm_tls_entry.is_some()) {
        Scene::new(layout, true).check()?;
    }
    Ok(())
}

/// The image of one version with the number of the next.
#[test]
fn wrongly_laid_out_engine_is_refused() {
    for layout in ROWS {
        let next = ROWS
            .iter()
            .skip_while(|row| *row != layout)
            .find(|row| row.machine == layout.machine && row.module_api != layout.module_api);
        let Some(next) = next else { continue };
        let mut scene = Scene::new(layout, false);
        let core = scene
            .process
            .module("Core", &format!("{}.{}.9", next.major, next.minor));
        scene
            .process
            .image
            .put_table(ELF + MODULES, &[("core", core)]);
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
