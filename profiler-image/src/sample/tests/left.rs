//! Calls by a name that was freed before the call.

use phpprof_zend::op::{INIT_DYNAMIC_CALL, Op};
use phpprof_zend::zval::IS_STRING;

use super::*;

const OPERAND: u32 = 144;
const IS_VAR: u8 = 4;

/// `{main}` calls `text` by a name in a temporary, which was freed.
fn freed() -> Scene {
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
    // Where the heap has put its pointers to the next free block of 32 bytes.
    let (next, shadow) = (0, 24);
    scene.image.put_word(name, next, name + 0x40);
    scene.image.put_word(name, shadow, name + 0x40);
    let operand = scene.main_frame + u64::from(OPERAND);
    scene.image.put_zval(operand, name, IS_STRING);
    scene.image.block();
    scene.call("text", 0);
    scene
}

#[test]
fn freed_name_read_with_looks_proves_the_call() {
    let scene = freed();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    assert!(matches!(
        sampler.sample(&mut worker, 1),
        TurnOutcome::Sample(_)
    ));
    // The functions are known, the calls are not, and nothing may be looked at again.
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    worker.reader = scene.worker().reader;
    sampler.has_room = false;
    let is_open = [2, 3].map(|now| match sampler.sample(&mut worker, now) {
        TurnOutcome::Sample(sampled) => {
            assert_eq!(names(&sampler, sampled.stack.path), ["{main}", "text"]);
            sampled.is_open
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(is_open, [true, false]);
}

/// A caller that did not stand may have had the temporary for another op.
#[test]
fn freed_name_needs_a_standing_caller() {
    for (together, expected) in [
        (1, Some(EdgeKnowledge::Proven(site::Relation::Nothing))),
        (0, None),
    ] {
        let scene = freed();
        let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
        _ = followed(&scene, &mut sampler, &mut worker);
        // The site was asked, so this read takes the name with its looks.
        let (_, mut trace) = followed(&scene, &mut sampler, &mut worker);
        let [main, text] = [1, 0].map(|index| {
            let id = trace.ids[index].unwrap();
            sampler.functions.name(id, index == 1)
        });
        let edge = sampler.edge_at(&trace, 0, Some((main, 1)), text).unwrap();
        sampler.edges = Edges::default();
        trace.together = together;
        assert!(!sampler.denies(&worker, &trace, 0, edge));
        assert_eq!(sampler.edges.known(&edge), expected);
        let answer = sampler.ask(&worker, &trace, 0, edge).unwrap();
        let site::Evidence::Proven(_, words @ site::Words::Temporary(_)) = answer.evidence else {
            panic!("{answer:?}")
        };
        assert!(sampler.is_one_moment(&worker, &trace, 0, words));
    }
}

/// Other words may be in the temporary by now: the JIT's code does not always write to it.
#[test]
fn temporary_name_needs_its_moment_under_jit() {
    for (code, expected) in [(0, true), (32, false)] {
        let mut scene = Scene::calling().with_jit(code);
        let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
        let (_, mut trace) = followed(&scene, &mut sampler, &mut worker);
        let main = scene.main_frame;
        // Nothing shows that the call stood, and it ends.
        trace.stood = 0;
        scene.image.put_top(main);
        sampler.standing.begin(true);
        let words = site::Words::Temporary(main + u64::from(RESULT));
        let is_one = sampler.is_one_moment(&worker, &trace, 0, words);
        assert_eq!(is_one, expected, "{code}");
    }
}
