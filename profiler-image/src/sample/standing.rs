//! Whether frames stand: one more call looks at them several times, at uneven intervals.
//!
//! Two frames from different moments stand together in no memory, so a look can show them only by chance. The looks of a
//! sample's own read come at even intervals: they can be in step with a loop of the program, and all show the same mix.
//! These come at uneven ones. What all of them show, with a top that has it on its stack, is a call that the program
//! makes: it needs neither a site that names the callee nor a CPU where the quiescent reader may run.
//! Invariant: what was not looked at, or was torn, does not stand.

use phpprof_zend::Layout;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{Copy, Frame, frame_at};
use smallvec::SmallVec;

use crate::read::reader::Reader;
use crate::stack::stand::Stand;

/// Looks of one call. In code that calls all the time one in thirty shows a mix: so many are less likely than one in a hundred
/// million.
const LOOKS: usize = 6;
/// Calls for one sample.
const MOST: usize = 3;
/// Frames that lie elsewhere than on the stack's page, as the bodies of generators do on the heap.
const MAX_ELSEWHERE: usize = 4;
/// How far below the part around the top a caller may lie.
const MAX_BELOW: u64 = 16 << 10;
/// Frames between the top and those that are looked at.
const MAX_ABOVE: usize = 64;
/// Room for the header of a frame.
const HEADER: usize = 128;
/// Between two looks up to so many pieces of up to so many bytes are read for the time that they take: half a microsecond each,
/// and some tenths more.
const MAX_PAUSES: usize = 2;
const MAX_PAUSE: u64 = 4096;
type Pauses = SmallVec<[usize; MAX_PAUSES]>;

/// What looks at frames again, and the memory for it.
#[derive(Debug, Default)]
pub(super) struct Standing {
    shown: Shown,
    /// What is read for the time that it takes.
    pause: Vec<u8>,
    /// State of the intervals.
    uneven: u64,
    /// Calls that this sample may still take.
    left: usize,
}

/// What the looks of one call showed.
#[derive(Debug, Default)]
struct Shown {
    /// Address of the part around the top, and each look at it.
    hot: u64,
    looks: Vec<Vec<u8>>,
    /// `EG(current_execute_data)`, before each look.
    tops: [[u8; 8]; LOOKS],
    /// The frames that lie elsewhere, and at each look their headers.
    elsewhere: SmallVec<[u64; MAX_ELSEWHERE]>,
    headers: [[Header; MAX_ELSEWHERE]; LOOKS],
    /// So many frames from the leaf are in the looks.
    frames: usize,
}

/// The bytes of a frame's header.
#[derive(Debug, Clone, Copy)]
struct Header([u8; HEADER]);

impl Default for Header {
    fn default() -> Self {
        Self([0; HEADER])
    }
}

impl Standing {
    /// Before a sample: whether there is room for further calls.
    pub(super) fn begin(&mut self, has_room: bool) {
        self.left = if has_room { MOST } else { 0 };
    }

    /// Which of the frames, leaf first, stand. Looks at those that lie on the stack from `lowest` on, or around the top. Takes one
    /// call.
    pub(super) fn stand(&mut self, reader: &Reader, frames: &[Frame], lowest: u64) -> Stand {
        let layout = reader.layout();
        let Some(left) = self.left.checked_sub(1) else {
            return Stand::default();
        };
        self.left = left;
        let around = reader.copy.looks.first().map_or(0, Vec::len) as u64;
        let end = reader.copy.hot.saturating_add(around);
        let is_near = lowest <= reader.copy.hot && reader.copy.hot - lowest <= MAX_BELOW;
        let window = if is_near { lowest } else { reader.copy.hot }..end;
        let size = layout.execute_data.sizeof as u64;
        let is_around =
            |frame: &Frame| window.contains(&frame.address) && window.end - frame.address >= size;
        let shown = &mut self.shown;
        (shown.hot, shown.frames) = (window.start, 0);
        shown.elsewhere.clear();
        for frame in frames {
            if !is_absent(frame) && !is_around(frame) {
                if reader.copy.inside(frame.address) || shown.elsewhere.len() >= MAX_ELSEWHERE {
                    break;
                }
                shown.elsewhere.push(frame.address);
            }
            shown.frames += 1;
        }
        let length = usize::try_from(window.end - window.start).unwrap_or(0);
        match self.look(reader, length) {
            Some(()) => self.shown.stand(layout, frames),
            None => Stand::default(),
        }
    }

    /// Whether all looks of the last call show the zval at an address as the copy has it.
    pub(super) fn shows(&self, copy: &Copy, address: u64) -> bool {
        const ZVAL: usize = 16;
        let copied = copy.at(address).and_then(|bytes| bytes.get(..ZVAL));
        let offset = usize::try_from(address.wrapping_sub(self.shown.hot)).unwrap_or(usize::MAX);
        let mut looks = self.shown.looks.iter();
        copied.is_some()
            && looks.all(|look| look.get(offset..).and_then(|rest| rest.get(..ZVAL)) == copied)
    }

    /// Looks at the part around the top, which is so long, and at the frames that lie elsewhere.
    fn look(&mut self, reader: &Reader, length: usize) -> Option<()> {
        let pauses: [Pauses; LOOKS] = std::array::from_fn(|_| self.pauses(length));
        self.pause.resize(pauses.iter().flatten().sum(), 0);
        let mut pause = self.pause.as_mut_slice();
        let shown = &mut self.shown;
        shown.looks.resize_with(LOOKS, Vec::new);
        let size = reader.layout().execute_data.sizeof.min(HEADER);
        let mut pieces: SmallVec<[Piece<'_>; 32]> = SmallVec::new();
        let mut add = |address, bytes| pieces.push(Piece { address, bytes });
        let looks = shown.looks.iter_mut().zip(&mut shown.tops);
        for (((look, top), headers), pauses) in looks.zip(&mut shown.headers).zip(pauses) {
            for length in pauses {
                let (bytes, rest) = std::mem::take(&mut pause).split_at_mut(length);
                pause = rest;
                add(shown.hot, bytes);
            }
            add(reader.top_at(), top);
            look.resize(length, 0);
            add(shown.hot, look);
            for (&address, header) in shown.elsewhere.iter().zip(headers) {
                add(address, &mut header.0[..size]);
            }
        }
        reader.memory.gather(&mut pieces).ok()
    }

    /// The lengths of what is read before a look.
    fn pauses(&mut self, window: usize) -> Pauses {
        self.uneven = uneven(self.uneven);
        let count = self.uneven % (MAX_PAUSES as u64 + 1);
        let lengths = (1..=count).map(|pause| (self.uneven >> (16 * pause)) % MAX_PAUSE);
        lengths
            .map(|length| {
                usize::try_from(length)
                    .unwrap_or(0)
                    .clamp(8.min(window), window)
            })
            .collect()
    }
}

impl Shown {
    /// Which of the frames, leaf first, all looks show on the stack.
    fn stand(&self, layout: &Layout, frames: &[Frame]) -> Stand {
        let not_shown = frames.len() - self.frames;
        let mut above = not_shown;
        for (index, frame) in frames.iter().enumerate().take(self.frames).rev() {
            if is_absent(frame) {
                continue;
            }
            let mut looks = (0..LOOKS).map(|look| self.frame(layout, look, frame.address));
            if !looks
                .clone()
                .all(|again| again.is_some_and(|again| again.is_same_call(frame)))
            {
                break;
            }
            above = frames.len() - index;
            // What a frame has called stands only while it is at the same op.
            if !looks.all(|again| again.is_some_and(|again| again.opline == frame.opline)) {
                break;
            }
        }
        let on_stack = (0..LOOKS)
            .map(|look| self.on_stack(layout, look, frames))
            .min();
        Stand {
            above: above.min(on_stack.unwrap_or(0)),
            below: not_shown,
        }
    }

    /// A frame as a look shows it.
    fn frame(&self, layout: &Layout, look: usize, address: u64) -> Option<Frame> {
        let place = self.elsewhere.iter().position(|&frame| frame == address);
        match place {
            Some(place) => frame_at(layout, address, &self.headers[look][place].0, address),
            None => frame_at(layout, self.hot, self.looks.get(look)?, address),
        }
    }

    /// How many of the frames, from the root, are on a look's stack. What lies below the top is what an earlier call left, where
    /// the frames from the top on do not lead to it.
    fn on_stack(&self, layout: &Layout, look: usize, frames: &[Frame]) -> usize {
        let mut address = u64::from_le_bytes(self.tops[look]);
        for _ in 0..MAX_ABOVE {
            if let Some(index) = frames.iter().position(|frame| frame.address == address) {
                return frames.len() - index;
            }
            match self.frame(layout, look, address) {
                Some(frame) if frame.prev != 0 => address = frame.prev,
                _ => return 0,
            }
        }
        0
    }
}

/// The next state of the intervals (xorshift).
fn uneven(state: u64) -> u64 {
    let mut state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

#[cfg(test)]
mod tests;
