//! The full receipt's data about PHP itself: pure.
//!
//! Invariant: what is not known is left out, and the names take a tenth of a receipt at most.

use phpprof_zend::extensions::OpcacheState;
use serde::Serialize;

use crate::run::facts::RunFacts;

/// How many bytes the names of error handlers take.
const MAX_HANDLER_BYTES: usize = 420;

/// A build of PHP, and its state.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PhpBuild<'a> {
    pub version: &'a str,
    pub sapi: &'a str,
    pub thread_safe: bool,
    pub jit: &'a str,
    /// Left out if it is not known, like the following.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdebug: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opcache: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opcache_restarts: Option<u64>,
    /// The functions of `set_error_handler`, by their names in stacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub error_handlers: Vec<String>,
}

impl<'a> PhpBuild<'a> {
    pub fn of(facts: &'a RunFacts) -> Self {
        let on = |is_on| if is_on { "on" } else { "off" };
        let engine = &facts.engine;
        let opcache = facts.extensions.and_then(|extensions| extensions.opcache);
        let (opcache, opcache_restarts) = match opcache {
            None => (None, None),
            Some(OpcacheState::Off) => (Some("off"), None),
            Some(OpcacheState::On { is_full, restarts }) => {
                (Some(if is_full { "full" } else { "on" }), Some(restarts))
            }
        };
        Self {
            version: &engine.version,
            sapi: &engine.sapi,
            thread_safe: engine.is_thread_safe(),
            jit: on(facts.jit),
            xdebug: facts.extensions.map(|extensions| on(extensions.xdebug)),
            opcache,
            opcache_restarts,
            error_handlers: within(&facts.error_handlers, MAX_HANDLER_BYTES),
        }
    }
}

/// The texts that fit into this many bytes of JSON, the first ones first.
fn within(texts: &[String], room: usize) -> Vec<String> {
    let mut left = room;
    let has_room = |text: &&String| {
        // And a comma.
        let length = serde_json::to_string(text).map_or(usize::MAX, |text| text.len() + 1);
        let rest = left.checked_sub(length);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    texts.iter().filter(has_room).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_their_part_of_receipts() {
        let names: Vec<String> = (0..8)
            .map(|number| format!("{number}{}", "\\".repeat(99)))
            .collect();
        let kept = within(&names, MAX_HANDLER_BYTES);
        assert_eq!(kept.len(), 2);
        assert!(serde_json::to_string(&kept).unwrap().len() <= MAX_HANDLER_BYTES + 2);
        assert_eq!(within(&["x".repeat(500), "y".to_owned()], 420), ["y"]);
    }
}
