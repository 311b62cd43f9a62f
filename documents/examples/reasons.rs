//! Writes what is generated from `contract/reasons.yaml` (`make generate`): tables in Rust, the
//! reference, and the tables of other pages.

use std::error::Error;
use std::fs;

use phpprof_documents::reasons::{LIST, PAGES, Reasons};

fn main() -> Result<(), Box<dyn Error>> {
    let root = phpprof_documents::root();
    let reasons = Reasons::parse(&fs::read_to_string(root.join(LIST))?)?;
    for (path, text) in reasons.files() {
        fs::write(root.join(path), text)?;
    }
    for path in PAGES {
        let path = root.join(path);
        let page = reasons.tables(&fs::read_to_string(&path)?)?;
        fs::write(path, page)?;
    }
    Ok(())
}
