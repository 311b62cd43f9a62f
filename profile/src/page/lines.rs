//! The time of each line of PHP code, for the page's heat map.
//!
//! Samples with other labels have rows of their own, so that the page can leave them out.
//!
//! Invariant: a line that is on a stack several times counts once in its total. There are never
//! more than [`MOST_ROWS`] rows and [`MOST_LINES`] lines: without room, rows no longer tell labels
//! apart, or the page has no lines.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::stacks::{FunctionRef, StackStep};
use crate::waiting::is_php;

/// The most rows, of self times and totals together.
const MOST_ROWS: usize = 150_000;
/// The most lines.
const MOST_LINES: usize = 50_000;
/// The bytes of a page for which one row is kept.
const ROW_BYTES: usize = 1024;
/// The set of labels of rows that do not tell them apart.
const ALL: usize = 0;

/// The file and the number of a line.
type LineKey<'a> = (&'a str, i64);

/// The time of each line while it is added up.
#[derive(Default)]
pub(super) struct LineTables<'a> {
    /// The number of each line, and the function that runs in it.
    lines: HashMap<LineKey<'a>, usize>,
    functions: Vec<usize>,
    /// By line and set of labels.
    own: LineRows,
    total: LineRows,
    is_together: bool,
    is_full: bool,
    most_rows: usize,
    most_lines: usize,
}

type LineRows = HashMap<(usize, usize), Vec<i64>>;

/// The same for the page's script.
#[derive(Serialize)]
pub(super) struct PageLines<'a> {
    /// Whether rows tell labels apart. If not, they are of all samples.
    apart: bool,
    /// File, number and function of each line.
    lines: Vec<(&'a str, i64, usize)>,
    /// Line, set of labels and values of each row, in sequence.
    own: Vec<i64>,
    total: Vec<i64>,
}

impl<'a> LineTables<'a> {
    /// For a page of this many bytes. Rows take about a tenth of it in memory.
    pub fn within(room: usize) -> Self {
        LineTables {
            most_rows: MOST_ROWS.min(room / ROW_BYTES),
            most_lines: MOST_LINES.min(room / ROW_BYTES),
            ..LineTables::default()
        }
    }

    /// Adds the values of a stack, root first, with this set of labels.
    pub fn add(
        &mut self,
        functions: &[FunctionRef<'a>],
        steps: &[StackStep],
        set: usize,
        values: &[i64],
    ) {
        let set = if self.is_together { ALL } else { set };
        let mut seen = HashSet::new();
        for (depth, (function, line)) in steps.iter().enumerate() {
            let file = functions.get(*function).map_or("", |it| it.file);
            if *line <= 0 || !is_php(file) || self.is_full {
                continue;
            }
            let number = self.number((file, *line), *function);
            if depth + 1 == steps.len() {
                add(&mut self.own, number, set, values);
            }
            if seen.insert(number) {
                add(&mut self.total, number, set, values);
            }
        }
        self.make_room();
    }

    fn number(&mut self, key: LineKey<'a>, function: usize) -> usize {
        let next = self.functions.len();
        let number = *self.lines.entry(key).or_insert(next);
        if number == next {
            self.functions.push(function);
        }
        number
    }

    fn make_room(&mut self) {
        self.is_full |= self.functions.len() > self.most_lines;
        if self.is_full {
            (self.own, self.total) = Default::default();
        } else if !self.is_together && self.own.len() + self.total.len() > self.most_rows {
            self.is_together = true;
            for rows in [&mut self.own, &mut self.total] {
                for ((line, _), values) in std::mem::take(rows) {
                    add(rows, line, ALL, &values);
                }
            }
        }
    }

    /// `None` if there are too many lines, or none.
    pub fn finish(self) -> Option<PageLines<'a>> {
        if self.is_full || self.functions.is_empty() {
            return None;
        }
        let mut lines = vec![("", 0, 0); self.functions.len()];
        for ((file, line), number) in self.lines {
            let function = self.functions.get(number).copied().unwrap_or(0);
            if let Some(place) = lines.get_mut(number) {
                *place = (file, line, function);
            }
        }
        Some(PageLines {
            apart: !self.is_together,
            lines,
            own: in_order(self.own),
            total: in_order(self.total),
        })
    }
}

fn add(rows: &mut LineRows, line: usize, set: usize, values: &[i64]) {
    let sums = rows.entry((line, set)).or_default();
    sums.resize(sums.len().max(values.len()), 0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}

/// Equal profiles give equal pages.
fn in_order(rows: LineRows) -> Vec<i64> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable();
    let number = |index: usize| i64::try_from(index).unwrap_or(i64::MAX);
    let rows = rows.into_iter().flat_map(|((line, set), values)| {
        let ids = [line, set].map(number);
        ids.into_iter().chain(values)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: [FunctionRef<'static>; 3] = [
        FunctionRef {
            name: "{main}",
            file: "/srv/index.php",
            start_line: 0,
        },
        FunctionRef {
            name: "walk",
            file: "/srv/walk.php",
            start_line: 3,
        },
        FunctionRef {
            name: "md5",
            file: "<internal:standard>",
            start_line: 0,
        },
    ];

    /// The rows of a list as line, set and first value.
    fn rows(list: &[i64]) -> Vec<[i64; 3]> {
        let rows = list.chunks(3);
        rows.map(|row| [row[0], row[1], row[2]]).collect()
    }

    #[test]
    fn a_line_counts_once_per_stack() {
        let mut tables = LineTables::within(usize::MAX);
        let stack = [(0, 7), (1, 4), (1, 4), (1, 5)];
        tables.add(&FUNCTIONS, &stack, 2, &[10]);
        tables.add(&FUNCTIONS, &[(0, 7), (1, 4), (2, 0)], 2, &[30]);
        let found = tables.finish().unwrap();
        let lines = [
            ("/srv/index.php", 7, 0),
            ("/srv/walk.php", 4, 1),
            ("/srv/walk.php", 5, 1),
        ];
        assert_eq!(found.lines, lines);
        // Code written in C has no line.
        assert_eq!(rows(&found.own), [[2, 2, 10]]);
        assert_eq!(rows(&found.total), [[0, 2, 40], [1, 2, 40], [2, 2, 10]]);
    }

    #[test]
    fn many_sets_of_labels_become_one() {
        let mut tables = LineTables::within(usize::MAX);
        let count = MOST_ROWS / 2 + 2;
        for set in 0..count {
            tables.add(&FUNCTIONS, &[(0, 7)], set, &[1]);
        }
        let found = tables.finish().unwrap();
        assert!(!found.apart);
        let all = count as i64;
        assert_eq!(rows(&found.own), [[0, 0, all]]);
        assert_eq!(rows(&found.total), [[0, 0, all]]);
    }

    #[test]
    fn too_many_lines_are_left_out() {
        let mut tables = LineTables::within(usize::MAX);
        for line in 0..MOST_LINES as i64 + 10 {
            tables.add(&FUNCTIONS, &[(0, line + 1)], 0, &[1]);
        }
        assert!(tables.own.is_empty() && tables.finish().is_none());
    }
}
