//! The source files that a page shows, and which of a reader's files they are.
//!
//! It reads no file. A profile has paths of the machine that ran it; a reader has the same files in
//! another folder: the two differ in their beginnings.
//!
//! Invariant: a path is only mapped to one inside of the folder, and only if it is of PHP code:
//! profiles are not trusted, and a page may be passed on.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::proto::Profile;
use crate::waiting::is_php;

/// The most bytes of all files in a page.
pub const MOST_TEXT: usize = 8 << 20;
/// The most files of a profile that are looked for.
const MOST_FILES: usize = 2_000;
/// How names of PHP code end.
const ENDS: [&str; 5] = [".php", ".phtml", ".inc", ".module", ".tpl"];

/// The text of each file, by its path in the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SourceTexts {
    files: BTreeMap<String, String>,
    #[serde(skip)]
    bytes: usize,
}

impl SourceTexts {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// The room that is left, in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        MOST_TEXT.saturating_sub(self.bytes)
    }

    /// Adds a file by its path in the profile. Returns whether there was room.
    pub fn add(&mut self, path: &str, text: String) -> bool {
        if text.len() > self.room() {
            return false;
        }
        self.bytes += text.len();
        self.files.insert(path.to_owned(), text);
        true
    }

    /// The paths of the profile's PHP code, of at most 2,000 files.
    #[must_use]
    pub fn paths(profile: &Profile) -> BTreeSet<&str> {
        let files = profile.function.iter();
        let files = files.map(|function| profile.string(function.filename));
        let files = files.filter(|file| is_php(file) && is_code(file));
        files
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(MOST_FILES)
            .collect()
    }
}

/// Whether a path is absolute, is of PHP code, and has only plain names.
fn is_code(path: &str) -> bool {
    let is_plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\\', '\0']);
    let lower = path.to_ascii_lowercase();
    let names = path.strip_prefix('/').map(|rest| rest.split('/'));
    ENDS.iter().any(|end| lower.ends_with(end)) && names.is_some_and(|mut it| it.all(is_plain))
}

/// The beginning that the profile's paths have instead of the folder: the one with which most of
/// them are files of the folder, and of several the longest. `is_there` says whether the folder has
/// a file at this relative path.
#[must_use]
pub fn beginning<'p>(
    paths: &BTreeSet<&'p str>,
    is_there: impl Fn(&str) -> bool,
) -> Option<&'p str> {
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        for (at, _) in path.match_indices('/') {
            let (beginning, rest) = path.split_at(at + 1);
            if is_there(rest) {
                *votes.entry(beginning).or_default() += 1;
            }
        }
    }
    let best = votes
        .into_iter()
        .max_by_key(|(beginning, votes)| (*votes, beginning.len()));
    best.map(|(beginning, _)| beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(paths: &[&str], folder: &[&str], expected: Option<&str>) {
        let paths = paths.iter().copied().collect();
        let found = beginning(&paths, |path| folder.contains(&path));
        assert_eq!(found, expected);
    }

    #[test]
    fn most_files_decide_what_the_folder_is() {
        let paths = [
            "/srv/app/index.php",
            "/srv/app/src/Cart.php",
            "/usr/share/php/x.php",
        ];
        check(&paths, &["index.php", "src/Cart.php"], Some("/srv/app/"));
        check(&paths, &["app/src/Cart.php"], Some("/srv/"));
        check(&paths, &["Cart.php"], Some("/srv/app/src/"));
        check(&paths, &["other.php"], None);
        // A file of the same name elsewhere does not count more.
        check(
            &paths,
            &["index.php", "src/Cart.php", "Cart.php"],
            Some("/srv/app/"),
        );
    }

    #[test]
    fn only_paths_of_code_are_looked_for() {
        for path in ["/srv/a.php", "/srv/müller/A.PHP", "/a.inc"] {
            assert!(is_code(path), "{path}");
        }
        for path in [
            "/srv/.env",
            "/srv/../a.php",
            "a.php",
            "//a.php",
            "/a.php\0.php",
            "/etc/passwd",
        ] {
            assert!(!is_code(path), "{path}");
        }
    }

    #[test]
    fn texts_are_bounded() {
        let mut texts = SourceTexts::default();
        assert!(texts.add("/a.php", "x".repeat(MOST_TEXT - 1)));
        assert!(!texts.add("/b.php", "xx".to_owned()));
        assert!(texts.add("/b.php", "x".to_owned()));
        assert_eq!((texts.len(), texts.room()), (2, 0));
    }
}
