//! The limit of open files, and how many workers it has room for.
//!
//! A worker holds some files under `/proc` for as long as it is sampled, and a run needs others at
//! its end, to deliver. So workers are counted before the kernel refuses a file: one without room
//! is not sampled, and the user is told.
//! Invariant: a worker has all of its files or none.

use std::fs::read_dir;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The most files of a worker: `mem`, `schedstat`, `wchan` and `stat`, these two again for what
/// holds it, `status`, and two of its quiescent reads. With `syscall`, there is no `wchan`.
const OF_A_WORKER: u64 = 9;
/// Files for the rest of a run: those opened for a moment, threads, and the connections of the
/// delivery.
const OF_A_RUN: u64 = 32;

/// Raises this process's limit as far as it may.
pub fn raise_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // After an error the limit is as before, which `Room` heeds.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// This process's limit of open files.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(limit, _)| limit)
}

/// The room for workers.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    taken: usize,
}

impl Room {
    /// The room below the limit, in addition to the files that are open now.
    pub fn left() -> Self {
        let open = read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        Self {
            most: workers(limit(), open),
            taken: 0,
        }
    }

    /// Sets how many workers there are.
    pub fn count(&mut self, workers: usize) {
        self.taken = workers;
    }

    /// Whether there is room for another worker.
    pub fn has_more(&self) -> bool {
        self.taken < self.most
    }

    /// Takes the room of a worker, if there is any.
    #[must_use]
    pub fn take(&mut self) -> bool {
        let has_more = self.has_more();
        self.taken += usize::from(has_more);
        has_more
    }
}

/// How many workers there is room for; at least one.
fn workers(limit: u64, open: u64) -> usize {
    let free = limit.saturating_sub(open).saturating_sub(OF_A_RUN);
    usize::try_from(free / OF_A_WORKER)
        .unwrap_or(usize::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_files_a_run_leaves_over() {
        let check = |limit: u64, open: u64, expected: usize| {
            assert_eq!(workers(limit, open), expected, "{limit} {open}");
        };
        check(1024, 12, 108);
        check(64, 14, 2);
        check(64, 64, 1);
        check(0, 0, 1);
        assert!(workers(u64::MAX, 12) > 1 << 40);
    }

    #[test]
    fn an_ended_worker_gives_its_room_back() {
        let mut room = Room { most: 2, taken: 0 };
        assert_eq!([room.take(), room.take(), room.take()], [true, true, false]);
        room.count(1);
        assert!(room.has_more() && room.take() && !room.take());
    }
}
