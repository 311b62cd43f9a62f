//! Workers that sleep in an event loop have nothing to do: they are between two requests.
//!
//! Invariant: the rule is that of findings (`phpprof_profile::waiting`), and applies to a whole
//! stack of a worker that sleeps. A loop that runs is busy.

use std::borrow::Cow;

use phpprof_profile::waiting::waits_for_events;

use super::RunLoop;
use crate::stack::call_tree::CallTree;
use crate::stack::names::FunctionNames;
use crate::stack::trace::{Ending, SummedStack};

impl RunLoop<'_> {
    /// Whether a worker that sleeps in this stack waits for the events of its loop.
    pub(super) fn is_in_loop(&self, index: usize, stack: &SummedStack) -> bool {
        let (tree, names) = (&self.sampler.tree, &self.sampler.functions.names);
        let worker = self.members.get(index).map(|member| &member.worker);
        worker.is_some_and(|worker| waits(tree, names, &worker.process.engine.sapi, stack))
    }
}

fn waits(tree: &CallTree, names: &FunctionNames, sapi: &str, stack: &SummedStack) -> bool {
    if stack.phase.is_some() || stack.ending != Ending::Whole {
        return false;
    }
    let calls = tree.calls_of(stack.path);
    waits_for_events(
        sapi,
        calls.map(|id| Cow::Owned(names.get(id).name.to_string())),
    )
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::stack::call_tree::{CallPath, PathId};
    use crate::stack::names::FunctionName;

    /// A case of the contract; the stack is root first.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LoopCase {
        sapi: String,
        stack: Vec<String>,
        is_idle: bool,
    }

    /// The profile's tests have the same cases.
    #[test]
    fn the_sampler_tells_loops_as_findings_do() {
        let cases = include_str!("../../../contract/event_loops.json");
        let cases: Vec<LoopCase> = serde_json::from_str(cases).unwrap();
        for case in cases {
            let (mut names, mut tree) = (FunctionNames::default(), CallTree::default());
            let mut path = PathId::NONE;
            for name in &case.stack {
                let name = FunctionName {
                    name,
                    file: "/a.php",
                    start_line: 1,
                };
                let id = names.intern(name);
                path = tree.add(path, id, 0, 1, CallPath::default()).unwrap();
            }
            let whole = SummedStack {
                path,
                phase: None,
                ..SummedStack::of_phase(FunctionNames::IDLE)
            };
            let cut = SummedStack {
                ending: Ending::Cut,
                ..whole
            };
            let of = |stack| waits(&tree, &names, &case.sapi, stack);
            assert_eq!(of(&whole), case.is_idle, "{:?}", case.stack);
            assert!(!of(&cut));
        }
    }
}
