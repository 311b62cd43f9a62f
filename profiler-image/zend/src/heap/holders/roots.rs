//! Where paths begin: what PHP keeps of itself, whatever the program refers to.
//!
//! Invariant: each list and each chain that is followed is bounded.

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD};
use crate::hash::values;
use crate::memory::{Memory, half_at, word_at};
use crate::zval::{IS_ARRAY, IS_OBJECT, ZVAL, Zval};

use super::super::objects::near::NearReads;
use super::paths::HeldPath;
use super::steps::HoldingStep;
use super::{EntryPath, HoldersWalk, NodeKind, kind_of};

/// How many classes, and how many functions in all, are asked for static values.
const MAX_CLASSES: usize = 32_768;
const MAX_FUNCTIONS: usize = 131_072;
/// How many static properties of a class are read.
const MAX_STATICS: u32 = 4096;
/// How many calls of a stack are read, and how many variables of a call.
pub(super) const MAX_CALLS: usize = 4096;
const MAX_VARIABLES: u32 = 4096;
/// How many functions are read at once.
const TOGETHER: usize = 1024;

impl<M: Memory + ?Sized> HoldersWalk<'_, M> {
    /// Goes to what static values, global variables and calls hold, in this order: of two equally
    /// long paths, the one that lasts longer is shown.
    pub(super) fn roots(&mut self) {
        let row = &self.place.layout.executor_globals;
        let globals = self.place.executor_globals;
        let at = |offset: usize| globals.saturating_add(offset as u64);
        let classes = self.word(at(row.class_table));
        for class in self.values(classes, MAX_CLASSES) {
            if self.is_late() {
                return;
            }
            self.static_properties(class);
            let methods = self.place.layout.class_entry.function_table as u64;
            self.functions(class.saturating_add(methods));
        }
        let functions = self.word(at(row.function_table));
        self.functions(functions);
        let path = self.root(HoldingStep::Global);
        // This array is the executor's.
        self.entries_of(at(row.symbol_table), EntryPath::Same(path));
        let call = self.word(at(row.current_execute_data));
        self.calls(call, HeldPath::default(), MAX_CALLS);
    }

    fn root(&mut self, step: HoldingStep) -> HeldPath {
        self.found.paths.child(HeldPath::default(), step)
    }

    /// The word at an address, 0 if it cannot be read.
    fn word(&mut self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        let read = self.read(address, &mut bytes);
        read.map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// The values of a table of the engine.
    fn values(&mut self, table: u64, most: usize) -> Vec<u64> {
        let found = values(self.place.memory, self.place.layout, table, most);
        self.is_cut |= found.as_ref().is_none_or(|found| found.len() >= most);
        found.unwrap_or_default()
    }

    fn static_properties(&mut self, class: u64) {
        let row = &self.place.layout.class_entry;
        let at = |offset: usize| class.saturating_add(offset as u64);
        let mut count = [0; 4];
        let read = self.read(at(row.default_static_members_count), &mut count);
        let count = half_at(&count, 0);
        self.is_cut |= count > MAX_STATICS;
        if read.is_none() || !(1..=MAX_STATICS).contains(&count) {
            return;
        }
        // `static_members_table` follows the default values.
        let stored = self.word(at(row.default_static_members_table + 8));
        let size = count as usize * ZVAL;
        // A class that was not used yet has none.
        let Some(table) = self.mapped(stored, &|walk, at| walk.is_block(at, size)) else {
            return;
        };
        let mut bytes = vec![0; size];
        if self.read(table, &mut bytes).is_none() {
            return;
        }
        for (number, zval) in (0..count).zip(bytes.chunks_exact(ZVAL)) {
            // One that was inherited is in its own class.
            let zval = Zval::parse(zval);
            if self.concerns(zval) {
                let path = self.root(HoldingStep::StaticProperty { class, number });
                self.value(zval, path);
            }
        }
    }

    /// The static variables of a table's functions: of each once, because a class has its parents'
    /// methods, too.
    fn functions(&mut self, table: u64) {
        let mut new = self.values(table, MAX_FUNCTIONS);
        new.retain(|&function| {
            let has_room = self.functions.len() < MAX_FUNCTIONS;
            self.is_cut |= !has_room && !self.functions.contains(&function);
            has_room && self.functions.insert(function)
        });
        new.sort_unstable();
        for some in new.chunks(TOGETHER) {
            let heads = NearReads::of(self.place.memory, some.iter().copied(), HEAD);
            for (&function, head) in some.iter().zip(heads.pieces()) {
                self.is_cut |= head.is_none();
                if let Some(table) = head.and_then(|head| self.static_variables(head)) {
                    let path = self.root(HoldingStep::StaticVariable { function });
                    self.entries(table, EntryPath::Same(path));
                }
            }
        }
    }

    /// The array of a function's static variables, or of a closure's bound ones, if it was not
    /// followed yet.
    pub(super) fn static_variables(&mut self, head: &[u8]) -> Option<u64> {
        let row = &self.place.layout.function;
        let key = FunctionKey::parse(self.place.layout, head)?;
        // Without these, there are none; those that no call has changed hold no object.
        let declared = word_at(head, row.static_variables);
        if !key.is_user() || declared == 0 {
            return None;
        }
        let stored = match row.static_variables_ptr {
            0 => declared,
            offset => word_at(head, offset),
        };
        let table = self.mapped(stored, &Self::is_array);
        table.filter(|&table| self.is_new(table))
    }

    /// What a pointer leads to: itself, or through a `ZEND_MAP_PTR` (Zend/zend_map_ptr.h), which is
    /// an offset if its lowest bit is set. Versions differ in that, and so the first that fits.
    fn mapped(&self, stored: u64, fits: &dyn Fn(&Self, u64) -> bool) -> Option<u64> {
        let memory = self.place.memory;
        if stored == 0 {
            return None;
        }
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
            && kind_of(&head) == u32::from(IS_ARRAY)
    }

    /// The variables of a call and of those that have called it, at most this many.
    pub(super) fn calls(&mut self, first: u64, path: HeldPath, most: usize) {
        let mut call = first;
        for _ in 0..most {
            if call == 0 {
                return;
            }
            let layout = self.place.layout;
            let row = &layout.execute_data;
            let mut frame = vec![0; row.sizeof];
            if self.read(call, &mut frame).is_none() {
                return;
            }
            let function = word_at(&frame, row.func);
            let this = Zval::parse(frame.get(row.this..).unwrap_or_default());
            if this.1 == IS_OBJECT {
                let path = self.found.paths.child(path, HoldingStep::This);
                self.value(this, path);
            }
            let info = half_at(&frame, row.this_type_info) >> layout.call_info.shift;
            if info & layout.call_info.closure != 0 {
                // Its function is in its object.
                let path = self.found.paths.child(path, HoldingStep::Running);
                self.visit(function.wrapping_sub(FUNCTION), NodeKind::Object, path);
            }
            self.variables(call, function, path);
            call = word_at(&frame, row.prev_execute_data);
        }
        // A generator has one call of its own.
        self.is_cut |= most == MAX_CALLS && call != 0;
    }

    fn variables(&mut self, call: u64, function: u64, path: HeldPath) {
        let mut head = [0; HEAD];
        if function == 0 || self.read(function, &mut head).is_none() {
            return;
        }
        let layout = self.place.layout;
        let key = FunctionKey::parse(layout, &head).filter(FunctionKey::is_user);
        let count = key.map_or(0, |_| half_at(&head, layout.function.last_var));
        self.is_cut |= count > MAX_VARIABLES;
        if !(1..=MAX_VARIABLES).contains(&count) {
            return;
        }
        let first = call.saturating_add(layout.execute_data.first_argument as u64);
        let mut bytes = vec![0; count as usize * ZVAL];
        if self.read(first, &mut bytes).is_none() {
            return;
        }
        let path = self
            .found
            .paths
            .child(path, HoldingStep::Variable { function });
        for zval in bytes.chunks_exact(ZVAL) {
            self.value(Zval::parse(zval), path);
        }
    }
}
