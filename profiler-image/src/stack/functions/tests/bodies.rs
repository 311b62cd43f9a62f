//! Functions whose code has changed, as after a deployment: their names and first lines are equal.

use super::*;
use crate::stack::call_tree::{CallPath, CallTree, PathId};
use crate::stack::edges::Edges;

/// The op that the frames of these tests are at.
const OP: u32 = 2;

/// Puts a function, or a script as the root of a stack, whose op is on that line; returns its
/// frame.
fn put_body(memory: &mut EngineImage, number: u64, line: u32, is_root: bool) -> Frame {
    let mut frame = put(memory, number, "total", true);
    if is_root {
        frame = put_script(memory, frame, FILE, "/a.php");
    }
    let row = &memory.layout.zend_op;
    let op = frame.opline + u64::from(OP) * row.sizeof as u64;
    memory.put_half(op, row.lineno, line);
    frame
}

/// The node of the op of a frame's function. A new one is added as a sample adds it.
fn node(
    codes: &mut Functions,
    memory: &EngineImage,
    maps: &mut Maps,
    tree: &mut CallTree,
    frame: Frame,
    is_root: bool,
) -> PathId {
    let mut ids = Vec::new();
    let mut place = place(memory, &mut maps.shared, &mut maps.local);
    codes.identify(&mut place, &[frame], &mut ids, |_, _| stands(1));
    let id = ids[0].unwrap();
    let name = codes.name(id, is_root);
    tree.child(PathId::NONE, name, OP).unwrap_or_else(|| {
        let (_, line) = codes.op(memory, memory.layout, id, OP).unwrap();
        let added = tree.add(PathId::NONE, name, OP, line, CallPath::default());
        added.unwrap()
    })
}

/// How two functions are shown whose ops are on these lines, and whether they are one location.
fn shown(lines: [u32; 2], is_root: bool) -> ([String; 2], bool) {
    let (mut codes, mut maps, mut memory) = nothing_known();
    let mut tree = CallTree::default();
    let paths = [(1, lines[0]), (2, lines[1])].map(|(number, line)| {
        let frame = put_body(&mut memory, number, line, is_root);
        node(&mut codes, &memory, &mut maps, &mut tree, frame, is_root)
    });
    let settled = tree.settle(&Edges::default());
    let located = paths.map(|path| {
        let mut lines = Vec::new();
        settled.lines(path, &mut lines);
        lines[0]
    });
    let texts = located.map(|(name, line)| format!("{}:{line}", codes.names.get(name).name));
    let are_one = settled.proven(paths[0]) == settled.proven(paths[1]);
    assert_eq!(are_one, located[0] == located[1]);
    assert_eq!(located[0].0, located[1].0);
    (texts, are_one)
}

#[test]
fn changed_code_has_its_line_and_name() {
    let check = |lines: [u32; 2], is_root: bool, expected: [&str; 2]| {
        let are_one = lines[0] == lines[1];
        let expected = expected.map(str::to_owned);
        assert_eq!(shown(lines, is_root), (expected, are_one));
    };
    check([7, 9], false, ["total:7", "total:9"]);
    check([7, 7], false, ["total:7", "total:7"]);
    check([7, 9], true, ["{main}:7", "{main}:9"]);
    check([7, 7], true, ["{main}:7", "{main}:7"]);
}
