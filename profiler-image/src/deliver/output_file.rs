//! The file that a profile is written to (`-o`): opened before the run, so that a bad path fails at
//! once, and filled after it.
//!
//! Invariant: a run that fails or is interrupted does not change an existing file. Anything but a
//! regular file, such as `/dev/stdout` or a FIFO, is written to directly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use crate::failure::{Reason, SamplerFailure};

/// How many names are tried for the temporary file: runs that were killed may have left some.
const NAMES: u32 = 100;

/// An open file that becomes the profile; nothing changes without [`OutputFile::keep`].
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    /// A temporary file beside the path, until it is complete.
    part: Option<PartialFile>,
}

/// A file that is removed when this value is dropped.
#[derive(Debug)]
struct PartialFile(PathBuf);

impl OutputFile {
    /// Opens the output for a profile. If it is a FIFO, this waits for its reader.
    ///
    /// # Errors
    /// The file cannot be written to; the message says what to do.
    pub fn open(path: &Path) -> Result<Self, SamplerFailure> {
        let open = if is_replaceable(path) {
            Self::beside(path).or_else(|error| {
                // The file is writable, but its folder is not.
                Self::itself(path, false).map_err(|_| error)
            })
        } else {
            Self::itself(path, true)
        };
        open.map_err(|error| {
            let (path, hint) = (path.display(), hint(path, &error));
            let message = format!("{path} could not be opened: {error}; {hint}");
            SamplerFailure::new(Reason::Usage, "output", message)
        })
    }

    fn beside(path: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let mut taken = io::Error::from(ErrorKind::AlreadyExists);
        for number in 0..NAMES {
            let part = path.with_file_name(format!(".phpprof-{pid}-{number}.part"));
            match OpenOptions::new().write(true).create_new(true).open(&part) {
                Ok(file) => {
                    if let Ok(older) = fs::metadata(path) {
                        // It succeeds only as far as this user has the rights.
                        let _ = fchown(&file, Some(older.uid()), Some(older.gid()));
                        let _ = file.set_permissions(older.permissions());
                    }
                    let (path, part) = (path.to_owned(), Some(PartialFile(part)));
                    return Ok(Self { path, file, part });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    fn itself(path: &Path, create: bool) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(create)
            .truncate(false)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            part: None,
        })
    }

    /// Writes the profile, and replaces the old file.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep(self, bytes: &[u8]) -> Result<(), SamplerFailure> {
        let path = self.path.clone();
        self.write(bytes).map_err(|error| {
            let message = format!("{} could not be written: {error}", path.display());
            SamplerFailure::new(Reason::Internal, "output", message)
        })
    }

    fn write(mut self, bytes: &[u8]) -> io::Result<()> {
        if self.part.is_none() && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(bytes)?;
        match &self.part {
            // A file that is a mount point cannot be replaced.
            Some(part) => fs::rename(&part.0, &self.path)
                .or_else(|error| fs::write(&self.path, bytes).map_err(|_| error)),
            None => Ok(()),
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

/// Whether a new file can replace the path: it does not exist, or is a regular file. A link is
/// kept, as `/dev/stdout` is one.
fn is_replaceable(path: &Path) -> bool {
    let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
    !is_folder && fs::symlink_metadata(path).map_or(true, |there| there.is_file())
}

fn hint(path: &Path, error: &io::Error) -> String {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .display();
    match error.kind() {
        ErrorKind::NotFound => format!("create the folder {folder}, or name another file with -o"),
        ErrorKind::PermissionDenied => {
            format!("name a file with -o that this user may write, in another folder than {folder}")
        }
        ErrorKind::IsADirectory => {
            format!(
                "name a file in it with -o, for instance {}",
                path.join("profile.pb.gz").display()
            )
        }
        _ => "name another file with -o".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// The files in a folder, with their content.
    fn held(folder: &Path) -> Vec<(String, String)> {
        let mut held: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        held.sort();
        held
    }

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn old_file_stays_until_the_profile_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.pb.gz");
        fs::write(&path, "older").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = OutputFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "older");
        file.keep(b"new").unwrap();
        assert_eq!(held(folder.path()), [pair("out.pb.gz", "new")]);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "it is as open to others as before");
    }

    #[test]
    fn a_run_that_fails_leaves_nothing_new() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("older"), "older").unwrap();
        drop(OutputFile::open(&folder.path().join("older")).unwrap());
        drop(OutputFile::open(&folder.path().join("new")).unwrap());
        assert_eq!(held(folder.path()), [pair("older", "older")]);
    }

    #[test]
    fn a_killed_run_is_in_nobody_s_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.pb.gz");
        std::mem::forget(OutputFile::open(&path).unwrap());
        OutputFile::open(&path).unwrap().keep(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn link_stays_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        fs::write(folder.path().join("file"), "much older").unwrap();
        symlink("file", &path).unwrap();
        let file = OutputFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "much older");
        file.keep(b"new").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn unwritable_path_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        for (named, hint) in [
            (
                format!("{path}/no/out"),
                format!("create the folder {path}/no,"),
            ),
            (
                format!("{path}"),
                format!("for instance {path}/profile.pb.gz"),
            ),
            (
                format!("{path}/out/"),
                format!("for instance {path}/out/profile.pb.gz"),
            ),
        ] {
            let failure = OutputFile::open(Path::new(&named)).unwrap_err();
            assert_eq!(failure.reason, Reason::Usage);
            assert!(failure.message.contains(&hint), "{}", failure.message);
        }
        assert_eq!(held(folder.path()), []);
    }
}
