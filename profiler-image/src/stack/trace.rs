//! A stack that has been unwound and identified, as a value; and where a sample of it is summed.

use std::ops::Range;

use phpprof_zend::unwind::{Frame, UnwindEnd};

use super::call_tree::PathId;
use super::functions::FunctionId;
use super::names::NameId;
use super::stand::Stand;

/// The frames of one read, leaf first, and their functions.
#[derive(Debug)]
pub struct Trace {
    /// As they were read.
    pub frames: Vec<Frame>,
    /// For each frame; `None` if a function is inconsistent.
    pub ids: Vec<Option<FunctionId>>,
    /// How unwinding them ended.
    pub end: UnwindEnd,
    /// It is whole, but has frames outside the page that were read later than the looks: it can be
    /// of two moments, and counts as torn.
    pub is_late: bool,
    /// The looks at the part around the top that are next to its moment.
    pub around: Range<usize>,
    /// The program moves between half of the looks, so they can be in step with one of its loops.
    pub is_fast: bool,
    /// It was read from the first look up to the first word's depth: all frames are of the moment
    /// of the word or later ones, but a caller may have moved to another op since.
    pub may_have_gone_on: bool,
    /// How many frames, from the root, are of one moment: neither of the two looks next to the
    /// top's word contradicts them.
    pub together: usize,
    /// How many frames, from the root, all of these looks show.
    pub stood: usize,
    /// Which frames further looks at uneven intervals show; `None` if there were none yet.
    pub stands: Option<Stand>,
    /// The same for looks since the functions were identified.
    pub stands_since: Option<Stand>,
    /// Where the collector of cycles is.
    pub collector: GcPosition,
}

/// Where the collector of cycles is in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GcPosition {
    /// It does not run, as far as is known.
    #[default]
    Absent,
    /// It runs on behalf of the leaf.
    AtLeaf,
    /// It has called the frame with this index.
    Calls(usize),
    /// It runs, and has called a frame or not.
    Unknown,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            ids: Vec::new(),
            end: UnwindEnd::Torn,
            is_late: false,
            around: 0..0,
            is_fast: false,
            may_have_gone_on: false,
            together: 0,
            stood: 0,
            stands: None,
            stands_since: None,
            collector: GcPosition::Absent,
        }
    }
}

impl Trace {
    /// Inserts a frame that is not in memory above its caller: it stands if its callee does.
    pub fn insert(&mut self, index: usize, frame: Frame, id: Option<FunctionId>) {
        let caller = self.frames.len() - index;
        for stand in [&mut self.stands, &mut self.stands_since] {
            *stand = stand.map(|stand| stand.with_absent(caller));
        }
        self.frames.insert(index, frame);
        self.ids.insert(index, id);
    }

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
    /// It has the whole stack, and counts as far as its edges are proven at the end of the run.
    Whole,
    /// The frames above could not be proven.
    Cut,
    /// There was no room for the frames above.
    Full,
}

/// The stack under which a sample is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SummedStack {
    /// The calls from the root on.
    pub path: PathId,
    /// How the path ends.
    pub ending: Ending,
    /// What the engine does on behalf of the leaf.
    pub phase: Option<NameId>,
    /// The call path that takes the place of this one once another sample has proven it;
    /// [`PathId::NONE`] if there is none.
    pub candidate: PathId,
}

impl SummedStack {
    /// The sum of all stacks without room of their own.
    pub const NO_ROOM: Self = Self {
        path: PathId::NONE,
        ending: Ending::Full,
        phase: None,
        candidate: PathId::NONE,
    };

    /// A stack that is one line without a function, as `[idle]`.
    #[must_use]
    pub const fn of_phase(phase: NameId) -> Self {
        Self {
            path: PathId::NONE,
            ending: Ending::Whole,
            phase: Some(phase),
            candidate: PathId::NONE,
        }
    }
}
