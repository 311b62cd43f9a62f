//! A pprof file whose samples are never all in memory.
//!
//! Invariant: [`Packed::open`] accepts only complete files, so later reads succeed as the first one
//! did.

use crate::decode::{Checks, DecodeLimits, read};
use crate::error::DecodeError;
use crate::proto::{Profile, Sample};
use crate::source::SampleSource;

/// A profile whose samples stay in its file. Each read decompresses the file again.
#[derive(Debug)]
pub struct Packed<F> {
    file: F,
    limits: DecodeLimits,
    head: Profile,
    samples: usize,
}

impl<F: AsRef<[u8]>> Packed<F> {
    /// Reads the file twice: it reads the samples after it knows everything that they can refer to.
    pub fn open(file: F, limits: &DecodeLimits) -> Result<Self, DecodeError> {
        let head = read(file.as_ref(), limits, &mut |_| Ok(()))?;
        let checks = Checks::of(&head, limits)?;
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

impl<F: AsRef<[u8]>> SampleSource for Packed<F> {
    fn head(&self) -> &Profile {
        &self.head
    }

    fn count(&self) -> usize {
        self.samples
    }

    fn each(&self, visit: &mut dyn FnMut(&Sample)) {
        // `open` has read these bytes to the end, so nothing can fail now.
        let _ = read(self.file.as_ref(), &self.limits, &mut |sample| {
            visit(&sample);
            Ok(())
        });
    }
}
