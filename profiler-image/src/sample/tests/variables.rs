//! Proofs by a variable of the caller: a closure whose code other code may replace, and variables
//! below the looks.

use phpprof_zend::op::{INIT_DYNAMIC_CALL, Op};
use phpprof_zend::site::{Evidence, Words};
use phpprof_zend::zval::IS_OBJECT;

use super::*;

/// `found` calls the closure in its variable.
fn scene() -> Scene {
    /// `zend_closure.func` (Zend/zend_closures.c).
    const FUNCTION: u64 = 56;
    let mut scene = Scene::new();
    let image = &mut scene.image;
    let layout = image.layout;
    let found = image.user(Some("found"), &[INIT_DYNAMIC_CALL.into(), DO_UCALL.into()]);
    let init = Op {
        op2: RESULT,
        op2_type: layout.op_types.is_cv,
        ..Op::read(image, layout, found.op(0)).unwrap()
    };
    image.put_op(&init);
    let frame = image.call(found.func, found.op(1), 0);
    let closure = image.user(Some("{closure}"), &[DO_UCALL.into()]);
    let mut key = image.function_at(closure.func).unwrap().key;
    key.passing = true;
    image.put_function(closure.func, &key);
    image.put_zval(
        frame + u64::from(RESULT),
        closure.func - FUNCTION,
        IS_OBJECT,
    );
    image.call(closure.func, closure.op(0), layout.call_info.closure);
    scene
}

/// Checks whether the variable names the closure, above which there are this many frames, if the
/// frames up to this one have stood since.
#[track_caller]
fn check_named(scene: &Scene, closure: usize, stood: &[(usize, bool)]) {
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.standing.begin(true);
    sampler.follow_one(
        &mut worker,
        &tops,
        MomentIndex::FIRST,
        &mut trace,
        &mut climb,
        1,
    );
    let callee = sampler.functions.name(trace.ids[closure].unwrap(), false);
    let edge = sampler.edge_at(&trace, closure, None, callee).unwrap();
    for &(above, is_named) in stood {
        trace.stands_since = Some(Stand { below: 0, above });
        let answer = sampler.ask(&worker, &trace, closure, edge).unwrap();
        let evidence = answer.evidence;
        let is_proven = matches!(evidence, Evidence::Proven(_, Words::Operand(_)));
        assert_eq!(is_proven, is_named, "{above}: {evidence:?}");
    }
}

#[test]
fn variable_names_closure_if_its_frame_stood() {
    let mut scene = scene();
    // As a leaf, it has no opline of its own.
    check_named(&scene, 0, &[(3, true), (2, false), (0, false)]);
    scene.call("text", 0);
    check_named(&scene, 1, &[(4, true), (3, true), (2, false), (0, false)]);
}

#[test]
fn variable_below_the_looks_is_of_its_call() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (_, trace) = followed(&scene, &mut sampler, &mut worker);
    let (callee, row) = (trace.frames[0].address, scene.image.layout);
    let words = site::Words::Operand(trace.frames[1].address);
    // The looks show other words there, and nothing may be looked at again.
    worker
        .reader
        .copy
        .looks
        .iter_mut()
        .for_each(|look| look.fill(1));
    sampler.standing.begin(false);
    let above = callee + row.execute_data.sizeof as u64;
    for (hot, expected) in [(above, true), (above - 1, false), (callee, false)] {
        worker.reader.copy.hot = hot;
        let is_one = sampler.is_one_moment(&worker, &trace, 0, words);
        assert_eq!(is_one, expected, "{hot:#x}");
    }
}
