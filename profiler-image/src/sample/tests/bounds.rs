//! Stacks that are so deep, or of such calls, that a sample shows only a part of them.

use phpprof_zend::unwind::{Frame, UnwindEnd};

use super::*;

/// The distance between frames: the result of a frame's op lies right above its header.
const APART: u64 = RESULT as u64;

/// Puts frames of one function onto each other, the first one at `at` with `prev` as its caller;
/// returns the last one's address.
fn pile(
    image: &mut EngineImage,
    at: u64,
    prev: u64,
    count: u64,
    function: UserFunction,
    op: u64,
    call_info: u32,
) -> u64 {
    for index in 0..count {
        let address = at + index * APART;
        image.put_frame(&Frame {
            address,
            func: function.func,
            opline: function.op(op),
            prev: if index == 0 { prev } else { address - APART },
            call_info,
            ..Frame::default()
        });
    }
    at + (count - 1) * APART
}

/// The end of a sample, the names of its path, and how many frames were unwound for it.
fn sampled(scene: &Scene) -> (Ending, Vec<String>, usize) {
    let mut sampler = StackSampler::new();
    let TurnOutcome::Sample(SampledStack { stack, .. }) = sampler.sample(&mut scene.worker(), 1)
    else {
        panic!("no sample")
    };
    let names = names(&sampler, stack.path);
    (stack.ending, names, sampler.unwound)
}

/// `found` calls `text`, which calls itself this many times on the same page; also the address of
/// its first frame.
fn piled(count: u64) -> (Scene, u64) {
    let mut scene = Scene::frameless("implode", IS_NULL);
    let image = &mut scene.image;
    let call = NewOp {
        opcode: FRAMELESS_ICALL_2,
        result: RESULT,
        extended_value: NUMBER,
        ..NewOp::default()
    };
    let text = image.user(Some("text"), &[call]);
    let found = image.top;
    let info = image.layout.call_info.top;
    let last = pile(image, found + 0x100, found, count, text, 0, info);
    image.put_top(last);
    let row = &image.layout.executor_globals;
    image.put_word(image.executor_globals, row.vm_stack_top, last + 0x100);
    (scene, found + 0x100)
}

#[test]
fn frameless_calls_are_known_up_to_64() {
    for count in [63, 64, 100] {
        let (scene, _) = piled(count);
        let (ending, names, _) = sampled(&scene);
        let is_whole = count <= 64;
        assert_eq!(ending == Ending::Whole, is_whole, "{count}");
        let calls = usize::try_from(count.min(64)).unwrap();
        let expected = [vec!["{main}", "found"], ["implode", "text"].repeat(calls)].concat();
        assert_eq!(names, expected, "{count}");
    }
}

/// The part below the looks is read between the second and the third.
#[test]
fn deep_moment_needs_its_lowest_call_to_stand() {
    let (scene, first) = piled(60);
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    let hot = worker.reader.copy.hot;
    let lowest = (first..)
        .step_by(RESULT as usize)
        .find(|address| *address >= hot)
        .unwrap();
    assert!(lowest > first, "a part is below the looks");
    let variable = usize::try_from(lowest - hot + APART - 1).unwrap();
    for (changed, moment, expected) in [
        (3, (0, 0), UnwindEnd::Root),
        (3, (2, 3), UnwindEnd::Torn),
        (2, (0, 0), UnwindEnd::Torn),
        (1, (0, 0), UnwindEnd::Torn),
        (0, (1, 1), UnwindEnd::Root),
    ] {
        let (top, look) = moment;
        worker.reader.copy.looks[changed][variable] ^= 1;
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        sampler.follow_one(
            &mut worker,
            &tops,
            MomentIndex { top, look },
            &mut trace,
            &mut climb,
            1,
        );
        assert_eq!(trace.end, expected, "look {changed}, moment {moment:?}");
        worker.reader.copy.looks[changed][variable] ^= 1;
    }
}

/// `{main}` calls `found`, which calls itself, all on an older page of the VM stack. The top frame
/// was not called by it.
fn deep(calls: u64) -> Scene {
    let mut scene = Scene::new();
    let image = &mut scene.image;
    let init = NewOp {
        opcode: INIT_FCALL,
        op2: Some("found"),
        ..NewOp::default()
    };
    let found = image.user(Some("found"), &[init, DO_UCALL.into()]);
    let text = image.user(Some("text"), &[DO_UCALL.into()]);
    let older = image.block();
    // Blocks follow each other.
    (0..(calls + 4) * APART / BLOCK + 2).for_each(|_| _ = image.block());
    image.put_word(image.page, image.layout.vm_stack_prev, older);
    let root = older + 0x100;
    let kind = &image.layout.call_info;
    pile(image, root, 0, 1, scene.main, 1, kind.top | kind.code);
    let last = pile(image, root + APART, root, calls, found, 1, 0);
    pile(image, scene.main_frame, last, 1, text, 0, 0);
    image.put_top(scene.main_frame);
    scene
}

#[test]
fn sample_unwinds_bounded_frames_and_keeps_proofs() {
    let calls = 600;
    let (ending, names, unwound) = sampled(&deep(calls as u64));
    assert_eq!((ending, names.len()), (Ending::Cut, calls + 1));
    assert!(names[1..].iter().all(|name| name == "found"));
    let frames = calls + 2;
    assert!(
        (MOST_UNWOUND..MOST_UNWOUND + frames).contains(&unwound),
        "{unwound}"
    );
}
