//! A stack that has been unwound and identified, as a value; and where a sample of it counts.

use phpprof_zend::unwind::{End, Frame};

use super::call_tree::PathId;
use super::functions::FunctionId;
use super::names::NameId;

/// The frames of one read, leaf first, and what their functions are.
#[derive(Debug)]
pub struct Trace {
    pub frames: Vec<Frame>,
    /// By frame; `None` where a function does not hold together.
    pub ids: Vec<Option<FunctionId>>,
    pub end: End,
    /// How many frames, from the root, all looks at the part around the top show.
    pub stood: usize,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            ids: Vec::new(),
            end: End::Torn,
            stood: 0,
        }
    }
}

impl Trace {
    /// The leaf, and what its function is.
    #[must_use]
    pub fn leaf(&self) -> Option<(Frame, FunctionId)> {
        let id = self.ids.first().copied().flatten()?;
        Some((*self.frames.first()?, id))
    }
}

/// How a sample's call path ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// The whole stack is in it. It counts as far as its edges are proven at the end of the run.
    Whole,
    /// What was above could not be proven.
    Cut,
    /// What was above found no room.
    Full,
}

/// Where a sample counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stack {
    pub path: PathId,
    pub ending: Ending,
    /// What the engine does on behalf of the leaf.
    pub phase: Option<NameId>,
}

impl Stack {
    /// A stack that is one line without a function, as `[idle]`.
    #[must_use]
    pub fn of_phase(phase: NameId) -> Self {
        Self {
            path: PathId::NONE,
            ending: Ending::Whole,
            phase: Some(phase),
        }
    }
}
