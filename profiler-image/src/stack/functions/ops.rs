//! The ops of a function, as far as samples need them: opcode and line of each.
//!
//! They are read at once at the function's first sight, because a sample can be at any of them.
//! Invariant: at most [`MAX_OPS_AT_ONCE`] are read at once; of longer code, and of code of more
//! lines than 16 bits count, each op is read when it is first seen, and at most [`MAX_MET`] are
//! remembered. Few of such functions are long: the ops of most could not be read, because their
//! code was gone. So only what they have met counts.

use std::hash::Hasher as _;

use phpprof_zend::Layout;
use phpprof_zend::function::FunctionKey;
use phpprof_zend::memory::{Memory, byte_at, half_at};
use phpprof_zend::op::Op;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

/// Two megabytes of ops.
const MAX_OPS_AT_ONCE: u32 = 1 << 16;
/// Ops of one function that are remembered before all are forgotten: the capacity of a hash table
/// of 2^10.
const MAX_MET: usize = 896;
/// How much is read without an allocation: a function of some hundred ops.
const IN_PLACE: usize = 4096;

/// Opcode and line of each op, by its index.
#[derive(Debug)]
pub(super) enum Ops {
    /// For each op, its line relative to the first one, little-endian, and its opcode.
    Whole {
        first_line: u32,
        ops: Box<[[u8; 3]]>,
    },
    Met(FxHashMap<u32, (u8, u32)>),
}

/// The size of a function's ops in bytes, if they are read at once; `None` for an internal function
/// too.
pub(super) fn ops_size(layout: &Layout, key: &FunctionKey) -> Option<usize> {
    (key.is_user() && key.last <= MAX_OPS_AT_ONCE)
        .then(|| key.last as usize * layout.zend_op.sizeof)
}

impl Ops {
    /// Reads the ops.
    pub(super) fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, key: &FunctionKey) -> Self {
        let row = &layout.zend_op;
        let whole = ops_size(layout, key).and_then(|size| {
            let mut bytes: SmallVec<[u8; IN_PLACE]> = SmallVec::from_elem(0, size);
            memory.read(key.code, &mut bytes).ok()?;
            let ops = bytes.chunks_exact(row.sizeof);
            let lines = ops.clone().map(|op| half_at(op, row.lineno));
            let (first_line, last_line) = (lines.clone().min()?, lines.max()?);
            let ops = ops.map(|op| {
                let [a, b, ..] = (half_at(op, row.lineno) - first_line).to_le_bytes();
                [a, b, byte_at(op, row.opcode)]
            });
            (last_line - first_line <= u32::from(u16::MAX)).then(|| Self::Whole {
                first_line,
                ops: ops.collect(),
            })
        });
        whole.unwrap_or_else(|| Self::Met(FxHashMap::default()))
    }

    pub(super) fn get<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        key: &FunctionKey,
        index: u32,
    ) -> Option<(u8, u32)> {
        match self {
            Self::Whole { first_line, ops } => {
                let &[a, b, opcode] = ops.get(index as usize)?;
                Some((opcode, *first_line + u32::from(u16::from_le_bytes([a, b]))))
            }
            Self::Met(met) => {
                if let Some(&known) = met.get(&index) {
                    return Some(known);
                }
                let offset = u64::from(index) * layout.zend_op.sizeof as u64;
                let op = Op::read(memory, layout, key.code.checked_add(offset)?)?;
                if met.len() >= MAX_MET {
                    met.clear();
                }
                met.insert(index, (op.opcode, op.lineno));
                Some((op.opcode, op.lineno))
            }
        }
    }

    /// A hash of all opcodes and lines; of longer code, of how many they are.
    pub(super) fn body(&self, key: &FunctionKey) -> u32 {
        let mut hasher = FxHasher::default();
        match self {
            Self::Whole { first_line, ops } => {
                hasher.write_u32(*first_line);
                hasher.write(ops.as_flattened());
            }
            Self::Met(_) => hasher.write_u32(key.last),
        }
        let hash = hasher.finish();
        (hash ^ (hash >> 32)) as u32
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Whole { ops, .. } => size_of_val(&ops[..]),
            // Its table does not shrink.
            Self::Met(met) => met.capacity() * 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phpprof_zend::layouts::{Machine, layout_of};
    use phpprof_zend::memory::Recorded;

    #[test]
    fn some_ops_of_long_functions_are_remembered() {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let key = FunctionKey {
            code: 0x10_0000,
            last: MAX_OPS_AT_ONCE + 1,
            kind: 2,
            ..FunctionKey::default()
        };
        let mut memory = Recorded::default();
        memory.room(key.code, key.last as usize * layout.zend_op.sizeof);
        let mut ops = Ops::read(&memory, layout, &key);
        assert_eq!(ops.bytes(), 0);
        for index in (0..5000).chain(0..5000) {
            assert_eq!(ops.get(&memory, layout, &key, index), Some((0, 0)));
        }
        let Ops::Met(met) = &ops else {
            panic!("all are read at once")
        };
        let place = size_of::<(u32, (u8, u32))>() + 1;
        assert!(met.len() <= MAX_MET && ops.bytes() >= 1024 * place);
        assert!(ops.bytes() < 16 << 10, "{}", ops.bytes());
    }
}
