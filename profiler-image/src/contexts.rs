//! Which ways through the program (a frame with all its callers and their call sites) have been seen to stand.
//!
//! Each edge of a stack may exist and the stack be wrong all the same: `h1 -> w` read a moment before `w -> right`, which
//! only `h2` leads to. Such a mix never stands in memory, so it is hardly ever read again. A way is witnessed when several
//! reads in a row agree on all of it, or by a quiet read; from then on it costs nothing. Invariant: what is witnessed
//! has only witnessed callers.

use rustc_hash::FxHashMap;

use crate::names::NameId;

/// Ways beyond this many are taken for those of their callers.
const MAX_CONTEXTS: usize = 200_000;

/// A frame with all its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextId(u32);

#[derive(Debug)]
struct Node {
    parent: ContextId,
    /// Lines of the stack down to this frame.
    lines: u32,
    witnessed: bool,
}

/// All ways of a run.
#[derive(Debug)]
pub struct Contexts {
    nodes: Vec<Node>,
    /// By caller, index of the caller's op, and callee.
    children: FxHashMap<(ContextId, u32, NameId), ContextId>,
}

impl Contexts {
    /// What lies below each root.
    pub const NONE: ContextId = ContextId(0);

    /// The way to `callee` from the op of a caller; `lines` is the length of the stack with it.
    pub fn child(&mut self, caller: ContextId, op: u32, callee: NameId, lines: usize) -> ContextId {
        if let Some(&known) = self.children.get(&(caller, op, callee)) {
            return known;
        }
        let (Ok(index), Ok(lines)) = (u32::try_from(self.nodes.len()), u32::try_from(lines)) else {
            return caller;
        };
        if self.nodes.len() >= MAX_CONTEXTS {
            return caller;
        }
        self.nodes.push(Node {
            parent: caller,
            lines,
            witnessed: false,
        });
        self.children.insert((caller, op, callee), ContextId(index));
        ContextId(index)
    }

    /// Notes that a way stands, and with it those of all its callers.
    pub fn witness(&mut self, id: ContextId) {
        let mut id = id;
        while let Some(node) = self.nodes.get_mut(id.0 as usize) {
            if node.witnessed {
                return;
            }
            node.witnessed = true;
            id = node.parent;
        }
    }

    /// Whether a way has been seen to stand.
    #[must_use]
    pub fn is_witnessed(&self, id: ContextId) -> bool {
        self.nodes
            .get(id.0 as usize)
            .is_some_and(|node| node.witnessed)
    }

    /// How many lines of a stack the witnessed part of a way covers.
    #[must_use]
    pub fn witnessed_lines(&self, id: ContextId) -> usize {
        let mut id = id;
        while let Some(node) = self.nodes.get(id.0 as usize) {
            if node.witnessed {
                return node.lines as usize;
            }
            id = node.parent;
        }
        0
    }
}

impl Default for Contexts {
    fn default() -> Self {
        Self {
            nodes: vec![Node {
                parent: Self::NONE,
                lines: 0,
                witnessed: true,
            }],
            children: FxHashMap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn a_way_stands_with_its_callers_and_not_with_its_callees() {
        let mut contexts = Contexts::default();
        let main = contexts.child(Contexts::NONE, 0, Names::UNSTABLE, 1);
        let called = contexts.child(main, 4, Names::TRUNCATED, 2);
        let below = contexts.child(called, 5, Names::OVERFLOW, 3);
        assert_eq!(contexts.child(main, 4, Names::TRUNCATED, 2), called);
        assert_ne!(contexts.child(main, 5, Names::TRUNCATED, 2), called);
        contexts.witness(called);
        assert!(
            contexts.is_witnessed(main)
                && contexts.is_witnessed(called)
                && !contexts.is_witnessed(below)
        );
        assert_eq!(contexts.witnessed_lines(below), 2);
    }
}
