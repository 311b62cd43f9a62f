//! The generators that a placeholder of `yield from` represents.
//!
//! A few of them are read with the looks, as other frames outside the page are. More would take
//! longer than a look may. But a generator that delegates is suspended: its frame and its place in
//! the tree of generators change only once the one that runs has ended. So a larger tree is read
//! later than the looks, in one go, and what runs and what has resumed it are read once more after
//! it: if they are those of the look, so are the generators between them. Invariant: the generators
//! lead from the one that was resumed to the one that runs; at most [`MAX_FRAMES`] are followed,
//! and a bounded number in all stacks of one copy.

use super::{Copy, Frame, MAX_FRAMES};
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, half_at, word_at};

/// Up to this many generators are read with the looks.
const FEW: usize = 3;
/// How many generators are looked up for one copy: its moments are unwound some fifty times.
const MAX_LOOKED_UP: usize = 2 * MAX_FRAMES;
/// How many trees are read for one copy.
const MAX_CHAINS: usize = 8;
/// The bytes from `zend_generator.execute_data` up to `node.parent`.
const NODE: usize = 128;
/// The bytes of the largest `zend_execute_data`.
const HEADER: usize = 96;
/// Parts with so few bytes between them are read as one: less than a page of memory, so what is
/// between them can be read too.
const NEAR: u64 = 512;

/// The generators between one that runs and one that was resumed.
#[derive(Debug)]
pub(super) struct GeneratorChain {
    /// The frame of the generator that runs.
    running: Frame,
    /// The generator that was resumed.
    outermost: u64,
    /// The frame that has resumed it.
    caller: Frame,
    /// The frames of those that delegate, the innermost first, and the bytes of their headers.
    frames: Vec<Frame>,
    headers: Vec<Vec<u8>>,
    /// The addresses of these frames in order, each with its index.
    by_address: Vec<(u64, usize)>,
}

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

/// What unwinding needs of a `zend_generator`.
#[derive(Debug, Clone, Copy)]
struct GeneratorNode {
    address: u64,
    execute_data: u64,
    parent: u64,
}

impl GeneratorNode {
    /// Where the fields are, as an address and a length.
    fn place(layout: &Layout, address: u64) -> Option<(u64, usize)> {
        let row = &layout.generator;
        let length = (row.node_parent + 8).checked_sub(row.execute_data)?;
        let begin = address.checked_add(row.execute_data as u64)?;
        Some((begin, length.min(NODE)))
    }

    fn parse(layout: &Layout, address: u64, bytes: &[u8]) -> Self {
        let row = &layout.generator;
        Self {
            address,
            execute_data: word_at(bytes, 0),
            parent: word_at(bytes, row.node_parent - row.execute_data),
        }
    }

    fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, address: u64) -> Option<Self> {
        let (begin, length) = Self::place(layout, address)?;
        let mut bytes = [0; NODE];
        let bytes = bytes.get_mut(..length)?;
        memory.read(begin, bytes).ok()?;
        Some(Self::parse(layout, address, bytes))
    }

    /// The same for many, in one call of the kernel; none if one of them is gone.
    fn read_all<M: Memory + ?Sized>(memory: &M, layout: &Layout, addresses: &[u64]) -> Vec<Self> {
        let places: Option<Vec<_>> = addresses
            .iter()
            .map(|&address| Self::place(layout, address))
            .collect();
        let parts = places.and_then(|places| gather_near(memory, &places, &mut []));
        let nodes = parts.iter().flatten().zip(addresses);
        nodes
            .map(|(bytes, &address)| Self::parse(layout, address, bytes))
            .collect()
    }
}

/// Reads parts of memory, each an address and a length, and then some more, in one call of the
/// kernel. The engine's allocator puts what is of one size side by side, and a piece for each part
/// would take most of the time: so near parts are one piece.
fn gather_near<M: Memory + ?Sized>(
    memory: &M,
    places: &[(u64, usize)],
    after: &mut [Piece<'_>],
) -> Option<Vec<Vec<u8>>> {
    let end = |(address, length): (u64, usize)| address.checked_add(length as u64);
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for place in sorted {
        let (begin, end) = (place.0, end(place)?);
        match runs.last_mut() {
            Some((start, bytes)) if begin.saturating_sub(*start) <= bytes.len() as u64 + NEAR => {
                let length = usize::try_from(end - *start).ok()?;
                bytes.resize(length.max(bytes.len()), 0);
            }
            _ => runs.push((begin, vec![0; place.1])),
        }
    }
    let piece = |(address, bytes): (&u64, _)| Piece {
        address: *address,
        bytes,
    };
    let pieces = runs.iter_mut();
    let mut pieces: Vec<_> = pieces
        .map(|(at, bytes)| piece((at, &mut bytes[..])))
        .collect();
    pieces.extend(
        after
            .iter_mut()
            .map(|it| piece((&it.address, &mut *it.bytes))),
    );
    memory.gather(&mut pieces).ok()?;
    let part = |&(address, length): &(u64, usize)| {
        let run = runs.partition_point(|&(start, _)| start <= address);
        let (start, bytes) = runs.get(run.checked_sub(1)?)?;
        let begin = usize::try_from(address - start).ok()?;
        Some(bytes.get(begin..begin + length)?.to_vec())
    };
    places.iter().map(part).collect()
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

impl GeneratorChain {
    /// Reads the frames of generators, and then what runs, the placeholder, and what has resumed it
    /// again: nothing if these are not the same.
    fn read<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        running: Frame,
        placeholder: &Frame,
        caller: Frame,
        outer_first: &[GeneratorNode],
    ) -> Option<Self> {
        let size = layout.execute_data.sizeof;
        let places = outer_first.iter().rev();
        let places: Vec<_> = places.map(|node| (node.execute_data, size)).collect();
        let ends = [running.address, placeholder.address, caller.address];
        let mut again = [[0; HEADER]; 3];
        let after = ends.iter().zip(&mut again).filter_map(|(&address, bytes)| {
            let bytes = bytes.get_mut(..size)?;
            Some(Piece { address, bytes })
        });
        let headers = gather_near(memory, &places, &mut after.collect::<Vec<_>>())?;
        let frame = |address: u64, bytes: &[u8]| Frame::parse(layout, address, bytes);
        let both = places.iter().zip(&headers);
        let mut frames: Vec<Frame> = both
            .map(|(&(address, _), bytes)| frame(address, bytes))
            .collect();
        let [running_again, placeholder_again, caller_again] =
            [0, 1, 2].map(|end| frame(ends[end], &again[end]));
        let is_placeholder = (placeholder_again.this, placeholder_again.prev)
            == (placeholder.this, placeholder.prev);
        if !running_again.is_same_call(&running) || !is_placeholder || caller_again != caller {
            return None;
        }
        let kind = layout.call_info.generator;
        for frame in &mut frames {
            let is_body = frame.call_info & kind == kind && frame.is_pushed() && frame.func != 0;
            if !is_body {
                return None;
            }
            frame.is_delegating = true;
        }
        let by_address = frames.iter().enumerate();
        let mut by_address: Vec<_> = by_address.map(|(at, frame)| (frame.address, at)).collect();
        by_address.sort_unstable();
        Some(Self {
            running,
            outermost: placeholder.this,
            caller,
            frames,
            headers,
            by_address,
        })
    }

    /// The index of the frame at an address.
    fn index_of(&self, address: u64) -> Option<usize> {
        let found = self.by_address.binary_search_by_key(&address, |it| it.0);
        Some(self.by_address.get(found.ok()?)?.1)
    }

    /// The bytes of the header of the frame at an address.
    pub(super) fn header(&self, address: u64) -> Option<&[u8]> {
        self.headers.get(self.index_of(address)?).map(Vec::as_slice)
    }

    /// Whether a frame is of a generator that delegates to the one with the other frame.
    fn delegates(&self, caller: &Frame, callee: &Frame) -> bool {
        let Some(index) = self.index_of(caller.address) else {
            return false;
        };
        let inner = match index.checked_sub(1) {
            Some(inner) => self.frames.get(inner),
            None => Some(&self.running),
        };
        inner.is_some_and(|inner| inner.is_same_call(callee) && inner.address == callee.address)
    }
}
