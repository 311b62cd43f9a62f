//! Calls that only the first look shows: they count if their callers alone tell them.

use phpprof_zend::memory::word_at;
use phpprof_zend::site::Relation;
use phpprof_zend::site::Words::{Cache, Code};

use super::*;
use crate::read::globals::Tops;
use crate::sample::told::tells;

/// What other looks than the first show in place of a frame's function.
const OTHER: u64 = 0xdead_0000;

/// An engine whose `{main}` calls `found`, which calls the function of this name, at an op that
/// names `named`.
fn nested(named: &'static str, called: &str) -> Scene {
    let mut scene = Scene::new();
    let init = NewOp {
        opcode: INIT_FCALL,
        op2: Some(named),
        ..NewOp::default()
    };
    let ops = [init, DO_UCALL.into()];
    let found = scene.image.user(Some("found"), &ops);
    scene.image.call(found.func, found.op(1), 0);
    scene.call(called, 0);
    scene
}

/// A read, and a sampler that knows the functions, but not the calls.
fn read(scene: &Scene) -> (StackSampler, Worker, Tops) {
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    assert!(matches!(
        sampler.sample(&mut worker, 1),
        TurnOutcome::Sample(_)
    ));
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    sampler.asked = 0;
    sampler.standing.begin(false);
    (sampler, worker, tops)
}

/// The frames of the first moment from `{main}` on that are followed if the other looks show the
/// upper `moved` frames as other calls.
fn followed_frames(scene: &Scene, moved: usize) -> usize {
    let (mut sampler, mut worker, tops) = read(scene);
    let (layout, copy) = (scene.image.layout, &mut worker.reader.copy);
    let mut frame = tops[0].current_execute_data;
    for _ in 0..moved {
        let at = usize::try_from(frame - copy.hot).unwrap();
        frame = frame_at(layout, copy.hot, &copy.looks[0], frame)
            .unwrap()
            .prev;
        let func = at + layout.execute_data.func;
        for look in &mut copy.looks[1..] {
            look[func..func + 8].copy_from_slice(&OTHER.to_le_bytes());
        }
    }
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.follow_one(
        &mut worker,
        &tops,
        MomentIndex::FIRST,
        &mut trace,
        &mut climb,
        1,
    );
    assert_eq!(trace.frames.len(), 3);
    assert!(climb.open.is_empty());
    climb.proven()
}

#[test]
fn call_named_by_caller_needs_no_second_look() {
    let scene = nested("text", "text");
    assert_eq!([0, 1].map(|moved| followed_frames(&scene, moved)), [3; 2]);
}

/// Its frame can have the op that an earlier call of the same function left there, from another
/// caller.
#[test]
fn a_caller_that_has_not_stood_tells_nothing() {
    assert_eq!(followed_frames(&nested("text", "text"), 2), 2);
}

#[test]
fn no_caller_tells_a_call_of_another_function() {
    let scene = nested("text", "other");
    assert_eq!([1, 2].map(|moved| followed_frames(&scene, moved)), [2; 2]);
}

/// `{main}` itself may be another call by then.
#[test]
fn nothing_is_told_above_a_fallen_stack() {
    assert_eq!(followed_frames(&nested("text", "text"), 3), 0);
}

#[test]
fn caller_tells_named_calls_and_own_methods() {
    let told = |words| [Relation::Nothing, Relation::SameThis].map(|check| tells(check, words));
    assert_eq!(told(Code), [true; 2]);
    assert_eq!(told(Cache), [false, true]);
}

/// Whether a call stands if these looks show its caller at another op.
fn stands(looks: &[usize]) -> bool {
    let scene = nested("text", "text");
    let (mut sampler, mut worker, tops) = read(&scene);
    let (layout, copy) = (scene.image.layout, &mut worker.reader.copy);
    let callee = frame_at(
        layout,
        copy.hot,
        &copy.looks[0],
        tops[0].current_execute_data,
    );
    let opline = callee.unwrap().prev - copy.hot + layout.execute_data.opline as u64;
    let at = usize::try_from(opline).unwrap();
    for &look in looks {
        // The op before the call.
        let before = word_at(&copy.looks[look], at) - layout.zend_op.sizeof as u64;
        copy.looks[look][at..at + 8].copy_from_slice(&before.to_le_bytes());
    }
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.follow_one(
        &mut worker,
        &tops,
        MomentIndex::FIRST,
        &mut trace,
        &mut climb,
        1,
    );
    assert_eq!(names(&sampler, climb.path()), ["{main}", "found", "text"]);
    (0..3).for_each(|_| sampler.count_calls(&worker, &trace, &climb));
    sampler.tree.is_trusted(climb.path())
}

/// The op can be that of an earlier call, from another caller.
#[test]
fn call_stands_if_two_looks_show_its_caller() {
    assert!(stands(&[]));
    assert!(!stands(&[1, 2, 3]));
    assert!(!stands(&[1, 3]));
    assert!(stands(&[2, 3]));
    assert!(stands(&[1]));
}

#[test]
fn a_quiescent_read_trusts_its_calls() {
    let scene = nested("text", "text");
    let (mut sampler, mut worker, tops) = read(&scene);
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.follow_one(
        &mut worker,
        &tops,
        MomentIndex::FIRST,
        &mut trace,
        &mut climb,
        1,
    );
    let paths = [1, 2, 3].map(|frames| climb.path_of(frames));
    let trusted = |sampler: &StackSampler| paths.map(|path| sampler.tree.is_trusted(path));
    assert_eq!(trusted(&sampler), [false; 3]);
    sampler.trust_calls(&worker, &trace);
    assert_eq!(trusted(&sampler), [true; 3]);
}

#[test]
fn code_of_the_jit_tells_no_calls() {
    let scene = nested("text", "text").with_jit(32);
    assert_eq!([1, 2].map(|moved| followed_frames(&scene, moved)), [2, 1]);
}
