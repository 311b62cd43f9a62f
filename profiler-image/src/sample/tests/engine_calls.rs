//! Calls that the engine makes itself: of autoloaders, and of the first frame of a stack.

use phpprof_zend::op::INIT_DYNAMIC_CALL;
use phpprof_zend::zval::IS_OBJECT;

use super::*;
use crate::read::globals::Tops;

/// A sampler that knows the functions of the scene and none of their calls, a worker, and a read of
/// it.
fn named(scene: &Scene) -> (StackSampler, Worker, Tops) {
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    assert!(matches!(
        sampler.sample(&mut worker, 1),
        TurnOutcome::Sample(_)
    ));
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    (sampler, worker, tops)
}

/// `$f()` looks up the class of `'A::m'`. Nothing may be looked at again.
#[test]
fn calling_op_may_call_an_autoloader() {
    for (opcode, is_open) in [(INIT_DYNAMIC_CALL, false), (INIT_FCALL, true)] {
        let mut scene = Scene::new();
        let top = scene.image.layout.call_info.top;
        let found = scene.image.user(Some("found"), &[opcode.into()]);
        scene.image.call(found.func, found.op(0), 0);
        scene.call("load", top);
        let (mut sampler, mut worker, tops) = named(&scene);
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        let mut follow = |sampler: &mut StackSampler| {
            sampler.standing.begin(false);
            sampler.follow_one(
                &mut worker,
                &tops,
                MomentIndex::FIRST,
                &mut trace,
                &mut climb,
                1,
            );
            (trace.ids[0], climb.open.len())
        };
        let (load, open) = follow(&mut sampler);
        assert_eq!(open, 1, "{opcode}: no autoloader is known");
        let load = sampler.functions.name(load.unwrap(), false);
        (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
        sampler.edges.note_autoloader(load);
        assert_eq!(follow(&mut sampler).1, usize::from(is_open), "{opcode}");
    }
}

/// As a shutdown function. Nothing may be looked at again.
#[test]
fn engine_calls_only_the_first_frame() {
    for (offset, is_open) in [(0x20, false), (0x30, true)] {
        let mut scene = Scene::new();
        let image = &mut scene.image;
        let (page, top) = (image.page, image.layout.call_info.top);
        let ends = image.user(Some("ends"), &[DO_UCALL.into()]);
        image.put_frame(&Frame {
            address: page + offset,
            func: ends.func,
            opline: ends.op(0),
            call_info: top,
            ..Frame::default()
        });
        image.put_top(page + offset);
        let (mut sampler, mut worker, tops) = named(&scene);
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        sampler.standing.begin(false);
        sampler.follow_one(
            &mut worker,
            &tops,
            MomentIndex::FIRST,
            &mut trace,
            &mut climb,
            1,
        );
        assert!(climb.is_whole);
        assert_eq!(climb.open.len(), usize::from(is_open), "{offset:#x}");
    }
}

/// What it has left stands until its memory is used again, below any other resumer.
#[test]
fn open_generators_resumer_is_asked_each_sample() {
    // Zend/zend_vm_opcodes.h.
    const FE_FETCH_R: u8 = 78;
    const OPERAND: u32 = 112;
    let mut scene = Scene::new();
    let layout = scene.image.layout;
    let image = &mut scene.image;
    let kind = &layout.call_info;
    let found = image.user(Some("found"), &[FE_FETCH_R.into()]);
    image.put_half(found.op(0), layout.zend_op.op1, OPERAND);
    let found_frame = image.call(found.func, found.op(0), 0);
    let body = image.user(Some("body"), &[RETURN.into()]);
    let frame = image.call(body.func, body.op(0), kind.top | kind.generator);
    let (generator, iterator) = (image.block(), image.block());
    image.put_word(frame, layout.execute_data.return_value, generator);
    image.put_word(generator, layout.generator.execute_data, frame);
    let (mut sampler, mut worker, tops) = named(&scene);
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    let mut follow = |sampler: &mut StackSampler, worker: &mut Worker, tops: &Tops| {
        sampler.standing.begin(false);
        sampler.asked = 0;
        sampler.follow_one(worker, tops, MomentIndex::FIRST, &mut trace, &mut climb, 1);
        (climb.open.len(), climb.is_refuted)
    };
    for _ in 0..1000 {
        assert_eq!(follow(&mut sampler, &mut worker, &tops), (1, false));
    }
    // The caller iterates another generator by now.
    let operand = found_frame + u64::from(OPERAND);
    scene.image.put_zval(operand, iterator, IS_OBJECT);
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    for _ in 0..3 {
        assert_eq!(follow(&mut sampler, &mut worker, &tops), (0, true));
    }
}
