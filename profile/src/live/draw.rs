//! Draws a table: a head, the rows, and the keys.
//!
//! It uses the terminal's own colours and background, so it is readable on light and dark ones.
//! With `NO_COLOR` it uses only bold and reverse. Invariant: the picture fits any size, and shows
//! the end of a long name.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table, TableState};

use super::sums::{ShareTrend, Tab};
use super::text::{fitted, percent, share, time, width};
use super::top::{LiveRow, LiveTop, ShownTime, SortColumn};

/// The width of shares and of times. Columns are separated by a space.
const SHARE: u16 = 7;
const TIME: u16 = 8;
const SPACE: u16 = 1;
/// The narrowest table that shows a name's place next to the name.
const WIDE: u16 = 110;
/// The share in percent from which a row is highlighted.
const MUCH: f64 = 20.0;

const TITLES: [&str; 4] = ["Functions", "Lines", "Routes", "Workers"];

/// How the table is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Without colour, bold and reverse show the same.
    pub has_colour: bool,
}

impl Theme {
    /// The theme for this environment (no-color.org).
    #[must_use]
    pub fn of_environment() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            has_colour: !unwanted,
        }
    }

    fn much(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.has_colour {
            style.fg(Color::Red)
        } else {
            style
        }
    }
}

const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws the table.
pub fn draw(top: &LiveTop, theme: Theme, frame: &mut Frame<'_>) {
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, tabs, table, foot] = rows.areas(frame.area());
    frame.render_widget(title(top, head.width), head);
    frame.render_widget(tabs_line(top, theme), tabs);
    draw_table(top, theme, frame, table);
    frame.render_widget(keys(top), foot);
}

/// What is sampled, for how long, and how busy it is.
fn title(top: &LiveTop, columns: u16) -> Line<'static> {
    let sums = top.shown();
    let ratio = |time: i64| match sums.span {
        0 => 0.0,
        span => time as f64 / span as f64,
    };
    let [wall, cpu] = sums.now.map(ratio);
    let since = time(sums.spans);
    let numbers = format!("{wall:.1} workers busy, {cpu:.1} CPU, {since} ");
    let room = usize::from(columns).saturating_sub(width(&numbers) + 1);
    let name = fitted(&format!("phpprof top  {}", top.title), room);
    let gap = room.saturating_sub(width(&name)) + 1;
    Line::from(vec![
        Span::styled(name, STRONG),
        Span::raw(" ".repeat(gap) + &numbers),
    ])
}

fn tabs_line(top: &LiveTop, theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (index, (tab, title)) in Tab::ALL.into_iter().zip(TITLES).enumerate() {
        let style = if tab == top.tab {
            HEAD.patch(STRONG)
        } else {
            Style::new()
        };
        spans.push(Span::styled(format!(" {} {title} ", index + 1), style));
    }
    let clock = match top.clock {
        ShownTime::Wall => "wall",
        ShownTime::Cpu => "CPU",
    };
    spans.push(Span::raw(format!("  {clock} time")));
    if top.is_paused() {
        spans.push(Span::raw("  "));
        spans.push(Span::styled("paused", theme.much()));
    }
    if top.is_typing || !top.filter.is_empty() {
        let cursor = if top.is_typing { "_" } else { "" };
        let filter = crate::text::printable(&top.filter);
        spans.push(Span::raw(format!("  /{filter}{cursor}")));
    }
    Line::from(spans)
}

fn draw_table(top: &LiveTop, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let rows = top.rows();
    let at = top.at.min(rows.len().saturating_sub(1));
    let columns = SortColumn::of(top.tab);
    let numbers = columns.len() - 1;
    let is_wide = area.width >= WIDE || top.tab == Tab::Workers;
    let taken: u16 = columns.iter().filter_map(|column| size(*column)).sum();
    let taken = taken + SPACE * u16::try_from(numbers).unwrap_or(u16::MAX);
    let room = area.width.saturating_sub(taken);
    let (name, place) = match (is_wide, top.tab) {
        (true, Tab::Routes) | (false, _) => (room, 0),
        (true, Tab::Workers) => (room / 3, room - room / 3 - SPACE.min(room)),
        (true, _) => (room * 3 / 5, room - room * 3 / 5 - SPACE.min(room)),
    };
    let mut widths: Vec<_> = columns.iter().filter_map(|column| size(*column)).collect();
    widths.push(name);
    widths.extend((place > 0).then_some(place));
    let head = head(top, is_wide);
    // Only visible rows are built, because there may be thousands.
    let seen = usize::from(area.height.saturating_sub(1)).max(1);
    let first = at.saturating_sub(seen - 1);
    let cells = rows.iter().skip(first).take(seen);
    let cells = cells.map(|row| cells_of(top, theme, row, name, place));
    let table = Table::new(cells, widths)
        .header(head)
        .column_spacing(SPACE)
        .row_highlight_style(HEAD);
    let mut state = TableState::new().with_selected((top.at > 0).then_some(at - first));
    frame.render_stateful_widget(table, area, &mut state);
    if rows.is_empty() {
        let below = Rect {
            y: area.y + area.height.min(2),
            height: area.height.saturating_sub(2),
            ..area
        };
        frame.render_widget(Paragraph::new(nothing(top)).centered(), below);
    }
}

fn nothing(top: &LiveTop) -> &'static str {
    match (top.shown().ticks, top.filter.is_empty()) {
        (0, _) => "waiting for the first second",
        (_, false) => "no row's name contains this; Esc shows all rows",
        (_, true) => "nothing has run yet",
    }
}

/// The column's width, if it is fixed.
fn size(column: SortColumn) -> Option<u16> {
    match column {
        SortColumn::FlatNow | SortColumn::CumNow => Some(SHARE),
        SortColumn::Flat | SortColumn::Cum => Some(TIME),
        SortColumn::Name => None,
    }
}

fn head(top: &LiveTop, is_wide: bool) -> Cells<'static> {
    let (sorted, reversed) = top.sorted();
    let cell = |column: SortColumn| {
        let text = match (column, top.tab) {
            (SortColumn::FlatNow, Tab::Workers) => "BUSY%",
            (SortColumn::FlatNow, Tab::Routes) => "NOW%",
            (SortColumn::FlatNow, _) => "SELF%",
            (SortColumn::CumNow, _) => "TOTAL%",
            (SortColumn::Flat, Tab::Routes | Tab::Workers) => "TIME",
            (SortColumn::Flat, _) => "SELF",
            (SortColumn::Cum, _) => "TOTAL",
            (SortColumn::Name, Tab::Functions) => "FUNCTION",
            (SortColumn::Name, Tab::Lines) => "LINE",
            (SortColumn::Name, Tab::Routes) => "ROUTE",
            (SortColumn::Name, Tab::Workers) => "WORKER",
        };
        let mark = match (column == sorted, reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let style = if column == sorted {
            HEAD.patch(STRONG)
        } else {
            HEAD
        };
        Cell::new(aligned(format!("{text}{mark}"), column)).style(style)
    };
    let mut cells: Vec<_> = SortColumn::of(top.tab).iter().copied().map(cell).collect();
    let place = match top.tab {
        Tab::Functions => "FILE",
        Tab::Lines => "FUNCTION",
        Tab::Routes => "",
        Tab::Workers => "DOES NOW",
    };
    if is_wide {
        cells.push(Cell::new(place));
    }
    Cells::new(cells).style(HEAD)
}

/// Aligns numbers to the right and names to the left.
fn aligned(text: String, column: SortColumn) -> Line<'static> {
    match column {
        SortColumn::Name => Line::from(text),
        _ => Line::from(text).alignment(Alignment::Right),
    }
}

fn cells_of(
    top: &LiveTop,
    theme: Theme,
    row: &LiveRow<'_>,
    name: u16,
    place: u16,
) -> Cells<'static> {
    let sums = top.shown();
    let whole = match top.tab {
        Tab::Workers => sums.span,
        _ => sums.now[top.clock as usize],
    };
    let cell = |column: SortColumn| {
        let text = match column {
            SortColumn::FlatNow => trended(share(row.flat_now, whole), row.trend),
            SortColumn::CumNow => share(row.cum_now, whole),
            SortColumn::Flat => time(row.flat),
            SortColumn::Cum => time(row.cum),
            SortColumn::Name => fitted(row.name, usize::from(name)),
        };
        let is_much = percent(row.flat_now, whole).is_some_and(|share| share >= MUCH);
        let style = match column {
            SortColumn::FlatNow if is_much && top.tab != Tab::Workers => theme.much(),
            SortColumn::Name if row.cum_now == 0 => FAINT,
            _ => Style::new(),
        };
        Cell::new(aligned(text, column)).style(style)
    };
    let mut cells: Vec<_> = SortColumn::of(top.tab).iter().copied().map(cell).collect();
    if place > 0 {
        cells.push(Cell::new(fitted(row.place, usize::from(place))).style(FAINT));
    }
    Cells::new(cells)
}

/// A share with the arrow of its trend.
fn trended(share: String, trend: Option<ShareTrend>) -> String {
    match trend {
        Some(ShareTrend::Rose) => format!("↑ {share}"),
        Some(ShareTrend::Fell) => format!("↓ {share}"),
        None => share,
    }
}

fn keys(top: &LiveTop) -> Line<'static> {
    if !top.said.is_empty() {
        return Line::from(Span::styled(
            crate::text::printable(&top.said).into_owned(),
            STRONG,
        ));
    }
    let keys = if top.is_typing {
        "type part of a name   Enter keep   Esc all rows"
    } else {
        "q quit  s save  p pause  u update  r reset  / find  < > sort  i invert  c clock"
    };
    Line::from(Span::styled(keys, FAINT))
}
