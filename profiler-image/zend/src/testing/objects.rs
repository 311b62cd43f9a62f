//! A heap with objects for tests: classes, closures and the table of objects, laid out by one row.
//!
//! Invariant: after [`ObjectsImage::settle`], the executor's globals have the table.

use super::heap::HeapImage;
use super::{BLOCK, EngineImage, FRAME, NewOp};
use crate::closure::FUNCTION;
use crate::function::FunctionKey;
use crate::heap::bins::ALL;
use crate::layouts::Layout;
use crate::memory::{Memory, MemoryFault};
use crate::unwind::Frame;
use crate::zval::{IS_ARRAY, IS_OBJECT, Zval};

/// What kind of class a test has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestClass {
    /// Of the engine or an extension.
    Internal,
    /// Of PHP code.
    User,
    /// An enum of PHP code.
    Enum,
}

/// Where a fiber is.
#[derive(Debug, Clone, Copy)]
pub struct TestFiber {
    /// The object.
    pub address: u64,
    /// The page of its VM stack.
    pub page: u64,
    /// Its top frame.
    pub top: u64,
}

/// An engine and its heap, with objects.
pub struct ObjectsImage {
    /// The engine's own memory: globals, classes, functions, names.
    pub engine: EngineImage,
    /// The heap.
    pub heap: HeapImage,
    /// The words of the table's places, from the first one on, which is never used.
    pub places: Vec<u64>,
    /// The run of each bin from which elements are taken, and how many were.
    runs: Vec<(u64, u64)>,
    /// The table's address, once it is settled.
    pub table: u64,
}

impl Memory for ObjectsImage {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        let of_heap = self.heap.memory().read(address, bytes);
        of_heap.or_else(|_| self.engine.read(address, bytes))
    }
}

impl ObjectsImage {
    /// An engine whose heap has no objects.
    #[must_use]
    pub fn new(layout: &'static Layout) -> Self {
        Self {
            engine: EngineImage::new(layout),
            heap: HeapImage::new(layout),
            places: vec![0],
            runs: vec![(0, 0); ALL.len()],
            table: 0,
        }
    }

    /// A class; returns its address.
    pub fn class(&mut self, name: &str, kind: TestClass) -> u64 {
        let row = &self.engine.layout.class_entry;
        let class = self.engine.class(name);
        self.engine.room(class, BLOCK);
        let of_user = 1 + u8::from(kind != TestClass::Internal);
        self.engine.put_byte(class, row.type_, of_user);
        if kind == TestClass::Enum {
            self.engine.put_half(class, row.ce_flags, row.enumeration);
        }
        class
    }

    /// Makes a list with this many elements, which are at `data`.
    pub fn put_list(&mut self, at: u64, data: u64, used: u32) {
        let row = &self.engine.layout.zend_array;
        self.heap.put(at, &1_u32.to_le_bytes());
        self.heap.put(at + 4, &u32::from(IS_ARRAY).to_le_bytes());
        self.heap
            .put(at + row.flags as u64, &row.packed.to_le_bytes());
        self.heap.put_word(at + row.ar_data as u64, data);
        for (offset, value) in [
            (row.n_num_used, used),
            (row.n_table_size, used.next_power_of_two()),
        ] {
            self.heap.put(at + offset as u64, &value.to_le_bytes());
        }
    }

    /// Writes a zval.
    pub fn put_zval(&mut self, at: u64, zval: Zval) {
        self.heap.put_word(at, zval.0);
        self.heap.put(at + 8, &u64::from(zval.1).to_le_bytes());
    }

    /// An element of a bin.
    pub fn element(&mut self, bin: usize) -> u64 {
        let (mut run, mut taken) = self.runs[bin];
        if run == 0 || taken == ALL[bin].elements {
            (run, taken) = (self.heap.small(bin), 0);
        }
        self.runs[bin] = (run, taken + 1);
        run + taken * ALL[bin].size
    }

    /// An object in an element of this bin; returns its address.
    pub fn object(&mut self, class: u64, bin: usize) -> u64 {
        let at = self.element(bin);
        self.object_at(at, class);
        at
    }

    /// An object at an address.
    pub fn object_at(&mut self, at: u64, class: u64) {
        let row = &self.engine.layout.zend_object;
        let handle = self.places.len() as u32;
        self.heap.put(at, &1_u32.to_le_bytes());
        self.heap.put(at + 4, &u32::from(IS_OBJECT).to_le_bytes());
        self.heap.put(at + row.handle as u64, &handle.to_le_bytes());
        self.heap.put_word(at + row.ce as u64, class);
        self.places.push(at);
    }

    /// A closure of a function in a file; returns its address.
    pub fn closure(&mut self, class: u64, function: &str, line: u32) -> u64 {
        let row = &self.engine.layout.function;
        let func = self.engine.user(Some(function), &[NewOp::from(1)]).func;
        self.engine.put_half(func, row.line_start, line);
        self.closure_of(class, func)
    }

    /// A closure with this function.
    pub fn closure_of(&mut self, class: u64, func: u64) -> u64 {
        let mut head = [0; crate::function::HEAD];
        let is_read = self.engine.read(func, &mut head);
        assert!(is_read.is_ok(), "{func:x}");
        // 320 bytes, as in most versions.
        let at = self.object(class, 16);
        self.heap.put(at + FUNCTION, &head);
        at
    }

    /// A suspended fiber with these frames, leaf first, and the engine's own below them. Their
    /// addresses and callers follow from their order. `None` in a version without fibers.
    pub fn fiber(&mut self, class: u64, frames: &[Frame]) -> Option<TestFiber> {
        let layout = self.engine.layout;
        let row = layout.fiber.as_ref()?;
        let bin = ALL.iter().position(|bin| bin.size >= row.sizeof as u64)?;
        let page = self.heap.large(4);
        let bottom = page + layout.vm_stack_header;
        let nameless = self.engine.block();
        let key = FunctionKey {
            kind: 1,
            ..FunctionKey::default()
        };
        self.engine.put_function(nameless, &key);
        let own = Frame {
            address: bottom,
            func: nameless,
            ..Frame::default()
        };
        let mut last = own;
        self.put_frame(&own);
        for frame in frames.iter().rev() {
            last = Frame {
                address: last.address + FRAME,
                prev: last.address,
                ..*frame
            };
            self.put_frame(&last);
        }
        let address = self.object(class, bin);
        for (offset, word) in [
            (row.kind, class),
            (row.status, 2),
            (row.caller, 0),
            (row.execute_data, last.address),
            (row.stack_bottom, bottom),
        ] {
            self.heap.put_word(address + offset as u64, word);
        }
        Some(TestFiber {
            address,
            page,
            top: last.address,
        })
    }

    /// Writes a frame into the heap.
    pub fn put_frame(&mut self, frame: &Frame) {
        let (layout, at) = (self.engine.layout, frame.address);
        let row = &layout.execute_data;
        for (offset, word) in [
            (row.opline, frame.opline),
            (row.func, frame.func),
            (row.this, frame.this),
            (row.prev_execute_data, frame.prev),
        ] {
            self.heap.put_word(at + offset as u64, word);
        }
        let info = frame.call_info << layout.call_info.shift | u32::from(frame.this_type);
        let at = at + row.this_type_info as u64;
        self.heap.put(at, &info.to_le_bytes());
    }

    /// Writes the table, and makes the executor active.
    pub fn settle(&mut self) {
        let bytes = self.places.len() * 8;
        self.table = self.heap.large(bytes.div_ceil(4096));
        for (at, word) in (self.table..).step_by(8).zip(&self.places) {
            self.heap.put_word(at, *word);
        }
        self.put_store(self.table, self.places.len() as u32);
        self.heap.settle();
    }

    /// Sets the globals' table, and how many of its places were used.
    pub fn put_store(&mut self, table: u64, top: u32) {
        let (globals, row) = (
            self.engine.executor_globals,
            &self.engine.layout.executor_globals,
        );
        self.engine.put_byte(globals, row.active, 1);
        self.engine.put_word(globals, row.object_buckets, table);
        self.engine.put_half(globals, row.objects_top, top);
        self.engine
            .put_half(globals, row.objects_size, top.next_power_of_two());
    }
}
