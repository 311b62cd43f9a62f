//! The threads of a process that run PHP, each a worker of its own.
//!
//! The engine's table names its threads by their `pthread_t`; the C library keeps the kernel's
//! number in the structure that this points to. Entries of threads that have ended stay in the
//! table, so a thread counts only while it exists in the kernel. Threads without an entry (a Go
//! runtime's, a driver's) are ignored.
//!
//! All words from which a list of threads was made are read again in each scan, by one gather.
//! While none has changed, the list is the same: the kernel, or musl, clears a thread's id in its
//! memory when it ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::read_dir;
use std::sync::Arc;

use phpprof_zend::layouts::Machine;
use phpprof_zend::memory::{Memory, MemoryFault, Piece};
use phpprof_zend::tsrm::Thread;
use smallvec::SmallVec;

use super::files::Room;
use super::process::{Process, ProcessMemory, calls, text};

/// The offset of `tid` in `struct pthread`: of glibc (2.23 to 2.41), and of musl (since 1.2.2).
const TID_X86_64: [u64; 2] = [720, 48];
const TID_AARCH64: [u64; 2] = [208, 32];
/// The largest number of threads of a process that is supported.
const MAX_TASKS: usize = 16_384;

/// The changes in a scan.
#[derive(Debug, Default)]
pub struct Changes {
    pub new: Vec<Arc<Process>>,
    /// The workers that have ended, by [`Process::tid`].
    pub gone: Vec<i32>,
    /// Families without a member, by [`Process::family`].
    pub families_gone: Vec<usize>,
}

/// The workers of one process, by [`Process::tid`].
#[derive(Debug, Default)]
pub(super) struct KnownThreads {
    workers: HashMap<i32, Arc<Process>>,
    made_from: NotedReads,
    /// The threads of the last list that are not sampled for want of room.
    pub(super) without_room: usize,
}

impl KnownThreads {
    /// Finds new and ended threads. A process whose engine is not thread-safe is its own only
    /// worker.
    pub(super) fn follow(
        &mut self,
        process: &Arc<Process>,
        room: &mut Room,
        changes: &mut Changes,
    ) {
        let Some(threads) = &process.engine.threads else {
            if self.workers.is_empty() {
                self.begin(Arc::clone(process), changes);
            }
            return;
        };
        if !self.is_due(&process.memory, room) {
            return;
        }
        let reads = NotingMemory::of(&process.memory);
        let Some(listed) = threads.list(&reads, process.engine.layout) else {
            // The table is being changed, so the last list is kept.
            return;
        };
        let tasks = tasks(process.pid);
        let current: HashMap<i32, &Thread> = listed
            .iter()
            .filter_map(|thread| Some((tid(process, &reads, thread.thread_id, &tasks)?, thread)))
            .collect();
        self.made_from = reads.finish();
        self.workers.retain(|tid, worker| {
            let same = current
                .get(tid)
                .is_some_and(|thread| thread.executor_globals == worker.engine.executor_globals);
            if !same {
                changes.gone.push(*tid);
            }
            same
        });
        self.without_room = 0;
        for (tid, thread) in current {
            if !self.workers.contains_key(&tid) {
                if !room.take() {
                    self.without_room += 1;
                    continue;
                }
                let worker = Process {
                    tid,
                    engine: Arc::new(process.engine.of_thread(thread)),
                    shared_ranges: Arc::clone(&process.shared_ranges),
                    memory: Arc::clone(&process.memory),
                    // The first thread reads it, because that runs a command line program.
                    relay: process.relay.clone().filter(|_| tid == process.pid),
                    executable: process.executable.clone(),
                    ..**process
                };
                self.begin(Arc::new(worker), changes);
            }
        }
    }

    /// Whether the list would change: the process has changed its table, or there is room for
    /// threads that had none.
    fn is_due(&self, memory: &ProcessMemory, room: &Room) -> bool {
        let fits = self.without_room > 0 && room.has_more();
        fits || !self.made_from.is_as_it_was(memory)
    }

    /// For how many workers there is to be room, in addition to the process itself.
    pub(super) fn count(&self, process: &Process) -> usize {
        match process.engine.threads {
            Some(_) => self.workers.len(),
            None => 0,
        }
    }

    /// Ends all workers of the process.
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

/// The bytes that were read of a process, and their addresses.
#[derive(Debug, Default)]
struct NotedReads {
    addresses: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl NotedReads {
    /// Whether another read would give the same; false if nothing was read.
    fn is_as_it_was(&self, memory: &ProcessMemory) -> bool {
        let mut now: SmallVec<[u8; 512]> = SmallVec::from_elem(0, self.bytes.len());
        let mut rest = now.as_mut_slice();
        let mut pieces: SmallVec<[Piece<'_>; 64]> = SmallVec::new();
        for &(address, length) in &self.addresses {
            let Some((bytes, others)) = std::mem::take(&mut rest).split_at_mut_checked(length)
            else {
                return false;
            };
            pieces.push(Piece { address, bytes });
            rest = others;
        }
        let is_read = !pieces.is_empty() && memory.gather(&mut pieces).is_ok();
        drop(pieces);
        is_read && now[..] == self.bytes
    }
}

/// A process's memory that notes all reads.
struct NotingMemory<'a> {
    memory: &'a ProcessMemory,
    reads: RefCell<NotedReads>,
}

impl<'a> NotingMemory<'a> {
    fn of(memory: &'a ProcessMemory) -> Self {
        Self {
            memory,
            reads: RefCell::default(),
        }
    }

    fn note(&self, address: u64, bytes: &[u8]) {
        let mut reads = self.reads.borrow_mut();
        reads.addresses.push((address, bytes.len()));
        reads.bytes.extend_from_slice(bytes);
    }

    fn finish(self) -> NotedReads {
        self.reads.into_inner()
    }
}

impl Memory for NotingMemory<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.memory.read(address, bytes)?;
        self.note(address, bytes);
        Ok(())
    }
}

/// The threads of a process: from the id in the innermost PID namespace, which its C library knows,
/// to the id in this one.
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

/// The thread id of a live thread. For a live one only its id is noted, and for an ended one, all
/// words that might become a number again.
fn tid(
    process: &Process,
    reads: &NotingMemory<'_>,
    thread_id: u64,
    tasks: &HashMap<i32, i32>,
) -> Option<i32> {
    let places = match process.engine.layout.machine {
        Machine::X86_64 => TID_X86_64,
        Machine::Aarch64 => TID_AARCH64,
    };
    let stored = places.iter().filter_map(|place| {
        let address = thread_id.checked_add(*place)?;
        Some((address, process.memory.half(address).ok()?))
    });
    let stored: Vec<(u64, u32)> = stored.collect();
    let task = |number: u32| tasks.get(&i32::try_from(number).ok()?).copied();
    let living = stored.iter().find(|(_, number)| task(*number).is_some());
    let noted = living.map_or(stored.as_slice(), std::slice::from_ref);
    for (address, number) in noted {
        reads.note(*address, &number.to_le_bytes());
    }
    living.and_then(|(_, number)| task(*number))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_read_stays_valid_until_a_word_changes() {
        let memory = ProcessMemory::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let words = [AtomicU64::new(7), AtomicU64::new(9)];
        let address = |word: &AtomicU64| std::ptr::from_ref(word).addr() as u64;
        let reads = NotingMemory::of(&memory);
        let read = words.each_ref().map(|word| reads.word(address(word)));
        assert_eq!(read, [Ok(7), Ok(9)]);
        let set = reads.finish();
        assert!(set.is_as_it_was(&memory));
        words[1].store(8, Ordering::Relaxed);
        assert!(!set.is_as_it_was(&memory));
        words[1].store(9, Ordering::Relaxed);
        assert!(set.is_as_it_was(&memory));
    }

    #[test]
    fn threads_without_room_are_listed_again_later() {
        let memory = ProcessMemory::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let word = AtomicU64::new(7);
        let reads = NotingMemory::of(&memory);
        reads.word(std::ptr::from_ref(&word).addr() as u64).unwrap();
        let mut threads = KnownThreads {
            made_from: reads.finish(),
            ..KnownThreads::default()
        };
        let mut room = Room::left();
        assert!(!threads.is_due(&memory, &room));
        threads.without_room = 1;
        assert!(threads.is_due(&memory, &room));
        room.count(usize::MAX);
        assert!(!threads.is_due(&memory, &room));
    }

    #[test]
    fn nothing_is_known_of_unmapped_memory() {
        let memory = ProcessMemory::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let reads = NotingMemory::of(&memory);
        assert!(reads.word(8).is_err());
        assert!(!reads.finish().is_as_it_was(&memory));
        let reads = NotingMemory::of(&memory);
        reads.note(8, &[0; 4]);
        assert!(!reads.finish().is_as_it_was(&memory));
    }
}
