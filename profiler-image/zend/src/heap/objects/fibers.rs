//! Finds the suspended fibers of a worker by its table of objects.
//!
//! A fiber's block has the size of its struct, so only the objects in blocks of this size are
//! looked at, and of these only their headers. Invariant: at most [`MAX_PLACES`] places are read,
//! at most [`FibersWalk::most`] fibers are kept, drawn at random, and what could not be read is
//! counted in [`FiberLosses`].
//!
//! [`MAX_PLACES`]: super::MAX_PLACES

use std::ops::Range;

use super::WINDOW;
use super::classes::{EngineClass, ObjectKind};
use super::fiber_stack::{FIBER, SuspendedFiber};
use super::header::{HEADER, SeenObject, class_of};
use super::near::NearReads;
use super::store::{ObjectsStore, PlaceDraw, StoreRefusal, mixed};
use crate::heap::bins::ALL;
use crate::heap::blocks::HeapBlocks;
use crate::layouts::{Layout, ZendFiber};
use crate::memory::Memory;

/// How many classes are asked for their names in a walk. More have no objects of a fiber's size.
const MAX_CLASSES: usize = 256;

/// How fibers are looked for.
pub struct FibersWalk<'a> {
    /// Which places and which fibers are drawn if there are too many.
    pub seed: u64,
    /// How many fibers are kept.
    pub most: usize,
    /// Whether the time is over.
    pub is_over: &'a dyn Fn() -> bool,
}

/// The suspended fibers of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundFibers {
    /// At most as many as were asked for, drawn at random of all that were seen.
    pub kept: Vec<SuspendedFiber>,
    /// How many were seen.
    pub seen: u64,
    /// One of how many places of the table was read: 1 if it was each, 0 without a table.
    pub one_of: u64,
    /// Of the places that were read.
    pub losses: FiberLosses,
}

/// Places of the table that may have fibers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FiberLosses {
    /// They could not be read.
    pub unreadable: u64,
    /// There was no time for them.
    pub late: u64,
}

impl FibersWalk<'_> {
    /// Finds the fibers of the executor with these globals, whose heap has these blocks: none in a
    /// version without fibers.
    ///
    /// # Errors
    /// A [`StoreRefusal`] if there is no table of objects that can be read.
    pub fn read<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        executor_globals: u64,
        blocks: &HeapBlocks,
    ) -> Result<FoundFibers, StoreRefusal> {
        let Some(row) = &layout.fiber else {
            return Ok(FoundFibers::default());
        };
        let store = ObjectsStore::read(memory, layout, executor_globals, blocks)?;
        let Some(store) = store else {
            return Ok(FoundFibers::default());
        };
        let draw = PlaceDraw::of(store.top, self.seed);
        let mut bins = ALL.iter().map(|bin| bin.size);
        let mut finding = FiberSearch {
            memory,
            layout,
            row,
            blocks,
            store,
            draw,
            size: bins.find(|&size| size >= row.sizeof as u64).unwrap_or(0),
            class: None,
            others: Vec::new(),
            most: self.most,
            seed: self.seed,
            found: FoundFibers {
                one_of: draw.one_of(),
                ..FoundFibers::default()
            },
        };
        let groups = draw.groups();
        for first in (0..groups).step_by(WINDOW) {
            if (self.is_over)() {
                finding.found.losses.late += u64::from(groups - first.max(1));
                break;
            }
            finding.window(first..groups.min(first + WINDOW as u32));
        }
        Ok(finding.found)
    }
}

/// The fibers so far.
struct FiberSearch<'a, M: ?Sized> {
    memory: &'a M,
    layout: &'a Layout,
    row: &'a ZendFiber,
    blocks: &'a HeapBlocks,
    store: ObjectsStore,
    draw: PlaceDraw,
    /// That of a fiber's block.
    size: u64,
    /// The class of fibers, once one was seen, and other classes.
    class: Option<u64>,
    others: Vec<u64>,
    most: usize,
    seed: u64,
    found: FoundFibers,
}

impl<M: Memory + ?Sized> FiberSearch<'_, M> {
    /// Looks at the places that are drawn of these groups.
    fn window(&mut self, groups: Range<u32>) {
        let mut objects = Vec::new();
        let unreadable = self
            .store
            .drawn(self.memory, self.draw, groups, &mut objects);
        self.found.losses.unreadable += unreadable;
        objects.retain(|it| {
            let block = self.blocks.block(it.address);
            block.is_some_and(|block| (block.start, block.bytes) == (it.address, self.size))
        });
        objects.sort_unstable_by_key(|it| it.address);
        let fibers = self.of_class(&objects);
        self.suspended(&fibers);
    }

    /// Those of these objects that are fibers.
    fn of_class(&mut self, objects: &[SeenObject]) -> Vec<SeenObject> {
        let addresses = objects.iter().map(|it| it.address);
        let heads = NearReads::of(self.memory, addresses, HEADER);
        let mut fibers = Vec::new();
        for (object, head) in objects.iter().zip(heads.pieces()) {
            let Some(head) = head else {
                self.found.losses.unreadable += 1;
                continue;
            };
            // Anything else than an object of this place was freed meanwhile.
            let class = class_of(&self.layout.zend_object, head, object.handle);
            let is_fiber = class.is_some_and(|class| self.is_fiber(class));
            fibers.extend(is_fiber.then_some(*object));
        }
        fibers
    }

    /// Whether this is the class of fibers, which is final. It is asked of the engine once.
    fn is_fiber(&mut self, class: u64) -> bool {
        let is_other = || self.others.contains(&class) || self.others.len() >= MAX_CLASSES;
        if self.class.is_none() && !is_other() {
            let found = EngineClass::read(self.memory, self.layout, class);
            if found.is_some_and(|it| it.kind() == ObjectKind::Fiber) {
                self.class = Some(class);
            } else {
                self.others.push(class);
            }
        }
        self.class == Some(class)
    }

    /// Keeps those of these fibers that are suspended: each of all that were seen is equally likely
    /// to be kept (Vitter's algorithm R, "Random sampling with a reservoir", 1985).
    fn suspended(&mut self, fibers: &[SeenObject]) {
        let addresses = fibers.iter().map(|it| it.address);
        let read = NearReads::of(self.memory, addresses, FIBER);
        for (object, bytes) in fibers.iter().zip(read.pieces()) {
            let Some(bytes) = bytes else {
                self.found.losses.unreadable += 1;
                continue;
            };
            let fiber = SuspendedFiber::parse(self.layout, self.row, *object, bytes);
            let Some(fiber) = fiber else { continue };
            self.found.seen += 1;
            let kept = &mut self.found.kept;
            if kept.len() < self.most {
                kept.push(fiber);
                continue;
            }
            let drawn = mixed(self.seed ^ self.found.seen) % self.found.seen;
            let place = usize::try_from(drawn).ok();
            if let Some(kept) = place.and_then(|place| kept.get_mut(place)) {
                *kept = fiber;
            }
        }
    }
}

#[cfg(test)]
mod tests;
