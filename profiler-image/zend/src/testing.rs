//! A small engine for tests: strings, functions, classes, frames, tables and globals, laid out by
//! one row.
//!
//! Structures that the crate parses ([`Frame`], an `Op`, a `Key`) are written back here. So an
//! image proves that a reader follows its row in every version; it cannot prove that a row is
//! right. Only tests have it: the feature `testing` is for their dependencies. Invariant: only what
//! was put is mapped, and in a test's own memory no byte moves.

mod code;
mod counted;
pub mod heap;
pub mod objects;
pub mod process;

use crate::function::{FunctionKey, HEAD};
use crate::hash::Index;
use crate::layouts::{Layout, Machine};
use crate::memory::{Memory, MemoryFault, Recorded};
use crate::opcache::{APP_SHARED_GLOBALS, HASH, HASH_ENTRIES, NUM_ENTRIES};
use crate::string_hash::hash_of;
use crate::unwind::{Copy, Frame};

pub use crate::zval::{IS_NULL, IS_STRING, Zval};
pub use code::{FILE, NewOp, UserFunction};
pub use counted::Counted;

/// Size of a [`EngineImage::block`].
pub const BLOCK: u64 = 0x200;
/// The distance between frames of [`EngineImage::call`].
const FRAME: u64 = 0x100;
/// An address that looks like one of the heap.
const BASE: u64 = 0x7f00_0000_0000;
const GLOBALS_SIZE: u64 = 0x1800;
const PAGE_SIZE: u64 = 0x4000;
const OWN_SIZE: usize = 0x2_0000;

/// The memory of one engine: its globals, a page of its VM stack, and anything else that a test
/// puts there.
pub struct EngineImage {
    /// The layout row of all structures.
    pub layout: &'static Layout,
    /// Addresses of `EG` and `CG`.
    pub executor_globals: u64,
    /// Address of `CG`.
    pub compiler_globals: u64,
    /// The VM stack's page.
    pub page: u64,
    /// `EG(current_execute_data)`, and the address of the next call's frame.
    pub top: u64,
    next: u64,
    /// The address of the next block, and the end of the blocks.
    free: u64,
    end: u64,
    memory: Recorded,
}

impl Memory for EngineImage {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.memory.read(address, bytes)
    }
}

impl EngineImage {
    /// An engine at addresses that no process uses.
    #[must_use]
    pub fn new(layout: &'static Layout) -> Self {
        Self::over(layout, Recorded::default(), BASE, u64::MAX)
    }

    /// An engine in the memory of the test itself, where the kernel can read it.
    #[must_use]
    pub fn in_own_memory(layout: &'static Layout) -> Self {
        let bytes = vec![0; OWN_SIZE];
        let start = bytes.as_ptr().addr() as u64;
        let mut memory = Recorded::default();
        memory.put(start, bytes);
        let end = start + OWN_SIZE as u64;
        Self::over(layout, memory, start.next_multiple_of(16), end)
    }

    fn over(layout: &'static Layout, memory: Recorded, base: u64, end: u64) -> Self {
        let page = base + 2 * GLOBALS_SIZE;
        let mut image = Self {
            layout,
            executor_globals: base,
            compiler_globals: base + GLOBALS_SIZE,
            page,
            top: 0,
            next: page + layout.vm_stack_header,
            free: page + PAGE_SIZE,
            end,
            memory,
        };
        image.room(base, 2 * GLOBALS_SIZE + PAGE_SIZE);
        image
    }

    /// All mapped bytes, by their addresses; of bytes at one address the last one counts.
    pub fn bytes(&self) -> impl Iterator<Item = (u64, u8)> {
        self.memory.bytes()
    }

    /// The sampler's copy of a stack.
    #[must_use]
    pub fn copy(&self, base: u64, size: usize) -> Copy {
        let mut copy = Copy::default();
        (copy.base, copy.bytes) = (base, vec![0; size]);
        assert!(self.read(base, &mut copy.bytes).is_ok(), "{base:x}");
        copy
    }

    /// Writes bytes, and maps them if nothing was put there.
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.put(address, bytes);
    }

    /// Writes 64 bits.
    pub fn put_word(&mut self, address: u64, offset: usize, value: u64) {
        self.put(address + offset as u64, &value.to_le_bytes());
    }

    /// Writes 32 bits.
    pub fn put_half(&mut self, address: u64, offset: usize, value: u32) {
        self.put(address + offset as u64, &value.to_le_bytes());
    }

    /// Writes 8 bits.
    pub fn put_byte(&mut self, address: u64, offset: usize, value: u8) {
        self.put(address + offset as u64, &[value]);
    }

    /// A zval: its value and its type.
    pub fn put_zval(&mut self, address: u64, value: u64, kind: u8) {
        self.put_word(address, 0, value);
        self.put_word(address, 8, kind.into());
    }

    /// Maps zeros where nothing was put.
    pub fn room(&mut self, address: u64, size: u64) {
        self.memory.room(address, size as usize);
    }

    /// Maps an unused block.
    pub fn block(&mut self) -> u64 {
        let at = self.free;
        self.free += BLOCK;
        assert!(self.free <= self.end, "the test's own memory is full");
        self.room(at, BLOCK);
        at
    }

    /// A `zend_string` in a block of its own.
    pub fn string(&mut self, text: impl AsRef<[u8]>) -> u64 {
        let at = self.block();
        self.put_string(at, text);
        at
    }

    /// A `zend_string` with its hash, like an interned string.
    pub fn put_string(&mut self, at: u64, text: impl AsRef<[u8]>) {
        let (row, text) = (&self.layout.zend_string, text.as_ref());
        assert!(row.val + text.len() <= BLOCK as usize, "{text:x?}");
        self.room(at, BLOCK / 2);
        self.put_half(at, 4, IS_STRING.into());
        self.put_word(at, row.h, hash_of(text));
        self.put_word(at, row.len, text.len() as u64);
        self.put(at + row.val as u64, text);
    }

    /// The begin of opcache's memory, whose table has this many entries. The caller puts the
    /// entries.
    pub fn put_opcache(&mut self, start: u64, entries: u64, count: u32) {
        let globals = start + BLOCK / 2;
        self.room(start, BLOCK);
        self.put_word(start, 0, globals);
        self.put_word(start + APP_SHARED_GLOBALS, 0, globals);
        self.put_word(globals + HASH, HASH_ENTRIES, entries);
        self.put_half(globals + HASH, NUM_ENTRIES, count);
    }

    /// A C string.
    pub fn c_string(&mut self, text: &str) -> u64 {
        let at = self.block();
        self.put(at, text.as_bytes());
        at
    }

    /// A `zend_array` of up to eight pointers with string keys, as the engine's own tables are.
    pub fn put_table(&mut self, at: u64, entries: &[(&str, u64)]) {
        // IS_PTR, from 7.3 on.
        let kind = self.layout.zend_array.is_indirect + 1;
        let entries: Vec<_> = entries
            .iter()
            .map(|&(key, value)| (Index::Text(key.as_bytes()), Zval(value, kind)))
            .collect();
        self.put_array(at, &entries);
    }

    /// A `zend_array` of up to eight entries, filled as `zend_hash_add` and `zend_hash_index_add`
    /// do; each has the value and type of a zval.
    pub fn put_array(&mut self, at: u64, entries: &[(Index<'_>, Zval)]) {
        let row = &self.layout.zend_array;
        let count = entries.len() as u32;
        let size = count.next_power_of_two();
        assert!(size <= 8, "the table does not fit into its block");
        let data = self.block() + BLOCK / 2;
        self.put(data - u64::from(size) * 4, &[0xff; 32][..size as usize * 4]);
        self.room(at, row.sizeof as u64);
        let mask = size.wrapping_neg();
        self.put_half(at, row.n_table_mask, mask);
        self.put_word(at, row.ar_data, data);
        self.put_half(at, row.n_num_used, count);
        self.put_half(at, row.n_num_of_elements, count);
        self.put_half(at, row.n_table_size, size);
        for (index, &(key, Zval(value, kind))) in (0..).zip(entries) {
            let (hash, name) = match key {
                Index::Number(number) => (number, 0),
                Index::Text(text) => (hash_of(text), self.string(text)),
            };
            let slot = data - u64::from((hash as u32 | mask).wrapping_neg()) * 4;
            let bucket = data + u64::from(index) * row.bucket_sizeof as u64;
            let next = self.half(slot).unwrap_or(u32::MAX);
            self.put_zval(bucket, value, kind);
            self.put_half(bucket, row.bucket_next, next);
            self.put_word(bucket, row.bucket_h, hash);
            self.put_word(bucket, row.bucket_key, name);
            self.put_half(slot, 0, index);
        }
    }

    /// A `zend_array` that is a list of these zvals, each a value and a type.
    pub fn put_list(&mut self, at: u64, zvals: &[Zval]) {
        let row = &self.layout.zend_array;
        let data = self.block();
        self.room(at, row.sizeof as u64);
        self.room(data, BLOCK);
        self.put_half(at, row.flags, row.packed);
        self.put_word(at, row.ar_data, data);
        self.put_half(at, row.n_num_used, zvals.len() as u32);
        self.put_half(at, row.n_table_size, 8);
        let size = if self.layout.rules.packed_arrays_of_zvals {
            16
        } else {
            row.bucket_sizeof as u64
        };
        for (index, &Zval(value, kind)) in (0..).zip(zvals) {
            self.put_zval(data + index * size, value, kind);
        }
    }

    /// A `zend_class_entry` with a name.
    pub fn class(&mut self, name: &str) -> u64 {
        let (at, name) = (self.block(), self.string(name));
        self.put_word(at, self.layout.class_entry.name, name);
        at
    }

    /// Writes the words that [`Frame::parse`] reads.
    pub fn put_frame(&mut self, frame: &Frame) {
        let (at, row) = (frame.address, &self.layout.execute_data);
        self.room(at, FRAME);
        self.put(at, &vec![0; row.sizeof]);
        for (offset, word) in [
            (row.opline, frame.opline),
            (row.func, frame.func),
            (row.this, frame.this),
            (row.prev_execute_data, frame.prev),
            (row.run_time_cache, frame.run_time_cache),
        ] {
            self.put_word(at, offset, word);
        }
        let info = frame.call_info << self.layout.call_info.shift | u32::from(frame.this_type);
        self.put_half(at, row.this_type_info, info);
    }

    /// Puts the frame of a call onto the page. Like the engine, it marks those that run a script.
    pub fn call(&mut self, func: u64, opline: u64, call_info: u32) -> u64 {
        let mut head = [0; HEAD];
        let key = self
            .read(func, &mut head)
            .ok()
            .and_then(|()| FunctionKey::parse(self.layout, &head));
        let is_script = key.is_some_and(|key| key.is_top_level());
        let code = u32::from(is_script) * self.layout.call_info.code;
        let frame = Frame {
            address: self.next,
            func,
            opline,
            prev: self.top,
            call_info: call_info | code,
            ..Frame::default()
        };
        self.put_frame(&frame);
        self.next += FRAME;
        self.put_top(frame.address);
        frame.address
    }

    /// Sets the running frame.
    pub fn put_top(&mut self, frame: u64) {
        let (globals, row) = (self.executor_globals, &self.layout.executor_globals);
        self.top = frame;
        self.put_word(globals, row.current_execute_data, frame);
        self.put_word(globals, row.vm_stack, self.page);
        self.put_word(globals, row.vm_stack_top, self.next);
        self.put_word(globals, row.vm_stack_end, self.page + PAGE_SIZE);
    }

    /// The headers of an ELF image; a segment is its type, flags, address in the image and size.
    pub fn put_elf(&mut self, base: u64, segments: &[(u32, u32, u64, u64)]) {
        let machine = match self.layout.machine {
            Machine::X86_64 => 62,
            Machine::Aarch64 => 183,
        };
        self.room(base, 0x1000);
        self.put(base, b"\x7fELF\x02\x01");
        self.put_byte(base, 18, machine);
        self.put_word(base, 32, 64);
        self.put(base + 54, &[56, 0, segments.len() as u8, 0]);
        for (index, &(kind, flags, address, size)) in (0..).zip(segments) {
            let at = base + 64 + index * 56;
            self.put_half(at, 0, kind);
            self.put_half(at, 4, flags);
            self.put_word(at, 16, address);
            self.put_word(at, 40, size);
        }
    }

    /// A `tsrm_tls_entry` with its resources, if the version has one.
    pub fn put_thread(&mut self, entry: u64, thread_id: u64, next: u64, resources: &[u64]) {
        let Some(row) = &self.layout.tsrm_tls_entry else {
            return;
        };
        let storage = self.block();
        self.room(entry, row.sizeof as u64);
        self.put_word(entry, row.storage, storage);
        self.put_half(entry, row.count, resources.len() as u32);
        self.put_word(entry, row.thread_id, thread_id);
        self.put_word(entry, row.next, next);
        for (index, &globals) in resources.iter().enumerate() {
            self.put_word(storage, index * 8, globals);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;

    #[test]
    #[should_panic(expected = "own memory is full")]
    fn nothing_is_put_beside_the_tests_own_memory() {
        let mut image = EngineImage::in_own_memory(&ROWS[0]);
        while image.block() != 0 {}
    }
}
