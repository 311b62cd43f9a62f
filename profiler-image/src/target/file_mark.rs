//! What tells one executable file from another without reading it: for programs without a build id.
//!
//! Invariant: two processes with the same mark run the same bytes. A write changes the ctime of a
//! file, which no user can set (inode(7)), and kernels refuse one while the file is executed
//! (`ETXTBSY`, execve(2)). A removed or renamed file has another mark as well, although its bytes
//! are the same.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt;

use super::process::calls;

/// The executable file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileMark {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: [i64; 2],
    changed: [i64; 2],
}

impl FileMark {
    /// Follows `/proc/PID/exe`, which leads to the file itself, also if its path is gone, or has
    /// another one by now (proc(5)).
    pub(super) fn of(pid: i32) -> Option<Self> {
        calls::count_file_read();
        let file = metadata(format!("/proc/{pid}/exe")).ok()?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: [file.mtime(), file.mtime_nsec()],
            changed: [file.ctime(), file.ctime_nsec()],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use phpprof_testing::{Running, wait_for};

    use super::*;

    /// A process, and the mark of its file.
    fn sleeper(program: &Path) -> (Running, FileMark) {
        let running = Running::start(Command::new(program).arg("60")).unwrap();
        let own = FileMark::of(i32::try_from(std::process::id()).unwrap());
        // A process starts before its `execve` is over.
        let mark = wait_for("execve", || {
            Ok(FileMark::of(running.pid()).filter(|mark| Some(*mark) != own))
        });
        (running, mark.unwrap())
    }

    #[test]
    fn of_is_the_same_for_one_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/sleep", &program).unwrap();
        let (first, mark) = sleeper(&program);
        let (_second, same) = sleeper(&program);
        assert_eq!(mark, same);
        // Another file with the same content at the same path, while the first one still runs.
        fs::remove_file(&program).unwrap();
        fs::copy("/bin/sleep", &program).unwrap();
        let (third, other) = sleeper(&program);
        assert_ne!(mark, other);
        drop((first, third));
        // Other content of the same length in the same file.
        let mut bytes = fs::read(&program).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&program, bytes).unwrap();
        let (_fourth, written) = sleeper(&program);
        assert_eq!((written.inode, written.size), (other.inode, other.size));
        assert_ne!(written, other);
    }

    #[test]
    fn of_nobody_is_none() {
        assert_eq!(FileMark::of(i32::MAX), None);
    }
}
