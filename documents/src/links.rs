//! Where the links of a document lead.
//!
//! Invariant: fenced blocks and inline code have no links.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// The lines of a document outside of fenced blocks.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The targets of a document's links, except those to other hosts.
pub fn links(text: &str) -> Vec<String> {
    let mut all = targets(text);
    all.retain(|target| !is_elsewhere(target));
    all
}

/// Whether a link leads to another host.
pub fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The targets of all links of a document. Inline code has no links.
pub fn targets(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in lines(text) {
        let prose: Vec<&str> = line.split('`').step_by(2).collect();
        // The text of a link may be code, but its target is not.
        let prose = prose.join("");
        for part in prose.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            links.push(target.to_owned());
        }
    }
    links
}

/// The anchors of a document's headings, as GitHub makes them.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let headings = lines(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// A path without its `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The file that a link names, and the heading in that file.
pub fn place(of: &Path, link: &str) -> (PathBuf, Option<String>) {
    let (file, anchor) = match link.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor.to_owned())),
        None => (link, None),
    };
    let file = match file {
        "" => of.to_owned(),
        file => plain(&of.parent().unwrap_or(Path::new("")).join(file)),
    };
    (file, anchor)
}
