//! Which edges (a call site and its callee) are known to exist in the program.
//!
//! An edge is keyed by names and the op's index, so that its proof outlives a request and serves
//! every worker of the run. Invariant: an edge that samples refer to stays proven once it is; an
//! edge becomes proven only by its call site, by frames that stood, or by a quiescent read.

use phpprof_zend::site::Relation;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::names::{FunctionNames, NameId};

/// At this number edges are forgotten, and proven again, except those that samples refer to. It is
/// the capacity of a hash table of 2^15, in a good megabyte.
pub const MAX_EDGES: usize = 28_672;
/// The largest number of open edges in a run, which samples refer to until its end: beyond it an
/// edge counts as refuted.
const MAX_OPENED: usize = 8192;

/// For this many sights of an open edge its proof is tried each time, and then at one in
/// [`SELDOM`].
const EAGER_SIGHTS: u16 = 128;
/// The same for one that was refuted.
const REFUSALS: u16 = 32;
const SELDOM: u16 = 16;

/// The largest number of autoloaders that are remembered; calls of others are proven one by one.
const MAX_AUTOLOADERS: usize = 16;

/// The origin of a call, and its callee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The innermost user function above the callee, and the index of its op.
    pub site: (NameId, u32),
    /// The internal function between the two, such as `array_map` below a closure.
    pub via: Option<NameId>,
    /// The called function.
    pub callee: NameId,
}

impl Edge {
    /// A call by the engine of a stack's root that is not a script: a shutdown function, an output
    /// callback.
    #[must_use]
    pub fn of_root(callee: NameId) -> Self {
        Self {
            site: (FunctionNames::ENGINE, 0),
            via: None,
            callee,
        }
    }
}

/// What is known of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKnowledge {
    /// The program has it; two frames of it have to satisfy this check.
    Proven(Relation),
    /// It needs a quiescent read.
    Open(EdgeId),
    /// The call site refutes it; another instance may not.
    Refuted,
}

/// Index of an edge that was open once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EdgeId(u32);

/// Whether the caller's frame alone tells that it makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameTells {
    /// It does, and two frames of the call have to satisfy this check.
    Yes(Relation),
    /// It does not.
    No,
    /// The call site has to be asked.
    Ask,
}

#[derive(Debug)]
struct EdgeEntry {
    known: EdgeKnowledge,
    /// How often the call site was asked without a result.
    asked: u16,
    /// It was open once, so samples refer to it until the end of the run.
    was_open: bool,
    /// The caller's frame alone tells the callee.
    by_caller: bool,
}

impl EdgeEntry {
    /// Counts a sight. Returns whether the call site has to be asked now, after this many times in
    /// a row.
    fn sight(&mut self, eager: u16) -> bool {
        // At the largest number, the last ones repeat.
        self.asked = self.asked.checked_add(1).unwrap_or(u16::MAX - SELDOM + 1);
        self.asked <= eager || self.asked.is_multiple_of(SELDOM)
    }
}

/// How many sights of an edge ask its call site each time.
fn eager_sights(known: EdgeKnowledge) -> u16 {
    match known {
        EdgeKnowledge::Open(_) => EAGER_SIGHTS,
        _ => REFUSALS,
    }
}

/// All known edges of a run.
#[derive(Debug, Default)]
pub struct Edges {
    entries: FxHashMap<Edge, EdgeEntry>,
    opened: Vec<Edge>,
    /// The number of open ones: whether it falls tells if a quiescent read has helped.
    unsettled: usize,
    /// Functions that are known as autoloaders, because a call site named them by the class that it
    /// looks up.
    autoloaders: SmallVec<[NameId; MAX_AUTOLOADERS]>,
}

impl Edges {
    /// The edge's state, unless the call site has to be asked again now.
    ///
    /// A torn pair of frames may have caused a refutation, and an open edge's frames may stand the
    /// next time. So both are asked again, at first each time and then rarely. Real edges are found
    /// soon, and impossible ones cost little.
    pub fn known(&mut self, edge: &Edge) -> Option<EdgeKnowledge> {
        let entry = self.entries.get_mut(edge)?;
        if let EdgeKnowledge::Proven(_) = entry.known {
            return Some(entry.known);
        }
        (!entry.sight(eager_sights(entry.known))).then_some(entry.known)
    }

    /// Whether the call site does not name this callee, and nothing else has proven the edge.
    #[must_use]
    pub fn is_open(&self, edge: &Edge) -> bool {
        let entry = self.entries.get(edge);
        entry.is_some_and(|entry| matches!(entry.known, EdgeKnowledge::Open(_)))
    }

    /// The check of an edge that is proven.
    #[must_use]
    pub fn check_of(&self, edge: &Edge) -> Option<Relation> {
        match self.entries.get(edge)?.known {
            EdgeKnowledge::Proven(check) => Some(check),
            EdgeKnowledge::Open(_) | EdgeKnowledge::Refuted => None,
        }
    }

    /// Whether the caller's frame alone tells this call.
    pub fn told(&mut self, edge: &Edge) -> FrameTells {
        let Some(entry) = self.entries.get_mut(edge) else {
            return FrameTells::Ask;
        };
        match entry.known {
            EdgeKnowledge::Proven(check) if entry.by_caller => FrameTells::Yes(check),
            // The site was asked for it, and names no callee.
            EdgeKnowledge::Open(_) => FrameTells::No,
            EdgeKnowledge::Proven(_) | EdgeKnowledge::Refuted => {
                if entry.sight(REFUSALS) {
                    FrameTells::Ask
                } else {
                    FrameTells::No
                }
            }
        }
    }

    /// Records that the caller's frame alone tells this call.
    pub fn prove_by_caller(&mut self, edge: Edge, check: Relation) -> EdgeKnowledge {
        let known = self.prove(edge, check);
        let entry = self.entry(edge);
        (entry.known, entry.by_caller) = (known, true);
        known
    }

    /// The next sight of the edge asks its call site: the next reads have what it needs.
    pub fn ask_again(&mut self, edge: &Edge) {
        if let Some(entry) = self.entries.get_mut(edge) {
            entry.asked = entry.asked.min(eager_sights(entry.known) - 1);
        }
    }

    /// Records the call site's proof.
    pub fn prove(&mut self, edge: Edge, check: Relation) -> EdgeKnowledge {
        let entry = self.entry(edge);
        if !matches!(entry.known, EdgeKnowledge::Proven(_)) {
            let is_open = matches!(entry.known, EdgeKnowledge::Open(_));
            entry.known = EdgeKnowledge::Proven(check);
            if is_open {
                self.unsettled -= 1;
            }
        }
        EdgeKnowledge::Proven(check)
    }

    /// Records that the call site does not name this callee.
    pub fn open(&mut self, edge: Edge) -> EdgeKnowledge {
        let next = u32::try_from(self.opened.len()).unwrap_or(u32::MAX);
        let has_room = self.opened.len() < MAX_OPENED;
        let entry = self.entry(edge);
        if entry.known == EdgeKnowledge::Refuted && has_room {
            (entry.known, entry.was_open) = (EdgeKnowledge::Open(EdgeId(next)), true);
            self.opened.push(edge);
            self.unsettled += 1;
            return EdgeKnowledge::Open(EdgeId(next));
        }
        entry.known
    }

    /// Records that the call site refutes this callee. An open edge stays open.
    pub fn refute(&mut self, edge: Edge) -> EdgeKnowledge {
        self.entry(edge);
        EdgeKnowledge::Refuted
    }

    /// Whether an edge that was open has been proven since.
    #[must_use]
    pub fn is_settled(&self, id: EdgeId) -> bool {
        self.opened
            .get(id.0 as usize)
            .and_then(|edge| self.entries.get(edge))
            .is_some_and(|entry| matches!(entry.known, EdgeKnowledge::Proven(_)))
    }

    /// Records that a function is an autoloader: each site that looks up a class may call it.
    pub fn note_autoloader(&mut self, function: NameId) {
        if self.autoloaders.len() < MAX_AUTOLOADERS && !self.is_autoloader(function) {
            self.autoloaders.push(function);
        }
    }

    /// Whether a function is known to be an autoloader.
    #[must_use]
    pub fn is_autoloader(&self, function: NameId) -> bool {
        self.autoloaders.contains(&function)
    }

    /// Records that an edge that was open has been seen to stand.
    pub fn prove_open(&mut self, id: EdgeId) {
        if let Some(&edge) = self.opened.get(id.0 as usize) {
            self.prove(edge, Relation::Nothing);
        }
    }

    /// The same for an edge given by value, and only if its call site leaves it open.
    pub fn prove_if_open(&mut self, edge: Edge) {
        if let Some(EdgeKnowledge::Open(id)) = self.entries.get(&edge).map(|entry| entry.known) {
            self.prove_open(id);
        }
    }

    /// How many edges are open and wait for a quiescent read.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    fn entry(&mut self, edge: Edge) -> &mut EdgeEntry {
        if self.entries.len() >= MAX_EDGES {
            // This costs time, but no correctness: each of the others is proven again at its next
            // sight.
            self.entries.retain(|_, entry| entry.was_open);
        }
        self.entries.entry(edge).or_insert(EdgeEntry {
            known: EdgeKnowledge::Refuted,
            asked: 0,
            was_open: false,
            by_caller: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::names::FunctionNames;

    fn edge(index: u32) -> Edge {
        Edge {
            site: (FunctionNames::UNSTABLE, index),
            via: None,
            callee: FunctionNames::TRUNCATED,
        }
    }

    #[test]
    fn open_edge_is_settled_by_proof_alone() {
        let mut edges = Edges::default();
        assert_eq!(edges.known(&edge(1)), None);
        let EdgeKnowledge::Open(id) = edges.open(edge(1)) else {
            panic!("not open")
        };
        assert!(!edges.is_settled(id));
        assert_eq!(edges.unsettled(), 1);
        edges.refute(edge(1));
        assert_eq!(edges.open(edge(1)), EdgeKnowledge::Open(id));
        edges.prove_if_open(edge(2));
        assert_eq!(edges.known(&edge(2)), None);
        edges.prove_if_open(edge(1));
        assert!(edges.is_settled(id));
        assert_eq!(edges.unsettled(), 0);
        assert_eq!(edges.refute(edge(1)), EdgeKnowledge::Refuted);
        assert_eq!(
            edges.known(&edge(1)),
            Some(EdgeKnowledge::Proven(Relation::Nothing))
        );
    }

    #[test]
    fn so_many_autoloaders_are_remembered_and_no_more() {
        let mut edges = Edges::default();
        let (one, other) = (FunctionNames::UNSTABLE, FunctionNames::TRUNCATED);
        edges.note_autoloader(one);
        assert!(edges.is_autoloader(one) && !edges.is_autoloader(other));
        (0..MAX_AUTOLOADERS).for_each(|_| edges.note_autoloader(one));
        edges.note_autoloader(other);
        assert!(
            edges.is_autoloader(other),
            "the same one takes no further room"
        );
    }

    #[test]
    fn open_edge_without_room_counts_as_refuted() {
        let mut edges = Edges::default();
        let open =
            (0..40_000).filter(|&index| matches!(edges.open(edge(index)), EdgeKnowledge::Open(_)));
        assert_eq!(open.count(), MAX_OPENED);
        assert_eq!(edges.open(edge(50_000)), EdgeKnowledge::Refuted);
        assert!(edges.entries.len() <= MAX_EDGES);
    }

    #[test]
    fn awaited_proof_outlives_other_edges() {
        let mut edges = Edges::default();
        let EdgeKnowledge::Open(proven) = edges.open(edge(1)) else {
            panic!("not open")
        };
        let EdgeKnowledge::Open(waiting) = edges.open(edge(2)) else {
            panic!("not open")
        };
        edges.prove_open(proven);
        (100..100_000).for_each(|index| {
            edges.refute(edge(index));
        });
        assert!(edges.entries.len() <= MAX_EDGES);
        assert!(edges.is_settled(proven));
        assert_eq!(edges.unsettled(), 1);
        edges.prove_if_open(edge(2));
        assert!(edges.is_settled(waiting));
        assert_eq!(edges.unsettled(), 0);
    }

    #[test]
    fn call_is_told_once_the_caller_told_it() {
        let mut edges = Edges::default();
        assert_eq!(edges.told(&edge(1)), FrameTells::Ask);
        edges.refute(edge(1));
        assert_eq!(edges.told(&edge(1)), FrameTells::Ask);
        // A quiescent read has shown it, but not why it is made.
        edges.prove(edge(1), Relation::Nothing);
        assert_eq!(edges.told(&edge(1)), FrameTells::Ask);
        edges.prove_by_caller(edge(1), Relation::SameThis);
        assert_eq!(edges.told(&edge(1)), FrameTells::Yes(Relation::SameThis));
        edges.open(edge(2));
        assert_eq!(edges.told(&edge(2)), FrameTells::No);
        edges.prove_by_caller(edge(2), Relation::Nothing);
        assert_eq!(edges.unsettled(), 0);
        assert_eq!(edges.told(&edge(2)), FrameTells::Yes(Relation::Nothing));
    }

    #[test]
    fn provable_edges_are_asked_again_at_once() {
        let mut edges = Edges::default();
        edges.open(edge(1));
        while edges.known(&edge(1)).is_none() {}
        edges.ask_again(&edge(1));
        assert_eq!(edges.known(&edge(1)), None);
    }

    #[test]
    fn unproven_edges_are_asked_less_and_less() {
        let mut edges = Edges::default();
        let asked = |edges: &mut Edges, edge: Edge, sights: u16| {
            (0..sights).filter(|_| edges.known(&edge).is_none()).count()
        };
        edges.open(edge(1));
        edges.refute(edge(2));
        for (edge, eager) in [(edge(1), EAGER_SIGHTS), (edge(2), REFUSALS)] {
            assert_eq!(asked(&mut edges, edge, eager), usize::from(eager));
            assert_eq!(asked(&mut edges, edge, 10 * SELDOM), 10);
            assert_eq!(asked(&mut edges, edge, 4000 * SELDOM), 4000);
            assert_eq!(asked(&mut edges, edge, 4000 * SELDOM), 4000, "{edge:?}");
        }
    }
}
