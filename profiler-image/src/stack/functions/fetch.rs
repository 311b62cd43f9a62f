//! Reads what names functions, in as few gathers as there are pointers to follow.
//!
//! The first gather reads the functions' first bytes, the second one what these point to, and the
//! third one what that points to. Invariant: what is only valid while a frame stands is read before
//! the frame is looked at again.

use phpprof_zend::Layout;
use phpprof_zend::function::{FunctionKey, HEAD};
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::unwind::Frame;
use smallvec::SmallVec;

use super::lifetime::{is_shared, lasts};
use super::ops::ops_size;
use super::scripts::key_of_cached;
use super::{EXTENSION_HEAD, FEW, Gather, MAX_RESOLVED, STRING_HEAD, StackPlace, UnreadFunction};
use crate::stack::stand::Stand;

/// Addresses and lengths.
pub(super) type Ranges = SmallVec<[(u64, usize); 32]>;

/// Reads the functions' first bytes, for their keys, and what distinguishes their texts at the
/// known addresses.
pub(super) fn read_heads<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    set: &ReadSet<'_, M>,
    looks: &mut [UnreadFunction],
) {
    let ranges = looks.iter().flat_map(|look| {
        let [name, file] = look.anchors.map(|anchor| {
            // The engine computes the hash of a text in a request's memory when it first needs it,
            // often never.
            if is_shared(place, anchor) {
                (at(anchor, place.layout.zend_string.h), 8)
            } else {
                (anchor, STRING_HEAD)
            }
        });
        [(look.func, HEAD), name, file]
    });
    set.fetch(ranges);
    for look in looks {
        let mut head = [0_u8; HEAD];
        // One invalid address must not fail the read of the others.
        if set.read(look.func, &mut head).is_ok() {
            look.key = key_of(place, &look.frame, &head);
        }
    }
}

/// The words that distinguish new functions from known ones at another address, or of a class that
/// was linked anew.
pub(super) fn words<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    looks: &[UnreadFunction],
) -> Ranges {
    let (class, module) = (&place.layout.class_entry, &place.layout.module_entry);
    let keys = looks.iter().filter_map(|look| Some((look, look.key?)));
    let others = keys.filter(|(look, key)| look.anchors != key.anchors());
    let words = others.take(MAX_RESOLVED).flat_map(|(look, key)| {
        let [name, file] = if is_unknown_and_passing(place, look) {
            [0, 0]
        } else {
            key.anchors()
        };
        let is_known = place.knows(&key);
        let scope = if is_known { 0 } else { key.scope };
        let module_at = if is_known { 0 } else { key.module };
        [
            (name, STRING_HEAD),
            (file, STRING_HEAD),
            (at(scope, class.name), 8),
            (at(scope, class.ce_flags), 4),
            (at(module_at, module.name), 8),
        ]
    });
    words.collect()
}

/// Whether a function is certainly new, and its code and its texts are only valid while its frame
/// stands; its class's name lasts longer.
pub(super) fn is_unknown_and_passing<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    look: &UnreadFunction,
) -> bool {
    let is_new = |key: FunctionKey| {
        let class_lasts = key.scope == 0 || is_shared(place, key.scope);
        class_lasts && !place.knows(&key)
    };
    is_passing(place, look) && look.key.is_some_and(is_new)
}

/// The texts and ops of new functions.
pub(super) fn texts<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    set: &ReadSet<'_, M>,
    new: &[&mut UnreadFunction],
) -> Ranges {
    let (class, module) = (&place.layout.class_entry, &place.layout.module_entry);
    let word = |address: u64| match address {
        0 => 0,
        _ => set.word(address).unwrap_or(0),
    };
    let keys = new.iter().filter_map(|look| Some((look, look.key?)));
    let texts = keys.flat_map(|(look, key)| {
        let code = match look.stands {
            // They were read before its frame was looked at.
            Some(_) => [(0, 0); 3],
            None => code_of(place, look),
        };
        let of_class = [
            (word(at(key.scope, class.name)), STRING_HEAD),
            (word(at(key.module, module.name)), EXTENSION_HEAD),
        ];
        code.into_iter().chain(of_class)
    });
    texts.collect()
}

/// The ranges of a function's texts and ops.
pub(super) fn code_of<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    look: &UnreadFunction,
) -> [(u64, usize); 3] {
    look.key
        .map_or([(0, 0); 3], |key| code_of_key(place.layout, &key))
}

/// The same for a function's key.
pub(super) fn code_of_key(layout: &Layout, key: &FunctionKey) -> [(u64, usize); 3] {
    let ops = ops_size(layout, key).unwrap_or(0);
    [
        (key.name, STRING_HEAD),
        (key.filename, STRING_HEAD),
        (key.code, ops),
    ]
}

/// Fetches ranges. If the first of them are only valid while the frames of functions stand, looks
/// at the frames in the same gather, right after these were read.
pub(super) fn fetch<M: Memory + ?Sized>(
    set: &ReadSet<'_, M>,
    first: Ranges,
    others: Ranges,
    passing: SmallVec<[&mut UnreadFunction; FEW]>,
    look_again: &mut impl FnMut(usize, Gather<'_>) -> Stand,
) {
    let mut ranges = Some((first, others));
    if let Some(lowest) = passing.iter().map(|look| look.depth).min() {
        let mut gather = |looks: &mut [Piece<'_>]| {
            let (first, others) = ranges.take().unwrap_or_default();
            set.fetch_around(first, looks, others)
        };
        let stand = look_again(lowest, &mut gather);
        for look in passing {
            look.stands = Some(stand.reaches(look.depth));
        }
    }
    if let Some((first, others)) = ranges {
        set.fetch(first.into_iter().chain(others));
    }
}

/// Whether what is read of a function is only valid while its frame stands.
pub(super) fn is_passing<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    look: &UnreadFunction,
) -> bool {
    look.key.is_some_and(|key| !lasts(place, &key))
}

/// An address in a struct; 0 where there is none.
pub(super) fn at(base: u64, offset: usize) -> u64 {
    match base {
        0 => 0,
        _ => base.saturating_add(offset as u64),
    }
}

/// The key of a frame's function, by another read.
pub(super) fn key_again<M: Memory + ?Sized>(
    place: &mut StackPlace<'_, M>,
    frame: &Frame,
) -> Option<FunctionKey> {
    let mut head = [0_u8; HEAD];
    let read = place.memory.read(frame.func, &mut head);
    let key = read.ok().and_then(|()| key_of(place, frame, &head));
    key.or_else(|| key_of_cached(place, frame))
}

/// The key of a frame's function, from its first bytes. An included file has often ended when it is
/// read. The engine clears a closure's function before it copies the name (`zend_closure_new`,
/// Zend/zend_closures.c), so only a script's frame runs code without a name.
fn key_of<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    frame: &Frame,
    head: &[u8; HEAD],
) -> Option<FunctionKey> {
    let is_script = frame.is_script(place.layout);
    let left = || {
        let key = is_script.then(|| FunctionKey::of_script(place.layout, head, frame.opline));
        key.flatten().filter(|key| lasts(place, key))
    };
    left()
        .or_else(|| FunctionKey::parse(place.layout, head))
        .filter(|key| key.is_top_level() == is_script)
}
