//! The tool `lines`: the hottest lines of a function, of a file, or of everything.
//!
//! Invariant: lines of a function are sorted by their total, because a line that calls something
//! slow has little time of its own.

use std::collections::BTreeSet;

use phpprof_profile::Stacks;
use phpprof_profile::calls::{LineRow, lines};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, percent};
use super::ask::{LinesAsked, most};
use super::head::TypeHead;
use super::part::{AskedPart, functions};
use super::quote::{quoted, quoted_path};
use crate::failure::{Exit, Failure};
use crate::source::ProfileSource;

const ROWS: usize = 15;

/// A line, as it is shown.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LineShown {
    pub function: String,
    file: String,
    /// 0 if it is not known.
    line: i64,
    self_percent: f64,
    total_percent: f64,
}

impl LineShown {
    pub fn of(stacks: &Stacks<'_>, row: &LineRow, total: i64) -> Self {
        let function = stacks.functions.get(row.function);
        LineShown {
            function: quoted(function.map_or("", |it| it.name)),
            file: quoted_path(function.map_or("", |it| it.file)),
            line: row.line,
            self_percent: percent(row.flat, total),
            total_percent: percent(row.cum, total),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LinesBody {
    #[serde(flatten)]
    head: TypeHead,
    rows: Vec<LineShown>,
    left_out: usize,
}

pub fn answer(
    source: &ProfileSource,
    place: &AgentPlace,
    asked: &LinesAsked,
) -> Result<AgentAnswer, Failure> {
    let part = AskedPart::new(&asked.profile, asked.sample_type.as_deref(), &asked.labels);
    let chosen = part.of(&source.profile)?;
    let stacks = chosen.stacks()?;
    let wanted = wanted(&stacks, asked)?;
    let mut found: Vec<LineRow> = lines(&stacks)
        .into_iter()
        .filter(|row| wanted.contains(&row.function))
        .collect();
    if asked.function.is_some() {
        found.sort_by_key(|row| std::cmp::Reverse((row.cum, row.flat)));
    }
    let total = stacks.total(stacks.chosen);
    let count = most(asked.most, ROWS).min(found.len());
    let shown = found.iter().take(count);
    let rows: Vec<LineShown> = shown
        .map(|row| LineShown::of(&stacks, row, total))
        .collect();
    let mut next = AgentNexts::default();
    if let Some(row) = rows.first() {
        let function = json!({"function": row.function, "file": row.file});
        next.add(
            "callees",
            "what this function calls",
            part.and(function.clone()),
        );
        next.add(
            "callers",
            "which code calls this function",
            part.and(function),
        );
    }
    let (name, unit) = stacks.sample_type();
    let body = |count: usize| LinesBody {
        head: TypeHead::of(name, unit, total),
        rows: rows.iter().take(count).cloned().collect(),
        left_out: found.len().saturating_sub(count),
    };
    AgentAnswer::fitted(place, rows.len(), body, &next)
}

fn wanted(stacks: &Stacks<'_>, asked: &LinesAsked) -> Result<BTreeSet<usize>, Failure> {
    if let Some(function) = &asked.function {
        return functions(stacks, function, asked.file.as_deref());
    }
    let file = asked.file.as_deref();
    let all = stacks.functions.iter().enumerate();
    let in_file = all.filter(|(_, function)| {
        file.is_none_or(|file| function.file == file || quoted_path(function.file) == file)
    });
    let found: BTreeSet<usize> = in_file.map(|(number, _)| number).collect();
    if found.is_empty() {
        return Err(Failure::new(
            Exit::NotFound,
            "no sample of this part has a function of this file",
            "write the file as an answer of top or callers shows it",
        ));
    }
    Ok(found)
}
