//! Resolves a function that has to be read to a known one: by its key, or by its texts.
//!
//! The texts of a stack's functions are read together ([`ReadSet`]). Invariant: a name is used only if it was read from
//! the function's own memory, or for an included file that has ended, from its script's in opcache.

use std::hash::BuildHasher as _;

use phpprof_zend::declared::is_declared;
use phpprof_zend::function::{Function, HEAD, Key, NamedFunction};
use phpprof_zend::hash::find;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::text::ZendString;
use phpprof_zend::unwind::Frame;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::lifetime::{has_key, is_live, is_shared, outlives};
use super::ops::{Ops, ops_size};
use super::scripts::key_of_cached;
use super::{
    AGREEING_READS, Block, Code, EXTENSION_HEAD, Entry, FEW, FunctionId, Functions, Gather, Look,
    MAX_REMEMBERED, MAX_RESOLVED, Place, STRING_HEAD,
};
use crate::stack::names::{Name, NameId};
use crate::stack::stand::Stand;
use crate::stack::volume::without_versions;

/// Addresses and lengths.
type Ranges = SmallVec<[(u64, usize); 32]>;

impl Functions {
    pub(super) fn look<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        looks: &mut [Look],
        mut look_again: impl FnMut(usize, Gather<'_>) -> Stand,
    ) {
        let stored = read_heads(place, looks);
        for look in looks.iter_mut().filter(|look| look.key.is_none()) {
            look.key = key_of_cached(place, &look.frame);
        }
        let set = ReadSet::new(place.memory);
        let words = self.words(place, looks);
        let is_early = |look: &&mut Look| self.is_unknown_and_passing(place, look);
        let early: SmallVec<[_; FEW]> = looks
            .iter_mut()
            .filter(is_early)
            .take(MAX_RESOLVED)
            .collect();
        let code = early.iter().flat_map(|look| code_of(place, look));
        fetch(&set, (code.collect(), words), early, &mut look_again);
        for (look, stored) in looks.iter_mut().zip(stored) {
            let Some(key) = look.key else { continue };
            look.code = self.known(place, &set, &key, stored);
            if look.code.is_none() {
                let relinked = relinked(place, &set, &key);
                look.code = relinked.and_then(|key| self.known(place, &set, &key, None));
            }
        }
        let mut new: SmallVec<[&mut Look; FEW]> = looks
            .iter_mut()
            .filter(|look| look.key.is_some() && look.code.is_none())
            .take(MAX_RESOLVED)
            .collect();
        let texts = texts(place, &set, &new);
        let is_late = |look: &&mut &mut Look| is_passing(place, look) && look.stands.is_none();
        let late = new.iter_mut().filter(is_late).map(|look| &mut **look);
        fetch(
            &set,
            (texts, Ranges::new()),
            late.collect(),
            &mut look_again,
        );
        for look in &mut new {
            let stands = look.stands.unwrap_or(false);
            look.code = look
                .key
                .and_then(|key| self.resolve(place, &set, &look.frame, (key, stands)));
        }
        drop(new);
        for look in looks {
            if let Some(code) = look.code {
                self.remember(place, look.func, code);
            }
        }
    }

    /// The words that distinguish new functions from known ones at another address, or of a class that was linked anew.
    fn words<M: Memory + ?Sized>(&self, place: &Place<'_, M>, looks: &[Look]) -> Ranges {
        let (class, module) = (&place.layout.class_entry, &place.layout.module_entry);
        let keys = looks.iter().filter_map(|look| Some((look, look.key?)));
        let others = keys.filter(|(look, key)| look.anchors != key.anchors());
        let words = others.take(MAX_RESOLVED).flat_map(|(look, key)| {
            let [name, file] = match self.is_unknown_and_passing(place, look) {
                true => [0, 0],
                false => key.anchors(),
            };
            let is_known = self.knows(place, &key);
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

    fn knows<M: Memory + ?Sized>(&self, place: &Place<'_, M>, key: &Key) -> bool {
        place.shared.knows(key) || place.local.knows(key)
    }

    /// Whether a function is certainly new, and its code and its texts are only valid while its frame stands; its class's name lasts longer.
    fn is_unknown_and_passing<M: Memory + ?Sized>(
        &self,
        place: &Place<'_, M>,
        look: &Look,
    ) -> bool {
        let is_new = |key: Key| {
            let class_lasts = key.scope == 0 || is_shared(place, key.scope);
            class_lasts && !self.knows(place, &key)
        };
        is_passing(place, look) && look.key.is_some_and(is_new)
    }

    /// A code that is known under this key and by the current texts of its strings; `stored` are their hashes, as far as these have
    /// been read.
    fn known<M: Memory + ?Sized>(
        &self,
        place: &Place<'_, M>,
        texts: &ReadSet<'_, M>,
        key: &Key,
        stored: Option<[u64; 2]>,
    ) -> Option<FunctionId> {
        let map = if outlives(place, key) {
            &*place.shared
        } else {
            &*place.local
        };
        if !map.knows(key) {
            return None;
        }
        let mut fingerprints = stored.unwrap_or_default();
        for (address, fingerprint) in key.anchors().into_iter().zip(&mut fingerprints) {
            // The engine computes a hash when it first needs it.
            if address != 0 && *fingerprint == 0 {
                let text = ZendString::read(texts, place.layout, address)?;
                *fingerprint = text.fingerprint();
            }
        }
        map.find(self, &(*key, fingerprints)).1
    }

    /// Reads a name for the first time. It is used only if it was read from the function's memory: its frame `stands` since, or it
    /// is in memory that is not reused, or the engine's tables have a function under this name.
    fn resolve<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        set: &ReadSet<'_, M>,
        frame: &Frame,
        (key, stands): (Key, bool),
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
        // A frame far below the top may be live although nothing around it stands. The engine may have been copying another closure to this
        // address: a half-written copy is seen now and then, but not this many times in a row.
        let is_live_again = || (0..AGREEING_READS).all(|_| is_live(place, frame, &key));
        let has_its_texts = || {
            key.is_nameless()
                || NamedFunction::resolve(place.memory, place.layout, key)
                    .is_some_and(|again| again == named)
        };
        let is_its_name = if stands {
            true
        } else if key.is_named() {
            (outlives(place, &key) || is_declared()) && has_key(place, frame.func, &key)
        } else if !key.is_user() {
            has_key(place, frame.func, &key)
        } else if lasts(place, &key) {
            // Its code contains the frame's opline. A closure's function is a copy, and may have been half of another's, in a loop
            // that makes closures more than once in a row.
            let pauses = &mut self.pauses;
            let mut has_key_again = || {
                pauses.pause();
                has_key(place, frame.func, &key)
            };
            key.op_index(place.layout, frame.opline).is_some()
                && (key.name == 0 || (0..AGREEING_READS).all(|_| has_key_again()))
        } else {
            is_live_again() && has_its_texts()
        };
        is_its_name.then(|| self.add(place, set, frame.func, named))
    }

    /// Learns a function that a quiescent read has seen.
    pub fn know<M: Memory + ?Sized>(&mut self, place: &mut Place<'_, M>, named: NamedFunction) {
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
        if known.is_none_or(|known| known.name != name) {
            self.add(place, &set, 0, named);
        }
    }

    /// Identifies the frames of a quiescent read by the keys that were read with them.
    pub fn identify_keys<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        frames: &[Frame],
        keys: &[Option<Key>],
        ids: &mut Vec<Option<FunctionId>>,
    ) {
        ids.clear();
        self.renew(place);
        let set = ReadSet::new(place.memory);
        for (frame, key) in frames.iter().zip(keys) {
            ids.push(key.and_then(|key| {
                let known = self.known(place, &set, &key, None);
                known.or_else(|| self.resolve(place, &set, frame, (key, false)))
            }));
        }
    }

    fn name_of(&mut self, named: &NamedFunction) -> NameId {
        self.names.intern(Name {
            name: &without_versions(named.name()),
            file: &without_versions(named.file()),
            start_line: named.function.key.line_start,
        })
    }

    fn add<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
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
        let code = Code {
            home: home_of(place, func, &function),
            ops: Ops::read(set, place.layout, &function.key),
            function,
            name,
            main: None,
            scope: key.scope,
        };
        let identity = code.identity();
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
            let block = Block {
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

    fn remember<M: Memory + ?Sized>(&self, place: &mut Place<'_, M>, func: u64, code: FunctionId) {
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
            // Another function at a fixed address: opcache has restarted, and its blocks are invalid.
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
        let entry = Entry {
            code,
            checked: place.now,
            met: place.now,
        };
        if map.by_func.insert(func, entry).is_none() && lasting {
            map.order.push(func);
        }
    }
}

/// Reads the functions' first bytes: their keys, and the hashes of their texts at the known addresses.
fn read_heads<M: Memory + ?Sized>(
    place: &Place<'_, M>,
    looks: &mut [Look],
) -> SmallVec<[Option<[u64; 2]>; FEW]> {
    let mut heads: SmallVec<[_; FEW]> = SmallVec::from_elem([0_u8; HEAD], looks.len());
    let mut hashes: SmallVec<[_; FEW]> = SmallVec::from_elem([[0_u8; 8]; 2], looks.len());
    let mut pieces: SmallVec<[Piece<'_>; 3 * FEW]> = SmallVec::new();
    for ((look, head), hashes) in looks.iter().zip(&mut heads).zip(&mut hashes) {
        pieces.push(Piece {
            address: look.func,
            bytes: head,
        });
        for (&anchor, hash) in look.anchors.iter().zip(hashes).filter(|(at, _)| **at != 0) {
            pieces.push(Piece {
                address: anchor + place.layout.zend_string.h as u64,
                bytes: hash,
            });
        }
    }
    let together = place.memory.gather(&mut pieces).is_ok();
    drop(pieces);
    let looks = looks.iter_mut().zip(&mut heads).zip(hashes);
    let stored = looks.map(|((look, head), hashes)| {
        // One invalid address must not fail the read of the others.
        if together || place.memory.read(look.func, head).is_ok() {
            look.key = key_of(place, &look.frame, head);
        }
        let anchors = look.key.map(|key| key.anchors());
        let is_as_expected = together && anchors == Some(look.anchors);
        is_as_expected.then(|| hashes.map(u64::from_le_bytes))
    });
    stored.collect()
}

/// Fetches ranges. If the first of them are only valid while the frames of functions stand, looks at the frames in the same gather, right
/// after these were read.
fn fetch<M: Memory + ?Sized>(
    set: &ReadSet<'_, M>,
    ranges: (Ranges, Ranges),
    passing: SmallVec<[&mut Look; FEW]>,
    look_again: &mut impl FnMut(usize, Gather<'_>) -> Stand,
) {
    let mut ranges = Some(ranges);
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

/// The texts and ops of new functions.
fn texts<M: Memory + ?Sized>(
    place: &Place<'_, M>,
    set: &ReadSet<'_, M>,
    new: &[&mut Look],
) -> Ranges {
    let (class, module) = (&place.layout.class_entry, &place.layout.module_entry);
    let word = |address: u64| match address {
        0 => 0,
        _ => set.word(address).unwrap_or(0),
    };
    let keys = new.iter().filter_map(|look| Some((look, look.key?)));
    let texts = keys.flat_map(|(look, key)| {
        let code = match look.stands {
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
fn code_of<M: Memory + ?Sized>(place: &Place<'_, M>, look: &Look) -> [(u64, usize); 3] {
    look.key.map_or([(0, 0); 3], |key| {
        let ops = ops_size(place.layout, &key).unwrap_or(0);
        [
            (key.name, STRING_HEAD),
            (key.filename, STRING_HEAD),
            (key.code, ops),
        ]
    })
}

/// Whether what is read of a function is only valid while its frame stands.
fn is_passing<M: Memory + ?Sized>(place: &Place<'_, M>, look: &Look) -> bool {
    look.key.is_some_and(|key| !lasts(place, &key))
}

/// An address in a struct; 0 where there is none.
fn at(base: u64, offset: usize) -> u64 {
    match base {
        0 => 0,
        _ => base.saturating_add(offset as u64),
    }
}

/// The key of code in shared memory of a class that each request links anew: the address of the class's
/// name, which is in shared memory too, replaces that of the class.
fn relinked<M: Memory + ?Sized>(
    place: &Place<'_, M>,
    set: &ReadSet<'_, M>,
    key: &Key,
) -> Option<Key> {
    let is_linked_anew = key.scope != 0 && !is_shared(place, key.scope);
    if !key.is_user() || key.name == 0 || !is_linked_anew || !lasts(place, key) {
        return None;
    }
    let class = set.word(at(key.scope, place.layout.class_entry.name)).ok();
    class
        .filter(|&class| is_shared(place, class))
        .map(|class| Key {
            scope: class,
            ..*key
        })
}

/// The key of a frame's function, from its first bytes. An included file has often ended when it is read.
fn key_of<M: Memory + ?Sized>(
    place: &Place<'_, M>,
    frame: &Frame,
    head: &[u8; HEAD],
) -> Option<Key> {
    let left = || {
        let is_script = frame.call_info & place.layout.call_info.code != 0;
        let key = is_script.then(|| Key::of_script(place.layout, head, frame.opline));
        key.flatten().filter(|key| lasts(place, key))
    };
    left().or_else(|| Key::parse(place.layout, head))
}

/// Whether a script's or a closure's code and texts are in the memory that opcache shares, like those of internal functions are in
/// their extension's.
fn lasts<M: Memory + ?Sized>(place: &Place<'_, M>, key: &Key) -> bool {
    let is_shared = |address: u64| address == 0 || is_shared(place, address);
    !key.is_user()
        || [key.code, key.name, key.filename]
            .into_iter()
            .all(is_shared)
}

/// Where the engine's tables have an internal function that was found at `func`.
fn home_of<M: Memory + ?Sized>(place: &Place<'_, M>, func: u64, function: &Function) -> u64 {
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
