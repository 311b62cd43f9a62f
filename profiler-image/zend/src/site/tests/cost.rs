//! How many reads a call site's answer takes, once its ops and what leads to its inline cache were
//! read.

use super::*;
use crate::read_set::ReadSet;
use crate::testing::Counted;

fn check(scene: &mut Scene, expected: Evidence, reads: usize) {
    let layout = scene.image.layout;
    // As in a process, there is more memory behind each text.
    scene.image.room(0, 0x40_0000);
    let memory = Counted::new(&scene.image);
    let set = ReadSet::new(&memory);
    let (first, size) = (scene.code.op(0), layout.zend_op.sizeof);
    let ops = (scene.caller.opline - first) as usize + size;
    let cache = own_cache(layout, None, &scene.caller);
    set.fetch([(first, ops)].into_iter().chain(cache));
    scene.with_site_in(&set, |site| {
        let op = Op::read(&set, layout, scene.caller.opline).unwrap();
        assert_eq!(site.judge(Some(&op)), expected);
    });
    assert_eq!(memory.calls() - 1, reads, "{expected:?}");
}

/// The caller, whose function has the cache that its frame has.
fn with_own_cache(mut scene: Scene) -> Scene {
    let row = &scene.image.layout.function;
    let (func, offset) = (scene.code.func, row.run_time_cache);
    scene.image.put_word(func, offset, CACHE);
    scene.image.put_word(CACHE, 0, 1);
    scene
}

#[test]
fn cached_callee_takes_one_read_name_two() {
    let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
    let scene = |opcode: u8, literal: &str| {
        with_own_cache(Scene::new(layout, &[opcode, DO_FCALL], literal, "work"))
    };
    let proven = |check| Evidence::Proven(check, Words::Code);
    let method = || scene(INIT_METHOD_CALL, "work").method_of("C");
    check(
        &mut method().cached(8, CALLEE),
        proven(Relation::SameThis),
        1,
    );
    let function = || scene(INIT_FCALL_BY_NAME, "work");
    check(
        &mut function().cached(0, CALLEE),
        proven(Relation::Nothing),
        1,
    );
    check(&mut function(), proven(Relation::Nothing), 2);
    let other = || scene(INIT_FCALL_BY_NAME, "other");
    check(&mut other(), Evidence::Refuted, 2);
}
