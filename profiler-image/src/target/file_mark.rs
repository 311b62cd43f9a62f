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
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    /// A process that ends with its test, and the mark of its file.
    struct Sleeper(Child);

    impl Sleeper {
        fn start(program: &Path) -> (Self, FileMark) {
            let child = Command::new(program).arg("60").spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            let own = FileMark::of(i32::try_from(std::process::id()).unwrap());
            let sleeper = Self(child);
            // `spawn` returns within `execve`.
            let until = Instant::now() + Duration::from_secs(10);
            loop {
                match FileMark::of(pid) {
                    Some(mark) if Some(mark) != own => return (sleeper, mark),
                    _ => assert!(Instant::now() < until),
                }
            }
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn of_is_the_same_for_one_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/sleep", &program).unwrap();
        let (first, mark) = Sleeper::start(&program);
        let (_second, same) = Sleeper::start(&program);
        assert_eq!(mark, same);
        // Another file with the same content at the same path, while the first one still runs.
        fs::remove_file(&program).unwrap();
        fs::copy("/bin/sleep", &program).unwrap();
        let (third, other) = Sleeper::start(&program);
        assert_ne!(mark, other);
        drop((first, third));
        // Other content of the same length in the same file.
        let mut bytes = fs::read(&program).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&program, bytes).unwrap();
        let (_fourth, written) = Sleeper::start(&program);
        assert_eq!((written.inode, written.size), (other.inode, other.size));
        assert_ne!(written, other);
    }

    #[test]
    fn of_nobody_is_none() {
        assert_eq!(FileMark::of(i32::MAX), None);
    }
}
