//! Which paths through the program (a frame with all its callers and their call sites) have been seen to stand.
//!
//! Each edge of a stack may exist and the stack be wrong all the same: `h1 -> w` read a moment before `w -> right`, which
//! only `h2` leads to. Such a mix never stands in memory, so it is hardly ever read again. A path is confirmed when several
//! reads in a row agree on all of it, or by a quiescent read; from then on it costs nothing. A path that was never seen to
//! stand is doubted only if it is a rare path to a call that is often sampled: a mix is a hundredth of
//! the samples of its last call, and under the JIT, where a new frame keeps the opline of an earlier one, up to three. Invariant: what is confirmed has only confirmed callers.

use rustc_hash::FxHashMap;

use super::names::{NameId, Names};

/// Paths beyond this many are taken for those of their callers.
const MAX_CALL_PATHS: usize = 200_000;

/// Sightings of a path that are all used to see whether it stands; then one in [`SELDOM`] is.
const EAGER_SIGHTINGS: u64 = 16;
const SELDOM: u64 = 16;
/// A path is rare if it is less than one in so many samples of its last call,
const RARE: u64 = 8;
/// and that call was sampled at least so often.
const COMMON: u64 = 100;

/// A frame with all its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallPathId(u32);

#[derive(Debug)]
struct Node {
    parent: CallPathId,
    /// Lines of the stack down to this frame.
    lines: u32,
    confirmed: bool,
    /// Index of the caller's op, and this function.
    call: (u32, NameId),
    /// Samples whose leaf this is.
    samples: u64,
}

/// Which paths are doubted, at the end of a run.
#[derive(Debug)]
pub struct Doubt {
    /// Samples by last call: caller, index of its op, callee.
    calls: FxHashMap<(NameId, u32, NameId), u64>,
}

/// All paths of a run.
#[derive(Debug)]
pub struct CallTree {
    nodes: Vec<Node>,
    confirmed: usize,
    /// By caller, index of the caller's op, and callee.
    children: FxHashMap<(CallPathId, u32, NameId), CallPathId>,
}

impl CallTree {
    /// What lies below each root.
    pub const NONE: CallPathId = CallPathId(0);

    /// The path to `callee` from the op of a caller; `lines` is the length of the stack with it.
    pub fn child(
        &mut self,
        caller: CallPathId,
        op: u32,
        callee: NameId,
        lines: usize,
    ) -> CallPathId {
        if let Some(&known) = self.children.get(&(caller, op, callee)) {
            return known;
        }
        let (Ok(index), Ok(lines)) = (u32::try_from(self.nodes.len()), u32::try_from(lines)) else {
            return caller;
        };
        if self.nodes.len() >= MAX_CALL_PATHS {
            return caller;
        }
        self.nodes.push(Node {
            parent: caller,
            lines,
            confirmed: false,
            call: (op, callee),
            samples: 0,
        });
        self.children
            .insert((caller, op, callee), CallPathId(index));
        CallPathId(index)
    }

    /// Notes that a path stands, and with it those of all its callers.
    pub fn confirm(&mut self, id: CallPathId) {
        let mut id = id;
        while let Some(node) = self.nodes.get_mut(id.0 as usize) {
            if node.confirmed {
                return;
            }
            node.confirmed = true;
            self.confirmed += 1;
            id = node.parent;
        }
    }

    /// How many paths have been seen to stand.
    #[must_use]
    pub fn confirmed(&self) -> usize {
        self.confirmed
    }

    /// Counts a sample whose leaf this is, and tells whether to look if the path stands: not if it is known to, and ever
    /// more seldom.
    pub fn sight(&mut self, id: CallPathId) -> bool {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else {
            return false;
        };
        node.samples += 1;
        !node.confirmed && (node.samples <= EAGER_SIGHTINGS || node.samples.is_multiple_of(SELDOM))
    }

    /// Sums the samples by their last call, for [`CallTree::trusted_lines`].
    #[must_use]
    pub fn doubt(&self) -> Doubt {
        let mut calls = FxHashMap::default();
        for node in &self.nodes {
            *calls.entry(self.call(node)).or_default() += node.samples;
        }
        Doubt { calls }
    }

    fn call(&self, node: &Node) -> (NameId, u32, NameId) {
        let caller = self
            .nodes
            .get(node.parent.0 as usize)
            .map_or(Names::UNSTABLE, |caller| caller.call.1);
        (caller, node.call.0, node.call.1)
    }

    /// Whether a path has been seen to stand.
    #[must_use]
    pub fn is_confirmed(&self, id: CallPathId) -> bool {
        self.nodes
            .get(id.0 as usize)
            .is_some_and(|node| node.confirmed)
    }

    /// How many lines of a stack can be trusted: all of a path that is not doubted, else its confirmed part.
    #[must_use]
    pub fn trusted_lines(&self, id: CallPathId, doubt: &Doubt) -> usize {
        let Some(node) = self.nodes.get(id.0 as usize) else {
            return 0;
        };
        let all = doubt.calls.get(&self.call(node)).copied().unwrap_or(0);
        if all < COMMON || node.samples.saturating_mul(RARE) >= all {
            return node.lines as usize;
        }
        let mut id = id;
        while let Some(node) = self.nodes.get(id.0 as usize) {
            if node.confirmed {
                return node.lines as usize;
            }
            id = node.parent;
        }
        0
    }
}

impl Default for CallTree {
    fn default() -> Self {
        Self {
            nodes: vec![Node {
                parent: Self::NONE,
                lines: 0,
                confirmed: true,
                call: (0, Names::UNSTABLE),
                samples: 0,
            }],
            confirmed: 0,
            children: FxHashMap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// main calls two functions, each of which calls a third; `rare` samples came the second path, `common` the first.
    fn check_trusted(common: u64, rare: u64, confirmed: bool, expected_lines: usize) {
        let mut call_tree = CallTree::default();
        let main = call_tree.child(CallTree::NONE, 0, Names::UNSTABLE, 1);
        let mut path = |op: u32, samples: u64| {
            let middle = call_tree.child(main, op, Names::TRUNCATED, 2);
            let leaf = call_tree.child(middle, 5, Names::OVERFLOW, 3);
            (0..samples).for_each(|_| {
                call_tree.sight(leaf);
            });
            (middle, leaf)
        };
        path(1, common);
        let (middle, leaf) = path(2, rare);
        call_tree.confirm(if confirmed { leaf } else { middle });
        assert_eq!(
            call_tree.trusted_lines(leaf, &call_tree.doubt()),
            expected_lines
        );
        assert!(call_tree.is_confirmed(main));
        assert_eq!(call_tree.is_confirmed(leaf), confirmed);
    }

    #[test]
    fn a_rare_way_to_a_common_call_is_trusted_only_if_it_was_seen_to_stand() {
        check_trusted(100_000, 10, false, 2);
        check_trusted(100_000, 10, true, 3);
        check_trusted(100_000, 20_000, false, 3);
        check_trusted(50, 1, false, 3);
    }
}
