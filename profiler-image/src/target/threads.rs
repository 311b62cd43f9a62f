//! The threads of a process that run PHP, each a worker of its own.
//!
//! The engine's table names its threads by their `pthread_t`; the C library keeps the kernel's number in the structure
//! that this points to. Entries of threads that have ended stay in the table, so a thread counts only while the kernel
//! has it. Threads without an entry (a Go runtime's, a driver's) are left alone.

use std::collections::HashMap;
use std::fs::read_dir;
use std::sync::Arc;

use phpprof_zend::layouts::Machine;
use phpprof_zend::memory::Memory;

use super::process::{Process, calls, text};

/// `tid` in `struct pthread`: of glibc (2.23 to 2.41), and of musl (since 1.2.2).
const TID_X86_64: [u64; 2] = [720, 48];
const TID_AARCH64: [u64; 2] = [208, 32];
/// More threads than any process has that this is meant for.
const MAX_TASKS: usize = 16_384;

/// What a scan changed.
#[derive(Debug, Default)]
pub struct Changes {
    pub new: Vec<Arc<Process>>,
    /// By [`Process::tid`].
    pub gone: Vec<i32>,
    /// Families that have no member any more, by [`Process::family`].
    pub families_gone: Vec<usize>,
}

/// The workers of one process, by [`Process::tid`].
#[derive(Debug, Default)]
pub(super) struct Threads {
    workers: HashMap<i32, Arc<Process>>,
}

impl Threads {
    /// Sees which have come and gone. A process whose engine is not thread-safe is its own only worker.
    pub(super) fn follow(&mut self, process: &Arc<Process>, changes: &mut Changes) {
        let Some(threads) = &process.engine.threads else {
            if self.workers.is_empty() {
                self.begin(Arc::clone(process), changes);
            }
            return;
        };
        let Some(listed) = threads.list(&*process.memory, process.engine.layout) else {
            // The table is being changed: what was known a moment ago is still true.
            return;
        };
        let tasks = tasks(process.pid);
        let current: HashMap<i32, _> = listed
            .iter()
            .filter_map(|thread| Some((tid(process, thread.thread_id, &tasks)?, thread)))
            .collect();
        self.workers.retain(|tid, worker| {
            let same = current
                .get(tid)
                .is_some_and(|thread| thread.executor_globals == worker.engine.executor_globals);
            if !same {
                changes.gone.push(*tid);
            }
            same
        });
        for (tid, thread) in current {
            if !self.workers.contains_key(&tid) {
                let worker = Process {
                    tid,
                    engine: Arc::new(process.engine.of_thread(thread)),
                    shared_ranges: Arc::clone(&process.shared_ranges),
                    memory: Arc::clone(&process.memory),
                    // It is read by the first thread, where a command line program runs.
                    relay: process.relay.clone().filter(|_| tid == process.pid),
                    executable: process.executable.clone(),
                    ..**process
                };
                self.begin(Arc::new(worker), changes);
            }
        }
    }

    /// The process has ended.
    pub(super) fn end(&mut self, changes: &mut Changes) {
        changes
            .gone
            .extend(self.workers.drain().map(|(tid, _)| tid));
    }

    fn begin(&mut self, worker: Arc<Process>, changes: &mut Changes) {
        changes.new.push(Arc::clone(&worker));
        self.workers.insert(worker.tid, worker);
    }
}

/// The threads of a process: from the number that each has in the innermost PID namespace, as its C library knows it, to
/// the one that it has here.
fn tasks(pid: i32) -> HashMap<i32, i32> {
    let is_nested = innermost(&format!("/proc/{pid}/status")).is_some_and(|inner| inner != pid);
    calls::count_open();
    read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_TASKS)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|tid| {
            if !is_nested {
                return Some((tid, tid));
            }
            Some((innermost(&format!("/proc/{pid}/task/{tid}/status"))?, tid))
        })
        .collect()
}

/// The last number of `NSpid` (proc(5)): that of the innermost namespace.
fn innermost(path: &str) -> Option<i32> {
    let status = text(path)?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

/// The kernel's number of a thread that lives.
fn tid(process: &Process, thread_id: u64, tasks: &HashMap<i32, i32>) -> Option<i32> {
    let places = match process.engine.layout.machine {
        Machine::X86_64 => TID_X86_64,
        Machine::Aarch64 => TID_AARCH64,
    };
    places.iter().find_map(|place| {
        let stored = process.memory.half(thread_id.checked_add(*place)?).ok()?;
        tasks.get(&i32::try_from(stored).ok()?).copied()
    })
}
