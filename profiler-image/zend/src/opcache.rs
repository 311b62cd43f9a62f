//! Reads the table of the scripts that opcache has cached, and how often opcache has restarted.
//!
//! opcache's memory begins with `zend_smm_shared_globals` (ext/opcache/zend_shared_alloc.h), which
//! leads to `zend_accel_shared_globals` (ZendAccelerator.h) and its table
//! (zend_accelerator_hash.h). An included file runs in a copy of its script's `main_op_array`,
//! which the engine frees when the file returns; the script's own stays until opcache restarts,
//! also if the file is changed or invalidated (`zend_accel_discard_script` only counts it as
//! wasted). A restart raises a counter first, and then gives the memory to other scripts
//! (`accel_activate`, ZendAccelerator.c).
//! Invariant: each address that is followed is in shared memory, and each count is bounded.

use std::ops::Range;

use crate::layouts::Layout;
use crate::memory::{Memory, Piece, byte_at, half_at, is_in, word_at};

/// Scripts of which one table is read; the others are not known.
pub const MAX_SCRIPTS: usize = 16_384;
/// Entries that are read together.
const TOGETHER: usize = 64;
/// Mappings that are searched for opcache's.
const MAX_RANGES: usize = 16;
/// opcache requests one segment, and several smaller ones if that is refused.
const MAX_SEGMENTS: u32 = 1024;

// These offsets are the same in 7.4, 8.2, 8.4, 8.5 and 8.6 (tests/opcache.rs).

/// The offset of `zend_smm_shared_globals.app_shared_globals`.
pub(crate) const APP_SHARED_GLOBALS: u64 = 56;
/// The offset of `zend_accel_shared_globals.oom_restarts`, `hash_restarts` and `manual_restarts`,
/// which follow hits, misses and misses by the blacklist.
const RESTARTS: u64 = 24;
/// The offset of `zend_accel_shared_globals.hash`.
pub(crate) const HASH: u64 = 48;
/// The offset of `zend_accel_hash.hash_entries`.
pub(crate) const HASH_ENTRIES: usize = 8;
/// The offset of `zend_accel_hash.num_entries`.
pub(crate) const NUM_ENTRIES: usize = 16;
/// The offset of `zend_accel_hash_entry.data`.
const DATA: usize = 24;
/// The size of a `zend_accel_hash_entry`.
const ENTRY: usize = 40;
/// The offset of `zend_persistent_script.script.main_op_array`, which follows the file's name.
pub const MAIN_OP_ARRAY: u64 = 8;

/// opcache's counters of its restarts: because it was full, had too many scripts, or was told to
/// (`opcache_reset()`). What an address in its memory means lasts as long as they stay the same;
/// without an opcache they are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restarts(pub [u8; Restarts::SIZE]);

impl Restarts {
    /// The size of the counters.
    pub const SIZE: usize = 24;

    /// All restarts together; `None` if they are more than can be.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        let all = [0, 8, 16].map(|at| word_at(&self.0, at));
        let sum = all.into_iter().try_fold(0_u64, u64::checked_add)?;
        (sum <= u64::from(u32::MAX)).then_some(sum)
    }
}

/// The beginning of opcache's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accelerator {
    /// The address of its [`Restarts`].
    pub restarts: u64,
    /// It accepts no more scripts until it restarts (`ZSMMG(memory_exhausted)`).
    pub is_full: bool,
    /// How full it is; `None` if it has several segments.
    pub filling: Option<Filling>,
}

/// How full opcache's memory is, in bytes, as `opcache_get_status()` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// Its size, without the JIT's part.
    pub size: u64,
    /// Not used yet (`ZSMMG(shared_free)`).
    pub free: u64,
    /// Of scripts that were replaced (`ZSMMG(wasted_shared_memory)`).
    pub wasted: u64,
}

impl Filling {
    /// That of one segment: before its address it has its size, in some versions the end of what
    /// is given out, which is before the JIT's part, and the position.
    fn of(globals: &[u8], segment: &[u8], has_end: bool) -> Option<Self> {
        let size = word_at(segment, if has_end { 8 } else { 0 });
        let (free, wasted) = (word_at(globals, 16), word_at(globals, 24));
        let taken = free.checked_add(wasted)?;
        let is_sound = half_at(globals, 8) == 1 && taken <= size && size <= word_at(segment, 0);
        is_sound.then_some(Self { size, free, wasted })
    }

    /// What scripts, interned strings and opcache's tables take.
    #[must_use]
    pub fn used(&self) -> u64 {
        let taken = self.free.saturating_add(self.wasted);
        self.size.saturating_sub(taken)
    }
}

impl Accelerator {
    /// That of a range, which has to lead to a segment with its own address
    /// (ext/opcache/zend_shared_alloc.h: the segments, their count, the free and wasted bytes,
    /// whether it is exhausted, the saved state, `zend_accel_shared_globals`). It is the same in
    /// 7.4, 8.2, 8.4, 8.5 and 8.6, where it was compared with `opcache_get_status()`.
    pub fn read<M: Memory + ?Sized>(memory: &M, range: &Range<u64>) -> Option<Self> {
        let mut globals = [0_u8; 64];
        memory.read(range.start, &mut globals).ok()?;
        let within = |address: u64| range.contains(&address).then_some(address);
        let segment = memory.word(within(word_at(&globals, 0))?).ok()?;
        let mut bytes = [0_u8; 32];
        memory.read(within(segment)?, &mut bytes).ok()?;
        // `zend_shared_segment.p` follows two sizes, and from some 8.x on three.
        let has_end = word_at(&bytes, 24) == range.start;
        let is_at_start = has_end || word_at(&bytes, 16) == range.start;
        let is_sound = is_at_start
            && word_at(&bytes, 0) >= range.end - range.start
            && (1..=MAX_SEGMENTS).contains(&half_at(&globals, 8))
            && byte_at(&globals, 32) <= 1;
        let shared = within(word_at(&globals, 56)).filter(|_| is_sound)?;
        Some(Self {
            restarts: within(shared.checked_add(RESTARTS)?)?,
            is_full: byte_at(&globals, 32) != 0,
            filling: Filling::of(&globals, &bytes, has_end),
        })
    }
}

/// The beginning of opcache's memory; `None` if no range is.
pub fn accelerator<M: Memory + ?Sized>(memory: &M, shared: &[Range<u64>]) -> Option<Accelerator> {
    let mut found = shared.iter().take(MAX_RANGES);
    found.find_map(|range| Accelerator::read(memory, range))
}

/// Where opcache counts its restarts; `None` if no range is opcache's memory.
pub fn restarts_at<M: Memory + ?Sized>(memory: &M, shared: &[Range<u64>]) -> Option<u64> {
    let mut found = shared.iter().take(MAX_RANGES);
    found.find_map(|range| {
        let at = Accelerator::read(memory, range)?.restarts;
        let mut restarts = Restarts::default();
        memory.read(at, &mut restarts.0).ok()?;
        restarts.count().map(|_| at)
    })
}

/// A cached script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Script {
    /// The address of its first op.
    pub opcodes: u64,
    /// The address of its `main_op_array`.
    pub main_op_array: u64,
}

/// Lists the cached scripts in the order of their code; none if no range is opcache's memory. It
/// allocates only if the list grows.
pub fn read_scripts<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    shared: &[Range<u64>],
    scripts: &mut Vec<Script>,
) {
    scripts.clear();
    let shared = shared.get(..MAX_RANGES).unwrap_or(shared);
    let mut starts = shared.iter().map(|range| range.start);
    let Some(table) = starts.find_map(|start| ScriptTable::read(memory, shared, start)) else {
        return;
    };
    for first in (0..table.count).step_by(TOGETHER) {
        table.read_scripts(memory, layout, shared, first, scripts);
    }
    scripts.sort_unstable();
}

struct ScriptTable {
    entries: Range<u64>,
    count: usize,
}

impl ScriptTable {
    /// The table of the opcache whose memory begins there.
    fn read<M: Memory + ?Sized>(memory: &M, shared: &[Range<u64>], start: u64) -> Option<Self> {
        let word = |address: u64| memory.word(address).ok();
        let follow = |address: u64| word(address).filter(|&to| is_in(shared, to));
        // `zend_smm_shared_globals` begins with a pointer into the same memory.
        follow(start)?;
        let globals = follow(start.checked_add(APP_SHARED_GLOBALS)?)?;
        let mut hash = [0_u8; 24];
        memory.read(globals.checked_add(HASH)?, &mut hash).ok()?;
        let start = word_at(&hash, HASH_ENTRIES);
        let count = usize::try_from(half_at(&hash, NUM_ENTRIES)).ok()?;
        let count = count.min(MAX_SCRIPTS);
        let entries = start..start.checked_add((count * ENTRY) as u64)?;
        is_in(shared, start).then_some(Self { entries, count })
    }

    /// Reads the scripts of the entries from that one on, [`TOGETHER`] at most.
    fn read_scripts<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        shared: &[Range<u64>],
        first: usize,
        scripts: &mut Vec<Script>,
    ) {
        let mut bytes = [0_u8; TOGETHER * ENTRY];
        let count = (self.count - first).min(TOGETHER);
        let bytes = bytes.get_mut(..count * ENTRY).unwrap_or_default();
        let address = self.entries.start + (first * ENTRY) as u64;
        if memory.read(address, bytes).is_err() {
            return;
        }
        // An indirect entry, which is another path to a script, points to the entry of the script.
        let found = bytes
            .chunks_exact(ENTRY)
            .map(|entry| word_at(entry, DATA))
            .filter(|&data| is_in(shared, data) && !self.entries.contains(&data))
            .map(|script| script + MAIN_OP_ARRAY);
        let mut opcodes = [[0_u8; 8]; TOGETHER];
        let mut pieces: [Piece<'_>; TOGETHER] = std::array::from_fn(|_| Piece {
            address: 0,
            bytes: &mut [],
        });
        let known = scripts.len();
        for ((main_op_array, piece), bytes) in found.zip(&mut pieces).zip(&mut opcodes) {
            let address = main_op_array + layout.function.opcodes as u64;
            *piece = Piece { address, bytes };
            scripts.push(Script {
                opcodes: 0,
                main_op_array,
            });
        }
        let new = scripts.get_mut(known..).unwrap_or_default();
        let pieces = pieces.get_mut(..new.len()).unwrap_or_default();
        if memory.gather(pieces).is_err() {
            scripts.truncate(known);
            return;
        }
        for (script, opcodes) in new.iter_mut().zip(opcodes) {
            script.opcodes = u64::from_le_bytes(opcodes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;
    use crate::memory::Recorded;
    use crate::testing::{BLOCK, EngineImage};

    /// An opcache with three scripts, of which the second one is an indirect entry.
    fn image(layout: &'static Layout, count: u32) -> (EngineImage, Range<u64>) {
        let mut image = EngineImage::new(layout);
        let start = image.block();
        let table = image.block();
        image.put_opcache(start, table, count);
        for index in 0..3_u64 {
            let script = image.block();
            let opcodes = 0x5000 - index;
            image.put_word(script + MAIN_OP_ARRAY, layout.function.opcodes, opcodes);
            let data = if index == 1 { table } else { script };
            image.put_word(table + index * ENTRY as u64, DATA, data);
        }
        let end = image.block();
        (image, start..end)
    }

    fn opcodes(image: &EngineImage, shared: &[Range<u64>]) -> Vec<u64> {
        let mut scripts = Vec::new();
        read_scripts(image, image.layout, shared, &mut scripts);
        scripts.iter().map(|script| script.opcodes).collect()
    }

    #[test]
    fn scripts_are_in_order_of_their_code() {
        for layout in ROWS {
            let (image, range) = image(layout, 3);
            let shared = [0x10..0x20, range];
            assert_eq!(opcodes(&image, &shared), [0x4ffe, 0x5000]);
        }
    }

    #[test]
    fn other_shared_memory_has_no_scripts() {
        let (mut image, range) = image(&ROWS[0], 3);
        let start = range.start;
        assert!(opcodes(&image, &[]).is_empty());
        // The table is outside the memory.
        let first_block = start..start + BLOCK;
        assert!(opcodes(&image, std::slice::from_ref(&first_block)).is_empty());
        image.put_word(start, 0, 0);
        assert!(opcodes(&image, &[range]).is_empty());
    }

    #[test]
    fn count_beyond_mapped_memory_yields_nothing() {
        let (image, range) = image(&ROWS[0], u32::MAX);
        assert!(opcodes(&image, &[range]).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_within_their_bounds(bytes in proptest::collection::vec(0_u8..8, 0x400), words in proptest::collection::vec(0_u64..0x400, 32)) {
            let mut memory = Recorded::default();
            memory.put(0x1000, bytes);
            for (index, word) in words.iter().enumerate() {
                memory.put_word(0x1000 + 8 * index as u64, 0x1000 + word);
            }
            let mut scripts = Vec::new();
            read_scripts(&memory, &ROWS[0], std::slice::from_ref(&(0x1000..0x1400)), &mut scripts);
            assert!(scripts.len() <= MAX_SCRIPTS && scripts.is_sorted());
        }
    }
}
