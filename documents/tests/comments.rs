//! Comments are as wide as the code. rustfmt would do it with a nightly option (`wrap_comments`).

use std::fs;
use std::io;

use phpprof_documents::wrap::{WIDTH, sources, wrap};

#[test]
fn no_comment_is_wider_than_the_code() -> io::Result<()> {
    let (mut count, mut wide) = (0, Vec::new());
    for file in sources()? {
        let code = fs::read_to_string(&file)?;
        count += 1;
        if wrap(&code) != code {
            wide.push(file);
        }
    }
    assert!(count > 500, "{count} sources");
    assert!(
        wide.is_empty(),
        "comments over {WIDTH} columns; run `cargo run -p phpprof-documents --example wrap`: {wide:#?}"
    );
    Ok(())
}
