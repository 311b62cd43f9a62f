//! The call paths of suspended fibers, below a root `[suspended]`.
//!
//! A fiber that is suspended does not change: its stack is read, its functions are identified, and
//! it is read again. Invariant: a stack is shown only if both reads show the same suspended fiber
//! with the same frames. Nothing here proves an edge for samples, or is counted as a sample.

use std::sync::Arc;

use phpprof_zend::function::FunctionKey;
use phpprof_zend::heap::blocks::HeapBlocks;
use phpprof_zend::heap::objects::{FiberFault, SuspendedFiber};
use phpprof_zend::unwind::{Copy, Frame};

use super::climb::{Climb, is_of_engine};
use super::op::{AtOp, op_index};
use super::{StackSampler, place};
use crate::read::quiescent::{Heads, read_keys};
use crate::read::worker::Worker;
use crate::stack::call_tree::{CallPath, PathId};
use crate::stack::functions::FunctionId;
use crate::stack::names::FunctionNames;
use crate::stack::trace::{Ending, SummedStack};

/// How often a fiber is read until two reads agree.
const TRIES: usize = 2;

/// Memory that the fibers of a run reuse.
#[derive(Debug, Default)]
pub struct FiberBuffers {
    copy: Copy,
    frames: Vec<Frame>,
    again: Vec<Frame>,
    heads: Heads,
    keys: Vec<Option<FunctionKey>>,
    ids: Vec<Option<FunctionId>>,
}

/// What is known of a fiber that was found suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiberStack {
    /// What is shown; it ends in `[unstable]` if not all of it is proven.
    pub stack: SummedStack,
    /// All frames are shown.
    pub is_proven: bool,
}

impl StackSampler {
    /// The stack of a fiber of this worker, whose heap has these blocks; `None` if it was resumed
    /// meanwhile.
    pub fn suspended(
        &mut self,
        worker: &mut Worker,
        fiber: &SuspendedFiber,
        blocks: &HeapBlocks,
        buffers: &mut FiberBuffers,
        now: u64,
    ) -> Option<FiberStack> {
        let root = self.mark(PathId::NONE, FunctionNames::SUSPENDED);
        let Some(root) = root else {
            return Some(FiberStack {
                stack: SummedStack::NO_ROOM,
                is_proven: false,
            });
        };
        for _ in 0..TRIES {
            match self.read_twice(worker, fiber, blocks, buffers, now) {
                Ok(true) => return Some(self.shown_below(root, worker, buffers)),
                Ok(false) => {}
                Err(FiberFault::Resumed) => return None,
                Err(FiberFault::Torn | FiberFault::TooDeep) => break,
            }
        }
        Some(ended(root, Ending::Cut))
    }

    /// Reads the fiber, identifies its functions, and reads it again: whether both show the same.
    fn read_twice(
        &mut self,
        worker: &mut Worker,
        fiber: &SuspendedFiber,
        blocks: &HeapBlocks,
        buffers: &mut FiberBuffers,
        now: u64,
    ) -> Result<bool, FiberFault> {
        let process = Arc::clone(&worker.process);
        let (memory, layout) = (&*process.memory, process.engine.layout);
        let FiberBuffers {
            copy,
            frames,
            again,
            heads,
            keys,
            ids,
        } = buffers;
        fiber.read_stack(memory, layout, blocks, copy, frames)?;
        read_keys(memory, layout, frames, heads, keys).ok_or(FiberFault::Torn)?;
        for (frame, key) in frames.iter().zip(keys.iter_mut()) {
            *key = key.filter(|key| key.is_top_level() == frame.is_script(layout));
        }
        self.functions.begin();
        let mut place = place(worker, &mut self.families, now);
        self.functions.identify_keys(&mut place, frames, keys, ids);
        fiber.read_stack(memory, layout, blocks, copy, again)?;
        Ok(frames == again)
    }

    /// The frames that were read last, as a path.
    fn shown_below(
        &mut self,
        root: PathId,
        worker: &mut Worker,
        buffers: &FiberBuffers,
    ) -> FiberStack {
        let engine = Arc::clone(&worker.process.engine);
        let mut climb = std::mem::take(&mut self.climb);
        climb.begin();
        let mut path = root;
        let mut ending = Ending::Whole;
        for (index, frame) in buffers.frames.iter().enumerate().rev() {
            let id = buffers.ids.get(index).copied().flatten();
            let code = id.and_then(|id| Some((id, &self.functions.get(id)?.function)));
            let Some((id, function)) = code else {
                ending = Ending::Cut;
                break;
            };
            let (key, is_hidden) = (function.key, is_of_engine(function));
            let op = op_index(engine.layout, engine.executor_globals, &key, frame.opline);
            if key.is_user() && op.is_none() && index > 0 {
                // A caller's opline is inside its code.
                ending = Ending::Cut;
                break;
            }
            let name = self.functions.name(id, false);
            let found = AtOp { id, name, key, op };
            match self.below(worker, path, &found, is_hidden, &mut climb) {
                Some(node) => path = node,
                None => {
                    ending = Ending::Full;
                    break;
                }
            }
        }
        self.climb = climb;
        ended(path, ending)
    }

    fn below(
        &mut self,
        worker: &mut Worker,
        path: PathId,
        found: &AtOp,
        is_hidden: bool,
        climb: &mut Climb,
    ) -> Option<PathId> {
        let call = CallPath {
            is_hidden,
            ..CallPath::default()
        };
        let node = self.node(worker, path, found, call, climb)?;
        self.tree.trust(node);
        Some(node)
    }
}

fn ended(path: PathId, ending: Ending) -> FiberStack {
    FiberStack {
        stack: SummedStack {
            path,
            ending,
            phase: None,
            candidate: PathId::NONE,
        },
        is_proven: ending == Ending::Whole,
    }
}
