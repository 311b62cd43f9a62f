//! Reads a call site's operands: its literals, and the slots of its inline cache.
//!
//! Their places differ between versions, as the row's rules tell. What this module does not do:
//! judge.

use super::{Site, Words};
use crate::hash::find;
use crate::layouts::Layout;
use crate::memory::{Memory, word_at};
use crate::op::{INIT_STATIC_METHOD_CALL, NEW, Op};
use crate::text::ZendString;
use crate::unwind::Frame;
use crate::zval::{IS_STRING, TYPE, U2, ZVAL};

/// How much is read of a literal's text with its header, of an operand's literals, and of a cache
/// slot.
pub(super) const TEXT: usize = 96;
const LITERALS: usize = 48;
const SLOTS: usize = 24;

/// What leads from a caller's frame to its function's run-time cache: the word in the `op_array`,
/// and `CG(map_ptr_base)`, each an address and a length; 0 if it is not known.
#[must_use]
pub fn own_cache(
    layout: &Layout,
    compiler_globals: Option<u64>,
    caller: &Frame,
) -> [(u64, usize); 2] {
    let own = caller
        .func
        .wrapping_add(layout.function.run_time_cache as u64);
    let base = layout.compiler_globals.map_ptr_base as u64;
    [own, compiler_globals.map_or(0, |globals| globals + base)].map(|address| (address, 8))
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Reads together what a call's inline cache needs, and the places of its operands' texts.
    pub(super) fn prepare_slots(&self, init: &Op) {
        let cache = self.caller.frame.run_time_cache;
        let slots = if self.layout.rules.cache_slots_in_literals {
            [0, 0]
        } else {
            [init.result, init.op2].map(|slot| cache.saturating_add(u64::from(slot)))
        };
        let through = if self.caller.function.key.is_named() {
            self.own_cache_slot().unwrap_or(0)
        } else {
            0
        };
        let [first, second] = self.literals(init);
        self.memory.prepare(&[
            (first, LITERALS),
            (second, LITERALS),
            (slots[0], SLOTS),
            (if init.opcode == NEW { slots[1] } else { 0 }, SLOTS),
            (through, 8),
        ]);
    }

    /// Reads the texts of a call's literal operands together.
    pub(super) fn prepare_texts(&self, init: &Op) {
        let texts = self.literals(init).map(|literal| self.text_of(literal));
        self.memory.prepare(&texts);
    }

    /// Where a literal's text is; no address if it has none.
    pub(super) fn text_of(&self, literal: u64) -> (u64, usize) {
        let mut zval = [0; ZVAL];
        let is_read = literal != 0 && self.memory.read(literal, &mut zval).is_ok();
        let is_string = is_read && zval[TYPE] == IS_STRING;
        (if is_string { word_at(&zval, 0) } else { 0 }, TEXT)
    }

    /// The addresses of both operands' literals, 0 for another operand.
    fn literals(&self, op: &Op) -> [u64; 2] {
        let is_const = self.layout.op_types.is_const;
        [(op.op1_type, op.op1), (op.op2_type, op.op2)].map(|(kind, operand)| {
            let address = (kind == is_const).then(|| self.literal_address(op, operand, 0));
            address.flatten().unwrap_or(0)
        })
    }

    /// Where the pointer to the run-time cache is, according to the caller's `op_array`. Up to 7.3
    /// that has the pointer itself, and what is returned is the cache; then a `ZEND_MAP_PTR`
    /// (Zend/zend_map_ptr.h): with the lowest bit set an offset, else the address of the pointer,
    /// and in newer versions the pointer.
    fn own_cache_slot(&self) -> Option<u64> {
        let [own, base] = own_cache(self.layout, self.compiler_globals, self.caller.frame);
        let stored = self.memory.word(own.0).ok().filter(|&stored| stored != 0)?;
        match stored & 1 {
            1 if base.0 == 0 => None,
            1 => Some(self.memory.word(base.0).ok()?.wrapping_add(stored)),
            _ => Some(stored),
        }
    }

    /// The function that the site calls, if it has called it.
    pub(super) fn cached_function(&self, init: &Op) -> Option<u64> {
        self.cached(self.slot(init, init.result, init.op2))
    }

    /// The method that the site has called last.
    pub(super) fn cached_method(&self, init: &Op) -> Option<u64> {
        let slot = self.slot(init, init.result, init.op2)?;
        if self.has_only_method_slot(init) {
            self.cached(Some(slot))
        } else {
            self.cached(slot.checked_add(8))
        }
    }

    /// Whether the slot of a method has only the method, without its class before it: if slots are
    /// in literals, a static call with a literal class has the class in that literal's slot.
    pub(super) fn has_only_method_slot(&self, init: &Op) -> bool {
        self.layout.rules.cache_slots_in_literals
            && init.opcode == INIT_STATIC_METHOD_CALL
            && init.op1_type == self.layout.op_types.is_const
    }

    /// The number of a site's cache slot: `in_op`, or in its literal `operand`.
    pub(super) fn slot(&self, op: &Op, in_op: u32, operand: u32) -> Option<u32> {
        if !self.layout.rules.cache_slots_in_literals {
            return Some(in_op);
        }
        let literal = self.literal_address(op, operand, 0)?;
        self.memory.half(literal.checked_add(U2 as u64)?).ok()
    }

    /// Whether no function has the name in the `index`-th literal after the operand.
    pub(super) fn has_no_function(&self, init: &Op, index: u64) -> bool {
        let table = self.executor_globals + self.layout.executor_globals.function_table as u64;
        match (self.memory.word(table), self.literal(init, init.op2, index)) {
            // What was not found under a torn name may be there.
            (Ok(table), Some(name)) if name.is_checked => {
                find(self.memory, self.layout, table, &name.bytes).is_none()
            }
            _ => false,
        }
    }

    /// The words on which a proof by the caller's run-time cache depends.
    pub(super) fn cache_words(&self) -> Words {
        match self.has_own_cache() {
            Some(true) => Words::Code,
            _ => Words::Cache,
        }
    }

    /// Whether the run-time cache in the caller's frame is that of its function, according to the
    /// `op_array`; otherwise the two words are from different moments. `None` if that is unknown,
    /// as with a closure, whose address another one's `op_array` may have taken.
    fn has_own_cache(&self) -> Option<bool> {
        if !self.caller.function.key.is_named() {
            return None;
        }
        let cache = self.caller.frame.run_time_cache;
        // Any of the words that leads to this cache is accepted.
        let slot = self.own_cache_slot()?;
        let through = self.memory.word(slot).ok().filter(|&word| word != 0)?;
        Some(cache != 0 && (slot == cache || through == cache))
    }

    /// The word in the caller's run-time cache at a byte offset; none if the cache is another
    /// function's.
    pub(super) fn cached(&self, slot: Option<u32>) -> Option<u64> {
        let cache = self.caller.frame.run_time_cache;
        let slot = slot.filter(|slot| cache != 0 && *slot != u32::MAX)?;
        if self.has_own_cache() == Some(false) {
            return None;
        }
        self.memory.word(cache.checked_add(u64::from(slot))?).ok()
    }

    pub(super) fn literal_address(&self, op: &Op, operand: u32, index: u64) -> Option<u64> {
        if self.layout.rules.literals_in_op_array {
            let literals = self.layout.function.literals as u64;
            let base = self
                .memory
                .word(self.caller.frame.func.checked_add(literals)?)
                .ok()?;
            return base
                .checked_add(u64::from(operand))?
                .checked_add(index * 16);
        }
        // From 7.3 a literal is relative to its op, also in opcache's memory.
        #[expect(
            clippy::cast_possible_wrap,
            reason = "the operand is a signed distance stored in an unsigned field"
        )]
        let address = op.address.wrapping_add_signed(i64::from(operand as i32));
        address.checked_add(index * 16)
    }

    /// The text of a CONST operand's literal, or of the `index`-th after it.
    pub(super) fn literal(&self, op: &Op, operand: u32, index: u64) -> Option<ZendString> {
        let mut literal = [0_u8; 16];
        self.memory
            .read(self.literal_address(op, operand, index)?, &mut literal)
            .ok()?;
        (literal[TYPE] == IS_STRING)
            .then(|| ZendString::read(self.memory, self.layout, word_at(&literal, 0)))?
    }

    /// Whether that text is this name in any case.
    pub(super) fn literal_is(&self, op: &Op, operand: u32, index: u64, name: &[u8]) -> bool {
        !name.is_empty()
            && self
                .literal(op, operand, index)
                .is_some_and(|text| text.bytes.eq_ignore_ascii_case(name))
    }
}
