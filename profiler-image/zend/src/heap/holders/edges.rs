//! What objects, arrays and references hold.
//!
//! Invariant: an object is one only if its class is a class, and its header that of a live object.

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD};
use crate::hash::EntryKey;
use crate::memory::{Memory, byte_at, half_at, word_at};
use crate::zval::{IS_ARRAY, IS_OBJECT, TYPE, ZVAL, Zval};

use super::super::objects::{ClassKey, ObjectKind};
use super::paths::HeldPath;
use super::roots::MAX_CALLS;
use super::steps::HoldingStep;
use super::{HoldersWalk, NodeKind, OpenNode};

/// The most bytes of an object that are read: declared properties beyond are not followed.
const MAX_OBJECT: u64 = 64 << 10;
/// The type in the second half of a `zend_refcounted_h`.
const KIND: u32 = 0x0f;
/// `zend_reference.val` (Zend/zend_types.h).
const REFERENCE_VALUE: u64 = 8;

impl<M: Memory + ?Sized> HoldersWalk<'_, M> {
    pub(super) fn follow(&mut self, node: OpenNode) {
        match node.kind {
            NodeKind::Object => self.object(node),
            NodeKind::Array => self.array(node),
            NodeKind::Reference => {
                let mut zval = [0; ZVAL];
                let at = node.address.checked_add(REFERENCE_VALUE);
                if at.is_some_and(|at| self.place.memory.read(at, &mut zval).is_ok()) {
                    self.value(Zval(word_at(&zval, 0), zval[TYPE]), node.path);
                }
            }
        }
    }

    fn array(&mut self, node: OpenNode) {
        let mut head = [0; 8];
        let is_read = self.place.memory.read(node.address, &mut head).is_ok();
        if !is_read || half_at(&head, 4) & KIND != u32::from(IS_ARRAY) {
            return;
        }
        let mut paths = std::mem::take(&mut self.found.paths);
        self.entries_of(node.address, |key| {
            let step = match key {
                EntryKey::Position => HoldingStep::Position,
                EntryKey::Number => HoldingStep::NumberKey,
                EntryKey::Text => HoldingStep::TextKey,
            };
            Some(paths.child(node.path, step))
        });
        self.found.paths = paths;
    }

    fn object(&mut self, node: OpenNode) {
        let (memory, layout) = (self.place.memory, self.place.layout);
        let row = &layout.zend_object;
        let block = self.place.blocks.block(node.address);
        let room = block.map_or(0, |it| it.rest(node.address)).min(MAX_OBJECT);
        if room < row.properties_table as u64 {
            return;
        }
        let mut bytes = vec![0; room as usize];
        if memory.read(node.address, &mut bytes).is_err() {
            return;
        }
        let is_object = half_at(&bytes, 0) > 0 && half_at(&bytes, 4) & KIND == u32::from(IS_OBJECT);
        let class = word_at(&bytes, row.ce);
        let Some(shape) = self.shape(class).filter(|_| is_object) else {
            return;
        };
        let function = bytes.get(FUNCTION as usize..FUNCTION as usize + HEAD);
        let function = function.and_then(|head| FunctionKey::parse(layout, head));
        let key = match shape.kind {
            ObjectKind::Closure => ClassKey::of_closure(class, function.as_ref()),
            _ => ClassKey::of(class),
        };
        self.count(key, node.path);
        self.properties(&bytes, class, shape.properties, node.path);
        match shape.kind {
            ObjectKind::Closure => self.closure(node, &bytes, function.as_ref()),
            ObjectKind::Generator => {
                let call = word_at(&bytes, layout.generator.execute_data);
                // What has called it is on another stack.
                self.calls(call, node.path, 1);
            }
            ObjectKind::Fiber => {
                // NULL while it runs: its calls are then the executor's.
                let at = layout.fiber.as_ref().map(|row| row.execute_data);
                let call = at.map_or(0, |at| word_at(&bytes, at));
                self.calls(call, node.path, MAX_CALLS);
            }
            _ => {}
        }
    }

    fn properties(&mut self, bytes: &[u8], class: u64, count: u32, path: HeldPath) {
        let row = &self.place.layout.zend_object;
        let (table, dynamic) = (row.properties_table, word_at(bytes, row.properties));
        let declared = bytes.get(table..).unwrap_or_default().chunks_exact(ZVAL);
        for (number, zval) in (0..count).zip(declared) {
            let zval = Zval(word_at(zval, 0), byte_at(zval, TYPE));
            if matches!(zval.1, IS_OBJECT | IS_ARRAY | crate::zval::IS_REFERENCE) {
                let offset = (table + number as usize * ZVAL) as u32;
                let step = HoldingStep::Property { class, offset };
                let path = self.found.paths.child(path, step);
                self.value(zval, path);
            }
        }
        let is_new = self.place.blocks.block(dynamic).is_some() && self.seen.insert(dynamic);
        if is_new {
            let path = self.found.paths.child(path, HoldingStep::DynamicProperty);
            self.entries_of(dynamic, |_| Some(path));
        }
    }

    fn closure(&mut self, node: OpenNode, bytes: &[u8], function: Option<&FunctionKey>) {
        let this = self.place.layout.zend_closure.this_ptr;
        if this != 0 {
            let zval = bytes.get(this..this + ZVAL);
            let zval = zval.map_or(Zval(0, 0), |it| Zval(word_at(it, 0), it[TYPE]));
            let path = self.found.paths.child(node.path, HoldingStep::This);
            self.value(zval, path);
        }
        let is_user = function.is_some_and(FunctionKey::is_user);
        let func = node.address.checked_add(FUNCTION).filter(|_| is_user);
        if let Some(bound) = func.and_then(|func| self.static_variables(func)) {
            let path = self.found.paths.child(node.path, HoldingStep::Bound);
            if self.seen.insert(bound) {
                self.entries_of(bound, |_| Some(path));
            }
        }
    }
}
