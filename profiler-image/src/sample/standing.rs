//! Whether frames stand: further calls look at them again, at uneven intervals.
//!
//! Two frames from different moments are never in memory at the same time, so a call can show them
//! only by chance. The looks of one call come at even intervals: they can be in step with a loop of
//! the program, and all show the same mixture. So each call looks at the frames right before and
//! after the pointer to the top, and several calls come at uneven intervals. If all of them show
//! two frames, with a top above them on the same stack, the program makes that call: this needs
//! neither a site that names the callee nor a CPU where the quiescent reader may run.
//! Invariant: a frame that was not looked at, or was torn, does not stand.

use phpprof_zend::Layout;
use phpprof_zend::memory::{Memory, MemoryFault, Piece};
use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{Copy, Frame, frame_at};
use phpprof_zend::zval::ZVAL;
use smallvec::SmallVec;

use crate::read::reader::Reader;
use crate::stack::functions::Gather;
use crate::stack::pauses::Pauses;
use crate::stack::stand::Stand;

/// Calls that have to show a call of the program. In a loop of some tenths of a microsecond one in
/// twenty shows a mixture: this many are less likely than one in three million.
pub(super) const PROOF: usize = 5;
/// Calls that have to show two frames if words of the call site tell that one has called the other.
pub(super) const WORDS: usize = 2;
/// Calls that have to show the frame of a function, to prove the function.
pub(super) const IDENTITY: usize = 1;
/// How often one sample may check what stands, and each newest moment that is climbed for its
/// proofs.
const MOST: usize = 4;
/// Looks of one call: before and after the pointer to the top.
const LOOKS: usize = 2;
/// The largest number of frames outside the stack's page, such as the bodies of generators on the
/// heap.
const MAX_ELSEWHERE: usize = 4;
/// How far below the part around the top a caller may lie.
const MAX_BELOW: u64 = 16 << 10;
/// The largest number of frames between the top and those that are looked at.
const MAX_ABOVE: usize = 64;
/// How far below the leaf is near the top, and how far above the leaf the top is searched for.
const NEAR: u64 = 1 << 10;
const ABOVE: u64 = 3 << 10;
/// The space for the header of a frame.
const HEADER: usize = 128;

/// Looks at frames again, with reused memory.
#[derive(Debug, Default)]
pub(super) struct Standing {
    shown: LooksShown,
    pauses: Pauses,
    /// How often this sample, or this newest moment, may still check what stands.
    left: usize,
}

/// What the looks of one call showed.
#[derive(Debug, Default)]
struct LooksShown {
    /// The address of the part around the top, and each look at it.
    hot: u64,
    looks: Vec<Vec<u8>>,
    /// `EG(current_execute_data)`, before and after each look.
    tops: [[u8; 8]; LOOKS + 1],
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

/// The tops from which each look has to lead to the frames.
#[derive(Debug, Clone, Copy)]
enum TopChoice {
    /// The one between the looks, for calls that have to stand.
    Between,
    /// The one before the look or the one after it, for functions whose frames have to stand: in
    /// one of the looks a fast program has often not made the call of the top yet.
    NextTo,
}

/// The part around the top that is looked at, which begins at [`LooksShown::hot`].
struct TopWindow {
    length: usize,
    /// Where what is near the top begins.
    near: usize,
}

impl Standing {
    /// Begins a sample, or a newest moment; `has_room` allows further calls of the kernel.
    pub(super) fn begin(&mut self, has_room: bool) {
        self.left = if has_room { MOST } else { 0 };
    }

    /// Which of the frames, leaf first, stand in this many calls of the kernel; none if the callee,
    /// counted from the root, does not stand. Looks at those on the stack from `lowest` on, or
    /// around the top if `lowest` is `u64::MAX`.
    pub(super) fn stand(
        &mut self,
        reader: &Reader,
        frames: &[Frame],
        lowest: u64,
        callee: usize,
        calls: usize,
    ) -> Stand {
        let Some(window) = self.begin_looks(reader, frames, lowest) else {
            return Stand::default();
        };
        let mut all: Option<Stand> = None;
        for call in 0..calls {
            if call > 0 {
                self.pauses.pause();
            }
            let gather = |pieces: &mut [Piece<'_>]| reader.memory.gather(pieces);
            if self.look(reader, &window, gather).is_none() {
                return Stand::default();
            }
            let now = self
                .shown
                .stand(reader.layout(), frames, TopChoice::Between);
            let stand = all.map_or(now, |before| before.and(now));
            if callee > stand.above {
                return Stand::default();
            }
            all = Some(stand);
        }
        all.unwrap_or_default()
    }

    /// Which of the frames, leaf first, stand in one call of the kernel, which is this gather.
    pub(super) fn stand_in(
        &mut self,
        reader: &Reader,
        frames: &[Frame],
        lowest: u64,
        gather: Gather<'_>,
    ) -> Stand {
        let window = self.begin_looks(reader, frames, lowest);
        if window.is_none_or(|window| self.look(reader, &window, gather).is_none()) {
            return Stand::default();
        }
        self.shown.stand(reader.layout(), frames, TopChoice::NextTo)
    }

    /// Chooses what to look at; `None` if this sample may not look again.
    fn begin_looks(&mut self, reader: &Reader, frames: &[Frame], lowest: u64) -> Option<TopWindow> {
        self.left = self.left.checked_sub(1)?;
        Some(self.choose(reader, frames, lowest))
    }

    /// Chooses what to look at.
    fn choose(&mut self, reader: &Reader, frames: &[Frame], lowest: u64) -> TopWindow {
        let layout = reader.layout();
        let around = reader.copy.looks.first().map_or(0, Vec::len) as u64;
        let end = reader.copy.hot.saturating_add(around);
        let is_near = lowest < end && lowest >= reader.copy.hot.saturating_sub(MAX_BELOW);
        let start = if is_near { lowest } else { reader.copy.hot };
        let size = layout.execute_data.sizeof as u64;
        // What is far above the leaf only makes a look longer.
        let is_read = |frame: &&Frame| (start..end).contains(&frame.address);
        let leaf = frames.iter().find(is_read).map_or(end, |leaf| leaf.address);
        let window = start..end.min(leaf.saturating_add(ABOVE));
        let is_around =
            |frame: &Frame| window.contains(&frame.address) && window.end - frame.address >= size;
        let shown = &mut self.shown;
        (shown.hot, shown.frames) = (window.start, 0);
        shown.elsewhere.clear();
        for frame in frames {
            if !follows_callee(frame) && !is_around(frame) {
                if reader.copy.inside(frame.address) || shown.elsewhere.len() >= MAX_ELSEWHERE {
                    break;
                }
                shown.elsewhere.push(frame.address);
            }
            shown.frames += 1;
        }
        let bytes = |end: u64| usize::try_from(end.saturating_sub(window.start)).unwrap_or(0);
        TopWindow {
            length: bytes(window.end),
            near: bytes(leaf.saturating_sub(NEAR)),
        }
    }

    /// Whether all looks of the last call show the same zval at an address as the copy.
    pub(super) fn shows(&self, copy: &Copy, address: u64) -> bool {
        let copied = copy.at(address).and_then(|bytes| bytes.get(..ZVAL));
        let offset = usize::try_from(address.wrapping_sub(self.shown.hot)).unwrap_or(usize::MAX);
        let mut looks = self.shown.looks.iter();
        copied.is_some()
            && looks.all(|look| look.get(offset..).and_then(|rest| rest.get(..ZVAL)) == copied)
    }

    /// Looks at the part around the top, and at the frames outside the stack's page: one call. What
    /// is near the top is read right before and after the pointer to the top.
    fn look(
        &mut self,
        reader: &Reader,
        window: &TopWindow,
        gather: impl FnOnce(&mut [Piece<'_>]) -> Result<(), MemoryFault>,
    ) -> Option<()> {
        let shown = &mut self.shown;
        shown.looks.resize_with(LOOKS, Vec::new);
        let size = reader.layout().execute_data.sizeof.min(HEADER);
        let mut pieces: SmallVec<[Piece<'_>; 16]> = SmallVec::new();
        let (hot, near) = (shown.hot, window.near.min(window.length));
        let [first_top, tops @ ..] = &mut shown.tops;
        let mut first_top = Some(first_top);
        let parts = shown.looks.iter_mut().zip(&mut shown.headers).zip(tops);
        for ((look, headers), top) in parts {
            look.resize(window.length, 0);
            let (far, around) = look.split_at_mut(near);
            let far = Some((hot, far)).filter(|(_, bytes)| !bytes.is_empty());
            let elsewhere = shown.elsewhere.iter().zip(headers);
            let elsewhere = elsewhere.map(|(&address, header)| (address, &mut header.0[..size]));
            let others = far.into_iter().chain(elsewhere);
            let around = [(hot + near as u64, around), (reader.top_at(), &mut top[..])];
            let piece = |(address, bytes)| Piece { address, bytes };
            match first_top.take() {
                Some(first) => {
                    let first = [(reader.top_at(), &mut first[..])];
                    pieces.extend(others.chain(first).chain(around).map(piece));
                }
                None => pieces.extend(around.into_iter().chain(others).map(piece)),
            }
        }
        gather(&mut pieces).ok()
    }
}

/// Whether a frame stands as long as the one above it does, so that it needs no look.
fn follows_callee(frame: &Frame) -> bool {
    is_absent(frame) || frame.is_delegating
}

impl LooksShown {
    /// Which of the frames, leaf first, all looks show on the stack.
    fn stand(&self, layout: &Layout, frames: &[Frame], tops: TopChoice) -> Stand {
        let not_shown = frames.len() - self.frames;
        let mut above = not_shown;
        for (index, frame) in frames.iter().enumerate().take(self.frames).rev() {
            if follows_callee(frame) {
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
        let on_stack = |look: usize| {
            let tops = match tops {
                TopChoice::Between => &self.tops[1..LOOKS],
                TopChoice::NextTo => &self.tops[look..look + 2],
            };
            let tops = tops.iter();
            tops.map(|&top| self.on_stack(layout, look, u64::from_le_bytes(top), frames))
                .max()
        };
        let on_stack = (0..LOOKS).filter_map(on_stack).min();
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

    /// How many of the frames, from the root, are on a look's stack below that top. Below the top
    /// there may be frames that an earlier call left, if the frames from the top on do not lead to
    /// them: at any frame's address there may be another call by now, of another caller.
    fn on_stack(&self, layout: &Layout, look: usize, top: u64, frames: &[Frame]) -> usize {
        let mut address = top;
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
            match callers.find(|caller| !follows_callee(caller)) {
                Some(caller) => address = caller.address,
                None => return highest,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests;
