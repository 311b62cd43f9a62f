//! A memory that counts how often it is read, to show what a reader costs.

use std::cell::Cell;

use crate::memory::{Memory, MemoryFault, Piece};

/// Counts the calls that reach a memory, and the bytes that they read.
#[derive(Debug)]
pub struct Counted<'a, M: ?Sized> {
    memory: &'a M,
    calls: Cell<usize>,
    bytes: Cell<usize>,
}

impl<'a, M: ?Sized> Counted<'a, M> {
    /// Nothing has been read yet.
    pub fn new(memory: &'a M) -> Self {
        let (calls, bytes) = (Cell::new(0), Cell::new(0));
        Self {
            memory,
            calls,
            bytes,
        }
    }

    /// The calls so far: a gather of any number of pieces is one.
    pub fn calls(&self) -> usize {
        self.calls.get()
    }

    /// The bytes that were asked for so far.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    fn count(&self, bytes: usize) {
        self.calls.set(self.calls.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }
}

impl<M: Memory + ?Sized> Memory for Counted<'_, M> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.count(bytes.len());
        self.memory.read(address, bytes)
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        self.count(pieces.iter().map(|piece| piece.bytes.len()).sum());
        self.memory.gather(pieces)
    }
}
