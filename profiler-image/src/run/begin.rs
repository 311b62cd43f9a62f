//! What is settled when the first worker of a run has been found, and when all samples are taken.
//!
//! Invariant: nothing is sampled before the first or after the second.

use std::sync::Arc;

use phpprof_zend::engine::Engine;

use super::budget::Budget;
use super::recorder::Recorder;
use super::time::SECOND;
use super::{Begun, RunLoop, SCAN_TAKES, asked_period};
use crate::request::asked::SampleLabel;
use crate::target::process::throttle::ThrottleFile;

/// A run takes so many turns, if they fit in its time, even if they are late.
const LEAST_TURNS: u128 = 3;
/// How long it waits for them after its end.
const PATIENCE: u64 = 3 * SECOND;

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
        self.watch.begin(SCAN_TAKES);
        Begun {
            engine,
            unix_nanoseconds,
            at,
            until,
        }
    }

    /// Whether all samples are taken. On a machine without a free CPU a short run may have had no
    /// turn yet: it takes some, if not at once.
    pub(super) fn is_done(&self, current: u64, until: u64) -> bool {
        let max = self.options.max_samples;
        if max.is_some_and(|max| self.samples() >= max) {
            return true;
        }
        let most = self.options.duration.as_nanos() / u128::from(asked_period(self.options));
        let has_turns = self.options.unpaced || u128::from(self.turns) >= most.min(LEAST_TURNS);
        current >= until && (has_turns || self.turns > 0 && current >= until + PATIENCE)
    }
}
