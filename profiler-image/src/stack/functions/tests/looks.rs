//! What a look at frames costs, and what it may name.

use std::cell::Cell;

use super::*;

/// Counts the calls that reach the memory.
struct Counted(EngineImage, Cell<usize>);

impl Memory for Counted {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.1.set(self.1.get() + 1);
        self.0.read(address, bytes)
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.1.set(self.1.get() + 1);
        self.0.gather(pieces)
    }
}

/// Whether a function of this name is named, and the calls until its frame has been looked at and in all.
fn identified(name: &str) -> (bool, usize, usize) {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, name, true);
    let memory = Counted(memory, Cell::new(0));
    let image = place(&memory.0, &mut maps.0, &mut maps.1);
    let mut place = Place {
        memory: &memory,
        layout: image.layout,
        executor_globals: image.executor_globals,
        shared_ranges: image.shared_ranges,
        shared: image.shared,
        local: image.local,
        request_ends: image.request_ends,
        now: image.now,
    };
    let (mut ids, mut looked) = (Vec::new(), 0);
    codes.identify(&mut place, &[frame], &mut ids, |_, gather| {
        let mut word = [0; 8];
        let address = frame.address;
        let bytes = &mut word;
        assert_eq!(gather(&mut [Piece { address, bytes }]), Ok(()));
        looked = memory.1.get();
        stands(1)
    });
    (ids[0].is_some(), looked, memory.1.get())
}

#[test]
fn a_frame_is_looked_at_in_the_gather_that_reads_its_functions_texts() {
    assert_eq!(identified("total"), (true, 2, 2));
}

#[test]
fn a_text_whose_rest_is_read_after_the_look_names_nothing() {
    let (is_named, _, calls) = identified(&"n".repeat(STRING_HEAD + 1));
    assert!(!is_named && calls > 2, "{calls}");
}
