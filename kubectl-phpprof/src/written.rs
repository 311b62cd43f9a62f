//! Writes what a command makes to a file, or to standard output.
//!
//! Invariant: a failure names the file.

use crate::failure::Failure;
use crate::stdout;

/// Writes a file, or standard output for `-`. Returns what to say of it.
pub fn write(path: &str, bytes: &[u8]) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::of_file(path, &error);
    if path == "-" {
        stdout::write(bytes)?;
        return Ok(String::new());
    }
    std::fs::write(path, bytes).map_err(failed)?;
    Ok(format!("wrote {path} ({})\n", size(bytes.len())))
}

fn size(bytes: usize) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
