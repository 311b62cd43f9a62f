//! Functions with a text that PHP's hash does not confirm by any rule that is known, or that is too
//! long to be read whole.
//!
//! Such a text may be of memory that was freed or overwritten. But a rule that is not known must
//! not cost a program its names forever.
//! Invariant: it names a function only if another sample, at an earlier moment, has read the same
//! texts at the same addresses with the same hashes, and the frame stands after they were read once
//! more.

use std::hash::BuildHasher as _;

use phpprof_zend::function::NamedFunction;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// How many functions wait for a second moment; all are forgotten when there are more.
pub(super) const MAX_WAITING: usize = 256;

/// What is known of such functions.
#[derive(Debug, Default)]
pub(super) struct Unchecked {
    /// When a function was first seen, by a hash of all that was read of it.
    first: FxHashMap<u64, u64>,
    /// How many have a name now.
    pub names: u64,
    /// Whether one was refused since the last [`super::Functions::begin`].
    pub is_refused: bool,
}

impl Unchecked {
    /// Remembers it for later samples. Returns whether an earlier one has read the same.
    pub fn note_read(&mut self, named: &NamedFunction, now: u64) -> bool {
        let function = &named.function;
        let texts = (named.name(), named.file(), &function.function_name[..]);
        let all = (&function.key, function.fingerprints, texts);
        let place = FxBuildHasher.hash_one(all);
        if self.first.len() >= MAX_WAITING && !self.first.contains_key(&place) {
            self.first.clear();
        }
        *self.first.entry(place).or_insert(now) < now
    }

    /// How many functions wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.first.len()
    }
}
