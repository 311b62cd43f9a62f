//! Standard output, where results go.
//!
//! `print!` panics if nobody reads any more, so `main.rs` denies it.
//!
//! Invariant: a reader that stops early, such as `head`, is not a failure and ends nothing.

use std::io::{ErrorKind, Write};

use crate::failure::{Exit, Failure};

/// Prints a text at once.
pub fn say(text: &str) -> Result<(), Failure> {
    write(text.as_bytes())
}

pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Failed,
            format!("writing to standard output failed: {error}"),
            "check the disk or the program that it goes to",
        )),
        _ => Ok(()),
    }
}
