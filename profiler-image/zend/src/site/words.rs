//! The words on which a proof depends, and whether code that may have been replaced is still the
//! same.
//!
//! The words were read at different moments while the target ran. What this module does not do:
//! judge what they say.

use super::{EdgeSide, Evidence, Site};
use crate::function::{FunctionKey, HEAD, NamedFunction};
use crate::memory::Memory;
use crate::op::Op;

/// Reads that must agree on a proof by code that may have been replaced.
const AGREEING_READS: usize = 3;

/// The words of the frames on which a proof depends: they must be of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// None: the caller's code alone names the callee, whenever the frames were read.
    Code,
    /// The caller's `func` and `run_time_cache`: if the site has called the callee once, the
    /// program can call it.
    Cache,
    /// Those of both frames.
    Frames,
    /// Those of both frames, of which the callee runs a file or eval()'d code: to get from one such
    /// call to another takes longer than from one look to the next.
    Script,
    /// Those of both frames, and the zval at this address.
    Operand(u64),
    /// The string of a temporary of the site, whose zval is at this address: the site calls what it
    /// names, because no op of the call's arguments writes to this temporary.
    Temporary(u64),
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Whether a proof is the same at each read, for functions that are unchanged. Code of one
    /// call, such as eval()'d code, is replaced by the next at the same addresses: a name from one
    /// and a literal from the other prove nothing.
    #[must_use]
    pub fn is_steady(&self, op: Option<&Op>, evidence: Evidence) -> bool {
        let passing: Vec<&EdgeSide<'_>> = [&self.caller, &self.callee]
            .into_iter()
            .filter(|side| side.is_passing)
            .collect();
        let again = || {
            let op = match op {
                Some(op) => Some(Op::read(self.memory, self.layout, op.address)?),
                None => None,
            };
            Some(self.judge(op.as_ref()))
        };
        passing.is_empty()
            || (0..AGREEING_READS).all(|_| {
                passing.iter().all(|side| self.is_still(side)) && again() == Some(evidence)
            })
    }

    fn is_still(&self, side: &EdgeSide<'_>) -> bool {
        let mut head = [0_u8; HEAD];
        let key = match self.memory.read(side.frame.func, &mut head) {
            Ok(()) => FunctionKey::parse(self.layout, &head),
            Err(_) => None,
        };
        key.and_then(|key| NamedFunction::resolve(self.memory, self.layout, key))
            .is_some_and(|now| now.function == *side.function)
    }
}
