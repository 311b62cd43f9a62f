use super::*;
use crate::layouts::ROWS;
use crate::op::NEW;
use crate::testing::{EngineImage, UserFunction};

/// An engine whose compiler has allocated up to `end`, and four functions, each of which declares
/// the next one. The first three were compiled first.
struct Nest {
    image: EngineImage,
    functions: Vec<UserFunction>,
    arena: Arena,
}

impl Nest {
    fn new(layout: &'static Layout) -> Self {
        let mut image = EngineImage::new(layout);
        let pointer = image.compiler_globals + layout.compiler_globals.arena as u64;
        let block = image.block();
        let functions: Vec<_> = (0..3).map(|_| function(&mut image)).collect();
        let end = image.block();
        let functions: Vec<_> = functions
            .into_iter()
            .chain([function(&mut image)])
            .collect();
        for pair in functions.windows(2) {
            image.put_declared(pair[0].func, &[pair[1].func]);
        }
        image.put_word(pointer, 0, block);
        image.put_word(block, 0, end);
        let arena = Arena {
            pointer,
            block,
            end,
            prev: 0,
        };
        Self {
            image,
            functions,
            arena,
        }
    }

    /// The frame of a closure in an object; `is_alive` tells whether the object is live.
    fn frame(&mut self, is_alive: bool) -> Frame {
        let function = self.functions[0];
        let object = function.func - FUNCTION;
        self.image.room(object, FUNCTION);
        if is_alive {
            self.image
                .put_word(object, 0, 2 | u64::from(IS_OBJECT) << 32)
        } else {
            self.image.put_word(object, 0, 0x7f2d_7776_4300)
        }
        Frame {
            func: function.func,
            call_info: self.image.layout.call_info.closure,
            ..Frame::default()
        }
    }

    fn holder(&mut self) -> Option<Holder> {
        let frame = self.frame(true);
        Holder::read(&self.image, self.image.layout, &frame)
    }

    /// Which of the functions is found by its second op.
    fn found(&mut self, of: usize) -> Option<usize> {
        let (opline, arena) = (self.functions[of].op(1), self.arena);
        let holder = self.holder()?;
        let key = holder.find(&self.image, self.image.layout, opline, |address| {
            arena.had(address)
        })?;
        let mut functions = self.functions.iter();
        functions.position(|function| function.code == key.code)
    }

    fn has_stood(&mut self) -> bool {
        let arena = self.arena;
        let holder = self.holder().unwrap();
        holder.has_stood(&self.image, self.image.layout, Some(&arena), |address| {
            arena.had(address)
        })
    }
}

fn function(image: &mut EngineImage) -> UserFunction {
    image.user(Some("{closure}"), &[NEW.into(), NEW.into()])
}

fn layouts() -> impl Iterator<Item = &'static Layout> {
    ROWS.iter()
        .filter(|row| row.function.dynamic_func_defs != 0)
}

#[test]
fn op_finds_a_function_among_its_declarers() {
    for layout in layouts() {
        let mut nest = Nest::new(layout);
        let found = [0, 1, 2].map(|of| nest.found(of));
        assert_eq!(found, [Some(0), Some(1), Some(2)], "{}", layout.minor);
    }
    assert_eq!(layouts().count(), 12);
}

#[test]
fn later_op_array_is_not_searched() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    assert_eq!(nest.found(3), None);
    nest.arena.end = u64::MAX;
    assert_eq!(nest.found(3), Some(3));
}

#[test]
fn a_freed_object_holds_nothing() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    let layout = nest.image.layout;
    let freed = nest.frame(false);
    assert!(Holder::read(&nest.image, layout, &freed).is_none());
    // `free_obj` has been called: IS_OBJ_FREE_CALLED (Zend/zend_types.h).
    let live = nest.frame(true);
    let object = live.func - FUNCTION;
    nest.image.put_word(object, 0, 1 | 0x208 << 32);
    assert!(Holder::read(&nest.image, layout, &live).is_none());
    // The garbage collector's buffer has it.
    nest.image.put_word(object, 0, 1 | 0xc01e_dc08 << 32);
    assert!(Holder::read(&nest.image, layout, &live).is_some());
}

#[test]
fn function_of_the_tables_holds_its_own() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    let layout = nest.image.layout;
    let func = nest.functions[0].func;
    let frame = Frame {
        func,
        ..Frame::default()
    };
    assert!(Holder::read(&nest.image, layout, &frame).is_some());
    nest.image.put_half(
        func,
        layout.function.fn_flags,
        layout.function.passing_flags,
    );
    assert!(Holder::read(&nest.image, layout, &frame).is_none());
}

#[test]
fn holder_stood_if_nothing_was_compiled_since() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    let (block, end) = (nest.arena.block, nest.arena.end);
    assert!(nest.has_stood());
    // The compiler continues.
    nest.image.put_word(block, 0, end + 0x100);
    assert!(nest.has_stood());
    // The holder itself is new: the op_array that it declares was allocated since.
    let later = nest.functions[3].func;
    nest.image.put_declared(nest.functions[0].func, &[later]);
    assert!(!nest.has_stood());
    nest.image.put_word(block, 0, end);
    assert!(nest.has_stood());
    // Another request has an arena of its own.
    nest.image.put_word(block, 0, end - 0x100);
    assert!(!nest.has_stood());
}

#[test]
fn new_arena_block_continues_the_last() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    let (pointer, block) = (nest.arena.pointer, nest.arena.block);
    let next = nest.image.block();
    nest.image.put_word(pointer, 0, next);
    nest.image.put_word(next, 16, block);
    assert!(nest.has_stood());
    nest.image.put_word(next, 16, 0);
    assert!(!nest.has_stood());
}

#[test]
fn a_search_in_lists_that_contain_themselves_ends() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    let func = nest.functions[1].func;
    nest.image.put_declared(func, &[func; 64]);
    assert_eq!(nest.found(2), None);
    let row = &nest.image.layout.function;
    nest.image
        .put_half(func, row.num_dynamic_func_defs, u32::MAX);
    assert_eq!((nest.found(1), nest.found(2)), (Some(1), None));
}

#[test]
fn block_before_the_newest_was_full() {
    let mut nest = Nest::new(&ROWS[ROWS.len() - 1]);
    let block = nest.arena.block;
    (nest.arena.block, nest.arena.end) = (BLOCK, BLOCK);
    assert_eq!(nest.found(2), None);
    nest.arena.prev = block;
    assert_eq!(nest.found(2), Some(2));
}
