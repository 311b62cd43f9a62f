//! Who has called a destructor: the collector of cycles, or a count of references that fell to
//! zero.
//!
//! The collector calls the destructors of all garbage before it frees any
//! (`zend_gc_collect_cycles`, Zend/zend_gc.c). Just before that, it colours their objects purple in
//! its buffer of roots. Each other object in the buffer is purple only until a run of the collector
//! has marked it. Invariant: the words are read together with the frame of the destructor, and say
//! nothing if that is another one by then.

use crate::layouts::Layout;
use crate::memory::{Memory, Piece};
use crate::unwind::Frame;

/// Destructors in one stack, and bodies of generators, which run their `finally` when they are
/// destroyed.
pub const MAX_DESTRUCTORS: usize = 256;
/// `zend_refcounted_h.u.type_info` (Zend/zend_types.h), in all versions.
const TYPE_INFO: u64 = 4;
// Within `type_info`, from 7.3 on (GC_INFO_SHIFT, GC_COLOR, GC_PURPLE and GC_ADDRESS).
const INFO_SHIFT: u32 = 10;
const COLOUR: u32 = 0x30_0000;
const PURPLE: u32 = 0x30_0000;
const ADDRESS: u32 = 0x0f_ffff;
/// `ZEND_GENERATOR_FORCED_CLOSE` (Zend/zend_generators.h), in all versions.
const FORCED_CLOSE: u32 = 2;
/// The bytes of the largest `zend_execute_data`.
const HEADER: usize = 96;

/// A frame that destroys an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destructor {
    /// It runs `__destruct`, or the body of a generator.
    pub frame: Frame,
    /// The object, or the generator.
    pub object: u64,
    /// The body of a generator, which destroys it only if the engine closes it.
    pub is_generator: bool,
}

/// The bytes of one destructor.
#[derive(Debug, Clone, Copy)]
struct DestructorBytes {
    header: [u8; HEADER],
    type_info: [u8; 4],
    flags: [u8; 4],
}

/// The indexes of those that the collector has called. `gc_enabled` is the address of that word,
/// before `gc_active`. `None` if it cannot be told: the words are unknown (up to 7.3, which does
/// not colour them), or of another moment than the frames.
pub fn called_by_collector<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    gc_enabled: u64,
    destructors: &[Destructor],
) -> Option<Vec<usize>> {
    if !layout.rules.has_assign_op || destructors.len() > MAX_DESTRUCTORS {
        return None;
    }
    let size = layout.execute_data.sizeof;
    let nothing = DestructorBytes {
        header: [0; HEADER],
        type_info: [0; 4],
        flags: [0; 4],
    };
    let mut words = vec![nothing; destructors.len()];
    let mut gc = [0; 2];
    let mut pieces = Vec::with_capacity(3 * destructors.len() + 1);
    for (words, of) in words.iter_mut().zip(destructors) {
        pieces.push(Piece {
            address: of.object.checked_add(TYPE_INFO)?,
            bytes: &mut words.type_info,
        });
        if of.is_generator {
            pieces.push(Piece {
                address: of.object.checked_add(layout.generator.flags as u64)?,
                bytes: &mut words.flags,
            });
        }
        pieces.push(Piece {
            address: of.frame.address,
            bytes: words.header.get_mut(..size)?,
        });
    }
    // Last: as long as the collector runs, it has not freed what it called the destructor of.
    pieces.push(Piece {
        address: gc_enabled,
        bytes: &mut gc,
    });
    memory.gather(&mut pieces).ok()?;
    let is_there = |(words, of): (&DestructorBytes, &Destructor)| {
        Frame::parse(layout, of.frame.address, &words.header).is_same_call(&of.frame)
    };
    if gc[1] != 1 || !words.iter().zip(destructors).all(is_there) {
        return None;
    }
    let is_called = |(words, of): (&DestructorBytes, &Destructor)| {
        let is_closed = u32::from_le_bytes(words.flags) & FORCED_CLOSE != 0;
        (is_closed || !of.is_generator) && is_purple(u32::from_le_bytes(words.type_info))
    };
    let called = words.iter().zip(destructors).enumerate();
    let called = called.filter(|&(_, both)| is_called(both));
    Some(called.map(|(index, _)| index).collect())
}

/// Whether an object is purple, and in the collector's buffer.
fn is_purple(type_info: u32) -> bool {
    let info = type_info >> INFO_SHIFT;
    info & COLOUR == PURPLE && info & ADDRESS != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;
    use crate::testing::EngineImage;

    const TOP_OF_ROOTS: u32 = 7 << INFO_SHIFT;
    const IN_BUFFER: u32 = TOP_OF_ROOTS | PURPLE << INFO_SHIFT;

    /// Which of these are called by the collector: each is the `type_info` of an object, and the
    /// flags of a generator.
    fn called(
        layout: &'static Layout,
        objects: &[(u32, Option<u32>)],
        change: impl FnOnce(&mut EngineImage, u64, &[Destructor]),
    ) -> Option<Vec<usize>> {
        let mut image = EngineImage::new(layout);
        let gc = image.block();
        image.put(gc, &[1, 1]);
        let destroys = image.user(Some("__destruct"), &[62.into()]);
        let destructors: Vec<_> = objects
            .iter()
            .map(|&(type_info, flags)| {
                let object = image.block();
                image.put_half(object, TYPE_INFO as usize, type_info);
                image.put_half(object, layout.generator.flags, flags.unwrap_or(0));
                let address = image.call(destroys.func, destroys.op(0), layout.call_info.top);
                let mut header = vec![0; layout.execute_data.sizeof];
                image.read(address, &mut header).unwrap();
                Destructor {
                    frame: Frame::parse(layout, address, &header),
                    object,
                    is_generator: flags.is_some(),
                }
            })
            .collect();
        change(&mut image, gc, &destructors);
        called_by_collector(&image, layout, gc, &destructors)
    }

    #[test]
    fn collector_calls_destructors_of_purple_objects() {
        for layout in ROWS {
            let is_known = layout.rules.has_assign_op;
            let check = |objects: &[(u32, Option<u32>)], expected: &[usize]| {
                let expected = is_known.then(|| expected.to_vec());
                assert_eq!(called(layout, objects, |_, _, _| {}), expected);
            };
            check(&[(IN_BUFFER | 0x18, None)], &[0]);
            // By a count of references: not in the buffer, or black, grey or white by a run that
            // has seen it.
            let black = TOP_OF_ROOTS;
            let grey = TOP_OF_ROOTS | 0x20_0000 << INFO_SHIFT;
            check(&[(0x18, None), (black, None), (grey, None)], &[]);
            check(&[(PURPLE << INFO_SHIFT, None)], &[]);
            check(&[(0x18, None), (IN_BUFFER, None), (black, None)], &[1]);
            check(&[(IN_BUFFER, None), (IN_BUFFER, None)], &[0, 1]);
        }
    }

    #[test]
    fn collector_calls_only_closed_generators() {
        let layout = ROWS.last().unwrap();
        let bodies = [(IN_BUFFER, Some(1)), (IN_BUFFER, Some(1 | FORCED_CLOSE))];
        assert_eq!(called(layout, &bodies, |_, _, _| {}), Some(vec![1]));
    }

    #[test]
    fn words_of_another_moment_say_nothing() {
        let layout = ROWS.last().unwrap();
        let objects = [(IN_BUFFER, None)];
        let ended = |image: &mut EngineImage, gc: u64, _: &[Destructor]| image.put(gc, &[1, 0]);
        assert_eq!(called(layout, &objects, ended), None);
        let another = |image: &mut EngineImage, _: u64, of: &[Destructor]| {
            image.put_word(of[0].frame.address, layout.execute_data.func, 0x7000);
        };
        assert_eq!(called(layout, &objects, another), None);
        // It may have moved on.
        let moved = |image: &mut EngineImage, _: u64, of: &[Destructor]| {
            image.put_word(of[0].frame.address, layout.execute_data.opline, 0x7000);
        };
        assert_eq!(called(layout, &objects, moved), Some(vec![0]));
        let many = vec![(IN_BUFFER, None); MAX_DESTRUCTORS + 1];
        assert_eq!(called(layout, &many, |_, _, _| {}), None);
    }
}
