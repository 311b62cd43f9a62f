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

impl RunLoop<'_> {
    /// Asks the worker that has waited longest for its error handler, if one is due.
    pub(super) fn read_error_handler(&mut self, current: u64) {
        let is_due = |member: &&mut Member| member.is_in_request() && member.handler_due <= current;
        let due = self.members.iter_mut().filter(is_due);
        let Some(member) = due.min_by_key(|member| member.handler_due) else {
            return;
        };
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
