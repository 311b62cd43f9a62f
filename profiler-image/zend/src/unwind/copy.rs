//! One copy of the used part of a VM stack page, with several looks at the part around the stack's
//! top.
//!
//! Invariant: what lies outside of the copied bytes is absent, whatever address is asked for.

use std::ops::Range;

use super::generators::GeneratorChain;
use super::{Beside, Frame};
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, word_at};
use crate::short::Short;
use crate::zval::{ZVAL, Zval};

/// Reads of frames outside the copy (older VM stack pages, generators, fibers) in one stack.
const MAX_FETCHES: usize = 256;
/// How much is read of a frame outside the copy: its header and the first variables, which proofs
/// need.
const FETCH: usize = 256;
const READS_OF_HEAP_FRAME: usize = 3;
/// As much of a frame has to be the same in several looks to tell that it has stood: its header and
/// the first variables, which are what it was called with.
const STANDS: u64 = 256;
/// The size of a VM stack page: 256 KiB (`ZEND_VM_STACK_PAGE_SIZE`); an address farther from its
/// start belongs to another page.
pub(super) const PAGE: u64 = 256 << 10;
/// The offset of a page's first frame, behind its header (`ZEND_VM_STACK_HEADER_SLOTS`,
/// Zend/zend_execute.h).
const FIRST_FRAME: usize = 32;
/// Older pages that one unwinding reads completely; beyond that it reads frame by frame.
const MAX_OLDER: usize = 4 << 20;

/// Reads of generators for one copy: its moments are unwound some fifty times.
const MAX_NODES: usize = 8192;
/// The bytes of the largest `zend_generator`, as far as unwinding needs them.
const GENERATOR: usize = 384;

/// The bytes of a frame outside the copy, or of an older page up to its last frame.
pub(super) type FetchedFrame = Short<u8, FETCH>;

/// One copy of the used part of a VM stack page, and bytes that were fetched beside it.
#[derive(Debug, Default)]
pub struct Copy {
    /// The address of the page, whose header (`zend_vm_stack`) is copied too.
    pub base: u64,
    /// The bytes of the page from its beginning.
    pub bytes: Vec<u8>,
    /// The address of the part around the top, which the same call has read several times.
    pub hot: u64,
    /// The bytes of each look at the part at `hot`, in order.
    pub looks: Vec<Vec<u8>>,
    /// Unused looks, whose memory is reused.
    pub(super) spare: Vec<Vec<u8>>,
    /// Frames outside the page that the same call has read.
    pub beside: Beside,
    /// Frames on the heap, then older VM stack pages, the oldest last.
    pub(super) fetched: Vec<(u64, FetchedFrame)>,
    pub(super) pages: usize,
    pub(super) fetches: usize,
    /// What was read by calls of their own, later than the looks.
    pub(super) late: Vec<Late>,
    /// Generators that were looked up.
    pub(super) nodes: usize,
    /// Generators that delegate, and how often their trees were read.
    pub(super) chains: Vec<GeneratorChain>,
    pub(super) chain_reads: usize,
    /// The generators of the last tree, from the outermost one: the next one is likely the same.
    pub(super) expected: Vec<u64>,
}

/// Memory outside the page that was read later than the looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Its address.
    pub address: u64,
    /// How many bytes of it were read.
    pub length: usize,
    /// It is a generator, or of a stack that was followed to its root.
    pub is_of_stack: bool,
}

/// How many frames, from the root, agree with some looks: the same calls, at the same ops.
#[derive(Debug, Default)]
struct Agreement {
    /// These looks show them, but the last one may have moved on.
    stood: usize,
    /// None of these looks contradicts them, but the last one may have moved on.
    not_denied: usize,
}

impl Copy {
    /// Makes room for a page up to the end of `hot`, the part around the top, as offsets, and for
    /// this many looks at that part.
    pub fn make_room(&mut self, page: u64, hot: Range<usize>, looks: usize) {
        self.forget();
        (self.base, self.hot) = (page, page.saturating_add(hot.start as u64));
        self.bytes.resize(hot.end, 0);
        while self.looks.len() < looks {
            self.looks.push(self.spare.pop().unwrap_or_default());
        }
        self.spare.extend(self.looks.drain(looks..));
        for look in &mut self.looks {
            look.resize(hot.len(), 0);
        }
    }

    /// Forgets what was fetched for an earlier stack.
    pub fn forget(&mut self) {
        self.fetched.clear();
        self.late.clear();
        self.chains.clear();
        (self.pages, self.fetches, self.nodes) = (0, 0, 0);
        self.chain_reads = 0;
    }

    /// How many reads of frames unwinding has made since [`Copy::forget`].
    #[must_use]
    pub fn fetches(&self) -> usize {
        self.fetches
    }

    /// What was read outside the page by calls of their own, later than the looks.
    #[must_use]
    pub fn late(&self) -> &[Late] {
        &self.late
    }

    /// Notes that these frames are a stack, and so is what has been read for them, from this index
    /// on.
    pub(super) fn note_stack(&mut self, frames: &[Frame], from: usize) {
        for (index, late) in self.late.iter_mut().enumerate() {
            let is_frame = |frame: &Frame| frame.address == late.address;
            late.is_of_stack |= index >= from || frames.iter().any(is_frame);
        }
    }

    /// Whether one of these frames was read by a call of its own.
    #[must_use]
    pub fn is_late(&self, frames: &[Frame]) -> bool {
        let mut late = self.late.iter();
        late.any(|late| frames.iter().any(|frame| frame.address == late.address))
    }

    /// Whether an address is in the copied part of the page.
    #[must_use]
    pub fn inside(&self, address: u64) -> bool {
        address
            .checked_sub(self.base)
            .is_some_and(|offset| offset < self.bytes.len() as u64)
    }

    /// Whether a frame is the first one of the first page. No frame can be below it, so the engine
    /// has called it.
    #[must_use]
    pub fn is_first(&self, layout: &Layout, address: u64) -> bool {
        let older_page = self.bytes.get(layout.vm_stack_prev..FIRST_FRAME);
        older_page.is_some_and(|bytes| word_at(bytes, 0) == 0)
            && self.base.checked_add(FIRST_FRAME as u64) == Some(address)
    }

    /// The lowest frame above this one, up to an address, that has it as its caller; none unless
    /// both are in the copied part.
    #[must_use]
    pub fn callee_of(&self, layout: &Layout, caller: u64, last: u64) -> Option<u64> {
        if !self.inside(caller) || !self.inside(last) {
            return None;
        }
        let size = layout.execute_data.sizeof;
        let first = caller.checked_add(size as u64)?;
        (first..=last).step_by(ZVAL).find(|&address| {
            let header = self.at(address).and_then(|bytes| bytes.get(..size));
            let frame = header.map(|header| Frame::parse(layout, address, header));
            frame.is_some_and(|frame| frame.prev == caller && frame.func != 0 && frame.is_pushed())
        })
    }

    /// The bytes from `address` on, as far as they were copied.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&[u8]> {
        let rest = |base: u64, bytes: &'_ [u8]| -> Option<std::ops::Range<usize>> {
            let offset = usize::try_from(address.checked_sub(base)?).ok()?;
            (offset < bytes.len()).then_some(offset..bytes.len())
        };
        if let Some(range) = rest(self.base, &self.bytes) {
            return self.bytes.get(range);
        }
        let fetched = self.fetched.iter();
        let chains = self.chains.iter();
        self.beside
            .at(address)
            .into_iter()
            .chain(chains.filter_map(|chain| chain.header(address)))
            .chain(fetched.filter_map(|(base, bytes)| bytes.get(rest(*base, bytes)?)))
            .max_by_key(|bytes| bytes.len())
    }

    /// The zval at `address`, if it was copied.
    #[must_use]
    pub fn zval(&self, address: u64) -> Option<Zval> {
        let bytes = self.at(address)?.get(..ZVAL)?;
        Some(Zval(word_at(bytes, 0), bytes[8]))
    }

    /// Puts the bytes of a look at the part around the top into the copy.
    pub fn take_look(&mut self, look: usize) {
        self.beside.take_look(look);
        let at = self.hot.checked_sub(self.base).map(usize::try_from);
        if let (Some(Ok(at)), Some(look)) = (at, self.looks.get(look))
            && let Some(part) = self
                .bytes
                .get_mut(at..)
                .and_then(|rest| rest.get_mut(..look.len()))
        {
            part.copy_from_slice(look);
        }
    }

    /// How many of the frames, from the root, all these looks show. Memory outside the part around
    /// the top was read once, and a frame there stood if a frame above it did.
    #[must_use]
    pub fn stood(&self, layout: &Layout, frames: &[Frame], looks: Range<usize>) -> usize {
        self.agree(layout, frames, looks).stood
    }

    /// How many of the frames, from the root, none of these looks contradicts: the same, but a
    /// frame outside the part counts if its caller stood at its op. A frame beside the page was
    /// read on both sides of the look that was taken: both have to show it.
    #[must_use]
    pub fn not_denied(&self, layout: &Layout, frames: &[Frame], looks: Range<usize>) -> usize {
        self.agree(layout, frames, looks).not_denied
    }

    /// Whether the frames below the looks are the callers of those in the look that was taken:
    /// these looks, which are around the read of the part below, show that the lowest of the frames
    /// above that part has stood. Its caller has not gone on, so neither has any below.
    #[must_use]
    pub fn stood_below(&self, layout: &Layout, frames: &[Frame], looks: Range<usize>) -> bool {
        let mut on_page = frames.iter().rev().filter(|it| self.inside(it.address));
        let lowest = match on_page.next() {
            Some(root) if !self.is_looked_at(root.address) => {
                on_page.find(|it| self.is_looked_at(it.address))
            }
            _ => None,
        };
        let Some(lowest) = lowest else {
            return true;
        };
        let size = layout.execute_data.sizeof as u64;
        let above = on_page
            .next()
            .map_or(size, |it| it.address.saturating_sub(lowest.address));
        let length = usize::try_from(above.clamp(size, STANDS)).unwrap_or(usize::MAX);
        let lies_at = |base: u64| {
            let offset = usize::try_from(lowest.address.checked_sub(base)?).ok()?;
            Some(offset..offset.checked_add(length)?)
        };
        let taken = lies_at(self.base).and_then(|range| self.bytes.get(range));
        let shown = lies_at(self.hot);
        let looks = self.looks.get(looks).unwrap_or_default();
        let shows = |look: &Vec<u8>| shown.clone().and_then(|range| look.get(range)) == taken;
        taken.is_some() && looks.iter().all(shows)
    }

    /// Whether frames outside the page, which no look shows, are callers in the look that was
    /// taken; `own` is the page of the top frame. A fiber stands also while it is suspended, and
    /// another op can resume it: so its callers have to stand around the look. A generator has
    /// nothing above it while it is suspended.
    #[must_use]
    pub fn stood_beside(&self, layout: &Layout, frames: &[Frame], own: &Range<u64>) -> bool {
        let generator = layout.call_info.generator;
        let is_on_page = |address: u64| self.inside(address) || own.contains(&address);
        let mut outside = frames.iter().filter(|frame| !is_on_page(frame.address));
        outside.all(|frame| {
            // 7.0 has no such flag, and no fibers.
            let may_be_of_fiber = generator != 0 && frame.call_info & generator == 0;
            let again = self.beside.again(layout, frame.address);
            !may_be_of_fiber || again.is_none_or(|again| again == *frame)
        })
    }

    /// How far these looks agree with the frames, leaf first.
    fn agree(&self, layout: &Layout, frames: &[Frame], looks: Range<usize>) -> Agreement {
        let looks = self.looks.get(looks).unwrap_or_default();
        let mut agreement = Agreement::default();
        for (index, frame) in frames.iter().enumerate().rev() {
            let mut shown = looks
                .iter()
                .filter_map(|look| frame_at(layout, self.hot, look, frame.address))
                .peekable();
            let is_shown = shown.peek().is_some();
            let (mut is_call, mut is_op) = (true, true);
            let beside = if self.inside(frame.address) {
                None
            } else {
                self.beside.again(layout, frame.address)
            };
            for again in shown.chain(beside) {
                is_call &= again.is_same_call(frame);
                is_op &= again.opline == frame.opline;
            }
            if !is_call {
                break;
            }
            agreement.not_denied = frames.len() - index;
            if is_shown {
                agreement.stood = agreement.not_denied;
            }
            if !is_op {
                break;
            }
        }
        agreement
    }

    /// Whether one of these looks shows another call in the place of this frame.
    #[must_use]
    pub fn shows_another(&self, layout: &Layout, frame: &Frame, looks: Range<usize>) -> bool {
        let looks = self.looks.get(looks).unwrap_or_default();
        looks.iter().any(|look| {
            frame_at(layout, self.hot, look, frame.address)
                .is_some_and(|again| !again.is_same_call(frame))
        })
    }

    /// Whether these looks show the same zval at an address as the copy; false without any look.
    #[must_use]
    pub fn shows(&self, address: u64, looks: Range<usize>) -> bool {
        let looks = self.looks.get(looks).unwrap_or_default();
        let copied = self.at(address).and_then(|bytes| bytes.get(..ZVAL));
        let offset = address.checked_sub(self.hot).map(usize::try_from);
        let Some(Ok(offset)) = offset else {
            return false;
        };
        let mut shown = looks
            .iter()
            .map(|look| look.get(offset..).and_then(|rest| rest.get(..ZVAL)));
        copied.is_some() && !looks.is_empty() && shown.all(|zval| zval == copied)
    }

    /// Whether an address is in the part around the top, of which there are looks.
    #[must_use]
    pub fn is_looked_at(&self, address: u64) -> bool {
        address >= self.hot && self.inside(address)
    }

    /// Whether this many bytes are in the copied part and below the looks.
    #[must_use]
    pub fn is_below_looks(&self, address: u64, length: usize) -> bool {
        self.inside(address) && address.saturating_add(length as u64) <= self.hot
    }

    /// Fetches a frame outside the copy; for an older page, all of it below the frame in one read.
    fn fetch<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<()> {
        if self.fetches >= MAX_FETCHES {
            return None;
        }
        self.fetches += 1;
        let oldest = match self.fetched.last() {
            Some((_, bytes)) if self.pages > 0 => bytes,
            _ => self.bytes.as_slice(),
        };
        let older_page = word_at(oldest, layout.vm_stack_prev);
        let offset = address.wrapping_sub(older_page);
        let older: usize = self.fetched.iter().map(|(_, bytes)| bytes.len()).sum();
        if older_page != 0 && offset < PAGE && older < MAX_OLDER {
            let mut bytes = FetchedFrame::default();
            bytes.resize(usize::try_from(offset).ok()? + FETCH);
            if memory.read(older_page, &mut bytes).is_ok() {
                self.fetched.push((older_page, bytes));
                self.pages += 1;
                return Some(());
            }
        }
        let bytes = heap_frame(memory, layout, address)?;
        let call_info = Frame::parse(layout, address, &bytes).call_info;
        self.late.push(Late {
            address,
            length: bytes.len(),
            is_of_stack: call_info & layout.call_info.generator != 0,
        });
        // Heap frames are inserted first, so that the last one remains the oldest VM stack page.
        self.fetched.insert(0, (address, bytes));
        Some(())
    }

    /// The frame at an address, fetched if it was not copied.
    pub fn frame<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<Frame> {
        let size = layout.execute_data.sizeof;
        if !self.inside(address)
            && let Some(bytes) = self.beside.take(address, size)
        {
            return Some(Frame::parse(layout, address, bytes));
        }
        if self.at(address).is_none_or(|bytes| bytes.len() < size) {
            self.fetch(memory, layout, address)?;
        }
        Some(Frame::parse(
            layout,
            address,
            self.at(address)?.get(..size)?,
        ))
    }

    /// The bytes of a `zend_generator`, as far as unwinding needs them; at least those of these
    /// fields, each an offset and a length.
    pub(super) fn generator<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
        fields: &[(usize, usize)],
    ) -> Option<[u8; GENERATOR]> {
        if self.nodes >= MAX_NODES {
            return None;
        }
        self.nodes += 1;
        let mut generator = [0; GENERATOR];
        let bytes = generator.get_mut(..layout.generator.size())?;
        let length = bytes.len();
        if let Some(taken) = self.beside.take(address, length) {
            bytes.copy_from_slice(taken.get(..length)?);
        } else if memory.read(address, bytes).is_ok() {
            // Each moment of a read looks it up again.
            let is_known = self.late.iter().any(|late| late.address == address);
            if self.late.len() < MAX_FETCHES && !is_known {
                self.late.push(Late {
                    address,
                    length,
                    is_of_stack: true,
                });
            }
        } else {
            // Its end can be that of a mapping.
            for &(offset, length) in fields {
                let field = generator.get_mut(offset..offset + length)?;
                memory
                    .read(address.checked_add(offset as u64)?, field)
                    .ok()?;
            }
        }
        Some(generator)
    }
}

/// The frame at an address in bytes that were read from `base` on.
#[must_use]
pub fn frame_at(layout: &Layout, base: u64, bytes: &[u8], address: u64) -> Option<Frame> {
    let offset = usize::try_from(address.checked_sub(base)?).ok()?;
    let end = offset.checked_add(layout.execute_data.sizeof)?;
    Some(Frame::parse(layout, address, bytes.get(offset..end)?))
}

/// The bytes of a frame on the heap. Generators are freed and made again at the same addresses, and
/// a read can be delayed in the middle of a frame: so two reads must show the same call.
fn heap_frame<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    address: u64,
) -> Option<FetchedFrame> {
    let header = layout.execute_data.sizeof;
    let frame = |bytes: &[u8]| Frame::parse(layout, address, bytes);
    for _ in 0..READS_OF_HEAP_FRAME {
        let (mut bytes, mut again) = (FetchedFrame::default(), FetchedFrame::default());
        bytes.resize(FETCH);
        again.resize(header);
        let mut read = |bytes: &mut [u8]| {
            let pieces = &mut [
                Piece { address, bytes },
                Piece {
                    address,
                    bytes: &mut again,
                },
            ];
            memory.gather(pieces)
        };
        if read(&mut bytes).is_err() {
            // The end of a mapping may cut the variables; the header is enough.
            bytes.resize(header);
            read(&mut bytes).ok()?;
        }
        if frame(&bytes).is_same_call(&frame(&again)) {
            return Some(bytes);
        }
    }
    None
}
