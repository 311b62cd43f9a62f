//! All that is in a worker's heap, by the path that holds it: for a profile of heaps.
//!
//! Invariant: each block counts once, as reached by a path or as an object that none reaches.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use phpprof_profile::in_use::NO_PATH;
use phpprof_zend::heap::holders::{HeldKind, HeldMemory, HeldObjects, PathStep};
use phpprof_zend::heap::objects::{HeapObjects, ObjectsWalk, StoreRefusal};
use phpprof_zend::memory::Memory;

use crate::run::seed;
use crate::stack::volume::without_versions;

/// How long the names of a heap's paths may take.
const NAMES_TAKE: Duration = Duration::from_secs(2);
/// Objects of classes without a name, or beyond those that have one.
const OTHER_CLASSES: &str = "[other classes]";

/// What was read of a heap.
#[derive(Debug, Default)]
pub struct ReadHeld {
    /// What paths lead to.
    pub held: HeldObjects,
    /// The last step of each path, from number 1 on.
    pub steps: Vec<PathStep>,
    /// The objects that no path leads to.
    pub others: HeapObjects,
}

impl ReadHeld {
    /// Reads a heap; nothing if its worker has no request.
    ///
    /// # Errors
    /// A [`StoreRefusal`] if the table of objects cannot be read.
    pub fn read<M: Memory + ?Sized>(
        place: &HeldMemory<'_, M>,
        until: Instant,
    ) -> Result<Self, StoreRefusal> {
        let (memory, layout) = (place.memory, place.layout);
        let (globals, blocks) = (place.executor_globals, place.blocks);
        if !ObjectsWalk::has_any(memory, layout, globals, blocks)? {
            return Ok(Self::default());
        }
        let is_over = || Instant::now() >= until;
        let walk = ObjectsWalk {
            seed: seed().into(),
            is_over: &is_over,
        };
        let mut held = HeldObjects::read_all(place, &is_over);
        let seen = held.take_seen();
        let others = walk.read_without(memory, layout, globals, blocks, Some(&seen))?;
        let names_until = Instant::now() + NAMES_TAKE;
        let mut steps = held.named(place, &|| Instant::now() >= names_until);
        for step in &mut steps {
            if let Cow::Owned(shown) = without_versions(&step.name) {
                step.name = shown;
            }
        }
        Ok(Self {
            held,
            steps,
            others,
        })
    }

    /// Hands over each path's frames, what it leads to first, with count and bytes.
    pub fn each(&self, each: &mut dyn FnMut(&[&str], u64, u64)) {
        for row in self.held.rows() {
            let kind = without_versions(match row.kind {
                HeldKind::Object(key) => self.held.class_name(key).unwrap_or(OTHER_CLASSES),
                HeldKind::Array => "array",
                HeldKind::String => "string",
                HeldKind::Reference => "reference",
            });
            let mut frames = vec![&*kind];
            let mut number = row.path;
            if number == 0 {
                // There was no room for its path.
                frames.push(NO_PATH);
            }
            while let Some(step) = number.checked_sub(1).and_then(|at| self.steps.get(at)) {
                frames.push(&step.name);
                number = step.before;
            }
            each(&frames, row.amount.count, row.amount.bytes);
        }
        for class in &self.others.classes {
            let name = without_versions(&class.name);
            each(&[&name, NO_PATH], class.instances, class.bytes);
        }
        let others = self.others.others;
        each(&[OTHER_CLASSES, NO_PATH], others.instances, others.bytes);
        let rest = self.held.rest;
        each(&["[other]", NO_PATH], rest.count, rest.bytes);
    }

    /// Whether all paths were followed; also if there is nothing.
    pub fn is_whole(&self) -> bool {
        self.held.is_whole || self.others.places == 0
    }

    /// Objects that could not be read or named.
    pub fn lost(&self) -> u64 {
        let losses = self.others.losses;
        losses.unreadable + losses.outside + losses.inconsistent + losses.unnamed + losses.late
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::heap::account;
    use phpprof_zend::layouts::ROWS;
    use phpprof_zend::testing::objects::{ObjectsImage, TestClass};

    use super::*;

    fn rows(image: &ObjectsImage, until: Instant) -> (Vec<(String, u64, u64)>, bool) {
        let layout = &ROWS[0];
        let heap = account::read(image.heap.memory(), layout, image.heap.heap()).unwrap();
        let place = HeldMemory {
            memory: image,
            layout,
            blocks: &heap.blocks,
            executor_globals: image.engine.executor_globals,
            compiler_globals: 0,
        };
        let read = ReadHeld::read(&place, until).unwrap();
        let mut rows = Vec::new();
        read.each(&mut |frames, count, bytes| {
            if count > 0 {
                rows.push((frames.join("/"), count, bytes));
            }
        });
        (rows, read.is_whole())
    }

    #[test]
    fn objects_without_a_path_have_their_classes() {
        let mut image = ObjectsImage::new(&ROWS[0]);
        let order = image.class("Shop\\Order", TestClass::User);
        for _ in 0..7 {
            image.object(order, 11);
        }
        image.settle();
        let until = Instant::now() + Duration::from_secs(60);
        let expected = vec![("Shop\\Order/[no path]".to_owned(), 7, 7 * 128)];
        // The image has no tables of classes and functions.
        assert_eq!(rows(&image, until), (expected, false));
    }

    #[test]
    fn worker_between_two_requests_has_nothing() {
        let mut image = ObjectsImage::new(&ROWS[0]);
        image.settle();
        assert_eq!(rows(&image, Instant::now()), (Vec::new(), true));
    }
}
