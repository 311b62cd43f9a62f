//! A stack that has been unwound and identified, as a value; and where a sample of it counts.

use std::ops::Range;

use phpprof_zend::unwind::{End, Frame};

use super::call_tree::PathId;
use super::functions::FunctionId;
use super::names::NameId;
use super::stand::Stand;

/// The frames of one read, leaf first, and what their functions are.
#[derive(Debug)]
pub struct Trace {
    /// As they were read.
    pub frames: Vec<Frame>,
    /// By frame; `None` where a function does not hold together.
    pub ids: Vec<Option<FunctionId>>,
    /// How unwinding them ended.
    pub end: End,
    /// The looks at the part around the top that are next to its moment; none where what lies below that part is of another one.
    pub around: Range<usize>,
    /// The program moves between half of the looks: what they show can be in step with one of its loops.
    pub is_fast: bool,
    /// It is what the first look shows up to the first word's depth: all frames are of the moment of the word or later ones, but a caller
    /// may have gone on to another op since.
    pub may_have_gone_on: bool,
    /// So many frames, from the root, are of one moment: neither of the two looks next to the top's word denies them.
    pub together: usize,
    /// How many frames, from the root, all of these looks show.
    pub stood: usize,
    /// Which frames further looks at uneven intervals show; `None` where there were none yet.
    pub stands: Option<Stand>,
    /// The same, of looks since the functions were identified.
    pub stands_since: Option<Stand>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            ids: Vec::new(),
            end: End::Torn,
            around: 0..0,
            is_fast: false,
            may_have_gone_on: false,
            together: 0,
            stood: 0,
            stands: None,
            stands_since: None,
        }
    }
}

impl Trace {
    /// Puts a frame that lies nowhere in memory above its caller: it stands where what it has called does.
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
    /// The calls from the root on.
    pub path: PathId,
    /// What stands at its leaf.
    pub ending: Ending,
    /// What the engine does on behalf of the leaf.
    pub phase: Option<NameId>,
}

impl Stack {
    /// What all stacks are summed as that find no room of their own.
    pub const NO_ROOM: Self = Self {
        path: PathId::NONE,
        ending: Ending::Full,
        phase: None,
    };

    /// A stack that is one line without a function, as `[idle]`.
    #[must_use]
    pub const fn of_phase(phase: NameId) -> Self {
        Self {
            path: PathId::NONE,
            ending: Ending::Whole,
            phase: Some(phase),
        }
    }
}
