//! The one call that reads a worker's stack.
//!
//! The call's pieces are read in their order: the globals, the VM stack around its top, what tells phases, the globals
//! again, the rest of the used stack. Where the stack lies is known from the sample before; the first one takes a call more.

use std::sync::Arc;

use phpprof_zend::Layout;
use phpprof_zend::memory::{Fault, Memory, Piece, word_at};
use phpprof_zend::phase::{Moment, Phase, PhaseGlobals};
use phpprof_zend::unwind::Copy;

use smallvec::SmallVec;

use crate::target::process::{Process, ProcessMemory};

/// What is read beyond the highest top that was seen lately.
const MARGIN: u64 = 4096;
/// What is read below the last top together with what is above it.
const HOT: u64 = 1024;
/// A page larger than this is read up to here only.
const MAX_EXTENT: u64 = 1 << 20;
/// Samples after which a top that was not reached again is forgotten: twice this.
const HALF_WINDOW: u32 = 500;
/// The pieces of one read, without a place on the heap.
type Pieces<'a> = SmallVec<[Piece<'a>; 8]>;

/// The words of `executor_globals` that a sample needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Globals {
    pub top: u64,
    pub end: u64,
    pub page: u64,
    pub current_execute_data: u64,
}

impl Globals {
    /// Room for the slice.
    pub const SIZE: usize = 64;

    /// First byte and length of the slice.
    #[must_use]
    pub fn slice(layout: &Layout) -> (u64, usize) {
        let row = &layout.executor_globals;
        (
            row.vm_stack_top as u64,
            (row.current_execute_data + 8 - row.vm_stack_top).min(Self::SIZE),
        )
    }

    fn parse(layout: &Layout, bytes: &[u8]) -> Self {
        let row = &layout.executor_globals;
        let word = |offset: usize| word_at(bytes, offset - row.vm_stack_top);
        Self {
            top: word(row.vm_stack_top),
            end: word(row.vm_stack_end),
            page: word(row.vm_stack),
            current_execute_data: word(row.current_execute_data),
        }
    }

    /// How much of the page is worth reading, from its start.
    fn extent(&self, highest_top: u64) -> u64 {
        let size = self.end.saturating_sub(self.page).min(MAX_EXTENT);
        highest_top
            .max(self.top)
            .saturating_sub(self.page)
            .saturating_add(MARGIN)
            .min(size)
    }
}

/// One read of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// `EG(current_execute_data)` is NULL.
    NoFrame(Phase),
    Busy {
        leading: Globals,
        trailing: Globals,
    },
}

/// Reads the stack of a process; used by the sampler and by the quiescent reader, each with its own.
#[derive(Debug)]
pub struct Reader {
    pub memory: Arc<ProcessMemory>,
    layout: &'static Layout,
    executor_globals: u64,
    request_time_at: Option<u64>,
    /// `SG(global_request_time)` of the last read; 0 where it is not known.
    pub request_time: u64,
    phase_globals: PhaseGlobals,
    /// `CG(in_compilation)` and `GC_G(gc_active)` of the last read; false where they are not known.
    pub in_compilation: bool,
    pub gc_active: bool,
    pub copy: Copy,
    last: Option<Globals>,
    highest_now: u64,
    highest_before: u64,
    reads_in_window: u32,
}

impl Reader {
    /// A reader of a process.
    #[must_use]
    pub fn new(process: &Process) -> Self {
        Self {
            memory: Arc::clone(&process.memory),
            layout: process.engine.layout,
            executor_globals: process.engine.executor_globals,
            request_time_at: process.engine.request_time,
            request_time: 0,
            phase_globals: process.engine.phase_globals,
            in_compilation: false,
            gc_active: false,
            copy: Copy::default(),
            last: None,
            highest_now: 0,
            highest_before: 0,
            reads_in_window: 0,
        }
    }

    /// Reads the globals and the stack.
    ///
    /// # Errors
    /// [`Fault::Gone`] when the process has ended, [`Fault::Denied`] when the kernel refuses, [`Fault::Unmapped`] when
    /// the stack could not be found in three tries.
    pub fn read(&mut self) -> Result<Reading, Fault> {
        let mut fault = Fault::Unmapped;
        for _ in 0..3 {
            let known = match self.last {
                Some(known) => known,
                None => self.globals()?,
            };
            self.last = Some(known);
            if known.current_execute_data == 0 {
                // An idle worker is asked for its globals only, until it is busy.
                return Ok(self.without_frame());
            }
            let extent = known.extent(self.highest_now.max(self.highest_before));
            match self.read_at(known.page, extent) {
                Ok(Reading::Busy { leading, trailing }) => {
                    self.last = Some(leading);
                    if leading.page != known.page {
                        // Another page: once more, with what is known now.
                        self.reset();
                        continue;
                    }
                    self.note(leading.top);
                    if leading.top.saturating_sub(leading.page) <= extent {
                        return Ok(Reading::Busy { leading, trailing });
                    }
                }
                Ok(Reading::NoFrame(_)) => return Ok(self.without_frame()),
                Err(Fault::Unmapped) => {
                    self.last = None;
                    self.reset();
                }
                Err(other) => {
                    fault = other;
                    break;
                }
            }
        }
        Err(fault)
    }

    fn without_frame(&mut self) -> Reading {
        (self.last, self.request_time) = (None, 0);
        let moment = self
            .phase_globals
            .moment(&*self.memory, self.layout, self.executor_globals);
        Reading::NoFrame(moment.map_or(Phase::Idle, Moment::phase))
    }

    fn globals(&self) -> Result<Globals, Fault> {
        let (offset, length) = Globals::slice(self.layout);
        let mut bytes = [0_u8; Globals::SIZE];
        self.memory
            .read(self.executor_globals + offset, &mut bytes[..length])?;
        Ok(Globals::parse(self.layout, &bytes))
    }

    fn read_at(&mut self, page: u64, extent: u64) -> Result<Reading, Fault> {
        let (offset, length) = Globals::slice(self.layout);
        let at = self.executor_globals + offset;
        let (mut before, mut after, mut time) =
            ([0_u8; Globals::SIZE], [0_u8; Globals::SIZE], [0_u8; 8]);
        self.copy.forget();
        self.copy.base = page;
        self.copy
            .bytes
            .resize(usize::try_from(extent).unwrap_or(0), 0);
        // The frames around the top change fastest, so they are read right after the word that says which is the top, and
        // that word again right after them; what lies below comes last. What tells phases lies between, so that it belongs
        // to a top that both words name.
        let hot = self
            .last
            .map_or(0, |last| last.top.saturating_sub(page + HOT).min(extent));
        let (cold_bytes, hot_bytes) = self
            .copy
            .bytes
            .split_at_mut(usize::try_from(hot).unwrap_or(0));
        let (mut in_compilation, mut gc) = ([0_u8; 1], [0_u8; 2]);
        let mut pieces = Pieces::new();
        let mut add = |address: Option<u64>, bytes| {
            pieces.extend(address.map(|address| Piece { address, bytes }));
        };
        add(Some(at), &mut before[..length]);
        add(Some(page + hot), hot_bytes);
        add(
            self.phase_globals.in_compilation(self.layout),
            &mut in_compilation,
        );
        add(self.phase_globals.gc_enabled(self.layout), &mut gc);
        add(Some(at), &mut after[..length]);
        add((hot > 0).then_some(page), cold_bytes);
        add(self.request_time_at, &mut time);
        self.memory.gather(&mut pieces)?;
        drop(pieces);
        self.in_compilation = in_compilation == [1];
        self.gc_active = gc == [1, 1];
        self.request_time = u64::from_le_bytes(time);
        let leading = Globals::parse(self.layout, &before);
        if leading.current_execute_data == 0 {
            return Ok(Reading::NoFrame(Phase::Idle));
        }
        Ok(Reading::Busy {
            leading,
            trailing: Globals::parse(self.layout, &after),
        })
    }

    /// Remembers the highest top of the last one to two half windows.
    fn note(&mut self, top: u64) {
        self.highest_now = self.highest_now.max(top);
        self.reads_in_window += 1;
        if self.reads_in_window >= HALF_WINDOW {
            self.highest_before = self.highest_now;
            self.highest_now = 0;
            self.reads_in_window = 0;
        }
    }

    fn reset(&mut self) {
        (self.highest_now, self.highest_before, self.reads_in_window) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_a_page_is_bounded_by_the_page() {
        let globals = Globals {
            top: 0x11000,
            end: 0x50000,
            page: 0x10000,
            current_execute_data: 0x10020,
        };
        assert_eq!(globals.extent(0), 0x2000);
        assert_eq!(globals.extent(0x14000), 0x5000);
        assert_eq!(globals.extent(u64::MAX), 0x40000);
        assert_eq!(
            Globals {
                end: u64::MAX,
                ..globals
            }
            .extent(u64::MAX),
            MAX_EXTENT
        );
        assert_eq!(Globals { end: 0, ..globals }.extent(0), 0);
    }
}
