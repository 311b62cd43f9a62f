//! How long a function, a code and a frame stay the same.

use phpprof_zend::Layout;
use phpprof_zend::function::{FunctionKey, HEAD};
use phpprof_zend::memory::{Memory, Piece, is_in};
use phpprof_zend::unwind::Frame;
use smallvec::SmallVec;

use super::StackPlace;

/// Whether a code outlives the request: it is in shared memory together with its class, or is an
/// internal function in the engine's tables. opcache links some classes again in each request,
/// whose methods share the code. Such codes are in the family's map and never freed, because every
/// worker may have them.
pub(super) fn outlives<M: Memory + ?Sized>(place: &StackPlace<'_, M>, key: &FunctionKey) -> bool {
    if key.is_user() {
        is_shared(place, key.code) && (key.scope == 0 || is_shared(place, key.scope))
    } else {
        key.is_named()
    }
}

/// Whether a leaf is unchanged: its function, its caller, and nothing has returned from it.
pub fn stands<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    current_execute_data: u64,
    leaf: &Frame,
) -> bool {
    let (mut func, mut prev, mut top) = ([0; 8], [0; 8], [0; 8]);
    let row = &layout.execute_data;
    let read = memory.gather(&mut [
        Piece {
            address: current_execute_data,
            bytes: &mut top,
        },
        Piece {
            address: leaf.address + row.func as u64,
            bytes: &mut func,
        },
        Piece {
            address: leaf.address + row.prev_execute_data as u64,
            bytes: &mut prev,
        },
    ]);
    read.is_ok()
        && u64::from_le_bytes(func) == leaf.func
        && u64::from_le_bytes(prev) == leaf.prev
        && u64::from_le_bytes(top) == leaf.address
}

/// Whether a function still has its key. The next request may have a function of its own at the
/// address of one that does not outlive its request: then it has to be the same request.
pub(super) fn has_key<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    func: u64,
    key: &FunctionKey,
) -> bool {
    let mut head = [0_u8; HEAD];
    let mut request = [0; 8];
    let function = Piece {
        address: func,
        bytes: &mut head,
    };
    let passes = !outlives(place, key) && !lasts(place, key);
    let began = request_of(place, &mut request).filter(|_| passes);
    let mut pieces: SmallVec<[Piece<'_>; 2]> = [function].into_iter().chain(began).collect();
    let read = place.memory.gather(&mut pieces).is_ok();
    drop(pieces);
    read && (!passes || is_same_request(place, request))
        && FunctionKey::parse(place.layout, &head).as_ref() == Some(key)
}

/// A piece that reads when the request began, if that is known.
fn request_of<'a, M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    bytes: &'a mut [u8; 8],
) -> Option<Piece<'a>> {
    place.request.map(|(address, _)| Piece { address, bytes })
}

/// Whether the piece is of the request whose stack was read.
fn is_same_request<M: Memory + ?Sized>(place: &StackPlace<'_, M>, bytes: [u8; 8]) -> bool {
    place
        .request
        .is_none_or(|(_, began)| began == u64::from_le_bytes(bytes))
}

/// Whether a frame has its function now, in the same request, and the function its key. On the page
/// of the top, a frame above the top is a remainder of an earlier call.
pub(super) fn is_live<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    frame: &Frame,
    key: &FunctionKey,
) -> bool {
    let (frames, globals) = (&place.layout.execute_data, &place.layout.executor_globals);
    let mut words = [[0_u8; 8]; 5];
    let [page, end, top, func, prev] = &mut words;
    let mut head = [0_u8; HEAD];
    let in_globals = |offset: usize| place.executor_globals.wrapping_add(offset as u64);
    let in_frame = |offset: usize| frame.address.wrapping_add(offset as u64);
    let mut request = [0; 8];
    let in_place = [
        Piece {
            address: in_globals(globals.vm_stack),
            bytes: &mut page[..],
        },
        Piece {
            address: in_globals(globals.vm_stack_end),
            bytes: end,
        },
        Piece {
            address: in_globals(globals.current_execute_data),
            bytes: top,
        },
        Piece {
            address: in_frame(frames.func),
            bytes: func,
        },
        Piece {
            address: in_frame(frames.prev_execute_data),
            bytes: prev,
        },
        Piece {
            address: frame.func,
            bytes: &mut head,
        },
    ];
    let began = request_of(place, &mut request);
    let mut pieces: SmallVec<[Piece<'_>; 8]> = in_place.into_iter().chain(began).collect();
    let read = place.memory.gather(&mut pieces).is_ok();
    drop(pieces);
    let [page, end, top, func, prev] = words.map(u64::from_le_bytes);
    let page = page..end;
    let is_above = page.contains(&frame.address) && page.contains(&top) && frame.address > top;
    read && is_same_request(place, request)
        && top != 0
        && !is_above
        && (func, prev) == (frame.func, frame.prev)
        && FunctionKey::parse(place.layout, &head).as_ref() == Some(key)
}

/// Whether a script's or a closure's code and texts are in the memory that opcache shares, like
/// those of internal functions are in their extension's.
pub(super) fn lasts<M: Memory + ?Sized>(place: &StackPlace<'_, M>, key: &FunctionKey) -> bool {
    let is_shared = |address: u64| address == 0 || is_shared(place, address);
    !key.is_user()
        || [key.code, key.name, key.filename]
            .into_iter()
            .all(is_shared)
}

pub(super) fn is_shared<M: Memory + ?Sized>(place: &StackPlace<'_, M>, address: u64) -> bool {
    is_in(place.shared_ranges, address)
}
