//! The call tree of recorded requests and of the parts of a run. Each path occurs once, in the
//! order of its first use.
//!
//! Invariant: a node's parent comes before it, and neither list exceeds its bound. A path without
//! room has no number.

use std::collections::HashMap;

use super::{
    MAX_FUNCTIONS, MAX_NODES, PartStack, Timeline, TimelineNode, TimelinePart, TimelineRequest,
    TreeFunction,
};
use crate::bounds;

/// Paths and functions, by number.
#[derive(Debug, Default)]
pub struct TimelineTree {
    /// Nodes have indexes into this list.
    pub functions: Vec<TreeFunction>,
    /// A parent comes before its children.
    pub nodes: Vec<TimelineNode>,
    function_numbers: HashMap<TreeFunction, u32>,
    node_numbers: HashMap<TimelineNode, u32>,
}

/// Another tree, whose paths are copied.
#[derive(Clone, Copy)]
pub(super) struct OtherTree<'a> {
    pub functions: &'a [TreeFunction],
    pub nodes: &'a [TimelineNode],
}

/// The numbers in this tree of another tree's nodes.
pub(super) type NodeNumbers = HashMap<u32, u32>;

impl TimelineTree {
    /// The number of a function. A name that is too long is cut, as in a profile.
    pub fn function(&mut self, name: &str, file: &str) -> Option<u32> {
        let function = TreeFunction {
            name: bounds::text(name).into_owned(),
            file: bounds::text(file).into_owned(),
        };
        self.add_function(&function)
    }

    fn add_function(&mut self, function: &TreeFunction) -> Option<u32> {
        if let Some(&number) = self.function_numbers.get(function) {
            return Some(number);
        }
        let number = number_of(self.functions.len(), MAX_FUNCTIONS)?;
        self.functions.push(function.clone());
        self.function_numbers.insert(function.clone(), number);
        Some(number)
    }

    /// The number of a frame.
    pub fn node(&mut self, node: TimelineNode) -> Option<u32> {
        if let Some(&number) = self.node_numbers.get(&node) {
            return Some(number);
        }
        let number = number_of(self.nodes.len(), MAX_NODES)?;
        self.nodes.push(node);
        self.node_numbers.insert(node, number);
        Some(number)
    }

    /// Copies a path of another tree.
    pub(super) fn path(
        &mut self,
        of: OtherTree<'_>,
        known: &mut NodeNumbers,
        leaf: u32,
    ) -> Option<u32> {
        let (mut above, mut at) = (Vec::new(), Some(leaf));
        while let Some(number) = at.filter(|number| !known.contains_key(number)) {
            above.push(number);
            at = of.nodes.get(number as usize)?.parent;
        }
        let mut parent = at.and_then(|number| known.get(&number).copied());
        for number in above.into_iter().rev() {
            let node = of.nodes.get(number as usize)?;
            let function = self.add_function(of.functions.get(node.function as usize)?)?;
            let new = self.node(TimelineNode {
                parent,
                function,
                line: node.line,
            })?;
            known.insert(number, new);
            parent = Some(new);
        }
        parent
    }

    /// Renumbers the paths of a request from another tree. If one path has no room, the request
    /// keeps none.
    pub(super) fn take(
        &mut self,
        of: OtherTree<'_>,
        known: &mut NodeNumbers,
        request: &mut TimelineRequest,
    ) {
        let found = request.moments.iter_mut().all(|moment| {
            let path = self.path(of, known, moment.node);
            moment.node = path.unwrap_or_default();
            path.is_some()
        });
        if !found {
            request.moments = Vec::new();
        }
    }

    /// Renumbers the stacks of a part from another tree. Stacks without room are added to the
    /// others.
    fn take_part(&mut self, of: OtherTree<'_>, known: &mut NodeNumbers, part: &mut TimelinePart) {
        for stack in std::mem::take(&mut part.stacks) {
            match self.path(of, known, stack.node) {
                Some(node) => part.stacks.push(PartStack { node, ..stack }),
                None => {
                    let time = stack.busy.saturating_add(stack.waiting);
                    part.other = part.other.saturating_add(time);
                }
            }
        }
        part.stacks.sort_by_key(|stack| stack.node);
    }

    /// Replaces a timeline's tree, with the nodes that its requests still need.
    pub(super) fn replace(mut self, timeline: &mut Timeline) {
        let of = OtherTree {
            functions: &timeline.functions,
            nodes: &timeline.nodes,
        };
        let mut known = NodeNumbers::new();
        for request in &mut timeline.requests {
            self.take(of, &mut known, request);
        }
        for part in &mut timeline.parts {
            self.take_part(of, &mut known, part);
        }
        (timeline.functions, timeline.nodes) = (self.functions, self.nodes);
    }
}

fn number_of(count: usize, most: usize) -> Option<u32> {
    u32::try_from(count).ok().filter(|_| count < most)
}
