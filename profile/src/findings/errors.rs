//! Where PHP's errors are handled, and which code raises them.
//!
//! The receipt has the names of the functions that `set_error_handler` has set. A handler is called
//! from the code that raises the error, so that is the frame below its outermost call.
//!
//! Invariant: each stack has at most one place, and the places together at most the time of all.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::rules::{CONSTRUCTS_ERRORS, RAISES_ERRORS};
use crate::stacks::StackStep;
use crate::waiting::is_php;

/// A receipt has no longer name of a handler.
const MAX_NAME: usize = 200;
/// More places than a program has; those beyond are left out.
const MAX_PLACES: usize = 10_000;
/// How many places a finding has, and its sentence.
pub(super) const PLACES: usize = 10;
pub(super) const IN_SENTENCE: usize = 3;

/// A line that raises errors.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorPlace {
    /// The function's name in the profile.
    pub function: String,
    /// Where it is declared.
    pub file: String,
    /// The line that ran; 0 if it is not known.
    pub line: i64,
    /// In percent of the same measure as the finding's share.
    pub share: f64,
}

/// The name of a handler as a receipt has it: at most its first 200 bytes.
#[must_use]
pub fn handler_name(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

/// The paths of a profile on which errors are handled.
#[derive(Debug, Default)]
pub(super) struct ErrorPaths {
    handlers: BTreeSet<String>,
    /// By a function's number, whether it handles errors.
    marks: Vec<bool>,
    /// The wall time of what runs because of an error, by the place that raised it.
    raised: HashMap<StackStep, i64>,
}

impl ErrorPaths {
    pub fn new(handlers: impl Iterator<Item = String>) -> Self {
        ErrorPaths {
            handlers: handlers.collect(),
            ..ErrorPaths::default()
        }
    }

    /// Marks the functions that are new.
    pub fn learn(&mut self, functions: &[(&str, &str)]) {
        for (name, file) in functions.iter().skip(self.marks.len()) {
            let constructs = CONSTRUCTS_ERRORS.contains(name) && !is_php(file);
            let handles = self.handlers.contains(handler_name(name));
            self.marks.push(constructs || handles);
        }
    }

    pub fn is_marked(&self, function: usize) -> bool {
        self.marks.get(function).copied().unwrap_or(false)
    }

    /// Adds the time of a stack, root first, to the place that has raised its error, if any.
    pub fn add(&mut self, path: &[StackStep], functions: &[(&str, &str)], wall: i64) {
        let handled = path.iter().position(|step| self.is_marked(step.0));
        let below = handled.and_then(|at| path.get(..at));
        let is_place = |step: &&StackStep| {
            let function = functions.get(step.0);
            function.is_some_and(|(name, file)| is_php(file) && !RAISES_ERRORS.contains(name))
        };
        let place = below.and_then(|below| below.iter().rev().find(is_place));
        let Some(place) = place else { return };
        if self.raised.len() < MAX_PLACES || self.raised.contains_key(place) {
            let sum = self.raised.entry(*place).or_default();
            *sum = sum.saturating_add(wall);
        }
    }

    /// The places with the most time, of this total.
    pub fn places(&self, functions: &[(&str, &str)], total: i64) -> Vec<ErrorPlace> {
        let mut most: Vec<(&StackStep, &i64)> = self.raised.iter().collect();
        most.sort_by(|(one, wall), (other, its)| its.cmp(wall).then(one.cmp(other)));
        let place = |(step, wall): (&StackStep, &i64)| {
            let (name, file) = functions.get(step.0)?;
            Some(ErrorPlace {
                function: (*name).to_owned(),
                file: (*file).to_owned(),
                line: step.1,
                share: super::percent(*wall as f64 / total.max(1) as f64),
            })
        };
        most.into_iter().take(PLACES).filter_map(place).collect()
    }
}

/// The first places as a phrase within a sentence.
pub(super) fn phrase(places: &[ErrorPlace]) -> String {
    if places.is_empty() {
        return "code that the profile does not show".to_owned();
    }
    let phrases = places.iter().take(IN_SENTENCE).map(|place| {
        let file = place.file.rsplit('/').next().unwrap_or_default();
        let line = match place.line {
            0 => String::new(),
            line => format!(":{line}"),
        };
        format!("{} ({file}{line}, {} %)", place.function, place.share)
    });
    phrases.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: [(&str, &str); 7] = [
        ("{main}", "/app/index.php"),
        ("App\\Cart::total", "/app/src/Cart.php"),
        ("strlen", "<internal:Core>"),
        ("App\\Errors::handle", "/app/src/Errors.php"),
        ("trigger_deprecation", "/app/vendor/function.php"),
        ("ErrorException::__construct", "<internal:Core>"),
        ("ErrorException::__construct", "/app/src/fake.php"),
    ];

    fn places(stacks: &[(&[StackStep], i64)]) -> Vec<(i64, f64)> {
        let mut paths = ErrorPaths::new(std::iter::once("App\\Errors::handle".to_owned()));
        paths.learn(&FUNCTIONS);
        for (path, wall) in stacks {
            paths.add(path, &FUNCTIONS, *wall);
        }
        let places = paths.places(&FUNCTIONS, 100);
        places.into_iter().map(|it| (it.line, it.share)).collect()
    }

    #[test]
    fn errors_belong_to_the_code_that_raises() {
        // An internal function raises it, then one that exists to raise it, and a second error in
        // the handler.
        let internal: &[StackStep] = &[(0, 3), (1, 8), (2, 0), (3, 5)];
        let helper: &[StackStep] = &[(0, 3), (1, 9), (4, 2), (2, 0), (3, 5), (1, 8)];
        let nested: &[StackStep] = &[(0, 3), (1, 8), (3, 6), (2, 0), (3, 5)];
        let found = places(&[(internal, 10), (helper, 20), (nested, 5)]);
        assert_eq!(found, [(9, 20.0), (8, 15.0)]);
    }

    #[test]
    fn constructed_exceptions_count_if_php_makes_them() {
        let thrown: &[StackStep] = &[(0, 3), (1, 8), (5, 0)];
        let fake: &[StackStep] = &[(0, 4), (6, 1)];
        let handler_of_nobody: &[StackStep] = &[(3, 5)];
        let found = places(&[(thrown, 10), (fake, 20), (handler_of_nobody, 5)]);
        assert_eq!(found, [(8, 10.0)]);
    }

    #[test]
    fn a_long_handler_is_known_by_its_beginning() {
        let name = format!("{{closure:/{}é.php:7}}", "x".repeat(189));
        assert_eq!(handler_name(&name).len(), 199);
        assert_eq!(handler_name("f"), "f");
        let mut paths = ErrorPaths::new(std::iter::once(handler_name(&name).to_owned()));
        paths.learn(&[(&name, "/a.php")]);
        assert!(paths.is_marked(0) && !paths.is_marked(1));
    }
}
