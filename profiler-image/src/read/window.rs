//! How much of a stack a read looks at: the number of looks, and the number of bytes around the
//! top.
//!
//! Both depend on what earlier reads have shown. Invariant: both stay within their bounds.

use std::ops::RangeInclusive;

/// The number of looks at the part around the top in one read. It grows if often none of them shows
/// a whole stack.
const LOOKS: RangeInclusive<usize> = 4..=10;
/// After this many reads in a row that showed a whole stack, the number of looks decreases by one.
const WHOLE_READS: usize = 128;
/// The bytes below and above the last top in each look. It grows with the distance that the top
/// moves between two reads.
const REACH: RangeInclusive<u64> = 3072..=12288;
/// The bytes of all looks of one read together, except for the lowest number of looks: a longer
/// read would not be of one moment.
const MOST_BYTES: usize = 128 << 10;
/// After this many reads, the reach is determined again.
const READS: u32 = 64;
/// The reach is doubled if this many of these reads had to be repeated.
const MISSES: u32 = 8;

/// How much of a stack a read looks at.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    looks: usize,
    /// Reads in a row that showed a whole stack.
    whole: usize,
    reach: u64,
    /// Since the reach was determined: reads, those that did not show the top, and the farthest
    /// that it moved.
    reads: u32,
    misses: u32,
    farthest: u64,
}

impl Window {
    /// The bytes below and above a top that was read a moment ago.
    pub const NEAR: u64 = *REACH.start();

    /// The number of looks at this many bytes.
    #[must_use]
    pub fn looks(&self, bytes: usize) -> usize {
        let most = (MOST_BYTES / bytes.max(1)).max(*LOOKS.start());
        self.looks.min(most)
    }

    /// The bytes below and above the last top.
    #[must_use]
    pub fn reach(&self) -> u64 {
        self.reach
    }

    /// Whether the top often moves farther than the least bytes around it.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.reach > Self::NEAR
    }

    /// Takes more looks if none showed a whole stack, and fewer again after many reads that did.
    pub fn showed(&mut self, is_whole: bool) {
        self.whole = if is_whole { self.whole + 1 } else { 0 };
        if !is_whole {
            self.looks = (self.looks + 1).min(*LOOKS.end());
        } else if self.whole.is_multiple_of(WHOLE_READS) {
            self.looks = (self.looks - 1).max(*LOOKS.start());
        }
    }

    /// Reaches farther if the top often was outside, and less far if half had been enough.
    /// `distance` is how far the top was from its expected place.
    pub fn moved(&mut self, distance: u64, is_inside: bool) {
        self.reads += 1;
        self.misses += u32::from(!is_inside);
        self.farthest = self.farthest.max(distance);
        if self.reads < READS {
            return;
        }
        let reach = if self.misses >= MISSES {
            self.reach * 2
        } else if self.farthest < self.reach / 2 {
            self.reach / 2
        } else {
            self.reach
        };
        self.reach = reach.clamp(*REACH.start(), *REACH.end());
        (self.reads, self.misses, self.farthest) = (0, 0, 0);
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            looks: *LOOKS.start(),
            whole: 0,
            reach: *REACH.start(),
            reads: 0,
            misses: 0,
            farthest: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So few bytes that the number of looks is not limited.
    const FEW: usize = 6 << 10;

    #[test]
    fn looks_follow_what_they_show() {
        let mut window = Window::default();
        let least = window.looks(FEW);
        (0..100).for_each(|_| window.showed(false));
        assert_eq!(window.looks(FEW), *LOOKS.end());
        assert_eq!(window.looks(24 << 10), 5);
        assert_eq!(window.looks(1 << 20), least);
        (1..WHOLE_READS).for_each(|_| window.showed(true));
        assert_eq!(window.looks(FEW), *LOOKS.end());
        window.showed(true);
        assert_eq!(window.looks(FEW), LOOKS.end() - 1);
        (0..100 * WHOLE_READS).for_each(|_| window.showed(true));
        assert_eq!(window.looks(FEW), least);
    }

    #[test]
    fn read_reaches_as_far_as_the_top() {
        let mut window = Window::default();
        let mut after = |distance: u64, is_inside: bool| {
            (0..10 * READS).for_each(|_| window.moved(distance, is_inside));
            window.reach()
        };
        assert_eq!(after(100, true), *REACH.start());
        assert_eq!(after(1 << 20, false), *REACH.end());
        assert_eq!(after(REACH.end() - 1, true), *REACH.end());
        assert_eq!(after(0, true), *REACH.start());
    }

    #[test]
    fn rare_far_top_makes_no_read_longer() {
        let mut window = Window::default();
        for read in 0..100 * READS {
            window.moved(1 << 20, !read.is_multiple_of(READS / 4));
        }
        assert_eq!(window.reach(), *REACH.start());
    }
}
