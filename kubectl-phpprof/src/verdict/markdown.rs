//! A verdict as Markdown, for the comment of a pull request.
//!
//! Invariant: a name from a profile is in a code span that it cannot end, so it is never a link, an
//! image or a heading; and the text has at most [`MAX_BYTES`].

use phpprof_profile::change::{ChangeReport, ChangeVerdict};

use super::words::{
    basis, functions_head, mark, milliseconds, moved_words, name, one_sided, reason, remedy, route,
    signed_milliseconds, signed_percent, summary,
};
use crate::table::{cut, printable};

/// GitHub takes 65,536 characters in a comment.
const MAX_BYTES: usize = 60_000;
/// The most rows of a table.
const MOST: usize = 20;
/// The most letters of a name.
const NAME: usize = 120;

pub fn text(report: &ChangeReport, titles: [&str; 2]) -> String {
    let mut text = format!(
        "### phpprof: {}\n\n{}.\n\n",
        name(report.verdict),
        plain(&summary(report))
    );
    for one in &report.reasons {
        text.push_str(&format!("- {}\n", plain(&reason(one))));
    }
    if report.verdict == ChangeVerdict::Inconclusive {
        let first = report.reasons.first().map(remedy);
        text.push_str(&first.map_or_else(String::new, |it| {
            format!("- To decide it: {}\n", plain(&it))
        }));
    }
    if !report.functions.is_empty() {
        let head = functions_head(report);
        text.push_str(&format!(
            "\n{}\n\n| change | ± | before | after | part | function |\n|--:|--:|--:|--:|--:|:--|\n",
            plain(&head)
        ));
    }
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
    for moved in report.moves.iter().take(MOST) {
        text.push_str(&format!("\nMoved: {}\n", code(&moved_words(moved))));
    }
    if report.routes.len() > 1 {
        text.push_str(
            "\n<details><summary>By route</summary>\n\n| change | before | after | share | route |\n|--:|--:|--:|--:|:--|\n",
        );
        for one in report.routes.iter().take(MOST) {
            text.push_str(&format!(
                "| {} | {} | {} | {:.1} % | {} |\n",
                signed_percent(one.time.percent()),
                milliseconds(one.time.before),
                milliseconds(one.time.after),
                one.share_percent,
                code(route(&one.route))
            ));
        }
        text.push_str("\n</details>\n");
    }
    for one in report.one_sided.iter().take(MOST) {
        text.push_str(&format!("\nNot compared: {}\n", code(&one_sided(one))));
    }
    text.push_str(&format!("\n<sub>{}</sub>\n", plain(&basis(report, titles))));
    debug_assert!(text.len() <= MAX_BYTES, "{}", text.len());
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
