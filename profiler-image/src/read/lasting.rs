//! A worker's memory, read only for as long as its addresses mean what they meant when the stack
//! was read.
//!
//! opcache gives its memory to other scripts when it restarts, and raises a counter before
//! ([`phpprof_zend::opcache`]). So each read that follows a stack's takes the counters as its last
//! piece, in the same call of the kernel.
//! Invariant: a read succeeds only if opcache has not restarted since the stack was read.

use std::ops::Deref;
use std::sync::Arc;

use phpprof_zend::memory::{Memory, MemoryFault, Piece};
use phpprof_zend::opcache::Restarts;
use smallvec::SmallVec;

use crate::target::process::{IN_PLACE, ProcessMemory};

/// A memory, and the restarts of opcache that were counted with the last stack.
#[derive(Debug, Clone)]
pub struct Lasting<M> {
    memory: M,
    /// The address of the counters; `None` without an opcache.
    at: Option<u64>,
    restarts: Restarts,
}

/// The memory of a worker.
pub type WorkerMemory = Lasting<Arc<ProcessMemory>>;

impl<M> Lasting<M> {
    /// A memory in which opcache counts its restarts there.
    pub fn new(memory: M, at: Option<u64>) -> Self {
        Self {
            memory,
            at,
            restarts: Restarts::default(),
        }
    }

    /// The memory itself, for what opcache's restarts do not change.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// A stack was read, with these counters before and after it.
    pub fn follow(&mut self, restarts: Restarts) {
        self.restarts = restarts;
    }

    /// The counters of the last stack.
    #[must_use]
    pub fn restarts(&self) -> Restarts {
        self.restarts
    }

    /// A piece that reads the counters.
    pub fn piece<'a>(&self, restarts: &'a mut Restarts) -> Option<Piece<'a>> {
        let bytes = &mut restarts.0;
        self.at.map(|address| Piece { address, bytes })
    }
}

impl<M: Deref<Target: Memory>> Memory for Lasting<M> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.gather(&mut [Piece { address, bytes }])
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        let mut now = Restarts::default();
        let Some(last) = self.piece(&mut now) else {
            return self.memory.gather(pieces);
        };
        let again = |piece| {
            let Piece { address, bytes }: &mut Piece<'_> = piece;
            Piece {
                address: *address,
                bytes,
            }
        };
        let mut all: SmallVec<[Piece<'_>; IN_PLACE]> = pieces.iter_mut().map(again).collect();
        all.push(last);
        self.memory.gather(&mut all)?;
        drop(all);
        if now == self.restarts {
            Ok(())
        } else {
            // There is something else by now.
            Err(MemoryFault::Unmapped)
        }
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::memory::Recorded;
    use phpprof_zend::testing::Counted;

    use super::*;

    const COUNTERS: u64 = 0x1000;
    const WORD: u64 = 0x2000;

    fn memory(manual: u64) -> Recorded {
        let mut memory = Recorded::default();
        memory.room(COUNTERS, 24);
        memory.put_word(COUNTERS + 16, manual);
        memory.put_word(WORD, 7);
        memory
    }

    fn counters(memory: &Recorded) -> Restarts {
        let mut restarts = Restarts::default();
        memory.read(COUNTERS, &mut restarts.0).unwrap();
        restarts
    }

    #[test]
    fn reads_end_with_the_restart_of_each_kind() {
        let mut memory = memory(3);
        let before = counters(&memory);
        for kind in 0..3 {
            let mut lasting = Lasting::new(&memory, Some(COUNTERS));
            lasting.follow(before);
            assert_eq!(lasting.word(WORD), Ok(7));
            let was = memory.word(COUNTERS + 8 * kind).unwrap();
            memory.put_word(COUNTERS + 8 * kind, was + 1);
            let mut lasting = Lasting::new(&memory, Some(COUNTERS));
            lasting.follow(before);
            assert_eq!(lasting.word(WORD), Err(MemoryFault::Unmapped));
            lasting.follow(counters(&memory));
            assert_eq!(lasting.word(WORD), Ok(7));
            memory.put_word(COUNTERS + 8 * kind, was);
        }
    }

    #[test]
    fn read_takes_the_counters_with_it() {
        let memory = memory(0);
        let counted = Counted::new(&memory);
        let lasting = Lasting::new(&counted, Some(COUNTERS));
        let mut words = [[0_u8; 8]; 2];
        let [one, other] = &mut words;
        let mut pieces = [one, other].map(|bytes| Piece {
            address: WORD,
            bytes: &mut bytes[..],
        });
        assert_eq!(lasting.gather(&mut pieces), Ok(()));
        assert_eq!(words.map(u64::from_le_bytes), [7, 7]);
        assert_eq!((counted.calls(), counted.bytes()), (1, 2 * 8 + 24));
    }

    #[test]
    fn without_an_opcache_nothing_more_is_read() {
        let memory = memory(5);
        let counted = Counted::new(&memory);
        assert_eq!(Lasting::new(&counted, None).word(WORD), Ok(7));
        assert_eq!(counted.bytes(), 8);
    }
}
