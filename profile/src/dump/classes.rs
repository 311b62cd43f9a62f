//! Which classes the objects of a worker's heap have: as a label of its sample, as text and as
//! JSON.
//!
//! Invariant: the only text is names of classes and functions, and where closures are declared; a
//! label has room in a profile, because classes without room are among the others.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::bounds::MAX_STRING;
use crate::text::{columns, ending, mebibytes, percent, printable};

/// The classes in the text: those with the most bytes. JSON has all that have a name.
const LINES: usize = 15;
/// The most columns of a name in the text, if it is not the longest that is shown.
const NAME: usize = 60;
/// Of how many of these the text says who holds them, and the most columns of a path.
const HELD: usize = 5;
const PATH: usize = 100;
/// What a label has besides its rows.
const AROUND_ROWS: usize = 1024;
/// How many bytes of a label are paths.
const PATHS: usize = 4096;

/// The objects of a worker's heap. Sizes are bytes of the blocks that objects are in, without what
/// they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassesReport {
    /// The worker did not run from before its heap was read until its objects were: all numbers of
    /// both are of one moment.
    pub is_moment: bool,
    /// All objects that were found.
    pub objects: u64,
    /// The bytes of their blocks.
    pub bytes: u64,
    /// Places of the table of objects that are free.
    pub free: u64,
    /// How many places the table has, if only a part was read, drawn at random: then all other
    /// numbers are estimates, those of the part times the same factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_of: Option<u64>,
    /// How far paths to them were followed; absent from an older sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<ReachedReport>,
    /// The classes with the most bytes, largest first.
    pub by_class: Vec<ClassReport>,
    /// All other objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_classes: Option<OtherClassesReport>,
    /// What could not be counted or named, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostObjectsReport>,
}

/// The objects of one class, or the closures that are declared in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassReport {
    /// The class's name. A closure has the name that it has in profiles, and one of a function the
    /// function's, with `(...)`.
    pub name: String,
    /// What the objects are.
    pub kind: ClassKind,
    /// `FILE:LINE` of a closure in PHP code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How many there are.
    pub instances: u64,
    /// The bytes of their blocks.
    pub bytes: u64,
    /// The paths that lead to most of them, of the largest classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldByReport>,
}

/// A path to objects of a class: one of the shortest from what PHP keeps itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldByReport {
    /// In PHP's syntax: `Shop\Cache::$items[string key] → Shop\Order::$lines[n]`. Keys, names of
    /// variables and dynamic properties are not in it.
    pub path: String,
    /// How many objects of the class it leads to.
    pub instances: u64,
}

/// The objects to which a path leads from what PHP keeps itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReachedReport {
    /// How many there are.
    pub objects: u64,
    /// All paths were followed. Then an object that was not reached is held by an extension, or by
    /// nothing but a cycle, which waits for the collector.
    pub is_whole: bool,
}

/// What the objects of a class are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClassKind {
    /// Any other.
    #[default]
    Class,
    /// Closures.
    Closure,
    /// Cases of an enum.
    Enum,
    /// Generators.
    Generator,
    /// Fibers.
    Fiber,
}

/// The objects of classes that have no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherClassesReport {
    /// How many classes that are, as far as they were told apart.
    pub classes: u64,
    /// Their objects.
    pub instances: u64,
    /// The bytes of their blocks.
    pub bytes: u64,
}

/// Places of the table of objects that are neither counted nor free, and objects without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostObjectsReport {
    /// They could not be read.
    pub unreadable: u64,
    /// They lead to no block of the heap.
    pub outside: u64,
    /// What is there is not the object of this place.
    pub inconsistent: u64,
    /// Objects among the other classes whose own class's name could not be proven.
    pub unnamed: u64,
    /// There was no time for them.
    pub late: u64,
}

impl ClassesReport {
    /// The same with as many of the largest classes as a label has room for.
    #[must_use]
    pub fn within_a_label(mut self) -> Self {
        self.by_class.sort_by_key(|row| Reverse(row.bytes));
        let (mut room, mut kept) = (MAX_STRING - AROUND_ROWS, 0);
        let mut of_paths = 0;
        for row in &mut self.by_class {
            // Classes are more than paths to a few of them.
            of_paths += row.held_by.iter().map(|it| it.path.len()).sum::<usize>();
            if of_paths > PATHS {
                row.held_by.clear();
            }
            // With the comma. Serialising strings and numbers cannot fail.
            let length = serde_json::to_string(row).map_or(0, |row| row.len() + 1);
            if length > room {
                break;
            }
            (room, kept) = (room - length, kept + 1);
        }
        let without_room = self.by_class.split_off(kept);
        if !without_room.is_empty() {
            let others = self.other_classes.get_or_insert_default();
            for row in without_room {
                others.classes += 1;
                others.instances = others.instances.saturating_add(row.instances);
                others.bytes = others.bytes.saturating_add(row.bytes);
            }
        }
        self
    }

    /// As the value of a label, which [`ClassesReport::parse`] reads again.
    #[must_use]
    pub fn label(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a label's value; `None` if it is not a report.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        serde_json::from_str(label).ok()
    }
}

/// Writes the lines of a worker's classes, of a heap of this size.
pub(super) fn class_lines(classes: &ClassesReport, heap: u64, line: &mut impl FnMut(&str, &str)) {
    let estimate = match classes.sampled_of {
        Some(all) => format!(" (estimated from a random part of {all} places)"),
        None => String::new(),
    };
    let count = match classes.objects {
        1 => "1 object".to_owned(),
        count => format!("{count} objects"),
    };
    let bytes = mebibytes(classes.bytes);
    let said = format!("{count}, {bytes} without what they refer to{estimate}");
    line("objects", &said);
    let shown: Vec<_> = classes.by_class.iter().take(LINES).collect();
    let names: Vec<_> = shown.iter().map(|row| shown_name(row)).collect();
    let widths = names.iter().map(|name| columns(name));
    let width = widths.max().unwrap_or(0).max("class".len());
    let mut row = |name: &str, instances: &str, bytes: &str, share: &str| {
        let space = " ".repeat(width.saturating_sub(columns(name)));
        line(
            "",
            &format!("{name}{space}  {instances:>9}  {bytes:>9}  {share:>7}"),
        );
    };
    if !shown.is_empty() {
        row("class", "instances", "bytes", "of heap");
    }
    let share = |bytes: u64| {
        let [part, all] = [bytes, heap].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        percent(part, all)
    };
    for (name, it) in names.iter().zip(&shown) {
        let instances = it.instances.to_string();
        row(name, &instances, &mebibytes(it.bytes), &share(it.bytes));
    }
    let mut more = classes.other_classes.unwrap_or_default();
    for it in classes.by_class.iter().skip(LINES) {
        more.classes += 1;
        more.instances = more.instances.saturating_add(it.instances);
        more.bytes = more.bytes.saturating_add(it.bytes);
    }
    if more.instances > 0 {
        let name = match more.classes {
            1 => "1 more class".to_owned(),
            count => format!("{count} more classes"),
        };
        let instances = more.instances.to_string();
        row(
            &name,
            &instances,
            &mebibytes(more.bytes),
            &share(more.bytes),
        );
    }
    held_lines(classes, &names, line);
    if !classes.is_moment {
        line(
            "Torn",
            "the worker ran before its objects were counted: some may be missed or doubled",
        );
    }
    if let Some(lost) = classes.lost {
        let said = format!(
            "{} places without a block, {} with another object, {} unreadable, {} without time; \
             {} objects without a name",
            lost.outside, lost.inconsistent, lost.unreadable, lost.late, lost.unnamed
        );
        line("lost", &said);
    }
}

/// Writes who holds the objects of the first classes, and how many objects nobody was seen to hold.
fn held_lines(classes: &ClassesReport, names: &[String], line: &mut impl FnMut(&str, &str)) {
    let mut key = "held by";
    for (name, row) in names.iter().zip(&classes.by_class).take(HELD) {
        for path in &row.held_by {
            let shown = printable(&path.path);
            let shown = if columns(&shown) > PATH {
                format!("…{}", ending(&shown, PATH - 1))
            } else {
                shown.into_owned()
            };
            line(key, &format!("{} {name}: {shown}", path.instances));
            key = "";
        }
    }
    let Some(reached) = classes.reached else {
        return;
    };
    let missed = classes.objects.saturating_sub(reached.objects);
    // Of several moments, an object may be counted, and gone when the paths are followed.
    if reached.is_whole && classes.is_moment && missed > 0 {
        let said = format!(
            "{missed} objects: they are in cycles that wait for the collector, or are held by extensions"
        );
        line("no path", &said);
    } else if !reached.is_whole {
        let said = format!(
            "the paths to {} objects were followed, not all",
            reached.objects
        );
        line("no path", &said);
    }
}

/// A name for the text; of a closure with the name of a function, also where it is. Of a long one,
/// it is the end, which tells more.
fn shown_name(row: &ClassReport) -> String {
    let mut shown = printable(&row.name).into_owned();
    let place = row.place.as_deref().map(printable);
    if let Some(place) = place.filter(|place| !shown.contains(&**place)) {
        shown += &format!(" {place}");
    }
    if row.kind == ClassKind::Enum {
        shown += " (enum)";
    }
    if columns(&shown) > NAME {
        shown = format!("…{}", ending(&shown, NAME - 1));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, kind: ClassKind, instances: u64, bytes: u64) -> ClassReport {
        ClassReport {
            name: name.to_owned(),
            kind,
            place: (kind == ClassKind::Closure).then(|| "/srv/app/a.php:12".to_owned()),
            instances,
            bytes,
            held_by: Vec::new(),
        }
    }

    fn held(path: &str, instances: u64) -> HeldByReport {
        HeldByReport {
            path: path.to_owned(),
            instances,
        }
    }

    fn report() -> ClassesReport {
        let mut by_class = vec![
            row("Shop\\Order", ClassKind::Class, 10_007, 1_280_896),
            row(
                "{closure:/srv/app/a.php:12}",
                ClassKind::Closure,
                1000,
                320_000,
            ),
            row(
                "{closure:Shop\\Cart::total():12}",
                ClassKind::Closure,
                5,
                1600,
            ),
            row("Shop\\Suit", ClassKind::Enum, 4, 224),
            row("Generator", ClassKind::Generator, 1, 160),
        ];
        let others = (1..=12).map(|number| {
            let name = format!("{}\u{1b}[2J\\Deep{number}", "Vendor\\".repeat(12));
            row(&name, ClassKind::Class, 1, 160 - number)
        });
        by_class.extend(others);
        by_class[0].held_by = vec![
            held("Shop\\Cache::$items[string key]", 10_000),
            held("[global variable]\u{1b}[2J", 7),
        ];
        by_class[3].held_by = vec![held(&"Deep\\Class::$next → ".repeat(12), 4)];
        ClassesReport {
            is_moment: true,
            reached: Some(ReachedReport {
                objects: 11_000,
                is_whole: true,
            }),
            objects: 11_100,
            bytes: 1_700_000,
            free: 7,
            by_class,
            other_classes: Some(OtherClassesReport {
                classes: 3,
                instances: 71,
                bytes: 96_000,
            }),
            ..ClassesReport::default()
        }
    }

    fn lines(report: &ClassesReport) -> String {
        let mut text = String::new();
        let mut line = |what: &str, said: &str| text += &format!("{what:<8} {said}\n");
        class_lines(report, 4 << 20, &mut line);
        text
    }

    #[test]
    fn lines_have_the_largest_classes_first() {
        insta::assert_snapshot!(lines(&report()));
    }

    #[test]
    fn lines_say_what_is_torn_estimated_or_lost() {
        let report = ClassesReport {
            is_moment: false,
            objects: 5_000_000,
            sampled_of: Some(5_000_123),
            by_class: vec![row("A", ClassKind::Class, 5_000_000, 280_000_000)],
            lost: Some(LostObjectsReport {
                inconsistent: 5,
                unnamed: 2,
                ..LostObjectsReport::default()
            }),
            ..ClassesReport::default()
        };
        insta::assert_snapshot!(lines(&report));
        let none = ClassesReport {
            is_moment: true,
            ..ClassesReport::default()
        };
        assert_eq!(lines(&none).lines().count(), 1);
    }

    #[test]
    fn label_is_read_again_unchanged() {
        for report in [report(), ClassesReport::default()] {
            let report = report.within_a_label();
            assert_eq!(ClassesReport::parse(&report.label()), Some(report));
        }
        assert_eq!(ClassesReport::parse("{"), None);
    }

    #[test]
    fn paths_take_a_part_of_a_label_only() {
        let mut rows = Vec::new();
        for number in (1..=40).rev() {
            let mut row = row(&format!("C{number}"), ClassKind::Class, 1, number);
            row.held_by = vec![held(&"x".repeat(400), 1)];
            rows.push(row);
        }
        let report = ClassesReport {
            by_class: rows,
            ..ClassesReport::default()
        };
        let report = report.within_a_label();
        let with_path = report.by_class.iter().map(|row| row.held_by.len());
        assert_eq!((report.by_class.len(), with_path.sum()), (40, 10));
    }

    #[test]
    fn label_keeps_the_largest_that_have_room() {
        let long = "\\\u{1f600}".repeat(100);
        let mut report = ClassesReport {
            objects: u64::MAX,
            bytes: u64::MAX,
            free: u64::MAX,
            sampled_of: Some(u64::MAX),
            by_class: (1..300)
                .map(|number| row(&long, ClassKind::Closure, u64::MAX, number))
                .collect(),
            other_classes: Some(OtherClassesReport {
                classes: 5,
                instances: u64::MAX,
                bytes: 1,
            }),
            lost: Some(LostObjectsReport {
                unreadable: u64::MAX,
                outside: u64::MAX,
                inconsistent: u64::MAX,
                unnamed: u64::MAX,
                late: u64::MAX,
            }),
            ..ClassesReport::default()
        }
        .within_a_label();
        assert!(report.label().len() <= MAX_STRING);
        let kept = report.by_class.len() as u64;
        assert!(kept > 10 && report.by_class[0].bytes == 299);
        let others = report.other_classes.unwrap_or_default();
        let bytes = 1 + (1..300 - kept).sum::<u64>();
        assert_eq!((others.classes, others.bytes), (5 + 299 - kept, bytes));
        // A single name that has no room.
        report.by_class = vec![row(&"x".repeat(MAX_STRING), ClassKind::Class, 1, 1)];
        assert!(report.within_a_label().by_class.is_empty());
    }
}
