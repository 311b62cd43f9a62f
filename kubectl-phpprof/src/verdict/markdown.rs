//! A verdict as Markdown, for the comment of a pull request.
//!
//! Invariant: a name from a profile is in a code span that it cannot end, so it is never a link, an
//! image or a heading; and the text has at most [`MAX_BYTES`].

use phpprof_profile::alike::Likeness;
use phpprof_profile::change::{ChangeReport, ChangeVerdict};

use super::words::{
    basis, forced, functions_head, limit_mark, mark, milliseconds, moved_words, name, one_sided,
    reason, route, signed_milliseconds, signed_percent, summary, what_decides, without_functions,
};
use crate::table::{cut, printable};

/// GitHub takes 65,536 characters in a comment.
const MAX_BYTES: usize = 60_000;
/// The most rows of a table.
const MOST: usize = 20;
/// The most letters of a name.
const NAME: usize = 120;

pub fn text(report: &ChangeReport, titles: [&str; 2], likeness: &Likeness) -> String {
    let mut text = format!(
        "### phpprof: {}\n\n{}.\n\n",
        name(report.verdict),
        plain(&summary(report))
    );
    text.push_str(&notes(report, likeness));
    text.push_str(&functions(report));
    for moved in report.moves.iter().take(MOST) {
        text.push_str(&format!("\nMoved: {}\n", code(&moved_words(moved))));
    }
    text.push_str(&routes(report));
    for one in report.one_sided.iter().take(MOST) {
        text.push_str(&format!("\nNot compared: {}\n", code(&one_sided(one))));
    }
    text.push_str(&format!("\n<sub>{}</sub>\n", plain(&basis(report, titles))));
    debug_assert!(text.len() <= MAX_BYTES, "{}", text.len());
    text
}

/// Why the verdict is so, and what would decide it.
fn notes(report: &ChangeReport, likeness: &Likeness) -> String {
    let mut notes: Vec<String> = forced(likeness).into_iter().collect();
    notes.extend(report.reasons.iter().map(reason));
    if report.verdict == ChangeVerdict::Inconclusive {
        notes.push(format!("To decide it: {}", what_decides(report)));
    }
    notes.extend(without_functions(report).map(str::to_owned));
    let lines = notes.iter().map(|note| format!("- {}\n", plain(note)));
    lines.collect()
}

fn functions(report: &ChangeReport) -> String {
    if report.functions.is_empty() {
        return String::new();
    }
    let caller = report.common_caller.as_ref();
    let below = caller.map_or_else(String::new, |it| {
        format!(", nearly all below {}", code(&it.0))
    });
    let mut text = format!(
        "\n{}{below}:\n\n| change | ± | before | after | part | function |\n|--:|--:|--:|--:|--:|:--|\n",
        plain(&functions_head(report))
    );
    for one in report.functions.iter().take(MOST) {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {:.0} % | {}{} |\n",
            signed_milliseconds(one.time.difference()),
            milliseconds(one.time.margin(0.95)),
            milliseconds(one.time.before),
            milliseconds(one.time.after),
            one.part_percent,
            code(&one.name),
            mark(one.is_new, one.is_gone)
        ));
    }
    text
}

fn routes(report: &ChangeReport) -> String {
    if report.routes.len() < 2 && report.routes.iter().all(|it| it.verdict.is_none()) {
        return String::new();
    }
    let mut text = "\n<details><summary>By route</summary>\n\n| change | before | after | share | route |\n|--:|--:|--:|--:|:--|\n".to_owned();
    for one in report.routes.iter().take(MOST) {
        text.push_str(&format!(
            "| {} | {} | {} | {:.1} % | {}{} |\n",
            signed_percent(one.time.percent()),
            milliseconds(one.time.before),
            milliseconds(one.time.after),
            one.share_percent,
            code(route(&one.route)),
            limit_mark(one)
        ));
    }
    text.push_str("\n</details>\n");
    text
}

/// A name as a code span in a cell. A backtick would end the span, and a bar the cell.
fn code(name: &str) -> String {
    let name = cut(&printable(name), NAME);
    format!("`{}`", name.replace('`', "'").replace('|', "¦"))
}

/// A sentence that may have a name in it: what would be markup is not.
fn plain(sentence: &str) -> String {
    let mut text = String::new();
    for letter in printable(sentence).chars() {
        if "\\`*_[]<>#|!@".contains(letter) {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}
