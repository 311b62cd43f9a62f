//! The phases in which the engine does not run PHP code: it begins and ends requests, compiles,
//! loads scripts, autoloads classes, collects garbage.
//!
//! They are derived from the engine's own words, most of which the read of the stack includes.
//! Invariant: an uncertain phase is not reported, and its time then belongs to the PHP code at the
//! leaf.

use crate::layouts::{Layout, Machine};
use crate::memory::{END_OF_USER_SPACE, Memory, Piece, half_at};
use crate::op::{
    DO_FCALL, DO_FCALL_BY_NAME, DO_ICALL, DO_UCALL, ECHO, FE_FETCH_R, FE_FETCH_RW, FE_RESET_R,
    FE_RESET_RW, FETCH_OBJ_R, INCLUDE_OR_EVAL, INIT_DYNAMIC_CALL, INIT_FCALL, INIT_FCALL_BY_NAME,
    INIT_METHOD_CALL, INIT_NS_FCALL_BY_NAME, INIT_STATIC_METHOD_CALL, INIT_USER_CALL, NEW, Op,
    SEND_REF, SEND_VAL, SEND_VAR,
};
use crate::short::Short;

/// `extended_value` of INCLUDE_OR_EVAL for `eval`.
const ZEND_EVAL: u32 = 1;
// Zend/zend_vm_opcodes.h; none of them has changed since 7.0, except where noted.
const RETURN: u8 = 62;
const FETCH_CLASS: u8 = 109;
/// Up to 7.3.
const ECHO_UNTIL_7_3: u8 = 40;
const DECLARE_CLASS: u8 = 144;
const DECLARE_CLASS_DELAYED: u8 = 145;
const DECLARE_ANON_CLASS: u8 = 146;
const FETCH_STATIC_PROP_R: u8 = 173;
const FETCH_STATIC_PROP_UNSET: u8 = 178;
pub(crate) const FETCH_CLASS_CONSTANT: u8 = 181;
/// Zend/zend_globals.h.
const EG_FLAGS_IN_SHUTDOWN: u8 = 1;
/// How many ops after an include are read.
const MAX_OPS_AHEAD: usize = 16;

/// Where an engine, or a thread of it, has the words that tell phases; an unknown one tells none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseGlobals {
    /// The address of `CG`.
    pub compiler_globals: Option<u64>,
    /// The address of `PG`.
    pub core_globals: Option<u64>,
    /// The address of `GC_G`.
    pub gc_globals: Option<u64>,
}

impl PhaseGlobals {
    /// The address of `CG(in_compilation)`, a byte.
    fn in_compilation(&self, layout: &Layout) -> Option<u64> {
        Some(self.compiler_globals? + layout.compiler_globals.in_compilation as u64)
    }

    /// The address of `GC_G(gc_enabled)` and, after it, `GC_G(gc_active)`, a byte each.
    #[must_use]
    pub fn gc_enabled(&self, layout: &Layout) -> Option<u64> {
        Some(self.gc_globals? + layout.gc_globals.gc_enabled as u64)
    }
}

/// The bytes that tell the phase without a frame, as they are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct MomentBytes {
    executor: [u8; 2],
    core: [u8; 1],
    compiler: [u8; 1],
}

impl MomentBytes {
    /// The pieces to read, those whose addresses are known.
    pub fn pieces(
        &mut self,
        globals: &PhaseGlobals,
        layout: &Layout,
        executor_globals: u64,
    ) -> impl Iterator<Item = Piece<'_>> {
        let active = executor_globals + layout.executor_globals.active as u64;
        let startup = layout.core_globals.during_request_startup as u64;
        let [executor, core, compiler] = [
            (Some(active), &mut self.executor[..]),
            (globals.core_globals.map(|at| at + startup), &mut self.core),
            (globals.in_compilation(layout), &mut self.compiler),
        ]
        .map(|(address, bytes)| address.map(|address| Piece { address, bytes }));
        executor.into_iter().chain(core).chain(compiler)
    }

    /// The phase without a frame that was read; `None` if a word's address is not known.
    #[must_use]
    pub fn phase(&self, globals: &PhaseGlobals, layout: &Layout) -> Option<Phase> {
        let is_known = globals.core_globals.is_some() && globals.compiler_globals.is_some();
        is_known.then(|| self.moment(layout).phase())
    }

    /// Whether `CG(in_compilation)` was set; false if its address is not known.
    #[must_use]
    pub fn in_compilation(&self) -> bool {
        self.compiler == [1]
    }

    /// Whether the request is being ended; false in 7.0 to 7.2, which have no such flag.
    #[must_use]
    pub fn in_shutdown(&self, layout: &Layout) -> bool {
        let moment = self.moment(layout);
        moment.active && moment.in_shutdown
    }

    fn moment(&self, layout: &Layout) -> PhaseWords {
        let has_flags = layout.executor_globals.flags == layout.executor_globals.active + 1;
        PhaseWords {
            active: self.executor[0] != 0,
            in_shutdown: has_flags && self.executor[1] & EG_FLAGS_IN_SHUTDOWN != 0,
            during_request_startup: self.core[0] != 0,
            in_compilation: self.compiler[0] != 0,
        }
    }
}

/// The address of the byte that a function loads and returns at once: `movzbl d(%rip),%eax` on
/// x86_64 after an optional `endbr64`, `adrp` and `ldrb` on aarch64 after an optional `bti c`.
pub fn returned_byte<M: Memory + ?Sized>(
    memory: &M,
    machine: Machine,
    function: u64,
) -> Option<u64> {
    let mut code = [0_u8; 16];
    memory.read(function, &mut code).ok()?;
    let half = |at: usize| half_at(&code, at);
    let address = match machine {
        Machine::X86_64 => {
            const ENDBR64: u32 = 0xfa1e_0ff3;
            let at = if half(0) == ENDBR64 { 4 } else { 0 };
            let is_movzbl = code.get(at..at + 3) == Some(&[0x0f, 0xb6, 0x05]);
            let distance = i64::from(half(at + 3).cast_signed());
            let next = function.wrapping_add(at as u64 + 7);
            is_movzbl.then(|| next.wrapping_add_signed(distance))
        }
        Machine::Aarch64 => {
            const BTI_C: u32 = 0xd503_245f;
            let at = if half(0) == BTI_C { 4 } else { 0 };
            let (adrp, ldrb) = (half(at), half(at + 4));
            let is_pair = adrp & 0x9f00_001f == 0x9000_0000 && ldrb & 0xffc0_03ff == 0x3940_0000;
            // imm21 counts pages from this instruction's, imm12 bytes.
            let pages = ((adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3) << 11;
            let distance = i64::from(pages.cast_signed() >> 11) << 12;
            let page = function.wrapping_add(at as u64) & !0xfff;
            is_pair.then(|| {
                page.wrapping_add_signed(distance)
                    .wrapping_add(u64::from(ldrb >> 10 & 0xfff))
            })
        }
    };
    address.filter(|address| *address < END_OF_USER_SPACE)
}

/// Words of the engine's globals at a moment without a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PhaseWords {
    /// `EG(active)`: the executor is set up.
    active: bool,
    /// `EG(flags) & EG_FLAGS_IN_SHUTDOWN`; false in 7.0 to 7.2, which have no such flag.
    in_shutdown: bool,
    /// `PG(during_request_startup)`.
    during_request_startup: bool,
    /// `CG(in_compilation)`.
    in_compilation: bool,
}

/// The engine's activity while `EG(current_execute_data)` is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a request.
    Idle,
    /// It begins a request, and opens its script.
    Startup,
    /// It compiles the request's script.
    Compiling,
    /// It ends a request: remaining destructors, output, memory.
    Shutdown,
}

impl PhaseWords {
    /// The phase, as `php_request_startup` and `php_request_shutdown` (main/main.c) set these
    /// words.
    fn phase(self) -> Phase {
        // Once the executor is gone, the end of a request cannot be distinguished from the wait for
        // the next one.
        if self.in_compilation {
            Phase::Compiling
        } else if self.during_request_startup {
            Phase::Startup
        } else if self.active && self.in_shutdown {
            Phase::Shutdown
        } else if self.active {
            Phase::Startup
        } else {
            Phase::Idle
        }
    }
}

/// Whether code at this opcode looks up a class. Then a function that the engine calls from here,
/// although no site names it, may be an autoloader; `EG(in_autoload)` tells whether an autoloader
/// is running.
#[must_use]
pub fn looks_up_class(opcode: u8) -> bool {
    matches!(
        opcode,
        NEW | FETCH_CLASS
            | INIT_STATIC_METHOD_CALL
            | INIT_DYNAMIC_CALL
            | INIT_USER_CALL
            | DECLARE_CLASS
            | DECLARE_CLASS_DELAYED
            | DECLARE_ANON_CLASS
            | FETCH_STATIC_PROP_R..=FETCH_STATIC_PROP_UNSET | FETCH_CLASS_CONSTANT
    )
}

/// Whether code at this opcode can wait for something without a frame that says so: an include for
/// its file, output for its reader, and a loop for the next row of an iterator that is not written
/// in PHP.
#[must_use]
pub fn can_wait(layout: &Layout, opcode: u8) -> bool {
    let echo = if layout.rules.has_assign_op {
        ECHO
    } else {
        ECHO_UNTIL_7_3
    };
    opcode == echo
        || matches!(
            opcode,
            INCLUDE_OR_EVAL | FE_RESET_R | FE_RESET_RW | FE_FETCH_R | FE_FETCH_RW
        )
}

/// The same as [`looks_up_class`] for an internal function.
#[must_use]
pub fn function_looks_up_class(name: &str) -> bool {
    matches!(
        name,
        "class_exists"
            | "class_alias"
            | "interface_exists"
            | "trait_exists"
            | "enum_exists"
            | "is_a"
            | "is_subclass_of"
            | "is_callable"
            | "method_exists"
            | "property_exists"
            | "class_implements"
            | "class_parents"
            | "class_uses"
            | "constant"
            | "defined"
            | "unserialize"
            | "spl_autoload_call"
            | "ReflectionClass::__construct"
    )
}

/// How many classes are being autoloaded (`EG(in_autoload)`); `None` if that is unknown. `known` is
/// the address of their table at the last call, 0 before the first one: if the table is still
/// there, this takes one read.
pub fn autoloads<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    executor_globals: u64,
    known: &mut u64,
) -> Option<usize> {
    let offset = layout.executor_globals.in_autoload as u64;
    if offset == 0 {
        return None;
    }
    let at = executor_globals.wrapping_add(offset);
    let count_at = |table: u64| table.wrapping_add(layout.zend_array.n_num_of_elements as u64);
    let (mut table, mut count) = ([0; 8], [0; 4]);
    let read = memory.gather(&mut [
        Piece {
            address: at,
            bytes: &mut table,
        },
        Piece {
            address: count_at(*known),
            bytes: &mut count,
        },
    ]);
    if read.is_ok() && u64::from_le_bytes(table) == *known {
        return usize::try_from(u32::from_le_bytes(count)).ok();
    }
    let table = memory.word(at).ok().filter(|&table| table != 0)?;
    *known = table;
    usize::try_from(memory.half(count_at(table)).ok()?).ok()
}

/// Whether a leaf whose saved opline is this op is inside it: an include, whose script is being
/// searched for or loaded.
///
/// The leaf's own opline lags: ops that cannot fail do not save theirs. So it is trusted only if
/// the ops that follow lead, without a jump, to one that does (`SAVE_OPLINE`); the ops between them
/// take almost no time.
#[must_use]
pub fn is_inside_include<M: Memory + ?Sized>(memory: &M, layout: &Layout, address: u64) -> bool {
    let size = layout.zend_op.sizeof;
    let mut bytes = Short::<u8, 1024>::default();
    bytes.resize(size * (1 + MAX_OPS_AHEAD));
    let read = memory.read(address, &mut bytes).is_ok() || {
        // The block may end before that.
        bytes.resize(size * 2);
        memory.read(address, &mut bytes).is_ok()
    };
    let mut ops = bytes
        .chunks_exact(size)
        .map(|bytes| Op::parse(layout, address, bytes));
    let is_include = ops
        .next()
        .is_some_and(|op| op.opcode == INCLUDE_OR_EVAL && op.extended_value != ZEND_EVAL);
    read && is_include
        && ops
            .map(|op| op.opcode)
            .find(|opcode| saves_opline(*opcode) || !is_straight(*opcode))
            .is_some_and(saves_opline)
}

fn saves_opline(opcode: u8) -> bool {
    matches!(
        opcode,
        DO_FCALL | DO_ICALL | DO_UCALL | DO_FCALL_BY_NAME | INCLUDE_OR_EVAL | NEW | ECHO | RETURN
    )
}

/// Ops between two calls that never jump: FREE, ASSIGN, the SEND_*, INIT_* and FETCH_* of straight
/// code.
fn is_straight(opcode: u8) -> bool {
    const ASSIGN: u8 = 22;
    const FREE: u8 = 70;
    const INIT_ARRAY: u8 = 71;
    const FETCH_CONSTANT: u8 = 99;
    matches!(
        opcode,
        ASSIGN | INIT_FCALL_BY_NAME | INIT_FCALL | SEND_VAL
            ..=SEND_REF
                | INIT_NS_FCALL_BY_NAME
                | FREE
                | INIT_ARRAY
                | FETCH_OBJ_R
                | FETCH_CONSTANT
                | INIT_METHOD_CALL
                | INIT_STATIC_METHOD_CALL
                | SEND_VAR
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::layout_of;
    use crate::memory::Recorded;
    use crate::testing::EngineImage;

    #[test]
    fn autoloaded_classes_are_counted_in_either_table() {
        for layout in crate::layouts::ROWS {
            let mut image = EngineImage::new(layout);
            let (globals, mut known) = (image.executor_globals, 0);
            let offset = layout.executor_globals.in_autoload;
            let mut count = |image: &EngineImage| autoloads(image, layout, globals, &mut known);
            assert_eq!(count(&image), None, "before the first one");
            for entries in [&[("cart", 0), ("item", 0)][..], &[("cart", 0)]] {
                let table = image.block();
                image.put_table(table, entries);
                image.put_word(globals, offset, table);
                let expected = (offset != 0).then_some(entries.len());
                assert_eq!([count(&image), count(&image)], [expected, expected]);
            }
        }
    }

    #[test]
    fn returned_byte_is_found_in_the_code() {
        let check = |machine, code: &[u8], expected: Option<u64>| {
            let mut memory = Recorded::default();
            memory.put(0x40_1000, [code, &[0; 16]].concat());
            assert_eq!(returned_byte(&memory, machine, 0x40_1000), expected);
        };
        // gc_enabled() of Debian's php-fpm8.2.
        let movzbl = [0x0f, 0xb6, 0x05, 0xb1, 0x01, 0x21, 0x00, 0xc3];
        check(Machine::X86_64, &movzbl, Some(0x40_1007 + 0x21_01b1));
        let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
        check(
            Machine::X86_64,
            &[endbr64.as_slice(), movzbl.as_slice()].concat(),
            Some(0x40_100b + 0x21_01b1),
        );
        check(Machine::X86_64, &[0x31, 0xc0, 0xc3], None);
        // adrp x0, +0x1000; ldrb w0, [x0, #8]; ret
        let adrp = 0xb000_0000_u32.to_le_bytes();
        let ldrb = 0x3940_2000_u32.to_le_bytes();
        check(Machine::Aarch64, &[adrp, ldrb].concat(), Some(0x40_2008));
        check(Machine::Aarch64, &[ldrb, adrp].concat(), None);
    }

    fn check(words: [bool; 4], expected: Phase) {
        let [active, in_shutdown, during_request_startup, in_compilation] = words;
        let moment = PhaseWords {
            active,
            in_shutdown,
            during_request_startup,
            in_compilation,
        };
        assert_eq!(moment.phase(), expected, "{moment:?}");
    }

    /// The words as they were observed in php-fpm 8.2 under load.
    #[test]
    fn globals_tell_a_moment_without_frame() {
        check([false, true, false, false], Phase::Idle);
        check([false, false, false, false], Phase::Idle);
        check([true, false, true, false], Phase::Startup);
        check([false, false, true, false], Phase::Startup);
        check([true, false, false, false], Phase::Startup);
        check([true, false, false, true], Phase::Compiling);
        check([true, true, false, false], Phase::Shutdown);
    }

    #[test]
    fn code_waits_at_include_output_and_iterator() {
        let old = layout_of(Machine::X86_64, 7, 3).unwrap();
        let new = layout_of(Machine::X86_64, 7, 4).unwrap();
        let opcodes =
            |layout| -> Vec<u8> { (0..=255).filter(|op| can_wait(layout, *op)).collect() };
        assert_eq!(opcodes(old), [40, 73, 77, 78, 125, 126]);
        assert_eq!(opcodes(new), [73, 77, 78, 125, 126, 136]);
    }

    #[test]
    fn include_counts_where_straight_code_leads() {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let check = |opcodes: &[u8], kind: u32, expected: bool| {
            let mut image = EngineImage::new(layout);
            let ops: Vec<_> = opcodes.iter().map(|&opcode| opcode.into()).collect();
            let code = image.user(None, &ops).code;
            image.put_half(code, layout.zend_op.extended_value, kind);
            assert_eq!(is_inside_include(&image, layout, code), expected);
        };
        const REQUIRE_ONCE: u32 = 16;
        const JMPZ: u8 = 43;
        check(&[INCLUDE_OR_EVAL, 70, 61, 65, DO_ICALL], REQUIRE_ONCE, true);
        check(&[INCLUDE_OR_EVAL, RETURN], REQUIRE_ONCE, true);
        check(&[INCLUDE_OR_EVAL, 70, JMPZ, DO_ICALL], REQUIRE_ONCE, false);
        check(&[INCLUDE_OR_EVAL, RETURN], ZEND_EVAL, false);
        check(&[DO_ICALL, RETURN], 0, false);
    }
}
