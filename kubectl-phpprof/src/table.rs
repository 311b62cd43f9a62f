//! Tables as in kubectl, cut to the width of the screen if there is one.
//!
//! It knows nothing about the content of cells.
//!
//! Invariant: columns that identify rows (names, reasons) are never cut; if a table is still too
//! wide, its lines wrap, as in kubectl. No cell can move the cursor or begin a line, whatever names
//! a target has.

/// The smallest width to which a column is cut.
const SMALLEST: usize = 6;
const GAP: usize = 3;

#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<TableColumn>,
    rows: Vec<Vec<String>>,
    /// The smallest width of each column, from earlier rows.
    least: Vec<usize>,
}

/// The head of a column, and how it shrinks. Marks before the head specify this.
#[derive(Clone, Debug, Default)]
struct TableColumn {
    head: String,
    /// `>`: aligned to the right, for numbers.
    right: bool,
    /// `~`: the ends of its cells may be cut.
    end: bool,
    /// `<`: the beginnings of its cells may be cut, because they say less.
    beginning: bool,
    /// `?`: it may be left out.
    optional: bool,
}

impl TableColumn {
    fn of(marked: &str) -> Self {
        let head = marked.trim_start_matches(['>', '~', '<', '?']);
        let marks = marked.strip_suffix(head).unwrap_or_default();
        TableColumn {
            head: head.to_owned(),
            right: marks.contains('>'),
            end: marks.contains('~'),
            beginning: marks.contains('<'),
            optional: marks.contains('?'),
        }
    }

    fn gives_way(&self) -> bool {
        self.end || self.beginning
    }

    fn fit(&self, cell: &str, width: usize) -> String {
        if self.beginning {
            cut_beginning(cell, width)
        } else {
            cut(cell, width)
        }
    }
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Table {
            columns: heads.iter().map(|head| TableColumn::of(head)).collect(),
            ..Table::default()
        }
    }

    /// A table whose heads have no marks, even if they begin like one. Nothing of it is cut or left
    /// out.
    pub fn plain(heads: impl Iterator<Item = String>) -> Self {
        let column = |head: String| TableColumn {
            head: printable(&head),
            ..TableColumn::default()
        };
        Table {
            columns: heads.map(column).collect(),
            ..Table::default()
        }
    }

    /// Makes columns as wide as in all earlier tables with these widths, so that their rows are
    /// aligned.
    pub fn below(&mut self, widths: &mut Vec<usize>) {
        widths.resize(self.columns.len(), 0);
        self.least.clone_from(widths);
        for (index, width) in widths.iter_mut().enumerate() {
            *width = self.natural(index);
        }
        self.least.clone_from(widths);
    }

    fn natural(&self, index: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        let heads = self.columns.get(index).map(|column| &column.head);
        let least = self.least.get(index).copied();
        cells
            .chain(heads)
            .map(|cell| length(cell))
            .chain(least)
            .max()
            .unwrap_or(0)
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// The table with its heads, in at most `width` columns if there is a width.
    pub fn text(&self, width: Option<usize>) -> String {
        let heads = self
            .columns
            .iter()
            .map(|column| column.head.clone())
            .collect();
        self.lines(width, Some(heads))
    }

    /// Only the rows, as wide as with their heads.
    pub fn rows_only(&self, width: Option<usize>) -> String {
        self.lines(width, None)
    }

    fn lines(&self, width: Option<usize>, heads: Option<Vec<String>>) -> String {
        let widths = self.widths(width.unwrap_or(usize::MAX));
        let mut text = String::new();
        for row in heads.iter().chain(&self.rows) {
            let mut line = String::new();
            for ((index, column), width) in self.columns.iter().enumerate().zip(&widths) {
                let Some(width) = *width else { continue };
                let cell = column.fit(row.get(index).map_or("", String::as_str), width);
                let padding = " ".repeat(width.saturating_sub(length(&cell)));
                if !line.is_empty() {
                    line.push_str(&" ".repeat(GAP));
                }
                if column.right {
                    line.push_str(&padding);
                    line.push_str(&cell);
                } else {
                    line.push_str(&cell);
                    line.push_str(&padding);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Removes optional columns first, from the right. Then it cuts the widest columns that may be
    /// cut. `None` means that a column is left out.
    fn widths(&self, limit: usize) -> Vec<Option<usize>> {
        let columns = 0..self.columns.len();
        let mut widths: Vec<Option<usize>> =
            columns.map(|index| Some(self.natural(index))).collect();
        let least = |column: &TableColumn, width: usize| {
            if column.gives_way() {
                width.min(SMALLEST.max(length(&column.head)))
            } else {
                width
            }
        };
        while needed(
            self.columns
                .iter()
                .zip(&widths)
                .filter_map(|(column, width)| Some(least(column, (*width)?))),
        ) > limit
        {
            let optional = self
                .columns
                .iter()
                .enumerate()
                .rev()
                .find(|(index, column)| {
                    column.optional && widths.get(*index).is_some_and(Option::is_some)
                });
            match optional.and_then(|(index, _)| widths.get_mut(index)) {
                Some(width) => *width = None,
                None => break,
            }
        }
        loop {
            let over = needed(widths.iter().flatten().copied()).saturating_sub(limit);
            let candidates = self
                .columns
                .iter()
                .zip(&mut widths)
                .filter_map(|(column, width)| {
                    let width = width
                        .as_mut()
                        .filter(|width| column.gives_way() && **width > least(column, **width))?;
                    Some(width)
                });
            match candidates.max() {
                Some(widest) if over > 0 => *widest -= 1,
                _ => return widths,
            }
        }
    }
}

/// The width of these columns with the gaps between them.
fn needed(widths: impl Iterator<Item = usize>) -> usize {
    let (count, sum) = widths.fold((0, 0), |(count, sum), width| (count + 1, sum + width));
    sum + GAP * usize::saturating_sub(count, 1)
}

/// A name without characters that would move the cursor, change colours or begin a line.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if unprintable(letter) {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}

/// Control characters, and those that change the direction of text.
fn unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

fn length(text: &str) -> usize {
    console::measure_text_width(text)
}

/// The text in `width` columns. A longer one loses its end.
pub fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for letter in text.chars() {
        let mut longer = short.clone();
        longer.push(letter);
        if length(&longer) + 1 > width {
            break;
        }
        short = longer;
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// The text in `width` columns. A longer one loses its beginning.
pub fn cut_beginning(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let backwards: String = text.chars().rev().collect();
    cut(&backwards, width).chars().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", ">SAMPLES", "~URL"]);
        table.row(vec![
            "web-x2x4z".into(),
            "2970".into(),
            "s3://bucket/phpprof/shop/web-x2x4z/merged.pb.gz".into(),
        ]);
        table.row(vec![
            "a\u{1b}[31m\nb\u{202e}".into(),
            "7".into(),
            String::new(),
        ]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_they_must() {
        assert_eq!(
            table().text(None),
            "NAME        SAMPLES   URL\n\
             web-x2x4z      2970   s3://bucket/phpprof/shop/web-x2x4z/merged.pb.gz\n\
             a\u{fffd}[31m\u{fffd}b\u{fffd}         7\n"
        );
    }

    #[test]
    fn the_widest_column_gives_way() {
        assert_eq!(
            table().text(Some(40)),
            "NAME        SAMPLES   URL\n\
             web-x2x4z      2970   s3://bucket/phppr…\n\
             a\u{fffd}[31m\u{fffd}b\u{fffd}         7\n"
        );
    }

    #[test]
    fn optional_columns_go_before_others_are_cut_away() {
        let mut table = Table::new(&["POD", "?NODE", "<FUNCTION", ">?LATE"]);
        table.row(vec![
            "web-x2x4z".into(),
            "node-1".into(),
            r"Shop\Cart::total".into(),
            "3".into(),
        ]);
        let lines = |width| {
            table
                .text(Some(width))
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(41)[1], r"web-x2x4z   node-1   …\Cart::total      3");
        assert_eq!(lines(30)[1], r"web-x2x4z   node-1   …t::total");
        assert_eq!(lines(22)[1], r"web-x2x4z   …rt::total");
        assert_eq!(
            lines(5)[1],
            r"web-x2x4z   …::total",
            "what tells rows apart is never cut"
        );
    }

    #[test]
    fn later_rows_stand_below_the_earlier_ones() {
        let mut widths = Vec::new();
        let mut table = |name: &str| {
            let mut table = Table::new(&["NAME", ">PODS"]);
            table.row(vec![name.into(), "1".into()]);
            table.below(&mut widths);
            table.rows_only(None)
        };
        assert_eq!(table("web-x2x4z"), "web-x2x4z      1\n");
        assert_eq!(table("a"), "a              1\n");
    }

    #[test]
    fn wide_letters_count_twice() {
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 6), "日本語");
    }
}
