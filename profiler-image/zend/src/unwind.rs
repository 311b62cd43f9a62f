//! Unwinds the frames of a stack from `EG(current_execute_data)`, in one copy of the VM stack.
//!
//! The target runs while it is read, so any word can be from another moment than its neighbour. So
//! unwinding trusts nothing: every address is bounded, frames inside the copy must descend, and a
//! chain that does not end at a frame that the engine itself starts (`ZEND_CALL_TOP`) is torn. A
//! consistent chain is not necessarily true: [`crate::site`] and quiescent reads prove that.
//! Invariant: unwinding ends on any bytes.

mod beside;
mod copy;
mod delegates;
mod generators;
mod outermost;

use crate::layouts::Layout;
use crate::memory::{Memory, byte_at, half_at, word_at};
use crate::zval::{IS_OBJECT, IS_UNDEF};
pub use beside::Beside;
pub use copy::{Copy, Late, frame_at};
use delegates::{FoundDelegates, delegates};
pub use outermost::{OUTERMOST, Outermost};

/// A deeper stack is cut at its root, and [`Outermost`] finds what is there; PHP itself has no
/// limit.
pub const MAX_FRAMES: usize = 4096;
const ZEND_GENERATOR_CURRENTLY_RUNNING: u32 = 1;
/// The size of half a word.
const HALF: usize = 4;
/// The types of values with their flags are below, and no program is (`vm.mmap_min_addr`).
const END_OF_TYPES: u64 = 64 << 10;
/// The numbers beside these types are mostly below. By itself, the kernel maps nothing from 4 to 64
/// GiB.
const END_OF_U2: u64 = 16;
/// Dummy frames and placeholders in one stack; each is beside a frame with a function.
const MAX_NAMELESS: usize = 1024;

/// One `zend_execute_data`, its words as they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// Its address.
    pub address: u64,
    /// The op that was saved last; a caller saves it before it calls.
    pub opline: u64,
    /// The address of its `zend_function`.
    pub func: u64,
    /// The object, or the class that was called, or a remainder of an earlier call.
    pub this: u64,
    /// `prev_execute_data`: its caller's address.
    pub prev: u64,
    /// The record of callees of its call sites.
    pub run_time_cache: u64,
    /// `ZEND_CALL_INFO`, shifted.
    pub call_info: u32,
    /// The type of `This`; up to 7.0 it is that of an object even if there is none.
    pub this_type: u8,
    /// It is of a generator that delegates to another one. As long as the frame above it stands, so
    /// does this one.
    pub is_delegating: bool,
}

impl Frame {
    /// Parses a frame from its header's bytes.
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
            this_type: byte_at(bytes, row.this_type_info),
            is_delegating: false,
        }
    }

    /// Whether the frame runs the top level of a script or of eval()'d code, and so a function
    /// without a name.
    #[must_use]
    pub fn is_script(&self, layout: &Layout) -> bool {
        self.call_info & layout.call_info.code != 0
    }

    /// Whether another look at the frame shows the same call, which may have moved on meanwhile.
    #[must_use]
    pub fn is_same_call(&self, other: &Self) -> bool {
        let opline = other.opline;
        Self { opline, ..*self } == *other
    }

    /// Whether the word that is written last when a frame is pushed is there: `This` is an object
    /// or nothing, and shares its word with the call's flags (`zend_vm_init_call_frame`,
    /// Zend/zend_execute.h). Before that, the word is a remainder of an earlier call.
    #[must_use]
    pub fn is_pushed(&self) -> bool {
        matches!(self.this_type, IS_UNDEF | IS_OBJECT)
    }

    /// Whether the function was called on an object (`ZEND_CALL_HAS_THIS`).
    #[must_use]
    pub fn has_this(&self) -> bool {
        self.this_type == IS_OBJECT && self.this != 0
    }
}

/// How unwinding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwindEnd {
    /// At a frame that the engine started; the stack is whole.
    Root,
    /// The chain is inconsistent; the frames before the break are kept.
    Torn,
    /// Cut at [`MAX_FRAMES`].
    TooDeep,
}

/// Whether the top frame of the stack has its caller. A generator's frame becomes the top an
/// instant before its caller is written into it; only then it is marked as running
/// (`zend_generator_resume`, Zend/zend_generators.c).
fn has_caller<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    top: &Frame,
) -> Option<bool> {
    if top.call_info & layout.call_info.generator == 0 || copy.inside(top.address) {
        return Some(true);
    }
    let generator = word_at(copy.at(top.address)?, layout.execute_data.return_value);
    let flags = layout.generator.flags;
    let generator = copy.generator(memory, layout, generator, &[(flags, HALF)])?;
    Some(half_at(&generator, flags) & ZEND_GENERATOR_CURRENTLY_RUNNING != 0)
}

/// Walks from `start` to the root, leaf first, into `frames` (cleared before).
pub fn unwind<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    start: u64,
    frames: &mut Vec<Frame>,
) -> UnwindEnd {
    let late = copy.late.len();
    let end = walk(memory, layout, copy, start, frames);
    if end != UnwindEnd::Torn {
        copy.note_stack(frames, late);
    }
    end
}

fn walk<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    start: u64,
    frames: &mut Vec<Frame>,
) -> UnwindEnd {
    frames.clear();
    let mut address = start;
    let mut nameless = 0;
    // Within one page callers are below their callees: because of this unwinding ends without a set
    // of visited frames.
    let mut ceiling = u64::MAX;
    while address != 0 {
        if !address.is_multiple_of(8) {
            return UnwindEnd::Torn;
        }
        if copy.inside(address) {
            if address >= ceiling {
                return UnwindEnd::Torn;
            }
            ceiling = address;
        }
        if frames.len() >= MAX_FRAMES {
            return UnwindEnd::TooDeep;
        }
        if nameless >= MAX_NAMELESS {
            return UnwindEnd::Torn;
        }
        let Some(frame) = copy.frame(memory, layout, address) else {
            return UnwindEnd::Torn;
        };
        if frame.func != 0 {
            if !frame.is_pushed() || is_type_of_zval(frame.func) {
                return UnwindEnd::Torn;
            }
            if frames.is_empty() && has_caller(memory, layout, copy, &frame) != Some(true) {
                return UnwindEnd::Torn;
            }
            frames.push(frame);
        } else if is_placeholder(layout, &frame) {
            nameless += 1;
            match delegates(memory, layout, copy, &frame, frames) {
                Some(FoundDelegates::All) => {}
                Some(FoundDelegates::TooMany) => return UnwindEnd::TooDeep,
                None => return UnwindEnd::Torn,
            }
        } else if layout.rules.dummy_frames && frame.opline == 0 && !copy.inside(address) {
            nameless += 1;
        } else {
            return UnwindEnd::Torn;
        }
        address = frame.prev;
    }
    match frames.last() {
        Some(root) if root.call_info & layout.call_info.top != 0 => UnwindEnd::Root,
        _ => UnwindEnd::Torn,
    }
}

/// Whether a word is the type of a zval (`u1.type_info`, below a small `u2`) and not an address.
/// Variables take the place of a frame that has ended; the word beside such a type would lead to
/// memory that has nothing to do with the stack.
fn is_type_of_zval(word: u64) -> bool {
    word & 0xffff_ffff < END_OF_TYPES && word >> 32 < END_OF_U2
}

/// Whether a frame without a function is the placeholder of `yield from`: `execute_fake` inside a
/// `zend_generator`. The other kind (`dummy_execute_data` of `zend_call_function`, up to 8.0) is on
/// the C stack.
fn is_placeholder(layout: &Layout, frame: &Frame) -> bool {
    frame.this != 0
        && frame.this.checked_add(layout.generator.execute_fake as u64) == Some(frame.address)
}

#[cfg(test)]
mod tests;
