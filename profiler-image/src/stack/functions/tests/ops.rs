//! How much is read and remembered of the ops of large functions.

use super::*;

/// The ops that all functions of these tests share.
const OPS: u64 = 0x50_0000;
/// The most ops that are read at once, and their bytes.
const MOST: u32 = 1 << 16;
const MOST_BYTES: u64 = 2 << 20;

/// Puts a function with this many ops into the memory; returns its frame.
fn put_large(memory: &mut EngineImage, number: u64, last: u32, scope: u64) -> Frame {
    let frame = put(memory, number, &format!("f{number}"), true);
    let key = FunctionKey {
        code: OPS,
        last,
        kind: 2,
        name: STRINGS + number * 0x100,
        scope,
        filename: FILE,
        ..FunctionKey::default()
    };
    memory.put_function(frame.func, &key);
    Frame {
        opline: OPS,
        ..frame
    }
}

/// Identifies the frames as the next sample does: how many have a name, and how many bytes are read
/// for that.
fn identified(
    codes: &mut Functions,
    memory: &EngineImage,
    maps: &mut Maps,
    frames: &[Frame],
) -> (usize, usize) {
    let counted = Counted::new(memory);
    let mut place = place_in(&counted, memory, &mut maps.shared, &mut maps.local);
    let mut ids = Vec::new();
    // In tests all functions have so little memory that the next sample would forget these.
    codes.refused.clear();
    codes.ops_read = 0;
    codes.identify(&mut place, frames, &mut ids, |_, _| stands(frames.len()));
    (ids.iter().flatten().count(), counted.bytes())
}

/// Many functions that share a few megabytes of ops must not cost many times as much.
#[test]
fn long_functions_are_read_over_several_samples() {
    for has_class in [false, true] {
        let (mut codes, mut maps, mut memory) = nothing_known();
        memory.room(OPS, MOST_BYTES);
        let scope = if has_class { memory.class("Cart") } else { 0 };
        let frames: Vec<_> = (1..6)
            .map(|number| put_large(&mut memory, number, MOST, scope))
            .collect();
        for expected in 1..=frames.len() {
            let (named, bytes) = identified(&mut codes, &memory, &mut maps, &frames);
            assert_eq!(named, expected, "{has_class}");
            assert!(bytes < MOST_BYTES as usize + (64 << 10), "{bytes}");
        }
    }
}

#[test]
fn ordinary_stack_is_read_in_one_sample() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    memory.room(OPS, MOST_BYTES);
    let frames: Vec<_> = (1..=MAX_RESOLVED as u64)
        .map(|number| put_large(&mut memory, number, 500, 0))
        .collect();
    let (named, _) = identified(&mut codes, &memory, &mut maps, &frames);
    assert_eq!(named, MAX_RESOLVED);
}
