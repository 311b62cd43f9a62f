//! Targets that write anything where their engine is.
//!
//! Invariant: no memory makes a sample panic, unwind more frames than its bound, or name more than
//! a stack can have.

use proptest::collection::vec;
use proptest::prelude::*;

use phpprof_zend::unwind::MAX_FRAMES;

use super::*;
use crate::sample::frameless::MAX_ABSENT;

/// A word that a target writes.
#[derive(Debug, Clone, Copy)]
enum Word {
    /// This number.
    Number(u64),
    /// The address of the nth word of the engine.
    Address(usize),
    /// What the nth word of the engine is.
    Copied(usize),
}

fn any_word() -> impl Strategy<Value = Word> {
    prop_oneof![
        any::<u64>().prop_map(Word::Number),
        (0..0x200_u64).prop_map(Word::Number),
        any::<usize>().prop_map(Word::Address),
        any::<usize>().prop_map(Word::Copied),
    ]
}

/// `{main}` calls `found`, which calls a function without a frame; that calls `text` back, which
/// calls `inner`.
fn engine() -> Scene {
    let mut scene = Scene::frameless("implode", IS_NULL);
    scene.call("text", scene.image.layout.call_info.top);
    scene.call("inner", 0);
    scene.serve("GET", "/", "/srv/a.php");
    scene
}

/// The addresses of all words that are not zero, which lead to others or say how many there are,
/// and of the word after each.
fn words(image: &EngineImage) -> Vec<u64> {
    let mut words: Vec<u64> = image
        .bytes()
        .filter(|&(_, byte)| byte != 0)
        .map(|(address, _)| address & !7)
        .flat_map(|address| [address, address + 8])
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn samples_keep_bounds_on_hostile_memory(
        writes in vec((any::<usize>(), any_word()), 1..48)
    ) {
        let mut scene = engine();
        let words = words(&scene.image);
        let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
        for (now, (at, word)) in (1..).zip(writes) {
            let nth = |index: usize| words[index % words.len()];
            let value = match word {
                Word::Number(number) => number,
                Word::Address(index) => nth(index),
                Word::Copied(index) => scene.image.word(nth(index)).unwrap_or(0),
            };
            scene.image.put_word(nth(at), 0, value);
            let outcome = sampler.sample(&mut worker, now * 1_000_000_000);
            prop_assert!(sampler.unwound < MOST_UNWOUND + MAX_FRAMES);
            if let TurnOutcome::Sample(SampledStack { stack, .. }) = outcome {
                let names = names(&sampler, stack.path);
                prop_assert!(names.len() <= MAX_FRAMES + MAX_ABSENT, "{}", names.len());
            }
        }
    }
}
