//! The outermost frames of a stack that is deeper than [`MAX_FRAMES`].
//!
//! They tell what a deep recursion runs for. Their pages are read from the newest to the oldest,
//! which takes milliseconds for some ten thousand frames, so they are kept: as long as they stand,
//! and the stack is as deep as it was or deeper, they are still the outermost ones.
//! Invariant: finding them ends after [`MAX_WALKED`] frames and [`MAX_PAGES`] pages, on any bytes.

use std::collections::VecDeque;

use super::copy::{FetchedFrame, PAGE};
use super::{Copy, Frame, MAX_FRAMES, frame_at, is_type_of_zval};
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, word_at};

/// This many frames are kept.
pub const OUTERMOST: usize = 64;
/// A stack with more frames has no outermost ones.
const MAX_WALKED: usize = 65_536;
/// The pages of such a stack, each of 256 KiB.
const MAX_PAGES: usize = 256;
/// A stack that has grown by more pages is searched again.
const MAX_NEWER: usize = 64;

/// The outermost frames of a deep stack, as they were found.
#[derive(Debug, Clone)]
pub struct Outermost {
    /// The innermost first.
    frames: Vec<Frame>,
    /// The frame from which they were found, and its page.
    from: u64,
    page: u64,
    left_out: usize,
}

impl Outermost {
    /// Walks from the outermost frame that was unwound to the root. `page` is that frame's page of
    /// the VM stack ([`Copy::page_of`]). `None` if the chain is not consistent, or leaves the
    /// stack's pages.
    pub fn find<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        page: u64,
        from: &Frame,
    ) -> Option<Self> {
        let mut stack = StackPage::at(page);
        let mut kept = VecDeque::with_capacity(OUTERMOST);
        let mut walked = 0;
        let mut address = from.prev;
        while address != 0 {
            walked += 1;
            if walked > MAX_WALKED - MAX_FRAMES {
                return None;
            }
            let frame = stack.frame(memory, layout, address)?;
            let descends = frame.prev < address || !stack.has(frame.prev);
            if frame.func == 0 || !frame.is_pushed() || is_type_of_zval(frame.func) || !descends {
                return None;
            }
            if kept.len() == OUTERMOST {
                kept.pop_front();
            }
            kept.push_back(frame);
            address = frame.prev;
        }
        let root = kept.back()?;
        let left_out = walked - kept.len();
        (root.call_info & layout.call_info.top != 0).then(|| Self {
            frames: kept.into(),
            from: from.address,
            page,
            left_out,
        })
    }

    /// Whether they are the outermost frames of a stack, too, that was unwound down to this frame
    /// on this page.
    pub fn are_of<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        page: u64,
        from: &Frame,
    ) -> bool {
        let is_deeper = if page == self.page {
            from.address >= self.from
        } else {
            self.is_older_than(memory, layout, page) == Some(true)
        };
        is_deeper && self.stand(memory, layout) == Some(true)
    }

    /// Whether the page from which they were found is older than this one, by not too many.
    fn is_older_than<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        page: u64,
    ) -> Option<bool> {
        let mut page = page;
        for _ in 0..MAX_NEWER {
            page = older_page(memory, layout, page)?;
            if page == self.page {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether each of them is as it was.
    fn stand<M: Memory + ?Sized>(&self, memory: &M, layout: &Layout) -> Option<bool> {
        let size = layout.execute_data.sizeof;
        let mut bytes = vec![0; size * self.frames.len()];
        let mut pieces: Vec<_> = self
            .frames
            .iter()
            .zip(bytes.chunks_exact_mut(size))
            .map(|(frame, bytes)| Piece {
                address: frame.address,
                bytes,
            })
            .collect();
        memory.gather(&mut pieces).ok()?;
        let now = bytes.chunks_exact(size);
        let mut pairs = self.frames.iter().zip(now);
        Some(pairs.all(|(frame, bytes)| Frame::parse(layout, frame.address, bytes) == *frame))
    }

    /// The frames, the innermost first.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// How many frames are between these and those that were unwound, at least.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Copy {
    /// The page of the VM stack on which this address is, of those that were read; the address of
    /// its begin.
    #[must_use]
    pub fn page_of(&self, address: u64) -> Option<u64> {
        if self.inside(address) {
            return Some(self.base);
        }
        let has = |&&(begin, ref bytes): &&(u64, FetchedFrame)| {
            let offset = address.checked_sub(begin);
            offset.is_some_and(|offset| offset < bytes.len() as u64)
        };
        let mut pages = self.fetched.iter().rev().take(self.pages);
        pages.find(has).map(|(begin, _)| *begin)
    }
}

/// The page of the VM stack that a walk has reached, from its beginning up to a frame.
struct StackPage {
    begin: u64,
    bytes: Vec<u8>,
    pages: usize,
}

impl StackPage {
    fn at(begin: u64) -> Self {
        Self {
            begin,
            bytes: Vec::new(),
            pages: 0,
        }
    }

    /// Whether an address is on it.
    fn has(&self, address: u64) -> bool {
        is_in_page(self.begin, address)
    }

    /// Goes to the page of an address: this one or an older one. Returns where it begins.
    fn seek<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<u64> {
        while !self.has(address) {
            self.pages += 1;
            if self.pages > MAX_PAGES {
                return None;
            }
            self.begin = older_page(memory, layout, self.begin)?;
            self.bytes.clear();
        }
        Some(self.begin)
    }

    /// The frame at an address, which is below all before.
    fn frame<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<Frame> {
        let begin = self.seek(memory, layout, address)?;
        if !address.is_multiple_of(8) {
            return None;
        }
        if self.bytes.is_empty() {
            let length = usize::try_from(address - begin).ok()? + layout.execute_data.sizeof;
            self.bytes.resize(length, 0);
            memory.read(begin, &mut self.bytes).ok()?;
        }
        frame_at(layout, begin, &self.bytes, address)
    }
}

fn is_in_page(begin: u64, address: u64) -> bool {
    address.checked_sub(begin).is_some_and(|at| at < PAGE)
}

/// The page before this one (`zend_vm_stack.prev`); `None` if it is the first.
fn older_page<M: Memory + ?Sized>(memory: &M, layout: &Layout, page: u64) -> Option<u64> {
    let mut word = [0; 8];
    let at = page.checked_add(layout.vm_stack_prev as u64)?;
    memory.read(at, &mut word).ok()?;
    Some(word_at(&word, 0)).filter(|&older| older != 0)
}
