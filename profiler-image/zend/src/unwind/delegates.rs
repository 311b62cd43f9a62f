//! The generators that a placeholder of `yield from` represents.
//!
//! A few of them are read with the looks, as other frames outside the page are. More would take
//! longer than a look may. But a generator that delegates is suspended: its frame and its place in
//! the tree of generators change only once the one that runs has ended. So a larger tree is read
//! later than the looks, in one go, and what runs and what has resumed it are read once more after
//! it: if they are those of the look, so are the generators between them. Invariant: the generators
//! lead from the one that was resumed to the one that runs; at most [`MAX_FRAMES`] are followed,
//! and a bounded number in all stacks of one copy.

use super::generators::{GeneratorChain, GeneratorNode};
use super::{Copy, Frame, MAX_FRAMES};
use crate::layouts::Layout;
use crate::memory::{Memory, half_at, word_at};

/// Up to this many generators are read with the looks.
const FEW: usize = 3;
/// How many generators are looked up for one copy: its moments are unwound some fifty times.
const MAX_LOOKED_UP: usize = 2 * MAX_FRAMES;
/// How many trees are read for one copy.
const MAX_CHAINS: usize = 8;

/// How the generators of a placeholder were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundDelegates {
    All,
    /// There are more of them than a stack may have.
    TooMany,
}

/// A placeholder is replaced by the frames of the delegating generators, the innermost first
/// (`zend_generator_check_placeholder_frame`, Zend/zend_generators.c).
pub(super) fn delegates<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    placeholder: &Frame,
    frames: &mut Vec<Frame>,
) -> Option<FoundDelegates> {
    let running = *frames.last().filter(|it| it.prev == placeholder.address)?;
    let caller = copy.frame(memory, layout, placeholder.prev)?;
    let is_it = |chain: &GeneratorChain| {
        let is_same_call = chain.running.is_same_call(&running);
        is_same_call && (chain.outermost, chain.caller) == (placeholder.this, caller)
    };
    let known = copy.chains.iter().position(is_it);
    let are_many = copy.expected.len() > FEW + 1 && copy.expected[0] == placeholder.this;
    let may_be_few = known.is_none() && !are_many;
    let late = copy.late.len();
    if may_be_few && let Some(few) = few(memory, layout, copy, placeholder.this, running.address) {
        let room = MAX_FRAMES.checked_sub(frames.len() + few.len());
        frames.extend(few);
        return room.map(|_| FoundDelegates::All);
    }
    // Of many, the next read takes none with its looks.
    copy.late.truncate(late);
    let index = match known {
        Some(index) => index,
        None => {
            if copy.chain_reads >= MAX_CHAINS {
                return None;
            }
            copy.chain_reads += 1;
            let generators = match tree(memory, layout, copy, placeholder.this, running.address)? {
                Some(generators) => generators,
                None => return Some(FoundDelegates::TooMany),
            };
            let chain =
                GeneratorChain::read(memory, layout, running, placeholder, caller, &generators)?;
            copy.chains.push(chain);
            copy.chains.len() - 1
        }
    };
    let delegating = &copy.chains.get(index)?.frames;
    let room = MAX_FRAMES.saturating_sub(frames.len());
    frames.extend(delegating.iter().take(room));
    Some(if delegating.len() > room {
        FoundDelegates::TooMany
    } else {
        FoundDelegates::All
    })
}

/// The frames of a few generators that delegate, the innermost first; `None` if there are more of
/// them.
fn few<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    outermost: u64,
    running: u64,
) -> Option<Vec<Frame>> {
    let row = &layout.generator;
    let fields = [(row.execute_data, 8), (row.node_parent, 8)];
    let mut outer_first = Vec::with_capacity(FEW);
    let mut next = outermost;
    loop {
        let Some(bytes) = copy.generator(memory, layout, next, &fields) else {
            // The frame that runs was read already; a leaf has a pointer to its generator.
            let leaf = [(row.node_children, 4), (row.node_ptr, 8)];
            let leaf = copy.generator(memory, layout, outermost, &leaf)?;
            let is_root =
                half_at(&leaf, row.node_children) == 0 && word_at(&leaf, row.node_ptr) == next;
            if !is_root || outer_first.is_empty() {
                return None;
            }
            break;
        };
        let (execute_data, parent) = (
            word_at(&bytes, row.execute_data),
            word_at(&bytes, row.node_parent),
        );
        if execute_data == running {
            break;
        }
        if outer_first.len() >= FEW || (parent == 0 && !outer_first.is_empty()) {
            return None;
        }
        outer_first.push(execute_data);
        if parent == 0 {
            // It has no parent as long as the tree knows no other generator: what runs is its own
            // delegate.
            break;
        }
        next = parent;
    }
    let inner_first = outer_first.into_iter().rev();
    let frames = inner_first.map(|address| copy.frame(memory, layout, address));
    frames
        .map(|frame| frame.filter(|frame| frame.func != 0))
        .collect()
}

/// The generators that delegate, from this one up to the one with the running frame, which is left
/// out; `Some(None)` if there are too many. A loop makes the same generators at the same addresses,
/// so those of the last tree are looked up in one call.
fn tree<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    outermost: u64,
    running: u64,
) -> Option<Option<Vec<GeneratorNode>>> {
    let expected = std::mem::take(&mut copy.expected);
    let known = if expected.first() == Some(&outermost) {
        GeneratorNode::read_all(memory, layout, &expected)
    } else {
        Vec::new()
    };
    let mut nodes: Vec<GeneratorNode> = Vec::with_capacity(known.len());
    let mut next = outermost;
    loop {
        let known = known.get(nodes.len()).filter(|node| node.address == next);
        let node = match known {
            Some(&node) => node,
            None => {
                copy.nodes += 1;
                if copy.nodes > MAX_LOOKED_UP {
                    return None;
                }
                GeneratorNode::read(memory, layout, next)?
            }
        };
        if node.execute_data == running {
            copy.expected = nodes.iter().map(|node| node.address).collect();
            copy.expected.push(next);
            return (!nodes.is_empty()).then_some(Some(nodes));
        }
        if node.execute_data == 0 || node.parent == 0 {
            return None;
        }
        if nodes.len() >= MAX_FRAMES {
            return Some(None);
        }
        nodes.push(node);
        next = node.parent;
    }
}

impl Copy {
    /// Whether the tree of generators tells that the caller's one delegates to the callee's.
    #[must_use]
    pub fn delegates(&self, caller: &Frame, callee: &Frame) -> bool {
        let mut chains = self.chains.iter();
        caller.is_delegating && chains.any(|chain| chain.delegates(caller, callee))
    }
}
