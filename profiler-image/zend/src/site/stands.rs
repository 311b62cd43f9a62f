//! Whether the words that a proof relies on belong together.
//!
//! They were read at different moments while the target ran. What this module does not do: judge what they say.

use super::{Evidence, Side, Site};
use crate::function::{Function, HEAD, Key};
use crate::memory::{Memory, Piece};
use crate::op::Op;
use crate::walk::Frame;

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
            .filter(|side| side.function.key.is_user() && !side.function.key.is_named())
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

    fn stands_now(&self, words: Words) -> bool {
        const HEADER: usize = 128;
        let size = self.layout.execute_data.sizeof.min(HEADER);
        let (mut caller, mut callee) = ([0_u8; HEADER], [0_u8; HEADER]);
        let (mut zval, mut top) = ([0_u8; 16], [0_u8; 8]);
        let mut pieces = vec![
            Piece {
                address: self.executor_globals
                    + self.layout.executor_globals.current_execute_data as u64,
                bytes: &mut top,
            },
            Piece {
                address: self.caller.frame.address,
                bytes: &mut caller[..size],
            },
            Piece {
                address: self.callee.frame.address,
                bytes: &mut callee[..size],
            },
        ];
        if let Words::Operand(address) = words {
            pieces.push(Piece {
                address,
                bytes: &mut zval,
            });
        }
        let read = self.memory.gather(&mut pieces).is_ok();
        drop(pieces);
        let top = u64::from_le_bytes(top);
        let frame = |frame: &Frame, bytes: &[u8]| Frame::parse(self.layout, frame.address, bytes);
        let caller = frame(self.caller.frame, &caller[..size]);
        if words == Words::Cache {
            // It goes on, and calls others, but in the same code: `func` of a closure can have come to hold another one.
            let key = &self.caller.function.key;
            let is_inside = key.op_index(self.layout, caller.opline).is_some();
            let same = Frame {
                opline: self.caller.frame.opline,
                ..caller
            };
            return read
                && is_inside
                && self.copy.is_live(caller.address, top)
                && same == *self.caller.frame;
        }
        // The callee goes on: its own opline may have moved.
        let callee = Frame {
            opline: self.callee.frame.opline,
            ..frame(self.callee.frame, &callee[..size])
        };
        let same_operand = match words {
            Words::Operand(address) => {
                self.copy.at(address).and_then(|bytes| bytes.get(..16)) == Some(&zval[..])
            }
            _ => true,
        };
        read && same_operand
            && self.copy.is_live(callee.address, top)
            && caller == *self.caller.frame
            && callee == *self.callee.frame
    }
}
