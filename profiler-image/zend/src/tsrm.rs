//! The threads of a thread-safe engine: every `tsrm_tls_entry` in `tsrm_tls_table` (TSRM/TSRM.c).
//!
//! The table is a static variable without a symbol. It is searched for among the words of the
//! image's writable segments: a pointer with a bucket count next to it, all of whose entries are
//! consistent down to a thread's globals. No code is decoded, so that it works the same for each
//! machine and compiler. What this module does not do: know which of the threads are still alive; a
//! thread that ends may leave its entry.
//!
//! Invariant: every count is bounded, and each walk along a chain ends.

use std::ops::Range;

use crate::elf::Image;
use crate::layouts::{Layout, TsrmTlsEntry};
use crate::memory::{END_OF_USER_SPACE, Memory, half_at, word_at};

/// How much of all writable segments is searched.
const MAX_SEARCHED: u64 = 64 << 20;
const CHUNK: usize = 1 << 20;
/// `tsrm_tls_table_size` is next to the table: gcc puts it 4 before it on x86_64 and 8 before it on
/// aarch64.
const SIZE_DISTANCES: [i64; 7] = [-4, -8, 8, -12, 12, -16, 16];
/// SAPIs request as many buckets as they expect threads.
const MAX_BUCKETS: u32 = 1 << 14;
const MAX_THREADS: usize = 4096;
/// Resources that one engine registers: its own and its extensions'.
const MAX_RESOURCES: u32 = 4096;
/// Tables and entries that one search reads: a segment full of pointers to long chains must not
/// delay it.
const MAX_LOOKS: usize = 1 << 19;
/// How many of these a check of one thread's globals against the row counts for.
const LOOKS_OF_A_CHECK: usize = 64;
/// How far from a candidate its size may be.
const AROUND: usize = 16;

/// The addresses of the variables that tell where a thread's globals are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdsAt {
    /// `executor_globals_id`.
    pub executor: u64,
    /// `compiler_globals_id`.
    pub compiler: u64,
    /// `sapi_globals_id`, if it is known.
    pub sapi: Option<u64>,
    /// `core_globals_id`, if it is known.
    pub core: Option<u64>,
    /// `executor_globals_offset`, if the version has it.
    pub executor_offset: Option<u64>,
}

impl IdsAt {
    /// What they contain; `None` before the engine has registered its globals.
    pub fn read<M: Memory + ?Sized>(&self, memory: &M) -> Option<TsrmIds> {
        let id = |at: u64| memory.half(at).ok().filter(|id| *id != 0);
        Some(TsrmIds {
            executor: id(self.executor)?,
            compiler: id(self.compiler)?,
            sapi: self.sapi.and_then(id),
            core: self.core.and_then(id),
            executor_offset: self.executor_offset.and_then(|at| memory.word(at).ok()),
        })
    }

    fn addresses(&self) -> impl Iterator<Item = u64> {
        let others = [self.sapi, self.core, self.executor_offset];
        let known = [self.executor, self.compiler].into_iter();
        known.chain(others.into_iter().flatten())
    }

    fn moved(&self, moved: impl Fn(u64) -> u64) -> Self {
        Self {
            executor: moved(self.executor),
            compiler: moved(self.compiler),
            sapi: self.sapi.map(&moved),
            core: self.core.map(&moved),
            executor_offset: self.executor_offset.map(&moved),
        }
    }
}

/// Tells where a thread's globals are, from its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TsrmIds {
    /// `executor_globals_id`, counted from 1.
    pub executor: u32,
    /// `compiler_globals_id`.
    pub compiler: u32,
    /// `sapi_globals_id`, if it is known.
    pub sapi: Option<u32>,
    /// `core_globals_id`, if it is known; the next one is the collector's (main/main.c,
    /// Zend/zend_gc.c).
    pub core: Option<u32>,
    /// `executor_globals_offset`, if the version has it.
    pub executor_offset: Option<u64>,
}

/// The table of an engine's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// The address of the variable `tsrm_tls_table`.
    pub table_at: u64,
    /// The address of the variable `tsrm_tls_table_size`.
    size_at: u64,
    buckets: u32,
    ids_at: IdsAt,
    ids: TsrmIds,
}

/// One thread with an interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    /// Its `pthread_t`.
    pub thread_id: u64,
    /// The address of its `EG`.
    pub executor_globals: u64,
    /// The address of its `CG`.
    pub compiler_globals: u64,
    /// The address of its `SG`.
    pub sapi_globals: Option<u64>,
    /// The address of its `PG`.
    pub core_globals: Option<u64>,
    /// The probable address of the collector's globals: their flags are checked at each read.
    pub gc_globals: Option<u64>,
}

impl Threads {
    /// Searches an image's writable segments for the table. `holds` tells whether the globals
    /// of a thread are consistent; those of at least one thread must be.
    pub fn find<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        image: &Image,
        ids_at: IdsAt,
        holds: impl Fn(&Thread) -> bool,
    ) -> Option<Self> {
        let row = layout.tsrm_tls_entry.as_ref()?;
        let ids = ids_at.read(memory)?;
        // The table is on the heap; most of an image's pointers point into the image itself.
        let own = image.extent();
        let mut looks = MAX_LOOKS;
        let mut left = MAX_SEARCHED;
        for (start, length) in image.writable() {
            let length = length.min(left);
            left -= length;
            // An address and a length of the target's choice may pass the end of the address space.
            let (Some(mut at), Some(end)) =
                (start.checked_next_multiple_of(8), start.checked_add(length))
            else {
                continue;
            };
            while at < end {
                let mut bytes = vec![0; usize::try_from(end - at).ok()?.min(CHUNK)];
                if memory.read(at, &mut bytes).is_ok() {
                    let found = candidates(&bytes, &own).find_map(|(offset, size, buckets)| {
                        let table = Self {
                            table_at: at + offset as u64,
                            size_at: at + size as u64,
                            buckets,
                            ids_at,
                            ids,
                        };
                        let threads = table.whole(memory, row, &mut looks)?;
                        let mut holds = |thread: &Thread| {
                            looks = looks.saturating_sub(LOOKS_OF_A_CHECK);
                            looks > 0 && holds(thread)
                        };
                        threads.iter().any(&mut holds).then_some(table)
                    });
                    if found.is_some() {
                        return found;
                    }
                }
                // Chunks overlap, so that a size at the edge of one is seen with its table.
                at += (bytes.len() as u64)
                    .saturating_sub(2 * AROUND as u64)
                    .max(8);
                if bytes.len() < CHUNK {
                    break;
                }
            }
        }
        None
    }

    /// The same table in another process, where its variables are: its size and the ids are read
    /// again, since they are that process's own. `holds` is as in [`Threads::find`].
    pub fn again<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        holds: impl Fn(&Thread) -> bool,
    ) -> Option<Self> {
        let row = layout.tsrm_tls_entry.as_ref()?;
        let buckets = memory.half(self.size_at).ok()?;
        let table = Self {
            buckets: Some(buckets).filter(|size| (1..=MAX_BUCKETS).contains(size))?,
            ids: self.ids_at.read(memory)?,
            ..*self
        };
        let threads = table.whole(memory, row, &mut { MAX_LOOKS })?;
        let looks = MAX_LOOKS / LOOKS_OF_A_CHECK;
        threads.iter().take(looks).any(holds).then_some(table)
    }

    /// The addresses of all its variables.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        [self.table_at, self.size_at]
            .into_iter()
            .chain(self.ids_at.addresses())
    }

    /// The same with its variables at other addresses.
    #[must_use]
    pub fn moved(&self, moved: impl Fn(u64) -> u64) -> Self {
        Self {
            table_at: moved(self.table_at),
            size_at: moved(self.size_at),
            ids_at: self.ids_at.moved(moved),
            ..*self
        }
    }

    /// The current threads, without those that are just beginning; `None` if the table cannot be
    /// read.
    pub fn list<M: Memory + ?Sized>(&self, memory: &M, layout: &Layout) -> Option<Vec<Thread>> {
        let row = layout.tsrm_tls_entry.as_ref()?;
        let mut looks = MAX_LOOKS;
        let entries = self.entries(memory, row, &mut looks)?;
        Some(entries.into_iter().flatten().collect())
    }

    /// The threads of a table, if all of its entries are consistent.
    fn whole<M: Memory + ?Sized>(
        &self,
        memory: &M,
        row: &TsrmTlsEntry,
        looks: &mut usize,
    ) -> Option<Vec<Thread>> {
        let entries = self.entries(memory, row, looks)?;
        let threads: Option<Vec<Thread>> = entries.into_iter().collect();
        threads.filter(|threads| !threads.is_empty())
    }

    fn entries<M: Memory + ?Sized>(
        &self,
        memory: &M,
        row: &TsrmTlsEntry,
        looks: &mut usize,
    ) -> Option<Vec<Option<Thread>>> {
        *looks = looks.checked_sub(1)?;
        let table = memory.word(self.table_at).ok()?;
        let mut heads = vec![0; self.buckets as usize * 8];
        memory.read(table, &mut heads).ok()?;
        let mut entries = Vec::new();
        for bucket in 0..self.buckets {
            let mut address = word_at(&heads, bucket as usize * 8);
            while address != 0 {
                if entries.len() >= MAX_THREADS || !address.is_multiple_of(8) {
                    return None;
                }
                *looks = looks.checked_sub(1)?;
                let mut bytes = [0_u8; 64];
                memory.read(address, bytes.get_mut(..row.sizeof)?).ok()?;
                entries.push(self.thread(memory, row, address, &bytes, bucket));
                address = word_at(&bytes, row.next);
            }
        }
        Some(entries)
    }

    /// The thread of an entry, if it is consistent.
    fn thread<M: Memory + ?Sized>(
        &self,
        memory: &M,
        row: &TsrmTlsEntry,
        address: u64,
        bytes: &[u8],
        bucket: u32,
    ) -> Option<Thread> {
        let storage = word_at(bytes, row.storage);
        let count = half_at(bytes, row.count);
        let thread_id = word_at(bytes, row.thread_id);
        let slot = |id: u32| -> Option<u64> {
            let index = id.checked_sub(1).filter(|index| *index < count)?;
            memory
                .word(storage.checked_add(u64::from(index) * 8)?)
                .ok()
                .filter(|globals| (1..END_OF_USER_SPACE).contains(globals))
        };
        if count > MAX_RESOURCES || thread_id % u64::from(self.buckets) != u64::from(bucket) {
            return None;
        }
        let executor_globals = slot(self.ids.executor)?;
        let offset = self.ids.executor_offset;
        if offset.is_some_and(|offset| address.wrapping_add(offset) != executor_globals) {
            return None;
        }
        Some(Thread {
            thread_id,
            executor_globals,
            compiler_globals: slot(self.ids.compiler)?,
            sapi_globals: self.ids.sapi.and_then(slot),
            core_globals: self.ids.core.and_then(slot),
            gc_globals: self.ids.core.and_then(|core| slot(core.checked_add(1)?)),
        })
    }
}

/// Places of a segment that may be the table: its offset, that of its size, and its size.
fn candidates(bytes: &[u8], own: &Range<u64>) -> impl Iterator<Item = (usize, usize, u32)> {
    (0..bytes.len() / 8).flat_map(move |index| {
        let offset = index * 8;
        let pointer = word_at(bytes, offset);
        // Heap memory: neither small nor beyond user space.
        let plausible = pointer.is_multiple_of(8)
            && (0x1000..1 << 56).contains(&pointer)
            && !own.contains(&pointer);
        let distances: &[i64] = if plausible { &SIZE_DISTANCES } else { &[] };
        distances.iter().filter_map(move |&distance| {
            let at = usize::try_from(offset as i64 + distance).ok()?;
            let size = half_at(bytes, at);
            (1..=MAX_BUCKETS)
                .contains(&size)
                .then_some((offset, at, size))
        })
    })
}

#[cfg(test)]
mod tests;
