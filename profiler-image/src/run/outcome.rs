//! What a run has found: a snapshot while it continues, and the recording at its end.

use std::sync::Arc;
use std::time::Duration;

use phpprof_zend::engine::Engine;

use super::member::Member;
use super::recording::Recording;
use super::snapshot::{RunEnd, Samples, Snapshot};
use super::{Begun, RunLoop, SCAN_TAKES, asked_period};
use crate::sample::SampleQuality;
use crate::target::process::calls::SystemCallCounts;
use crate::target::process::throttle::ThrottleCounts;

impl RunLoop<'_> {
    pub(super) fn snapshot(
        &mut self,
        engine: &Arc<Engine>,
        began_unix_nanoseconds: i64,
        took: Duration,
    ) -> Snapshot {
        self.read_extensions(engine);
        for member in &mut self.members {
            member.settle(&mut self.aggregate, self.recorder.as_mut());
        }
        let has_jit_code = |member: &Member| member.worker.reader.has_jit_code == Some(true);
        let mut heap = self.heap;
        for member in &self.members {
            heap.add(&member.worker.reader);
        }
        let mut busy = self.busy;
        let percents = self.members.iter().filter_map(Member::busy_percent);
        percents.for_each(|percent| busy.add(percent));
        // A checkpoint delays no sample for it.
        let missed = self.missed(Duration::ZERO);
        let unattributed: u64 = self.members.iter().map(Member::cpu_unattributed).sum();
        let waited: u64 = self.members.iter().map(Member::waited).sum();
        let gave_way = |member: &Member| member.worker.place.gave_way;
        let gave_way: u64 = self.members.iter().map(gave_way).sum();
        Snapshot {
            samples: Samples::of(&self.sampler, &self.aggregate),
            requests: self.requests.told(),
            heap: self.options.heap.then_some(heap),
            engine: Arc::clone(engine),
            jit: self.jit || self.members.iter().any(has_jit_code),
            extensions: self.extensions,
            seen: self.workers.seen.clone(),
            busy,
            began_unix_nanoseconds,
            took,
            asked_period: Duration::from_nanos(asked_period(self.options)),
            effective_period: self.effective_period(),
            seed: self.seed,
            cpu_unattributed: Duration::from_nanos(self.cpu_unattributed + unattributed),
            cpu_waited: Duration::from_nanos(self.cpu_waited + waited),
            gave_way: Duration::from_nanos(self.gave_way + gave_way),
            throttled: self.throttled(),
            cpu_proofs: self.cpu_proofs,
            not_running: self.options.only_running.then_some(self.not_running),
            without_room: self.without_room,
            missed,
            list_stored: None,
        }
    }

    /// The average time between two samples of a worker so far.
    pub(super) fn effective_period(&self) -> Duration {
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
        taken - idle - self.not_running
    }

    pub(super) fn finish(
        mut self,
        ended: RunEnd,
        begun: Begun,
        took: Duration,
        calls: SystemCallCounts,
    ) -> Recording {
        let effective_period = self.effective_period();
        self.read_extensions(&begun.engine);
        if let Some(recorder) = &mut self.recorder {
            recorder.end();
        }
        for member in std::mem::take(&mut self.members) {
            self.count(member);
        }
        let missed = self.missed(SCAN_TAKES);
        let throttled = self.throttled();
        let not_running = self.options.only_running.then_some(self.not_running);
        self.aggregate.absorb(self.given);
        Recording {
            sampler: self.sampler,
            aggregate: self.aggregate,
            requests: self.requests.told(),
            heap: self.options.heap.then_some(self.heap),
            recorder: self.recorder,
            engine: begun.engine,
            jit: self.jit,
            extensions: self.extensions,
            seen: self.workers.seen,
            busy: self.busy,
            ended,
            began_unix_nanoseconds: begun.unix_nanoseconds,
            took,
            asked_period: Duration::from_nanos(asked_period(self.options)),
            effective_period,
            seed: self.seed,
            cpu_unattributed: Duration::from_nanos(self.cpu_unattributed),
            cpu_waited: Duration::from_nanos(self.cpu_waited),
            gave_way: Duration::from_nanos(self.gave_way),
            throttled,
            cpu_proofs: self.cpu_proofs,
            not_running,
            without_room: self.without_room,
            missed,
            calls,
            idle_calls: self.idle_calls,
            lateness: self.lateness,
        }
    }
}
