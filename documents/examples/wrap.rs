//! Wraps the comments of all Rust sources at the code's width.

use std::fs;
use std::io;

use phpprof_documents::wrap::{sources, wrap};

fn main() -> io::Result<()> {
    for file in sources()? {
        let code = fs::read_to_string(&file)?;
        let wrapped = wrap(&code);
        if wrapped != code {
            fs::write(&file, wrapped)?;
        }
    }
    Ok(())
}
