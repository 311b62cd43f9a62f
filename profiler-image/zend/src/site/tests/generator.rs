//! The body of a generator, resumed from user code and from internal functions.

use super::*;
use crate::op::{ADD_ARRAY_UNPACK, FE_FETCH_R, FE_FETCH_RW, FE_RESET_R, FE_RESET_RW, SEND_UNPACK};

const GENERATOR: u64 = 0x31_0000;
const DELEGATING: u64 = 0x32_0000;
const ITERATOR: u64 = 0x33_0000;
const DATA: u64 = ITERATOR + 56;
const OPERAND: u32 = 112;

/// A caller at the last of these ops, with an object in a variable, and the body of [`GENERATOR`]
/// that it resumes.
fn scene(layout: &'static Layout, opcodes: &[u8], variable: u32, object: u64) -> Scene {
    let mut scene = Scene::new(layout, opcodes, "", "body").with_top();
    scene.callee.call_info |= layout.call_info.generator;
    scene.callee.opline = scene.callee_function.key.code;
    scene.caller.call_info |= layout.call_info.generator;
    let image = &mut scene.image;
    image.put_half(scene.caller.opline, layout.zend_op.op1, OPERAND);
    for (frame, generator) in [(&scene.caller, DELEGATING), (&scene.callee, GENERATOR)] {
        image.put_frame(frame);
        image.put_word(frame.address, layout.execute_data.return_value, generator);
        let (address, frame) = body(layout, generator, frame.address);
        image.put_word(address, 0, frame);
        image.put_word(generator, 16, CLASS);
    }
    image.put_zval(STACK + u64::from(variable), object, IS_OBJECT);
    image.put_top(scene.callee.address);
    image.put_word(OBJECT, 16, CLASS + 0x100);
    scene.copy = scene.image.copy(STACK, 0x200);
    scene
}

/// The word by which a generator points to the frame of its body.
fn body(layout: &Layout, generator: u64, frame: u64) -> (u64, u64) {
    (generator + layout.generator.execute_data as u64, frame)
}

/// The versions that mark the frame of a generator.
fn marked() -> impl Iterator<Item = &'static Layout> {
    ROWS.iter().filter(|layout| layout.call_info.generator != 0)
}

const RESUMED: Evidence = Evidence::Proven(Relation::Nothing, Words::Frames);

#[test]
fn a_foreach_resumes_the_generator_of_its_iterator() {
    for layout in marked() {
        for opcode in [FE_FETCH_R, FE_FETCH_RW] {
            let check = |data: u64, expected: Evidence| {
                let mut scene = scene(layout, &[opcode], OPERAND, ITERATOR);
                scene.image.put_word(DATA, 0, data);
                scene.check(expected);
            };
            check(GENERATOR, RESUMED);
            check(DELEGATING, Evidence::Refuted);
        }
    }
}

#[test]
fn unpacked_or_rewound_generator_is_the_operand() {
    for layout in marked() {
        for opcode in [FE_RESET_R, FE_RESET_RW, SEND_UNPACK, ADD_ARRAY_UNPACK] {
            let check = |object: u64, expected: Evidence| {
                scene(layout, &[opcode], OPERAND, object).check(expected);
            };
            check(GENERATOR, RESUMED);
            check(DELEGATING, Evidence::Refuted);
            // An object of another class may make a generator.
            check(OBJECT, Evidence::Open);
        }
        // An op that calls nothing by itself.
        scene(layout, &[SEND_VAR], OPERAND, GENERATOR).check(Evidence::Open);
    }
}

#[test]
fn delegating_generator_has_a_parent() {
    for layout in marked() {
        let parent = DELEGATING + layout.generator.node_parent as u64;
        let check = |before: u8, value: u64, expected: Evidence| {
            let mut scene = scene(layout, &[before, SEND_VAR], OPERAND, 0);
            scene.image.put_word(parent, 0, value);
            scene.check(expected);
        };
        for yield_from in [142, 166] {
            check(yield_from, GENERATOR, RESUMED);
            check(yield_from, ITERATOR, Evidence::Refuted);
        }
        check(SEND_VAR, GENERATOR, Evidence::Open);
    }
}

#[test]
fn internal_function_resumes_object_or_argument() {
    for layout in marked() {
        let first = layout.execute_data.first_argument;
        let argument = u32::try_from(first).unwrap();
        scene(layout, &[DO_FCALL], argument, GENERATOR).check_at(None, RESUMED);
        scene(layout, &[DO_FCALL], argument, OBJECT).check_at(None, Evidence::Open);

        let method = |this: u64, expected: Evidence| {
            let mut scene = scene(layout, &[DO_FCALL], OPERAND, 0);
            (scene.caller.this, scene.caller.this_type) = (this, IS_OBJECT);
            scene.image.put_frame(&scene.caller);
            // From 7.4 on the call info contains the type's bits, too.
            let header = scene.image.copy(STACK, 0x100).bytes;
            scene.caller = Frame::parse(layout, STACK, &header);
            scene.check_at(None, expected);
        };
        method(GENERATOR, RESUMED);
        method(OBJECT, Evidence::Open);
    }
}

/// The frame of an ended generator, whose address another one now has.
#[test]
fn frame_unknown_to_its_generator_proves_nothing() {
    for layout in marked() {
        let mut scene = scene(layout, &[FE_FETCH_R], OPERAND, ITERATOR);
        scene.image.put_word(DATA, 0, GENERATOR);
        scene.check(RESUMED);
        let (address, frame) = body(layout, GENERATOR, STACK + 0x200);
        scene.image.put_word(address, 0, frame);
        scene.check(Evidence::Refuted);
    }
}

/// A generator, or a call, that was made at the same addresses since its frame was read.
#[test]
fn replaced_frame_proves_nothing() {
    for layout in marked() {
        for is_body in [true, false] {
            let mut scene = scene(layout, &[FE_FETCH_R], OPERAND, ITERATOR);
            scene.image.put_word(DATA, 0, GENERATOR);
            scene.check(RESUMED);
            let frame = if is_body { scene.callee } else { scene.caller };
            let func = layout.execute_data.func;
            scene
                .image
                .put_word(frame.address, func, frame.func + 0x100);
            scene.check(Evidence::Refuted);
        }
    }
}
