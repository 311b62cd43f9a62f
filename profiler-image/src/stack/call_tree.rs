//! The call paths of a run as one tree: a node is a function with all its callers, at one of its ops.
//!
//! A stack is a node, and costs a look-up for each of its frames. Each edge of a stack may exist and the stack be wrong all
//! the same: `h1 -> w` read a moment before `w -> right`, which only `h2` leads to. Such a mix never stands in memory, so
//! reads hardly ever agree on it. A path is confirmed by reads that agree on all of it, or by a quiescent read; from then on
//! it costs nothing. Invariant: what is confirmed has only confirmed callers.

use phpprof_zend::site::Check;
use rustc_hash::FxHashMap;

use super::edges::{EdgeId, Edges};
use super::names::{NameId, Names};

/// Nodes beyond this many find no room: with their calls some four megabytes. It is what a hash table of 2^16 holds.
pub const MAX_PATHS: usize = 57_344;
/// Reads after which it is known how long a caller stays,
const KNOWN_AFTER: u16 = 24;
/// and the share of reads in which one that stays long may have moved: one in so many.
const SELDOM: u16 = 24;

/// A function with all its callers, at one of its ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u32);

impl PathId {
    /// What lies below each root.
    pub const NONE: Self = Self(0);
}

#[derive(Debug, Clone, Copy)]
struct Node {
    parent: PathId,
    name: NameId,
    line: u32,
    /// Index of its [`Call`].
    call: u32,
}

/// A function with all its callers, wherever in its code it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call {
    /// The edge to it, where that was open when it was first met.
    pub edge: Option<EdgeId>,
    /// What must hold between the caller's frame and this one's.
    pub check: Check,
    /// Not shown to people: the engine's own nameless frames.
    pub is_hidden: bool,
    is_confirmed: bool,
    /// Reads that it stood in, and those that it did not, as the leaf's caller.
    stood: u16,
    moved: u16,
}

/// All call paths of a run.
#[derive(Debug)]
pub struct CallTree {
    nodes: Vec<Node>,
    calls: Vec<Call>,
    confirmed: usize,
    /// By parent, function, and the index of its op.
    children: FxHashMap<(PathId, NameId, u32), PathId>,
    by_function: FxHashMap<(PathId, NameId), u32>,
}

impl CallTree {
    /// The node of a function at one of its ops, if it is known.
    #[must_use]
    pub fn child(&self, parent: PathId, name: NameId, op: u32) -> Option<PathId> {
        self.children.get(&(parent, name, op)).copied()
    }

    /// The call of a function by a path, if it is known.
    #[must_use]
    pub fn call_of(&self, parent: PathId, name: NameId) -> Option<&Call> {
        let index = *self.by_function.get(&(parent, name))?;
        self.calls.get(index as usize)
    }

    /// Adds a node; `call` is what is known of the function's call, at its first sight. `None` where there is no room.
    pub fn add(
        &mut self,
        parent: PathId,
        name: NameId,
        op: u32,
        line: u32,
        call: Call,
    ) -> Option<PathId> {
        if self.nodes.len() >= MAX_PATHS {
            return None;
        }
        let next = u32::try_from(self.calls.len()).ok()?;
        let index = *self.by_function.entry((parent, name)).or_insert(next);
        if index == next {
            self.calls.push(call);
        }
        let path = PathId(u32::try_from(self.nodes.len()).ok()?);
        self.nodes.push(Node {
            parent,
            name,
            line,
            call: index,
        });
        self.children.insert((parent, name, op), path);
        Some(path)
    }

    /// The call that a path ends in.
    #[must_use]
    pub fn call(&self, path: PathId) -> Call {
        let node = self.nodes.get(path.0 as usize);
        node.and_then(|node| self.calls.get(node.call as usize))
            .copied()
            .unwrap_or_default()
    }

    fn call_mut(&mut self, path: PathId) -> Option<&mut Call> {
        let call = self.nodes.get(path.0 as usize)?.call;
        self.calls.get_mut(call as usize)
    }

    /// Notes that the edge to a path is proven, or what its frames must agree in.
    pub fn prove(&mut self, path: PathId, check: Check) {
        if let Some(call) = self.call_mut(path) {
            (call.edge, call.check) = (None, check);
        }
    }

    /// Notes that a path stands, and with it those of all its callers.
    pub fn confirm(&mut self, path: PathId) {
        let mut path = path;
        while path != PathId::NONE {
            let Some(call) = self.call_mut(path) else {
                return;
            };
            if call.is_confirmed {
                return;
            }
            call.is_confirmed = true;
            self.confirmed += 1;
            path = self.parent(path);
        }
    }

    /// Whether a path has been seen to stand.
    #[must_use]
    pub fn is_confirmed(&self, path: PathId) -> bool {
        self.call(path).is_confirmed
    }

    /// How many paths have been seen to stand.
    #[must_use]
    pub fn confirmed(&self) -> usize {
        self.confirmed
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none but the root's parent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// The path of a path's caller.
    #[must_use]
    pub fn parent(&self, path: PathId) -> PathId {
        self.nodes
            .get(path.0 as usize)
            .map_or(PathId::NONE, |node| node.parent)
    }

    /// Notes whether a caller stood from a read's begin to its end.
    pub fn note(&mut self, path: PathId, stood: bool) {
        let Some(call) = self.call_mut(path) else {
            return;
        };
        let count = if stood {
            &mut call.stood
        } else {
            &mut call.moved
        };
        *count = count.saturating_add(1);
        if *count == u16::MAX {
            // The newest reads count most.
            (call.stood, call.moved) = (call.stood / 2, call.moved / 2);
        }
    }

    /// Whether a caller nearly always stands while it is read: its calls are too slow to be mixed.
    #[must_use]
    pub fn is_slow(&self, path: PathId) -> bool {
        let call = self.call(path);
        call.stood >= KNOWN_AFTER && call.moved <= call.stood / SELDOM
    }

    /// The nodes as they stand: what a profile's stacks are made of.
    #[must_use]
    pub fn settle(&self, edges: &Edges) -> Paths {
        let mut lines = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            let call = self
                .calls
                .get(node.call as usize)
                .copied()
                .unwrap_or_default();
            let above: Line = lines
                .get(node.parent.0 as usize)
                .copied()
                .unwrap_or_default();
            let own = u32::try_from(index).unwrap_or(0);
            let is_proven = above.is_proven && call.edge.is_none_or(|edge| edges.is_settled(edge));
            lines.push(Line {
                parent: node.parent.0,
                name: node.name,
                line: node.line,
                is_hidden: call.is_hidden,
                is_proven,
                proven: if is_proven { own } else { above.proven },
                confirmed: if is_proven && call.is_confirmed {
                    own
                } else {
                    above.confirmed
                },
            });
        }
        Paths(lines)
    }
}

impl Default for CallTree {
    fn default() -> Self {
        let root = Call {
            is_confirmed: true,
            ..Call::default()
        };
        Self {
            nodes: vec![Node {
                parent: PathId::NONE,
                name: Names::UNSTABLE,
                line: 0,
                call: 0,
            }],
            calls: vec![root],
            confirmed: 0,
            children: FxHashMap::default(),
            by_function: FxHashMap::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Line {
    parent: u32,
    name: NameId,
    line: u32,
    is_hidden: bool,
    is_proven: bool,
    /// The nearest path, itself or a caller, whose edges are all proven, and that which is confirmed too.
    proven: u32,
    confirmed: u32,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            parent: 0,
            name: Names::UNSTABLE,
            line: 0,
            is_hidden: true,
            is_proven: true,
            proven: 0,
            confirmed: 0,
        }
    }
}

/// The call paths of a run at a moment.
#[derive(Debug)]
pub struct Paths(Vec<Line>);

impl Paths {
    /// The part of a path that can be believed: of one that was not seen to stand only if it was confirmed since.
    #[must_use]
    pub fn believed(&self, path: PathId, is_sure: bool) -> PathId {
        let line = self.0.get(path.0 as usize).copied().unwrap_or_default();
        PathId(if is_sure { line.proven } else { line.confirmed })
    }

    /// Writes the lines of a path, root first: function and line.
    pub fn lines(&self, path: PathId, lines: &mut Vec<(NameId, u32)>) {
        lines.clear();
        let mut at = path.0;
        while at != 0 {
            let Some(line) = self.0.get(at as usize) else {
                break;
            };
            if !line.is_hidden {
                lines.push((line.name, line.line));
            }
            at = line.parent;
        }
        lines.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(tree: &mut CallTree, names: &[NameId]) -> PathId {
        names.iter().fold(PathId::NONE, |parent, &name| {
            tree.child(parent, name, 0)
                .or_else(|| tree.add(parent, name, 0, 7, Call::default()))
                .unwrap()
        })
    }

    #[test]
    fn what_was_not_seen_to_stand_is_believed_as_far_as_it_is_confirmed() {
        let mut tree = CallTree::default();
        let middle = path(&mut tree, &[Names::TRUNCATED, Names::OVERFLOW]);
        let leaf = path(&mut tree, &[Names::TRUNCATED, Names::OVERFLOW, Names::IDLE]);
        tree.confirm(middle);
        let paths = tree.settle(&Edges::default());
        assert_eq!(paths.believed(leaf, false), middle);
        assert_eq!(paths.believed(leaf, true), leaf);
        tree.confirm(leaf);
        assert_eq!(tree.settle(&Edges::default()).believed(leaf, false), leaf);
    }

    #[test]
    fn a_path_is_confirmed_whatever_the_op_of_its_leaf() {
        let mut tree = CallTree::default();
        let one = tree.add(PathId::NONE, Names::IDLE, 1, 10, Call::default());
        let other = tree.add(PathId::NONE, Names::IDLE, 2, 11, Call::default());
        tree.confirm(one.unwrap());
        assert!(tree.is_confirmed(other.unwrap()));
    }

    #[test]
    fn a_caller_is_slow_only_where_it_stood_in_nearly_all_of_many_reads() {
        let check = |stood: u16, moved: u16, expected: bool| {
            let mut tree = CallTree::default();
            let caller = path(&mut tree, &[Names::IDLE]);
            (0..stood).for_each(|_| tree.note(caller, true));
            (0..moved).for_each(|_| tree.note(caller, false));
            assert_eq!(tree.is_slow(caller), expected, "{stood} {moved}");
        };
        check(KNOWN_AFTER - 1, 0, false);
        check(KNOWN_AFTER, 0, true);
        check(100, 4, true);
        check(100, 5, false);
    }

    #[test]
    fn there_is_room_for_so_many_paths_and_no_more() {
        let mut tree = CallTree::default();
        let added = (0..70_000)
            .filter_map(|op| tree.add(PathId::NONE, Names::IDLE, op, 0, Call::default()));
        assert_eq!(added.count(), MAX_PATHS - 1);
    }
}
