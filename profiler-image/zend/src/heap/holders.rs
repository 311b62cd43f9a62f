//! Who holds the objects of a heap: for each object the shortest path from what PHP keeps itself.
//!
//! The walk begins at static properties, static variables, global variables and running calls. It
//! goes through arrays, references, properties, bound variables and generators, level by level, so
//! that the first path to an object is a shortest one. What an extension holds is not reached.
//! Invariant: only what is in a block of the heap is followed, and each block once; there are at
//! most [`MAX_NODES`] of them, [`paths::MAX_PATHS`] paths and [`MAX_ENTRIES`] entries of arrays. A
//! walk that could not read something, or left something out, is not whole.

mod edges;
mod names;
pub(crate) mod paths;
mod roots;
mod rows;
mod steps;
mod strings;

use std::collections::{HashSet, VecDeque};

use crate::hash::{self, EntryKey};
use crate::layouts::Layout;
use crate::memory::{Memory, half_at};
use crate::zval::{IS_ARRAY, IS_OBJECT, IS_REFERENCE, IS_STRING, IS_UNDEF, Zval};

use super::blocks::HeapBlocks;
use super::objects::{ClassKey, ClassTotals, EngineClass, HeapClass, ObjectKind};
use super::seen::SeenBlocks;
use paths::{HeldPath, PathTree};
pub use rows::{HeldRow, PathStep};
use steps::HoldingStep;

/// How many objects, arrays and references are followed. With the queue and the blocks that were
/// seen, that is up to 11 MiB.
pub const MAX_NODES: usize = 1 << 18;
/// How many entries of arrays are read.
pub const MAX_ENTRIES: u64 = 1 << 24;
/// How many counts of a kind below a path are kept.
const MAX_HELD: usize = 1 << 15;
/// How many classes are remembered, each in a place that follows from its address.
const SHAPES: usize = 4096;

/// The memory that is walked.
pub struct HeldMemory<'a, M: ?Sized> {
    /// Reads it.
    pub memory: &'a M,
    /// The version's row.
    pub layout: &'a Layout,
    /// The heap's blocks.
    pub blocks: &'a HeapBlocks,
    /// The address of the executor's globals.
    pub executor_globals: u64,
    /// The address of the compiler's globals; 0 if it is not known.
    pub compiler_globals: u64,
}

/// What was reached, by kind and path.
#[derive(Debug, Default)]
pub struct HeldObjects {
    paths: PathTree,
    /// How much of which kinds each path leads to.
    held: Vec<Vec<HeldCount>>,
    /// The kinds of all paths, together.
    counts: usize,
    /// The objects that were reached.
    pub objects: u64,
    /// Whether the walk came to its end, within its bounds and its time.
    pub is_whole: bool,
    /// What has no row, for lack of room.
    pub rest: HeldAmount,
    seen: SeenBlocks,
    totals: ClassTotals,
    classes: Vec<HeapClass>,
}

/// A number of things, and the bytes of their blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldAmount {
    /// How many there are.
    pub count: u64,
    /// The bytes of their blocks.
    pub bytes: u64,
}

/// What is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldKind {
    /// An object of this class.
    Object(ClassKey),
    /// An array, with the block of its entries.
    Array,
    /// A string that is not interned.
    String,
    /// A reference (`&`).
    Reference,
}

/// How much of one kind there is.
#[derive(Debug, Clone, Copy)]
struct HeldCount {
    kind: HeldKind,
    amount: HeldAmount,
}

/// A path to objects of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingPath {
    /// In PHP's syntax: `Shop\Cache::$items[string key] → Shop\Order::$lines[n]`.
    pub path: String,
    /// How many objects of the class it leads to.
    pub instances: u64,
}

impl HeldObjects {
    /// Walks the heap until `is_over`, and counts its objects.
    pub fn read<'a, M: Memory + ?Sized>(
        place: &'a HeldMemory<'a, M>,
        is_over: &'a dyn Fn() -> bool,
    ) -> Self {
        let mut found = Self::walked(place, is_over, false);
        found.take_seen();
        found
    }

    /// The same, and counts arrays, strings and references too.
    pub fn read_all<'a, M: Memory + ?Sized>(
        place: &'a HeldMemory<'a, M>,
        is_over: &'a dyn Fn() -> bool,
    ) -> Self {
        Self::walked(place, is_over, true)
    }

    fn walked<'a, M: Memory + ?Sized>(
        place: &'a HeldMemory<'a, M>,
        is_over: &'a dyn Fn() -> bool,
        counts_all: bool,
    ) -> Self {
        let mut walk = HoldersWalk {
            place,
            counts_all,
            nodes: 0,
            open: VecDeque::new(),
            strings: Vec::new(),
            shapes: vec![(0, None); SHAPES],
            functions: HashSet::new(),
            is_over,
            entries: 0,
            is_cut: false,
            found: Self {
                seen: SeenBlocks::of(place.blocks),
                ..Self::default()
            },
        };
        walk.roots();
        while let Some(node) = walk.open.pop_front() {
            if walk.is_late() {
                break;
            }
            walk.follow(node);
        }
        walk.count_strings();
        walk.found.is_whole = !walk.is_cut && !walk.found.seen.is_full;
        walk.found
    }

    /// The paths to the objects of classes with these keys that lead to most of them, at most this
    /// many.
    pub fn of<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        classes: &[ClassKey],
        most: usize,
    ) -> Vec<HoldingPath> {
        let of_path = |(index, held): (usize, &Vec<HeldCount>)| {
            let is_of_classes = |it: &&HeldCount| match it.kind {
                HeldKind::Object(key) => classes.contains(&key),
                _ => false,
            };
            let of_classes = held.iter().filter(is_of_classes);
            let count = of_classes.map(|it| it.amount.count).sum::<u64>();
            (count > 0).then(|| (PathTree::path(index), count))
        };
        let mut counts: Vec<_> = self.held.iter().enumerate().filter_map(of_path).collect();
        let mut named = Vec::new();
        while named.len() < most && !counts.is_empty() {
            // They are in the order of paths: of equal ones the first, which was found first.
            let best = (0..counts.len())
                .rev()
                .max_by_key(|&at| counts.get(at).map(|it| it.1));
            let (path, instances) = counts.remove(best.unwrap_or(0));
            let path = self.paths.text(memory, layout, path);
            named.push(HoldingPath { path, instances });
        }
        named
    }
}

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeKind {
    Object,
    Array,
    Reference,
}

/// The path to the values of an array.
#[derive(Debug, Clone, Copy)]
enum EntryPath {
    /// That of each value: the keys are names of variables or properties.
    Same(HeldPath),
    /// That of the array, which has one more step for each kind of key.
    ByKey(HeldPath),
}

fn of_key(key: EntryKey) -> HoldingStep {
    match key {
        EntryKey::Position => HoldingStep::Position,
        EntryKey::Number => HoldingStep::NumberKey,
        EntryKey::Text(_) => HoldingStep::TextKey,
    }
}

/// The type in the second half of a `zend_refcounted_h` (Zend/zend_types.h).
fn kind_of(head: &[u8]) -> u32 {
    half_at(head, 4) & 0x0f
}

/// A block that was reached and is not followed yet.
#[derive(Debug, Clone, Copy)]
struct OpenNode {
    address: u64,
    path: HeldPath,
    kind: NodeKind,
}

/// What the walk knows of a class.
#[derive(Debug, Clone, Copy)]
struct ClassShape {
    kind: ObjectKind,
    /// How many declared properties its objects have.
    properties: u32,
}

struct HoldersWalk<'a, M: ?Sized> {
    place: &'a HeldMemory<'a, M>,
    /// Whether arrays, strings and references are counted too.
    counts_all: bool,
    /// How many objects, arrays and references were reached.
    nodes: usize,
    open: VecDeque<OpenNode>,
    /// Strings whose headers are still to be read ([`strings`]).
    strings: Vec<u64>,
    /// The classes that were asked for last, by the address of each; no shape for what is not a
    /// class.
    shapes: Vec<(u64, Option<ClassShape>)>,
    /// Those whose static variables were followed: a class has its parents' methods, too.
    functions: HashSet<u64>,
    is_over: &'a dyn Fn() -> bool,
    entries: u64,
    is_cut: bool,
    found: HeldObjects,
}

impl<M: Memory + ?Sized> HoldersWalk<'_, M> {
    /// Whether the time is over; then the walk is not whole.
    fn is_late(&mut self) -> bool {
        let is_over = (self.is_over)();
        self.is_cut |= is_over;
        is_over
    }

    /// Goes to what a value refers to, by this path.
    fn value(&mut self, zval: Zval, path: HeldPath) {
        let kind = match zval.1 {
            IS_OBJECT => NodeKind::Object,
            IS_ARRAY => NodeKind::Array,
            IS_REFERENCE => NodeKind::Reference,
            IS_STRING => return self.string(zval.0, path),
            _ => return,
        };
        self.visit(zval.0, kind, path);
    }

    fn visit(&mut self, address: u64, kind: NodeKind, path: HeldPath) {
        if self.is_new(address) {
            self.open.push_back(OpenNode {
                address,
                path,
                kind,
            });
        }
    }

    /// Whether what is here is to be followed: it is in the heap, and was not seen yet.
    fn is_new(&mut self, address: u64) -> bool {
        let blocks = self.place.blocks;
        let block = blocks.block(address);
        let Some(block) = block.filter(|_| address.is_multiple_of(8)) else {
            return false;
        };
        if self.nodes >= MAX_NODES {
            self.is_cut |= !self.found.seen.contains(blocks, block);
            return false;
        }
        let is_new = self.found.seen.insert(blocks, block);
        self.nodes += usize::from(is_new);
        is_new
    }

    /// Whether a value leads further, or is counted.
    fn concerns(&self, zval: Zval) -> bool {
        zval.is_followed() || (self.counts_all && zval.1 == IS_STRING)
    }

    /// Reads what is at an address; without it, the walk is not whole.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let read = self.place.memory.read(address, bytes).ok();
        self.is_cut |= read.is_none();
        read
    }

    /// Goes to the values of an array in a block that was not seen before, and counts it.
    fn entries(&mut self, table: u64, by: EntryPath) {
        let data = self.entries_of(table, by);
        if self.counts_all {
            self.count_array(table, data, by);
        }
    }

    /// Goes to the values of an array, and returns the address of its entries; 0 if they could not
    /// be read.
    fn entries_of(&mut self, table: u64, by: EntryPath) -> u64 {
        let place = self.place;
        let room = MAX_ENTRIES.saturating_sub(self.entries);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let read = hash::entries(place.memory, place.layout, table, room, &mut |key, zval| {
            let text = match key {
                EntryKey::Text(address) if zval.1 != IS_UNDEF => self.new_string(address),
                _ => None,
            };
            let concerns = self.concerns(zval);
            if concerns || text.is_some() {
                let path = match by {
                    EntryPath::Same(path) => path,
                    EntryPath::ByKey(path) => self.found.paths.child(path, of_key(key)),
                };
                self.keep_string(text, path);
                self.value(zval, path);
            }
        });
        match read {
            Some(read) => self.entries += u64::from(read.places),
            None => self.is_cut = true,
        }
        read.map_or(0, |read| read.data)
    }

    /// Counts an array, whose entries are in a block of their own.
    fn count_array(&mut self, table: u64, data: u64, by: EntryPath) {
        let blocks = self.place.blocks;
        let (EntryPath::Same(path) | EntryPath::ByKey(path)) = by;
        let Some(own) = blocks.block(table) else {
            return;
        };
        let data = blocks.block(data);
        let data = data.filter(|&block| self.found.seen.insert(blocks, block));
        let bytes = own.bytes + data.map_or(0, |block| block.bytes);
        self.count(HeldKind::Array, path, bytes);
    }

    fn count(&mut self, kind: HeldKind, path: HeldPath, bytes: u64) {
        let index = PathTree::index(path);
        if self.found.held.len() <= index {
            self.found.held.resize_with(index + 1, Vec::new);
        }
        let Some(of_path) = self.found.held.get_mut(index) else {
            return;
        };
        let known = of_path.iter_mut().find(|it| it.kind == kind);
        let amount = if let Some(known) = known {
            &mut known.amount
        } else if self.found.counts < MAX_HELD {
            self.found.counts += 1;
            let amount = HeldAmount::default();
            of_path.push(HeldCount { kind, amount });
            match of_path.last_mut() {
                Some(new) => &mut new.amount,
                None => return,
            }
        } else {
            &mut self.found.rest
        };
        amount.count += 1;
        amount.bytes += bytes;
    }

    /// A class. The engine is asked again if another one had its place meanwhile.
    fn shape(&mut self, class: u64) -> Option<ClassShape> {
        // Classes are hundreds of bytes long.
        let place = (class >> 7) as usize % SHAPES;
        match self.shapes.get(place) {
            Some(&(known, shape)) if known == class => return shape,
            _ => {}
        }
        let (memory, layout) = (self.place.memory, self.place.layout);
        let read = || {
            let found = EngineClass::read(memory, layout, class)?;
            let at = class.checked_add(layout.class_entry.default_properties_count as u64)?;
            Some(ClassShape {
                kind: found.kind(),
                properties: memory.half(at).ok()?,
            })
        };
        let shape = read();
        if let Some(known) = self.shapes.get_mut(place) {
            *known = (class, shape);
        }
        shape
    }
}

#[cfg(test)]
mod tests;
