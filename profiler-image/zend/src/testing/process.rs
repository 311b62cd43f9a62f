//! A whole small process for tests: an ELF image with its dynamic symbols, and an engine that has
//! started, of one row, thread-safe or not.
//!
//! Invariant: its variables are at the same places of the image wherever that is mapped; the rest
//! is on a heap.

use super::EngineImage;
use crate::engine::Module;
use crate::layouts::Layout;

// Places of the image.
const HASH: u64 = 0x200;
const SYMBOLS: u64 = 0x300;
const NAMES: u64 = 0x500;
const DYNAMIC: u64 = 0x700;
const NOTES: u64 = 0x900;
/// The writable segment.
const DATA: u64 = 0x10_0000;
const DATA_SIZE: u64 = 0x4000;
/// `module_registry`.
pub const MODULES: u64 = DATA + 0x3000;
const SAPI: u64 = DATA + 0x3100;
/// The ids of the executor's and the compiler's globals, and the offset of the former, each in a
/// word.
pub const IDS: u64 = DATA + 0x3200;
/// `tsrm_tls_table`, with its size before it.
pub const TABLE_AT: u64 = DATA + 0x3308;
/// The entry of the only thread.
pub const ENTRY: u64 = 0x7e00_0000_0000;

/// An image of a process.
pub struct ProcessImage {
    /// All of its memory.
    pub image: EngineImage,
    /// Where its executable is mapped.
    pub base: u64,
    /// The address of an internal function of its table.
    pub usleep: u64,
    /// The address of a class of its table.
    pub cart: u64,
    build_id: &'static [u8],
    is_thread_safe: bool,
}

impl ProcessImage {
    /// A process whose executable is mapped at `base`; without a build id, that is empty.
    #[must_use]
    pub fn new(
        layout: &'static Layout,
        is_thread_safe: bool,
        base: u64,
        build_id: &'static [u8],
    ) -> Self {
        let mut image = EngineImage::new(layout);
        let globals = if is_thread_safe {
            ENTRY + 0x100
        } else {
            base + DATA
        };
        (image.executor_globals, image.compiler_globals) = (globals, globals + 0x1800);
        image.room(base + DATA, DATA_SIZE);
        image.room(globals, 0x3000);
        let mut process = Self {
            image,
            base,
            usleep: 0,
            cart: 0,
            build_id,
            is_thread_safe,
        };
        process.elf();
        process.engine();
        process
    }

    /// The layout row of all structures.
    #[must_use]
    pub fn layout(&self) -> &'static Layout {
        self.image.layout
    }

    /// Its executable.
    #[must_use]
    pub fn module_of_executable(&self) -> Module {
        Module {
            base: self.base,
            path: "/usr/bin/php".to_owned(),
        }
    }

    /// Puts a `zend_module_entry`.
    pub fn module(&mut self, name: &str, version: &str) -> u64 {
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
        let (base, size) = (self.base, self.build_id.len() as u64);
        let segments = [
            (1, 4, 0, 0x1000),
            (1, 6, DATA, DATA_SIZE),
            (2, 6, DYNAMIC, 0x100),
            (4, 4, NOTES, if size == 0 { 0 } else { 16 + size }),
        ];
        self.image.put_elf(base, &segments);
        // NT_GNU_BUILD_ID.
        let head = [4, size as u32, 3, u32::from_le_bytes(*b"GNU\0")];
        for (index, word) in head.into_iter().enumerate() {
            self.image.put_half(base + NOTES, index * 4, word);
        }
        self.image.put(base + NOTES + 16, self.build_id);
        let entries = [
            (5, base + NAMES),
            (6, base + SYMBOLS),
            (0x6fff_fef5, base + HASH),
            (0, 0),
        ];
        for (index, (tag, value)) in (0..).zip(entries) {
            self.image.put_word(base + DYNAMIC, index * 16, tag);
            self.image.put_word(base + DYNAMIC, index * 16 + 8, value);
        }
        self.symbols();
    }

    /// One bucket with all symbols in its chain.
    fn symbols(&mut self) {
        let base = self.base;
        let globals: &[(&str, u64)] = if self.is_thread_safe {
            &[
                ("executor_globals_id", base + IDS),
                ("compiler_globals_id", base + IDS + 8),
                ("executor_globals_offset", base + IDS + 16),
            ]
        } else {
            &[
                ("executor_globals", self.image.executor_globals),
                ("compiler_globals", self.image.compiler_globals),
            ]
        };
        let mut symbols = vec![
            ("execute_ex", base),
            ("module_registry", base + MODULES),
            ("sapi_module", base + SAPI),
        ];
        symbols.extend(globals);
        let image = &mut self.image;
        image.put(base + HASH, &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        image.put_half(base + HASH, 24, 1);
        let mut name_at = 1;
        for (index, (name, address)) in (0..).zip(&symbols) {
            let is_last = index as usize == symbols.len() - 1;
            let hash = name.bytes().fold(5381_u32, |hash, byte| {
                hash.wrapping_mul(33).wrapping_add(u32::from(byte))
            });
            image.put_half(
                base + HASH + 28 + index * 4,
                0,
                hash & !1 | u32::from(is_last),
            );
            let symbol = base + SYMBOLS + (index + 1) * 24;
            image.put_half(symbol, 0, name_at);
            image.put_byte(symbol, 6, 1);
            image.put_word(symbol, 8, address - base);
            image.put(base + NAMES + u64::from(name_at), name.as_bytes());
            name_at += u32::try_from(name.len()).unwrap_or(0) + 1;
        }
    }

    /// The structures that exist from the engine's start on.
    fn engine(&mut self) {
        let Layout { major, minor, .. } = self.layout();
        let core = self.module("Core", &format!("{major}.{minor}.9"));
        let module = self.module("standard", "");
        let (base, image) = (self.base, &mut self.image);
        image.put_table(base + MODULES, &[("core", core)]);
        let name = image.c_string("cli");
        image.put_word(base + SAPI, 0, name);
        let (usleep, cart) = (image.internal("usleep", module), image.class("Cart"));
        (self.usleep, self.cart) = (usleep, cart);
        let (functions, classes) = (image.block(), image.block());
        image.put_table(functions, &[("usleep", usleep)]);
        image.put_table(classes, &[("cart", cart)]);
        let row = &image.layout.executor_globals;
        image.put_word(image.executor_globals, row.function_table, functions);
        image.put_word(image.executor_globals, row.class_table, classes);
        let row = &image.layout.compiler_globals;
        image.put_word(image.compiler_globals, row.function_table, functions);
        image.put_word(image.compiler_globals, row.class_table, classes);
        if self.is_thread_safe {
            self.thread();
        }
    }

    /// `tsrm_tls_table` with one thread.
    fn thread(&mut self) {
        let (base, image) = (self.base, &mut self.image);
        let heads = image.block();
        image.put_half(base + TABLE_AT - 4, 0, 1);
        image.put_word(base + TABLE_AT, 0, heads);
        image.put_word(heads, 0, ENTRY);
        let resources = [image.compiler_globals, image.executor_globals, 0];
        image.put_thread(ENTRY, ENTRY + 0x90_0000, 0, &resources);
        image.put_half(base + IDS, 0, 2);
        image.put_half(base + IDS, 8, 1);
        image.put_word(base + IDS, 16, image.executor_globals - ENTRY);
    }
}
