//! The text of files under `/proc`, bounded, and their paths.

use std::fmt::{self, Write as _};
use std::io::{self, Read};
use std::path::Path;

use super::calls;

/// The longest text that is read of a file; of a target with very many mappings, later ones are
/// ignored.
const MAX_TEXT: u64 = 16 << 20;

/// The text of a file under `/proc`. The target chooses names and paths in it, which need not be
/// UTF-8.
#[must_use]
pub fn text(path: &str) -> Option<String> {
    read_text(path).ok()
}

/// The same, or why there is none.
///
/// # Errors
/// The kernel's error.
pub fn read_text(path: &str) -> io::Result<String> {
    let bytes = read_bytes(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The bytes of a file under `/proc`, for names that have to stay different.
#[must_use]
pub fn bytes(path: &str) -> Option<Vec<u8>> {
    read_bytes(path).ok()
}

fn read_bytes(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = calls::open(path)?;
    calls::count_file_read();
    file.take(MAX_TEXT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A path under `/proc`, without an allocation, because many are read each second.
#[derive(Debug, Clone, Copy)]
pub struct ProcPath {
    bytes: [u8; 64],
    length: usize,
}

/// `/proc/` with this path below it; empty if that is longer than any path there.
#[must_use]
pub fn proc_path(below: fmt::Arguments<'_>) -> ProcPath {
    let mut path = ProcPath {
        bytes: [0; 64],
        length: 0,
    };
    if path.write_str("/proc/").and(path.write_fmt(below)).is_err() {
        path.length = 0;
    }
    path
}

impl fmt::Write for ProcPath {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.bytes.get_mut(self.length..).unwrap_or_default();
        let room = rest.get_mut(..text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl ProcPath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let written = self.bytes.get(..self.length).unwrap_or_default();
        std::str::from_utf8(written).unwrap_or_default()
    }
}

impl AsRef<Path> for ProcPath {
    fn as_ref(&self) -> &Path {
        self.as_str().as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_whole_or_empty() {
        let most = i32::MAX;
        assert_eq!(
            proc_path(format_args!("{most}/task/{most}/schedstat")).as_str(),
            "/proc/2147483647/task/2147483647/schedstat"
        );
        let long = "x".repeat(59);
        assert_eq!(proc_path(format_args!("{long}")).as_str(), "");
        assert_eq!(proc_path(format_args!("{}", &long[1..])).as_str().len(), 64);
    }
}
