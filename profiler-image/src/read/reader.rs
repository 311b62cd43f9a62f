//! The one call that reads a worker's stack.
//!
//! The kernel reads the call's pieces in order: the pointer to the top frame, then the part around
//! the stack's top several times, with the part below after the second time and the pointer before
//! each later one; then the words that show phases, and the pointer again. Frames outside the page
//! are read beside the looks ([`super::beside`]). The sample before, also of an earlier request,
//! tells where the top is expected. If that was far off, the call is made again; if that is likely,
//! as the top moves far and the last read is old, a short read asks.
//!
//! The pointer comes first, and the sample is of its moment; only the end of the compiler's memory,
//! if it is watched, comes before. The target's CPU has to fetch each cache line back that was read
//! when the program writes to it, which takes a tenth of a microsecond. So reading slows down
//! exactly the calls, because they push frames.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phpprof_zend::Layout;
use phpprof_zend::closure::Arena;
use phpprof_zend::memory::{Memory, MemoryFault, Piece};
use phpprof_zend::opcache::Restarts;
use phpprof_zend::phase::Phase;
use phpprof_zend::unwind::Copy;

use smallvec::SmallVec;

use super::beside::Expected;
use super::compiler_watch::CompilerWatch;
use super::globals::{Globals, MAX_TOPS, Tops, newest};
use super::heap::{HeapSizes, HeapWatch};
use super::lasting::{Lasting, WorkerMemory};
use super::looks::{Pieces, add_looks};
use super::request_watch::RequestWatch;
use super::window::Window;
use super::words::{WordAddresses, WordBytes};
use crate::target::process::Process;

/// The looks show the top frame and its caller's if the top is this far above their beginning.
const SHOWN: u64 = 1024;
/// The number of looks while the CPU budget has no room for more.
const FEW_LOOKS: usize = 2;
/// A read takes 5 to 20 microseconds. A longer one was delayed, by another process or an interrupt:
/// the program then ran so long between two pieces that another stack can be in its place.
const LONGEST: Duration = Duration::from_micros(50);
/// By this time after the last read, the top of a stack that moves far is asked for first.
const AGED: Duration = Duration::from_millis(5);
/// Reads for one sample while the page, or the top on it, is elsewhere, or the read was delayed.
const MAX_READS: usize = 3;
/// This many bytes of a top frame on another page: its header and the first variables.
const FRAME: u64 = 256;
/// With this many parts beside the page, none is added: few of a thousand fibers come again.
const FEW_BESIDE: usize = 8;
/// One read of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, which shall take no place on the heap"
)]
pub enum Reading {
    /// `EG(current_execute_data)` is NULL; `None` if the words that tell the phase are not known.
    NoFrame(Option<Phase>),
    /// There is a frame; [`Reader::copy`] has the stack.
    Busy {
        /// The top frame, look by look.
        tops: Tops,
        /// The top frame at the end of the read.
        last: Globals,
    },
    /// There was a frame, but no read has shown it: each expected the top on another page, or
    /// elsewhere on its page, or opcache restarted meanwhile.
    Elsewhere,
}

/// What one read has shown of the first moment's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadShown {
    /// Not its top.
    Nothing,
    /// Its top, but maybe not the caller of the top frame.
    Part,
    /// Its top and the frames around it.
    Top,
}

/// Reads the stack of a process. The sampler and the quiescent reader have one each.
#[derive(Debug)]
pub struct Reader {
    /// The worker's memory, for as long as it is what it was when the stack was read.
    pub memory: WorkerMemory,
    at: WordAddresses,
    /// `SG(global_request_time)` of the last read; 0 if it is not known.
    pub request_time: u64,
    /// Whether the JIT has compiled code, at the last read of a stack; `None` if that is unknown.
    pub has_jit_code: Option<bool>,
    /// `CG(in_compilation)` of the last read; false if it is not known.
    pub in_compilation: bool,
    /// `GC_G(gc_active)`: the cycle collector was running.
    pub gc_active: bool,
    /// The engine was ending a request; false if it is not known.
    pub in_shutdown: bool,
    /// The last read has shown a frame. Without one, the engine is between requests.
    pub has_frame: bool,
    /// The buffer of the read, lent by the caller. The top's part is in its looks.
    pub copy: Copy,
    /// Whether the CPU budget allows as many looks as are needed.
    pub has_room: bool,
    /// The reading thread has the worker's CPU: one look shows a moment, however long the read
    /// takes.
    pub is_here: bool,
    /// How much around the top is read, and how often.
    pub window: Window,
    /// Finds out which request the worker serves, if that is requested.
    pub request: Option<RequestWatch>,
    /// The heap of the newest read, if that is requested.
    pub heap: Option<HeapSizes>,
    /// Reads the heap, if that is requested.
    pub heap_watch: Option<HeapWatch>,
    /// Reads where the compiler's memory ends, once closures have to be searched for.
    pub compiler: Option<CompilerWatch>,
    /// The frames outside the page that are read with the looks.
    beside: Expected,
    /// The top when it was last read with a frame: the next stack is usually on that page.
    expected: Option<Globals>,
    /// When the stack was last read.
    last_read: Option<Instant>,
    /// The last read took too long to be of one moment, unless the worker stood.
    was_held_up: bool,
}

impl Reader {
    /// A reader of a process.
    #[must_use]
    pub fn new(process: &Process) -> Self {
        let at = WordAddresses::new(process);
        Self {
            memory: Lasting::new(Arc::clone(&process.memory), process.restarts_at),
            has_jit_code: at.has_jit_code(),
            at,
            request_time: 0,
            in_compilation: false,
            gc_active: false,
            in_shutdown: false,
            has_frame: false,
            copy: Copy::default(),
            has_room: true,
            is_here: false,
            window: Window::default(),
            request: None,
            heap: None,
            heap_watch: None,
            compiler: None,
            beside: Expected::default(),
            expected: None,
            last_read: None,
            was_held_up: false,
        }
    }

    /// Another reader of the same process, which expects the stack where this one last saw it.
    #[must_use]
    pub fn another(&self, process: &Process) -> Self {
        Self {
            expected: self.expected,
            ..Self::new(process)
        }
    }

    /// Reads the globals and the stack.
    ///
    /// # Errors
    /// [`Fault::Gone`] when the process has ended, [`Fault::Denied`] when the kernel refuses,
    /// [`Fault::Unmapped`] when the stack was not found.
    pub fn read(&mut self) -> Result<Reading, MemoryFault> {
        let mut found = Err(MemoryFault::Unmapped);
        let mut asks_first = self.asks_first();
        for attempt in 0..MAX_READS {
            // The copy has only the bytes of the last read.
            found = found.map(|_| Reading::Elsewhere);
            let before = self.expected;
            let known = before.filter(|_| !std::mem::take(&mut asks_first));
            let (expected, reach) = match known {
                Some(expected) => (expected, self.window.reach()),
                None => {
                    let (globals, phase) = self.globals()?;
                    if globals.current_execute_data == 0 {
                        // A request has no frame for a moment, as between fibers.
                        if phase != Some(Phase::Idle) && self.expected.take().is_some() {
                            continue;
                        }
                        (self.request_time, self.has_frame) = (0, false);
                        return Ok(Reading::NoFrame(phase));
                    }
                    if globals.page == 0 {
                        // The engine enters and leaves a fiber word by word.
                        continue;
                    }
                    (globals, Window::NEAR)
                }
            };
            match self.read_at(&expected, reach) {
                Ok(Reading::Busy { tops, last }) => {
                    self.expected = Some(newest(&tops)).filter(|newest| newest.page != 0);
                    // The sample is of the first moment; the top may have moved far since.
                    let first = tops.first().copied().unwrap_or_default();
                    let shown = if first.page == expected.page {
                        self.shown(first.top, before.unwrap_or(expected), known.is_some())
                    } else {
                        self.shown_beside(&first, attempt > 0)
                    };
                    if shown == ReadShown::Nothing {
                        found = Ok(Reading::Elsewhere);
                        continue;
                    }
                    found = Ok(Reading::Busy { tops, last });
                    self.seek_heap(expected.page);
                    if shown == ReadShown::Top && !self.was_held_up {
                        break;
                    }
                }
                Ok(Reading::NoFrame(Some(Phase::Idle))) => {
                    self.request_time = 0;
                    return Ok(Reading::NoFrame(Some(Phase::Idle)));
                }
                Ok(Reading::Elsewhere) => found = Ok(Reading::Elsewhere),
                // Inside a request there is no frame for a moment, such as between two fibers.
                Ok(_) | Err(MemoryFault::Unmapped) => self.expected = None,
                Err(other) => return Err(other),
            }
        }
        found
    }

    /// Looks for the heap, if it is asked for and not found yet.
    fn seek_heap(&mut self, page: u64) {
        if let Some(heap) = &mut self.heap_watch {
            heap.seek(&**self.memory.memory(), page);
        }
    }

    /// What the looks show of a top on the page that was read, and notes how far that was from
    /// where it was expected.
    fn shown(&mut self, top: u64, expected: Globals, was_known: bool) -> ReadShown {
        let is_inside = self.copy.inside(top);
        let is_shown =
            top.saturating_sub(self.copy.hot) >= SHOWN || self.copy.hot == self.copy.base;
        let distance = top.abs_diff(expected.top);
        let would_show = if was_known {
            is_inside && is_shown
        } else {
            distance + SHOWN <= self.window.reach()
        };
        self.window.moved(distance, would_show);
        match (is_inside, is_shown) {
            (false, _) => ReadShown::Nothing,
            (true, false) => ReadShown::Part,
            (true, true) => ReadShown::Top,
        }
    }

    /// What was read beside the page of a top on another one. Where fibers run for some
    /// microseconds, each read again would come too late as well: so after one, the next reads take
    /// such a frame with the looks.
    fn shown_beside(&mut self, first: &Globals, is_again: bool) -> ReadShown {
        let frame = first.current_execute_data;
        if self.copy.beside.at(frame).is_some() {
            return ReadShown::Top;
        }
        if is_again {
            self.expect_beside(frame, FRAME);
        }
        ReadShown::Nothing
    }

    /// Whether a short read has to tell where the top is: to read all its places would take longer.
    fn asks_first(&self) -> bool {
        let is_aged = |at: Instant| at.elapsed() >= AGED;
        self.expected.is_some() && self.window.is_wide() && self.last_read.is_some_and(is_aged)
    }

    /// The next reads take this part of memory with the looks, if there is room. Returns whether.
    pub fn expect_beside(&mut self, address: u64, length: u64) -> bool {
        let has_room = self.beside.parts().count() < FEW_BESIDE;
        if has_room {
            self.beside.add(address, length);
        }
        has_room
    }

    /// Notes which frames outside the page unwinding has met: later reads take them along.
    pub fn note_beside(&mut self, tops: &[Globals]) {
        let base = self.copy.base;
        let others = tops.iter().filter(|top| top.page != base);
        self.beside.note(&self.copy, |address| {
            let mut others = others.clone();
            others.any(|top| (top.page..top.end).contains(&address))
        });
    }

    /// Reads where the compiler's memory ends from now on.
    pub fn watch_compiler(&mut self) {
        let globals = self.at.phase.compiler_globals;
        self.compiler = globals.and_then(|globals| CompilerWatch::new(self.at.layout, globals));
    }

    /// The compiler's memory at the last read, if it is watched.
    #[must_use]
    pub fn arena(&self) -> Option<&Arena> {
        self.compiler.as_ref()?.arena.as_ref()
    }

    /// Whether no code of the JIT can run, by the last read: it had compiled none.
    #[must_use]
    pub fn is_interpreted(&self) -> bool {
        self.has_jit_code == Some(false)
    }

    /// The address of `GC_G(gc_enabled)`, before `GC_G(gc_active)`.
    #[must_use]
    pub fn gc_enabled_at(&self) -> Option<u64> {
        self.at.phase.gc_enabled(self.at.layout)
    }

    /// The row of the worker's engine.
    #[must_use]
    pub fn layout(&self) -> &'static Layout {
        self.at.layout
    }

    /// The address of `EG(current_execute_data)`.
    #[must_use]
    pub fn top_at(&self) -> u64 {
        self.at.executor_globals + self.at.layout.executor_globals.current_execute_data as u64
    }

    /// Reads the globals, and the words that tell phases without a frame: nothing else is read
    /// while no stack has been seen.
    fn globals(&mut self) -> Result<(Globals, Option<Phase>), MemoryFault> {
        let mut bytes = [0_u8; Globals::SIZE];
        let mut phase = self.phase(&mut bytes);
        // The memory of the request or the heap may be gone, while the globals are still there.
        if phase.is_err() && self.lost() {
            phase = self.phase(&mut bytes);
        }
        if phase.is_err() {
            let Piece { address, bytes } = self.at.globals(&mut bytes);
            self.memory.memory().read(address, bytes)?;
        }
        let globals = Globals::parse(self.at.layout, &bytes);
        Ok((globals, phase.unwrap_or_default()))
    }

    /// Takes the pieces of the heap and of the compiler's memory, if they were read.
    fn took_beside(&mut self) {
        if let Some(compiler) = &mut self.compiler {
            compiler.took();
        }
        if let Some(heap) = &mut self.heap_watch {
            heap.took();
            self.heap = heap.heap();
        }
    }

    /// A call has failed: memory beside the stack may be gone. Returns whether less is left.
    fn lost(&mut self) -> bool {
        self.heap = None;
        let heap = self.heap_watch.as_mut().is_some_and(HeapWatch::lost);
        let request = self.request.as_mut().is_some_and(RequestWatch::lost);
        let compiler = self.compiler.as_mut().is_some_and(CompilerWatch::lost);
        let beside = self.beside.forget();
        heap || request || compiler || beside
    }

    /// Reads the globals, and the phase, if it is known, of the same moment.
    fn phase(&mut self, globals: &mut [u8; Globals::SIZE]) -> Result<Option<Phase>, MemoryFault> {
        let mut words = WordBytes::new();
        let mut pieces = Pieces::new();
        pieces.extend(self.compiler.iter_mut().flat_map(CompilerWatch::pieces));
        pieces.push(self.at.globals(globals));
        pieces.extend(words.of_phase(&self.at, self.request.is_some()));
        if let Some(request) = &mut self.request {
            pieces.extend(request.pieces());
        }
        let began = Instant::now();
        pieces.extend(self.heap_watch.as_mut().and_then(HeapWatch::piece));
        self.memory.memory().gather(&mut pieces)?;
        drop(pieces);
        self.took_beside();
        if let Some(request) = &mut self.request {
            request.took(words.request_time(), began.elapsed() > LONGEST);
        }
        Ok(words.phase(&self.at))
    }

    /// Reads a stack whose page and top are expected there, and so many bytes below and above this
    /// top in each look.
    fn read_at(&mut self, expected: &Globals, reach: u64) -> Result<Reading, MemoryFault> {
        let mut words = WordBytes::new();
        let mut restarts = [Restarts::default(); 2];
        let [before, after] = &mut restarts;
        let hot = expected.around_top(reach);
        let looks = match (self.is_here, self.has_room) {
            (true, _) => 1,
            (false, true) => self.window.looks(hot.len()),
            (false, false) => FEW_LOOKS,
        };
        let mut tops: SmallVec<[[u8; Globals::SIZE]; MAX_TOPS]> =
            SmallVec::from_elem([0; Globals::SIZE], looks.max(2) - 1);
        let copy = &mut self.copy;
        copy.make_room(expected.page, hot.clone(), looks);
        copy.beside.make_room(self.beside.parts());
        let mut pieces = Pieces::new();
        pieces.extend(self.compiler.iter_mut().flat_map(CompilerWatch::pieces));
        pieces.extend(self.memory.piece(before));
        let reads_of_top = tops.iter_mut().map(|top| self.at.globals(top));
        let below = (hot.start > 0).then_some(Piece {
            address: expected.page,
            bytes: &mut copy.bytes[..hot.start],
        });
        add_looks(
            &mut pieces,
            reads_of_top,
            copy.hot,
            &mut copy.looks,
            below,
            copy.beside.pieces(),
        );
        pieces.extend(words.of_stack(&self.at));
        pieces.extend(self.memory.piece(after));
        if let Some(request) = &mut self.request {
            pieces.extend(request.pieces());
        }
        pieces.extend(self.heap_watch.as_mut().and_then(HeapWatch::piece));
        let began = Instant::now();
        let read = self.memory.memory().gather(&mut pieces);
        self.last_read = Some(began);
        self.was_held_up = !self.is_here && began.elapsed() > LONGEST;
        drop(pieces);
        if read.is_err() {
            self.lost();
        }
        read?;
        let [before, after] = restarts;
        if before != after {
            // Nobody can tell of which scripts the stack is.
            return Ok(Reading::Elsewhere);
        }
        self.memory.follow(before);
        let tops = tops.iter().map(|top| Globals::parse(self.at.layout, top));
        Ok(self.took(&words, tops.collect()))
    }

    /// Takes what the words of a read with a stack say.
    fn took(&mut self, words: &WordBytes, tops: Tops) -> Reading {
        self.took_beside();
        self.request_time = words.request_time();
        if let Some(request) = &mut self.request {
            request.took(self.request_time, self.was_held_up);
        }
        self.in_compilation = words.in_compilation();
        self.gc_active = words.gc_active();
        self.in_shutdown = words.in_shutdown(&self.at);
        self.has_jit_code = words.has_jit_code(&self.at);
        self.has_frame = newest(&tops).current_execute_data != 0;
        if self.has_frame {
            Reading::Busy {
                tops,
                last: words.last(&self.at),
            }
        } else {
            Reading::NoFrame(words.phase(&self.at))
        }
    }
}

#[cfg(test)]
mod tests;
