//! A stack that has been unwound and named: the value that a sample gives and the sum takes.

use super::call_tree::CallPathId;
use super::edges::EdgeId;
use super::names::NameId;

/// A frame of a sample: the function, and the line being executed in it.
pub type Line = (NameId, u32);

/// A stack, root first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Stack {
    pub lines: Vec<Line>,
    /// Open edges: the index in `lines` of the callee, and the edge that leads to it.
    pub open: Vec<(u32, EdgeId)>,
    /// The path to the leaf, where it has not been seen to stand.
    pub unconfirmed: Option<CallPathId>,
    /// The part above `lines` could not be proven.
    pub unstable: bool,
    /// Indexes in `lines` of functions that autoload a class.
    pub autoloaders: Vec<u32>,
    /// What the engine does on behalf of the leaf.
    pub phase: Option<NameId>,
}
