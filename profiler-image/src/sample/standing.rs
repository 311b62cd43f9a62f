//! Whether frames stand: further calls look at them again, at uneven intervals.
//!
//! Two frames from different moments are never in memory at the same time, so a call can show them only by chance. The looks of one
//! call come at even intervals: they can be in step with a loop of the program, and all show the same mixture. So each call
//! looks at the frames right before and after the pointer to the top, and several calls come at uneven
//! intervals. If all of them show two frames, with a top above them on the same stack, the program makes that call: this needs neither a
//! site that names the callee nor a CPU where the quiescent reader may run.
//! Invariant: a frame that was not looked at, or was torn, does not stand.

use phpprof_zend::Layout;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{Copy, Frame, frame_at};
use smallvec::SmallVec;

use crate::read::pauses::Pauses;
use crate::read::reader::Reader;
use crate::stack::stand::Stand;

/// Calls that have to show a call of the program. In a loop of some tenths of a microsecond one in twenty shows a mixture: this many are
/// less likely than one in three million.
pub(super) const PROOF: usize = 5;
/// Calls that have to show two frames if words of the call site tell that one has called the other.
pub(super) const WORDS: usize = 2;
/// Calls that have to show the frame of a function, to prove the function.
pub(super) const IDENTITY: usize = 1;
/// How often one sample may check what stands, and each newest moment that is climbed for its proofs.
const MOST: usize = 4;
/// Looks of one call: before and after the pointer to the top.
const LOOKS: usize = 2;
/// The largest number of frames outside the stack's page, such as the bodies of generators on the heap.
const MAX_ELSEWHERE: usize = 4;
/// How far below the part around the top a caller may lie.
const MAX_BELOW: u64 = 16 << 10;
/// The largest number of frames between the top and those that are looked at.
const MAX_ABOVE: usize = 64;
/// The space for the header of a frame.
const HEADER: usize = 128;

/// Looks at frames again, with reused memory.
#[derive(Debug, Default)]
pub(super) struct Standing {
    shown: Shown,
    pauses: Pauses,
    /// How often this sample, or this newest moment, may still check what stands.
    left: usize,
}

/// What the looks of one call showed.
#[derive(Debug, Default)]
struct Shown {
    /// The address of the part around the top, and each look at it.
    hot: u64,
    looks: Vec<Vec<u8>>,
    /// `EG(current_execute_data)`, between the looks.
    top: [u8; 8],
    /// The frames outside the stack's page, and their headers in each look.
    elsewhere: SmallVec<[u64; MAX_ELSEWHERE]>,
    headers: [[Header; MAX_ELSEWHERE]; LOOKS],
    /// How many frames from the leaf are in the looks.
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
    /// Begins a sample, or a newest moment; `has_room` allows further calls of the kernel.
    pub(super) fn begin(&mut self, has_room: bool) {
        self.left = if has_room { MOST } else { 0 };
    }

    /// Which of the frames, leaf first, stand in this many calls of the kernel; none if the callee, counted from the root, does not stand.
    /// Looks at those on the stack from `lowest` on, or around the top if `lowest` is `u64::MAX`.
    pub(super) fn stand(
        &mut self,
        reader: &Reader,
        frames: &[Frame],
        (lowest, callee): (u64, usize),
        calls: usize,
    ) -> Stand {
        let Some(left) = self.left.checked_sub(1) else {
            return Stand::default();
        };
        self.left = left;
        let length = self.choose(reader, frames, lowest);
        let mut all: Option<Stand> = None;
        for call in 0..calls {
            if call > 0 {
                self.pauses.pause();
            }
            if self.look(reader, length).is_none() {
                return Stand::default();
            }
            let now = self.shown.stand(reader.layout(), frames);
            let stand = all.map_or(now, |before| before.and(now));
            if callee > stand.above {
                return Stand::default();
            }
            all = Some(stand);
        }
        all.unwrap_or_default()
    }

    /// Chooses what to look at; returns the length of the part around the top.
    fn choose(&mut self, reader: &Reader, frames: &[Frame], lowest: u64) -> usize {
        let layout = reader.layout();
        let around = reader.copy.looks.first().map_or(0, Vec::len) as u64;
        let end = reader.copy.hot.saturating_add(around);
        let is_near = lowest < end && lowest >= reader.copy.hot.saturating_sub(MAX_BELOW);
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
        usize::try_from(window.end - window.start).unwrap_or(0)
    }

    /// Whether all looks of the last call show the same zval at an address as the copy.
    pub(super) fn shows(&self, copy: &Copy, address: u64) -> bool {
        const ZVAL: usize = 16;
        let copied = copy.at(address).and_then(|bytes| bytes.get(..ZVAL));
        let offset = usize::try_from(address.wrapping_sub(self.shown.hot)).unwrap_or(usize::MAX);
        let mut looks = self.shown.looks.iter();
        copied.is_some()
            && looks.all(|look| look.get(offset..).and_then(|rest| rest.get(..ZVAL)) == copied)
    }

    /// Looks at the part around the top, of this length, and at the frames outside the stack's page: one call.
    fn look(&mut self, reader: &Reader, length: usize) -> Option<()> {
        let shown = &mut self.shown;
        shown.looks.resize_with(LOOKS, Vec::new);
        let size = reader.layout().execute_data.sizeof.min(HEADER);
        let mut pieces: SmallVec<[Piece<'_>; 16]> = SmallVec::new();
        let mut add = |address, bytes| pieces.push(Piece { address, bytes });
        let mut top = Some(&mut shown.top);
        for (look, headers) in shown.looks.iter_mut().zip(&mut shown.headers) {
            look.resize(length, 0);
            add(shown.hot, look);
            for (&address, header) in shown.elsewhere.iter().zip(headers) {
                add(address, &mut header.0[..size]);
            }
            if let Some(top) = top.take() {
                add(reader.top_at(), top);
            }
        }
        reader.memory.gather(&mut pieces).ok()
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
            // The callee of a frame stands only while the frame is at the same op.
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

    /// How many of the frames, from the root, are on a look's stack. Below the top there may be frames that an earlier call left, if
    /// the frames from the top on do not lead to them: at any frame's address there may be another call by now, of another caller.
    fn on_stack(&self, layout: &Layout, look: usize, frames: &[Frame]) -> usize {
        let mut address = u64::from_le_bytes(self.top);
        let shown = frames.get(..self.frames).unwrap_or_default();
        // The highest frame from which all others so far were those of the stack.
        let mut highest = None;
        for _ in 0..MAX_ABOVE + self.frames {
            let Some(now) = self.frame(layout, look, address) else {
                return 0;
            };
            let Some(index) = shown.iter().position(|frame| now.is_same_call(frame)) else {
                (highest, address) = (None, now.prev);
                continue;
            };
            let highest = *highest.get_or_insert(frames.len() - index);
            // The same call has the same caller; a placeholder frame may be between them.
            let mut callers = shown.iter().skip(index + 1);
            match callers.find(|caller| !is_absent(caller)) {
                Some(caller) => address = caller.address,
                None => return highest,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests;
