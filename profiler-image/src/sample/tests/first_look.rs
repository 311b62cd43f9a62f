//! Samples whose first look shows other words than the later ones.

use std::ops::Range;

use phpprof_zend::site::Relation;
use phpprof_zend::testing::IS_NULL;
use phpprof_zend::zval::IS_OBJECT;

use super::super::*;
use super::{RESULT, Scene, names};
use crate::read::globals::Tops;
use crate::stack::call_tree::CallPath;
use crate::stack::edges::Edge;

/// An object that no other frame has.
const OBJECT: u64 = 0x7000;

/// The frame that a look shows differently.
#[derive(Clone, Copy)]
enum Whose {
    Callee,
    Caller,
}

/// Samples a call by `{main}`, and then a read whose first look shows other words at these offsets
/// of the frames.
fn sampled_with_a_first_look(scene: &Scene, words: &[(Whose, usize, u64)]) -> Vec<String> {
    followed_with_a_first_look(scene, words, MOST_UNWOUND).unwrap()
}

/// The same while the sample may unwind this many frames; `None` if no moment is whole.
fn followed_with_a_first_look(
    scene: &Scene,
    words: &[(Whose, usize, u64)],
    frames: usize,
) -> Option<Vec<String>> {
    let (mut sampler, mut worker, tops) = sampled(scene, Relation::Nothing);
    let callee = tops[0].current_execute_data;
    let copy = &mut worker.reader.copy;
    show(copy, callee, scene.main_frame, 0..1, words);
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.unwound = MOST_UNWOUND - frames;
    let (followed, _) = sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
    matches!(followed, Followed::Whole).then(|| names(&sampler, climb.path()))
}

/// A sampler that knows the scene's call by its check, a worker, and a read of it.
fn sampled(scene: &Scene, check: Relation) -> (StackSampler, Worker, Tops) {
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let TurnOutcome::Sample(sampled) = sampler.sample(&mut worker, 1) else {
        panic!("no sample")
    };
    let call = CallPath {
        check,
        ..CallPath::default()
    };
    sampler.tree.note(sampled.stack.path, call);
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    (sampler, worker, tops)
}

/// Puts words at these offsets of the callee's and its caller's frame in these looks.
fn show(
    copy: &mut Copy,
    callee: u64,
    caller: u64,
    looks: Range<usize>,
    words: &[(Whose, usize, u64)],
) {
    for &(whose, offset, value) in words {
        let frame = match whose {
            Whose::Callee => callee,
            Whose::Caller => caller,
        };
        let at = usize::try_from(frame - copy.hot).unwrap() + offset;
        for look in &mut copy.looks[looks.clone()] {
            look[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// The later looks show the word's call, but a later moment would favour calls that last longer.
#[test]
fn caller_of_a_call_being_made_is_leaf() {
    let scene = Scene::calling();
    let layout = scene.image.layout;
    let (row, kind) = (&layout.execute_data, &layout.call_info);
    let words = [
        // Any function that is known by now.
        (Whose::Callee, row.func, scene.main.func),
        (
            Whose::Callee,
            row.this_type_info,
            u64::from(kind.code) << kind.shift,
        ),
        (Whose::Callee, row.opline, scene.main.op(0)),
        (Whose::Caller, row.opline, scene.main.op(2)),
    ];
    assert_eq!(sampled_with_a_first_look(&scene, &words), ["{main}"]);
}

/// No word of the read leads to the callers in the first look; the later moments show which of them
/// stood.
#[test]
fn standing_callers_are_followed_if_the_frame_fails() {
    let scene = Scene::calling();
    let prev = scene.image.layout.execute_data.prev_execute_data;
    let words = [(Whose::Callee, prev, 0x10)];
    assert_eq!(sampled_with_a_first_look(&scene, &words), ["{main}"]);
    // A sample that may unwind no more while these are followed is not whole.
    for frames in 0..8 {
        let shown = followed_with_a_first_look(&scene, &words, frames);
        assert!(shown.is_none_or(|names| names == ["{main}"]), "{frames}");
    }
}

/// At an earlier op it has not made the call yet: what stands above it is left from another caller.
#[test]
fn caller_that_went_on_is_the_leaf() {
    let scene = Scene::calling();
    let opline = scene.image.layout.execute_data.opline;
    for (op, names_of) in [(2, &["{main}", "found"][..]), (0, &["{main}"])] {
        let words = [(Whose::Caller, opline, scene.main.op(op))];
        assert_eq!(sampled_with_a_first_look(&scene, &words), names_of);
    }
}

/// All looks show the later op, so none shows that the caller stood at the one that called.
#[test]
fn call_of_a_caller_that_went_on_falls() {
    let scene = Scene::calling();
    let opline = scene.image.layout.execute_data.opline;
    for (op, stands) in [(1, true), (2, false)] {
        let (mut sampler, mut worker, tops) = sampled(&scene, Relation::Nothing);
        let (callee, copy) = (tops[0].current_execute_data, &mut worker.reader.copy);
        let words = [(Whose::Caller, opline, scene.main.op(op))];
        let looks = 0..copy.looks.len();
        show(copy, callee, scene.main_frame, looks, &words);
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
        assert_eq!(names(&sampler, climb.path()), ["{main}", "found"]);
        (0..2).for_each(|_| sampler.count_calls(&worker, &trace, &climb));
        assert_eq!(sampler.tree.is_trusted(climb.path()), stands);
    }
}

/// The function of the ended call on the object of the next one, whose frame the later looks show.
/// Only a check by the object can be deceived.
#[test]
fn ended_methods_remains_are_no_leaf() {
    let scene = Scene::calling();
    let row = &scene.image.layout.execute_data;
    let variable = RESULT as usize;
    let words = [
        (Whose::Caller, row.opline, scene.main.op(2)),
        (Whose::Caller, variable, OBJECT),
        (Whose::Caller, variable + 8, u64::from(IS_OBJECT)),
        (Whose::Callee, row.this, OBJECT),
        (Whose::Callee, row.this_type_info, u64::from(IS_OBJECT)),
    ];
    for (check, names_of) in [
        (Relation::ThisIn(RESULT), &["{main}"][..]),
        (Relation::Nothing, &["{main}", "found"]),
    ] {
        let (mut sampler, mut worker, tops) = sampled(&scene, check);
        let (callee, copy) = (tops[0].current_execute_data, &mut worker.reader.copy);
        show(copy, callee, scene.main_frame, 0..1, &words);
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
        assert_eq!(names(&sampler, climb.path()), names_of, "{check:?}");
    }
}

/// As a magic method: from there on, no op refutes such a call.
#[test]
fn engines_caller_that_went_on_is_leaf() {
    let mut scene = Scene::new();
    scene.call("found", scene.image.layout.call_info.top);
    let (mut sampler, mut worker, mut tops) = sampled(&scene, Relation::Nothing);
    let opline = scene.image.layout.execute_data.opline;
    let gone_on = [(Whose::Caller, opline, scene.main.op(2))];
    let (callee, copy) = (tops[0].current_execute_data, &mut worker.reader.copy);
    show(copy, callee, scene.main_frame, 0..1, &gone_on);
    for top in &mut tops[1..] {
        top.current_execute_data = scene.main_frame;
    }
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
    assert_eq!(names(&sampler, climb.path()), ["{main}", "found"]);
    // If the later op is known to make this call as well, that is not a candidate: the stack is
    // whole without it.
    let mut name = |index: usize| {
        let id = trace.ids[index].unwrap();
        sampler.functions.name(id, index + 1 == trace.ids.len())
    };
    let later = Edge {
        site: (name(1), 2),
        via: None,
        callee: name(0),
    };
    sampler.edges.prove(later, Relation::Nothing);
    let (_, candidate) = sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
    assert_eq!(candidate, PathId::NONE);
    assert_eq!(names(&sampler, climb.path()), ["{main}", "found"]);
}

/// A function that cannot be read.
const OTHER: u64 = 0xdead_0000;

/// Whether a sample of a call that is open ends at its caller, if the first look shows these words,
/// and the others another function. Later moments show `{main}` alone. The first word is of a frame
/// so far above the callee's.
fn is_cut(
    scene: &Scene,
    words: &[(Whose, usize, u64)],
    without_quiescent_reads: bool,
    above: u64,
) -> bool {
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    assert!(matches!(
        sampler.sample(&mut worker, 1),
        TurnOutcome::Sample(_)
    ));
    // The functions are known, the calls are not, and nothing may be looked at again.
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    sampler.has_room = false;
    let outcome = sampler.sample(&mut worker, 1);
    assert!(matches!(outcome, TurnOutcome::Sample(sampled) if sampled.is_open));
    worker.reader.has_room = true;
    let Ok(Reading::Busy { mut tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    let (callee, copy) = (tops[0].current_execute_data, &mut worker.reader.copy);
    let looks = copy.looks.len();
    let func = scene.image.layout.execute_data.func;
    show(copy, callee, scene.main_frame, 0..1, words);
    let other = [(Whose::Callee, func, OTHER)];
    show(copy, callee, scene.main_frame, 1..looks, &other);
    for top in &mut tops[1..] {
        top.current_execute_data = scene.main_frame;
    }
    tops[0].current_execute_data += above;
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.is_without_quiescent_reads = without_quiescent_reads;
    let (followed, _) = sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
    assert_eq!(names(&sampler, climb.path()), ["{main}"]);
    matches!(followed, Followed::Part(_))
}

/// With them, it is proven soon, so a later moment costs it next to nothing.
#[test]
fn unproven_call_keeps_time_without_quiescent_reads() {
    let mut scene = Scene::new();
    scene.call("other", scene.image.layout.call_info.top);
    let row = &scene.image.layout.execute_data;
    let closure = u64::from(scene.image.layout.call_info.closure);
    let other = (Whose::Callee, row.func, OTHER);
    let is_closure = (Whose::Callee, row.this_type_info, closure);
    let gone_on = (Whose::Caller, row.opline, scene.main.op(2));
    // The call itself; its caller has gone on; a closure that has no name.
    for words in [&[][..], &[gone_on], &[other, is_closure]] {
        assert!(is_cut(&scene, words, true, 0));
        assert!(!is_cut(&scene, words, false, 0));
    }
    // A frame without a function is of no moment.
    assert!(!is_cut(&scene, &[other], true, 0));
}

/// The call is above the callers that a later word leads to.
#[test]
fn unproven_call_keeps_time_if_its_frame_ended() {
    let mut scene = Scene::new();
    scene.call("other", scene.image.layout.call_info.top);
    // Nothing is there.
    let above = scene.image.layout.execute_data.sizeof as u64;
    assert!(is_cut(&scene, &[], true, above));
    assert!(!is_cut(&scene, &[], false, above));
}

/// It stands in all looks, as nothing has been pushed over it yet.
#[test]
fn ended_method_of_another_object_is_no_leaf() {
    let scene = Scene::calling();
    let (mut sampler, mut worker, tops) = sampled(&scene, Relation::ThisIn(RESULT));
    let row = &scene.image.layout.execute_data;
    let variable = RESULT as usize;
    for (object, names_of) in [
        (OBJECT, &["{main}", "found"][..]),
        (OBJECT + 8, &["{main}"]),
    ] {
        let words = [
            (Whose::Caller, row.opline, scene.main.op(2)),
            (Whose::Caller, variable, object),
            (Whose::Caller, variable + 8, u64::from(IS_OBJECT)),
            (Whose::Callee, row.this, OBJECT),
            (Whose::Callee, row.this_type_info, u64::from(IS_OBJECT)),
        ];
        let (callee, copy) = (tops[0].current_execute_data, &mut worker.reader.copy);
        let looks = 0..copy.looks.len();
        show(copy, callee, scene.main_frame, looks, &words);
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
        assert_eq!(names(&sampler, climb.path()), names_of);
    }
}

/// That leaf is not in memory: between it and the word there are no frames to search.
#[test]
fn frameless_call_is_leaf_at_an_earlier_frame() {
    let mut scene = Scene::frameless("implode", IS_NULL);
    scene.call("text", scene.image.layout.call_info.top);
    let row = &scene.image.layout.execute_data;
    let words = [
        (Whose::Callee, row.prev_execute_data, scene.main_frame),
        (Whose::Callee, row.this_type_info, 0),
    ];
    assert_eq!(
        sampled_with_a_first_look(&scene, &words),
        ["{main}", "found", "implode"]
    );
}

/// What stands above the first word's frame can be left from a call that ended long ago.
#[test]
fn call_above_the_first_word_does_not_count() {
    let scene = Scene::calling();
    let (mut sampler, mut worker, mut tops) = sampled(&scene, Relation::Nothing);
    tops[0].current_execute_data = scene.main_frame;
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    let (followed, _) = sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
    assert!(matches!(followed, Followed::Whole));
    assert_eq!(names(&sampler, climb.path()), ["{main}"]);
}

/// The call is known, but not this call path, and the second look shows another caller.
#[test]
fn path_of_one_look_is_a_candidate() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let TurnOutcome::Sample(first) = sampler.sample(&mut worker, 1) else {
        panic!("no sample")
    };
    assert!(!first.is_open);
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    let func = scene.image.layout.execute_data.func;
    let another = [(Whose::Caller, func, scene.main.func + 8)];
    let callee = tops[0].current_execute_data;
    let mut of_main = tops.clone();
    for top in &mut of_main {
        top.current_execute_data = scene.main_frame;
    }
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.tree = CallTree::default();
    sampler.follow(&mut worker, &of_main, &mut trace, &mut climb, 2);
    assert_eq!(names(&sampler, climb.path()), ["{main}"]);
    let looks = worker.reader.copy.looks.len();
    show(
        &mut worker.reader.copy,
        callee,
        scene.main_frame,
        1..looks,
        &another,
    );
    let (_, candidate) = sampler.follow(&mut worker, &tops, &mut trace, &mut climb, 2);
    assert_eq!(names(&sampler, candidate), ["{main}", "found"]);
    let is_proven =
        |sampler: &StackSampler| sampler.tree.settle(&sampler.edges).is_proven(candidate);
    assert!(!is_proven(&sampler));
    let TurnOutcome::Sample(second) = sampler.sample(&mut worker, 3) else {
        panic!("no sample")
    };
    assert_eq!(second.stack.path, candidate);
    assert!(is_proven(&sampler));
}
