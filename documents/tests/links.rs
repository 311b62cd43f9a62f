//! Every link in the documents leads to an existing file and heading, and the index leads to every page within two clicks.
//!
//! Does not: ask other hosts, because the tests run without a network. Links to them are few, and each is listed here.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use phpprof_documents::{pages, root};

/// The links to other hosts, and why the documents need them.
const ELSEWHERE: [(&str, &str); 4] = [
    (
        "https://github.com/loks0n/php-fast-profile/blob/main/docs/benchmarks.md",
        "the programs that our benchmark takes from it",
    ),
    (
        "https://keepachangelog.com/en/1.1.0/",
        "the changelog's format",
    ),
    ("https://semver.org", "what a version number means"),
    (
        "https://www.php.net/manual/en/opcache.preloading.php",
        "how to use what a finding recommends",
    ),
];

/// The page that links to what others have reported.
const REPORTS: &str = "measurements/reports.md";

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
fn links(text: &str) -> Vec<String> {
    let mut all = targets(text);
    all.retain(|target| !is_elsewhere(target));
    all
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The targets of all links of a document. Inline code has no links.
fn targets(text: &str) -> Vec<String> {
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
fn anchors(text: &str) -> BTreeSet<String> {
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
fn target(of: &Path, link: &str) -> (PathBuf, Option<String>) {
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

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let documents = pages().unwrap();
    assert!(documents.len() > 20, "{}", documents.len());
    let mut broken = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            let (file, anchor) = target(path, &link);
            let has_heading = match (&anchor, documents.get(&file)) {
                (Some(anchor), Some(text)) => anchors(text).contains(anchor),
                _ => true,
            };
            if !root().join(&file).exists() || !has_heading {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn links_to_other_hosts_are_those_that_are_listed() {
    let (mut found, mut reports) = (BTreeSet::new(), BTreeSet::new());
    for (page, text) in &pages().unwrap() {
        let elsewhere = targets(text).into_iter().filter(|it| is_elsewhere(it));
        match page.ends_with(REPORTS) {
            true => reports.extend(elsewhere),
            false => found.extend(elsewhere),
        }
    }
    assert!(
        reports.len() >= 10
            && reports
                .iter()
                .all(|it| it.starts_with("https://github.com/"))
    );
    let listed: BTreeSet<String> = ELSEWHERE.map(|(link, _)| link.to_owned()).into();
    assert_eq!(found, listed);
}

#[test]
fn the_index_leads_to_every_page_within_two_clicks() {
    let documents = pages().unwrap();
    let mut seen = BTreeSet::from([PathBuf::from("docs/README.md")]);
    for _ in 0..2 {
        let pages: Vec<_> = seen.iter().cloned().collect();
        for page in pages {
            let Some(text) = documents.get(&page) else {
                continue;
            };
            seen.extend(links(text).iter().map(|link| target(&page, link).0));
        }
    }
    let missing: Vec<_> = documents
        .keys()
        .filter(|page| !seen.contains(*page))
        .collect();
    // The index leads neither to the main README, which leads to the index, nor to the page about the test cluster in its own folder.
    let expected = [Path::new("README.md"), Path::new("e2e/cluster/README.md")];
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|page| !expected.contains(&page.as_path()))
        .collect();
    assert_eq!(missing, Vec::<&PathBuf>::new());
    assert!(links(&documents[Path::new("README.md")]).contains(&"docs/README.md".to_owned()));
}
