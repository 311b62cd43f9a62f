//! What a newcomer reads first stays short, and names what is there: the glossary, and the first
//! section of the architecture.

use std::collections::BTreeSet;

use phpprof_documents::{blocks, root};

/// The most words that a newcomer is asked to learn.
const WORDS: usize = 40;
/// The most lines of the first section.
const LINES: usize = 40;

fn read(page: &str) -> std::io::Result<String> {
    std::fs::read_to_string(root().join("docs").join(page))
}

/// The first section: from its heading to the next one.
fn first_section(page: &str) -> String {
    let lines = page.lines().skip_while(|line| !line.starts_with("## "));
    let mut section: Vec<&str> = lines.clone().take(1).collect();
    section.extend(lines.skip(1).take_while(|line| !line.starts_with("## ")));
    section.join("\n")
}

/// The files and folders that inline code names.
fn paths(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("```"));
    let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans
        .filter(|span| span.contains('/') && !span.contains(' '))
        .collect()
}

#[test]
fn glossary_has_at_most_forty_terms_each_once() -> std::io::Result<()> {
    let page = read("glossary.md")?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let words = rows.filter_map(|row| row.split(" | ").next());
    let words: Vec<&str> = words.filter(|word| *word != "term").collect();
    let unique: BTreeSet<&&str> = words.iter().collect();
    assert_eq!(unique.len(), words.len(), "{words:?}");
    assert!((30..=WORDS).contains(&words.len()), "{}", words.len());
    Ok(())
}

#[test]
fn architecture_begins_with_a_screen_and_one_picture() -> std::io::Result<()> {
    let section = first_section(&read("architecture.md")?);
    assert!(section.lines().count() <= LINES, "{section}");
    assert_eq!(blocks(&section).len(), 1, "{section}");
    Ok(())
}

#[test]
fn files_for_newcomers_are_there() -> std::io::Result<()> {
    let section = first_section(&read("architecture.md")?);
    let glossary = read("glossary.md")?;
    let all = [paths(&section), paths(&glossary)].concat();
    assert!(all.len() > 40, "{}", all.len());
    // The sampler's folders are named by their last part there.
    let is_there = |path: &str| {
        root().join(path).exists() || root().join("profiler-image/src").join(path).exists()
    };
    let missing: Vec<_> = all.into_iter().filter(|path| !is_there(path)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    Ok(())
}

#[test]
fn architecture_answers_what_a_newcomer_asks_first() -> std::io::Result<()> {
    let section = first_section(&read("architecture.md")?);
    for question in [
        "Where does a sample's stack get its names?",
        "Where is it decided whether a request waits?",
        "Which file changes for a new reason?",
        "Where is a PHP version added?",
    ] {
        let row = format!("| {question} | ");
        let answer = section.lines().find_map(|line| line.strip_prefix(&row));
        assert!(!paths(answer.unwrap_or_default()).is_empty(), "{question}");
    }
    Ok(())
}
