//! The documents as a book: its list of chapters, and each page as mdBook reads it.
//!
//! The order is that of docs/README.md, and a chapter's title is its page's. A page that the index
//! does not name comes last.
//!
//! Invariant: each page is a chapter once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::links::{links, place};

/// The page whose lists are the book's order.
const INDEX: &str = "docs/README.md";
/// The part of pages that the index does not name.
const OTHERS: &str = "More";

/// The file that a page has in the book: mdBook makes a folder's page of `index.md`, not of
/// `README.md`.
pub fn file(page: &Path) -> PathBuf {
    if page.file_name().is_some_and(|name| name == "README.md") {
        page.with_file_name("index.md")
    } else {
        page.to_owned()
    }
}

/// The text of a page in the book: links lead to the book's files. Blocks stay as they are.
pub fn page(text: &str) -> String {
    let mut is_fenced = false;
    let mut written = String::new();
    for line in text.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        let line = if is_fenced {
            line.to_owned()
        } else {
            line.replace("README.md)", "index.md)")
                .replace("README.md#", "index.md#")
        };
        written.push_str(&line);
        written.push('\n');
    }
    written
}

/// mdBook's SUMMARY.md.
pub fn summary(pages: &BTreeMap<PathBuf, String>) -> String {
    let mut left: BTreeSet<&Path> = pages.keys().map(PathBuf::as_path).collect();
    let mut written = "# Summary\n\n".to_owned();
    let mut add = |page: &Path, bullet: &str, written: &mut String| {
        if left.remove(page) {
            let title = title(pages.get(page).map_or("", String::as_str));
            let file = file(page);
            written.push_str(&format!("{bullet}[{title}]({})\n", file.display()));
        }
    };
    for first in ["README.md", INDEX] {
        add(Path::new(first), "", &mut written);
    }
    let index = pages.get(Path::new(INDEX)).map_or("", String::as_str);
    for line in index.lines() {
        if let Some(part) = line.strip_prefix("## ") {
            written.push_str(&format!("\n# {part}\n\n"));
        }
        for link in links(line) {
            add(&place(Path::new(INDEX), &link).0, "- ", &mut written);
        }
    }
    written.push_str(&format!("\n# {OTHERS}\n\n"));
    for page in pages.keys() {
        add(page, "- ", &mut written);
    }
    written
}

/// A page's first heading.
fn title(text: &str) -> &str {
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    heading.unwrap_or("Without a title")
}

/// The links and the anchors of a page of HTML: what is in quotes after `href="`, `src="` and
/// `id="`.
pub fn links_and_ids(html: &str) -> (Vec<&str>, BTreeSet<&str>) {
    let after = |name: &str| -> Vec<&str> {
        let parts = html.split(name).skip(1);
        parts.filter_map(|part| part.split('"').next()).collect()
    };
    let links = [after(" href=\""), after(" src=\"")].concat();
    (links, after(" id=\"").into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(all: &[(&str, &str)]) -> BTreeMap<PathBuf, String> {
        let all = all.iter();
        all.map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn summary_has_each_page_once_in_order() {
        let found = summary(&pages(&[
            ("README.md", "# phpprof\n"),
            ("CHANGELOG.md", "# Changelog\n"),
            (
                "docs/README.md",
                "# Documents\n## Start\n* [b](b.md), [a](guides/a.md)\n## How\n* [b](b.md#x)\n",
            ),
            ("docs/b.md", "# B\n"),
            ("docs/guides/a.md", "text\n# A\n"),
        ]));
        let expected = "# Summary\n\n[phpprof](index.md)\n[Documents](docs/index.md)\n\n# Start\n\n- [B](docs/b.md)\n- [A](docs/guides/a.md)\n\n# How\n\n\n# More\n\n- [Changelog](CHANGELOG.md)\n";
        assert_eq!(found, expected);
    }

    #[test]
    fn page_leads_to_the_books_files() {
        let found = page("[a](../README.md#x), [b](c/README.md)\n```sh\ncat (README.md)\n```\n");
        let expected = "[a](../index.md#x), [b](c/index.md)\n```sh\ncat (README.md)\n```\n";
        assert_eq!(found, expected);
    }

    #[test]
    fn links_and_ids_are_those_in_quotes() {
        let (links, ids) =
            links_and_ids(r##"<a class="x" href="a.html#b"><img src="c.svg"><h2 id="d">"##);
        assert_eq!(links, ["a.html#b", "c.svg"]);
        assert_eq!(ids, ["d"].into());
    }
}
