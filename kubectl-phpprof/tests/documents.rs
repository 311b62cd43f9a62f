//! The documents' commands of `kubectl phpprof`: the plugin knows each verb, flag and value in them. No cluster is asked: each ends with `--help`.

use std::path::PathBuf;
use std::process::{Command, Output};

use phpprof_documents::{all_commands, pages, spans};

/// The plugin with these arguments, which it reads from left to right until `--help`.
fn parse(arguments: &[String]) -> std::io::Result<Output> {
    // A word that a shell expands could be anything, also a number.
    let expand = |word: &String| {
        if word.contains('$') {
            "1".to_owned()
        } else {
            word.clone()
        }
    };
    Command::new(env!("CARGO_BIN_EXE_kubectl-phpprof"))
        .args(arguments.iter().map(expand))
        .arg("--help")
        .output()
}

fn check(place: &str, arguments: &[String], wrong: &mut Vec<String>) {
    // What a shell asks for completion takes any words.
    if arguments.first().is_none_or(|verb| verb.starts_with("__")) {
        return;
    }
    let output = parse(arguments).unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or_default();
        wrong.push(format!("{place}: {}: {said}", arguments.join(" ")));
    }
}

#[test]
fn the_plugin_knows_what_its_commands_in_blocks_say() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, line, _, command) in all_commands().unwrap() {
        if let Some(arguments) = command.arguments_of(&["kubectl", "phpprof"]) {
            check(&format!("{}:{line}", page.display()), arguments, &mut wrong);
            count += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 50, "{count}");
}

#[test]
fn the_plugin_knows_what_its_commands_within_sentences_say() {
    let mut wrong = Vec::new();
    let mut count = 0;
    // The changelog also has what older releases knew.
    for (page, text) in pages().unwrap() {
        if page == PathBuf::from("CHANGELOG.md") {
            continue;
        }
        for command in spans(&text) {
            if let Some(arguments) = command.arguments_of(&["kubectl", "phpprof"]) {
                check(&page.display().to_string(), arguments, &mut wrong);
                count += 1;
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 20, "{count}");
}

#[test]
fn a_flag_that_is_none_is_refused_also_before_help() {
    for line in [
        "run deploy/web --colour",
        "run deploy/web -d soon",
        "look web",
        "top web --count many",
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(parse(&words).unwrap().status.code(), Some(2), "{line}");
    }
}
