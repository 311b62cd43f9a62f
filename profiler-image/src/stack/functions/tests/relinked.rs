//! Methods of classes that each request links anew.

use super::*;

/// Puts a method into the memory whose code opcache shares, and whose class the request has linked.
pub(super) fn put_linked(
    memory: &mut EngineImage,
    func: u64,
    class: u64,
    at: u64,
    name: &str,
) -> Frame {
    let (method, file) = (SHARED.start + 0x8000, SHARED.start + 0x8100);
    memory.put_string(method, "total");
    memory.put_string(file, "/a.php");
    memory.put_string(at, name);
    memory.room(class, 0x400);
    memory.put_word(class, memory.layout.class_entry.name, at);
    let key = FunctionKey {
        code: SHARED.start,
        last: 4,
        kind: 2,
        name: method,
        scope: class,
        filename: file,
        ..FunctionKey::default()
    };
    memory.put_function(func, &key);
    let (layout, globals) = (memory.layout, memory.executor_globals);
    let classes = memory.block();
    memory.put_word(globals, layout.executor_globals.class_table, classes);
    memory.put_table(classes, &[(&name.to_lowercase(), class)]);
    let methods = class + layout.class_entry.function_table as u64;
    memory.put_table(methods, &[("total", func)]);
    let frame = Frame {
        address: memory.page + 0x100,
        func,
        opline: SHARED.start,
        ..Frame::default()
    };
    memory.put_frame(&frame);
    frame
}

#[test]
fn relinked_method_is_resolved_once() {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let (cart, basket) = (SHARED.start + 0x9000, SHARED.start + 0x9100);
    let mut identified = |memory: &EngineImage, frame: Frame| {
        codes.forget(&mut maps.local);
        let mut ids = Vec::new();
        let mut place = place(memory, &mut maps.shared, &mut maps.local);
        codes.identify(&mut place, &[frame], &mut ids, |_, _| stands(1));
        let code = codes.get(ids[0].unwrap()).unwrap();
        assert!(code.function.is_relinked());
        (ids[0], codes.names.get(code.name).name.to_string())
    };
    let first = put_linked(&mut memory, FUNCTIONS, STRINGS, cart, "Cart");
    let (id, name) = identified(&memory, first);
    assert_eq!(name, "Cart::total");
    let again = put_linked(
        &mut memory,
        FUNCTIONS + 0x1000,
        STRINGS + 0x1000,
        cart,
        "Cart",
    );
    assert_eq!(identified(&memory, again), (id, name));
    // Another class can have the same code, as two that use a trait do.
    let other = put_linked(
        &mut memory,
        FUNCTIONS + 0x2000,
        STRINGS + 0x2000,
        basket,
        "Basket",
    );
    let (other, name) = identified(&memory, other);
    assert_eq!(name, "Basket::total");
    assert_ne!(other, id);
}
