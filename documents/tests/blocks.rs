//! Each block of commands names its setup, and only files and `make` targets that exist.

use phpprof_documents::{all_commands, blocks, pages, root};

/// The kinds of blocks without commands.
const OTHERS: [&str; 5] = ["text", "yaml", "json", "php", "c"];

#[test]
fn blocks_say_what_they_are() {
    let mut wrong = Vec::new();
    for (page, text) in pages().unwrap() {
        for block in blocks(&text) {
            if block.setup().is_none() && !OTHERS.contains(&block.info.as_str()) {
                wrong.push(format!("{}:{}: {}", page.display(), block.line, block.info));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_target_of_make_is_there() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let mut count = 0;
    for (page, line, _, command) in all_commands().unwrap() {
        let Some(words) = command.arguments_of(&["make"]) else {
            continue;
        };
        for target in words.iter().filter(|word| !word.contains('=')) {
            let is_there = makefile.contains(&format!("\n{target}:"));
            assert!(is_there, "{}:{line}: make {target}", page.display());
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn files_that_commands_name_are_there() {
    let folders = [
        "examples/",
        "charts/",
        "demo/",
        "crds/",
        "e2e/",
        "profiler-image/",
    ];
    let mut count = 0;
    for (page, line, _, command) in all_commands().unwrap() {
        for word in &command.words {
            let file = word.rsplit('=').next().unwrap_or_default();
            let is_ours = folders.iter().any(|folder| file.starts_with(folder));
            if is_ours {
                assert!(
                    root().join(file).exists(),
                    "{}:{line}: {file}",
                    page.display()
                );
                count += 1;
            }
        }
    }
    assert!(count >= 15, "{count}");
}
