//! Counts the system calls that read targets, and those that read CPU clocks: exactly, where the
//! calls are made.
//!
//! There is one count for the whole process, because the kernel charges it as a whole; `make bench`
//! compares it with `strace -c` once.

use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

static GATHERS: AtomicU64 = AtomicU64::new(0);
static READS: AtomicU64 = AtomicU64::new(0);
static VECTORS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static OPENS: AtomicU64 = AtomicU64::new(0);
static FILE_READS: AtomicU64 = AtomicU64::new(0);
static CLOCK_READS: AtomicU64 = AtomicU64::new(0);

/// Calls since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SystemCallCounts {
    /// Reads of a target's memory, each of any number of pieces.
    pub gathers: u64,
    /// The system calls for these: `process_vm_readv`, or a `pread` of `/proc/PID/mem` for each
    /// piece.
    pub memory_reads: u64,
    /// Pieces of memory.
    pub vectors: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Files under `/proc` that were opened; listing a folder counts as one.
    pub opens: u64,
    /// Reads of files under `/proc`, except those of memory that replace a call.
    pub file_reads: u64,
    /// Reads of CPU clocks, of any process or thread. The other clocks cost no system call, because
    /// the vDSO has them.
    pub clock_reads: u64,
}

impl SystemCallCounts {
    /// The calls until now.
    #[must_use]
    pub fn now() -> Self {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            gathers: get(&GATHERS),
            memory_reads: get(&READS),
            vectors: get(&VECTORS),
            bytes: get(&BYTES),
            opens: get(&OPENS),
            file_reads: get(&FILE_READS),
            clock_reads: get(&CLOCK_READS),
        }
    }

    /// The calls since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            gathers: self.gathers - earlier.gathers,
            memory_reads: self.memory_reads - earlier.memory_reads,
            vectors: self.vectors - earlier.vectors,
            bytes: self.bytes - earlier.bytes,
            opens: self.opens - earlier.opens,
            file_reads: self.file_reads - earlier.file_reads,
            clock_reads: self.clock_reads - earlier.clock_reads,
        }
    }
}

impl AddAssign for SystemCallCounts {
    fn add_assign(&mut self, more: Self) {
        self.gathers += more.gathers;
        self.memory_reads += more.memory_reads;
        self.vectors += more.vectors;
        self.bytes += more.bytes;
        self.opens += more.opens;
        self.file_reads += more.file_reads;
        self.clock_reads += more.clock_reads;
    }
}

pub(super) fn count_gather() {
    GATHERS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn count_memory_read(vectors: usize, bytes: usize) {
    READS.fetch_add(1, Ordering::Relaxed);
    VECTORS.fetch_add(vectors as u64, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Counts a read of a file under `/proc`.
pub fn count_file_read() {
    FILE_READS.fetch_add(1, Ordering::Relaxed);
}

/// Reads a CPU clock; `None` once its process has ended. The vDSO has no such clock
/// (lib/vdso/gettimeofday.c).
pub fn cpu_time(clock: ClockId) -> Option<TimeSpec> {
    CLOCK_READS.fetch_add(1, Ordering::Relaxed);
    clock_gettime(clock).ok()
}

/// Opens a file under `/proc`.
///
/// # Errors
/// The kernel's error.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    OPENS.fetch_add(1, Ordering::Relaxed);
    File::open(path)
}

/// Counts the opening of a folder under `/proc`.
pub fn count_open() {
    OPENS.fetch_add(1, Ordering::Relaxed);
}
