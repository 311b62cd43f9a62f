//! One PHP worker, a process or a thread: what reads it, and what is known of its own memory.

use std::sync::Arc;

use super::clocks::Clocks;
use super::reader::Reader;
use crate::stack::functions::Map;
use crate::target::process::Process;

/// A worker as the sampler reads it.
#[derive(Debug)]
pub struct Worker {
    pub process: Arc<Process>,
    pub reader: Reader,
    pub clocks: Clocks,
    /// Functions in the worker's own memory.
    pub local: Map,
    /// The request in which `local` was learned.
    pub generation: u64,
}

impl Worker {
    /// A worker that begins now.
    #[must_use]
    pub fn new(process: Arc<Process>) -> Self {
        Self {
            reader: Reader::new(&process),
            clocks: Clocks::of(&process),
            process,
            local: Map::default(),
            generation: 0,
        }
    }
}
