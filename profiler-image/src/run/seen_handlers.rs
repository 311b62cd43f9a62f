//! The functions that handle PHP's errors, as far as a run has seen them.
//!
//! Invariant: at most [`MAX_HANDLERS`] names are kept, each of at most 200 bytes.

use std::cmp::Reverse;

use phpprof_profile::findings::handler_name;
use phpprof_zend::error_handler::ErrorHandler;

use super::time::SECOND;
use crate::stack::volume::without_versions;

/// More than an application sets.
const MAX_HANDLERS: usize = 8;
/// A worker whose handler is known is asked again after this time: the next request may set
/// another one.
const AFTER_NAME: u64 = 10 * SECOND;
/// And one without a handler, or whose handler just ran: this read has 16 bytes.
const AFTER_NONE: u64 = SECOND;

/// The functions that were seen, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenHandlers(Vec<(String, u64)>);

impl SeenHandlers {
    /// Their names as in stacks, those that were seen most often first.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut seen: Vec<&(String, u64)> = self.0.iter().collect();
        seen.sort_by_key(|(_, times)| Reverse(*times));
        seen.into_iter().map(|(name, _)| name.clone()).collect()
    }

    fn note(&mut self, name: &str) {
        let name = without_versions(name);
        let name = handler_name(&name);
        let has_room = self.0.len() < MAX_HANDLERS;
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, times)) => *times += 1,
            None if has_room => self.0.push((name.to_owned(), 1)),
            None => {}
        }
    }

    /// Notes what a worker's engine shows; returns after how long it is asked again.
    pub(super) fn take(&mut self, handler: &ErrorHandler) -> u64 {
        match handler {
            ErrorHandler::Named(named) => {
                self.note(named.name());
                AFTER_NAME
            }
            ErrorHandler::None | ErrorHandler::Unreadable => AFTER_NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_few_short_and_ordered() {
        let mut seen = SeenHandlers::default();
        for name in ["a", "b", "b", "/srv/..2026_11_25_03_36_07.1502734181/a.php"] {
            seen.note(name);
        }
        assert_eq!(seen.names(), ["b", "a", "/srv/a.php"]);
        for number in 0..100 {
            seen.note(&format!("{number}{}", "é".repeat(500)));
        }
        let names = seen.names();
        assert_eq!(names.len(), MAX_HANDLERS);
        assert!(names.iter().all(|name| name.len() <= 200));
    }

    #[test]
    fn a_known_handler_is_asked_for_less_often() {
        let mut seen = SeenHandlers::default();
        assert_eq!(seen.take(&ErrorHandler::None), AFTER_NONE);
        assert_eq!(seen.take(&ErrorHandler::Unreadable), AFTER_NONE);
        assert_eq!(seen.names(), Vec::<String>::new());
    }
}
