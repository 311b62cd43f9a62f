//! Whether the words that a proof relies on belong together.
//!
//! They were read at different moments while the target ran. What this module does not do: judge what they say.

use super::{Evidence, Side, Site};
use crate::function::{Function, HEAD, Key};
use crate::memory::{Memory, Piece};
use crate::op::Op;
use crate::unwind::Frame;

/// Reads that must agree on a proof's words.
const AGREEING_READS: usize = 3;

/// Words of the frames that a proof relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// None: the caller's code alone names the callee, whenever they were read.
    Code,
    /// The caller's `func` and `run_time_cache`: what the site has called once, the program can call.
    Cache,
    /// Those of both frames.
    Frames,
    /// Those of both frames, and the zval at this address.
    Operand(u64),
    /// Those of both frames, and these, each by its address with what it holds.
    And([(u64, u64); 3]),
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Whether the words of a proof are still what they were when they were copied. The words of one frame can be from
    /// different moments too: `func` from one call, `run_time_cache` or a variable from another. Such a mix never stands
    /// in memory, so that reads hardly agree on it. A frame above the top does not count: what a call left there stays
    /// until it is overwritten.
    #[must_use]
    pub fn stands(&self, words: Words) -> bool {
        words == Words::Code || (0..AGREEING_READS).all(|_| self.stands_now(words))
    }

    /// Whether a proof holds each time that it is asked for, of functions that still are what they were taken for. Code of
    /// one call, as eval()'d code, gives way to the next at the same addresses: a name read from one and a literal from
    /// the other prove nothing.
    #[must_use]
    pub fn is_steady(&self, op: Option<&Op>, evidence: Evidence) -> bool {
        let passing: Vec<&Side<'_>> = [&self.caller, &self.callee]
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

    fn is_still(&self, side: &Side<'_>) -> bool {
        let mut head = [0_u8; HEAD];
        let key = match self.memory.read(side.frame.func, &mut head) {
            Ok(()) => Key::parse(self.layout, &head),
            Err(_) => None,
        };
        key.and_then(|key| Function::resolve(self.memory, self.layout, key))
            .is_some_and(|now| now.has_texts_of(side.function))
    }

    /// What a proof relies on beside the frames: where it is, and what it was.
    fn beside(&self, words: Words) -> Option<Vec<(u64, Vec<u8>)>> {
        match words {
            Words::Operand(address) => {
                let zval = self.copy.at(address)?.get(..16)?;
                Some(vec![(address, zval.to_vec())])
            }
            Words::And(words) => {
                let bytes = words.map(|(address, value)| (address, value.to_le_bytes().to_vec()));
                Some(bytes.to_vec())
            }
            Words::Code | Words::Cache | Words::Frames => Some(Vec::new()),
        }
    }

    fn stands_now(&self, words: Words) -> bool {
        let Some(now) = self.read_again(words) else {
            return false;
        };
        let callee = &self.callee.function.key;
        let same_callee = match words {
            // It goes on, and calls others, but in the same code: `func` of a closure can have come to hold another one.
            Words::Cache => {
                let key = &self.caller.function.key;
                return key.op_index(self.layout, now.caller.opline).is_some()
                    && self.copy.is_live(now.caller.address, now.top)
                    && now.caller.is_same_call(self.caller.frame);
            }
            Words::Code | Words::Frames | Words::Operand(_) => true,
            // The first word of freed memory is the allocator's.
            Words::And(_) => callee.op_index(self.layout, now.callee.opline).is_some(),
        };
        same_callee
            && self.copy.is_live(now.callee.address, now.top)
            && self.copy.is_live(now.caller.address, now.top)
            && now.caller == *self.caller.frame
            && now.caller_at_the_end == now.caller
            && now.callee.is_same_call(self.callee.frame)
    }

    /// Reads both frames again, in one call of the kernel, if what the proof relies on beside them is still what it was.
    fn read_again(&self, words: Words) -> Option<Now> {
        const HEADER: usize = 128;
        let size = self.layout.execute_data.sizeof.min(HEADER);
        let [mut caller, mut callee, mut again] = [[0_u8; HEADER]; 3];
        let mut top = [0_u8; 8];
        let beside = self.beside(words)?;
        let mut beside_now: Vec<Vec<u8>> =
            beside.iter().map(|(_, was)| vec![0; was.len()]).collect();
        let globals = &self.layout.executor_globals;
        let (caller_at, callee_at) = (self.caller.frame.address, self.callee.frame.address);
        let mut pieces = Vec::with_capacity(7);
        let mut add = |address, bytes| pieces.push(Piece { address, bytes });
        add(
            self.executor_globals + globals.current_execute_data as u64,
            top.as_mut_slice(),
        );
        add(caller_at, &mut caller[..size]);
        add(callee_at, &mut callee[..size]);
        for ((address, _), now) in beside.iter().zip(&mut beside_now) {
            add(*address, now);
        }
        // What lies in other pages takes long enough for the caller to end, and for another to stand in its place.
        add(caller_at, &mut again[..size]);
        self.memory.gather(&mut pieces).ok()?;
        drop(pieces);
        let parse = |address, bytes: &[u8]| Frame::parse(self.layout, address, &bytes[..size]);
        beside
            .iter()
            .map(|(_, was)| was)
            .eq(&beside_now)
            .then(|| Now {
                top: u64::from_le_bytes(top),
                caller: parse(caller_at, &caller),
                caller_at_the_end: parse(caller_at, &again),
                callee: parse(callee_at, &callee),
            })
    }
}

/// Both frames of an edge, read again in the order of the fields.
struct Now {
    /// `EG(current_execute_data)`.
    top: u64,
    caller: Frame,
    callee: Frame,
    caller_at_the_end: Frame,
}
