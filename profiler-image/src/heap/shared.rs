//! What the threads of a process have in common: its mappings, its memory's file, the kernel's
//! counts, and opcache's memory.
//!
//! Each may have thousands of mappings, and the kernel walks all its pages for its counts.
//! Invariant: of threads in a row, it is read once; at most one process is kept.

use phpprof_profile::dump::{OpcacheReport, ResidentReport};
use phpprof_zend::memory::MemoryFault;
use phpprof_zend::opcache::accelerator;

use super::process;
use crate::target::process::{ProcessMemory, maps, text};

/// What was read of a process.
pub struct SharedByThreads {
    pub pid: i32,
    /// The text of `/proc/PID/maps`.
    pub maps: String,
    pub memory: Result<ProcessMemory, MemoryFault>,
    pub resident: Option<ResidentReport>,
    pub opcache: Option<OpcacheReport>,
}

impl SharedByThreads {
    /// Reads it.
    pub fn read(pid: i32) -> Self {
        let maps = text(&format!("/proc/{pid}/maps")).unwrap_or_default();
        let memory = ProcessMemory::open(pid);
        let opcache = memory.as_ref().ok().and_then(|it| opcache(it, &maps));
        Self {
            pid,
            maps,
            memory,
            resident: process::read(pid),
            opcache,
        }
    }
}

fn opcache(memory: &ProcessMemory, maps: &str) -> Option<OpcacheReport> {
    let shared = maps::parse(maps, "").shared;
    let filling = accelerator(memory, &shared)?.filling?;
    Some(OpcacheReport {
        size: filling.size,
        used: filling.used(),
        free: filling.free,
        wasted: filling.wasted,
    })
}

/// The process that was read last.
#[derive(Default)]
pub struct LastShared(Option<SharedByThreads>);

impl LastShared {
    /// This process: the last one, or as this reads it.
    pub fn of(&mut self, pid: i32, read: impl FnOnce(i32) -> SharedByThreads) -> &SharedByThreads {
        self.0.take_if(|last| last.pid != pid);
        self.0.get_or_insert_with(|| read(pid))
    }
}
