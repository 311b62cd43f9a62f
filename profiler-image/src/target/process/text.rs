//! The text of files under `/proc`, bounded.

use std::io::Read;

use super::calls;

/// More text than the kernel has to say of any process; a target with a great many mappings is seen as far as this.
const MAX_TEXT: u64 = 16 << 20;

/// The text of a file under `/proc`. The target chooses names and paths in it, which need not be UTF-8.
#[must_use]
pub fn text(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let file = calls::open(path).ok()?;
    calls::count_file_read();
    file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
