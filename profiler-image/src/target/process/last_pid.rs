//! The last PID that the kernel gave, the fifth field of `/proc/loadavg`: while it is the same, no process and no
//! thread has been started in this PID namespace. It is one short read, while listing `/proc` costs some 3 µs a process.
//!
//! The kernel gives the number a moment before it lists the process. gVisor always reports 0, and lxcfs a value up to five
//! seconds old. So callers still have to list the processes now and then.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::calls;

/// The file, which is kept open.
#[derive(Debug)]
pub struct LastPid(Option<File>);

impl LastPid {
    /// Opens the file.
    #[must_use]
    pub fn open() -> Self {
        Self(calls::open("/proc/loadavg").ok())
    }

    /// The number; `None` if it is not available.
    #[must_use]
    pub fn read(&self) -> Option<i32> {
        let mut bytes = [0; 128];
        calls::count_file_read();
        let length = self.0.as_ref()?.read_at(&mut bytes, 0).ok()?;
        parse(std::str::from_utf8(bytes.get(..length)?).ok()?)
    }
}

fn parse(text: &str) -> Option<i32> {
    let field = text.split_ascii_whitespace().nth(4)?;
    field.parse().ok().filter(|&pid| pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_the_fifth_field() {
        assert_eq!(parse("3.22 24.86 27.22 1/345 24108\n"), Some(24108));
        assert_eq!(parse("0.00 0.00 0.00 0/0 0\n"), None);
        assert_eq!(parse("3.22 24.86"), None);
    }

    #[test]
    fn it_changes_when_a_process_starts() {
        let last = LastPid::open();
        let before = last.read();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(last.read() != before && before.is_some());
        child.wait().unwrap();
    }
}
