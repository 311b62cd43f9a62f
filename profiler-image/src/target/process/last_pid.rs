//! The last PID that the kernel gave, the fifth field of `/proc/loadavg`: while it is the same, no
//! process and no thread has been started in this PID namespace. It is one short read, while
//! listing `/proc` costs about 3 µs a process.
//!
//! The kernel gives the number a moment before it lists the process. gVisor always reports 0, and
//! lxcfs a value up to five seconds old. So callers still have to list the processes now and then.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::calls;

/// The number when it was last read.
#[derive(Debug)]
pub struct LastPid {
    /// The file, which is kept open.
    file: Option<File>,
    number: Option<i32>,
    /// It was the same twice, so its process is listed.
    is_settled: bool,
}

impl LastPid {
    /// Opens the file.
    #[must_use]
    pub fn open() -> Self {
        Self {
            file: calls::open("/proc/loadavg").ok(),
            number: None,
            is_settled: false,
        }
    }

    /// Takes whether a process or thread may have started that was not listed when this was last
    /// called. It is true as well where the number is not available.
    pub fn take_move(&mut self) -> bool {
        let number = self.read();
        let is_same = number.is_some() && number == self.number;
        let has_moved = !is_same || !self.is_settled;
        (self.number, self.is_settled) = (number, is_same);
        has_moved
    }

    /// The number now; `None` where it is not available.
    #[must_use]
    pub fn read(&self) -> Option<i32> {
        let mut bytes = [0; 128];
        calls::count_file_read();
        let length = self.file.as_ref()?.read_at(&mut bytes, 0).ok()?;
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
    fn a_started_process_moves_it_twice() {
        let mut last = LastPid {
            file: Some(tempfile::tempfile().unwrap()),
            number: None,
            is_settled: false,
        };
        let mut moved = |number: i32| {
            let file = last.file.as_ref().unwrap();
            file.write_all_at(format!("0.1 0.2 0.3 1/9 {number:05}\n").as_bytes(), 0)
                .unwrap();
            last.take_move()
        };
        let expected = [(7, true), (7, true), (7, false), (8, true), (9, true)];
        let then = [(9, true), (9, false), (0, true), (0, true)];
        for (number, is_expected) in expected.into_iter().chain(then) {
            assert_eq!(moved(number), is_expected, "{number}");
        }
    }

    #[test]
    fn the_number_changes_when_a_process_starts() {
        let last = LastPid::open();
        let before = last.read();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(last.read() != before && before.is_some());
        child.wait().unwrap();
    }
}
