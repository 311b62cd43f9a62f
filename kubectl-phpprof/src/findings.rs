//! Prints the findings of a profile: for `findings`, at the end of `run`, and for `describe`.
//!
//! `phpprof_profile::findings` has the rules.
//!
//! Invariant: no word of a sentence is cut, and names from a profile cannot move the terminal's
//! cursor.

use std::time::Duration;

use phpprof_profile::{Finding, View};
use serde_json::json;
use tokio::time::timeout;

use crate::connect::Cluster;
use crate::output::ListForm;
use crate::output::OutputForm;
use crate::request::{RequestView, ShownOutcome};
use crate::source;
use crate::suggest::Suggest;
use crate::table::{Table, cut_beginning, printable};

/// The narrowest width for sentences.
const SMALLEST: usize = 20;

/// The time limit for a profile, because `describe` asks mainly for the request's state.
const PATIENCE: Duration = Duration::from_secs(10);

/// The findings of a finished request. Empty if its profile cannot be read, because they are only
/// an addition.
pub async fn of_request(cluster: &Cluster, request: &RequestView<'_>) -> Vec<Finding> {
    let is_stored = !request.words("/status/profile/url").is_empty();
    if request.outcome() != ShownOutcome::Complete || !is_stored {
        return Vec::new();
    }
    let fetched = timeout(PATIENCE, source::merged(cluster, request)).await;
    let Ok(Ok(source)) = fetched else {
        return Vec::new();
    };
    phpprof_profile::findings(&source.profile, &View::default())
}

pub fn text(found: &[Finding], output: &OutputForm, width: Option<usize>) -> String {
    if let Some(text) = output.of_data(|| json!({ "findings": found }), "/findings") {
        return text;
    }
    let width = width.filter(|_| !output.is_wide());
    match output {
        OutputForm::Form(ListForm::Name) => {
            found.iter().map(|one| format!("{}\n", one.id)).collect()
        }
        _ if found.is_empty() => String::new(),
        _ => {
            let told = found.iter().map(|one| told(one, width));
            table(found).text(width) + &told.collect::<String>()
        }
    }
}

fn table(found: &[Finding]) -> Table {
    let mut table = Table::new(&["FINDING", ">SHARE%", "OF", "<FUNCTION"]);
    for one in found {
        let function = one.function.as_ref();
        table.row(vec![
            one.id.to_owned(),
            format!("{:.2}", one.share),
            one.of.words().trim_start_matches("of the ").to_owned(),
            function.map_or_else(|| "-".to_owned(), |function| function.name.clone()),
        ]);
    }
    table
}

/// The sentence of a finding, its stacks, and where to read more.
fn told(one: &Finding, width: Option<usize>) -> String {
    let mut text = format!("\n{}:\n", one.id);
    text.push_str(&wrapped(&one.sentence, 2, width));
    for stack in &one.stacks {
        let cut = if stack.cut { "… > " } else { "" };
        let path = printable(&format!("{cut}{}", stack.functions.join(" > ")));
        let share = format!("  {:>6.2} %  ", stack.share);
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(share.len()));
        text.push_str(&format!("{share}{}\n", cut_beginning(&path, room)));
    }
    text.push_str(&format!("  more: kubectl phpprof explain {}\n", one.id));
    text
}

/// Only the sentences. Empty if there are none.
pub fn brief(found: &[Finding], name: &str, suggest: &Suggest, width: Option<usize>) -> String {
    if found.is_empty() {
        return String::new();
    }
    let said = found.iter().map(|one| {
        let (id, share, of) = (one.id, one.share, one.of.words());
        wrapped(
            &format!("{id}, {share:.2} % {of}: {}", one.sentence),
            2,
            width,
        )
    });
    let said: String = said.collect();
    let command = suggest.phpprof(&format!("findings {name}"));
    format!("\nFindings (their stacks: {command}):\n{said}")
}

/// Lines of whole words, each indented by this many spaces.
fn wrapped(text: &str, indent: usize, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(indent).max(SMALLEST)
    });
    let mut lines = vec![String::new()];
    for word in printable(text).split(' ') {
        let length = |text: &str| console::measure_text_width(text);
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || length(line) + 1 + length(word) <= room);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    let blanks = " ".repeat(indent);
    lines
        .iter()
        .map(|line| format!("{blanks}{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 2, None), "  one two three\n");
        assert_eq!(
            wrapped("one two three four five six", 2, Some(12)),
            "  one two three four\n  five six\n",
            "never into less than can be read"
        );
        assert_eq!(
            wrapped(r"A\Very\Long\Name::thatHasNoRoom x", 0, Some(24)),
            "A\\Very\\Long\\Name::thatHasNoRoom\nx\n"
        );
    }

    #[test]
    fn there_is_nothing_to_say_of_nothing() {
        assert_eq!(brief(&[], "first", &Suggest::default(), None), "");
        assert_eq!(text(&[], &OutputForm::default(), None), "");
        assert_eq!(
            text(&[], &OutputForm::Form(ListForm::Yaml), None),
            "findings: []\n"
        );
    }
}
