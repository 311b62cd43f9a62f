//! What a look at frames costs, and what it may name.

use super::*;

/// Whether a function of this name is named, and the calls until its frame has been looked at and
/// in all.
fn identified(name: &str) -> (bool, usize, usize) {
    let (mut codes, mut maps, mut image) = nothing_known();
    let frame = put(&mut image, 1, name, true);
    let memory = Counted::new(&image);
    let mut place = place_in(&memory, &image, &mut maps.shared, &mut maps.local);
    let (mut ids, mut looked) = (Vec::new(), 0);
    codes.identify(&mut place, &[frame], &mut ids, |_, gather| {
        let mut word = [0; 8];
        let address = frame.address;
        let bytes = &mut word;
        assert_eq!(gather(&mut [Piece { address, bytes }]), Ok(()));
        looked = memory.calls();
        stands(1)
    });
    (ids[0].is_some(), looked, memory.calls())
}

#[test]
fn look_is_in_the_gather_of_texts() {
    assert_eq!(identified("total"), (true, 2, 2));
}

#[test]
fn text_continued_after_the_look_names_nothing() {
    let (is_named, _, calls) = identified(&"n".repeat(STRING_HEAD + 1));
    assert!(!is_named && calls > 2, "{calls}");
}
