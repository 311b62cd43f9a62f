//! Names and ids when all functions are forgotten, because they take too much memory.

use super::*;

#[test]
fn names_are_right_after_forgotten_codes() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let (_, mut others, _) = nothing_known();
    let early = put(&mut memory, 1, "early", true);
    assert_eq!(names(&mut codes, &memory, &mut others, &[early]), ["early"]);
    // Each is another function at the same place.
    for number in 0..200 {
        let name = format!("f{number}");
        let frame = put(&mut memory, 2, &name, true);
        let mut place = place(&memory, &mut maps.shared, &mut maps.local);
        place.request_ends = false;
        let mut ids = Vec::new();
        codes.begin();
        codes.identify(&mut place, &[frame], &mut ids, |_, _| stands(1));
        let id = codes.name(ids[0].unwrap(), false);
        assert_eq!(codes.names.get(id).name, *name);
        assert!(codes.bytes <= MAX_BYTES + (4 << 10));
    }
    // Its id has been reused since.
    assert_eq!(names(&mut codes, &memory, &mut others, &[early]), ["early"]);
}

/// The function of a frameless call is identified while the stack's ids are in use.
#[test]
fn id_lasts_until_the_next_read() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    codes.begin();
    let mut first = None;
    for number in 0..200 {
        let frame = put(&mut memory, 2, &format!("f{number}"), true);
        let mut place = place(&memory, &mut maps.shared, &mut maps.local);
        place.request_ends = false;
        let mut ids = Vec::new();
        codes.identify(&mut place, &[frame], &mut ids, |_, _| stands(1));
        let first = *first.get_or_insert(ids[0].unwrap());
        let name = codes.name(first, false);
        assert_eq!(codes.names.get(name).name, "f0");
    }
    assert!(codes.bytes > MAX_BYTES);
    codes.begin();
    assert_eq!(codes.bytes, 0);
}

/// The ops of long functions are read when they are met, and belong to nobody's account but their
/// own.
#[test]
fn long_function_leaves_the_account_of_others() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let (_, mut others, _) = nothing_known();
    let other = put(&mut memory, 1, "other", true);
    names(&mut codes, &memory, &mut others, &[other]);
    let before = codes.bytes;
    let long = put(&mut memory, 2, "long", true);
    let key = FunctionKey {
        code: CODE,
        last: (1 << 16) + 1,
        kind: 2,
        name: STRINGS + 0x200,
        filename: FILE,
        ..FunctionKey::default()
    };
    memory.put_function(long.func, &key);
    names(&mut codes, &memory, &mut maps, &[long]);
    // As long as none was met, it takes no more than others: the ops of code that has ended cannot
    // be read either.
    assert!(codes.bytes < before + 512, "{}", codes.bytes);
    let id = maps.local.by_func[&long.func].code;
    for op in 0..1000 {
        assert!(codes.op(&memory, memory.layout, id, op).is_some());
    }
    assert!(codes.bytes > before + (13 << 10), "{}", codes.bytes);
    codes.forget(&mut maps.local);
    assert_eq!(codes.bytes, before);
}
