//! An error with its causes on one line, for users. Statuses and the plugin use the same text.
//!
//! Invariant: no cause appears twice.

use std::error::Error;

/// The error's words and those of its causes, without what an error repeats of its cause.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct ErrorLink {
        words: &'static str,
        source: Option<Box<ErrorLink>>,
    }

    impl std::fmt::Display for ErrorLink {
        fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            to.write_str(self.words)
        }
    }

    impl Error for ErrorLink {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            let source = self.source.as_deref()?;
            Some(source)
        }
    }

    #[test]
    fn causes_are_said_once_each() {
        let link = |words, source: Option<ErrorLink>| ErrorLink {
            words,
            source: source.map(Box::new),
        };
        let error = link(
            "reading failed",
            Some(link(
                "away: refused (os error)",
                Some(link("refused", None)),
            )),
        );
        assert_eq!(chain(&error), "reading failed: away: refused (os error)");
        assert_eq!(chain(&link("alone", None)), "alone");
    }
}
