//! One PHP worker, a process or a thread: its reader, and what is known of its memory.

use std::sync::Arc;

use super::clocks::{Clocks, SchedStat};
use super::place::{self, KnownPlace, OwnCpu, Stands};
use super::reader::Reader;
use crate::stack::deep::DeepStack;
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
    /// Where it was last seen.
    pub place: KnownPlace,
    /// What the newest check of that has found, with its numbers.
    stands: Option<(Stands, SchedStat)>,
    watch: Option<Arc<Watch>>,
    /// Takes the reader's place while that is lent.
    lent_for: Option<Box<Reader>>,
    /// The request in which `local` was learned.
    pub generation: u64,
    /// Its stack when that was last too deep for a sample.
    pub deep: DeepStack,
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
            deep: DeepStack::default(),
            watch: None,
            place: KnownPlace::default(),
            stands: None,
            lent_for: None,
        }
    }

    /// Where it is if it does not run: this thread has its CPU, or it sleeps.
    pub fn stands(&mut self, own: OwnCpu) -> Option<Stands> {
        self.stands = None;
        let watch = self.watch()?;
        let numbers = self.clocks.look().ok()?;
        let stands = self
            .place
            .find(own, numbers, place::now(), || watch.state())?;
        self.stands = Some((stands, numbers));
        Some(stands)
    }

    /// What [`Worker::stands`] has found since this was last asked.
    pub fn take_stands(&mut self) -> Option<(Stands, SchedStat)> {
        self.stands.take()
    }

    /// Lends the reader; [`Worker::take_back`] ends that.
    pub fn lend(&mut self) -> Box<Reader> {
        let process = &self.process;
        let other = self.lent_for.take();
        let other = other.unwrap_or_else(|| Box::new(Reader::new(process)));
        std::mem::replace(&mut self.reader, other)
    }

    /// Takes the reader back.
    pub fn take_back(&mut self, reader: Box<Reader>) {
        self.lent_for = Some(std::mem::replace(&mut self.reader, reader));
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
