//! What is known of a worker's stack that is deeper than a sample shows.
//!
//! Invariant: the more searches for its outermost frames in a row have found nothing, the fewer
//! follow, because a search may take milliseconds. A stack that falls meanwhile has none.

use phpprof_zend::Layout;
use phpprof_zend::memory::Memory;
use phpprof_zend::unwind::{Frame, Outermost};

/// Up to two to the power of this many samples pass before a stack is searched again.
const LONGEST_PAUSE: u32 = 6;

/// A deep stack.
#[derive(Debug, Default)]
pub struct DeepStack {
    known: Option<Outermost>,
    /// How many searches in a row have found nothing.
    failed: u32,
    /// In so many samples it is not searched.
    pause: u32,
}

impl DeepStack {
    /// The outermost frames of a stack that was unwound down to a frame, on this page of the VM
    /// stack.
    pub fn outermost<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        page: u64,
        from: &Frame,
    ) -> Option<Outermost> {
        let are_of = |known: &Outermost| known.are_of(memory, layout, page, from);
        if self.known.as_ref().is_some_and(are_of) {
            return self.known.clone();
        }
        self.known = None;
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        self.known = Outermost::find(memory, layout, page, from);
        self.failed = match self.known {
            Some(_) => 0,
            None => LONGEST_PAUSE.min(self.failed + 1),
        };
        self.pause = (1 << self.failed) - 1;
        self.known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phpprof_zend::layouts::{Machine, layout_of};
    use phpprof_zend::testing::{Counted, EngineImage};

    #[test]
    fn stack_without_outermost_frames_is_searched_seldom() {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let image = EngineImage::new(layout);
        let memory = Counted::new(&image);
        let (mut deep, mut searches) = (DeepStack::default(), 0);
        let from = Frame {
            address: image.page + 64,
            prev: image.page + 32,
            ..Frame::default()
        };
        for _ in 0..640 {
            let before = memory.calls();
            assert!(deep.outermost(&memory, layout, image.page, &from).is_none());
            searches += u32::from(memory.calls() > before);
        }
        assert!((10..=16).contains(&searches), "{searches}");
    }
}
