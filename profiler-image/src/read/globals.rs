//! The engine's words about the top of the VM stack.
//!
//! Invariant: what they say of the page bounds what is read of it, whatever they are.

use std::ops::Range;

use phpprof_zend::Layout;
use phpprof_zend::memory::word_at;
use smallvec::SmallVec;

/// Only this much of a larger page is read.
const MAX_EXTENT: u64 = 1 << 20;
/// The most reads of the top's pointer in one call, each between two looks; a size that
/// [`SmallVec`] supports.
pub(super) const MAX_TOPS: usize = 16;

/// The words of `executor_globals` that a sample needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Globals {
    /// `EG(vm_stack_top)`.
    pub top: u64,
    /// `EG(vm_stack_end)`.
    pub end: u64,
    /// `EG(vm_stack)`.
    pub page: u64,
    /// The newest frame; 0 without one.
    pub current_execute_data: u64,
}

impl Globals {
    /// The size of the slice.
    pub const SIZE: usize = 64;

    /// The first byte and length of the slice.
    #[must_use]
    pub fn slice(layout: &Layout) -> (u64, usize) {
        let row = &layout.executor_globals;
        (
            row.vm_stack_top as u64,
            (row.current_execute_data + 8 - row.vm_stack_top).min(Self::SIZE),
        )
    }

    pub(super) fn parse(layout: &Layout, bytes: &[u8]) -> Self {
        let row = &layout.executor_globals;
        let word = |offset: usize| word_at(bytes, offset - row.vm_stack_top);
        Self {
            top: word(row.vm_stack_top),
            end: word(row.vm_stack_end),
            page: word(row.vm_stack),
            current_execute_data: word(row.current_execute_data),
        }
    }

    /// The size of the page, as far as it is read.
    fn extent(&self) -> u64 {
        self.end.saturating_sub(self.page).min(MAX_EXTENT)
    }

    /// The part of the page that reaches so far below and above the top, as offsets.
    pub(super) fn around_top(&self, reach: u64) -> Range<usize> {
        let top = self.top.saturating_sub(self.page);
        let offset = |offset: u64| usize::try_from(offset.min(self.extent())).unwrap_or(0);
        offset(top.saturating_sub(reach))..offset(top.saturating_add(reach))
    }
}

/// The reads of the top's pointer: the first before all looks at the part around the top, and each
/// other one between two of them.
pub type Tops = SmallVec<[Globals; MAX_TOPS]>;

/// The top frame of the last look: of all moments this is the most recent one.
#[must_use]
pub fn newest(tops: &Tops) -> Globals {
    tops.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_bounds_what_is_read() {
        let globals = Globals {
            top: 0x11000,
            end: 0x50000,
            page: 0x10000,
            current_execute_data: 0x10020,
        };
        assert_eq!(globals.extent(), 0x40000);
        let endless = Globals {
            end: u64::MAX,
            ..globals
        };
        assert_eq!(endless.extent(), MAX_EXTENT);
        assert_eq!(Globals { end: 0, ..globals }.extent(), 0);
    }
}
