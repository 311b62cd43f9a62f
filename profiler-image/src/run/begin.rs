//! What is settled when the first worker of a run has been found.
//!
//! Invariant: nothing is sampled before it.

use std::sync::Arc;

use phpprof_zend::engine::Engine;

use super::budget::Budget;
use super::recorder::Recorder;
use super::{Begun, RunLoop, SCAN_TAKES};
use crate::request::asked::SampleLabel;
use crate::target::process::throttle::ThrottleFile;

impl RunLoop<'_> {
    /// Begins the run, of a worker with this engine.
    pub(super) fn begin(&mut self, engine: Arc<Engine>) -> Begun {
        let unix_nanoseconds = self.clock.unix_nanoseconds();
        let at = self.clock.now();
        let first = self.members.first().map(|member| member.worker.process.pid);
        self.throttle = first.and_then(ThrottleFile::open).and_then(|file| {
            let begun = file.now()?;
            Some((file, begun))
        });
        let has_routes = self.requests.asked().has(SampleLabel::Route);
        self.recorder = has_routes.then(|| Recorder::new(at));
        let percent = self
            .options
            .cpu_budget_percent
            .filter(|_| !self.options.unpaced);
        let until = at + u64::try_from(self.options.duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.budget = Budget::new(percent, self.period, self.clock.own_cpu(), at, until);
        self.missed_before = self.scanner.missed(SCAN_TAKES).unwrap_or_default();
        self.sampled_of_ended = 0;
        Begun {
            engine,
            unix_nanoseconds,
            at,
            until,
        }
    }
}
