//! From the functions of a stack's frames to their names, with caches whose entries live exactly as long as what they
//! name.
//!
//! | code | identified by | trusted |
//! |---|---|---|
//! | in shared memory (opcache's) with its class, or an internal function | its address; a caller by its opline inside a known block | checked each second, many together |
//! | a named function elsewhere | its address | until the request ends; without a visible end, never |
//! | a closure, an include, eval()'d code | its code block, read in each sample | never |
//!
//! What has to be looked at in a sample is looked at in one gather for the whole stack.

mod lifetime;
mod ops;

use std::collections::BTreeMap;
use std::ops::Range;

use phpprof_zend::Layout;
use phpprof_zend::declared::is_declared;
use rustc_hash::{FxHashMap, FxHashSet};

use phpprof_zend::function::{Function, HEAD, Key};
use phpprof_zend::hash::find;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::read_set::ReadSet;
use phpprof_zend::text::ZendString;
use phpprof_zend::unwind::Frame;

pub use lifetime::stands;
use lifetime::{has_key, is_live, is_shared, outlives};
use ops::{Ops, ops_size};

use super::names::{Name, NameId, Names};

/// Names that are read in one sample; the rest waits for the next.
const MAX_RESOLVED: usize = 64;
/// Functions that one map remembers before it starts anew.
const MAX_REMEMBERED: usize = 65_536;
/// What all functions together may take, in bytes, before all start anew. Without a visible end of a request, closures and
/// eval()'d code gather.
const MAX_BYTES: usize = if cfg!(test) { 32 << 10 } else { 6 << 20 };
/// Reads after that of a name that must find its function unchanged.
const AGREEING_READS: usize = 4;
/// A function that outlives requests is checked about so often, beside the samples,
const CHECKED_EVERY: u64 = 1_000_000_000;
/// at most so many at once,
const CHECKED_TOGETHER: usize = 32;
/// and looked at in the sample that meets it where it was not checked for so long.
const TRUSTED_NANOSECONDS: u64 = 2_500_000_000;
/// What is read of a string before its length is known.
const STRING_HEAD: usize = 96;
const EXTENSION_HEAD: usize = 16;

/// Index of a known code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(u32);

/// A function that has been resolved, and its ops.
#[derive(Debug)]
pub struct Code {
    pub function: Function,
    pub name: NameId,
    main: Option<NameId>,
    ops: Ops,
    /// Where the engine's tables have an internal function. A class inherits an internal method as a copy, which lies in
    /// the memory of the request (`zend_duplicate_internal_function`, Zend/zend_inheritance.c).
    home: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    code: FunctionId,
    checked: u64,
}

/// What functions are known at which addresses: one for the memory that an engine's processes share, one for each
/// worker's own.
#[derive(Debug, Default)]
pub struct Map {
    /// When its ids were given out ([`Functions::renew`]).
    age: u32,
    by_func: FxHashMap<u64, Entry>,
    /// Those in `by_key`, whatever their texts.
    known_keys: FxHashSet<Key>,
    /// By identity and texts ([`Function::fingerprints`]).
    by_key: FxHashMap<(Key, [u64; 2]), FunctionId>,
    /// The addresses in `by_func`, in the order in which they are checked, and the next of them.
    order: Vec<u64>,
    next: usize,
    /// Code blocks in shared memory: start to (end, code, whether two functions share the block, as of a trait).
    blocks: BTreeMap<u64, (u64, FunctionId, bool)>,
}

impl Map {
    fn knows(&self, key: &Key) -> bool {
        self.known_keys.contains(key)
    }

    fn forget_addresses(&mut self) {
        self.by_func.clear();
        self.blocks.clear();
        self.order.clear();
    }
}

/// Where a stack was read.
pub struct Place<'a, M: Memory + ?Sized> {
    pub memory: &'a M,
    pub layout: &'a Layout,
    pub executor_globals: u64,
    /// Memory shared between the engine's processes.
    pub shared_ranges: &'a [Range<u64>],
    pub shared: &'a mut Map,
    pub local: &'a mut Map,
    /// Whether the end of a request is seen, so that functions can be trusted until then.
    pub request_ends: bool,
    pub now: u64,
}

/// All known codes of a run.
#[derive(Debug, Default)]
pub struct Functions {
    age: u32,
    arena: Vec<Option<Code>>,
    free: Vec<FunctionId>,
    bytes: usize,
    pub names: Names,
}

impl Functions {
    /// Identifies the function of each frame, leaf first, into `ids`; `None` where it does not hold together.
    pub fn identify<M: Memory + ?Sized>(
        &mut self,
        place: &mut Place<'_, M>,
        frames: &[Frame],
        ids: &mut Vec<Option<FunctionId>>,
    ) {
        ids.clear();
        self.renew(place);
        let mut looks: Vec<Look> = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let trusted = self.trusted(place, frame, index == 0);
            if trusted.is_none() && !looks.iter().any(|look| look.func == frame.func) {
                let entry = place
                    .local
                    .by_func
                    .get(&frame.func)
                    .or_else(|| place.shared.by_func.get(&frame.func));
                let anchors = entry
                    .and_then(|entry| self.get(entry.code))
                    .map_or([0, 0], |code| code.function.key.anchors());
                looks.push(Look {
                    func: frame.func,
                    frame: *frame,
                    anchors,
                    code: None,
                });
            }
            ids.push(trusted);
        }
        if looks.is_empty() {
            return;
        }
        self.look(place, &mut looks);
        for (id, frame) in ids.iter_mut().zip(frames) {
            if id.is_none() {
                *id = looks
                    .iter()
                    .find(|look| look.func == frame.func)
                    .and_then(|look| look.code);
            }
        }
    }

    /// The code of an id.
    #[must_use]
    pub fn get(&self, id: FunctionId) -> Option<&Code> {
        self.arena.get(id.0 as usize)?.as_ref()
    }

    /// The name of a code; at the bottom of a stack a script's top level is `{main}`.
    pub fn name(&mut self, id: FunctionId, is_root: bool) -> NameId {
        let Some(code) = self.arena.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return Names::UNSTABLE;
        };
        if !is_root || !code.function.key.is_top_level() {
            return code.name;
        }
        let file = &code.function.file;
        let names = &mut self.names;
        *code.main.get_or_insert_with(|| {
            names.intern(Name {
                name: "{main}".to_owned(),
                file: file.clone(),
                start_line: 1,
            })
        })
    }

    /// Opcode and line of an op.
    pub fn op<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        id: FunctionId,
        index: u32,
    ) -> Option<(u8, u32)> {
        let code = self.arena.get_mut(id.0 as usize)?.as_mut()?;
        code.ops.get(memory, layout, &code.function.key, index)
    }

    /// Checks functions that outlive requests, those first that were not for longest: one gather for all of them. Where one is
    /// no longer what it was, opcache has restarted, and all are looked at anew.
    pub fn check<M: Memory + ?Sized>(&mut self, place: &mut Place<'_, M>) {
        if place.shared.age != self.age {
            return;
        }
        let due = self.due(place.shared, place.now);
        if due.is_empty() {
            return;
        }
        let mut heads = vec![[0_u8; HEAD]; due.len()];
        let mut pieces: Vec<Piece<'_>> = due
            .iter()
            .zip(&mut heads)
            .map(|(&(address, _), bytes)| Piece { address, bytes })
            .collect();
        let read = place.memory.gather(&mut pieces).is_ok();
        drop(pieces);
        let is_same = |((_, key), head): (&(u64, Key), &[u8; HEAD])| {
            Key::parse(place.layout, head).as_ref() == Some(key)
        };
        if !read || !due.iter().zip(&heads).all(is_same) {
            place.shared.forget_addresses();
            return;
        }
        for (func, _) in due {
            if let Some(entry) = place.shared.by_func.get_mut(&func) {
                entry.checked = place.now;
            }
        }
    }

    /// The next functions whose check is due.
    fn due(&self, map: &mut Map, now: u64) -> Vec<(u64, Key)> {
        let mut due = Vec::new();
        for _ in 0..map.order.len().min(CHECKED_TOGETHER) {
            map.next = if map.next < map.order.len() {
                map.next
            } else {
                0
            };
            let func = map.order[map.next];
            let entry = map.by_func.get(&func);
            if entry.is_some_and(|entry| now.saturating_sub(entry.checked) < CHECKED_EVERY) {
                break;
            }
            map.next += 1;
            due.extend(entry.and_then(|entry| Some((func, self.get(entry.code)?.function.key))));
        }
        due
    }

    /// Forgets everything where too much was gathered, and lets a map go whose ids are from before that. No id may be in use.
    fn renew<M: Memory + ?Sized>(&mut self, place: &mut Place<'_, M>) {
        if self.bytes > MAX_BYTES {
            (self.arena, self.free, self.bytes) = (Vec::new(), Vec::new(), 0);
            self.age += 1;
        }
        for map in [&mut *place.shared, &mut *place.local] {
            if map.age != self.age {
                *map = Map {
                    age: self.age,
                    ..Map::default()
                };
            }
        }
    }

    /// Forgets what a worker's own memory held: its request has ended.
    pub fn forget(&mut self, map: &mut Map) {
        if map.age != self.age {
            // Its ids are others' by now.
            *map = Map::default();
        }
        for (_, id) in map.by_key.drain() {
            let slot = self.arena.get_mut(id.0 as usize);
            if let Some(code) = slot.and_then(Option::take) {
                self.bytes -= code.bytes().min(self.bytes);
                self.free.push(id);
            }
        }
        map.known_keys.clear();
        map.forget_addresses();
    }

    /// What is known of a frame without looking.
    fn trusted<M: Memory + ?Sized>(
        &self,
        place: &mut Place<'_, M>,
        frame: &Frame,
        is_leaf: bool,
    ) -> Option<FunctionId> {
        if let Some(entry) = place.shared.by_func.get(&frame.func) {
            return (place.now.saturating_sub(entry.checked) < TRUSTED_NANOSECONDS)
                .then_some(entry.code);
        }
        if let Some(entry) = place.local.by_func.get(&frame.func)
            && place.request_ends
            && self
                .get(entry.code)
                .is_some_and(|code| code.function.key.is_named())
        {
            return Some(entry.code);
        }
        // The top frame's own opline proves nothing; a caller's is saved before its callee is linked. In the frame of an
        // internal function it is what an earlier call has left there, so only a closure's tells which code it runs.
        let flags = &place.layout.call_info;
        let is_closure = frame.call_info & (flags.closure | flags.fake_closure) == flags.closure;
        if is_leaf || !is_closure {
            return None;
        }
        let (_, &(end, code, ambiguous)) =
            place.shared.blocks.range(..=frame.opline).next_back()?;
        (frame.opline < end && !ambiguous).then_some(code)
    }

    fn look<M: Memory + ?Sized>(&mut self, place: &mut Place<'_, M>, looks: &mut [Look]) {
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
        self.fetch_unknown(place, &set, &heads);
        let mut resolved = 0;
        for ((look, head), hashes) in looks.iter_mut().zip(&mut heads).zip(hashes) {
            // One address that is gone must not lose the others of the stack.
            if !together && place.memory.read(look.func, head).is_err() {
                continue;
            }
            let Some(key) = Key::parse(place.layout, head) else {
                continue;
            };
            let is_as_expected = together && look.anchors == key.anchors();
            let stored = is_as_expected.then(|| hashes.map(u64::from_le_bytes));
            look.code = self.known(place, &key, stored);
            if look.code.is_none() && resolved < MAX_RESOLVED {
                resolved += 1;
                look.code = self.resolve(place, &set, &look.frame, key);
            }
            if let Some(code) = look.code {
                self.remember(place, look.func, code);
            }
        }
    }

    /// Fetches what resolving the functions that are not known yet will read: their texts and ops first, then what the names of
    /// their classes and extensions lead to.
    fn fetch_unknown<M: Memory + ?Sized>(
        &self,
        place: &Place<'_, M>,
        set: &ReadSet<'_, M>,
        heads: &[[u8; HEAD]],
    ) {
        let keys: Vec<Key> = heads
            .iter()
            .filter_map(|head| Key::parse(place.layout, head))
            .filter(|key| !place.shared.knows(key) && !place.local.knows(key))
            .take(MAX_RESOLVED)
            .collect();
        if keys.is_empty() {
            return;
        }
        let (class, module) = (&place.layout.class_entry, &place.layout.module_entry);
        let at = |base: u64, offset: usize| match base {
            0 => 0,
            _ => base.saturating_add(offset as u64),
        };
        set.fetch(keys.iter().flat_map(|key| {
            [
                (key.name, STRING_HEAD),
                (key.filename, STRING_HEAD),
                (at(key.module, module.name), 8),
                (key.code, ops_size(place.layout, key).unwrap_or(0)),
                (at(key.scope, class.name), 8),
                (at(key.scope, class.ce_flags), 4),
            ]
        }));
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
                let text = ZendString::read(place.memory, place.layout, address)?;
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
        let is_its_name = if in_a_table {
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
                let known = self.known(place, &key, None);
                known.or_else(|| {
                    let set = ReadSet::new(place.memory);
                    self.resolve(place, &set, frame, key)
                })
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
            map.blocks
                .entry(key.code)
                .and_modify(|block| block.2 = true)
                .or_insert((end, id, false));
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
        };
        if map.by_func.insert(func, entry).is_none() && lasting {
            map.order.push(func);
        }
    }
}

impl Code {
    /// What it takes, about, with its entries in maps.
    fn bytes(&self) -> usize {
        let function = &self.function;
        let texts = function.name.len()
            + function.file.len()
            + function.function_name.len()
            + function.class.len();
        size_of::<Self>() + 3 * size_of::<(Key, [u64; 2], FunctionId)>() + texts + self.ops.bytes()
    }
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

/// One function that has to be looked at.
struct Look {
    func: u64,
    frame: Frame,
    /// The name's strings as they were known, 0 where nothing was.
    anchors: [u64; 2],
    code: Option<FunctionId>,
}

#[cfg(test)]
mod tests;
