//! A source of samples: memory, or a file that is decompressed again for each read.
//!
//! Invariant: every read gives the same samples in the same order.

use crate::proto::{Profile, Sample};

/// A profile whose samples can be read one by one.
pub trait SampleSource {
    /// Everything except the samples. It may contain them too.
    fn head(&self) -> &Profile;

    /// The number of samples.
    fn count(&self) -> usize;

    /// Calls `visit` with every sample.
    fn each(&self, visit: &mut dyn FnMut(&Sample));
}

impl SampleSource for Profile {
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
