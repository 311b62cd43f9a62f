//! The page of promises says what their last records say; results are recorded next to older ones,
//! in files that the folder's page names; and no document that a reader needs names a commit, which
//! only means something to those who have the history.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use phpprof_documents::measurements::{MeasurementRow, records};
use phpprof_documents::{pages, root};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Text without the targets of its links.
fn plain(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (start, label) = before.rsplit_once('[').unwrap_or((before, ""));
        written.push_str(&format!("{start}{label}"));
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    written + rest
}

/// The promises of the page: area and promise, and the last field.
fn promises(page: &str) -> Vec<((String, String), String)> {
    let (mut area, mut found) = (String::new(), Vec::new());
    for line in page.lines() {
        let Some(row) = line
            .strip_prefix("| ")
            .and_then(|row| row.strip_suffix(" |"))
        else {
            continue;
        };
        let fields: Vec<&str> = row.split(" | ").collect();
        match fields[..] {
            [name, ..] if name.starts_with("**") => {
                let name = name.split(" |").next().unwrap_or_default();
                area = plain(name).trim_matches('*').to_owned();
            }
            [promise, _, _, state] => {
                found.push(((area.clone(), plain(promise)), state.to_owned()));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn each_promise_says_what_its_last_record_says() -> Result<()> {
    let page = fs::read_to_string(root().join("docs/promises.md"))?;
    let csv = fs::read_to_string(root().join("docs/measurements/promises.csv"))?;
    let mut last: BTreeMap<(String, String), MeasurementRow> = BTreeMap::new();
    for record in records(&csv)? {
        let key = (record.area.clone(), record.promise.clone());
        let before = last.insert(key, record.clone());
        let is_later = before.is_none_or(|before| before.date <= record.date);
        assert!(
            is_later,
            "a record is older than the one before: {record:?}"
        );
    }
    let promised = promises(&page);
    assert!(promised.len() > 150, "{}", promised.len());
    for (key, state) in &promised {
        let record = last.remove(key).ok_or(format!("no record of {key:?}"))?;
        assert_eq!(record.state(), *state, "{key:?}");
    }
    assert!(last.is_empty(), "not promised any more: {last:?}");
    Ok(())
}

/// Where the records are, and the page that names them.
const FOLDER: &str = "docs/measurements";
/// The scripts that append to records.
const RECORDING: [&str; 5] = [
    "e2e/tools/scale",
    "profiler-image/bench/bench.sh",
    "profiler-image/bench/slowdown.sh",
    "profiler-image/bench/truth.sh",
    "tools/test-runs",
];

/// The words of a text with this ending, without what surrounds them.
fn words_with<'a>(text: &'a str, ending: &'a str) -> BTreeSet<&'a str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let words = text.split(|c: char| !is_name(c));
    let words = words.map(|word| word.trim_end_matches('.'));
    words
        .filter(|word| word.len() > ending.len() && word.ends_with(ending))
        .collect()
}

/// The files to which a script appends: those of `tools/record NAME`, and one for each part of
/// `truth PART`.
fn recorded(script: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let commands = script.lines().filter(|line| !line.starts_with('#'));
    for line in commands {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let is_name = pair[1].chars().all(|c| c.is_ascii_lowercase() || c == '-');
            match pair[0] {
                "tools/record" if is_name => found.insert(format!("{}.csv", pair[1])),
                "truth" if is_name => found.insert(format!("truth-{}.csv", pair[1])),
                _ => false,
            };
        }
    }
    found
}

#[test]
fn recorded_files_are_those_of_commands() {
    let script = "# truth a\n  x || tools/record some a.csv; fi\nA=1 truth cpu b\ntruth() { #\n";
    let expected = ["some.csv", "truth-cpu.csv"].map(str::to_owned);
    assert_eq!(recorded(script), expected.into());
}

#[test]
fn records_are_those_that_their_page_names() -> Result<()> {
    let page = fs::read_to_string(root().join(FOLDER).join("README.md"))?;
    let mut written: BTreeSet<String> = ["promises.csv".to_owned()].into();
    for script in RECORDING {
        let files = recorded(&fs::read_to_string(root().join(script))?);
        assert!(!files.is_empty(), "{script} records nothing");
        written.extend(files);
    }
    let written: BTreeSet<&str> = written.iter().map(String::as_str).collect();
    assert_eq!(words_with(&page, ".csv"), written, "{FOLDER}/README.md");
    for entry in fs::read_dir(root().join(FOLDER))? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let is_named = page.contains(&format!("]({name})")) || written.contains(&*name);
        let is_picture = name.ends_with(".svg") || name == "README.md";
        assert!(is_named || is_picture, "no page names {FOLDER}/{name}");
    }
    Ok(())
}

#[test]
fn each_record_that_promises_name_exists() -> Result<()> {
    let page = fs::read_to_string(root().join("docs/promises.md"))?;
    let links = page.split("](measurements/").skip(1);
    let links: BTreeSet<&str> = links
        .map(|rest| rest.split([')', '#']).next().unwrap_or_default())
        .collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        let path = root().join(FOLDER).join(link);
        assert!(path.is_file(), "docs/promises.md names {link}");
    }
    Ok(())
}

fn record(csv: &Path, folder: &Path, setting: &str) -> Result<bool> {
    let mut command = Command::new(root().join("tools/record"));
    command.arg("some").arg(csv).arg(folder);
    Ok(command.env("RECORD", setting).output()?.status.success())
}

#[test]
fn record_appends_rows_and_refuses_other_columns() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (csv, file) = (folder.path().join("r.csv"), folder.path().join("some.csv"));
    fs::write(&csv, "row,value\na,1\nb,2\n")?;
    assert!(record(&csv, folder.path(), "0")? && !file.exists());
    assert!(record(&csv, folder.path(), "1")? && record(&csv, folder.path(), "1")?);
    let text = fs::read_to_string(&file)?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["date", "commit", "machine", "row", "value"]);
    let rows: Vec<_> = lines[1..].iter().map(|line| line[3..].join("=")).collect();
    assert_eq!(rows, ["a=1", "b=2", "a=1", "b=2"]);
    assert!(lines[1..].iter().all(|line| line[0].len() == 10));
    assert!(
        lines[1..]
            .iter()
            .all(|line| line[1].len() >= 9 && line[2].contains(" cores "))
    );
    fs::write(&csv, "row,other\na,1\n")?;
    assert!(!record(&csv, folder.path(), "1")?);
    assert_eq!(fs::read_to_string(&file)?, text);
    Ok(())
}

/// Words that look like the short or the whole name of a commit.
fn commits(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let is_name = |word: &&str| {
        let is_hex = word
            .chars()
            .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        let (digits, letters) = (
            word.chars().any(|c| c.is_ascii_digit()),
            word.chars().any(|c| c.is_ascii_alphabetic()),
        );
        (7..=40).contains(&word.len()) && is_hex && digits && letters
    };
    words.filter(is_name).collect()
}

#[test]
fn commits_finds_names_in_a_text() {
    assert_eq!(
        commits("of `82f0dd9`, and daeb6e4."),
        ["82f0dd9", "daeb6e4"]
    );
    assert_eq!(
        commits("1234567 decade 7d9f5c web-29384750"),
        Vec::<&str>::new()
    );
}

#[test]
fn a_document_that_readers_need_names_no_commit() -> Result<()> {
    /// Names in examples that look like one: of a ReplicaSet's pods, and of a request's uid.
    const EXAMPLES: [&str; 2] = ["7d9f5c6b8", "0b1c2d3e"];
    /// The versions of programs that have no other: those that the comparison and the benchmark are
    /// about.
    const OTHERS: [&str; 8] = [
        "105841b", "bd15203", "b442421", "f0648e2", "015c221", "20b8caf", "50b5dbb", "050d3fd",
    ];
    let mut found = Vec::new();
    for (path, text) in pages()? {
        if path.starts_with("docs/measurements") || path.starts_with("contract") {
            continue;
        }
        let names = commits(&text).into_iter();
        let names = names.filter(|name| !EXAMPLES.contains(name) && !OTHERS.contains(name));
        found.extend(names.map(|name| format!("{}: {name}", path.display())));
    }
    assert_eq!(found, Vec::<String>::new());
    Ok(())
}
