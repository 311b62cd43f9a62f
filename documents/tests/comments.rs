//! Comments are as wide as the code, and each item has whole sentences of its own. rustfmt would
//! wrap with a nightly option (`wrap_comments`).

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

#[test]
fn no_sentence_continues_at_the_next_item() -> io::Result<()> {
    let mut split = Vec::new();
    for file in sources()? {
        let code = fs::read_to_string(&file)?;
        let texts = code
            .lines()
            .map(|line| line.trim_start().strip_prefix("/// "));
        let texts: Vec<Option<&str>> = texts.collect();
        for pair in texts.windows(2) {
            if let [Some(last), None] = pair
                && last.ends_with(',')
            {
                split.push(format!("{}: {last}", file.display()));
            }
        }
    }
    assert!(split.is_empty(), "{split:#?}");
    Ok(())
}
