//! One PHP worker, a process or a thread: its reader, and what is known of its memory.

use std::sync::Arc;

use super::clocks::Clocks;
use super::reader::Reader;
use crate::stack::functions::Map;
use crate::target::process::Process;
use crate::target::process::stat::Watch;

/// A worker as the sampler reads it.
#[derive(Debug)]
pub struct Worker {
    /// What it is.
    pub process: Arc<Process>,
    /// Reads its stack. It lies elsewhere, so that the clocks of sleeping workers, whose stacks are
    /// not read, are on few pages.
    pub reader: Box<Reader>,
    /// Its CPU time, and whether it sleeps.
    pub clocks: Clocks,
    /// Known functions in the worker's own memory.
    pub local: Map,
    watch: Option<Arc<Watch>>,
    /// The request in which `local` was learned.
    pub generation: u64,
    /// The address of the table of the classes that are being autoloaded, when it was last read.
    pub autoloaded: u64,
}

impl Worker {
    /// A worker that was just found.
    #[must_use]
    pub fn new(process: Arc<Process>) -> Self {
        Self {
            reader: Box::new(Reader::new(&process)),
            clocks: Clocks::of(&process),
            process,
            local: Map::default(),
            generation: 0,
            autoloaded: 0,
            watch: None,
        }
    }

    /// Tells whether the worker runs, from two files that are opened at the first call and stay
    /// open.
    pub fn watch(&mut self) -> Option<Arc<Watch>> {
        if self.watch.is_none() {
            self.watch = Watch::open(self.process.pid, self.process.tid).map(Arc::new);
        }
        self.watch.clone()
    }
}
