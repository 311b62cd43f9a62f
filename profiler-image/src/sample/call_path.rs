//! Whether the path of a sample (its leaf with all callers) has been seen to stand: by further reads that agree on it.
//!
//! What this module does not do: judge single calls, or decide what becomes of a path that nobody has seen to stand;
//! [`crate::stack::call_tree`] does.

use std::sync::Arc;

use phpprof_zend::site::frameless::is_absent;

use super::Sampler;
use crate::read::reader::Reading;
use crate::read::worker::Worker;
use crate::stack::trace::Stack;

/// Further reads that must agree on a path before it is taken for confirmed. One is not enough: under the JIT a frame's
/// opline is not reset when the frame is pushed, so that for some nanoseconds what earlier calls left can look like a
/// path.
const AGREEING_READS: usize = 3;

impl Sampler {
    /// Sees whether the path of the stack at hand stands: it is known to, or several reads in a row have all of it again.
    /// Where only the leaf changes while its callers stay, the code is too slow for a mix: that sample counts, but the
    /// path is not taken for confirmed.
    pub(super) fn confirmed(&mut self, worker: &mut Worker, stack: Stack) -> Stack {
        let Some(&path) = self.paths.last() else {
            return stack;
        };
        if self.call_tree.is_confirmed(path) {
            self.call_tree.sight(path);
            return stack;
        }
        if !self.call_tree.sight(path) || !self.may_read_on {
            return Stack {
                unconfirmed: Some(path),
                ..stack
            };
        }
        let mut stood = self.frames.len();
        for _ in 0..AGREEING_READS {
            stood = stood.min(self.standing(worker));
        }
        // `paths` has the root first, and one path for each frame.
        if let Some(&path) = stood.checked_sub(1).and_then(|index| self.paths.get(index)) {
            self.call_tree.confirm(path);
        }
        if stood + 1 >= self.frames.len() {
            stack
        } else {
            Stack {
                unconfirmed: Some(path),
                ..stack
            }
        }
    }

    /// How many of the frames at hand, from the root, another read has again.
    fn standing(&self, worker: &mut Worker) -> usize {
        let Ok(Reading::Busy { leading, trailing }) = worker.reader.read() else {
            return 0;
        };
        let layout = worker.process.engine.layout;
        let memory = Arc::clone(&worker.reader.memory);
        let copy = &mut worker.reader.copy;
        let mut same_calls = true;
        self.frames
            .iter()
            .rev()
            .take_while(|frame| {
                if is_absent(frame) {
                    return same_calls;
                }
                let live = copy.is_live(frame.address, leading.current_execute_data)
                    && copy.is_live(frame.address, trailing.current_execute_data);
                let Some(again) = copy
                    .frame(&*memory, layout, frame.address)
                    .filter(|_| live && same_calls)
                else {
                    return false;
                };
                // The calls of the frames below must have led here all the time.
                same_calls = again.opline == frame.opline;
                again.func == frame.func && again.prev == frame.prev
            })
            .count()
    }
}
