//! The callable that a site had in a temporary operand, computed once more from what the caller
//! still has.
//!
//! `($this->factories[$id])()` and `call_user_func_array([$object, $step[0]], $step[1])` prepare
//! their call with a temporary. It is freed before the call, and its place in the frame is reused.
//! The variables and the property that it was computed from are still there. What this module does
//! not do: follow anything but the ops right before the site that fetch from an array or from
//! `$this`, and those that make a pair.
//! Invariant: at most [`MAX_OPS`] ops are followed, and a computed callable proves an edge only if
//! it names the callee.

use super::generator::OBJECT_CLASS;
use super::{Site, Words};
use crate::closure::{FUNCTION, is_closure};
use crate::function::{FunctionKey, HEAD};
use crate::hash::{Index, element};
use crate::memory::{Memory, byte_at, word_at};
use crate::op::{ADD_ARRAY_ELEMENT, FETCH_DIM_R, FETCH_OBJ_R, INIT_ARRAY, Op};
use crate::text::ZendString;
use crate::zval::{IS_ARRAY, IS_LONG, IS_OBJECT, IS_STRING, ZVAL, Zval};

/// How far back the op that made a temporary is searched for.
const MAX_OPS: u64 = 8;
/// How many temporaries lead to a value.
const MAX_STEPS: usize = 4;
/// The bit of FETCH_OBJ_R's `extended_value` that is not its cache slot (`ZEND_FETCH_REF`,
/// Zend/zend_compile.h).
const FETCH_REF: u32 = 1;
/// A declared property is at most this far from the object's beginning; dynamic ones have a
/// negative offset.
const MAX_PROPERTY_OFFSET: u64 = 1 << 16;

/// A value, and the address of the last variable that it was computed from.
#[derive(Debug, Clone, Copy)]
struct Computed {
    zval: Zval,
    variable: Option<u64>,
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The words that prove that the temporary operand of INIT_DYNAMIC_CALL or INIT_USER_CALL named
    /// the callee.
    pub(super) fn computes_callee(&self, init: &Op) -> Option<Words> {
        if !self.is_temporary(init.op2_type) {
            return None;
        }
        let made = self.made(init.address, init.op2)?;
        let variable = if made.opcode == ADD_ARRAY_ELEMENT {
            self.pair_of_callee(&made)?
        } else {
            let callable = self.result(&made, MAX_STEPS)?;
            let is_callee = match callable.zval {
                Zval(object, IS_OBJECT) => self.is_kept_closure_of_callee(object),
                zval => self.is_callable_of_callee(zval),
            };
            if !is_callee {
                return None;
            }
            callable.variable
        };
        Some(variable.map_or(Words::Frames, Words::Operand))
    }

    /// Whether the closure that the operand is computed to be by now is the one that the callee
    /// runs, and has the callee's code: then the site calls that code, whatever the frame's opline
    /// is.
    fn is_kept_closure_of_callee(&self, object: u64) -> bool {
        let func = self.callee.frame.func;
        let mut head = [0; HEAD];
        is_closure(self.layout, self.callee.frame)
            && object.checked_add(FUNCTION) == Some(func)
            && self.memory.read(func, &mut head).is_ok()
            && FunctionKey::parse(self.layout, &head) == Some(self.callee.function.key)
    }

    /// If `[$target, $name]`, whose last op this is, names the callee: the variable that has the
    /// name.
    fn pair_of_callee(&self, second: &Op) -> Option<Option<u64>> {
        let first = self.made(second.address, second.result)?;
        let is_unused = self.layout.op_types.is_unused;
        let is_list = [&first, second].iter().all(|op| op.op2_type == is_unused);
        if first.opcode != INIT_ARRAY || !is_list {
            return None;
        }
        let value = |op: &Op| self.operand(op.op1_type, op.op1, op, MAX_STEPS);
        let (target, name) = (value(&first)?, value(second)?);
        self.is_pair_of_callee([target.zval, name.zval])
            .then_some(name.variable)
    }

    pub(super) fn is_temporary(&self, kind: u8) -> bool {
        let types = &self.layout.op_types;
        ![types.is_const, types.is_cv, types.is_unused].contains(&kind)
    }

    /// The op that made a temporary. Only ops that this module follows may be between it and
    /// `before`, so no other branch leads there.
    fn made(&self, before: u64, temporary: u32) -> Option<Op> {
        let size = self.layout.zend_op.sizeof as u64;
        for back in 1..=MAX_OPS {
            let address = before.checked_sub(back * size)?;
            if address < self.caller.function.key.code {
                return None;
            }
            let op = Op::read(self.memory, self.layout, address)?;
            let is_followed = matches!(
                op.opcode,
                FETCH_DIM_R | FETCH_OBJ_R | INIT_ARRAY | ADD_ARRAY_ELEMENT
            );
            if !is_followed || op.result == temporary {
                return is_followed.then_some(op);
            }
        }
        None
    }

    /// The result of an op that fetches.
    fn result(&self, op: &Op, steps: usize) -> Option<Computed> {
        match op.opcode {
            FETCH_DIM_R => {
                let array = self.operand(op.op1_type, op.op1, op, steps)?;
                let key = self.operand(op.op2_type, op.op2, op, steps)?;
                let zval = self.element(array.zval, key.zval)?;
                Some(Computed {
                    zval: self.behind_reference(zval)?,
                    variable: key.variable.or(array.variable),
                })
            }
            FETCH_OBJ_R if op.op1_type == self.layout.op_types.is_unused => Some(Computed {
                zval: self.behind_reference(self.own_property(op)?)?,
                variable: None,
            }),
            _ => None,
        }
    }

    /// The value of an operand of an op.
    fn operand(&self, kind: u8, operand: u32, op: &Op, steps: usize) -> Option<Computed> {
        let types = &self.layout.op_types;
        if kind == types.is_cv {
            let address = self.caller.frame.address.checked_add(operand.into())?;
            return Some(Computed {
                zval: self.behind_reference(self.copy.zval(address)?)?,
                variable: Some(address),
            });
        }
        if kind == types.is_const {
            return Some(Computed {
                zval: self.zval(self.literal_address(op, operand, 0)?)?,
                variable: None,
            });
        }
        if !self.is_temporary(kind) {
            return None;
        }
        self.result(&self.made(op.address, operand)?, steps.checked_sub(1)?)
    }

    fn element(&self, array: Zval, key: Zval) -> Option<Zval> {
        let Zval(table, IS_ARRAY) = array else {
            return None;
        };
        match key {
            Zval(number, IS_LONG) => {
                element(self.memory, self.layout, table, Index::Number(number))
            }
            Zval(string, IS_STRING) => {
                let text = ZendString::read(self.memory, self.layout, string)?;
                element(self.memory, self.layout, table, Index::Text(&text.bytes))
            }
            _ => None,
        }
    }

    /// `$this->name`, where the op's cache slot has the class of `$this` and the place of the
    /// property (`CACHE_POLYMORPHIC_PTR`, Zend/zend_object_handlers.c).
    fn own_property(&self, op: &Op) -> Option<Zval> {
        if self.layout.rules.cache_slots_in_literals {
            return None;
        }
        let slot = op.extended_value & !FETCH_REF;
        let this = self.caller.frame.this;
        let class = self.memory.word(this.checked_add(OBJECT_CLASS)?).ok()?;
        if this == 0 || class == 0 || self.cached(Some(slot)) != Some(class) {
            return None;
        }
        let offset = self.cached(slot.checked_add(8))?;
        let is_declared = (1..=MAX_PROPERTY_OFFSET).contains(&offset);
        self.zval(this.checked_add(offset).filter(|_| is_declared)?)
    }

    fn zval(&self, address: u64) -> Option<Zval> {
        let mut zval = [0_u8; ZVAL];
        self.memory.read(address, &mut zval).ok()?;
        Some(Zval(word_at(&zval, 0), byte_at(&zval, 8)))
    }
}
