//! The call-site proof: does the program have this edge from a caller to a callee?
//!
//! The engine saves the caller's `opline` before it links a callee, and keeps at the call site a
//! record of the callees of that site (its inline cache). So a real edge can be distinguished from
//! two frames that were read at different moments: the site must be one that pushes a frame, and it
//! must have called, or name, this callee.
//!
//! Three answers: proven, refuted (this pair of frames is torn), and open (the engine calls here
//! without naming the callee: callbacks, magic methods, destructors; only a quiescent read can
//! prove those). What this module does not do: trust the top frame's own opline, or a callee's
//! `zend_function` address by itself.

use crate::function::ZendFunction;
use crate::hash::find;
use crate::layouts::Layout;
use crate::memory::Memory;
use crate::op::{
    FETCH_OBJ_FUNC_ARG, FETCH_OBJ_R, INCLUDE_OR_EVAL, INIT_FCALL, INIT_FCALL_BY_NAME,
    INIT_METHOD_CALL, INIT_NS_FCALL_BY_NAME, INIT_PARENT_PROPERTY_HOOK_CALL,
    INIT_STATIC_METHOD_CALL, NEW, Op, is_frameless,
};
use crate::short::Short;
use crate::text::ZendString;
use crate::unwind::{Copy, Frame};
use crate::zval::{IS_OBJECT, IS_STRING, Zval};

mod autoload;
pub mod callable;
mod computed;
pub mod frameless;
mod generator;
mod hook;
mod included;
mod left;
mod new;
mod object;
mod operand;
mod passed;
mod static_method;
mod string;
mod words;

pub(crate) use generator::OBJECT_CLASS;
pub use operand::own_cache;
pub use words::Words;

/// How far back from a DO_* its INIT_* is searched for: a call with more ops between them is
/// refused.
const MAX_OPS_BACK: u64 = 4096;

/// A call site's answer for an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The program has this edge, if the words that prove it are of one moment. The [`Relation`]
    /// tells later, without a read, whether a pair of frames agrees with it.
    Proven(Relation, Words),
    /// The site calls without naming the callee.
    Open,
    /// The two frames do not belong together.
    Refuted,
}

/// A relation between caller and callee that is visible in their frames alone. It does not prove an
/// edge; it shows that two frames of a proven edge were read at different moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Relation {
    /// Any two frames agree with it.
    #[default]
    Nothing,
    /// `$this->m()`: both have the same `This`.
    SameThis,
    /// `$cv->m()`: the callee's `This` is the object in the caller's variable at this offset.
    ThisIn(u32),
    /// `f($cv)`: the callee's argument `to` is the object in the caller's variable `from`, both as
    /// offsets into the frames (`opline->result.var` and `op1.var` of ZEND_SEND_VAR).
    Passed {
        /// The offset in the caller's frame.
        from: u32,
        /// The offset in the callee's frame.
        to: u32,
    },
}

impl Relation {
    /// Whether the two frames contradict it. Bytes that were not copied contradict nothing.
    #[must_use]
    pub fn contradicted(self, copy: &Copy, caller: &Frame, callee: &Frame) -> bool {
        self.agreement(copy, caller, callee) == Some(false)
    }

    /// Whether the two frames show that it holds.
    #[must_use]
    pub fn confirmed(self, copy: &Copy, caller: &Frame, callee: &Frame) -> bool {
        self.agreement(copy, caller, callee) == Some(true)
    }

    /// Whether it holds; `None` if the copied bytes do not tell.
    fn agreement(self, copy: &Copy, caller: &Frame, callee: &Frame) -> Option<bool> {
        let object_at = |frame: &Frame, offset: u32| {
            copy.zval(frame.address.wrapping_add(u64::from(offset)))
                .and_then(|Zval(value, kind)| (kind == IS_OBJECT).then_some(value))
        };
        match self {
            Self::Nothing => Some(true),
            Self::SameThis => Some(caller.this == callee.this),
            Self::ThisIn(offset) => object_at(caller, offset).map(|object| object == callee.this),
            Self::Passed { from, to } => {
                let both = object_at(caller, from).zip(object_at(callee, to));
                both.map(|(passed, held)| passed == held)
            }
        }
    }
}

/// One side of an edge.
#[derive(Clone, Copy)]
pub struct EdgeSide<'a> {
    /// As it was read.
    pub frame: &'a Frame,
    /// Its function.
    pub function: &'a ZendFunction,
    /// The address of its `zend_class_entry`, 0 without a class. The key of a class that each
    /// request links anew has none.
    pub scope: u64,
    /// Other code can have replaced its code at the same addresses since it was read, as with
    /// eval()'d code.
    pub is_passing: bool,
    /// Its frame's opline proves which code it runs: it has called something since the frame was
    /// pushed.
    pub has_own_opline: bool,
}

/// Everything that a judgement needs.
pub struct Site<'a, M: Memory + ?Sized> {
    /// For bytes that are not in the copy.
    pub memory: &'a M,
    /// The engine's layout row.
    pub layout: &'a Layout,
    /// The stack of both frames.
    pub copy: &'a Copy,
    /// The address of `EG`.
    pub executor_globals: u64,
    /// The address of `CG`: a `ZEND_MAP_PTR` counts from a word in it.
    pub compiler_globals: Option<u64>,
    /// The address of `zend_flf_functions`, if there is one.
    pub frameless_functions: Option<u64>,
    /// The function between the two that has no frame.
    pub through: Option<&'a str>,
    /// The caller's frame.
    pub caller: EdgeSide<'a>,
    /// The frame above it.
    pub callee: EdgeSide<'a>,
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Judges the edge. `op` is the op at the caller's opline, which the caller of this function
    /// found to be inside the caller's code; it is unused if the caller is an internal function.
    #[must_use]
    pub fn judge(&self, op: Option<&Op>) -> Evidence {
        if let (Some(name), Some(op)) = (self.through, op) {
            return self.judge_through(op, name);
        }
        if let Some(evidence) = self.resumes(op) {
            return evidence;
        }
        let top = self.callee.frame.call_info & self.layout.call_info.top != 0;
        let nameless = self.callee.function.key.is_nameless();
        let Some(op) = op else {
            // An internal function calls through zend_call_function, which sets TOP; the nameless
            // frame at the bottom of a fiber is the one exception.
            let named = || {
                self.autoloads_for_internal()
                    .or_else(|| self.calls_argument())
                    .or_else(|| self.joins())
            };
            return if let Some(words) = top.then(named).flatten() {
                Evidence::Proven(Relation::Nothing, words)
            } else if top || nameless || self.caller.function.key.is_nameless() {
                Evidence::Open
            } else {
                Evidence::Refuted
            };
        };
        let named = || self.autoloads(op).or_else(|| self.makes_string(op));
        if let Some(words) = top.then(named).flatten() {
            return Evidence::Proven(Relation::Nothing, words);
        }
        let callee = self.callee.function;
        let is_called_back =
            top && (callee.key.is_user() || !callee.class.is_empty()) && !self.denies_hook(op);
        match self.judge_op(op) {
            // zend_call_function sets TOP, and from user code it calls functions that no site
            // names: a destructor, an error handler, a magic method. None of these is a plain
            // internal function, which a torn frame can make appear with TOP. If an extension has
            // replaced `zend_execute_ex`, every user callee has TOP, and then the site does name
            // this one.
            Evidence::Refuted if is_called_back => Evidence::Open,
            evidence => evidence,
        }
    }

    fn judge_op(&self, op: &Op) -> Evidence {
        match self.judge_call(op) {
            Evidence::Proven(check, Words::Frames | Words::Operand(_) | Words::Temporary(_))
                if !self.are_on_their_objects(check) =>
            {
                Evidence::Open
            }
            evidence => evidence,
        }
    }

    fn judge_call(&self, op: &Op) -> Evidence {
        let callee = &self.callee.function.key;
        if op.opcode == INCLUDE_OR_EVAL {
            return self.judge_included(op);
        }
        if matches!(op.opcode, FETCH_OBJ_R | FETCH_OBJ_FUNC_ARG) {
            return self.judge_property_hook(op);
        }
        if is_frameless(op.opcode) {
            return self.judge_frameless(op);
        }
        if !op.is_do() || callee.is_top_level() {
            return Evidence::Refuted;
        }
        match self.init_of(op).map(|init| self.judge_init(&init, op)) {
            Some(Evidence::Proven(Relation::Nothing, words)) => {
                Evidence::Proven(self.passed_variable(op), words)
            }
            evidence => evidence.unwrap_or(Evidence::Refuted),
        }
    }

    /// Walks back from a DO_* to its INIT_*, as the engine does itself (`cleanup_unfinished_calls`,
    /// Zend/zend_execute.c).
    fn init_of(&self, op: &Op) -> Option<Op> {
        const CHUNK: u64 = 32;
        let size = self.layout.zend_op.sizeof as u64;
        let first = self.caller.function.key.code;
        let mut level = 0_u32;
        let mut end = op.address;
        let mut bytes = Short::<u8, 1024>::default();
        while end > first && (op.address - end) / size < MAX_OPS_BACK {
            let count = ((end - first) / size).min(CHUNK);
            let start = end - count * size;
            bytes.resize(usize::try_from(count * size).ok()?);
            self.memory.read(start, &mut bytes).ok()?;
            for (index, chunk) in bytes
                .chunks_exact(self.layout.zend_op.sizeof)
                .enumerate()
                .rev()
            {
                let op = Op::parse(self.layout, start + index as u64 * size, chunk);
                if op.is_do() || op.is_conversion() {
                    level += 1;
                } else if op.is_init() {
                    if level == 0 {
                        return Some(op);
                    }
                    level -= 1;
                }
            }
            end = start;
        }
        None
    }

    fn judge_init(&self, init: &Op, call: &Op) -> Evidence {
        self.prepare_slots(init);
        let cached = self.judge_slots(init);
        let has_class = matches!(init.opcode, NEW | INIT_STATIC_METHOD_CALL);
        match cached {
            // A closure's cache is only that of its frame. If the code names the callee's class,
            // that is the better proof.
            Some(Evidence::Proven(_, Words::Cache)) if has_class => {}
            Some(evidence) => return evidence,
            None => {}
        }
        self.prepare_texts(init);
        let named = self.judge_texts(init, call);
        match named {
            Evidence::Proven(_, Words::Code) => named,
            _ => cached.unwrap_or(named),
        }
    }

    fn judge_texts(&self, init: &Op, call: &Op) -> Evidence {
        match init.opcode {
            INIT_FCALL | INIT_FCALL_BY_NAME | INIT_NS_FCALL_BY_NAME => self.judge_function(init),
            INIT_METHOD_CALL => self.judge_method(init),
            INIT_STATIC_METHOD_CALL => self.judge_static_method(init),
            INIT_PARENT_PROPERTY_HOOK_CALL => self.judge_parent_property_hook(init),
            NEW => self.judge_new(init),
            _ => self.judge_dynamic(init, call),
        }
    }

    /// The answer of the inline cache, if it has the callee: then no text is needed.
    fn judge_slots(&self, init: &Op) -> Option<Evidence> {
        let has_name = init.op2_type == self.layout.op_types.is_const;
        let callee = Some(self.callee.frame.func);
        let (check, words) = match init.opcode {
            INIT_FCALL | INIT_FCALL_BY_NAME | INIT_NS_FCALL_BY_NAME => {
                // Else the literal, which the code has, is the better proof.
                let is_own = self.cache_words() == Words::Code;
                let is_callee = is_own && self.cached_function(init) == callee;
                return is_callee.then_some(Evidence::Proven(Relation::Nothing, Words::Code));
            }
            NEW => return self.judge_cached_class(init),
            INIT_METHOD_CALL if has_name => (self.check_of(init), self.cache_words()),
            INIT_STATIC_METHOD_CALL if has_name => (Relation::Nothing, self.cache_words()),
            _ => return None,
        };
        let is_callee = self.cached_method(init) == callee;
        is_callee.then_some(Evidence::Proven(check, words))
    }

    fn judge_function(&self, init: &Op) -> Evidence {
        let named = |index| {
            self.callee.function.class.is_empty()
                && self.literal_is(init, init.op2, index, &self.callee.function.function_name)
        };
        if named(0) {
            return Evidence::Proven(Relation::Nothing, Words::Code);
        }
        match self.cached_function(init) {
            Some(function) if function == self.callee.frame.func => {
                return Evidence::Proven(Relation::Nothing, self.cache_words());
            }
            // A function's slot is filled once for the whole request.
            Some(function) if function != 0 => return Evidence::Refuted,
            _ => {}
        }
        // `f` of the global namespace, if the site's own namespace has none.
        let is_namespaced = init.opcode == INIT_NS_FCALL_BY_NAME;
        if is_namespaced && (named(1) || (named(2) && self.has_no_function(init, 1))) {
            Evidence::Proven(Relation::Nothing, Words::Code)
        } else {
            Evidence::Refuted
        }
    }

    /// The relation of the two frames of a method's call.
    fn check_of(&self, init: &Op) -> Relation {
        // A static method may be called on an object: then the callee has no such object.
        if !self.is_object_call() {
            Relation::Nothing
        } else if init.op1_type == self.layout.op_types.is_unused {
            Relation::SameThis
        } else if init.op1_type == self.layout.op_types.is_cv {
            Relation::ThisIn(init.op1)
        } else {
            Relation::Nothing
        }
    }

    fn judge_method(&self, init: &Op) -> Evidence {
        let check = self.check_of(init);
        if init.op2_type != self.layout.op_types.is_const {
            return self.judge_named_method(init, check);
        }
        if !self.literal_is(init, init.op2, 0, &self.callee.function.function_name) {
            return self.judge_other_name(init, check);
        }
        // The slot only has the last class, or nothing: the object decides.
        let operand = self.caller.frame.address.wrapping_add(u64::from(init.op1));
        if check == Relation::SameThis {
            let agrees = self.caller.frame.this == self.callee.frame.this;
            return if agrees {
                Evidence::Proven(check, Words::Frames)
            } else {
                Evidence::Open
            };
        }
        match self.copy.zval(operand) {
            Some(Zval(object, IS_OBJECT))
                if self.is_object_call() && object == self.callee.frame.this =>
            {
                Evidence::Proven(check, Words::Operand(operand))
            }
            _ => Evidence::Open,
        }
    }

    /// A callee whose name differs from the site's literal: a trait's method under its first name,
    /// or a magic one.
    fn judge_other_name(&self, init: &Op, check: Relation) -> Evidence {
        let aliased = || {
            let class = self.callee.scope;
            let name = self.literal(init, init.op2, 0)?.bytes.to_ascii_lowercase();
            let table = class.checked_add(self.layout.class_entry.function_table as u64)?;
            find(self.memory, self.layout, table, &name)
        };
        if self.layout.rules.trait_alias_keeps_name
            && self.callee.scope != 0
            && aliased() == Some(self.callee.frame.func)
        {
            return Evidence::Proven(check, Words::Frames);
        }
        self.judge_magic_call(init, check)
    }

    /// `__call` and `__callStatic`: CALL_TRAMPOLINE has put the called name into the first
    /// argument.
    fn judge_magic_call(&self, init: &Op, check: Relation) -> Evidence {
        let name = self.callee.function.function_name.as_slice();
        // A static call inside an object of the class finds `__call` too; a call on an object finds
        // only `__call`.
        let statically =
            init.opcode == INIT_STATIC_METHOD_CALL && name.eq_ignore_ascii_case(b"__callStatic");
        if !name.eq_ignore_ascii_case(b"__call") && !statically {
            return Evidence::Refuted;
        }
        let argument = self
            .callee
            .frame
            .address
            .wrapping_add(self.layout.execute_data.first_argument as u64);
        let called = match self.copy.zval(argument) {
            Some(Zval(string, IS_STRING)) => ZendString::read(self.memory, self.layout, string),
            _ => None,
        };
        match called {
            Some(called) if self.literal_is(init, init.op2, 0, &called.bytes) => {
                Evidence::Proven(check, Words::Operand(argument))
            }
            // The argument may have been assigned since.
            _ => Evidence::Open,
        }
    }

    /// INIT_DYNAMIC_CALL and INIT_USER_CALL: the callable in the operand names the callee.
    fn judge_dynamic(&self, init: &Op, call: &Op) -> Evidence {
        let operand = self.caller.frame.address.wrapping_add(u64::from(init.op2));
        let by_temporary = self.temporary_names_callee(init, call);
        let named = by_temporary.or_else(|| self.names_callee(operand));
        match named.or_else(|| self.computes_callee(init)) {
            Some(words) => Evidence::Proven(Relation::Nothing, words),
            None => Evidence::Open,
        }
    }

    /// Whether the callee was called on an object (its `This` is one, `ZEND_CALL_HAS_THIS`).
    fn is_object_call(&self) -> bool {
        self.callee.frame.has_this()
    }
}

#[cfg(test)]
mod tests;
