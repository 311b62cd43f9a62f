//! The objects of a heap by class: `EG(objects_store)` (Zend/zend_objects_API.h), the table of all
//! objects of a worker.
//!
//! An object counts only if it is in a block of the heap and says itself which place of the table
//! it has; its bytes are those of its block. Of an object, its header is used: references, type,
//! place and class, and of a closure its function too. What lies between two of them is read with
//! them and dropped.
//! Invariant: at most [`MAX_PLACES`] places are read, a window of them at a time, and each place
//! that was read is counted once: as an object, as free, as reached, or in [`ObjectLosses`].

mod classes;
mod fiber_stack;
mod fibers;
mod header;
pub(in crate::heap) mod near;
mod store;

use std::ops::Range;

pub use classes::{ClassKey, HeapClass, ObjectKind, OtherClasses};
pub(in crate::heap) use classes::{ClassTotals, EngineClass};
pub use fiber_stack::{FiberFault, SuspendedFiber};
pub use fibers::{FiberLosses, FibersWalk, FoundFibers};
pub(in crate::heap) use header::SeenObject;
pub use store::{MAX_PLACES, StoreRefusal};

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD};
use crate::layouts::Layout;
use crate::memory::Memory;

use super::blocks::HeapBlocks;
use super::seen::SeenBlocks;
use classes::MAX_NAMED;
use header::{HEADER, class_of};
use near::NearReads;
use store::{ObjectsStore, PlaceDraw};

/// Of how many groups of places the drawn ones are read at once.
const WINDOW: usize = 4096;
/// The lowest bit of a free place's word: the rest is the number of another free place, or an
/// object that is being freed (`OBJ_BUCKET_INVALID`, `SET_OBJ_INVALID`).
const FREE: u64 = 1;

/// The objects of a heap. If only a part of the table was read, each count is that of the part
/// times [`HeapObjects::one_of`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapObjects {
    /// The classes with the most bytes, largest first.
    pub classes: Vec<HeapClass>,
    /// All other objects.
    pub others: OtherClasses,
    /// Places that are free.
    pub free: u64,
    /// Objects that a walk of holders has reached, if only the others were wanted.
    pub reached: u64,
    /// Places that were ever used.
    pub places: u64,
    /// One of how many places was read, drawn at random: 1 if it was each, 0 without a table.
    pub one_of: u64,
    /// Places that are neither objects nor free.
    pub losses: ObjectLosses,
}

/// Places whose objects are not known, and objects whose class is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectLosses {
    /// They could not be read.
    pub unreadable: u64,
    /// They lead to no block of the heap.
    pub outside: u64,
    /// What is there is not the object of this place.
    pub inconsistent: u64,
    /// Objects whose class's name could not be read or proven: they are among the other classes.
    pub unnamed: u64,
    /// There was no time for them.
    pub late: u64,
}

/// How objects are read.
pub struct ObjectsWalk<'a> {
    /// Which places are drawn if there are too many.
    pub seed: u64,
    /// Whether the time is over.
    pub is_over: &'a dyn Fn() -> bool,
}

impl ObjectsWalk<'_> {
    /// Reads the objects of the executor with these globals, whose heap has these blocks.
    ///
    /// # Errors
    /// A [`StoreRefusal`] if there is no table of objects that can be read.
    pub fn read<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        executor_globals: u64,
        blocks: &HeapBlocks,
    ) -> Result<HeapObjects, StoreRefusal> {
        self.read_without(memory, layout, executor_globals, blocks, None)
    }

    /// Whether the executor has any objects: it has none between two requests.
    ///
    /// # Errors
    /// As [`ObjectsWalk::read`].
    pub fn has_any<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        executor_globals: u64,
        blocks: &HeapBlocks,
    ) -> Result<bool, StoreRefusal> {
        let store = ObjectsStore::read(memory, layout, executor_globals, blocks)?;
        Ok(store.is_some())
    }

    /// The same without those in blocks that a walk of holders has seen.
    ///
    /// # Errors
    /// As [`ObjectsWalk::read`].
    pub fn read_without<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        executor_globals: u64,
        blocks: &HeapBlocks,
        seen: Option<&SeenBlocks>,
    ) -> Result<HeapObjects, StoreRefusal> {
        let store = ObjectsStore::read(memory, layout, executor_globals, blocks)?;
        let Some(store) = store else {
            return Ok(HeapObjects::default());
        };
        let mut counting = ObjectCounting {
            memory,
            layout,
            blocks,
            seen,
            store,
            draw: PlaceDraw::of(store.top, self.seed),
            totals: ClassTotals::default(),
            counted: HeapObjects::default(),
        };
        let groups = counting.draw.groups();
        for first in (0..groups).step_by(WINDOW) {
            if (self.is_over)() {
                counting.counted.losses.late = u64::from(groups - first.max(1));
                break;
            }
            counting.window(first..groups.min(first + WINDOW as u32));
        }
        Ok(counting.finish())
    }
}

/// The objects so far.
struct ObjectCounting<'a, M: ?Sized> {
    memory: &'a M,
    layout: &'a Layout,
    blocks: &'a HeapBlocks,
    /// What is left out.
    seen: Option<&'a SeenBlocks>,
    store: ObjectsStore,
    draw: PlaceDraw,
    totals: ClassTotals,
    counted: HeapObjects,
}

impl<M: Memory + ?Sized> ObjectCounting<'_, M> {
    /// Counts the places that are drawn of these groups.
    fn window(&mut self, groups: Range<u32>) {
        let counted = &mut self.counted;
        let mut seen = Vec::new();
        let unreadable = self.store.drawn(self.memory, self.draw, groups, &mut seen);
        counted.losses.unreadable += unreadable;
        let mut objects = Vec::new();
        for object in seen {
            let address = object.address;
            let block = self.blocks.block(address);
            match block.filter(|block| block.rest(address) >= HEADER as u64) {
                _ if address & FREE != 0 => counted.free += 1,
                Some(block)
                    if self
                        .seen
                        .is_some_and(|seen| seen.contains(self.blocks, block)) =>
                {
                    counted.reached += 1;
                }
                Some(block) if address.is_multiple_of(8) => objects.push(PlacedObject {
                    object,
                    bytes: block.bytes,
                }),
                _ => counted.losses.outside += 1,
            }
        }
        objects.sort_unstable_by_key(|it| it.object.address);
        self.objects(&objects);
    }

    /// Counts objects, which are in the order of their addresses.
    fn objects(&mut self, objects: &[PlacedObject]) {
        let addresses = objects.iter().map(|it| it.object.address);
        let heads = NearReads::of(self.memory, addresses, HEADER);
        let mut closures = Vec::new();
        for (it, head) in objects.iter().zip(heads.pieces()) {
            let Some(head) = head else {
                self.counted.losses.unreadable += 1;
                continue;
            };
            match class_of(&self.layout.zend_object, head, it.object.handle) {
                None => self.counted.losses.inconsistent += 1,
                Some(class) if self.totals.is_closure(self.memory, self.layout, class) => {
                    closures.push((*it, class));
                }
                Some(class) => self.totals.add(ClassKey::of(class), it.object, it.bytes),
            }
        }
        let functions = closures.iter().map(|(it, _)| it.object.address + FUNCTION);
        let functions = NearReads::of(self.memory, functions, HEAD);
        for ((it, class), head) in closures.iter().zip(functions.pieces()) {
            let function = head.and_then(|head| FunctionKey::parse(self.layout, head));
            let key = ClassKey::of_closure(*class, function.as_ref());
            self.totals.add(key, it.object, it.bytes);
        }
    }

    /// Names the largest classes, and makes the part's counts those of all.
    fn finish(self) -> HeapObjects {
        let mut counted = self.counted;
        let named = self.totals.named(self.memory, self.layout, MAX_NAMED);
        (counted.classes, counted.others) = (named.classes, named.others);
        counted.losses.unnamed = named.unnamed;
        counted.places = u64::from(self.store.top.saturating_sub(1));
        let one_of = self.draw.one_of();
        counted.one_of = one_of;
        let HeapObjects {
            classes,
            others,
            free,
            reached,
            losses,
            ..
        } = &mut counted;
        let of_classes = classes
            .iter_mut()
            .flat_map(|it| [&mut it.instances, &mut it.bytes]);
        let all = [
            free,
            reached,
            &mut others.instances,
            &mut others.bytes,
            &mut losses.unreadable,
            &mut losses.outside,
            &mut losses.inconsistent,
            &mut losses.unnamed,
            &mut losses.late,
        ];
        for count in of_classes.chain(all) {
            *count = count.saturating_mul(one_of);
        }
        counted
    }
}

/// An object in its block.
#[derive(Debug, Clone, Copy)]
struct PlacedObject {
    object: SeenObject,
    /// Those of its block.
    bytes: u64,
}

#[cfg(test)]
mod tests;
