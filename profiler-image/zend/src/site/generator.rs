//! The body of a generator, which no site names: the generator itself connects it with the code
//! that resumed it.
//!
//! The frame of a body and its `zend_generator` point to each other. The code that resumes it has
//! the same generator: a `foreach` in the iterator that its op has made, an unpacking in its
//! operand, `yield from` as the parent of the caller's own generator (`zend_generator_resume`,
//! Zend/zend_generators.c), a method such as `Generator::next` as its object, and a function such
//! as `iterator_to_array` as its first argument. Invariant: the whole chain from the caller's frame
//! to the body's is consistent, and counts only while both frames stand. The frame of an ended
//! generator stays in free memory, with its last caller and the address of a `zend_generator` that
//! may now be another one: it proves nothing by itself.

use super::{Evidence, Relation, Site, Words};
use crate::memory::{Memory, word_at};
use crate::op::{
    ADD_ARRAY_UNPACK, FE_FETCH_R, FE_FETCH_RW, FE_RESET_R, FE_RESET_RW, Op, SEND_UNPACK,
    is_yield_from,
};
use crate::unwind::Frame;
use crate::zval::{IS_OBJECT, Zval};

/// `zend_object_iterator.data` (Zend/zend_iterators.h): it follows a `zend_object`, in all
/// versions.
const ITERATOR_DATA: u64 = 56;

/// `zend_object.ce` (Zend/zend_types.h), in all versions.
pub(crate) const OBJECT_CLASS: u64 = 16;

/// What the caller has.
enum HeldGenerator {
    /// The generator: the words that prove it, each as its address and its expected value.
    It([Option<(u64, u64)>; 2]),
    /// Something else, in a place that only a generator that is resumed can have.
    Another,
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Whether the caller, at this op if it has any, resumes the generator whose body is the
    /// callee. `None` if the callee is no such body, or if the site cannot tell: a destroyed
    /// generator runs its `finally` from anywhere, and a `foreach` over an object that makes a
    /// generator begins with a generator that nothing refers to yet.
    pub(super) fn resumes(&self, op: Option<&Op>) -> Option<Evidence> {
        let (generator, body) = self.generator(self.callee.frame)?;
        let holds = |(address, value)| self.memory.word(address) == Ok(value);
        // Other generators and calls may have been made at the same addresses since the frames were
        // read.
        let offset = self.layout.execute_data.func as u64;
        let is_there = |frame: &Frame| holds((frame.address.saturating_add(offset), frame.func));
        if !holds(body) || !is_there(self.callee.frame) || !is_there(self.caller.frame) {
            return Some(Evidence::Refuted);
        }
        let held = match op {
            Some(op) => self
                .iterates(op, generator)
                .or_else(|| self.delegates_to(op, generator)),
            None => self.held_as_argument(generator),
        };
        let HeldGenerator::It(others) = held? else {
            return Some(Evidence::Refuted);
        };
        let words = [Some(body), others[0], others[1]].map(|word| word.unwrap_or(body));
        Some(if words.into_iter().all(holds) {
            Evidence::Proven(Relation::Nothing, Words::Frames)
        } else {
            Evidence::Refuted
        })
    }

    fn iterates(&self, op: &Op, generator: u64) -> Option<HeldGenerator> {
        let operand = || self.object(u64::from(op.op1));
        match op.opcode {
            FE_RESET_R | FE_RESET_RW | SEND_UNPACK | ADD_ARRAY_UNPACK => {
                let (operand, object) = operand()?;
                self.held_by(operand, object, generator)
            }
            FE_FETCH_R | FE_FETCH_RW => {
                let operand = operand()?;
                let data = operand.1.checked_add(ITERATOR_DATA)?;
                Some(HeldGenerator::It([Some(operand), Some((data, generator))]))
            }
            _ => None,
        }
    }

    /// A generator that delegates has its opline after the `yield from`, where it continues.
    fn delegates_to(&self, op: &Op, generator: u64) -> Option<HeldGenerator> {
        let (delegating, body) = self.generator(self.caller.frame)?;
        let parent = delegating.checked_add(self.layout.generator.node_parent as u64)?;
        let before = op.address.checked_sub(self.layout.zend_op.sizeof as u64);
        let before = before.filter(|&before| before >= self.caller.function.key.code)?;
        let before = Op::read(self.memory, self.layout, before)?;
        is_yield_from(before.opcode)
            .then_some(HeldGenerator::It([Some(body), Some((parent, generator))]))
    }

    fn held_as_argument(&self, generator: u64) -> Option<HeldGenerator> {
        let caller = self.caller.frame;
        if caller.has_this() && caller.this == generator {
            return Some(HeldGenerator::It([None, None]));
        }
        let first = self.layout.execute_data.first_argument as u64;
        let (argument, object) = self.object(first)?;
        self.held_by(argument, object, generator)
    }

    /// What a variable with an object holds: the generator, or else another object of its class.
    fn held_by(&self, variable: u64, object: u64, generator: u64) -> Option<HeldGenerator> {
        if object == generator {
            return Some(HeldGenerator::It([Some((variable, object)), None]));
        }
        let class = |object: u64| self.memory.word(object.checked_add(OBJECT_CLASS)?).ok();
        (class(object)? == class(generator)?).then_some(HeldGenerator::Another)
    }

    /// The generator that a frame refers to as its own, and the word by which the generator refers
    /// to the frame.
    fn generator(&self, frame: &Frame) -> Option<(u64, (u64, u64))> {
        if frame.call_info & self.layout.call_info.generator == 0 {
            return None;
        }
        let offset = self.layout.execute_data.return_value;
        let generator = word_at(self.copy.at(frame.address)?.get(offset..offset + 8)?, 0);
        let body = generator.checked_add(self.layout.generator.execute_data as u64)?;
        Some((generator, (body, frame.address)))
    }

    /// Address and value of the caller's variable at this offset, if that is an object.
    fn object(&self, offset: u64) -> Option<(u64, u64)> {
        let address = self.caller.frame.address.checked_add(offset)?;
        match self.copy.zval(address)? {
            Zval(object, IS_OBJECT) => Some((address, object)),
            _ => None,
        }
    }
}
