//! The functions that handle PHP's errors, as far as a run has seen them.
//!
//! They are kept by their ids, because a closure may get the name of the function around it later:
//! a handler has the name that its samples have.
//! Invariant: at most [`MAX_HANDLERS`] ids are kept, and each name has at most 200 bytes.

use std::cmp::Reverse;

use phpprof_profile::findings::handler_name;
use phpprof_zend::error_handler::ErrorHandler;

use super::time::SECOND;
use crate::stack::functions::Functions;
use crate::stack::names::{FunctionNames, NameId};

/// More than an application sets.
const MAX_HANDLERS: usize = 8;
/// A worker whose handler is known is asked again after this time: the next request may set
/// another one.
const AFTER_NAME: u64 = 10 * SECOND;
/// And one without a handler, or whose handler just ran: this read has 16 bytes.
pub(super) const AFTER_NONE: u64 = SECOND;

/// The functions that were seen, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenHandlers(Vec<(NameId, u64)>);

impl SeenHandlers {
    /// Their names as in stacks, those that were seen most often first.
    #[must_use]
    pub fn names(&self, names: &FunctionNames) -> Vec<String> {
        let mut seen: Vec<&(NameId, u64)> = self.0.iter().collect();
        seen.sort_by_key(|(_, times)| Reverse(*times));
        let mut listed = Vec::with_capacity(seen.len());
        for (id, _) in seen {
            let name = names.get(*id).name.to_string();
            let name = handler_name(&name);
            // Functions of several files may have one name.
            if !listed.iter().any(|other| other == name) {
                listed.push(name.to_owned());
            }
        }
        listed
    }

    fn note(&mut self, id: NameId) {
        let has_room = self.0.len() < MAX_HANDLERS && id != FunctionNames::OVERFLOW;
        match self.0.iter_mut().find(|(known, _)| *known == id) {
            Some((_, times)) => *times += 1,
            None if has_room => self.0.push((id, 1)),
            None => {}
        }
    }

    /// Notes what a worker's engine shows; returns after how long it is asked again.
    pub(super) fn take(&mut self, handler: &ErrorHandler, functions: &mut Functions) -> u64 {
        match handler {
            ErrorHandler::Named(named) => {
                self.note(functions.name_of(named));
                AFTER_NAME
            }
            ErrorHandler::None | ErrorHandler::Unreadable => AFTER_NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction};
    use phpprof_zend::layouts::ROWS;
    use phpprof_zend::memory::Memory as _;
    use phpprof_zend::testing::EngineImage;

    use super::*;
    use crate::stack::names::FunctionName;

    #[test]
    fn names_are_few_short_and_ordered() {
        let (mut seen, mut names) = (SeenHandlers::default(), FunctionNames::default());
        let mut note = |seen: &mut SeenHandlers, name: &str, file: &str| {
            let (name, file) = (name, file);
            let id = names.intern(FunctionName {
                name,
                file,
                start_line: 1,
            });
            seen.note(id);
            seen.names(&names)
        };
        for (name, file) in [("a", "/a.php"), ("b", "/a.php"), ("b", "/a.php")] {
            note(&mut seen, name, file);
        }
        assert_eq!(note(&mut seen, "b", "/b.php"), ["b", "a"]);
        let long = "é".repeat(500);
        for number in 0..100 {
            let all = note(&mut seen, &format!("{number}{long}"), "/a.php");
            assert!(all.len() < MAX_HANDLERS && all.iter().all(|name| name.len() <= 200));
        }
        assert_eq!(seen.0.len(), MAX_HANDLERS);
    }

    #[test]
    fn a_closure_has_the_name_it_gets_later() {
        let mut image = EngineImage::new(&ROWS[0]);
        let code = image.user(Some("{closure}"), &[1.into()]).func;
        let mut head = [0; HEAD];
        image.read(code, &mut head).unwrap();
        let key = FunctionKey::parse(image.layout, &head).unwrap();
        let named = NamedFunction::resolve(&image, image.layout, key).unwrap();
        let handler = ErrorHandler::Named(Box::new(named));
        let (mut seen, mut functions) = (SeenHandlers::default(), Functions::default());
        assert_eq!(seen.take(&handler, &mut functions), AFTER_NAME);
        assert_eq!(seen.names(&functions.names), ["{closure:/srv/a.php:1}"]);
        functions
            .names
            .settle_closure(seen.0[0].0, Some("App\\boot"));
        // Its old name leads to it.
        seen.take(&handler, &mut functions);
        assert_eq!(seen.names(&functions.names), ["{closure:App\\boot():1}"]);
    }

    #[test]
    fn a_known_handler_is_asked_for_less_often() {
        let mut seen = SeenHandlers::default();
        let mut functions = Functions::default();
        for handler in [ErrorHandler::None, ErrorHandler::Unreadable] {
            assert_eq!(seen.take(&handler, &mut functions), AFTER_NONE);
        }
        assert_eq!(seen.names(&functions.names), Vec::<String>::new());
    }
}
