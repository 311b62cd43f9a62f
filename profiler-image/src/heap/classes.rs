//! The objects of a worker's heap by class, and who holds them, as a report.
//!
//! Invariant: names are those of profiles, without the folders of volumes' versions; no object is
//! read after the time is over.

use std::time::Instant;

use phpprof_profile::dump::{
    ClassKind, ClassReport, ClassesReport, HeldByReport, LostObjectsReport, OtherClassesReport,
    ReachedReport,
};
use phpprof_zend::heap::holders::{HeldMemory, HeldObjects, HoldingPath};
use phpprof_zend::heap::objects::{
    HeapClass, HeapObjects, ObjectKind, ObjectLosses, ObjectsWalk, OtherClasses, StoreRefusal,
};
use phpprof_zend::memory::Memory;

use crate::run::seed;
use crate::stack::volume::without_versions;

/// For how many of the classes with the most bytes is said who holds their objects, and by how many
/// paths of each.
const HELD_CLASSES: usize = 16;
const PATHS: usize = 3;

/// The objects of a heap, and who holds those of the largest classes.
pub struct ReadClasses {
    objects: HeapObjects,
    /// Absent if there are no objects, as between two requests of php-fpm.
    held: Option<HeldObjects>,
    /// The paths of each of the first classes.
    paths: Vec<Vec<HoldingPath>>,
}

/// Reads the objects of a heap.
pub fn read<M: Memory + ?Sized>(
    place: &HeldMemory<'_, M>,
    until: Instant,
) -> Result<ReadClasses, StoreRefusal> {
    let is_over = || Instant::now() >= until;
    let walk = ObjectsWalk {
        seed: seed().into(),
        is_over: &is_over,
    };
    let (memory, layout) = (place.memory, place.layout);
    let objects = walk.read(memory, layout, place.executor_globals, place.blocks)?;
    let has_objects = !objects.classes.is_empty();
    let held = has_objects.then(|| HeldObjects::read(place, &is_over));
    let classes = objects.classes.iter().take(HELD_CLASSES);
    let paths = held.iter().flat_map(|held| {
        let of = |class: &HeapClass| held.of(memory, layout, &class.keys, PATHS);
        classes.clone().map(of)
    });
    let paths = paths.collect();
    Ok(ReadClasses {
        objects,
        held,
        paths,
    })
}

/// The report of these objects.
pub fn report(read: ReadClasses, is_moment: bool) -> ClassesReport {
    let ReadClasses {
        objects,
        held,
        paths,
    } = read;
    let of_rows = |of: fn(&HeapClass) -> u64| objects.classes.iter().map(of).sum::<u64>();
    let OtherClasses {
        classes,
        instances,
        bytes,
    } = objects.others;
    let others = OtherClassesReport {
        classes,
        instances,
        bytes,
    };
    let ObjectLosses {
        unreadable,
        outside,
        inconsistent,
        unnamed,
        late,
    } = objects.losses;
    let lost = LostObjectsReport {
        unreadable,
        outside,
        inconsistent,
        unnamed,
        late,
    };
    let paths = paths.into_iter().chain(std::iter::repeat_with(Vec::new));
    let (all, bytes_of_all) = (
        of_rows(|it| it.instances).saturating_add(instances),
        of_rows(|it| it.bytes).saturating_add(bytes),
    );
    let classes = objects.classes.into_iter().zip(paths);
    let classes = classes.map(|(class, paths)| class_report(class, paths));
    ClassesReport {
        is_moment,
        objects: all,
        bytes: bytes_of_all,
        free: objects.free,
        sampled_of: (objects.one_of > 1).then_some(objects.places),
        other_classes: (others != OtherClassesReport::default()).then_some(others),
        lost: (lost != LostObjectsReport::default()).then_some(lost),
        reached: held.map(|held| ReachedReport {
            objects: held.objects,
            is_whole: held.is_whole,
        }),
        by_class: classes.collect(),
    }
}

fn class_report(class: HeapClass, paths: Vec<HoldingPath>) -> ClassReport {
    let shown = |text: String| without_versions(&text).into_owned();
    ClassReport {
        name: shown(class.name),
        kind: match class.kind {
            ObjectKind::Plain => ClassKind::Class,
            ObjectKind::Closure => ClassKind::Closure,
            ObjectKind::Enum => ClassKind::Enum,
            ObjectKind::Generator => ClassKind::Generator,
            ObjectKind::Fiber => ClassKind::Fiber,
        },
        place: class.place.map(shown),
        instances: class.instances,
        bytes: class.bytes,
        held_by: paths
            .into_iter()
            .map(|it| HeldByReport {
                path: shown(it.path),
                instances: it.instances,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use phpprof_zend::heap::account;
    use phpprof_zend::layouts::ROWS;
    use phpprof_zend::testing::objects::{ObjectsImage, TestClass};

    use super::*;

    fn report_at(until: Instant) -> ClassesReport {
        let layout = &ROWS[0];
        let mut image = ObjectsImage::new(layout);
        let order = image.class("Shop\\Order", TestClass::User);
        for _ in 0..7 {
            image.object(order, 11);
        }
        let closure = image.class("Closure", TestClass::Internal);
        image.closure(closure, "{closure}", 12);
        image.places.push(1);
        image.settle();
        let heap = account::read(image.heap.memory(), layout, image.heap.heap()).unwrap();
        let globals = image.engine.executor_globals;
        let place = HeldMemory {
            memory: &image,
            layout,
            blocks: &heap.blocks,
            executor_globals: globals,
            compiler_globals: 0,
        };
        report(read(&place, until).unwrap(), true)
    }

    #[test]
    fn report_has_classes_and_places() {
        let report = report_at(Instant::now() + Duration::from_secs(60));
        assert_eq!((report.objects, report.free), (8, 1));
        assert_eq!(report.bytes, 7 * 128 + 320);
        let rows = &report.by_class;
        let names: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.kind))
            .collect();
        let expected = [
            ("Shop\\Order", ClassKind::Class),
            ("{closure:/srv/a.php:12}", ClassKind::Closure),
        ];
        assert_eq!(names, expected);
        assert_eq!(rows[1].place.as_deref(), Some("/srv/a.php:12"));
        let rest = (report.sampled_of, report.other_classes, report.lost);
        assert_eq!(rest, (None, None, None));
    }

    #[test]
    fn objects_without_time_are_lost() {
        let report = report_at(Instant::now());
        assert_eq!((report.objects, report.by_class.len()), (0, 0));
        assert_eq!(report.lost.map(|lost| lost.late), Some(9));
    }
}
