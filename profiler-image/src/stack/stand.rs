//! Which frames of a stack stood, that is, were unchanged when they were looked at again.
//!
//! Frames are counted from the root, which is 1. Invariant: a frame that was not looked at does not
//! stand.

/// The frames above `below`, up to `above`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stand {
    /// The last frame from the root that does not stand, or 0.
    pub below: usize,
    /// The last frame above it that stands.
    pub above: usize,
}

impl Stand {
    /// The frames that stand in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            below: self.below.max(other.below),
            above: self.above.min(other.above),
        }
    }

    /// Whether a frame stands.
    #[must_use]
    pub fn holds(self, frame: usize) -> bool {
        self.holds_call(frame, frame)
    }

    /// Whether looking again can tell nothing new of a frame: it was looked at, or nothing stood.
    #[must_use]
    pub fn has_seen(self, frame: usize) -> bool {
        self.below < frame || self == Self::default()
    }

    /// Whether a frame stands, or is below one that stands, which it then still has as a callee.
    #[must_use]
    pub fn reaches(self, frame: usize) -> bool {
        self.above > self.below && frame <= self.above
    }

    /// Whether a caller and its callee stand, and the frames between them.
    #[must_use]
    pub fn holds_call(self, caller: usize, callee: usize) -> bool {
        caller > self.below && callee <= self.above
    }

    /// The same after a frame was inserted above that caller. The frames above keep their state.
    #[must_use]
    pub fn with_absent(self, caller: usize) -> Self {
        let moved = |count: usize| count + usize::from(count > caller);
        Self {
            below: moved(self.below),
            above: moved(self.above),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_stands_with_both_its_frames() {
        let stand = Stand { below: 2, above: 4 };
        assert!(stand.holds(3) && stand.holds(4) && stand.holds_call(3, 4));
        assert!(!stand.holds(2) && !stand.holds(5));
        assert!(!stand.holds_call(2, 3) && !stand.holds_call(4, 5));
        assert!(stand.reaches(1) && stand.reaches(4) && !stand.reaches(5));
        assert!(stand.has_seen(3) && stand.has_seen(5) && !stand.has_seen(2));
        assert!(Stand::default().has_seen(0));
        assert!(!Stand::default().holds(1) && !Stand { below: 2, above: 2 }.reaches(1));
    }

    #[test]
    fn inserted_frame_stands_with_its_callee() {
        let stand = Stand { below: 1, above: 3 };
        assert_eq!(stand.with_absent(2), Stand { below: 1, above: 4 });
        assert_eq!(stand.with_absent(3), stand);
    }
}
