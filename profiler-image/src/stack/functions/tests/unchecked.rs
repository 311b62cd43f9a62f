//! Names that no rule of PHP's hash confirms.

use phpprof_zend::string_hash::{HighByteRule, hash_of};

use super::*;

/// The name that a sample at this time finds for a frame.
fn named_at(
    codes: &mut Functions,
    memory: &EngineImage,
    maps: &mut Maps,
    frame: Frame,
    now: u64,
) -> String {
    let mut ids = Vec::new();
    let mut place = place(memory, &mut maps.shared, &mut maps.local);
    place.now = now;
    codes.begin();
    codes.identify(&mut place, &[frame], &mut ids, |_, gather| {
        gather(&mut []).unwrap();
        stands(1)
    });
    ids[0].map_or_else(String::new, |id| {
        let name = codes.name(id, false);
        codes.names.get(name).name.to_string()
    })
}

fn put_hash(memory: &mut EngineImage, frame: u64, hash: u64) {
    let at = STRINGS + frame * 0x100;
    memory.put_word(at, memory.layout.zend_string.h, hash);
}

#[test]
fn name_is_known_at_once_by_each_rule() {
    let name = "Größe der Körbe";
    for rule in HighByteRule::ALL {
        let (mut codes, mut maps, mut memory) = nothing_known();
        let frame = put(&mut memory, 1, name, true);
        put_hash(&mut memory, 1, rule.hash(name.as_bytes()));
        let found = named_at(&mut codes, &memory, &mut maps, frame, 1);
        assert_eq!((found.as_str(), codes.unchecked_names()), (name, 0));
        assert!(!codes.has_refused_name());
    }
}

#[test]
fn name_without_rule_is_known_second_and_counted() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "été", true);
    put_hash(&mut memory, 1, 7);
    for (now, expected) in [(1, ""), (1, ""), (2, "été"), (3, "été")] {
        let found = named_at(&mut codes, &memory, &mut maps, frame, now);
        assert_eq!(found, expected, "{now}");
        assert_eq!(codes.has_refused_name(), expected.is_empty());
    }
    assert_eq!(codes.unchecked_names(), 1);
}

#[test]
fn a_name_that_changed_since_waits_again() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "one", true);
    put_hash(&mut memory, 1, 7);
    assert_eq!(named_at(&mut codes, &memory, &mut maps, frame, 1), "");
    let changes: [(&str, u64); 3] = [("two", 7), ("two", 8), ("six", 8)];
    for (now, (text, hash)) in (2..).zip(changes) {
        memory.put_string(STRINGS + 0x100, text);
        put_hash(&mut memory, 1, hash);
        assert_eq!(named_at(&mut codes, &memory, &mut maps, frame, now), "");
    }
    // Its own hash needs no second moment.
    put_hash(&mut memory, 1, hash_of(b"six"));
    assert_eq!(named_at(&mut codes, &memory, &mut maps, frame, 9), "six");
    assert_eq!(codes.unchecked_names(), 0);
}

#[test]
fn a_name_by_no_rule_needs_its_frame() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "one", true);
    put_hash(&mut memory, 1, 7);
    assert_eq!(named_at(&mut codes, &memory, &mut maps, frame, 1), "");
    memory.put_frame(&Frame {
        opline: 0,
        func: FUNCTIONS + 0x900,
        ..frame
    });
    assert_eq!(named_at(&mut codes, &memory, &mut maps, frame, 2), "");
}

#[test]
fn more_names_than_can_wait_cost_no_memory() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let frame = put(&mut memory, 1, "n0000", true);
    for number in 0..2 * super::super::unchecked::MAX_WAITING {
        memory.put_string(STRINGS + 0x100, format!("n{number:04}"));
        put_hash(&mut memory, 1, 7);
        assert_eq!(named_at(&mut codes, &memory, &mut maps, frame, 1), "");
        assert!(codes.unchecked.waiting() <= super::super::unchecked::MAX_WAITING);
    }
}
