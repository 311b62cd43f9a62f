//! Every link in the documents leads to an existing file and heading, and the index leads to every
//! page within two clicks.
//!
//! Does not: ask other hosts, because the tests run without a network. Links to them are few, and
//! each is listed here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use phpprof_documents::{anchors, is_elsewhere, links, pages, place, root, targets};

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

#[test]
fn links_lead_to_a_file_and_heading() {
    let documents = pages().unwrap();
    assert!(documents.len() > 20, "{}", documents.len());
    let mut broken = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            let (file, anchor) = place(path, &link);
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
fn links_to_other_hosts_are_listed() {
    let (mut found, mut reports) = (BTreeSet::new(), BTreeSet::new());
    for (page, text) in &pages().unwrap() {
        let elsewhere = targets(text).into_iter().filter(|it| is_elsewhere(it));
        if page.ends_with(REPORTS) {
            reports.extend(elsewhere)
        } else {
            found.extend(elsewhere)
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
fn index_leads_to_pages_within_two_clicks() {
    let documents = pages().unwrap();
    let mut seen = BTreeSet::from([PathBuf::from("docs/README.md")]);
    for _ in 0..2 {
        let pages: Vec<_> = seen.iter().cloned().collect();
        for page in pages {
            let Some(text) = documents.get(&page) else {
                continue;
            };
            seen.extend(links(text).iter().map(|link| place(&page, link).0));
        }
    }
    let missing: Vec<_> = documents
        .keys()
        .filter(|page| !seen.contains(*page))
        .collect();
    // The index leads neither to the main README, which leads to the index, nor to the page about
    // the test cluster in its own folder.
    let expected = [Path::new("README.md"), Path::new("e2e/cluster/README.md")];
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|page| !expected.contains(&page.as_path()))
        .collect();
    assert_eq!(missing, Vec::<&PathBuf>::new());
    assert!(links(&documents[Path::new("README.md")]).contains(&"docs/README.md".to_owned()));
}
