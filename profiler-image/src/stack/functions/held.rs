//! Names closures that ended before their functions were read, by a function that holds their code.
//!
//! Invariant: a name is used only if its holder had its code when the stack was read, and still has
//! it after the name was read (`phpprof_zend::closure`).

use std::ops::Range;

use phpprof_zend::closure::{Arena, Holder, is_closure};
use phpprof_zend::function::NamedFunction;
use phpprof_zend::memory::{Memory, is_in};
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::unwind::Frame;
use smallvec::SmallVec;

use super::fetch::code_of_key;
use super::lifetime::is_shared;
use super::{FEW, FunctionId, Functions, StackPlace};

/// How many functions that may hold a closure's code are searched.
const MAX_HOLDERS: usize = 8;

/// A closure that was searched for.
#[derive(Debug)]
pub(super) struct Searched {
    /// The frame's words.
    func: u64,
    opline: u64,
    found: Option<(FunctionId, Holder)>,
}

impl Searched {
    fn is_of(&self, closure: &Frame) -> bool {
        (self.func, self.opline) == (closure.func, closure.opline)
    }
}

impl Functions {
    /// The function of a frame, if it is a closure whose code is held. At most [`FEW`] are searched
    /// for in the moments of one read.
    pub(super) fn held<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        frames: &[Frame],
        ids: &[Option<FunctionId>],
        index: usize,
    ) -> Option<FunctionId> {
        let closure = frames.get(index)?;
        // The leaf's opline may be a remainder of an earlier call.
        if index == 0 || !is_closure(place.layout, closure) {
            return None;
        }
        let (func, opline) = (closure.func, closure.opline);
        if let Some(it) = self.searched.iter().find(|it| it.is_of(closure)) {
            return it.found.map(|(id, _)| id);
        }
        if self.searched.len() >= FEW {
            return None;
        }
        let in_shared = is_shared(place, opline);
        let callers = frames.iter().zip(ids).skip(index);
        let may_hold = callers.filter(|(frame, id)| {
            let key = id.and_then(|id| self.get(id)).map(|code| code.function.key);
            match key {
                Some(key) => is_shared(place, key.code) == in_shared && key.is_user(),
                None => is_closure(place.layout, frame),
            }
        });
        let holders: SmallVec<[Frame; MAX_HOLDERS]> = may_hold
            .map(|(frame, _)| *frame)
            .take(MAX_HOLDERS)
            .collect();
        let found = self.search(place, opline, &holders);
        self.searched.push(Searched {
            func,
            opline,
            found,
        });
        found.map(|(id, _)| id)
    }

    /// What holds the code of the closure that a frame runs, if a search of this read has named it.
    #[must_use]
    pub fn holder_of(&self, closure: &Frame) -> Option<&Holder> {
        let searched = self.searched.iter().find(|it| it.is_of(closure))?;
        searched.found.as_ref().map(|(_, holder)| holder)
    }

    /// The function that contains this op, which one of the functions of these frames holds.
    fn search<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        opline: u64,
        holders: &[Frame],
    ) -> Option<(FunctionId, Holder)> {
        let (arena, layout) = (place.arena, place.layout);
        let memory = place.memory;
        let shared = place.shared_ranges;
        let is_old = |address| was_there(arena.as_ref(), shared, address);
        let (holder, key) = holders
            .iter()
            .filter_map(|frame| Holder::read(memory, layout, frame))
            .find_map(|holder| Some((holder, holder.find(memory, layout, opline, is_old)?)))?;
        if !self.take_room_for(layout, Some(key)) {
            return None;
        }
        let set = ReadSet::new(place.memory);
        set.fetch_around(code_of_key(layout, &key), &mut [], [])
            .ok()?;
        let named = NamedFunction::resolve(&set, layout, key)?;
        let known = self.known(place, &set, &key, false);
        let has_stood = holder.has_stood(memory, layout, arena.as_ref(), is_old);
        let is_checked = named.function.is_checked || self.unchecked.note_read(&named, place.now);
        (has_stood && is_checked).then(|| {
            let id = known.unwrap_or_else(|| self.add(place, &set, 0, named));
            (id, holder)
        })
    }
}

/// Whether an op_array at this address existed when the stack was read: in the compiler's memory of
/// then, or in opcache's.
#[must_use]
pub fn was_there(arena: Option<&Arena>, shared: &[Range<u64>], address: u64) -> bool {
    arena.is_some_and(|arena| arena.had(address)) || is_in(shared, address)
}
