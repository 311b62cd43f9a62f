//! The call paths of a run as a tree: a node is a function with all its callers, at one of its ops.
//!
//! A stack is a node, and costs a look-up for each of its frames. What call sites have proven is
//! stored separately, in [`Edges`], so that a new path does not prove a known edge again.
//! Invariant: a path has proven and open edges only. It counts up to the first call that was seen
//! again and again but hardly ever stands, while the same op makes the same call below other
//! callers.

mod callers;
mod paths;

use std::hash::{BuildHasher as _, Hash};
use std::iter::successors;

use hashbrown::HashTable;
use phpprof_zend::site::Relation;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::edges::{EdgeId, Edges};
use super::names::{FunctionNames, NameId};
use callers::{CallerChain, Chains};
pub use paths::CallPaths;
use paths::PathLine;

/// The largest number of nodes: with their calls some four megabytes. It is the capacity of a hash
/// table of 2^16.
pub const MAX_PATHS: usize = 57_344;

/// Beyond this many nodes, recursions are folded.
const FOLDED_FROM: usize = MAX_PATHS / 2;
/// Beyond this many, there is room for calls near the root only, so that each further stack has at
/// least its first callers.
const SHALLOW_FROM: usize = MAX_PATHS / 8 * 7;
const SHALLOW: usize = 16;

/// A call is doubtful after this many samples that do not show it standing, if it stands below
/// other callers only: callers that differ by the depth of a recursion are the same ([`callers`]).
/// A single look at calls of 50 ns can mix two call paths: the frame of a new call has the op of an
/// earlier one, from another caller, until it stores its own, and above it is what that one called.
/// Hardly ever do two looks in a row show the same mixture.
const DOUBTFUL: i8 = 16;
/// One sample that shows a call standing outweighs this many that do not. In the fastest code
/// (`paths` of `truth stacks`), 7 to 20 % show a caller standing.
const STANDS: i8 = 32;
/// Doubt grows no further than this. At the negative of twice this it ends for good.
const MOST_DOUBT: i8 = 32;

/// How many ops of one call are searched for one that calls a function.
const MAX_OPS: usize = 64;

/// A function with all its callers, at one of its ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub(crate) u32);

impl PathId {
    /// The parent of each root.
    pub const NONE: Self = Self(0);
}

#[derive(Debug, Clone, Copy)]
struct CallNode {
    parent: PathId,
    name: NameId,
    /// The index of the op.
    op: u32,
    line: u32,
    /// The index of its [`CallPath`].
    call: u32,
    /// The node of the same call, at another op, that was added before it; [`PathId::NONE`] for the
    /// first one.
    earlier: PathId,
    /// The child that was asked for last; [`PathId::NONE`] before.
    last_child: PathId,
}

impl CallNode {
    /// What distinguishes it from all other nodes.
    fn key(&self) -> (PathId, NameId, u32) {
        (self.parent, self.name, self.op)
    }
}

/// A call, and what the tree knows of it.
#[derive(Debug, Clone, Copy)]
struct KnownCall {
    call: CallPath,
    /// Its last added node.
    newest: PathId,
    /// The doubt whether it is made, which rises and falls with each sample of it; `None` once it
    /// has ended.
    doubt: Option<i8>,
}

impl KnownCall {
    /// Whether it is seen again and again, but hardly ever stands.
    fn is_doubtful(&self) -> bool {
        self.doubt >= Some(DOUBTFUL)
    }
}

/// A function with all its callers, at any of its ops.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallPath {
    /// The edge to it, if that was open when it was first seen.
    pub edge: Option<EdgeId>,
    /// What has to hold between the caller's frame and this one's.
    pub check: Relation,
    /// Not shown to users: the engine's own nameless frames.
    pub is_hidden: bool,
    /// The program has its edge, but only one look has shown the call path. It is not known until
    /// another sample shows that.
    pub is_candidate: bool,
}

/// All call paths of a run.
#[derive(Debug)]
pub struct CallTree {
    nodes: Vec<CallNode>,
    calls: Vec<KnownCall>,
    /// The nodes by parent, function, and the index of its op.
    children: HashTable<PathId>,
    /// The indexes of the calls by parent and function.
    by_function: HashTable<u32>,
}

impl CallTree {
    /// The node of a function at one of its ops, if it is known.
    pub fn child(&mut self, parent: PathId, name: NameId, op: u32) -> Option<PathId> {
        if let Some((path, node)) = self.last_child(parent, name)
            && node.op == op
        {
            return Some(path);
        }
        let key = Some((parent, name, op));
        let is_child = |path: &PathId| self.nodes.get(path.0 as usize).map(CallNode::key) == key;
        let path = *self.children.find(hash_of(key), is_child)?;
        self.nodes.get_mut(parent.0 as usize)?.last_child = path;
        Some(path)
    }

    /// The call of a function by a path, if it is known.
    #[must_use]
    pub fn call_of(&self, parent: PathId, name: NameId) -> Option<&CallPath> {
        let call = &self.known(parent, name)?.call;
        (!call.is_candidate).then_some(call)
    }

    /// Whether the tree has room for candidates: they must not take that of known call paths.
    #[must_use]
    pub fn has_room_for_candidates(&self) -> bool {
        self.nodes.len() < MAX_PATHS / 2
    }

    fn known(&self, parent: PathId, name: NameId) -> Option<&KnownCall> {
        self.calls.get(self.index_of(parent, name)? as usize)
    }

    /// The child that was asked for last, if it is a node of this function. Most samples have
    /// passed through the same callers as the one before, and memory that is next to the parent's
    /// costs less than a hash table.
    fn last_child(&self, parent: PathId, name: NameId) -> Option<(PathId, &CallNode)> {
        let path = self.nodes.get(parent.0 as usize)?.last_child;
        let node = self.nodes.get(path.0 as usize)?;
        (path != PathId::NONE && node.name == name).then_some((path, node))
    }

    /// The index of the call of a function by a path.
    fn index_of(&self, parent: PathId, name: NameId) -> Option<u32> {
        if let Some((_, node)) = self.last_child(parent, name) {
            return Some(node.call);
        }
        let key = Some((parent, name));
        let is_call = |&call: &u32| key_of(&self.nodes, &self.calls, call) == key;
        self.by_function.find(hash_of(key), is_call).copied()
    }

    /// Notes that the call of a node is made beyond doubt, and so are those of its callers.
    pub fn trust(&mut self, mut path: PathId) {
        while let Some(node) = self.nodes.get(path.0 as usize)
            && let Some(known) = self.calls.get_mut(node.call as usize)
            && known.doubt.take().is_some()
        {
            known.call.is_candidate = false;
            path = node.parent;
        }
    }

    /// The function of a node.
    #[must_use]
    pub fn name(&self, path: PathId) -> Option<NameId> {
        let node = self.nodes.get(path.0 as usize)?;
        (path != PathId::NONE).then_some(node.name)
    }

    /// The functions of a path, its own first, without the engine's own frames.
    pub fn calls_of(&self, path: PathId) -> impl Iterator<Item = NameId> {
        let node = |path: PathId| {
            let node = self.nodes.get(path.0 as usize)?;
            (path != PathId::NONE).then_some(node)
        };
        let nodes = successors(node(path), move |child| node(child.parent));
        let is_shown = |node: &&CallNode| {
            let known = self.calls.get(node.call as usize);
            known.is_none_or(|known| !known.call.is_hidden)
        };
        nodes.filter(is_shown).map(|node| node.name)
    }

    /// Whether the call of a node is made beyond doubt.
    #[must_use]
    pub fn is_trusted(&self, path: PathId) -> bool {
        self.known_at(path)
            .is_none_or(|known| known.doubt.is_none())
    }

    /// Counts a sample of the call of a node, and whether that shows it standing: its frame, with
    /// all its callers at their ops.
    pub fn count(&mut self, path: PathId, stands: bool) {
        let known = self.known_at_mut(path);
        let Some(doubt) = known.and_then(|known| known.doubt.as_mut()) else {
            return;
        };
        *doubt = if stands {
            doubt.saturating_sub(STANDS)
        } else {
            doubt.saturating_add(1).min(MOST_DOUBT)
        };
        if *doubt <= -2 * MOST_DOUBT {
            self.trust(path);
        }
    }

    /// Where to add a function's call instead of below this path, and that call, if the tree fills
    /// and the function has called itself: below the caller of its first call in this path. A
    /// recursion with several call sites has a path for each order in which they are used, a
    /// million with a depth of twenty; folded, it has one for each of its functions. Once a part of
    /// a stack is folded, all that follows has to be: its path is another recursion's prefix.
    #[must_use]
    pub fn folded(&self, path: PathId, name: NameId) -> Option<(PathId, CallPath)> {
        if self.nodes.len() < FOLDED_FROM {
            return None;
        }
        let node = self.callers(path).filter(|node| node.name == name).last()?;
        let call = self.calls.get(node.call as usize)?.call;
        (!call.is_candidate).then_some((node.parent, call))
    }

    /// A node and its callers, the root last.
    fn callers(&self, path: PathId) -> impl Iterator<Item = &CallNode> {
        let node = |path: PathId| {
            self.nodes
                .get(path.0 as usize)
                .filter(|_| path != PathId::NONE)
        };
        successors(node(path), move |below| node(below.parent))
    }

    /// Whether there is room for a node below this path.
    fn has_room(&self, parent: PathId) -> bool {
        let count = self.nodes.len();
        count < SHALLOW_FROM || count < MAX_PATHS && self.callers(parent).nth(SHALLOW).is_none()
    }

    /// The node of the same call as this one, at an earlier op, that is known to call a function
    /// without doubt: the one whose line is nearest. At a later op, the call may not be made yet.
    #[must_use]
    pub fn nearest_op_that_calls(&self, path: PathId, name: NameId) -> Option<PathId> {
        let node = |path: PathId| self.nodes.get(path.0 as usize);
        let this = node(path)?;
        let newest = self.calls.get(this.call as usize)?.newest;
        let ops = successors(Some(newest), |&at| node(at).map(|node| node.earlier))
            .take_while(|&at| at != PathId::NONE)
            .take(MAX_OPS);
        let is_before = |at| node(at).is_some_and(|node| node.op < this.op);
        let calls = |at| {
            self.known(at, name)
                .is_some_and(|known| !known.is_doubtful() && !known.call.is_candidate)
        };
        let callers = ops.filter(|&at| is_before(at) && calls(at));
        callers.min_by_key(|&at| node(at).map(|node| node.line.abs_diff(this.line)))
    }

    /// Adds a node; `call` describes the function's call, and is used at its first sight. `None` if
    /// there is no room.
    pub fn add(
        &mut self,
        parent: PathId,
        name: NameId,
        op: u32,
        line: u32,
        call: CallPath,
    ) -> Option<PathId> {
        if !self.has_room(parent) {
            return None;
        }
        let path = PathId(u32::try_from(self.nodes.len()).ok()?);
        let known = self.index_of(parent, name);
        let index = match known {
            Some(index) => index,
            None => u32::try_from(self.calls.len()).ok()?,
        };
        let earlier = known.and_then(|index| self.calls.get(index as usize));
        self.nodes.push(CallNode {
            parent,
            name,
            op,
            line,
            call: index,
            earlier: earlier.map_or(PathId::NONE, |known| known.newest),
            last_child: PathId::NONE,
        });
        match self.calls.get_mut(index as usize) {
            Some(known) => known.newest = path,
            None => {
                self.calls.push(KnownCall {
                    call,
                    newest: path,
                    doubt: Some(0),
                });
                let rehash = |&call: &u32| hash_of(key_of(&self.nodes, &self.calls, call));
                let hash = hash_of(Some((parent, name)));
                self.by_function.insert_unique(hash, index, rehash);
            }
        }
        let rehash = |path: &PathId| hash_of(self.nodes.get(path.0 as usize).map(CallNode::key));
        let hash = hash_of(Some((parent, name, op)));
        self.children.insert_unique(hash, path, rehash);
        Some(path)
    }

    /// The call that a path ends in.
    #[must_use]
    pub fn call(&self, path: PathId) -> CallPath {
        self.known_at(path)
            .map(|known| known.call)
            .unwrap_or_default()
    }

    fn known_at(&self, path: PathId) -> Option<&KnownCall> {
        let node = self.nodes.get(path.0 as usize)?;
        self.calls.get(node.call as usize)
    }

    fn known_at_mut(&mut self, path: PathId) -> Option<&mut KnownCall> {
        let node = self.nodes.get(path.0 as usize)?;
        self.calls.get_mut(node.call as usize)
    }

    /// Notes how a sample shows the call that a path ends in: a candidate becomes known by that,
    /// and an open edge proven.
    pub fn note(&mut self, path: PathId, call: CallPath) {
        let Some(known) = self.known_at_mut(path).map(|known| &mut known.call) else {
            return;
        };
        if !call.is_candidate && (known.is_candidate || call.edge.is_none()) {
            *known = CallPath {
                is_hidden: known.is_hidden,
                ..call
            };
        }
    }

    /// The current nodes, from which a profile's stacks are made.
    #[must_use]
    pub fn settle(&self, edges: &Edges) -> CallPaths {
        let mut lines = Vec::with_capacity(self.nodes.len());
        let mut by_line = FxHashMap::default();
        let trusted = self.trusted();
        for (index, node) in self.nodes.iter().enumerate() {
            let known = self.calls.get(node.call as usize);
            let is_hidden = known.is_some_and(|known| known.call.is_hidden);
            let above: PathLine = lines
                .get(node.parent.0 as usize)
                .copied()
                .unwrap_or_default();
            let own = u32::try_from(index).unwrap_or(0);
            let shown = if is_hidden {
                above.shown
            } else {
                *by_line
                    .entry((above.shown, node.name.shown(), node.line))
                    .or_insert(own)
            };
            let edge = known.and_then(|known| known.call.edge);
            let is_candidate = known.is_some_and(|known| known.call.is_candidate);
            let is_settled = !is_candidate && edge.is_none_or(|edge| edges.is_settled(edge));
            let is_mixture =
                known.is_some_and(KnownCall::is_doubtful) && trusted.only_below_others(self, node);
            let is_proven = above.is_proven && is_settled && !is_mixture;
            lines.push(PathLine {
                parent: node.parent.0,
                name: node.name.shown(),
                line: node.line,
                is_hidden,
                is_proven,
                shown,
                proven: if is_proven { shown } else { above.proven },
            });
        }
        CallPaths(lines)
    }

    /// The calls that are made beyond doubt by some path.
    fn trusted(&self) -> Trusted {
        let chains = Chains::of(&self.nodes);
        let (mut calls, mut by_callers) = (FxHashSet::default(), FxHashMap::default());
        for known in self.calls.iter().filter(|known| known.doubt.is_none()) {
            let node = self.nodes.get(known.newest.0 as usize);
            if let Some((node, call)) = node.and_then(|node| Some((node, self.call_at(node)?))) {
                calls.insert(call);
                let (chain, is_recursion) = chains.get(node.parent);
                *by_callers.entry((chain, call)).or_default() |= is_recursion;
            }
        }
        Trusted {
            chains,
            calls,
            by_callers,
        }
    }

    /// What calls a node's function, at which op, and the function.
    fn call_at(&self, node: &CallNode) -> Option<CallAt> {
        let caller = self.nodes.get(node.parent.0 as usize)?;
        Some((caller.name, caller.op, node.name))
    }
}

/// A function, one of its ops, and the function that it calls there.
type CallAt = (NameId, u32, NameId);

/// The calls that are made beyond doubt, and by which callers.
struct Trusted {
    chains: Chains,
    calls: FxHashSet<CallAt>,
    /// Whether one of these callers is a recursion.
    by_callers: FxHashMap<(CallerChain, CallAt), bool>,
}

impl Trusted {
    /// Whether the call of a node is made beyond doubt below other callers only. In a recursion
    /// these do not differ by its depth: how seldom two looks in a row show a call is a matter of
    /// its length and of the machine, so the same call at another depth tells that it is made.
    fn only_below_others(&self, tree: &CallTree, node: &CallNode) -> bool {
        let (chain, is_recursion) = self.chains.get(node.parent);
        tree.call_at(node).is_some_and(|call| {
            let made_here = self.by_callers.get(&(chain, call));
            let is_made_here = made_here.is_some_and(|&by_recursion| by_recursion || is_recursion);
            self.calls.contains(&call) && !is_made_here
        })
    }
}

/// The path and the function of a call.
fn key_of(nodes: &[CallNode], calls: &[KnownCall], call: u32) -> Option<(PathId, NameId)> {
    let newest = calls.get(call as usize)?.newest;
    let node = nodes.get(newest.0 as usize)?;
    Some((node.parent, node.name))
}

fn hash_of(key: impl Hash) -> u64 {
    FxBuildHasher.hash_one(key)
}

/// An empty list with room for all nodes and the parent of the roots. Its memory is only used as
/// nodes come; a list that doubles would reserve more.
fn all<T>(below: T) -> Vec<T> {
    let mut all = Vec::with_capacity(MAX_PATHS);
    all.push(below);
    all
}

impl Default for CallTree {
    fn default() -> Self {
        Self {
            nodes: all(CallNode {
                parent: PathId::NONE,
                name: FunctionNames::UNSTABLE,
                op: 0,
                line: 0,
                call: 0,
                earlier: PathId::NONE,
                last_child: PathId::NONE,
            }),
            calls: all(KnownCall {
                call: CallPath::default(),
                newest: PathId::NONE,
                doubt: None,
            }),
            children: HashTable::new(),
            by_function: HashTable::new(),
        }
    }
}

#[cfg(test)]
mod tests;
