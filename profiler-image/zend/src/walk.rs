//! From `EG(current_execute_data)` to the frames of a stack, over one copy of the VM stack.
//!
//! The target runs while it is read, so any word can be from another moment than its neighbour. The walk therefore
//! believes nothing: every address is bounded, frames inside the copy must descend, and a chain that does not end at a
//! frame which the engine itself starts (`ZEND_CALL_TOP`) is torn. That the chain holds together does not make it true:
//! that is for [`crate::site`] and the quiet read. Invariant: the walk ends on any bytes.

use crate::layouts::Layout;
use crate::memory::{Memory, Piece, half_at, word_at};

/// A deeper stack is cut at its root; PHP itself has no limit.
pub const MAX_FRAMES: usize = 4096;
/// Reads of frames outside the copy (older VM stack pages, generators, fibers) in one walk.
const MAX_FETCHES: usize = 256;
/// What is read of a frame outside the copy: its header and the first variables, which proofs look at.
const FETCH: usize = 256;
/// A VM stack page is 256 KiB (`ZEND_VM_STACK_PAGE_SIZE`); what is farther from its start belongs to another.
const PAGE: u64 = 256 << 10;
/// `yield from` chains longer than this are refused.
const MAX_DELEGATES: usize = 64;

/// One `zend_execute_data`, its words as they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    pub address: u64,
    pub opline: u64,
    pub func: u64,
    pub this: u64,
    pub prev: u64,
    pub run_time_cache: u64,
    /// `ZEND_CALL_INFO`, shifted.
    pub call_info: u32,
}

impl Frame {
    /// Takes a frame's words out of its header's bytes.
    #[must_use]
    pub fn parse(layout: &Layout, address: u64, bytes: &[u8]) -> Self {
        let row = &layout.execute_data;
        Self {
            address,
            opline: word_at(bytes, row.opline),
            func: word_at(bytes, row.func),
            this: word_at(bytes, row.this),
            prev: word_at(bytes, row.prev_execute_data),
            run_time_cache: word_at(bytes, row.run_time_cache),
            call_info: half_at(bytes, row.this_type_info) >> layout.call_info.shift,
        }
    }
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At a frame that the engine started; the stack is whole.
    Root,
    /// The chain does not hold together; the frames before the break are kept.
    Torn,
    /// Cut at [`MAX_FRAMES`].
    TooDeep,
}

/// One copy of the used part of a VM stack page, and what was fetched beside it.
#[derive(Debug, Default)]
pub struct Copy {
    /// Address of the page, whose header (`zend_vm_stack`) is copied too.
    pub base: u64,
    pub bytes: Vec<u8>,
    fetched: Vec<(u64, Vec<u8>)>,
    fetches: usize,
}

impl Copy {
    /// Forgets what was fetched for an earlier walk.
    pub fn forget(&mut self) {
        self.fetched.clear();
        self.fetches = 0;
    }

    /// How many reads of the target the walks since [`Copy::forget`] took.
    #[must_use]
    pub fn fetches(&self) -> usize {
        self.fetches
    }

    /// Whether an address lies in the copied part of the page.
    #[must_use]
    pub fn inside(&self, address: u64) -> bool {
        address
            .checked_sub(self.base)
            .is_some_and(|offset| offset < self.bytes.len() as u64)
    }

    /// Whether a frame can be on the stack whose top frame is `top`: in one page a frame above it is what a call left.
    #[must_use]
    pub fn is_live(&self, address: u64, top: u64) -> bool {
        address <= top || !self.inside(address) || !self.inside(top)
    }

    /// The bytes from `address` on, as far as they were copied.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&[u8]> {
        let rest = |base: u64, bytes: &'_ [u8]| -> Option<std::ops::Range<usize>> {
            let offset = usize::try_from(address.checked_sub(base)?).ok()?;
            (offset < bytes.len()).then_some(offset..bytes.len())
        };
        if let Some(range) = rest(self.base, &self.bytes) {
            return self.bytes.get(range);
        }
        self.fetched
            .iter()
            .find_map(|(base, bytes)| bytes.get(rest(*base, bytes)?))
    }

    /// Value and type of the zval at `address`, if it was copied.
    #[must_use]
    pub fn zval(&self, address: u64) -> Option<(u64, u8)> {
        let bytes = self.at(address)?.get(..16)?;
        Some((word_at(bytes, 0), bytes[8]))
    }

    /// Brings a frame outside the copy here; in one read the whole of an older page below it.
    fn fetch<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<()> {
        if self.fetches >= MAX_FETCHES {
            return None;
        }
        self.fetches += 1;
        let newest = self
            .fetched
            .last()
            .map_or(self.bytes.as_slice(), |(_, bytes)| bytes.as_slice());
        let older_page = word_at(newest, layout.vm_stack_prev);
        let offset = address.wrapping_sub(older_page);
        if older_page != 0 && offset < PAGE {
            let mut bytes = vec![0; usize::try_from(offset).ok()? + FETCH];
            if memory.read(older_page, &mut bytes).is_ok() {
                self.fetched.push((older_page, bytes));
                return Some(());
            }
        }
        let mut bytes = vec![0; FETCH];
        if memory.read(address, &mut bytes).is_err() {
            // The end of a mapping may cut the variables off; the header is enough.
            bytes.truncate(layout.execute_data.sizeof);
            memory.read(address, &mut bytes).ok()?;
        }
        // Heap frames go first, so that the last one stays the oldest VM stack page.
        self.fetched.insert(0, (address, bytes));
        Some(())
    }

    /// The frame at an address, fetched if it was not copied.
    pub fn frame<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<Frame> {
        let size = layout.execute_data.sizeof;
        if self.at(address).is_none_or(|bytes| bytes.len() < size) {
            self.fetch(memory, layout, address)?;
        }
        Some(Frame::parse(
            layout,
            address,
            self.at(address)?.get(..size)?,
        ))
    }
}

/// Walks from `start` to the root, leaf first, into `frames` (cleared before).
pub fn walk<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    start: u64,
    frames: &mut Vec<Frame>,
) -> End {
    frames.clear();
    let mut address = start;
    // Within one page callers lie below their callees: this is what makes the walk end without a set of the seen.
    let mut ceiling = u64::MAX;
    while address != 0 {
        if !address.is_multiple_of(8) {
            return End::Torn;
        }
        if copy.inside(address) {
            if address >= ceiling {
                return End::Torn;
            }
            ceiling = address;
        }
        if frames.len() >= MAX_FRAMES {
            return End::TooDeep;
        }
        let Some(frame) = copy.frame(memory, layout, address) else {
            return End::Torn;
        };
        if frame.func == 0 {
            if delegates(memory, layout, copy, &frame, frames).is_none() {
                return End::Torn;
            }
        } else {
            frames.push(frame);
        }
        address = frame.prev;
    }
    match frames.last() {
        Some(root) if root.call_info & layout.call_info.top != 0 => End::Root,
        _ => End::Torn,
    }
}

/// A frame without a function is the placeholder of `yield from` (`execute_fake` inside a `zend_generator`): the
/// frames that stand for it are those of the delegating generators, the innermost first
/// (`zend_generator_check_placeholder_frame`, Zend/zend_generators.c, since 8.0).
fn delegates<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    placeholder: &Frame,
    frames: &mut Vec<Frame>,
) -> Option<()> {
    let row = &layout.generator;
    if placeholder.this.checked_add(row.execute_fake as u64)? != placeholder.address {
        return None;
    }
    let read = |generator: u64| -> Option<(u64, u64)> {
        let (mut execute_data, mut parent) = ([0; 8], [0; 8]);
        memory
            .gather(&mut [
                Piece {
                    address: generator.checked_add(row.execute_data as u64)?,
                    bytes: &mut execute_data,
                },
                Piece {
                    address: generator.checked_add(row.node_parent as u64)?,
                    bytes: &mut parent,
                },
            ])
            .ok()?;
        Some((u64::from_le_bytes(execute_data), u64::from_le_bytes(parent)))
    };
    // The engine's loop: from the outermost generator up, for as long as the parent is not the root, which runs itself.
    let (execute_data, mut parent) = read(placeholder.this)?;
    let mut outer_first = vec![execute_data];
    while parent != 0 {
        let (execute_data, above) = read(parent)?;
        if above == 0 {
            break;
        }
        if outer_first.len() >= MAX_DELEGATES {
            return None;
        }
        outer_first.push(execute_data);
        parent = above;
    }
    for address in outer_first.into_iter().rev() {
        let frame = copy.frame(memory, layout, address)?;
        if frame.func == 0 || frames.len() >= MAX_FRAMES {
            return None;
        }
        frames.push(frame);
    }
    Some(())
}

#[cfg(test)]
mod tests;
