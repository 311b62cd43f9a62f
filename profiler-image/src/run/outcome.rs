//! What a run has found: a snapshot while it continues, and the recording at its end.

use std::sync::Arc;
use std::time::Duration;

use super::facts::{RunAsked, RunFacts};
use super::recording::Recording;
use super::snapshot::{RunEnd, Samples, Snapshot};
use super::totals::RunTotals;
use super::{Begun, RunLoop, SCAN_TAKES, asked_period};
use crate::sample::SampleQuality;
use crate::target::Scope;
use crate::target::process::calls::SystemCallCounts;
use crate::target::process::throttle::ThrottleCounts;

impl RunLoop<'_> {
    pub(super) fn snapshot(&mut self, begun: &Begun, took: Duration) -> Snapshot {
        self.read_extensions(&begun.engine);
        for member in &mut self.members {
            member.settle(&mut self.aggregate, self.recorder.as_mut());
        }
        let mut totals = self.totals;
        self.members.iter().for_each(|member| totals.count(member));
        Snapshot {
            samples: Samples::of(&self.sampler, &self.aggregate),
            // A checkpoint delays no sample for a scan.
            facts: self.facts(begun, took, &totals, Duration::ZERO),
            list_stored: None,
        }
    }

    /// The facts so far, with these totals; waits this long for the scan that is under way.
    fn facts(
        &mut self,
        begun: &Begun,
        took: Duration,
        totals: &RunTotals,
        patience: Duration,
    ) -> RunFacts {
        let is_container = matches!(self.options.scope, Scope::Container(_));
        let asked = self.requests.asked();
        RunFacts {
            asked: RunAsked {
                labels: asked.labels,
                filter: asked.filter.clone(),
                include_idle: self.options.include_idle,
                only_running: self.options.only_running,
            },
            requests: self.requests.told(),
            heap: self.options.heap.then_some(totals.heap),
            fibers: self.options.fibers.map(|_| self.fibers.told),
            engine: Arc::clone(&begun.engine),
            jit: totals.jit,
            extensions: totals.extensions,
            error_handlers: self.error_handlers.names(&self.sampler.functions.names),
            seen: self.workers.seen.clone(),
            busy: totals.busy,
            began_unix_nanoseconds: begun.unix_nanoseconds,
            took,
            asked_period: Duration::from_nanos(asked_period(self.options)),
            effective_period: self.effective_period(),
            seed: self.seed,
            cpu_unattributed: Duration::from_nanos(totals.cpu_unattributed),
            cpu_waited: Duration::from_nanos(totals.cpu_waited),
            gave_way: Duration::from_nanos(totals.gave_way),
            throttled: self.throttled(),
            cpu_proofs: totals.cpu_proofs,
            not_running: self.options.only_running.then_some(totals.not_running),
            without_room: self.watch.without_room,
            missed: self.watch.missed(patience, is_container),
        }
    }

    /// The average time between two samples of a worker so far.
    fn effective_period(&self) -> Duration {
        let SampleQuality { due, late, .. } = self.sampler.quality;
        Duration::from_nanos(self.budget.effective_period(self.clock.now(), due, late))
    }

    /// What the limit of the control group has cost since the run began.
    fn throttled(&self) -> Option<ThrottleCounts> {
        let (file, begun) = self.throttle.as_ref()?;
        Some(file.now()?.since(*begun))
    }

    pub(super) fn samples(&self) -> u64 {
        let SampleQuality { taken, idle, .. } = self.sampler.quality;
        taken - idle - self.totals.not_running
    }

    pub(super) fn finish(
        mut self,
        ended: RunEnd,
        begun: &Begun,
        took: Duration,
        calls: SystemCallCounts,
    ) -> Recording {
        self.read_extensions(&begun.engine);
        if let Some(recorder) = &mut self.recorder {
            recorder.end();
        }
        for member in std::mem::take(&mut self.members) {
            self.count(member);
        }
        let totals = self.totals;
        let facts = self.facts(begun, took, &totals, SCAN_TAKES);
        self.aggregate.absorb(self.given);
        Recording {
            facts,
            sampler: self.sampler,
            aggregate: self.aggregate,
            recorder: self.recorder,
            ended,
            calls,
            idle_calls: totals.idle_calls,
            lateness: self.lateness,
        }
    }
}
