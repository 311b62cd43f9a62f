//! A command within a sentence escapes the tests that run blocks. So each stands in a block too, or
//! is checked here, or is named with its reason.

use std::io;

use phpprof_documents::{Command, all_commands, pages, root, spans};

/// Programs whose commands readers would type.
const PROGRAMS: [&str; 9] = [
    "kubectl", "helm", "make", "cargo", "skopeo", "git", "docker", "curl", "krew",
];
/// The begin of commands that a text only talks about, and why.
const ONLY_NAMED: [(&[&str], &str); 10] = [
    (&["cargo", "nextest"], "the tests themselves"),
    (&["cargo", "install"], "brings a program from elsewhere"),
    (&["kubectl", "phpprof"], "the plugin's tests parse them all"),
    (
        &["kubectl", "get"],
        "names what shows a secret, in a decision",
    ),
    (&["kubectl", "exec"], "names a right, in a decision"),
    (&["docker", "login"], "names where credentials are from"),
    (
        &["cargo", "check"],
        "a step of a release, which a maintainer makes",
    ),
    (
        &["cargo", "run"],
        "an example program: a measurement by hand",
    ),
    (
        &["cargo", "test"],
        "a test itself: its package is checked here",
    ),
    (&["make", "50000"], "arguments of such an example program"),
];

fn is_only_named(command: &Command) -> bool {
    ONLY_NAMED
        .iter()
        .any(|(words, _)| command.arguments_of(words).is_some())
}

/// The inline commands of all pages but the changelog, which says what has changed and not what to
/// do.
fn inline() -> io::Result<Vec<(String, Command)>> {
    let mut found = Vec::new();
    for (page, text) in pages()? {
        if page.ends_with("CHANGELOG.md") {
            continue;
        }
        let commands = spans(&text).into_iter();
        let commands = commands.filter(|command| {
            let has_verb = command.words.len() > 1;
            has_verb && PROGRAMS.contains(&command.words[0].as_str())
        });
        found.extend(commands.map(|command| (page.display().to_string(), command)));
    }
    Ok(found)
}

#[test]
fn commands_in_sentences_are_in_blocks() {
    let blocks = all_commands().unwrap();
    let stands_in_a_block = |command: &Command| {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        blocks
            .iter()
            .any(|(.., other)| other.arguments_of(&words).is_some())
    };
    let all = inline().unwrap();
    assert!(all.len() > 100, "{}", all.len());
    let escaped: Vec<String> = all
        .into_iter()
        .filter(|(_, command)| command.words[0] != "make")
        .filter(|(_, command)| !is_only_named(command) && !stands_in_a_block(command))
        .map(|(page, command)| format!("{page}: {}", command.words.join(" ")))
        .collect();
    assert_eq!(escaped, Vec::<String>::new());
}

#[test]
fn targets_of_make_in_sentences_are_there() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let (makefile, lock) = (read("Makefile"), read("Cargo.lock"));
    for (page, command) in inline().unwrap() {
        let shown = format!("{page}: {}", command.words.join(" "));
        if let Some(words) = command.arguments_of(&["make"])
            && !is_only_named(&command)
        {
            let targets = words.iter().filter(|word| !word.contains('='));
            for target in targets {
                assert!(makefile.contains(&format!("\n{target}:")), "{shown}");
            }
        }
        if let Some(words) = command.arguments_of(&["cargo", "test"]) {
            let package = words.iter().skip_while(|word| *word != "-p").nth(1);
            let package = package.unwrap_or_else(|| panic!("{shown}: no -p"));
            assert!(
                lock.contains(&format!("\nname = \"{package}\"\n")),
                "{shown}"
            );
        }
    }
}

#[test]
fn what_is_only_named_is_named_somewhere() {
    let all = inline().unwrap();
    for (words, why) in ONLY_NAMED {
        let is_there = all
            .iter()
            .any(|(_, command)| command.arguments_of(words).is_some());
        assert!(
            is_there,
            "{words:?} is not in the documents any more: {why}"
        );
    }
}
