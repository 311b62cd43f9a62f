//! The documentation's commands of `phpprof`: it knows each flag and value in them.
//! `php/commands.rs` runs those for a host.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use phpprof_documents::{all_commands, pages, reference, root, spans};

const PHPPROF: &str = env!("CARGO_BIN_EXE_phpprof");

/// phpprof with these arguments. Those from a program on belong to the program; `--help` is
/// inserted before these.
fn parse(arguments: &[String]) -> Result<Output> {
    let expand = |word: &String| {
        if word.contains('$') {
            "1".to_owned()
        } else {
            word.clone()
        }
    };
    let own = arguments
        .iter()
        .take_while(|word| *word != "--")
        .map(expand);
    Ok(Command::new(PHPPROF).args(own).arg("--help").output()?)
}

#[test]
fn documents_use_known_commands() -> Result<()> {
    let in_blocks = all_commands()?.into_iter();
    let mut commands: Vec<_> = in_blocks
        .map(|(page, _, _, command)| (page, command))
        .collect();
    // The changelog also has flags of older releases.
    for (page, text) in pages()?
        .into_iter()
        .filter(|(page, _)| page != Path::new("CHANGELOG.md"))
    {
        commands.extend(
            spans(&text)
                .into_iter()
                .map(|command| (page.clone(), command)),
        );
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, command) in commands {
        let Some(arguments) = command.arguments_of(&["phpprof"]) else {
            continue;
        };
        let output = parse(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let said = said.lines().next().unwrap_or_default();
            wrong.push(format!(
                "{}: {}: {said}",
                page.display(),
                arguments.join(" ")
            ));
        }
        count += 1;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(count >= 10, "{count} commands");
    Ok(())
}

#[test]
fn reference_is_generated_from_the_command_line() -> Result<()> {
    let committed = std::fs::read_to_string(root().join("docs/reference/phpprof.md"))?;
    ensure!(
        committed == reference(Path::new(PHPPROF))?,
        "docs/reference/phpprof.md is stale; run `make generate` and commit it"
    );
    Ok(())
}

#[test]
fn unknown_flag_is_refused_before_help() -> Result<()> {
    for line in ["record --colour", "record -d soon", "look"] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        ensure!(parse(&words)?.status.code() == Some(2), "{line}");
    }
    Ok(())
}
