//! What the table shows, and what each key changes. It is pure.
//!
//! Invariant: a pause freezes the table but loses nothing: later samples are in the sums and in the
//! saved profile.

use std::cmp::Ordering;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sums::{Name, ShareTrend, Sum, Sums, Tab};
use crate::proto::Profile;
use crate::{MergeError, MergeLimits, Merger, Settings, TrustedMetadata};

/// The bounds of the saved profile.
const LIMITS: MergeLimits = MergeLimits {
    rows: 200_000,
    bytes: 48 << 20,
};
/// The longest filter.
const LONGEST_FILTER: usize = 100;
const PAGE: usize = 10;

/// Which time is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownTime {
    /// Time that passed.
    #[default]
    Wall,
    /// Time on a CPU.
    Cpu,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortColumn {
    /// The self time in the last tick.
    FlatNow,
    /// The time in the last tick, including callees.
    CumNow,
    /// The self time since the beginning.
    Flat,
    /// The time since the beginning, including callees.
    Cum,
    /// Alphabetically.
    Name,
}

impl SortColumn {
    /// The columns of a table, from left to right.
    pub fn of(tab: Tab) -> &'static [SortColumn] {
        match tab {
            Tab::Functions | Tab::Lines => &[
                SortColumn::FlatNow,
                SortColumn::CumNow,
                SortColumn::Flat,
                SortColumn::Cum,
                SortColumn::Name,
            ],
            Tab::Routes | Tab::Workers => {
                &[SortColumn::FlatNow, SortColumn::Flat, SortColumn::Name]
            }
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRow<'a> {
    /// The name of the function, line, route or worker.
    pub name: &'a str,
    /// The file of a function, the function of a line, or what a worker does.
    pub place: &'a str,
    /// The self time in the last tick, in nanoseconds of the chosen clock.
    pub flat_now: i64,
    /// The time in the last tick, including callees.
    pub cum_now: i64,
    /// The self time since the beginning.
    pub flat: i64,
    /// The time since the beginning, including callees.
    pub cum: i64,
    /// Whether its share of self time rose or fell by more than chance from the last window but
    /// one to the last one.
    pub trend: Option<ShareTrend>,
}

/// What the owner of the terminal has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw the table again.
    None,
    /// Ask for what was sampled since the last tick, and draw the whole terminal again.
    Refresh,
    /// Write [`LiveTop::file`].
    Save,
    /// Restore the terminal and end.
    Quit,
}

/// The table's state.
#[derive(Clone, Debug)]
pub struct LiveTop {
    /// What is sampled, in a few words.
    pub title: String,
    sums: Sums,
    held: Option<Box<Sums>>,
    merged: Merger,
    /// Unix nanoseconds of the first tick.
    began: Option<i64>,
    /// The selected table.
    pub tab: Tab,
    /// Which time is shown.
    pub clock: ShownTime,
    /// For each tab: the column, and whether the order is reversed.
    sorted: [(usize, bool); 4],
    /// Only rows whose name or place contains this are shown; empty for all.
    pub filter: String,
    /// Whether the filter is being typed.
    pub is_typing: bool,
    /// The selected row.
    pub at: usize,
    /// The last action, or a problem.
    pub said: String,
}

impl LiveTop {
    /// A table without rows, by wall time.
    #[must_use]
    pub fn new(title: String) -> Self {
        Self {
            title,
            sums: Sums::default(),
            held: None,
            merged: Merger::new(&Settings::default(), 1, LIMITS, &[]),
            began: None,
            tab: Tab::Functions,
            clock: ShownTime::Wall,
            sorted: [(0, false); 4],
            filter: String::new(),
            is_typing: false,
            at: 0,
            said: String::new(),
        }
    }

    /// Adds the samples since the previous tick, from one or several samplers. The tick has this
    /// length.
    ///
    /// # Errors
    /// A profile has other sample types. The profiles before it are added.
    pub fn add(&mut self, mut profiles: Vec<Profile>, span: Duration) -> Result<(), MergeError> {
        for profile in &mut profiles {
            // A sampler's comment on one second does not apply to the sum.
            profile.comment.clear();
            let began = *self.began.get_or_insert(profile.time_nanos);
            let until = profile.time_nanos.saturating_add(profile.duration_nanos);
            let known = TrustedMetadata {
                labels: Vec::new(),
                time_nanos: profile.time_nanos,
                duration_nanos: until.saturating_sub(began),
            };
            self.merged.add(profile, &known)?;
        }
        let span = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        self.sums.add(&profiles, span);
        Ok(())
    }

    /// All samples as a pprof file.
    ///
    /// # Errors
    /// Nothing was sampled yet.
    pub fn file(&self) -> Result<Vec<u8>, MergeError> {
        self.merged.clone().finish().map(|merged| merged.file)
    }

    /// Whether the table is frozen.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn shown(&self) -> &Sums {
        self.held.as_deref().unwrap_or(&self.sums)
    }

    /// The column that rows are sorted by, and whether the order is reversed.
    #[must_use]
    pub fn sorted(&self) -> (SortColumn, bool) {
        let (index, reversed) = self.sorted[self.tab as usize];
        let column = SortColumn::of(self.tab).get(index).copied();
        (column.unwrap_or(SortColumn::Name), reversed)
    }

    /// The rows that match the filter, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<LiveRow<'_>> {
        let wanted = self.filter.to_lowercase();
        let fits = |text: &str| text.to_lowercase().contains(&wanted);
        let rows = self.shown().table(self.tab).iter();
        let rows = rows.map(|(name, sum)| self.row(name, sum));
        let mut rows: Vec<_> = rows
            .filter(|row| wanted.is_empty() || fits(row.name) || fits(row.place))
            .collect();
        let (column, reversed) = self.sorted();
        rows.sort_unstable_by(|one, other| {
            let order = compare(one, other, column);
            if reversed { order.reverse() } else { order }
        });
        rows
    }

    fn row<'a>(&self, (name, place): &'a Name, sum: &'a Sum) -> LiveRow<'a> {
        let clock = self.clock as usize;
        LiveRow {
            name,
            place: match self.tab {
                Tab::Workers => &sum.doing,
                _ => place,
            },
            flat_now: sum.now.flat[clock],
            cum_now: sum.now.cum[clock],
            flat: sum.all.flat[clock],
            cum: sum.all.cum[clock],
            trend: self.shown().trend(self.tab, sum, clock),
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        self.said.clear();
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Action::Quit,
            code if self.is_typing => self.type_filter(code),
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('s') => return Action::Save,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Char(' ' | 'p') => {
                self.held = match self.held {
                    Some(_) => None,
                    None => Some(Box::new(self.sums.clone())),
                }
            }
            KeyCode::Char('c') => {
                self.clock = match self.clock {
                    ShownTime::Wall => ShownTime::Cpu,
                    ShownTime::Cpu => ShownTime::Wall,
                }
            }
            KeyCode::Char('r') => self.reset(),
            KeyCode::Char('u') | KeyCode::F(5) => {
                // A frozen table shows the newest state once.
                if let Some(held) = &mut self.held {
                    **held = self.sums.clone();
                }
                return Action::Refresh;
            }
            KeyCode::Char('i') => {
                let (_, reversed) = &mut self.sorted[self.tab as usize];
                *reversed = !*reversed;
            }
            KeyCode::Char('>') | KeyCode::Right => self.sort(1),
            KeyCode::Char('<') | KeyCode::Left => self.sort(-1),
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Tab::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => {
                let index = digit as usize - '1' as usize;
                self.show(Tab::ALL[index]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.at = self.at.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.at = self.at.saturating_sub(1),
            KeyCode::PageDown => self.at = self.at.saturating_add(PAGE),
            KeyCode::PageUp => self.at = self.at.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.at = 0,
            KeyCode::End | KeyCode::Char('G') => self.at = usize::MAX,
            _ => {}
        }
        self.at = self.at.min(self.rows().len().saturating_sub(1));
        Action::None
    }

    /// Forgets what was sampled. Filter, columns and clock stay.
    fn reset(&mut self) {
        let empty = Self::new(String::new());
        (self.sums, self.held) = (empty.sums, None);
        (self.merged, self.began) = (empty.merged, None);
        "reset: all sums begin now".clone_into(&mut self.said);
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.set_filter(String::new());
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < LONGEST_FILTER => {
                self.filter.push(letter);
                self.at = 0;
            }
            _ => {}
        }
    }

    fn set_filter(&mut self, filter: String) {
        (self.filter, self.at) = (filter, 0);
    }

    fn sort(&mut self, by: isize) {
        let last = SortColumn::of(self.tab).len() - 1;
        let (index, _) = &mut self.sorted[self.tab as usize];
        *index = index.saturating_add_signed(by).min(last);
    }

    fn turn(&mut self, by: usize) {
        self.show(Tab::ALL[(self.tab as usize + by) % Tab::ALL.len()]);
    }

    fn show(&mut self, tab: Tab) {
        (self.tab, self.at) = (tab, 0);
    }
}

/// The largest first. Equal rows are ordered by their value since the beginning, then by name.
fn compare(one: &LiveRow<'_>, other: &LiveRow<'_>, column: SortColumn) -> Ordering {
    let value = |row: &LiveRow<'_>| match column {
        SortColumn::FlatNow => row.flat_now,
        SortColumn::CumNow => row.cum_now,
        SortColumn::Flat => row.flat,
        SortColumn::Cum => row.cum,
        SortColumn::Name => 0,
    };
    let sums = |row: &LiveRow<'_>| match column {
        SortColumn::Name => (0, 0),
        _ => (row.flat, row.cum),
    };
    let largest = (value(other), sums(other)).cmp(&(value(one), sums(one)));
    largest.then_with(|| (one.name, one.place).cmp(&(other.name, other.place)))
}
