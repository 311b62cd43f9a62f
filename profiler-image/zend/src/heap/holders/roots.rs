//! Where paths begin: what PHP keeps of itself, whatever the program refers to.
//!
//! Invariant: each list and each chain that is followed is bounded.

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD};
use crate::hash::{self, EntryKey, values};
use crate::memory::{Memory, half_at, word_at};
use crate::zval::{IS_ARRAY, IS_OBJECT, IS_REFERENCE, TYPE, ZVAL, Zval};

use super::paths::HeldPath;
use super::steps::HoldingStep;
use super::{HoldersWalk, NodeKind};

/// How many classes, and how many functions in all, are asked for static values.
const MAX_CLASSES: usize = 32_768;
const MAX_FUNCTIONS: usize = 131_072;
/// How many static properties of a class are read.
const MAX_STATICS: u32 = 4096;
/// How many calls of a stack are read, and how many variables of a call.
pub(super) const MAX_CALLS: usize = 4096;
const MAX_VARIABLES: u32 = 4096;
/// The type in the second half of a `zend_refcounted_h`.
const KIND: u32 = 0x0f;

impl<M: Memory + ?Sized> HoldersWalk<'_, M> {
    /// Goes to what static values, global variables and calls hold, in this order: of two equally
    /// long paths, the one that lasts longer is shown.
    pub(super) fn roots(&mut self) {
        let row = &self.place.layout.executor_globals;
        let (classes, functions) = (row.class_table, row.function_table);
        let (globals, call) = (row.symbol_table, row.current_execute_data);
        let at = |offset: usize| self.place.executor_globals.checked_add(offset as u64);
        let (classes, functions) = (at(classes), at(functions));
        let (globals, call) = (at(globals), at(call));
        let word = |at: Option<u64>| at.and_then(|at| self.place.memory.word(at).ok());
        let (classes, functions, call) = (word(classes), word(functions), word(call));
        for class in classes.map_or_else(Vec::new, |it| self.values(it, MAX_CLASSES)) {
            if self.is_late() {
                return;
            }
            self.static_properties(class);
            let methods = class.checked_add(self.place.layout.class_entry.function_table as u64);
            self.functions(methods);
        }
        self.functions(functions);
        if let Some(globals) = globals {
            let path = self
                .found
                .paths
                .child(HeldPath::default(), HoldingStep::Global);
            self.entries_of(globals, |_| Some(path));
        }
        self.calls(call.unwrap_or(0), HeldPath::default(), MAX_CALLS);
    }

    fn values(&self, table: u64, most: usize) -> Vec<u64> {
        values(self.place.memory, self.place.layout, table, most).unwrap_or_default()
    }

    fn static_properties(&mut self, class: u64) {
        let row = &self.place.layout.class_entry;
        let (memory, at) = (self.place.memory, row.default_static_members_count as u64);
        let count = class.checked_add(at).and_then(|at| memory.half(at).ok());
        let Some(count) = count.filter(|count| (1..=MAX_STATICS).contains(count)) else {
            return;
        };
        // `static_members_table` follows the default values.
        let table = class.checked_add(row.default_static_members_table as u64 + 8);
        let size = count as usize * ZVAL;
        let Some(table) = self.mapped(table, |walk, at| walk.is_block(at, size)) else {
            return;
        };
        let mut bytes = vec![0; size];
        if memory.read(table, &mut bytes).is_err() {
            return;
        }
        for (number, zval) in (0..count).zip(bytes.chunks_exact(ZVAL)) {
            // One that was inherited is in its own class.
            let zval = Zval(word_at(zval, 0), zval[TYPE]);
            if matches!(zval.1, IS_OBJECT | IS_ARRAY | IS_REFERENCE) {
                let step = HoldingStep::StaticProperty { class, number };
                let path = self.found.paths.child(HeldPath::default(), step);
                self.value(zval, path);
            }
        }
    }

    /// The static variables of a table's functions.
    fn functions(&mut self, table: Option<u64>) {
        let Some(table) = table else { return };
        for function in self.values(table, MAX_FUNCTIONS) {
            if self.functions.len() >= MAX_FUNCTIONS {
                self.is_cut = true;
                return;
            }
            let mut head = [0; HEAD];
            if !self.functions.insert(function)
                || self.place.memory.read(function, &mut head).is_err()
            {
                continue;
            }
            let key = FunctionKey::parse(self.place.layout, &head);
            if let Some(table) = key
                .filter(FunctionKey::is_user)
                .and_then(|_| self.static_variables(function))
            {
                let step = HoldingStep::StaticVariable { function };
                let path = self.found.paths.child(HeldPath::default(), step);
                if self.seen.insert(table) {
                    self.entries_of(table, |_| Some(path));
                }
            }
        }
    }

    /// The array of a function's static variables, or of a closure's bound ones.
    pub(super) fn static_variables(&self, function: u64) -> Option<u64> {
        let row = &self.place.layout.function;
        let at = |offset: usize| function.checked_add(offset as u64);
        let is_array = |walk: &Self, at: u64| walk.is_array(at);
        let called = match row.static_variables_ptr {
            0 => None,
            offset => self.mapped(at(offset), is_array),
        };
        // Those that no call has changed are the compiler's, and hold no object.
        called.or_else(|| self.mapped(at(row.static_variables), is_array))
    }

    /// What a pointer leads to: itself, or through a `ZEND_MAP_PTR` (Zend/zend_map_ptr.h), which is
    /// an offset if its lowest bit is set. Versions differ in that, and so the first that fits.
    fn mapped(&self, at: Option<u64>, fits: impl Fn(&Self, u64) -> bool) -> Option<u64> {
        let memory = self.place.memory;
        let stored = memory.word(at?).ok().filter(|&stored| stored != 0)?;
        let through = if stored & 1 == 1 {
            let offset = self.place.layout.compiler_globals.map_ptr_base as u64;
            let globals = Some(self.place.compiler_globals).filter(|_| offset != 0)?;
            let base = memory.word(globals.checked_add(offset)?).ok()?;
            memory.word(base.checked_add(stored)?).ok()
        } else if fits(self, stored) {
            Some(stored)
        } else {
            memory.word(stored).ok()
        };
        through.filter(|&it| fits(self, it))
    }

    /// Whether a block of the heap begins here, and has this many bytes. What a `ZEND_MAP_PTR`
    /// points to otherwise is a field of a class, of a function or of a closure, which can be in
    /// the heap, too.
    fn is_block(&self, address: u64, bytes: usize) -> bool {
        let block = self.place.blocks.block(address);
        block.is_some_and(|it| it.start == address && it.bytes >= bytes as u64)
    }

    fn is_array(&self, address: u64) -> bool {
        let mut head = [0; 8];
        self.is_block(address, self.place.layout.zend_array.sizeof)
            && self.place.memory.read(address, &mut head).is_ok()
            && half_at(&head, 0) > 0
            && half_at(&head, 4) & KIND == u32::from(IS_ARRAY)
    }

    /// The variables of a call and of those that have called it, at most this many.
    pub(super) fn calls(&mut self, first: u64, path: HeldPath, most: usize) {
        let mut call = first;
        for _ in 0..most {
            if call == 0 {
                return;
            }
            let row = &self.place.layout.execute_data;
            let mut frame = vec![0; row.sizeof];
            if self.place.memory.read(call, &mut frame).is_err() {
                return;
            }
            let function = word_at(&frame, row.func);
            let this = Zval(word_at(&frame, row.this), frame[row.this + TYPE]);
            if this.1 == IS_OBJECT {
                let path = self.found.paths.child(path, HoldingStep::This);
                self.value(this, path);
            }
            let info = half_at(&frame, row.this_type_info) >> self.place.layout.call_info.shift;
            if info & self.place.layout.call_info.closure != 0 {
                // Its function is in its object.
                let path = self.found.paths.child(path, HoldingStep::Running);
                self.visit(function.wrapping_sub(FUNCTION), NodeKind::Object, path);
            }
            self.variables(call, function, path);
            call = word_at(&frame, row.prev_execute_data);
        }
    }

    fn variables(&mut self, call: u64, function: u64, path: HeldPath) {
        let (memory, row) = (self.place.memory, &self.place.layout.function);
        let mut head = [0; HEAD];
        if function == 0 || memory.read(function, &mut head).is_err() {
            return;
        }
        let key = FunctionKey::parse(self.place.layout, &head);
        let count = key
            .filter(FunctionKey::is_user)
            .map_or(0, |_| half_at(&head, row.last_var));
        let first = call.checked_add(self.place.layout.execute_data.first_argument as u64);
        let Some(first) = first.filter(|_| (1..=MAX_VARIABLES).contains(&count)) else {
            return;
        };
        let mut bytes = vec![0; count as usize * ZVAL];
        if memory.read(first, &mut bytes).is_err() {
            return;
        }
        let path = self
            .found
            .paths
            .child(path, HoldingStep::Variable { function });
        for zval in bytes.chunks_exact(ZVAL) {
            self.value(Zval(word_at(zval, 0), zval[TYPE]), path);
        }
    }

    /// The values of an array, each by the path that its key gives.
    pub(super) fn entries_of(
        &mut self,
        table: u64,
        mut path_of: impl FnMut(EntryKey) -> Option<HeldPath>,
    ) {
        let (memory, layout) = (self.place.memory, self.place.layout);
        let room = super::MAX_ENTRIES.saturating_sub(self.entries);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let mut values = Vec::new();
        let read = hash::entries(memory, layout, table, room, &mut |key, zval| {
            if let Some(path) = path_of(key) {
                values.push((zval, path));
            }
        });
        match read {
            Some(count) => self.entries += u64::from(count),
            None => self.is_cut = true,
        }
        for (zval, path) in values {
            self.value(zval, path);
        }
    }
}
