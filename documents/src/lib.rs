//! The documents and their commands, for tests that compare both with the project.
//!
//! The text after a fence says what the block is: `text`, `yaml` and the like, or `sh` and the
//! setup that its commands need.
//!
//! Invariant: each line of a shell block is in a command, a comment or a here-document.

#![warn(clippy::match_bool)]

pub mod book;
mod command;
mod links;
pub mod measurements;
pub mod reasons;
mod reference;
mod runs;
mod script;
pub mod wrap;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use command::{Command, commands};
pub use links::{anchors, is_elsewhere, links, place, targets};
pub use reference::reference;
pub use runs::{CommandRunner, FIRST, IN_TEST, OF_HOST, TUTORIAL, runs};
pub use script::script;

/// Documents outside of the folders.
const PAGES: [&str; 7] = [
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "charts/phpprof/README.md",
    "e2e/cluster/README.md",
];
const FOLDERS: [&str; 3] = ["docs", "contract", "examples"];

/// The setup in which a shell block's commands work. It decides which test runs them ([`runs`] has
/// it for each command).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// A host with PHP: a php-fpm pool `www` that gets requests, and `script.php`.
    Host,
    /// A cluster with phpprof and the plugin, and a namespace `shop` with a Deployment `web`.
    Cluster,
    /// A host or a cluster, on a terminal: a program that runs until it is stopped.
    Terminal,
    /// The cluster, with requests and files of these names.
    Example,
    /// A cluster whose release is installed, upgraded or removed.
    Release,
    /// The same with values for a cloud. The release is not installed, but checked by the API
    /// server.
    Cloud,
    /// A release in a registry, and another registry. No test has both.
    Published,
    /// The cluster of `make demo`.
    Demo,
    /// A clone with the toolchain.
    Build,
}

impl Setup {
    fn named(name: &str) -> Option<Setup> {
        Some(match name {
            "host" => Setup::Host,
            "cluster" => Setup::Cluster,
            "terminal" => Setup::Terminal,
            "example" => Setup::Example,
            "release" => Setup::Release,
            "cloud" => Setup::Cloud,
            "published" => Setup::Published,
            "demo" => Setup::Demo,
            "build" => Setup::Build,
            _ => return None,
        })
    }
}

/// A fenced block in a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// The line of its fence, counted from 1.
    pub line: usize,
    /// The text after the fence.
    pub info: String,
    /// Its lines, without the fences.
    pub text: String,
}

impl Block {
    /// The setup, if this is a shell block with one.
    pub fn setup(&self) -> Option<Setup> {
        Setup::named(self.info.strip_prefix("sh ")?)
    }
}

/// The project's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The documents, by their paths from the project's folder.
pub fn pages() -> io::Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    for page in PAGES {
        found.insert(PathBuf::from(page), fs::read_to_string(root().join(page))?);
    }
    let mut folders: Vec<PathBuf> = FOLDERS.map(PathBuf::from).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.insert(path, fs::read_to_string(entry.path())?);
            }
        }
    }
    Ok(found)
}

/// The fenced blocks of a page, in order. The indentation of the fence is removed.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, open.take()) {
            (Some(_), Some((_, block))) => found.push(block),
            (Some(info), None) => {
                let indent = line.len() - line.trim_start().len();
                let info = info.trim().to_owned();
                open = Some((
                    indent,
                    Block {
                        line: index + 1,
                        info,
                        text: String::new(),
                    },
                ));
            }
            (None, Some((indent, mut block))) => {
                block.text.push_str(line.get(indent..).unwrap_or(""));
                block.text.push('\n');
                open = Some((indent, block));
            }
            (None, None) => {}
        }
    }
    found.extend(open.map(|(_, block)| block));
    found
}

/// The inline code of a page, outside of blocks, that can be parsed as commands.
pub fn spans(text: &str) -> Vec<Command> {
    let mut is_fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans
        .filter_map(|span| commands(span).ok())
        .flatten()
        .collect()
}

/// All shell commands of the documents: page, line of the block, setup.
pub fn all_commands() -> io::Result<Vec<(PathBuf, usize, Setup, Command)>> {
    let mut found = Vec::new();
    for (page, text) in pages()? {
        for block in blocks(&text) {
            let Some(setup) = block.setup() else { continue };
            let said = commands(&block.text).map_err(|error| {
                let place = format!("{}:{}: {error}", page.display(), block.line);
                io::Error::new(io::ErrorKind::InvalidData, place)
            })?;
            found.extend(
                said.into_iter()
                    .map(|command| (page.clone(), block.line, setup, command)),
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_line_and_label_without_indentation() {
        let page = "one\n  ```sh host\n  phpprof dump\n  ```\n```text\na\n\nb\n```\n";
        let found = blocks(page);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].setup()), (2, Some(Setup::Host)));
        assert_eq!(found[0].text, "phpprof dump\n");
        assert_eq!((found[1].setup(), &*found[1].text), (None, "a\n\nb\n"));
    }

    #[test]
    fn spans_are_code_within_sentences() {
        let found = spans("run `kubectl phpprof top web` or `it's`\n```text\n`a`\n```\n");
        let words: Vec<_> = found
            .iter()
            .map(|command| command.words.join(" "))
            .collect();
        assert_eq!(words, ["kubectl phpprof top web"]);
    }

    #[test]
    fn a_label_that_is_none_is_no_setup() {
        let found = blocks("```sh somewhere\n```\n```sh\n```\n");
        assert!(found.iter().all(|block| block.setup().is_none()));
    }
}
