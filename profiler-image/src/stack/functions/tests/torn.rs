//! Functions that are read while the program writes them.

use std::cell::Cell;

use phpprof_zend::memory::MemoryFault;

use super::*;

/// Memory in which a function is being copied to an address during the first reads of it: a part of
/// it is not written yet.
struct Copying<'a> {
    memory: &'a EngineImage,
    func: u64,
    /// Where the part is, and what it still has.
    before: (usize, &'a [u8]),
    reads_left: Cell<usize>,
}

impl Memory for Copying<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.memory.read(address, bytes)?;
        if address == self.func && bytes.len() >= HEAD && self.reads_left.get() > 0 {
            self.reads_left.set(self.reads_left.get() - 1);
            let (at, before) = self.before;
            bytes[at..at + before.len()].copy_from_slice(before);
        }
        Ok(())
    }
}

/// The frame's name by a read of this memory, if it has one. Nothing stands.
fn named(
    codes: &mut Functions,
    maps: &mut Maps,
    copying: &Copying<'_>,
    frame: Frame,
) -> Option<String> {
    let mut ids = Vec::new();
    let mut place = place_in(copying, copying.memory, &mut maps.shared, &mut maps.local);
    codes.begin();
    codes.identify(&mut place, &[frame], &mut ids, |_, _| Stand::default());
    let name = codes.name(ids[0]?, false);
    Some(codes.names.get(name).name.to_string())
}

#[test]
fn closure_needs_several_equal_reads() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let (name, file) = (SHARED.start + 0x8000, SHARED.start + 0x8100);
    memory.put_string(name, "{closure}");
    memory.put_string(file, "/a.php");
    let key = FunctionKey {
        code: SHARED.start,
        last: 4,
        kind: 2,
        passing: true,
        name,
        filename: file,
        line_start: 5,
        ..FunctionKey::default()
    };
    memory.put_function(FUNCTIONS, &key);
    let frame = Frame {
        address: memory.page + 0x100,
        func: FUNCTIONS,
        opline: SHARED.start,
        ..Frame::default()
    };
    let mut named = |torn: usize, before| {
        let copying = Copying {
            memory: &memory,
            func: FUNCTIONS,
            before,
            reads_left: Cell::new(torn),
        };
        named(&mut codes, &mut maps, &copying, frame)
    };
    let row = &memory.layout.function;
    let of_another = (row.line_start, &6_u32.to_le_bytes()[..]);
    for torn in 1..=AGREEING_READS {
        assert_eq!(named(torn, of_another), None, "{torn}");
    }
    // Without its name it looks like its file's top level.
    let cleared = (row.function_name, &[0; 8][..]);
    assert_eq!(named(usize::MAX, cleared), None);
    assert_eq!(named(0, cleared).as_deref(), Some("{closure:/a.php:5}"));
}

/// The next file's op_array often takes the place of one that has ended.
#[test]
fn script_needs_two_equal_reads() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let [own, other] = [SHARED.start + 0x8000, SHARED.start + 0x8100];
    memory.put_string(other, "/other.php");
    let called = Frame {
        func: FUNCTIONS,
        opline: SHARED.start,
        ..Frame::default()
    };
    let frame = put_script(&mut memory, called, own, "/own.php");
    let other = other.to_le_bytes();
    let mut named = |torn: usize| {
        let copying = Copying {
            memory: &memory,
            func: FUNCTIONS,
            before: (memory.layout.function.filename, &other),
            reads_left: Cell::new(torn),
        };
        named(&mut codes, &mut maps, &copying, frame)
    };
    assert_eq!(named(1), None);
    assert_eq!(named(0).as_deref(), Some("include /own.php"));
}
