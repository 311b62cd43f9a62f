//! The stack of a suspended fiber (`zend_fiber`, Zend/zend_fibers.h).
//!
//! A fiber has VM stack pages of its own. While it is suspended, it has the address of its top
//! frame, and the frame without a name at its bottom has no caller (`zend_fiber_suspend`,
//! Zend/zend_fibers.c). Invariant: a stack is one only if the fiber was suspended in the same call
//! that has read its page, and each frame leads to the next one, down to the bottom of the page
//! that a block of the heap is.

use std::fmt;

use super::header::{SeenObject, class_of};
use crate::heap::blocks::HeapBlocks;
use crate::layouts::{Layout, ZendFiber};
use crate::memory::{Memory, Piece, half_at, word_at};
use crate::unwind::{Copy, Frame, UnwindEnd, unwind};

/// `ZEND_FIBER_STATUS_SUSPENDED` (Zend/zend_fibers.h). A fiber that has resumed another one has it
/// too, and a caller.
const SUSPENDED: u32 = 2;
/// The bytes of the largest `zend_fiber` up to the last field that is used.
pub(super) const FIBER: usize = 304;
/// The largest page of a VM stack: 256 KiB (`ZEND_VM_STACK_PAGE_SIZE`). That of a fiber has 16.
const LARGEST_PAGE: u64 = 256 << 10;

/// A fiber that was suspended when it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspendedFiber {
    object: SeenObject,
    /// The address of its class.
    class: u64,
    /// Its top frame: that of `Fiber::suspend`, unless an extension has suspended it.
    execute_data: u64,
    /// The frame without a name at its bottom.
    stack_bottom: u64,
}

/// Why the stack of a fiber is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiberFault {
    /// It is not suspended as it was any more.
    Resumed,
    /// Its memory could not be read, or is not that of a stack.
    Torn,
    /// It has more frames than are read.
    TooDeep,
}

impl fmt::Display for FiberFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resumed => "the fiber was resumed",
            Self::Torn => "the fiber's stack is not consistent",
            Self::TooDeep => "the fiber's stack is too deep",
        })
    }
}

impl std::error::Error for FiberFault {}

impl SuspendedFiber {
    /// What the bytes of a `zend_fiber` say; `None` unless it is suspended.
    pub(super) fn parse(
        layout: &Layout,
        row: &ZendFiber,
        object: SeenObject,
        bytes: &[u8],
    ) -> Option<Self> {
        let class = class_of(&layout.zend_object, bytes, object.handle)?;
        let fiber = Self {
            object,
            class,
            execute_data: word_at(bytes, row.execute_data),
            stack_bottom: word_at(bytes, row.stack_bottom),
        };
        let is_suspended = half_at(bytes, row.status) == SUSPENDED
            && word_at(bytes, row.caller) == 0
            && word_at(bytes, row.kind) == class;
        (is_suspended && fiber.execute_data != 0).then_some(fiber)
    }

    /// The address of the object.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.object.address
    }

    /// Reads its frames, leaf first, without the one at the bottom. `copy` is memory that the next
    /// one reuses. Whether these frames were there at one moment, another read tells that shows the
    /// same.
    ///
    /// # Errors
    /// A [`FiberFault`]; `frames` are then unspecified.
    pub fn read_stack<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        blocks: &HeapBlocks,
        copy: &mut Copy,
        frames: &mut Vec<Frame>,
    ) -> Result<(), FiberFault> {
        let row = layout.fiber.as_ref().ok_or(FiberFault::Torn)?;
        let (page, used) = self.page(layout, blocks).ok_or(FiberFault::Torn)?;
        copy.make_room(page, used..used, 0);
        let mut bytes = [0; FIBER];
        let address = self.object.address;
        let mut pieces = [
            Piece {
                address,
                bytes: &mut bytes,
            },
            Piece {
                address: page,
                bytes: &mut copy.bytes,
            },
        ];
        memory.gather(&mut pieces).map_err(|_| FiberFault::Torn)?;
        if Self::parse(layout, row, self.object, &bytes) != Some(*self) {
            return Err(FiberFault::Resumed);
        }
        let end = unwind(memory, layout, copy, self.execute_data, frames);
        let bottom = frames.pop();
        let is_whole = bottom.is_some_and(|it| it.address == self.stack_bottom && it.prev == 0);
        match end {
            UnwindEnd::TooDeep => Err(FiberFault::TooDeep),
            _ if is_whole && !frames.is_empty() => Ok(()),
            _ => Err(FiberFault::Torn),
        }
    }

    /// The page of the top frame, and how many of its bytes are in use, up to that frame's header;
    /// `None` unless both the page and the first one are blocks of the heap.
    fn page(&self, layout: &Layout, blocks: &HeapBlocks) -> Option<(u64, usize)> {
        let first = blocks.block(self.stack_bottom)?;
        let is_first = first.start + layout.vm_stack_header == self.stack_bottom;
        let block = blocks.block(self.execute_data)?;
        let size = layout.execute_data.sizeof as u64;
        let used = self.execute_data - block.start + size;
        let is_page = block.bytes <= LARGEST_PAGE
            && self.execute_data.is_multiple_of(8)
            && used >= layout.vm_stack_header + size
            && used <= block.bytes;
        let used = usize::try_from(used).ok()?;
        (is_first && is_page).then_some((block.start, used))
    }
}
