//! The terminal: its width, whether there is one, whether to use colours.
//!
//! Invariant: without a terminal, there is no colour, no spinner and no cut; NO_COLOR is honoured
//! (no-color.org).

use std::io::IsTerminal;

#[derive(Clone, Copy, Debug, Default)]
pub struct Screen {
    /// The columns of the terminal; `None` if the output is not a terminal.
    pub width: Option<usize>,
    pub colour: bool,
}

impl Screen {
    pub fn of_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let asked = std::env::var("NO_COLOR").unwrap_or_default().is_empty()
            && std::env::var("TERM").as_deref() != Ok("dumb");
        Screen {
            width: terminal
                .then(|| console::Term::stdout().size_checked())
                .flatten()
                .map(|(_, columns)| usize::from(columns)),
            colour: terminal && asked,
        }
    }

    pub fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    pub fn doubtful(&self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether a user is at both standard input and standard error.
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}
