//! Wraps comments of Rust sources at the code's width. rustfmt does it only with nightly options.
//!
//! A paragraph is filled again if one of its lines is too wide. Tables, code blocks and words that
//! are wider than a line stay as they are.
//!
//! Invariant: only spaces and line ends between words of comments change, and no word gets another
//! meaning in Markdown because it begins a line. Text in string literals is never a comment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::root;

/// The most columns of a line, as rustfmt's default for code.
pub const WIDTH: usize = 100;

/// Rows of numbers that a program writes (profiler-image/zend/examples/layouts.rs).
const GENERATED: &str = "rows.rs";

/// All Rust sources of the project that people write, without what is built.
pub fn sources() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(&root(), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // A folder of modules may be called target, too.
        if name.starts_with('.') || (name == "target" && folder == root()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), found)?;
        } else if name.ends_with(".rs") && name != GENERATED {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// The source with its comments wrapped.
pub fn wrap(code: &str) -> String {
    let starts = starts_in_code(code);
    let lines: Vec<&str> = code.split('\n').collect();
    let mut written: Vec<String> = Vec::new();
    let mut rest = lines.as_slice();
    let mut starts = starts.as_slice();
    while let [first, ..] = rest {
        let head = starts.first().and_then(|start| start.then(|| head(first)));
        let count = match head.flatten() {
            Some(head) => {
                let is_same = |(line, start): &(&&str, &bool)| **start && is_of(line, head);
                let count = rest.iter().zip(starts).take_while(is_same).count();
                written.extend(comment(rest.get(..count).unwrap_or_default(), head));
                count
            }
            None => {
                written.push((*first).to_owned());
                1
            }
        };
        rest = rest.get(count..).unwrap_or_default();
        starts = starts.get(count..).unwrap_or_default();
    }
    written.join("\n")
}

/// The indentation and the marker of a line that is only a comment.
fn head(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(' ');
    let markers = ["//!", "///", "//"];
    let marker = markers.iter().find(|marker| text.starts_with(**marker))?;
    let is_rule = text.trim_start_matches('/').is_empty() && text.len() > 3;
    let length = line.len() - text.len() + marker.len();
    if is_rule { None } else { line.get(..length) }
}

fn is_of(line: &str, expected: &str) -> bool {
    head(line) == Some(expected)
}

/// The lines of one comment, wrapped.
fn comment(lines: &[&str], head: &str) -> Vec<String> {
    let (mut written, mut paragraph, mut in_block) = (Vec::new(), Vec::new(), false);
    for line in lines {
        let text = line.get(head.len()..).unwrap_or_default();
        let text = text.strip_prefix(' ').unwrap_or(text);
        let is_fence = text.trim_start().starts_with("```");
        let is_apart = in_block || is_fence || stays(text);
        in_block ^= is_fence;
        if is_apart || begins(text) || text.starts_with("Invariant:") {
            fill(&paragraph, head, &mut written);
            paragraph.clear();
        }
        if is_apart {
            written.push((*line).to_owned());
        } else {
            paragraph.push(text);
        }
    }
    fill(&paragraph, head, &mut written);
    written
}

/// Whether a line is no part of a paragraph: empty, of a table, a heading or indented code.
fn stays(text: &str) -> bool {
    text.trim().is_empty() || text.starts_with(['|', '#', '>']) || text.starts_with("    ")
}

/// Whether a line begins an item of a list.
fn begins(text: &str) -> bool {
    text.split(' ')
        .find(|word| !word.is_empty())
        .is_some_and(is_bullet)
}

fn is_bullet(word: &str) -> bool {
    let number = word.trim_end_matches(['.', ')']);
    let is_number = number.len() < word.len() && number.chars().all(|it| it.is_ascii_digit());
    ["-", "*", "+"].contains(&word) || (is_number && !number.is_empty())
}

/// Whether Markdown would read a line that begins with this word as something else than text.
fn is_special(word: &str) -> bool {
    is_bullet(word) || word.starts_with(['|', '#', '>', '=']) || word.starts_with("```")
}

/// Writes a paragraph, filled again if one of its lines is too wide.
fn fill(paragraph: &[&str], head: &str, written: &mut Vec<String>) {
    let width = |line: &str| line.chars().count();
    let is_wide = |text: &&&str| width(head) + 1 + width(text) > WIDTH;
    let Some(first) = paragraph.first() else {
        return;
    };
    if paragraph.iter().find(is_wide).is_none() {
        written.extend(paragraph.iter().map(|text| format!("{head} {text}")));
        return;
    }
    let indent = " ".repeat(first.len() - first.trim_start().len());
    let bullet = if begins(first) {
        " ".repeat(first.split_whitespace().next().map_or(0, str::len) + 1)
    } else {
        String::new()
    };
    let mut line: Vec<&str> = Vec::new();
    let mut before = format!("{head} {indent}");
    for word in paragraph.iter().flat_map(|text| text.split_whitespace()) {
        let length = width(&before) + line.iter().map(|it| width(it) + 1).sum::<usize>();
        if !line.is_empty() && length + width(word) > WIDTH {
            // A word that would begin a list there takes the one before it along.
            let mut along = vec![word];
            while line.len() > 1 && along.last().is_some_and(|it| is_special(it)) {
                along.extend(line.pop());
            }
            written.push(before + &line.join(" "));
            before = format!("{head} {indent}{bullet}");
            along.reverse();
            line = along;
        } else {
            line.push(word);
        }
    }
    written.push(before + &line.join(" "));
}

/// What the end of a line is in.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Code,
    /// A string literal; with the number of its `#` if it is raw.
    Text(Option<usize>),
    /// A block comment, and those around it.
    Block(usize),
}

/// For each line, whether it begins in code: not in a string literal, and not in a block comment.
fn starts_in_code(code: &str) -> Vec<bool> {
    let (mut starts, mut within, mut previous) = (vec![true], Within::Code, ' ');
    let mut rest = code;
    while let Some(sign) = rest.chars().next() {
        let (skipped, next) = step(rest, within, previous);
        let (passed, after) = rest.split_at(skipped);
        within = next;
        let ends = passed.matches('\n').count();
        starts.extend(std::iter::repeat_n(within == Within::Code, ends));
        previous = sign;
        rest = after;
    }
    starts
}

/// How many bytes of what follows belong together, and what they lead into.
fn step(rest: &str, within: Within, previous: char) -> (usize, Within) {
    let one = rest.chars().next().map_or(1, char::len_utf8);
    match within {
        Within::Code if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), within),
        Within::Code if rest.starts_with("/*") => (2, Within::Block(1)),
        Within::Code if rest.starts_with('"') => (1, Within::Text(None)),
        Within::Code if rest.starts_with('\'') => (quoted(rest), within),
        Within::Code
            if rest.starts_with('r') && !previous.is_alphanumeric() || rest.starts_with("br") =>
        {
            let letters = if rest.starts_with('b') { 2 } else { 1 };
            let after = rest.get(letters..).unwrap_or_default();
            let signs = after.len() - after.trim_start_matches('#').len();
            if after.get(signs..).is_some_and(|it| it.starts_with('"')) {
                (letters + signs + 1, Within::Text(Some(signs)))
            } else {
                (1, within)
            }
        }
        Within::Text(None) if rest.starts_with('\\') => {
            let next = rest.get(1..).and_then(|it| it.chars().next());
            // The end of a line is counted by itself.
            match next {
                Some('\n') | None => (1, within),
                Some(next) => (1 + next.len_utf8(), within),
            }
        }
        Within::Text(None) if rest.starts_with('"') => (1, Within::Code),
        Within::Text(Some(signs)) if rest.starts_with('"') => {
            let end = format!("\"{}", "#".repeat(signs));
            if rest.starts_with(&end) {
                (end.len(), Within::Code)
            } else {
                (1, within)
            }
        }
        Within::Block(depth) if rest.starts_with("/*") => (2, Within::Block(depth + 1)),
        Within::Block(1) if rest.starts_with("*/") => (2, Within::Code),
        Within::Block(depth) if rest.starts_with("*/") => (2, Within::Block(depth - 1)),
        _ => (one, within),
    }
}

/// The bytes of a character literal, or of the sign of a lifetime.
fn quoted(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            let end = letters.skip(1).find(|(_, letter)| *letter == '\'');
            end.map_or(1, |(at, _)| at + 1)
        }
        Some(_) => match letters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn wrap_fills_a_wide_paragraph_at_its_indentation() {
        let code = format!("    /// {}\n    /// last\n    fn f() {{}}", words(30));
        let wrapped = wrap(&code);
        let lines: Vec<&str> = wrapped.split('\n').collect();
        assert_eq!(lines.len(), 3, "{wrapped}");
        assert_eq!(lines[0], format!("    /// {}", words(18)));
        assert_eq!(lines[1], format!("    /// {} last", words(12)));
        assert_eq!(wrap(&wrapped), wrapped);
    }

    #[test]
    fn wrap_leaves_what_fits_or_cannot_be_filled() {
        let wide = "w".repeat(120);
        for code in [
            "// short\n// lines\n".to_owned(),
            format!("/// | {} |\n", words(40)),
            format!("/// ```text\n/// {}\n/// ```\n", words(40)),
            format!("// {wide}\n"),
            format!("let a = r#\"\n// {}\n\"#;\n", words(40)),
            format!("let a = \"\n// {}\n\";\n", words(40)),
            format!(
                "let (a, b) = ('\"', '\\'');\nlet c = \"// {}\";\n",
                words(40)
            ),
            format!("/*\n// {}\n*/\n", words(40)),
        ] {
            assert_eq!(wrap(&code), code);
        }
    }

    #[test]
    fn wrap_sees_comments_again_after_literals_and_lifetimes() {
        for before in [
            "let a = r#\"\"#;",
            "let a = \"\\\"\";",
            "let a = '\"';",
            "fn f<'a>(_: &'a str) {}",
            "let a = b\"\\\\\";",
            "/* \" */",
        ] {
            let code = format!("{before}\n// {}\n", words(40));
            assert_ne!(wrap(&code), code, "{before}");
        }
    }

    #[test]
    fn wrap_keeps_lists_and_makes_none() {
        let list = format!("/// 1. {}\n/// 2. two\n", words(25));
        let expected = format!("/// 1. {}\n///    {}\n/// 2. two\n", words(18), words(7));
        assert_eq!(wrap(&list), expected);
        let text = format!("/// {}s - {}\n", words(19), words(5));
        let expected = format!("/// {}\n/// words - {}\n", words(18), words(5));
        assert_eq!(wrap(&text), expected);
    }
}
