//! Samples that say less than they might, counted as a profile is written.

use crate::run::aggregate::{ANY_WORKER, FrameLine, Settled, Settlement};
use crate::stack::names::FunctionNames;

/// Samples that say less than they might, for lack of room.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untold {
    /// Those that are not told apart by worker.
    pub without_worker: i64,
    /// Those without the labels of their request.
    pub without_labels: i64,
    /// Those of stacks of which a part is left out, as `[truncated]` in them says.
    pub truncated: i64,
}

impl Untold {
    /// What is known of these samples before their stacks are counted.
    pub(super) fn of(settled: &Settled) -> Self {
        Self {
            without_labels: settled.without_labels,
            ..Self::default()
        }
    }

    /// Counts the samples of a stack with these lines.
    pub(super) fn count(&mut self, stack: &Settlement, lines: &[FrameLine]) {
        if stack.tid == ANY_WORKER {
            self.without_worker += stack.sum.samples;
        }
        let is_cut = |(name, _): &FrameLine| *name == FunctionNames::TRUNCATED;
        if lines.iter().any(is_cut) {
            self.truncated += stack.sum.samples;
        }
    }

    /// A line for each, in the order of the fields.
    pub fn lines(self) -> impl Iterator<Item = String> {
        let lines = [
            (
                self.without_worker,
                "have their stack but no pid, because the table by worker was full",
            ),
            (
                self.without_labels,
                "have their stack but no labels of their request, because the table of stacks was nearly full; record for a shorter time, at a lower rate (-F), with fewer labels, or only some requests (--path-prefix, --script)",
            ),
            (
                self.truncated,
                "are of stacks deeper than is read: [truncated] stands for what is left out, and its line says how many frames at least",
            ),
        ];
        let counted = lines.into_iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, what)| format!("{count} samples {what}"))
    }
}
