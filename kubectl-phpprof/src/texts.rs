//! The source code that `flame --source` puts into a page: the profile's files, read from a folder
//! of the user's.
//!
//! Invariant: nothing is read that is not a file inside of the folder. Profiles are not trusted, so
//! a path of theirs must not lead out of it, nor a symbolic link.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use phpprof_profile::page::{SourceTexts, beginning};
use phpprof_profile::{Profile, top};

use crate::failure::{Exit, Failure};
use crate::table::printable;

/// The most bytes of one file.
const LARGEST: u64 = 1 << 20;

/// How many files were left out, and why.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    missing: usize,
    outside: usize,
    large: usize,
    unreadable: usize,
}

impl LeftOut {
    fn words(&self) -> Vec<String> {
        let counts = [
            (self.missing, "not in it"),
            (self.outside, "outside of it by a symbolic link"),
            (self.large, "without room"),
            (self.unreadable, "not readable"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        counts
            .map(|(count, why)| format!("{count} {why}"))
            .collect()
    }
}

/// The texts of the profile's files, those with the most self time first.
///
/// # Errors
/// The folder cannot be read, or has none of the files.
pub fn texts_of(profile: &Profile, folder: &Path) -> Result<SourceTexts, Failure> {
    let shown = folder.display().to_string();
    let root = folder.canonicalize();
    let root = root.map_err(|error| Failure::of_file(&shown, &error))?;
    let paths = SourceTexts::paths(profile);
    let Some(start) = beginning(&paths, |path| root.join(path).is_file()) else {
        return Err(none_of(&shown, &paths));
    };
    let (mut texts, mut left) = (SourceTexts::default(), LeftOut::default());
    for path in by_time(profile, &paths) {
        let Some(rest) = path.strip_prefix(start) else {
            left.missing += 1;
            continue;
        };
        match read(&root, rest) {
            Ok(text) => left.large += usize::from(!texts.add(path, text)),
            Err(why) => *why.of(&mut left) += 1,
        }
    }
    if texts.is_empty() {
        return Err(none_of(&shown, &paths));
    }
    let mut said = format!("files of {shown} in the page: {}", texts.len());
    let why = left.words();
    if !why.is_empty() {
        said += &format!("; left out: {}", why.join(", "));
    }
    eprintln!("{said}");
    Ok(texts)
}

fn none_of(folder: &str, paths: &BTreeSet<&str>) -> Failure {
    let first = paths.first().copied().unwrap_or("none of PHP code");
    Failure::new(
        Exit::Usage,
        format!("{folder} has none of the profile's files"),
        format!(
            "name the folder that has the same files as the pod's; one of them is {}",
            printable(first)
        ),
    )
}

fn by_time<'p>(profile: &Profile, paths: &BTreeSet<&'p str>) -> Vec<&'p str> {
    let mut left = paths.clone();
    let rows = top(profile, "wall").into_iter();
    let first = rows.filter_map(|row| left.take(row.file.as_str()));
    let mut ordered: Vec<_> = first.collect();
    ordered.extend(left);
    ordered
}

/// Why a file is left out.
#[derive(Debug)]
enum Unread {
    Missing,
    Outside,
    Large,
    Unreadable,
}

impl Unread {
    fn of(self, left: &mut LeftOut) -> &mut usize {
        match self {
            Unread::Missing => &mut left.missing,
            Unread::Outside => &mut left.outside,
            Unread::Large => &mut left.large,
            Unread::Unreadable => &mut left.unreadable,
        }
    }
}

fn read(root: &Path, path: &str) -> Result<String, Unread> {
    let place: PathBuf = root
        .join(path)
        .canonicalize()
        .map_err(|_| Unread::Missing)?;
    if !place.starts_with(root) {
        return Err(Unread::Outside);
    }
    // A FIFO would block.
    if !place.is_file() {
        return Err(Unread::Missing);
    }
    let mut bytes = Vec::new();
    let file = File::open(&place).map_err(|_| Unread::Unreadable)?;
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|_| Unread::Unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Unread::Large);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
