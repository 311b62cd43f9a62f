//! From a function that has to be looked at to one that is known: by what is known of its key, or by its texts.
//!
//! What the texts of a stack's functions need is fetched together ([`ReadSet`]). Invariant: a name is used only if what it was
//! read from was the function's.

use phpprof_zend::declared::is_declared;
use phpprof_zend::function::{Function, HEAD, Key};
use phpprof_zend::hash::find;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::text::ZendString;
use phpprof_zend::unwind::Frame;

use super::lifetime::{has_key, is_live, is_shared, outlives};
use super::ops::{Ops, ops_size};
use super::{
    AGREEING_READS, Block, Code, EXTENSION_HEAD, Entry, FunctionId, Functions, Look,
    MAX_REMEMBERED, MAX_RESOLVED, Place, STRING_HEAD,
};
use crate::stack::names::Name;

impl Functions {
    pub(super) fn look<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        looks: &mut [Look],
    ) {
        let mut heads = vec![[0_u8; HEAD]; looks.len()];
        let mut hashes = vec![[[0_u8; 8]; 2]; looks.len()];
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(looks.len() * 2);
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
        let set = ReadSet::new(place.memory);
        self.fetch_texts(place, &set, looks, &heads);
        let mut resolved = 0;
        for ((look, head), hashes) in looks.iter_mut().zip(&mut heads).zip(hashes) {
            // One address that is gone must not lose the others of the stack.
            if !together && place.memory.read(look.func, head).is_err() {
                continue;
            }
            let Some(key) = key_of(place, &look.frame, head) else {
                continue;
            };
            let is_as_expected = together && look.anchors == key.anchors();
            let stored = is_as_expected.then(|| hashes.map(u64::from_le_bytes));
            look.code = self.known(place, &set, &key, stored);
            if look.code.is_none() && resolved < MAX_RESOLVED {
                resolved += 1;
                look.code = self.resolve(place, &set, &look.frame, key);
            }
            if let Some(code) = look.code {
                self.remember(place, look.func, code);
            }
        }
    }

    /// Fetches what telling the functions apart will read: the texts of those that may be known at another address; of those that are not
    /// known yet texts and ops first, then what the names of their classes and extensions lead to.
    fn fetch_texts<M: Memory + ?Sized>(
        &self,
        place: &Place<'_, M>,
        set: &ReadSet<'_, M>,
        looks: &[Look],
        heads: &[[u8; HEAD]],
    ) {
        let keys = looks
            .iter()
            .zip(heads)
            .map(|(look, head)| key_of(place, &look.frame, head));
        let (known, keys): (Vec<_>, Vec<_>) = looks
            .iter()
            .zip(keys)
            .filter_map(|(look, key)| Some((look, key?)))
            .filter(|(look, key)| look.anchors != key.anchors())
            .take(MAX_RESOLVED)
            .partition(|(_, key)| place.shared.knows(key) || place.local.knows(key));
        let moved = known.iter().flat_map(|(_, key)| key.anchors());
        let moved = moved.map(|anchor| (anchor, STRING_HEAD));
        let keys: Vec<Key> = keys.into_iter().map(|(_, key)| key).collect();
        if keys.is_empty() {
            set.fetch(moved);
            return;
        }
        let (class, module) = (&place.layout.class_entry, &place.layout.module_entry);
        let at = |base: u64, offset: usize| match base {
            0 => 0,
            _ => base.saturating_add(offset as u64),
        };
        set.fetch(moved.chain(keys.iter().flat_map(|key| {
            [
                (key.name, STRING_HEAD),
                (key.filename, STRING_HEAD),
                (at(key.module, module.name), 8),
                (key.code, ops_size(place.layout, key).unwrap_or(0)),
                (at(key.scope, class.name), 8),
                (at(key.scope, class.ce_flags), 4),
            ]
        })));
        let word = |address: u64| match address {
            0 => 0,
            _ => set.word(address).unwrap_or(0),
        };
        set.fetch(keys.iter().flat_map(|key| {
            [
                (word(at(key.scope, class.name)), STRING_HEAD),
                (word(at(key.module, module.name)), EXTENSION_HEAD),
            ]
        }));
    }

    /// A code that is known under this key and by the texts that its strings have now; `stored` are their hashes as far as these have
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
        map.by_key.get(&(*key, fingerprints)).copied()
    }

    /// Reads a name for the first time. It is used only if what it was read from was the function's: memory that nothing
    /// uses again, or a function that the engine's tables hold under this name, or one whose frame was live between two
    /// readings of the same texts.
    fn resolve<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        set: &ReadSet<'_, M>,
        frame: &Frame,
        key: Key,
    ) -> Option<FunctionId> {
        let function = if key.name == 0 && !key.is_user() {
            Function {
                key,
                name: String::new(),
                file: String::new(),
                function_name: Vec::new(),
                class: Vec::new(),
                fingerprints: [0, 0],
            }
        } else {
            Function::resolve(set, place.layout, key)?
        };
        let is_declared = || {
            let globals = place.executor_globals;
            key.is_named()
                && is_declared(place.memory, place.layout, globals, frame.func, &function)
        };
        // The engine may have been copying another closure to this address: what is half of each is seen now and then, but
        // not so many times in a row.
        let is_live = || (0..AGREEING_READS).all(|_| is_live(place, frame, &key));
        let has_its_texts = || {
            function.name.is_empty()
                || Function::resolve(place.memory, place.layout, key)
                    .is_some_and(|again| again.has_texts_of(&function))
        };
        let in_a_table = key.is_named() && (outlives(place, &key) || is_declared());
        let is_its_name = if is_lasting_script(place, &key) {
            // Its code is where the frame's opline is, and nothing moves there.
            key.op_index(place.layout, frame.opline).is_some()
        } else if in_a_table {
            has_key(place, frame.func, &key)
        } else {
            is_live() && has_its_texts()
        };
        is_its_name.then(|| self.add(place, set, frame.func, function))
    }

    /// Learns a function that a quiescent read has seen.
    pub fn know<M: Memory + ?Sized>(&mut self, place: &mut Place<'_, M>, function: Function) {
        self.renew(place);
        let map = if outlives(place, &function.key) {
            &*place.shared
        } else {
            &*place.local
        };
        let identity = (function.key, function.fingerprints);
        let known = map.by_key.get(&identity).and_then(|&id| self.get(id));
        if known.is_none_or(|known| !known.function.has_texts_of(&function)) {
            let set = ReadSet::new(place.memory);
            self.add(place, &set, 0, function);
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
        for (frame, key) in frames.iter().zip(keys) {
            ids.push(key.and_then(|key| {
                let set = ReadSet::new(place.memory);
                let known = self.known(place, &set, &key, None);
                known.or_else(|| self.resolve(place, &set, frame, key))
            }));
        }
    }

    fn add<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        set: &ReadSet<'_, M>,
        func: u64,
        function: Function,
    ) -> FunctionId {
        let (key, fingerprints) = (function.key, function.fingerprints);
        let name = self.names.intern(Name {
            name: function.name.clone(),
            file: function.file.clone(),
            start_line: key.line_start,
        });
        let code = Code {
            home: home_of(place, func, &function),
            ops: Ops::read(set, place.layout, &key),
            function,
            name,
            main: None,
        };
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
        let in_shared = outlives(place, &key);
        let map = if in_shared {
            &mut *place.shared
        } else {
            &mut *place.local
        };
        if map.by_key.len() >= MAX_REMEMBERED {
            // What is still in use is resolved again at its next sight.
            map.forget_addresses();
            (map.by_key, map.known_keys) = Default::default();
        }
        map.by_key.insert((key, fingerprints), id);
        map.known_keys.insert(key);
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
            // Another function at an address that does not move: opcache has restarted, and its blocks with it.
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

/// What a frame's function is by its first bytes. An included file has often ended by the time that it is looked at.
fn key_of<M: Memory + ?Sized>(
    place: &Place<'_, M>,
    frame: &Frame,
    head: &[u8; HEAD],
) -> Option<Key> {
    let left = || {
        let is_script = frame.call_info & place.layout.call_info.code != 0;
        let key = is_script.then(|| Key::of_script(place.layout, head, frame.opline));
        key.flatten().filter(|key| is_lasting_script(place, key))
    };
    left().or_else(|| Key::parse(place.layout, head))
}

/// Whether a key is that of a file's code in the memory that opcache shares.
fn is_lasting_script<M: Memory + ?Sized>(place: &Place<'_, M>, key: &Key) -> bool {
    key.is_user() && key.name == 0 && is_shared(place, key.code) && is_shared(place, key.filename)
}

/// Where the engine's tables have an internal function that was met at `func`.
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
