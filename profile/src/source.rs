//! Where a profile's samples come from: memory, or a file that is inflated anew for each look.
//!
//! Invariant: every look sees the same samples in the same order.

use crate::proto::{Profile, Sample};

/// A profile whose samples can be looked at one by one.
pub trait Source {
    /// Everything but the samples, which may be there too.
    fn head(&self) -> &Profile;

    /// How many samples there are.
    fn count(&self) -> usize;

    /// Shows every sample.
    fn each(&self, visit: &mut dyn FnMut(&Sample));
}

impl Source for Profile {
    fn head(&self) -> &Profile {
        self
    }

    fn count(&self) -> usize {
        self.sample.len()
    }

    fn each(&self, visit: &mut dyn FnMut(&Sample)) {
        self.sample.iter().for_each(visit);
    }
}
