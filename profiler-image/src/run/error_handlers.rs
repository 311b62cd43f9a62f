//! Asks workers that serve a request which function handles PHP's errors, now and then, for the
//! finding `error-handler`.
//!
//! A stack does not tell: while a handler runs, the engine has no callable for it
//! ([`phpprof_zend::error_handler`]). So it is read at a moment of its own.
//!
//! Invariant: at most one worker is asked in a look, each at most once a second. No answer depends
//! on a sample, and no sample on an answer.

use phpprof_zend::error_handler::ErrorHandler;

use super::RunLoop;
use super::member::Member;
use super::seen_handlers::AFTER_NONE;

impl RunLoop<'_> {
    /// Asks the worker that has waited longest for its error handler, if one is due.
    pub(super) fn read_error_handler(&mut self, current: u64) {
        let is_due = |member: &&mut Member| member.is_in_request() && member.handler_due <= current;
        let due = self.members.iter_mut().filter(is_due);
        let Some(member) = due.min_by_key(|member| member.handler_due) else {
            return;
        };
        // If it cannot be asked now, the others are.
        member.handler_due = current + AFTER_NONE;
        // Another program has something else there.
        if !member.runs_the_same_program(current) {
            return;
        }
        let process = &member.worker.process;
        let engine = &process.engine;
        let handler = ErrorHandler::read(&*process.memory, engine.layout, engine.executor_globals);
        member.handler_due = current
            + self
                .error_handlers
                .take(&handler, &mut self.sampler.functions);
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::testing::IS_NULL;

    use super::*;
    use crate::run::turn::tests::{did, options};
    use crate::sample::tests::Scene;
    use crate::stack::names::FunctionNames;
    use crate::stack::trace::SummedStack;

    /// A sample in a request, or between two.
    fn add(run: &mut RunLoop<'_>, index: usize, in_request: bool) {
        let stack = SummedStack::of_phase(FunctionNames::COMPILING);
        run.add(index, 1, None, in_request.then_some(stack), true, did(true));
    }

    fn names(run: &RunLoop<'_>) -> Vec<String> {
        run.error_handlers.names(&run.sampler.functions.names)
    }

    #[test]
    fn another_program_does_not_keep_workers_waiting() {
        let options = options();
        let mut run = RunLoop::new(&options).unwrap();
        let scene = Scene::frameless("strpos", IS_NULL).with_error_handler("on_error");
        let mut other = scene.process();
        other.fingerprint ^= 1;
        for (index, process) in [other, scene.process()].into_iter().enumerate() {
            run.members.push(Member::new(process.into(), 1, 0));
            add(&mut run, index, true);
        }
        run.read_error_handler(1);
        assert_eq!(names(&run), Vec::<String>::new());
        run.read_error_handler(2);
        assert_eq!(names(&run), ["on_error"]);
    }

    #[test]
    fn workers_between_requests_are_not_asked() {
        let options = options();
        let mut run = RunLoop::new(&options).unwrap();
        let scene = Scene::frameless("strpos", IS_NULL).with_error_handler("on_error");
        run.members.push(Member::new(scene.process().into(), 1, 0));
        for in_request in [true, false] {
            add(&mut run, 0, in_request);
            assert_eq!(run.members[0].is_in_request(), in_request);
        }
        run.read_error_handler(1);
        assert_eq!(names(&run), Vec::<String>::new());
    }
}
