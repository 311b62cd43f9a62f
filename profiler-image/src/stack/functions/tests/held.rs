//! Closures whose objects are gone before they are read.

use super::*;

/// Where the compiler's memory is, and how far it had allocated when the stack was read.
const COMPILED: Range<u64> = 0x50_0000..0x50_1000;

/// A closure `{closure}` that runs and declares another one, whose frame is above but whose object
/// is another's by now.
struct Closures {
    memory: EngineImage,
    /// Leaf first: an unknown function, the closure that has ended, and the other one.
    frames: [Frame; 3],
}

impl Closures {
    fn new() -> Self {
        let (_, _, mut memory) = nothing_known();
        let flags = &memory.layout.call_info;
        let call_info = flags.closure;
        let row = memory.layout;
        let outer = Frame {
            call_info,
            ..put_closure(&mut memory, FUNCTIONS + 0x1000, 1)
        };
        // The object that has taken the place of the inner one.
        let other = put_closure(&mut memory, FUNCTIONS + 0x2000, 2);
        let inner = Frame {
            call_info,
            address: other.address + 0x100,
            opline: CODE + 0x3000 + row.zend_op.sizeof as u64,
            ..other
        };
        put_op_array(&mut memory, COMPILED.start + 0x100, 3);
        memory.put_declared(outer.func, &[COMPILED.start + 0x100]);
        memory.put_word(
            memory.compiler_globals,
            row.compiler_globals.arena,
            COMPILED.start,
        );
        memory.room(COMPILED.start, 0x2000);
        memory.put_word(COMPILED.start, 0, COMPILED.end);
        let leaf = Frame {
            address: inner.address + 0x100,
            func: 0xdead_0000,
            ..Frame::default()
        };
        Self {
            memory,
            frames: [leaf, inner, outer],
        }
    }

    /// The names of the frames; the outer closure stands, the inner one does not.
    fn names(&self) -> [Option<String>; 3] {
        let (mut codes, ids) = self.identified();
        [0, 1, 2].map(|index| {
            let name = codes.name(ids[index]?, false);
            Some(codes.names.get(name).name.to_string())
        })
    }

    fn arena(&self) -> Arena {
        let pointer = self.memory.compiler_globals;
        Arena {
            pointer: pointer + self.memory.layout.compiler_globals.arena as u64,
            block: COMPILED.start,
            end: COMPILED.end,
            prev: 0,
        }
    }

    fn identified(&self) -> (Functions, Vec<Option<FunctionId>>) {
        let (mut codes, mut maps) = (Functions::default(), Maps::default());
        let mut place = place(&self.memory, &mut maps.shared, &mut maps.local);
        place.arena = Some(self.arena());
        let mut ids = Vec::new();
        codes.begin();
        codes.identify(&mut place, &self.frames, &mut ids, |_, gather| {
            assert!(gather(&mut []).is_ok());
            stands(1)
        });
        (codes, ids)
    }
}

/// An op_array of a closure in line `number`, whose code is at `CODE + number * 0x1000`.
fn put_op_array(memory: &mut EngineImage, func: u64, number: u32) {
    let name = STRINGS + u64::from(number) * 0x100;
    let key = FunctionKey {
        code: CODE + u64::from(number) * 0x1000,
        last: 4,
        kind: 2,
        passing: true,
        name,
        filename: FILE,
        line_start: number,
        ..FunctionKey::default()
    };
    memory.put_string(FILE, "/a.php");
    memory.put_string(name, "{closure}");
    memory.put_function(func, &key);
}

/// A live closure's object around its op_array; returns its frame.
fn put_closure(memory: &mut EngineImage, func: u64, number: u32) -> Frame {
    put_op_array(memory, func, number);
    memory.room(func - 56, 56);
    memory.put(func - 56, &[1, 0, 0, 0, 8, 0, 0, 0]);
    let frame = Frame {
        address: memory.page + 0x100 + u64::from(number) * 0x100,
        func,
        opline: CODE + u64::from(number) * 0x1000,
        ..Frame::default()
    };
    memory.put_frame(&frame);
    memory.put_top(memory.page + 0x3fff);
    frame
}

#[test]
fn ended_closure_is_named_by_its_declarer() {
    let closures = Closures::new();
    let [leaf, inner, outer] = closures.names();
    assert_eq!(leaf, None);
    assert_eq!(outer.as_deref(), Some("{closure:/a.php:1}"));
    assert_eq!(inner.as_deref(), Some("{closure:/a.php:3}"));
}

#[test]
fn holder_tells_whether_it_still_holds() {
    let mut closures = Closures::new();
    let (codes, _) = closures.identified();
    let [leaf, inner, outer] = closures.frames;
    assert!([leaf, outer].iter().all(|it| codes.holder_of(it).is_none()));
    let (arena, layout) = (closures.arena(), closures.memory.layout);
    let holder = codes.holder_of(&inner).unwrap();
    let has_stood = |memory: &EngineImage| {
        let was_there = |address| was_there(Some(&arena), &[], address);
        holder.has_stood(memory, layout, Some(&arena), was_there)
    };
    assert!(has_stood(&closures.memory));
    closures
        .memory
        .put_word(outer.func - 56, 0, 0x7f00_0010_3000);
    assert!(!has_stood(&closures.memory));
}

#[test]
fn later_code_names_no_ended_closure() {
    let mut closures = Closures::new();
    let later = COMPILED.end + 0x100;
    put_op_array(&mut closures.memory, later, 3);
    let outer = closures.frames[2].func;
    closures.memory.put_declared(outer, &[later]);
    closures.memory.put_word(COMPILED.start, 0, later + 0x100);
    assert_eq!(closures.names()[1], None);
}

#[test]
fn closure_without_its_declarer_is_unnamed() {
    let mut closures = Closures::new();
    let outer = closures.frames[2].func;
    // The place of a freed object has the address of the next one.
    closures.memory.put_word(outer - 56, 0, 0x7f00_0010_3000);
    assert_eq!(closures.names()[1], None);
}

#[test]
fn opline_names_no_leaf() {
    let mut closures = Closures::new();
    closures.frames.swap(0, 1);
    assert_eq!(closures.names()[0], None);
}

#[test]
fn leaf_at_anothers_op_needs_a_live_frame() {
    let named = |is_live: bool| {
        let (mut codes, mut maps, mut memory) = nothing_known();
        // The code and the texts are in shared memory, and the opline is of an earlier call.
        let frame = Frame {
            call_info: memory.layout.call_info.closure,
            opline: SHARED.start + 0x5000,
            ..put_closure(&mut memory, FUNCTIONS + 0x1000, 1)
        };
        let key = FunctionKey {
            code: SHARED.start + 0x1000,
            last: 4,
            kind: 2,
            passing: true,
            name: SHARED.start + 0x2000,
            filename: SHARED.start + 0x3000,
            line_start: 7,
            ..FunctionKey::default()
        };
        memory.put_string(key.name, "{closure}");
        memory.put_string(key.filename, "/b.php");
        memory.put_function(frame.func, &key);
        let func = if is_live { frame.func } else { 0xdead_0000 };
        memory.put_frame(&Frame { func, ..frame });
        names(&mut codes, &memory, &mut maps, &[frame])
    };
    assert_eq!(named(true), ["{closure:/b.php:7}"]);
    assert_eq!(named(false), [""]);
}
