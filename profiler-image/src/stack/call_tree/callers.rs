//! The callers of each node as functions, with recursion taken out: of `a, b, a, c` remains `a, c`.
//!
//! How deep a recursion is does not say who calls: calls that differ only by that have the same
//! callers here.
//! Invariant: no function stands twice in a chain.

use rustc_hash::FxHashMap;

use super::{CallNode, PathId};
use crate::stack::names::NameId;

/// A chain of functions without recursion, which ends in one function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct CallerChain(u32);

/// The chain of each node of a tree, its own function included, and whether recursion was taken out
/// of it.
pub(super) struct Chains(Vec<(CallerChain, bool)>);

impl Chains {
    /// The chains of nodes that follow their parents, the parent of the roots first.
    pub(super) fn of(nodes: &[CallNode]) -> Self {
        let mut known = KnownChains::default();
        let mut chains = Self(vec![(CallerChain::default(), false)]);
        for node in nodes.iter().skip(1) {
            let (above, has_recursion) = chains.get(node.parent);
            let (chain, is_again) = known.extended(above, node.name);
            chains.0.push((chain, has_recursion || is_again));
        }
        chains
    }

    /// The chain of a node, and whether recursion was taken out of it.
    pub(super) fn get(&self, path: PathId) -> (CallerChain, bool) {
        self.0.get(path.0 as usize).copied().unwrap_or_default()
    }
}

/// All chains so far, each as what stands above its last function.
#[derive(Default)]
struct KnownChains {
    /// The chain above, and the last function, of chain 1 and all that follow.
    links: Vec<(CallerChain, NameId)>,
    by_link: FxHashMap<(CallerChain, NameId), CallerChain>,
}

impl KnownChains {
    /// The chain that ends in this function below `above`. Where the function is in `above`
    /// already, the rest of that is recursion, which is said.
    fn extended(&mut self, above: CallerChain, name: NameId) -> (CallerChain, bool) {
        let mut at = above;
        while let Some(&(next, function)) = self.link(at) {
            if function == name {
                return (at, true);
            }
            at = next;
        }
        let links = &mut self.links;
        let chain = *self.by_link.entry((above, name)).or_insert_with(|| {
            links.push((above, name));
            CallerChain(u32::try_from(links.len()).unwrap_or(0))
        });
        (chain, false)
    }

    fn link(&self, chain: CallerChain) -> Option<&(CallerChain, NameId)> {
        self.links.get((chain.0 as usize).checked_sub(1)?)
    }
}
