//! An error with what caused it, in one line for people.
//!
//! Invariant: no cause is said twice.

use std::error::Error;

/// The error's words and those of its causes, without what an error repeats of its cause.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{words}")]
    struct Link {
        words: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn causes_are_said_once_each() {
        let link = |words, source: Option<Link>| Link {
            words,
            source: source.map(Box::new),
        };
        let error = link(
            "reading failed",
            Some(link("away: refused", Some(link("refused", None)))),
        );
        assert_eq!(chain(&error), "reading failed: away: refused");
        assert_eq!(chain(&link("alone", None)), "alone");
    }
}
