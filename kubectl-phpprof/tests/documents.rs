//! The documents' commands of `kubectl phpprof`: the plugin knows each verb, flag and value in
//! them. It makes no call to a cluster, because each command ends with `--help`.

use std::path::Path;
use std::process::{Command, Output};

use phpprof_documents::{all_commands, commands, pages, root, spans};

/// Runs the plugin with these arguments. It parses them from left to right until `--help`.
fn parse(arguments: &[String]) -> std::io::Result<Output> {
    // A word that a shell expands could be anything, even a number.
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

/// Why the plugin refuses these arguments on a page, if it does.
fn refusal(page: &Path, arguments: &[String]) -> std::io::Result<Option<String>> {
    let output = parse(arguments)?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    let line = arguments.join(" ");
    Ok(Some(format!("{}: {line}: {said}", page.display())))
}

#[test]
fn the_plugin_knows_the_commands_in_blocks() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, _, _, command) in all_commands().unwrap() {
        if let Some(arguments) = command.arguments_of(&["kubectl", "phpprof"]) {
            wrong.extend(refusal(&page, arguments).unwrap());
            count += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 50, "{count}");
}

#[test]
fn the_plugin_knows_the_commands_in_sentences() {
    let mut wrong = Vec::new();
    let mut count = 0;
    // The changelog also has commands of older releases.
    let pages = pages().unwrap().into_iter();
    for (page, text) in pages.filter(|(page, _)| page != Path::new("CHANGELOG.md")) {
        for command in spans(&text) {
            // `kubectl phpprof` without arguments is just the plugin's name.
            let arguments = command.arguments_of(&["kubectl", "phpprof"]);
            if let Some(arguments) = arguments.filter(|words| !words.is_empty()) {
                wrong.extend(refusal(&page, arguments).unwrap());
                count += 1;
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count >= 20, "{count}");
}

#[test]
fn an_unknown_flag_is_refused_even_before_help() {
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

/// The commands of a pipeline's steps, wherever the file has a text.
fn scripts(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => found.push(text.clone()),
        serde_json::Value::Array(all) => all.iter().for_each(|it| scripts(it, found)),
        serde_json::Value::Object(all) => all.values().for_each(|it| scripts(it, found)),
        _ => {}
    }
}

#[test]
fn the_plugin_knows_the_commands_of_pipelines() {
    for file in ["github", "gitlab"] {
        let path = format!("examples/pipelines/{file}.yaml");
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let mut found = Vec::new();
        scripts(&serde_yaml::from_str(&text).unwrap(), &mut found);
        let mut verbs = Vec::new();
        for script in found.iter().filter(|text| text.contains("kubectl phpprof")) {
            for command in commands(script).unwrap() {
                if let Some(arguments) = command.arguments_of(&["kubectl", "phpprof"]) {
                    assert_eq!(refusal(Path::new(&path), arguments).unwrap(), None);
                    verbs.extend(arguments.first().cloned());
                }
            }
        }
        assert_eq!(verbs, ["run", "run", "verdict"], "{path}");
    }
}
