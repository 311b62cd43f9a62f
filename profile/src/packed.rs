//! A pprof file whose samples are never held together.
//!
//! Invariant: what [`Packed::open`] takes is whole, so every look at it ends as the first did.

use crate::decode::{Checks, DecodeError, Limits, read};
use crate::proto::{Profile, Sample};
use crate::source::Source;

/// A profile whose samples stay in its file: each look inflates it again.
#[derive(Debug)]
pub struct Packed<F> {
    file: F,
    limits: Limits,
    head: Profile,
    samples: usize,
}

impl<F: AsRef<[u8]>> Packed<F> {
    /// Reads the file twice, its samples once all that they can point to is known.
    pub fn open(file: F, limits: &Limits) -> Result<Self, DecodeError> {
        let head = read(file.as_ref(), limits, &mut |_| Ok(()))?;
        let checks = Checks::of(&head)?;
        let mut samples = 0;
        read(file.as_ref(), limits, &mut |sample| {
            samples += 1;
            checks.sample(&head, &sample)
        })?;
        Ok(Packed {
            file,
            limits: limits.clone(),
            head,
            samples,
        })
    }
}

impl<F: AsRef<[u8]>> Source for Packed<F> {
    fn head(&self) -> &Profile {
        &self.head
    }

    fn count(&self) -> usize {
        self.samples
    }

    fn each(&self, visit: &mut dyn FnMut(&Sample)) {
        // `open` has read these bytes to their end: nothing of them fails now.
        let _ = read(self.file.as_ref(), &self.limits, &mut |sample| {
            visit(&sample);
            Ok(())
        });
    }
}
