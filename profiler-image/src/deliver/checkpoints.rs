//! Checkpoints of a long run: the samples so far are stored during the run, because a target that
//! ends takes its sampler with it.
//!
//! The loop reports how long it has sampled, and gives a snapshot if one is due ([`due`], a pure
//! function). A thread builds a profile of it and stores it.
//!
//! Invariant: at most one checkpoint is in progress, and the run continues whatever happens to it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::run::snapshot::{Keep, Snapshot};

/// Builds a profile of the samples.
type Make = dyn Fn(Snapshot) -> Vec<u8> + Send + Sync;
/// Stores the profile of a checkpoint, by its number from 1; the error is the cause.
type CheckpointStore = dyn Fn(u32, &[u8]) -> Result<(), String> + Send + Sync;

/// Stores the samples so far.
#[derive(Clone)]
pub struct Checkpoints(Arc<CheckpointState>);

struct CheckpointState {
    /// When each is due, in order.
    times: Vec<Duration>,
    make: Box<Make>,
    store_bytes: Box<CheckpointStore>,
    /// The last checkpoint that was due.
    last: AtomicU32,
    under_way: AtomicBool,
    /// A profile is being built, or was built since the last call.
    making: AtomicBool,
    made: AtomicBool,
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}", self.0.times)
    }
}

/// The checkpoint that is due after this time, if it is not stored yet; the newest if several were
/// missed.
#[must_use]
pub fn due(sampled: Duration, times: &[Duration], last: u32) -> Option<u32> {
    let number = times.partition_point(|at| *at <= sampled);
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    (number > last).then_some(number)
}

impl Checkpoints {
    /// A checkpoint at each of these times of sampling, which are in order.
    #[must_use]
    pub fn new(
        times: Vec<Duration>,
        make: impl Fn(Snapshot) -> Vec<u8> + Send + Sync + 'static,
        store: impl Fn(u32, &[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(CheckpointState {
            times,
            make: Box::new(make),
            store_bytes: Box::new(store),
            last: AtomicU32::new(0),
            under_way: AtomicBool::new(false),
            making: AtomicBool::new(false),
            made: AtomicBool::new(false),
        }))
    }
}

impl Keep for Checkpoints {
    /// Leaves a checkpoint out if the one before is still in progress.
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> Snapshot) {
        let shared = &self.0;
        let last = shared.last.load(Ordering::Relaxed);
        let Some(number) = due(sampled, &shared.times, last) else {
            return;
        };
        shared.last.store(number, Ordering::Relaxed);
        if shared.under_way.swap(true, Ordering::AcqRel) {
            eprintln!(
                "phpprof: checkpoint {number} is skipped: the previous one is still being uploaded"
            );
            return;
        }
        shared.making.store(true, Ordering::Relaxed);
        let (snapshot, of_thread) = (snapshot(), Arc::clone(shared));
        let thread = std::thread::Builder::new().name("checkpoint".to_owned());
        if let Err(error) = thread.spawn(move || of_thread.store(number, snapshot)) {
            eprintln!("phpprof: checkpoint {number} is skipped: {error}");
            shared.end_making();
            shared.under_way.store(false, Ordering::Release);
        }
    }

    fn have_worked(&self) -> bool {
        let made = self.0.made.swap(false, Ordering::Relaxed);
        made || self.0.making.load(Ordering::Relaxed)
    }
}

impl CheckpointState {
    fn store(&self, number: u32, snapshot: Snapshot) {
        let bytes = (self.make)(snapshot);
        self.end_making();
        match (self.store_bytes)(number, &bytes) {
            Ok(()) => eprintln!("phpprof: checkpoint {number}: {} bytes", bytes.len()),
            Err(why) => eprintln!("phpprof: storing checkpoint {number} failed: {why}"),
        }
        drop(bytes);
        self.under_way.store(false, Ordering::Release);
    }

    fn end_making(&self) {
        self.made.store(true, Ordering::Relaxed);
        self.making.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times are in seconds. There are four checkpoints; 0 means none.
    #[track_caller]
    fn check(sampled: f64, last: u32, expected: u32) {
        let times = [5, 10, 60, 120].map(Duration::from_secs);
        let due = due(Duration::from_secs_f64(sampled), &times, last);
        assert_eq!(due.unwrap_or(0), expected);
    }

    #[test]
    fn checkpoint_is_due_once_and_never_repeated() {
        check(0.0, 0, 0);
        check(4.9, 0, 0);
        check(5.0, 0, 1);
        check(5.1, 1, 0);
        check(9.9, 1, 0);
        check(10.0, 1, 2);
        check(119.0, 0, 3);
        check(200.0, 3, 4);
        check(9e9, 4, 0);
        assert_eq!(due(Duration::from_secs(9), &[], 0), None);
    }
}
