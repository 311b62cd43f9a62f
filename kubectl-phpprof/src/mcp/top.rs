//! The tool `top`: where the time goes, by function, line or label.
//!
//! Invariant: percentages are of all samples in the view.

use phpprof_profile::calls::lines;
use phpprof_profile::in_use::is_in_use;
use phpprof_profile::waiting;
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, percent};
use super::ask::{AskedSort, TopAsked, most};
use super::head::{TypeHead, is_code};
use super::lines::LineShown;
use super::part::{AskedPart, ProfilePart};
use super::quote::{quoted, quoted_path};
use crate::cli::TopSort;
use crate::failure::Failure;
use crate::show::table_of;
use crate::source::ProfileSource;

const ROWS: usize = 15;
/// How many rows have suggestions.
const FOLLOWED: usize = 3;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopBody<R> {
    #[serde(flatten)]
    head: TypeHead,
    by: String,
    rows: Vec<R>,
    left_out: usize,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionShown {
    function: String,
    file: String,
    self_percent: f64,
    total_percent: f64,
}

#[derive(Clone, Serialize)]
struct LabelShown {
    value: String,
    percent: f64,
}

pub fn answer(
    source: &ProfileSource,
    place: &AgentPlace,
    asked: &TopAsked,
) -> Result<AgentAnswer, Failure> {
    let part = AskedPart::new(&asked.profile, asked.sample_type.as_deref(), &asked.labels);
    let chosen = part.of(&source.profile)?;
    let top = AskedTop {
        chosen: &chosen,
        place,
        part: &part,
        count: most(asked.most, ROWS),
        sort: asked.sort,
    };
    match asked.by.as_deref() {
        None | Some("function") => top.by_function(),
        Some("line") => top.by_line(),
        Some(key) => top.by_label(key),
    }
}

struct AskedTop<'a> {
    chosen: &'a ProfilePart<'a>,
    place: &'a AgentPlace,
    part: &'a AskedPart<'a>,
    count: usize,
    sort: AskedSort,
}

impl AskedTop<'_> {
    fn by_function(&self) -> Result<AgentAnswer, Failure> {
        let sort = match self.sort {
            AskedSort::Flat => TopSort::Flat,
            AskedSort::Total => TopSort::Cum,
        };
        let table = table_of(&self.chosen.profile, &self.chosen.view, sort, None)?;
        let all = table.rows.len();
        let shown = table.rows.iter().take(self.count).map(|row| FunctionShown {
            function: quoted(&row.name),
            file: quoted_path(&row.file),
            self_percent: percent(row.flat, table.total),
            total_percent: percent(row.cum, table.total),
        });
        let rows: Vec<FunctionShown> = shown.collect();
        let mut next = AgentNexts::default();
        for row in rows.iter().take(FOLLOWED) {
            self.follow(&mut next, row);
        }
        let tree = if self.is_of_heaps() {
            "the paths from what PHP keeps itself on"
        } else {
            "the tree from the entry point on"
        };
        next.add("callees", tree, self.part.and(json!({})));
        let head = TypeHead::of(&table.sample_type, &table.unit, table.total);
        self.fitted(&head, "function", &rows, all, &next)
    }

    fn follow(&self, next: &mut AgentNexts, row: &FunctionShown) {
        let function = json!({"function": row.function});
        if is_code(&row.file) {
            let place = json!({"function": row.function, "file": row.file});
            next.add(
                "lines",
                "the hot lines of this function",
                self.part.and(place),
            );
        } else {
            let why = if self.is_of_heaps() {
                "who holds this"
            } else {
                "which code calls this"
            };
            next.add("callers", why, self.part.and(function));
        }
    }

    fn is_of_heaps(&self) -> bool {
        is_in_use(&self.chosen.profile)
    }

    fn by_line(&self) -> Result<AgentAnswer, Failure> {
        let stacks = self.chosen.stacks()?;
        let total = stacks.total(stacks.chosen);
        let mut all = lines(&stacks);
        if self.sort == AskedSort::Total {
            all.sort_by_key(|row| std::cmp::Reverse((row.cum, row.flat)));
        }
        let shown = all.iter().take(self.count);
        let rows: Vec<LineShown> = shown
            .map(|row| LineShown::of(&stacks, row, total))
            .collect();
        let mut next = AgentNexts::default();
        for row in rows.iter().take(FOLLOWED) {
            let function = json!({"function": row.function});
            next.add("callers", "which code calls this", self.part.and(function));
        }
        let (name, unit) = stacks.sample_type();
        let head = TypeHead::of(name, unit, total);
        self.fitted(&head, "line", &rows, all.len(), &next)
    }

    fn by_label(&self, key: &str) -> Result<AgentAnswer, Failure> {
        let (profile, view) = (&self.chosen.profile, &self.chosen.view);
        let table = table_of(profile, view, TopSort::Flat, Some(key))?;
        let all = table.rows.len();
        let shown = table.rows.iter().take(self.count).map(|row| LabelShown {
            value: quoted(&row.name),
            percent: percent(row.flat, table.total),
        });
        let rows: Vec<LabelShown> = shown.collect();
        let mut next = AgentNexts::default();
        // Samples without the label are in the row `-`.
        let labelled = rows.iter().filter(|row| row.value != "-");
        for row in labelled.take(FOLLOWED) {
            let mut labels = self.part.labels.clone();
            labels.insert(key.to_owned(), row.value.clone());
            let part = AskedPart {
                labels: &labels,
                ..*self.part
            };
            let why = match key {
                waiting::LABEL => "which functions wait for this",
                _ => "the functions in samples with this label",
            };
            next.add("top", why, part.and(json!({})));
        }
        next.add(
            "top",
            "the functions of all samples",
            self.part.and(json!({})),
        );
        let head = TypeHead::of(&table.sample_type, &table.unit, table.total);
        self.fitted(&head, key, &rows, all, &next)
    }

    fn fitted<R: Clone + Serialize>(
        &self,
        head: &TypeHead,
        by: &str,
        rows: &[R],
        all: usize,
        next: &AgentNexts,
    ) -> Result<AgentAnswer, Failure> {
        let body = |count: usize| TopBody {
            head: head.clone(),
            by: quoted(by),
            rows: rows.iter().take(count).cloned().collect(),
            left_out: all.saturating_sub(count.min(rows.len())),
        };
        AgentAnswer::fitted(self.place, rows.len(), body, next)
    }
}
