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
mod steps;

use std::collections::{HashSet, VecDeque};

use crate::hash::{self, EntryKey};
use crate::layouts::Layout;
use crate::memory::{Memory, half_at};
use crate::zval::{IS_ARRAY, IS_OBJECT, IS_REFERENCE, Zval};

use super::blocks::HeapBlocks;
use super::objects::{ClassKey, EngineClass, ObjectKind};
use paths::{HeldPath, PathTree};
use steps::HoldingStep;

/// How many objects, arrays and references are followed. With their places in the queue, that is
/// up to 14 MiB.
pub const MAX_NODES: usize = 1 << 18;
/// How many entries of arrays are read.
pub const MAX_ENTRIES: u64 = 1 << 24;
/// How many counts of a class below a path are kept.
const MAX_HELD: usize = 1 << 14;
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

/// The objects that were reached, by class and path.
#[derive(Debug, Default)]
pub struct HeldObjects {
    paths: PathTree,
    /// How many objects of which classes each path leads to.
    held: Vec<Vec<(ClassKey, u64)>>,
    /// The classes of all paths, together.
    counts: usize,
    /// The objects that were reached.
    pub objects: u64,
    /// Whether the walk came to its end, within its bounds and its time.
    pub is_whole: bool,
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
    /// Walks the heap until `is_over`.
    pub fn read<'a, M: Memory + ?Sized>(
        place: &'a HeldMemory<'a, M>,
        is_over: &'a dyn Fn() -> bool,
    ) -> Self {
        let mut walk = HoldersWalk {
            place,
            seen: HashSet::new(),
            open: VecDeque::new(),
            shapes: vec![(0, None); SHAPES],
            functions: HashSet::new(),
            is_over,
            entries: 0,
            is_cut: false,
            found: Self::default(),
        };
        walk.roots();
        while let Some(node) = walk.open.pop_front() {
            if walk.is_late() {
                break;
            }
            walk.follow(node);
        }
        walk.found.is_whole = !walk.is_cut;
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
        let of_path = |(index, held): (usize, &Vec<(ClassKey, u64)>)| {
            let of_classes = held.iter().filter(|(key, _)| classes.contains(key));
            let count = of_classes.map(|(_, count)| count).sum::<u64>();
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
        EntryKey::Text => HoldingStep::TextKey,
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
    seen: HashSet<u64>,
    open: VecDeque<OpenNode>,
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
        if !address.is_multiple_of(8) || self.place.blocks.block(address).is_none() {
            return false;
        }
        if self.seen.len() >= MAX_NODES {
            self.is_cut |= !self.seen.contains(&address);
            return false;
        }
        self.seen.insert(address)
    }

    /// Reads what is at an address; without it, the walk is not whole.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let read = self.place.memory.read(address, bytes).ok();
        self.is_cut |= read.is_none();
        read
    }

    /// Goes to the values of an array.
    fn entries(&mut self, table: u64, by: EntryPath) {
        let place = self.place;
        let room = MAX_ENTRIES.saturating_sub(self.entries);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let read = hash::entries(place.memory, place.layout, table, room, &mut |key, zval| {
            if zval.is_followed() {
                let path = match by {
                    EntryPath::Same(path) => path,
                    EntryPath::ByKey(path) => self.found.paths.child(path, of_key(key)),
                };
                self.value(zval, path);
            }
        });
        match read {
            Some(count) => self.entries += u64::from(count),
            None => self.is_cut = true,
        }
    }

    fn count(&mut self, class: ClassKey, path: HeldPath) {
        self.found.objects += 1;
        let index = PathTree::index(path);
        if self.found.held.len() <= index {
            self.found.held.resize_with(index + 1, Vec::new);
        }
        let Some(of_path) = self.found.held.get_mut(index) else {
            return;
        };
        if let Some((_, count)) = of_path.iter_mut().find(|(key, _)| *key == class) {
            *count += 1;
        } else if self.found.counts < MAX_HELD {
            self.found.counts += 1;
            of_path.push((class, 1));
        }
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
