//! Where a worker's heap is.
//!
//! The VM stack leads to it. Between requests there may be none, or its page is a huge block: then
//! the process's mappings are searched, if the engine is not thread-safe and so has one heap.
//! Invariant: at most [`MAX_CANDIDATES`] places are tried, and a heap is accepted only by its own
//! first chunk (`zend::heap`).

use std::ops::Range;

use phpprof_zend::engine::Engine;
use phpprof_zend::heap::{self, CHUNK_SIZE};
use phpprof_zend::memory::Memory;

/// Places of chunks that are tried in a process's mappings: 8 GiB of memory.
const MAX_CANDIDATES: usize = 4096;

/// The address of a worker's heap. `maps` is the text of `/proc/PID/maps`.
pub fn find<M: Memory + ?Sized>(memory: &M, engine: &Engine, maps: &str) -> Option<u64> {
    let layout = engine.layout;
    let stack = engine.executor_globals + layout.executor_globals.vm_stack as u64;
    let page = memory.word(stack).ok();
    let found = page.and_then(|page| heap::find(memory, layout, page));
    if found.is_some() || engine.is_thread_safe() {
        return found;
    }
    let mut chunks = candidates(maps).take(MAX_CANDIDATES);
    chunks.find_map(|chunk| heap::of_chunk(memory, layout, chunk))
}

/// Each address in private memory without a file where a chunk may begin.
fn candidates(maps: &str) -> impl Iterator<Item = u64> {
    maps.lines().filter_map(writable).flat_map(|range| {
        let first = range.start.next_multiple_of(CHUNK_SIZE);
        (first..range.end).step_by(CHUNK_SIZE as usize)
    })
}

/// The addresses of a line, if it is private memory without a file that can be written.
fn writable(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_private = fields.next()? == "rw-p";
    // The inode is 0 without a file.
    let has_no_file = fields.nth(2)? == "0";
    let (start, end) = (number(start)?, number(end)?);
    (is_private && has_no_file && end < u64::MAX - CHUNK_SIZE).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use phpprof_zend::testing::IS_NULL;
    use phpprof_zend::testing::heap::HeapImage;

    use super::*;
    use crate::sample::tests::Scene;

    const MAPS: &str = "\
55d0c0000000-55d0c0400000 r-xp 00000000 08:01 42 /usr/sbin/php-fpm8.2
7f0fff000000-7f0fffe00000 rw-p 00000000 00:00 0
7f1000000000-7f1000200000 rw-p 00000000 00:00 0 [anon:zend_alloc]
7f2000000000-7f2008000000 rw-s 00000000 00:01 7 /dev/zero (deleted)
";

    #[test]
    fn heap_is_found_between_requests() {
        let engine = Scene::frameless("strpos", IS_NULL).process().engine;
        let image = HeapImage::new(engine.layout);
        assert_eq!(find(image.memory(), &engine, MAPS), Some(image.heap()));
        assert_eq!(find(image.memory(), &engine, ""), None);
    }

    #[test]
    fn chunks_begin_in_private_memory_only() {
        let found: Vec<_> = candidates(MAPS).collect();
        assert_eq!(found.len(), 7 + 1);
        assert_eq!(found.last(), Some(&0x7f10_0000_0000));
        assert_eq!(candidates("x\n0-ffffffffffffffff rw-p 0 0 0\n").count(), 0);
        let many = candidates("0-ff0000000000 rw-p 0 0:0 0\n");
        assert_eq!(many.take(MAX_CANDIDATES).count(), MAX_CANDIDATES);
    }
}
