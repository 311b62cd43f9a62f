//! What it costs to identify functions that are known, and that they are known again.

use super::relinked::put_linked;
use super::*;

type Ids = Vec<Option<FunctionId>>;

/// Identifies the frames as a sample does: their ids, and the calls that it makes.
fn identified(
    codes: &mut Functions,
    image: &EngineImage,
    maps: &mut Maps,
    frames: &[Frame],
) -> (Ids, usize) {
    counted(image, maps, |place, ids| {
        codes.identify(place, frames, ids, |_, gather| {
            assert_eq!(gather(&mut []), Ok(()));
            stands(frames.len())
        });
    })
}

/// The same by the keys that a quiescent read has read with the frames.
fn identified_by_keys(
    codes: &mut Functions,
    image: &EngineImage,
    maps: &mut Maps,
    frames: &[Frame],
) -> (Ids, usize) {
    let key_at = |frame: &Frame| {
        let mut head = [0; HEAD];
        image.read(frame.func, &mut head).ok()?;
        FunctionKey::parse(image.layout, &head)
    };
    let keys: Vec<_> = frames.iter().map(key_at).collect();
    counted(image, maps, |place, ids| {
        codes.identify_keys(place, frames, &keys, ids)
    })
}

/// The ids that are found in the image, and the calls that reach it.
fn counted(
    image: &EngineImage,
    maps: &mut Maps,
    identify: impl FnOnce(&mut StackPlace<'_, Counted<'_, EngineImage>>, &mut Ids),
) -> (Ids, usize) {
    let memory = Counted::new(image);
    let mut ids = Vec::new();
    identify(
        &mut place_in(&memory, image, &mut maps.shared, &mut maps.local),
        &mut ids,
    );
    (ids, memory.calls())
}

#[test]
fn quiescent_read_is_free_for_trusted_functions() {
    let (mut codes, mut maps, mut image) = nothing_known();
    let frames = [
        put(&mut image, 1, "array_map", false),
        put(&mut image, 2, "total", true),
    ];
    let (ids, _) = identified(&mut codes, &image, &mut maps, &frames);
    assert!(ids.iter().all(Option::is_some));
    assert_eq!(
        identified_by_keys(&mut codes, &image, &mut maps, &frames),
        (ids, 0)
    );
}

#[test]
fn quiescent_read_distrusts_another_key() {
    let (mut codes, mut maps, mut image) = nothing_known();
    let frames = [put(&mut image, 1, "array_map", false)];
    let (known, _) = identified(&mut codes, &image, &mut maps, &frames);
    let other = put(&mut image, 2, "usort", false);
    let mut key = [0; HEAD];
    image.read(other.func, &mut key).unwrap();
    image.put(frames[0].func, &key);
    let (ids, _) = identified_by_keys(&mut codes, &image, &mut maps, &frames);
    assert!(ids[0].is_some() && ids != known);
}

#[test]
fn quiescent_read_knows_relinked_methods() {
    let (mut codes, mut maps, mut image) = nothing_known();
    let cart = SHARED.start + 0x9000;
    let first = put_linked(&mut image, FUNCTIONS, STRINGS, cart, "Cart");
    let (ids, _) = identified(&mut codes, &image, &mut maps, &[first]);
    codes.forget(&mut maps.local);
    let again = put_linked(
        &mut image,
        FUNCTIONS + 0x1000,
        STRINGS + 0x1000,
        cart,
        "Cart",
    );
    assert_eq!(
        identified_by_keys(&mut codes, &image, &mut maps, &[again]).0,
        ids
    );
}

/// The engine has not computed the hash of the file's name.
#[test]
fn evaled_code_is_known_again_by_one_read() {
    let (mut codes, mut maps, mut image) = nothing_known();
    let mut frame = put(&mut image, 2, "", true);
    frame.call_info = image.layout.call_info.code;
    let row = &image.layout.function;
    let (name, kind) = (row.function_name, row.type_);
    image.put_word(frame.func, name, 0);
    // ZEND_EVAL_CODE
    image.put_byte(frame.func, kind, 4);
    image.put_top(frame.address);
    image.put_string(FILE, format!("/{}.php(1) : eval()'d code", "d".repeat(80)));
    image.put_word(FILE, image.layout.zend_string.h, 0);
    let (ids, _) = identified(&mut codes, &image, &mut maps, &[frame]);
    assert!(ids[0].is_some());
    assert_eq!(
        identified(&mut codes, &image, &mut maps, &[frame]),
        (ids, 1)
    );
}
