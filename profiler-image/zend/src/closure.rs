//! Finds the code of a closure whose object is gone, in a function that holds it.
//!
//! A closure is an object with a copy of its op_array (Zend/zend_closures.c). When it has ended,
//! another closure takes its address. But its code stays as long as the function that declares it,
//! which has it in a list (`dynamic_func_defs`, since 8.1), and that is held by a live object, or
//! by the engine's tables. Invariant: what is found was compiled before the stack was read, and is
//! held after it was read, so no other code can have been in its place.

use crate::function::FunctionKey;
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, half_at, word_at};
use crate::unwind::Frame;
use crate::zval::IS_OBJECT;

/// `zend_closure.func` (Zend/zend_closures.c): it follows a `zend_object`, in all versions.
pub(crate) const FUNCTION: u64 = 56;
/// How much of an op_array is read: up to the end of `dynamic_func_defs` in all versions.
const SIZE: usize = 208;
/// How many functions one search reads, and how many a function may declare to be searched.
const MAX_READ: usize = 256;
/// How many functions are around a closure, at most.
const MAX_DEPTH: usize = 6;
/// The type and the flags of a live object: neither its destructor nor `free_obj` has been called
/// (`zend_objects_store_del`, Zend/zend_objects_API.c). The first word of a freed one is the
/// address of another free place.
const TYPE_AND_FLAGS: u32 = 0x3ff;

/// The memory from which the compiler took op_arrays of closures until a stack was read
/// (`CG(arena)`, Zend/zend_compile.c). During a request it only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arena {
    /// The address of `CG(arena)`.
    pub pointer: u64,
    /// The address of the newest block, a `zend_arena`.
    pub block: u64,
    /// `zend_arena.ptr`: where the next allocation begins.
    pub end: u64,
    /// `zend_arena.prev`: the block before, which is full; 0 for the first.
    pub prev: u64,
}

impl Arena {
    /// How much of a `zend_arena` is read (Zend/zend_arena.h).
    pub const HEAD: usize = 24;

    /// Parses the head of a block.
    #[must_use]
    pub fn parse(pointer: u64, block: u64, head: &[u8; Self::HEAD]) -> Self {
        Self {
            pointer,
            block,
            end: word_at(head, 0),
            prev: word_at(head, 16),
        }
    }

    /// Whether it had allocated this address.
    #[must_use]
    pub fn had(&self, address: u64) -> bool {
        let before = self.prev..self.prev.saturating_add(BLOCK);
        (self.block..self.end).contains(&address) || (self.prev != 0 && before.contains(&address))
    }

    /// How it has changed since; `None` if it is that of another request.
    fn change<M: Memory + ?Sized>(&self, memory: &M) -> Option<ClosureChange> {
        let block = memory.word(self.pointer).ok()?;
        let mut head = [0; Self::HEAD];
        memory.read(block, &mut head).ok()?;
        let now = Self::parse(self.pointer, block, &head);
        let has_grown = if now.block == self.block {
            now.end > self.end
        } else {
            now.prev == self.block
        };
        if now == *self {
            Some(ClosureChange::None)
        } else {
            has_grown.then_some(ClosureChange::Grown)
        }
    }
}

/// A block has at least this size (`init_compiler`, Zend/zend_compile.c, and `zend_arena_alloc`).
const BLOCK: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClosureChange {
    None,
    Grown,
}

/// A function, and the list of those that it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Declaring {
    key: FunctionKey,
    list: u64,
    count: usize,
}

impl Declaring {
    fn parse(layout: &Layout, bytes: &[u8]) -> Option<Self> {
        let row = &layout.function;
        let key = FunctionKey::parse(layout, bytes).filter(FunctionKey::is_user)?;
        let count = half_at(bytes, row.num_dynamic_func_defs) as usize;
        Some(Self {
            key,
            list: word_at(bytes, row.dynamic_func_defs),
            count: if count <= MAX_READ { count } else { 0 },
        })
    }
}

/// A function that may hold a closure's code: that of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Holder {
    frame: Frame,
    declaring: Declaring,
}

impl Holder {
    /// The function of a frame, if something holds it now: a live closure's object, or the engine's
    /// tables.
    pub fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, frame: &Frame) -> Option<Self> {
        let is_closure = is_closure(layout, frame);
        let (mut object, mut function) = ([0; 8], [0; SIZE]);
        let mut pieces = [
            Piece {
                address: frame.func,
                bytes: &mut function,
            },
            Piece {
                address: frame.func.checked_sub(FUNCTION)?,
                bytes: &mut object,
            },
        ];
        let pieces = if is_closure {
            &mut pieces[..]
        } else {
            &mut pieces[..1]
        };
        memory.gather(pieces).ok()?;
        let declaring = Declaring::parse(layout, &function)?;
        let is_held = if is_closure {
            is_live(&object)
        } else {
            declaring.key.is_named()
        };
        is_held.then_some(Self {
            frame: *frame,
            declaring,
        })
    }

    /// The key of the function that contains this op: this one, or one that it declares, or that
    /// those declare. `is_old` tells whether an op_array existed when the stack was read.
    pub fn find<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        opline: u64,
        is_old: impl Fn(u64) -> bool,
    ) -> Option<FunctionKey> {
        let mut around = vec![self.declaring];
        let mut left = MAX_READ;
        for _ in 0..MAX_DEPTH {
            let contains = |it: &&Declaring| it.key.op_index(layout, opline).is_some();
            if let Some(found) = around.iter().find(contains) {
                return Some(found.key);
            }
            let mut listed = lists(memory, &around, left)?;
            left -= listed.len();
            listed.retain(|&address| is_old(address));
            if listed.is_empty() {
                break;
            }
            around = read_all(memory, layout, &listed)?;
        }
        None
    }

    /// Whether it is still held, and was compiled before the stack was read: something that it
    /// declares was, or nothing was compiled since. Then its code, and all that it declares, were
    /// in their places for the whole time. `arena` is that of the read, if it is known.
    pub fn has_stood<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        arena: Option<&Arena>,
        is_old: impl Fn(u64) -> bool,
    ) -> bool {
        let again = Self::read(memory, layout, &self.frame);
        let change = arena.map_or(Some(ClosureChange::Grown), |arena| arena.change(memory));
        let first = || memory.word(self.declaring.list);
        again.is_some_and(|again| again.declaring == self.declaring)
            && match change {
                Some(ClosureChange::None) => true,
                Some(ClosureChange::Grown) => self.declaring.count > 0 && first().is_ok_and(is_old),
                None => false,
            }
    }
}

/// The functions at these addresses.
fn read_all<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    addresses: &[u64],
) -> Option<Vec<Declaring>> {
    let mut bytes = vec![0; addresses.len() * SIZE];
    let functions = addresses.iter().zip(bytes.chunks_exact_mut(SIZE));
    let mut pieces: Vec<Piece<'_>> = functions
        .map(|(&address, bytes)| Piece { address, bytes })
        .collect();
    memory.gather(&mut pieces).ok()?;
    let functions = bytes.chunks_exact(SIZE);
    let parsed = functions.filter_map(|bytes| Declaring::parse(layout, bytes));
    Some(parsed.collect())
}

/// Whether a frame is a closure's, and not that of a function in a closure's object.
#[must_use]
pub fn is_closure(layout: &Layout, frame: &Frame) -> bool {
    let flags = &layout.call_info;
    frame.call_info & (flags.closure | flags.fake_closure) == flags.closure
}

/// Whether the first bytes of an object are those of a live one (`zend_refcounted_h`,
/// Zend/zend_types.h).
fn is_live(object: &[u8; 8]) -> bool {
    let (references, info) = (half_at(object, 0), half_at(object, 4));
    references > 0 && info & TYPE_AND_FLAGS == u32::from(IS_OBJECT)
}

/// The addresses in the lists of functions, at most this many.
fn lists<M: Memory + ?Sized>(memory: &M, functions: &[Declaring], most: usize) -> Option<Vec<u64>> {
    let mut bytes = vec![0; most * 8];
    let mut rest = bytes.as_mut_slice();
    let mut pieces = Vec::new();
    for it in functions {
        let length = rest.len().min(it.count * 8);
        let (bytes, after) = std::mem::take(&mut rest).split_at_mut(length);
        if length > 0 {
            let address = it.list;
            pieces.push(Piece { address, bytes });
        }
        rest = after;
    }
    let unused = rest.len();
    memory.gather(&mut pieces).ok()?;
    drop(pieces);
    let words = bytes.chunks_exact(8).take(most - unused / 8);
    Some(words.map(|word| word_at(word, 0)).collect())
}

#[cfg(test)]
mod tests;
