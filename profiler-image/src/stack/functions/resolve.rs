//! Resolves a function that has to be read to a known one: by its key, or by its texts.
//!
//! The texts of a stack's functions are read together ([`ReadSet`]). Invariant: a name is used only
//! if it was read from the function's own memory, or for an included file that has ended, from its
//! script's in opcache.

use std::hash::BuildHasher as _;

use phpprof_zend::declared::is_declared;
use phpprof_zend::function::{FunctionKey, NamedFunction, ZendFunction};
use phpprof_zend::hash::find;
use phpprof_zend::memory::Memory;
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::text::ZendString;
use phpprof_zend::unwind::Frame;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::fetch::{
    Ranges, at, code_of, fetch, is_passing, is_unknown_and_passing, key_again, read_heads, texts,
    words,
};
use super::lifetime::{has_key, is_live, is_shared, lasts, outlives};
use super::ops::Ops;
use super::scripts::key_of_cached;
use super::{
    AGREEING_READS, Code, CodeBlock, FEW, FunctionEntry, FunctionId, Functions, Gather,
    MAX_REMEMBERED, MAX_RESOLVED, StackPlace, UnreadFunction,
};
use crate::stack::names::{FunctionName, NameId};
use crate::stack::pauses::Pauses;
use crate::stack::stand::Stand;
use crate::stack::volume::without_versions;

impl Functions {
    pub(super) fn look<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        looks: &mut [UnreadFunction],
        mut look_again: impl FnMut(usize, Gather<'_>) -> Stand,
    ) {
        let set = ReadSet::new(place.memory);
        read_heads(place, &set, looks);
        for look in looks.iter_mut().filter(|look| look.key.is_none()) {
            look.key = key_of_cached(place, &look.frame);
        }
        let words = words(place, looks);
        let layout = place.layout;
        let is_early = |look: &&mut UnreadFunction| is_unknown_and_passing(place, look);
        let early: SmallVec<[_; FEW]> = looks
            .iter_mut()
            .filter(is_early)
            .filter(|look| self.take_room_for(layout, look.key))
            .take(MAX_RESOLVED)
            .collect();
        let code = early.iter().flat_map(|look| code_of(place, look));
        fetch(&set, code.collect(), words, early, &mut look_again);
        for look in looks.iter_mut() {
            let Some(key) = look.key else { continue };
            let are_as_expected = key.anchors() == look.anchors;
            look.code = self.known(place, &set, &key, are_as_expected);
        }
        let mut new: SmallVec<[&mut UnreadFunction; FEW]> = looks
            .iter_mut()
            .filter(|look| look.key.is_some() && look.code.is_none())
            .filter(|look| look.stands.is_some() || self.take_room_for(layout, look.key))
            .take(MAX_RESOLVED)
            .collect();
        let texts = texts(place, &set, &new);
        let is_late =
            |look: &&mut &mut UnreadFunction| is_passing(place, look) && look.stands.is_none();
        let late = new.iter_mut().filter(is_late).map(|look| &mut **look);
        fetch(&set, texts, Ranges::new(), late.collect(), &mut look_again);
        for look in &mut new {
            let stands = look.stands.unwrap_or(false);
            look.code = look
                .key
                .and_then(|key| self.resolve(place, &set, &look.frame, key, stands));
        }
        drop(new);
        for look in looks {
            if let Some(code) = look.code {
                self.remember(place, look.func, code);
            }
        }
    }

    /// A code that is known under this key and by the current texts of its strings, also as a
    /// method of a class that each request links again. If the texts are at the expected addresses,
    /// their stored hashes distinguish them.
    pub(super) fn known<M: Memory + ?Sized>(
        &self,
        place: &StackPlace<'_, M>,
        texts: &ReadSet<'_, M>,
        key: &FunctionKey,
        are_as_expected: bool,
    ) -> Option<FunctionId> {
        let known = self.known_under(place, texts, key, are_as_expected);
        known.or_else(|| {
            let key = relinked(place, texts, key)?;
            self.known_under(place, texts, &key, false)
        })
    }

    fn known_under<M: Memory + ?Sized>(
        &self,
        place: &StackPlace<'_, M>,
        texts: &ReadSet<'_, M>,
        key: &FunctionKey,
        are_as_expected: bool,
    ) -> Option<FunctionId> {
        let map = if outlives(place, key) {
            &*place.shared
        } else {
            &*place.local
        };
        if !map.knows(key) {
            return None;
        }
        let (mut fingerprints, mut are_checked) = ([0; 2], true);
        for (address, fingerprint) in key.anchors().into_iter().zip(&mut fingerprints) {
            if address == 0 {
                continue;
            }
            let hash = at(address, place.layout.zend_string.h);
            let stored = are_as_expected.then(|| texts.word(hash).ok()).flatten();
            *fingerprint = match stored.filter(|&hash| hash != 0) {
                Some(hash) => hash,
                None => {
                    let text = ZendString::read(texts, place.layout, address)?;
                    are_checked &= text.is_checked;
                    text.fingerprint(place.layout)
                }
            };
        }
        let known = map.find(self, &(*key, fingerprints)).1;
        // A text that its hash does not confirm is that of a function whose text was like that when
        // it was named.
        let is_as_before = |id: &FunctionId| {
            let code = self.get(*id);
            are_checked || code.is_some_and(|code| !code.function.is_checked)
        };
        known.filter(is_as_before)
    }

    /// Reads a name for the first time. It is used only if it was read from the function's memory:
    /// its frame `stands` since, or it is in memory that is not reused, or the engine's tables have
    /// a function under this name.
    fn resolve<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        set: &ReadSet<'_, M>,
        frame: &Frame,
        key: FunctionKey,
        stands: bool,
    ) -> Option<FunctionId> {
        let direct_reads = set.direct_reads();
        let named = if key.is_nameless() {
            NamedFunction::nameless(key)
        } else {
            NamedFunction::resolve(set, place.layout, key)?
        };
        // The rest of a long text is read after the frame was looked at.
        let stands = stands && set.direct_reads() == direct_reads;
        let function = &named.function;
        let is_declared = || {
            let globals = place.executor_globals;
            is_declared(place.memory, place.layout, globals, frame.func, function)
        };
        // A frame far below the top may be live although nothing around it stands. The engine may
        // have been copying another closure to this address: a half-written copy is seen now and
        // then, but not this many times in a row.
        let is_live_again = || (0..AGREEING_READS).all(|_| is_live(place, frame, &key));
        let has_its_texts = || {
            key.is_nameless()
                || NamedFunction::resolve(place.memory, place.layout, key)
                    .is_some_and(|again| again == named)
        };
        let is_its_name = if !function.is_checked {
            let was_read_before = self.unchecked.note_read(&named, place.now);
            let is_proven = was_read_before && has_its_texts() && is_live_again();
            self.unchecked.is_refused |= !is_proven;
            is_proven
        } else if stands {
            true
        } else if key.is_named() {
            (outlives(place, &key) || is_declared()) && has_key(place, frame.func, &key)
        } else if !key.is_user() {
            has_key(place, frame.func, &key)
        } else if lasts(place, &key) {
            has_its_code(place, frame, &key, &mut self.pauses)
        } else {
            is_live_again() && has_its_texts()
        };
        is_its_name.then(|| self.add(place, set, frame.func, named))
    }

    /// Learns a function that a quiescent read has seen.
    pub fn know<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        named: NamedFunction,
    ) {
        self.renew(place);
        let set = ReadSet::new(place.memory);
        let key = named.function.key;
        let key = relinked(place, &set, &key).unwrap_or(key);
        let map = if outlives(place, &key) {
            &*place.shared
        } else {
            &*place.local
        };
        let identity = (key, named.function.fingerprints);
        let known = map.find(self, &identity).1;
        let name = self.name_of(&named);
        let known = known.and_then(|id| self.get(id));
        if known.is_none_or(|known| known.name.shown() != name) {
            self.add(place, &set, 0, named);
        }
    }

    /// Identifies the frames of a quiescent read by the keys that were read with them.
    pub fn identify_keys<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        frames: &[Frame],
        keys: &[Option<FunctionKey>],
        ids: &mut Vec<Option<FunctionId>>,
    ) {
        ids.clear();
        self.renew(place);
        let set = ReadSet::new(place.memory);
        for (frame, key) in frames.iter().zip(keys) {
            ids.push(key.and_then(|key| {
                let has_key = |id: &FunctionId| {
                    let code = self.get(*id);
                    code.is_some_and(|code| code.function.key == key)
                };
                let trusted = self.trusted(place, frame, true).filter(has_key);
                let known = trusted.or_else(|| self.known(place, &set, &key, false));
                if known.is_some() || !self.take_room_for(place.layout, Some(key)) {
                    return known;
                }
                self.resolve(place, &set, frame, key, false)
            }));
        }
        self.settle_closures(place, frames, ids);
    }

    /// The name of a function as samples have it.
    pub fn name_of(&mut self, named: &NamedFunction) -> NameId {
        self.names.intern(FunctionName {
            name: &without_versions(named.name()),
            file: &without_versions(named.file()),
            start_line: named.function.key.line_start,
        })
    }

    pub(super) fn add<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        set: &ReadSet<'_, M>,
        func: u64,
        named: NamedFunction,
    ) -> FunctionId {
        let name = self.name_of(&named);
        let mut function = named.function;
        let relinked = relinked(place, set, &function.key);
        let key = relinked.unwrap_or(function.key);
        if relinked.is_some() {
            // Each request has its own class.
            function.key.scope = 0;
        }
        self.unchecked.names += u64::from(!function.is_checked);
        let ops = Ops::read(set, place.layout, &function.key);
        let code = Code {
            home: home_of(place, func, &function),
            name: self.names.of_body(name, ops.body(&function.key)),
            ops,
            function,
            main: None,
            scope: key.scope,
        };
        let identity = code.identity();
        let id = self.put(code);
        self.await_name(id);
        let key = identity.0;
        let in_shared = outlives(place, &key);
        let map = if in_shared {
            &mut *place.shared
        } else {
            &mut *place.local
        };
        if map.by_identity.len() >= MAX_REMEMBERED {
            // Functions that are still in use are resolved again at their next sight.
            map.forget_addresses();
            (map.by_identity, map.known_keys) = Default::default();
        }
        map.by_identity.insert(map.find(self, &identity).0, id);
        map.known_keys.insert(FxBuildHasher.hash_one(identity.0));
        if in_shared && key.is_user() {
            let end = key
                .code
                .saturating_add(u64::from(key.last) * place.layout.zend_op.sizeof as u64);
            let block = CodeBlock {
                end,
                code: id,
                is_ambiguous: false,
                checked: place.now,
            };
            map.blocks
                .entry(key.code)
                .and_modify(|block| block.is_ambiguous = true)
                .or_insert(block);
        }
        id
    }

    fn put(&mut self, code: Code) -> FunctionId {
        self.bytes += code.bytes();
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.arena.push(None);
                FunctionId(u32::try_from(self.arena.len() - 1).unwrap_or(u32::MAX))
            }
        };
        if let Some(slot) = self.arena.get_mut(id.0 as usize) {
            *slot = Some(code);
        }
        id
    }

    fn remember<M: Memory + ?Sized>(
        &self,
        place: &mut StackPlace<'_, M>,
        func: u64,
        code: FunctionId,
    ) {
        let Some(known) = self.get(code) else { return };
        let key = &known.function.key;
        let lasting = outlives(place, key)
            && (is_shared(place, func) || (!key.is_user() && known.home == func));
        if lasting
            && place
                .shared
                .by_func
                .get(&func)
                .is_some_and(|entry| entry.code != code)
        {
            // Another function at a fixed address: opcache has restarted, and its blocks are
            // invalid.
            place.shared.forget_addresses();
        }
        if let Some(block) = place.shared.blocks.get_mut(&key.code) {
            block.checked = place.now;
        }
        let map = if lasting {
            &mut *place.shared
        } else {
            &mut *place.local
        };
        if map.by_func.len() >= MAX_REMEMBERED {
            map.forget_addresses();
        }
        let entry = FunctionEntry {
            code,
            checked: place.now,
            met: place.now,
        };
        if map.by_func.insert(func, entry).is_none() && lasting {
            map.order.push(func);
        }
    }
}

/// The key of code in shared memory of a class that each request links again: the address of the
/// class's name, which is in shared memory too, replaces that of the class.
fn relinked<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    set: &ReadSet<'_, M>,
    key: &FunctionKey,
) -> Option<FunctionKey> {
    let is_linked_anew = key.scope != 0 && !is_shared(place, key.scope);
    if !key.is_user() || key.name == 0 || !is_linked_anew || !lasts(place, key) {
        return None;
    }
    let class = set.word(at(key.scope, place.layout.class_entry.name)).ok();
    class
        .filter(|&class| is_shared(place, class))
        .map(|class| FunctionKey {
            scope: class,
            ..*key
        })
}

/// Where the engine's tables have an internal function that was found at `func`.
fn home_of<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    func: u64,
    function: &ZendFunction,
) -> u64 {
    let key = &function.key;
    if key.is_user() || key.scope == 0 {
        return func;
    }
    let table = key
        .scope
        .saturating_add(place.layout.class_entry.function_table as u64);
    let name = function.function_name.to_ascii_lowercase();
    find(place.memory, place.layout, table, &name).unwrap_or(0)
}

/// Whether a function whose code lasts has it: the code contains the frame's opline. A script's
/// function and a closure's are copies, and may have been half of another's: in a loop that makes
/// closures more than once in a row.
fn has_its_code<M: Memory + ?Sized>(
    place: &mut StackPlace<'_, M>,
    frame: &Frame,
    key: &FunctionKey,
    pauses: &mut Pauses,
) -> bool {
    if key.op_index(place.layout, frame.opline).is_none() {
        // The leaf's opline may be a remainder of an earlier call.
        return (0..AGREEING_READS).all(|_| is_live(place, frame, key));
    }
    if key.name == 0 {
        return key_again(place, frame) == Some(*key);
    }
    (0..AGREEING_READS).all(|_| {
        pauses.pause();
        has_key(place, frame.func, key)
    })
}
