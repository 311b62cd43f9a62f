//! Calls by a name that was freed before the call.

use phpprof_zend::op::{INIT_DYNAMIC_CALL, Op};
use phpprof_zend::zval::IS_STRING;

use super::*;

const OPERAND: u32 = 144;
const IS_VAR: u8 = 4;

#[test]
fn the_next_reads_take_a_freed_name_with_the_looks_and_it_proves_the_call() {
    let mut scene = Scene::new();
    let layout = scene.image.layout;
    let init = Op::read(&scene.image, layout, scene.main.op(0)).unwrap();
    scene.image.put_op(&Op {
        opcode: INIT_DYNAMIC_CALL,
        op2: OPERAND,
        op2_type: IS_VAR,
        ..init
    });
    let name = scene.image.string("text");
    // Where the heap has put the next free block.
    scene.image.put_word(name, 0, name + 0x40);
    let operand = scene.main_frame + u64::from(OPERAND);
    scene.image.put_zval(operand, name, IS_STRING);
    scene.image.block();
    scene.call("text", 0);
    let (mut sampler, mut worker) = (Sampler::new(), scene.worker());
    assert!(matches!(sampler.sample(&mut worker, 1), Outcome::Sample(_)));
    // The functions are known, the calls are not, and nothing may be looked at again.
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    worker.reader = scene.worker().reader;
    sampler.has_room = false;
    let is_open = [2, 3].map(|now| match sampler.sample(&mut worker, now) {
        Outcome::Sample(sampled) => {
            assert_eq!(names(&sampler, sampled.stack.path), ["{main}", "text"]);
            sampled.is_open
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(is_open, [true, false]);
}
