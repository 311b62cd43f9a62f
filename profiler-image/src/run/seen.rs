//! What is remembered of the workers of a run, also of those that have ended: bounded, however many
//! there are.
//!
//! Invariant: workers that have ended share their engines, because of these only the version and
//! the SAPI count then.

use std::collections::HashMap;
use std::sync::Arc;

use phpprof_zend::engine::Engine;

/// The largest number of workers of one run that are distinguished; samples of later ones are
/// summed together.
pub const MAX_SEEN: usize = 4096;

/// The number of kinds of engines that are kept for workers that have ended. Those of further kinds
/// keep their own.
const MAX_KINDS: usize = 64;

/// The worker's data in a sample's labels.
#[derive(Debug, Clone)]
pub struct WorkerLabels {
    /// Its process.
    pub pid: i32,
    /// Its version and SAPI.
    pub engine: Arc<Engine>,
}

/// The workers of a run.
#[derive(Debug, Default)]
pub struct Workers {
    /// By the number that their samples are summed under.
    pub seen: HashMap<i32, WorkerLabels>,
    /// One engine of each kind, for workers that have ended.
    kinds: Vec<Arc<Engine>>,
}

impl Workers {
    /// Remembers a worker if there is room, or if its thread id was another's before.
    pub fn tell_apart(&mut self, tid: i32, worker: WorkerLabels) -> bool {
        let has_room = self.seen.len() < MAX_SEEN || self.seen.contains_key(&tid);
        if has_room {
            self.seen.insert(tid, worker);
        }
        has_room
    }

    /// Remembers less of a worker that has ended: its engine's addresses mean nothing any more.
    pub fn end(&mut self, tid: i32) {
        let Some(worker) = self.seen.get_mut(&tid) else {
            return;
        };
        let is_like = |kind: &&Arc<Engine>| {
            let key = |engine: &Engine| (engine.layout.module_api, engine.is_thread_safe());
            key(kind) == key(&worker.engine)
                && kind.version == worker.engine.version
                && kind.sapi == worker.engine.sapi
        };
        match self.kinds.iter().find(is_like) {
            Some(kind) => worker.engine = Arc::clone(kind),
            None if self.kinds.len() < MAX_KINDS => self.kinds.push(Arc::clone(&worker.engine)),
            None => {}
        }
    }
}

/// How busy workers were: how many of them had each percentage of busy turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy([u32; 101]);

impl Default for Busy {
    fn default() -> Self {
        Self([0; 101])
    }
}

impl Busy {
    /// Counts a worker that was busy in this percentage of its turns.
    pub fn add(&mut self, percent: u8) {
        self.0[usize::from(percent.min(100))] += 1;
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.iter().map(|count| *count as usize).sum()
    }

    /// The percentages of the busiest workers, at most this many, the largest first.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<u8> {
        let percents = (0_u8..=100).zip(self.0).rev();
        let all = percents.flat_map(|(percent, count)| (0..count).map(move |_| percent));
        all.take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::testing::IS_NULL;

    use super::*;
    use crate::sample::tests::Scene;

    #[test]
    fn the_busiest_come_first_and_all_are_counted() {
        let mut busy = Busy::default();
        for percent in [8, 100, 61, 1, 61] {
            busy.add(percent);
        }
        assert_eq!(busy.workers(), 5);
        assert_eq!(busy.busiest(64), [100, 61, 61, 8, 1]);
        assert_eq!(busy.busiest(2), [100, 61]);
        assert!(Busy::default().busiest(64).is_empty());
    }

    #[test]
    fn ended_workers_share_an_engine() {
        let engine = Scene::frameless("strpos", IS_NULL).process().engine;
        let of = |version: &str| {
            Arc::new(Engine {
                version: version.to_owned(),
                ..Engine::clone(&engine)
            })
        };
        let mut workers = Workers::default();
        for (pid, version) in [(1, "8.2.1"), (2, "8.2.1"), (3, "8.2.2"), (4, "8.2.1")] {
            let engine = of(version);
            assert!(workers.tell_apart(pid, WorkerLabels { pid, engine }));
        }
        (1..4).for_each(|tid| workers.end(tid));
        let engine = |tid: i32| &workers.seen[&tid].engine;
        assert!(Arc::ptr_eq(engine(1), engine(2)));
        assert!(!Arc::ptr_eq(engine(1), engine(4)));
        assert_eq!(engine(3).version, "8.2.2");
    }

    #[test]
    fn later_workers_share_a_number() {
        let engine = Scene::frameless("strpos", IS_NULL).process().engine;
        let mut workers = Workers::default();
        let mut begin = |tid: i32, pid: i32| {
            let engine = Arc::clone(&engine);
            workers.tell_apart(tid, WorkerLabels { pid, engine })
        };
        let most = i32::try_from(MAX_SEEN).unwrap();
        assert!((0..most).all(|tid| begin(tid, tid)));
        assert!(!begin(most, most));
        assert!(begin(7, 8));
        assert_eq!(workers.seen[&7].pid, 8);
    }
}
