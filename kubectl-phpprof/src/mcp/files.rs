//! Profiles in files of this machine: those that the command line names, and those of its folders.
//!
//! Invariant: nothing else is read. A name is looked for in a list that is made anew for each
//! question, so no path leads out of it, and a link in a folder is not followed.

use std::path::{Path, PathBuf};

use super::quote::quoted_path;
use crate::failure::{Exit, Failure};

/// The most files of a list.
const MOST_FILES: usize = 1_000;
/// How the files of a folder end that are profiles, and the list of requests of one.
const ENDS: [&str; 5] = [".pb.gz", ".pprof.gz", ".pprof", ".pb", "requests.json.gz"];

/// The files and folders of the command line.
#[derive(Clone, Debug)]
pub struct FileList(Vec<PathBuf>);

/// A profile in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFile {
    /// The path, as the command line begins it.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    /// Nanoseconds since the epoch.
    pub modified: u128,
}

impl FileList {
    /// Fails if one of them is not there.
    pub fn of(paths: &[PathBuf]) -> Result<Self, Failure> {
        for path in paths {
            let shown = path.display().to_string();
            let found = std::fs::metadata(path);
            let found = found.map_err(|error| Failure::of_file(&shown, &error))?;
            if !found.is_file() && !found.is_dir() {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("{shown} is neither a file nor a folder"),
                    "name profile files, or folders of them",
                ));
            }
        }
        Ok(FileList(paths.to_vec()))
    }

    /// All profiles, the newest first, and how many are left out.
    pub fn listed(&self) -> (Vec<AgentFile>, usize) {
        let mut found: Vec<AgentFile> = Vec::new();
        for path in &self.0 {
            if path.is_dir() {
                found.extend(of_folder(path));
            } else {
                found.extend(of_path(path, std::fs::metadata(path)));
            }
        }
        found.sort_by(|one, other| {
            let by_age = other.modified.cmp(&one.modified);
            by_age.then_with(|| one.name.cmp(&other.name))
        });
        found.dedup_by(|one, other| one.name == other.name);
        let left_out = found.len().saturating_sub(MOST_FILES);
        found.truncate(MOST_FILES);
        (found, left_out)
    }

    pub fn find(&self, name: &str) -> Result<AgentFile, Failure> {
        let (listed, _) = self.listed();
        let is_it = |file: &AgentFile| file.name == name || quoted_path(&file.name) == name;
        let found = listed.into_iter().find(is_it);
        found.ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                "there is no profile of this name",
                "use a name that list_profiles shows",
            )
        })
    }
}

fn of_folder(folder: &Path) -> Vec<AgentFile> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_profile = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| ENDS.iter().any(|end| name.ends_with(end)))
    };
    let paths = entries.map(|entry| entry.path());
    let found = paths.filter(|path| is_profile(path)).filter_map(|path| {
        // Not of what a link leads to.
        of_path(&path, std::fs::symlink_metadata(&path))
    });
    found.collect()
}

/// `None` for what is not a regular file: a pipe, for instance, would never end.
fn of_path(path: &Path, metadata: std::io::Result<std::fs::Metadata>) -> Option<AgentFile> {
    let metadata = metadata.ok().filter(std::fs::Metadata::is_file)?;
    let modified = metadata.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(AgentFile {
        name: path.to_str()?.to_owned(),
        path: path.to_owned(),
        bytes: metadata.len(),
        modified: since.as_nanos(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_list_are_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.pb.gz", "b.pprof", "secret.txt", "web.requests.json.gz"] {
            std::fs::write(path(name), name).unwrap();
        }
        std::fs::create_dir(path("in")).unwrap();
        std::fs::write(path("in/deep.pb.gz"), "").unwrap();
        std::os::unix::fs::symlink(path("secret.txt"), path("link.pb.gz")).unwrap();
        let list = FileList::of(&[folder.path().to_owned()]).unwrap();
        let (listed, left_out) = list.listed();
        let mut names: Vec<_> = listed.iter().map(|file| &file.path).collect();
        names.sort();
        let expected = ["a.pb.gz", "b.pprof", "web.requests.json.gz"].map(path);
        assert_eq!((names, left_out), (expected.iter().collect(), 0));
        let of = |name: &str| list.find(&path(name).display().to_string());
        assert_eq!(of("a.pb.gz").unwrap().bytes, 7);
        for outside in [
            "secret.txt",
            "link.pb.gz",
            "in/deep.pb.gz",
            "in/../a.pb.gz",
            "../x",
            "",
        ] {
            assert_eq!(of(outside).unwrap_err().exit, Exit::NotFound, "{outside}");
        }
        assert!(list.find("a.pb.gz").is_err());
    }

    #[test]
    fn a_missing_path_fails_at_once() {
        let missing = FileList::of(&["/nowhere/a.pb.gz".into()]).unwrap_err();
        assert_eq!(missing.exit, Exit::NotFound);
        assert!(FileList::of(&["/dev/null".into()]).is_err());
    }
}
