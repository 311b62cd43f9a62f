//! The generators that a placeholder of `yield from` represents.
//!
//! Invariant: at most [`MAX_DELEGATES`] are followed, and a bounded number in all stacks of one copy.

use super::{Copy, Frame, HALF, MAX_FRAMES, WORD};
use crate::layouts::Layout;
use crate::memory::{Memory, half_at, word_at};

/// `yield from` chains longer than this are refused.
const MAX_DELEGATES: usize = 64;

/// A placeholder is replaced by the frames of the delegating generators, the innermost first
/// (`zend_generator_check_placeholder_frame`, Zend/zend_generators.c).
pub(super) fn delegates<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    copy: &mut Copy,
    placeholder: &Frame,
    frames: &mut Vec<Frame>,
) -> Option<()> {
    // The engine's loop: from the outermost generator up, while the parent is not the root, which runs itself.
    let outermost = Node::read(memory, layout, copy, placeholder.this)?;
    let root = match layout.rules.placeholder_ends_at_root {
        true => outermost.root(memory, layout, copy)?,
        false => 0,
    };
    let mut outer_first = vec![outermost.execute_data];
    let mut parent = outermost.parent;
    while parent != root {
        let node = Node::read(memory, layout, copy, parent)?;
        if root == 0 && node.parent == 0 {
            break;
        }
        if outer_first.len() >= MAX_DELEGATES {
            return None;
        }
        outer_first.push(node.execute_data);
        parent = node.parent;
    }
    for address in outer_first.into_iter().rev() {
        let frame = copy.frame(memory, layout, address)?;
        if frame.func == 0 || frames.len() >= MAX_FRAMES {
            return None;
        }
        frames.push(frame);
    }
    Some(())
}

/// What unwinding needs of a `zend_generator`.
struct Node {
    execute_data: u64,
    parent: u64,
    children: u32,
    ptr: u64,
}

impl Node {
    fn read<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        copy: &mut Copy,
        generator: u64,
    ) -> Option<Self> {
        let row = &layout.generator;
        let fields = [
            (row.execute_data, WORD),
            (row.node_parent, WORD),
            (row.node_children, HALF),
            (row.node_ptr, WORD),
        ];
        let bytes = copy.generator(memory, layout, generator, &fields)?;
        Some(Self {
            execute_data: word_at(&bytes, row.execute_data),
            parent: word_at(&bytes, row.node_parent),
            children: half_at(&bytes, row.node_children),
            ptr: word_at(&bytes, row.node_ptr),
        })
    }

    /// The root of the tree: a leaf has a pointer to it, another node a pointer to a leaf.
    fn root<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        copy: &mut Copy,
    ) -> Option<u64> {
        if self.children == 0 {
            return Some(self.ptr);
        }
        Some(Self::read(memory, layout, copy, self.ptr)?.ptr)
    }
}
