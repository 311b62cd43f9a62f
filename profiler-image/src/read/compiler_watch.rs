//! Remembers where the compiler's memory ended when a stack was read, if closures of the worker
//! have to be searched for.
//!
//! The call that reads the stack reads it first. Invariant: an [`Arena`] is of this read, and of a
//! moment before the stack's.

use phpprof_zend::Layout;
use phpprof_zend::closure::Arena;
use phpprof_zend::memory::Piece;

/// Watches `CG(arena)` of a worker.
#[derive(Debug)]
pub struct CompilerWatch {
    /// The address of `CG(arena)`.
    pointer: u64,
    /// Where it pointed to in the last read; 0 if that is not known.
    block: u64,
    /// The bytes of the last read.
    bytes: ([u8; 8], [u8; Arena::HEAD]),
    /// The result of the last read; `None` if it had to find the block first.
    pub arena: Option<Arena>,
}

impl CompilerWatch {
    /// Watches a compiler by the address of its globals; `None` if the version has no lists of
    /// functions to search.
    #[must_use]
    pub fn new(layout: &Layout, compiler_globals: u64) -> Option<Self> {
        let is_known = layout.function.dynamic_func_defs != 0;
        is_known.then(|| Self {
            pointer: compiler_globals + layout.compiler_globals.arena as u64,
            block: 0,
            bytes: Default::default(),
            arena: None,
        })
    }

    /// What to read.
    pub fn pieces(&mut self) -> impl Iterator<Item = Piece<'_>> {
        let (pointer, head) = &mut self.bytes;
        let pointer = Piece {
            address: self.pointer,
            bytes: pointer,
        };
        let head = Piece {
            address: self.block,
            bytes: head,
        };
        [pointer, head].into_iter().filter(|it| it.address != 0)
    }

    /// Takes what was read.
    pub fn took(&mut self) {
        let (pointer, head) = &self.bytes;
        let block = u64::from_le_bytes(*pointer);
        let is_known = block != 0 && block == self.block;
        self.arena = is_known.then(|| Arena::parse(self.pointer, block, head));
        self.block = block;
    }

    /// A read has failed: the block may be gone. Returns whether there is less to read now.
    pub fn lost(&mut self) -> bool {
        self.arena = None;
        std::mem::take(&mut self.block) != 0
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::layouts::{Machine, layout_of};
    use phpprof_zend::memory::Memory as _;
    use phpprof_zend::testing::EngineImage;

    use super::*;

    fn read(watch: &mut CompilerWatch, memory: &EngineImage) -> Option<(u64, u64)> {
        let mut pieces: Vec<Piece<'_>> = watch.pieces().collect();
        assert!(memory.gather(&mut pieces).is_ok());
        drop(pieces);
        watch.took();
        watch.arena.map(|arena| (arena.block, arena.end))
    }

    #[test]
    fn arena_is_known_from_the_second_read() {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let mut memory = EngineImage::new(layout);
        let globals = memory.compiler_globals;
        let [block, next] = [memory.block(), memory.block()];
        let point = |memory: &mut EngineImage, to: u64| {
            memory.put_word(globals, layout.compiler_globals.arena, to);
            memory.put_word(to, 0, to + 0x40);
        };
        let mut watch = CompilerWatch::new(layout, globals).unwrap();
        point(&mut memory, block);
        let known = Some((block, block + 0x40));
        assert_eq!(read(&mut watch, &memory), None);
        assert_eq!(read(&mut watch, &memory), known);
        point(&mut memory, next);
        assert_eq!(read(&mut watch, &memory), None);
        assert!(watch.lost() && !watch.lost());
        assert_eq!(read(&mut watch, &memory), None);
        assert_eq!(read(&mut watch, &memory), Some((next, next + 0x40)));
    }

    #[test]
    fn version_without_lists_is_not_watched() {
        let layout = layout_of(Machine::X86_64, 8, 0).unwrap();
        assert!(CompilerWatch::new(layout, 0x1000).is_none());
    }
}
