//! What objects, arrays and references hold.
//!
//! Invariant: an object is one only if its class is a class, and its header that of a live object.

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD};
use crate::memory::{Memory, half_at, word_at};
use crate::zval::{IS_ARRAY, IS_OBJECT, ZVAL, Zval};

use super::super::objects::{ClassKey, ObjectKind, SeenObject};
use super::paths::HeldPath;
use super::roots::MAX_CALLS;
use super::steps::HoldingStep;
use super::{EntryPath, HeldKind, HoldersWalk, NodeKind, OpenNode, kind_of};

/// The most bytes of an object that are read; one with more declared properties is not followed to
/// its end.
const MAX_OBJECT: u64 = 64 << 10;
/// `zend_reference.val` (Zend/zend_types.h).
const REFERENCE_VALUE: u64 = 8;

impl<M: Memory + ?Sized> HoldersWalk<'_, M> {
    pub(super) fn follow(&mut self, node: OpenNode) {
        match node.kind {
            NodeKind::Object => self.object(node),
            NodeKind::Array => self.array(node),
            NodeKind::Reference => {
                let mut zval = [0; ZVAL];
                let at = node.address.saturating_add(REFERENCE_VALUE);
                if self.read(at, &mut zval).is_some() {
                    let block = self.place.blocks.block(node.address);
                    if let Some(block) = block.filter(|_| self.counts_all) {
                        self.count(HeldKind::Reference, node.path, block.bytes);
                    }
                    self.value(Zval::parse(&zval), node.path);
                }
            }
        }
    }

    fn array(&mut self, node: OpenNode) {
        let mut head = [0; 8];
        let read = self.read(node.address, &mut head);
        if read.is_some() && kind_of(&head) == u32::from(IS_ARRAY) {
            self.entries(node.address, EntryPath::ByKey(node.path));
        }
    }

    fn object(&mut self, node: OpenNode) {
        let layout = self.place.layout;
        let row = &layout.zend_object;
        let block = self.place.blocks.block(node.address);
        let room = block.map_or(0, |it| it.rest(node.address)).min(MAX_OBJECT);
        let own = block.map_or(0, |it| it.bytes);
        if room < row.properties_table as u64 {
            return;
        }
        let mut bytes = vec![0; room as usize];
        if self.read(node.address, &mut bytes).is_none() {
            return;
        }
        let is_object = half_at(&bytes, 0) > 0 && kind_of(&bytes) == u32::from(IS_OBJECT);
        let class = word_at(&bytes, row.ce);
        let Some(shape) = self.shape(class).filter(|_| is_object) else {
            return;
        };
        let head = bytes.get(FUNCTION as usize..).unwrap_or_default();
        let key = match shape.kind {
            ObjectKind::Closure => {
                let function = head
                    .get(..HEAD)
                    .and_then(|head| FunctionKey::parse(layout, head));
                ClassKey::of_closure(class, function.as_ref())
            }
            _ => ClassKey::of(class),
        };
        self.found.objects += 1;
        self.count(HeldKind::Object(key), node.path, own);
        if self.counts_all {
            let object = SeenObject {
                address: node.address,
                handle: half_at(&bytes, row.handle),
            };
            self.found.totals.add(key, object, own);
        }
        self.properties(&bytes, class, shape.properties, node.path);
        match shape.kind {
            ObjectKind::Closure => self.closure(node, &bytes, head),
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
        self.is_cut |= declared.len() < count as usize;
        for (number, zval) in (0..count).zip(declared) {
            let zval = Zval::parse(zval);
            if self.concerns(zval) {
                let offset = (table + number as usize * ZVAL) as u32;
                let step = HoldingStep::Property { class, offset };
                let path = self.found.paths.child(path, step);
                self.value(zval, path);
            }
        }
        if self.is_new(dynamic) {
            let path = self.found.paths.child(path, HoldingStep::DynamicProperty);
            self.entries(dynamic, EntryPath::Same(path));
        }
    }

    fn closure(&mut self, node: OpenNode, bytes: &[u8], head: &[u8]) {
        let this = self.place.layout.zend_closure.this_ptr;
        if let Some(zval) = bytes.get(this..).filter(|_| this != 0) {
            let path = self.found.paths.child(node.path, HoldingStep::This);
            self.value(Zval::parse(zval), path);
        }
        if let Some(bound) = self.static_variables(head) {
            let path = self.found.paths.child(node.path, HoldingStep::Bound);
            self.entries(bound, EntryPath::Same(path));
        }
    }
}
