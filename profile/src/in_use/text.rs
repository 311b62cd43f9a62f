//! The report on what is in heaps as text, as JSON and as Markdown.
//!
//! Invariant: a name of the profile begins no line and moves no cursor, and in Markdown, it is in a
//! code span that it cannot end.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::amount::InUseAmount;
use super::report::{InUseClass, InUsePath, InUseReport};
use crate::text::{columns, ending, mebibytes, printable};

/// The classes and paths in the text. JSON has all of the report.
const CLASSES: usize = 15;
const PATHS: usize = 15;
/// The fewest columns of a name.
const NARROW: usize = 20;
/// The most letters of a name in Markdown.
const NAME: usize = 160;

/// A row of either list.
struct InUseRow<'a> {
    name: Cow<'a, str>,
    now: InUseAmount,
    before: Option<InUseAmount>,
}

impl<'a> InUseRow<'a> {
    fn of_class(class: &'a InUseClass) -> Self {
        InUseRow {
            name: Cow::Borrowed(&class.class),
            now: class.now,
            before: class.before,
        }
    }

    fn of_path(path: &'a InUsePath) -> Self {
        InUseRow {
            name: Cow::Owned(path.text()),
            now: path.now,
            before: path.before,
        }
    }
}

impl InUseReport {
    /// For a terminal of this width, or without a limit.
    #[must_use]
    pub fn text(&self, width: Option<usize>) -> String {
        let mut text = String::new();
        for (key, words) in self.facts() {
            text += &format!("{key:<9}{words}\n");
        }
        for loss in &self.losses {
            text += &format!("{:<9}{loss}\n", "note");
        }
        let (classes, more) = self.class_rows();
        text += &self.table("CLASS", &classes, width);
        if more > 0 {
            text += &format!("{more} more classes\n");
        }
        let paths: Vec<_> = self
            .paths
            .iter()
            .take(PATHS)
            .map(InUseRow::of_path)
            .collect();
        text += &self.table("REACHED THROUGH", &paths, width);
        text
    }

    /// As data, with what to do.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut value = json!(self);
        for (row, path) in value["paths"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .zip(&self.paths)
        {
            row["path"] = json!(path.text());
        }
        value["advice"] = json!(self.advice());
        value
    }

    /// For a comment or an issue, below a title.
    #[must_use]
    pub fn markdown(&self, title: &str) -> String {
        let mut text = format!("### {}\n\n", code(title));
        for (key, words) in self.facts() {
            text += &format!("- {key}: {words}\n");
        }
        for loss in &self.losses {
            text += &format!("- note: {loss}\n");
        }
        let (classes, _) = self.class_rows();
        text += &self.markdown_table("class", &classes);
        let paths: Vec<_> = self
            .paths
            .iter()
            .take(PATHS)
            .map(InUseRow::of_path)
            .collect();
        text += &self.markdown_table("reached through, on a shortest path", &paths);
        text
    }

    /// The first classes, and how many more there are. In a comparison, only those that changed.
    fn class_rows(&self) -> (Vec<InUseRow<'_>>, usize) {
        let is_shown = |it: &&InUseClass| it.before != Some(it.now);
        let changed = self.classes.iter().filter(is_shown);
        let more = changed.clone().count().saturating_sub(CLASSES) + self.more_classes;
        (
            changed.take(CLASSES).map(InUseRow::of_class).collect(),
            more,
        )
    }

    /// What was read, and how much it is.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let read = &self.read;
        let signed = |it: i64| mebibytes(it.unsigned_abs());
        let mut held = format!("{}, {}", counted(self.held.count), signed(self.held.bytes));
        if let Some(before) = self.held_before {
            held += &format!(
                "; before {}, {}",
                counted(before.count),
                signed(before.bytes)
            );
        }
        vec![
            (
                "read",
                format!(
                    "{}: {}, {} torn",
                    many(read.workers, "worker"),
                    many(read.moments, "moment"),
                    read.torn()
                ),
            ),
            (
                "heaps",
                format!(
                    "{} in use (memory_get_usage), {} of free elements and pages",
                    mebibytes(read.heap_bytes),
                    mebibytes(read.free_bytes)
                ),
            ),
            ("held", held),
        ]
    }

    fn heads(&self) -> [&'static str; 3] {
        if self.held_before.is_some() {
            ["GROWTH", "BYTES", "COUNT"]
        } else {
            ["BYTES", "OF ALL", "COUNT"]
        }
    }

    fn cells(&self, row: &InUseRow<'_>) -> [String; 3] {
        let bytes = mebibytes(row.now.bytes.unsigned_abs());
        match row.before {
            Some(before) => {
                let grown = row.now.since(before);
                [
                    signed_mebibytes(grown.bytes),
                    bytes,
                    format!("{:+}", grown.count),
                ]
            }
            None => {
                let share = 100.0 * row.now.bytes as f64 / self.held.bytes.max(1) as f64;
                [bytes, format!("{share:.1} %"), row.now.count.to_string()]
            }
        }
    }

    fn table(&self, name: &str, rows: &[InUseRow<'_>], width: Option<usize>) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let line = |cells: [&str; 3], name: &str| {
            let [one, two, three] = cells;
            let head = format!("{one:>11}  {two:>11}  {three:>10}  ");
            let room = width.map_or(usize::MAX, |width| {
                width.saturating_sub(columns(&head)).max(NARROW)
            });
            format!("{head}{}\n", cut(name, room))
        };
        let mut text = format!("\n{}", line(self.heads(), name));
        for row in rows {
            let cells = self.cells(row);
            text += &line(cells.each_ref().map(String::as_str), &printable(&row.name));
        }
        text
    }

    fn markdown_table(&self, name: &str, rows: &[InUseRow<'_>]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let [one, two, three] = self.heads().map(str::to_lowercase);
        let mut text = format!("\n| {one} | {two} | {three} | {name} |\n|---:|---:|---:|---|\n");
        for row in rows {
            let [one, two, three] = self.cells(row);
            text += &format!("| {one} | {two} | {three} | {} |\n", code(&row.name));
        }
        text
    }
}

fn many(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn counted(count: i64) -> String {
    format!("{count} objects, arrays and strings")
}

fn signed_mebibytes(bytes: i64) -> String {
    let sign = match bytes.signum() {
        1 => "+",
        -1 => "-",
        _ => "",
    };
    format!("{sign}{}", mebibytes(bytes.unsigned_abs()))
}

/// The end of a name that is too long: it says what is held.
fn cut(name: &str, room: usize) -> String {
    if columns(name) <= room {
        return name.to_owned();
    }
    format!("…{}", ending(name, room.saturating_sub(1)))
}

/// A name in a code span of a table.
fn code(name: &str) -> String {
    let shown = printable(name).replace('`', "'").replace('|', "\\|");
    let shown = cut(&shown, NAME);
    format!("`{shown}`")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
