//! Finds out which request a worker serves, from the same call that reads its stack.
//!
//! The words and bytes that led to a request ([`Trail`]) are read again with each stack; while they
//! are the same, so is the request, and nothing more is read. If they differ, the request is read,
//! and compared with the stack's read again.
//! Invariant: a request is accepted only if nothing in its trail has changed from the read of the
//! stack to the end of its own read.

use std::hash::Hasher as _;
use std::time::{Duration, Instant};

use phpprof_zend::Layout;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::request::{self, HttpRequest, RequestPlace, RequestSource, SLICE, Trail, Wanted};
use rustc_hash::FxHasher;

use crate::target::process::Process;

/// A request without a time cannot be distinguished from an equal one after it. None ends and the
/// next begins within this time.
const LONGEST: Duration = Duration::from_millis(1);

/// Which request the reads of a sample showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSeen {
    /// The known one.
    Same,
    /// Another one in all reads.
    Other,
    /// One and then another one.
    Changing,
    /// None: a read failed, or there was none.
    Nothing,
}

/// A request that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundRequest {
    /// Its properties.
    pub request: HttpRequest,
    /// It is the one that was known before a read failed, as far as its trail tells.
    pub is_again: bool,
}

/// A request changed while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestChanged;

/// Watches the request of a worker.
#[derive(Debug)]
pub struct RequestWatch {
    layout: &'static Layout,
    place: RequestPlace,
    sapi_globals: Option<u64>,
    wanted: Wanted,
    known: Option<KnownRequest>,
    /// What was known before a read failed.
    lost: Option<KnownRequest>,
    /// The bytes of the last read.
    slice: [u8; SLICE],
    bytes: Vec<u8>,
    time: u64,
    /// For the current sample: the number of reads, what the first showed, and whether all showed
    /// the same.
    reads: u32,
    first: (u64, u64),
    are_equal: bool,
    has_failed: bool,
    was_held_up: bool,
    read_at: Instant,
}

#[derive(Debug)]
struct KnownRequest {
    slice: [u8; SLICE],
    trail: Trail,
    /// `SG(global_request_time)`; 0 until the program asks for it.
    time: u64,
}

impl KnownRequest {
    /// Whether a later read shows the same request, as far as can be told.
    fn is_shown_by(&self, later: &Self) -> bool {
        self.slice == later.slice
            && self.trail == later.trail
            && is_same_time(self.time, later.time)
    }
}

impl RequestWatch {
    /// The watch of a worker.
    #[must_use]
    pub fn new(process: &Process, wanted: Wanted) -> Self {
        let engine = &process.engine;
        let row = &engine.layout.sapi_globals;
        Self {
            layout: engine.layout,
            place: RequestPlace {
                source: RequestSource::of(engine.layout, &engine.sapi, process.relay.is_some()),
                executor_globals: engine.executor_globals,
                core_globals: engine.phase_globals.core_globals,
            },
            sapi_globals: engine
                .request_time
                .and_then(|at| at.checked_sub(row.global_request_time)),
            wanted,
            known: None,
            lost: None,
            slice: [0; SLICE],
            bytes: Vec::new(),
            time: 0,
            reads: 0,
            first: (0, 0),
            are_equal: true,
            has_failed: false,
            was_held_up: false,
            read_at: Instant::now(),
        }
    }

    /// Where the worker's SAPI keeps its requests.
    #[must_use]
    pub fn source(&self) -> RequestSource {
        self.place.source
    }

    /// `SG(global_request_time)` in the last read, in seconds of Unix time; `None` until the
    /// program has asked for it.
    #[must_use]
    pub fn request_time(&self) -> Option<f64> {
        let time = f64::from_bits(self.time);
        (time.is_finite() && time > 0.0).then_some(time)
    }

    /// Begins a sample.
    pub fn begin(&mut self) {
        (self.reads, self.are_equal, self.has_failed) = (0, true, false);
    }

    /// The pieces to read together with a stack.
    pub fn pieces(&mut self) -> impl Iterator<Item = Piece<'_>> {
        let ranges = self
            .known
            .as_ref()
            .map_or(&[][..], |known| &known.trail.ranges);
        self.bytes
            .resize(ranges.iter().map(|(_, length)| length).sum(), 0);
        let mut rest = self.bytes.as_mut_slice();
        let slice = self.sapi_globals.map(|address| Piece {
            address,
            bytes: &mut self.slice,
        });
        slice
            .into_iter()
            .chain(ranges.iter().map(move |&(address, length)| {
                let (bytes, after) = std::mem::take(&mut rest).split_at_mut(length);
                rest = after;
                Piece { address, bytes }
            }))
    }

    /// Takes the pieces, which have been read.
    pub fn took(&mut self, time: u64, was_held_up: bool) {
        let mut hasher = FxHasher::default();
        hasher.write(&self.slice);
        hasher.write(&self.bytes);
        let shown = (hasher.finish(), time);
        if self.reads == 0 {
            self.first = shown;
        }
        self.are_equal &= shown.0 == self.first.0 && is_same_time(self.first.1, time);
        self.reads += 1;
        (self.time, self.was_held_up) = (time, was_held_up);
        self.read_at = Instant::now();
    }

    /// The pieces could not be read: the memory of the request may be gone. Returns whether there
    /// is less to read now.
    pub fn lost(&mut self) -> bool {
        // What is read from here on shows less than what was read before.
        (self.reads, self.has_failed) = (0, true);
        let known = self.known.take();
        let was_known = known.is_some();
        self.lost = known.or(self.lost.take());
        was_known
    }

    /// Which request the sample's reads have shown.
    pub fn seen(&mut self) -> RequestSeen {
        if !self.are_equal {
            return RequestSeen::Changing;
        }
        if self.reads == 0 || self.has_failed {
            return RequestSeen::Nothing;
        }
        let (slice, bytes, time) = (&self.slice, &self.bytes, self.time);
        let known = self.known.as_mut().filter(|known| {
            known.slice == *slice && known.trail.bytes == *bytes && is_same_time(known.time, time)
        });
        match known {
            Some(known) => {
                known.time = time;
                RequestSeen::Same
            }
            // The stack may be the earlier request's.
            None if self.was_held_up => RequestSeen::Changing,
            None => RequestSeen::Other,
        }
    }

    /// Reads the request that the sample's reads showed.
    ///
    /// # Errors
    /// [`RequestChanged`] if it is another one by now: then nothing is known.
    pub fn read<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> Result<Option<FoundRequest>, RequestChanged> {
        self.known = None;
        let lost = self.lost.take();
        let (layout, place) = (self.layout, &self.place);
        let (request, trail) = request::read(memory, layout, place, &self.slice, self.wanted);
        let (slice, time) = (self.slice, self.time);
        self.known = Some(KnownRequest { slice, trail, time });
        let mut time = [0; 8];
        let time_at = self
            .sapi_globals
            .map(|at| at + self.layout.sapi_globals.global_request_time);
        let mut pieces: Vec<Piece<'_>> = self.pieces().collect();
        pieces.extend(time_at.map(|address| Piece {
            address,
            bytes: &mut time,
        }));
        let is_read = memory.gather(&mut pieces).is_ok();
        drop(pieces);
        let before = std::mem::replace(&mut self.time, u64::from_le_bytes(time));
        let took = self.read_at.elapsed();
        let is_one = is_read
            && is_same_time(before, self.time)
            && (before != 0 || took < LONGEST)
            && self
                .known
                .as_ref()
                .is_some_and(|known| known.slice == self.slice && known.trail.bytes == self.bytes);
        match &mut self.known {
            Some(known) if is_one => {
                known.time = self.time;
                let is_again = lost.is_some_and(|lost| lost.is_shown_by(known));
                Ok(request.map(|request| FoundRequest { request, is_again }))
            }
            known => {
                *known = None;
                Err(RequestChanged)
            }
        }
    }
}

/// A request's time is set when the program first asks for it, and does not change after that.
fn is_same_time(before: u64, after: u64) -> bool {
    before == 0 || before == after
}
