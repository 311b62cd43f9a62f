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
    /// How many frames, from the root, stood still while they were read.
    pub agreed: usize,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            ids: Vec::new(),
            end: End::Torn,
            agreed: 0,
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

/// How sure the end of a sample's call path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// The whole stack stood.
    Sure,
    /// It counts if its path is confirmed until the end of the run.
    Open,
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
            ending: Ending::Sure,
            phase: Some(phase),
        }
    }
}
