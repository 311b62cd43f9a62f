//! From the functions of a stack's frames to their names, with caches whose entries live exactly as
//! long as what they name.
//!
//! | code | identified by | trusted |
//! |---|---|---|
//! | in shared memory (opcache's) with its class, or an internal function | its address; a caller by its opline inside a known block | checked each second, many together |
//! | a named function elsewhere | its address | until the request ends; without a visible end, never |
//! | code in shared memory of a class that each request links again | its code block and its class's name | like other functions elsewhere |
//! | a closure, an include, eval()'d code | its code block, read in each sample | never |
//! | the same in shared memory | the opline of an include's frame, or of a closure's that has called, inside a known block | for some seconds after its block, or scripts, were checked |
//! | an include that has ended | by its opline in opcache's table, which is read at most each second | never |
//! | a closure that has ended | by its opline in the lists of the functions that hold its code | never |
//!
//! Before 8.4, a closure's name is completed later, by the function around it (`closures.rs`).
//!
//! When opcache restarts, everything is forgotten that was learned before: a stack and what is
//! known have the same [`Restarts`]. All functions of a stack that have to be read in a sample are
//! read in one gather. Names and lines are read at a function's first sight.

mod closures;
mod fetch;
mod held;
mod lifetime;
mod map;
mod ops;
mod resolve;
mod scripts;
mod unchecked;

use std::ops::Range;

use phpprof_zend::Layout;
use phpprof_zend::closure::{Arena, is_closure};
use smallvec::SmallVec;

use phpprof_zend::function::{FunctionKey, HEAD, ZendFunction};
use phpprof_zend::memory::{Memory, MemoryFault, Piece};
use phpprof_zend::opcache::Restarts;
use phpprof_zend::unwind::Frame;

use closures::UnnamedClosures;
use held::Searched;
pub use held::was_there;
pub use lifetime::stands;
pub use map::Map;
use map::{CodeBlock, FunctionEntry};
use ops::{Ops, ops_size};
use unchecked::Unchecked;

use crate::stack::pauses::Pauses;

use super::names::{FunctionNames, NameId};
use super::stand::Stand;

/// Names that are read in one sample; the others are read in the next one.
const MAX_RESOLVED: usize = 64;
/// The ops of new functions that are read in one sample, in bytes, without those of the last one:
/// 500 for each of [`MAX_RESOLVED`]. The other functions are read in the next sample.
const MAX_OPS_READ: usize = 1 << 20;
/// Functions that one map remembers before it is cleared.
const MAX_REMEMBERED: usize = 65_536;
/// The memory of all functions together, in bytes, before all are forgotten. Without a visible end
/// of a request, closures and eval()'d code accumulate.
pub const MAX_BYTES: usize = if cfg!(test) { 32 << 10 } else { 5 << 19 };
/// Reads after that of a name that have to find its function live and unchanged.
const AGREEING_READS: usize = 4;
/// A function that outlives requests is checked about this often, apart from the samples.
const CHECKED_EVERY: u64 = 1_000_000_000;
/// It is checked for this long after it was first seen.
const CHECKED_FOR: u64 = 30_000_000_000;
/// At most this many are checked at once.
const CHECKED_TOGETHER: usize = 64;
/// Those to check are looked for among this many.
const SEARCHED_TOGETHER: usize = 256;
/// Nanoseconds between two checks, at least.
const BETWEEN_CHECKS: u64 = 15_000_000;
/// A function that was not checked for this long is read in the sample that contains it.
const TRUSTED_NANOSECONDS: u64 = 2_500_000_000;
/// How many functions of a stack are read without an allocation.
const FEW: usize = 8;
/// How much of a string is read before its length is known.
const STRING_HEAD: usize = 192;
const EXTENSION_HEAD: usize = 16;

/// Index of a known code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(u32);

/// A function that has been resolved, and its ops. Its name for users is only in [`FunctionNames`].
#[derive(Debug)]
pub struct Code {
    /// The function as call sites know it.
    pub function: ZendFunction,
    /// The name for users, of this body.
    pub name: NameId,
    /// The name as the root of a stack, once it was one.
    main: Option<NameId>,
    ops: Ops,
    /// Where the engine's tables have an internal function. A class inherits an internal method as
    /// a copy, which is in the memory of the request (`zend_duplicate_internal_function`,
    /// Zend/zend_inheritance.c).
    home: u64,
    /// The class under which its map knows it.
    scope: u64,
}

/// Distinguishes a function from all others that are remembered: its key and
/// [`ZendFunction::fingerprints`]. For a method of a class that each request links anew, the
/// address of the class's name replaces that of the class.
type FunctionIdentity = (FunctionKey, [u64; 2]);

/// Where a stack was read, and what is known there.
pub struct StackPlace<'a, M: Memory + ?Sized> {
    /// The worker's memory.
    pub memory: &'a M,
    /// The engine's layout row.
    pub layout: &'a Layout,
    /// The address of the worker's `EG`.
    pub executor_globals: u64,
    /// Memory shared between the engine's processes.
    pub shared_ranges: &'a [Range<u64>],
    /// opcache's restarts when the stack was read.
    pub restarts: Restarts,
    /// The address of the time at which the request began, and that time when the stack was read,
    /// if it is known.
    pub request: Option<(u64, u64)>,
    /// The known functions in memory that the engine's processes share.
    pub shared: &'a mut Map,
    /// The known functions in the worker's own memory.
    pub local: &'a mut Map,
    /// Whether the end of a request is visible, so that functions can be trusted until then.
    pub request_ends: bool,
    /// The compiler's memory when the stack was read; `None` if closures that have ended are not
    /// searched for.
    pub arena: Option<Arena>,
    /// The time, in nanoseconds of the monotonic clock.
    pub now: u64,
}

impl<M: Memory + ?Sized> StackPlace<'_, M> {
    /// Whether a function is known under this key, whatever its texts.
    fn knows(&self, key: &FunctionKey) -> bool {
        self.shared.knows(key) || self.local.knows(key)
    }
}

/// Fills pieces, after what it reads for itself.
pub type Gather<'a> = &'a mut dyn FnMut(&mut [Piece<'_>]) -> Result<(), MemoryFault>;

/// All known codes of a run.
#[derive(Debug, Default)]
pub struct Functions {
    age: u32,
    arena: Vec<Option<Code>>,
    free: Vec<FunctionId>,
    bytes: usize,
    /// Their names for users.
    pub names: FunctionNames,
    /// Addresses that were read since the last [`Functions::begin`] without a result: another try
    /// with the same read does not help.
    refused: SmallVec<[u64; FEW]>,
    /// The closures that were searched for since then.
    searched: SmallVec<[Searched; FEW]>,
    /// The bytes of ops that were read since then.
    ops_read: usize,
    pauses: Pauses,
    unchecked: Unchecked,
    closures: UnnamedClosures,
}

impl Functions {
    /// Begins to identify the stacks of another read. Ids of earlier reads are not valid any more:
    /// if all functions take too much memory, they are forgotten here, and nowhere else.
    pub fn begin(&mut self) {
        self.refused.clear();
        self.searched.clear();
        self.closures.begin();
        self.ops_read = 0;
        self.unchecked.is_refused = false;
        if self.bytes > MAX_BYTES {
            (self.arena, self.free, self.bytes) = (Vec::new(), Vec::new(), 0);
            self.closures.forget_all();
            self.age += 1;
        }
    }

    /// Identifies the function of each frame, leaf first, into `ids`; `None` if it is inconsistent.
    /// If what is read of a function is only valid while its frame stands, `look_again` looks at
    /// the frames, from this one on, counted from the root, by a gather that reads this of the
    /// functions first, and tells which have stood.
    pub fn identify<M: Memory + ?Sized>(
        &mut self,
        place: &mut StackPlace<'_, M>,
        frames: &[Frame],
        ids: &mut Vec<Option<FunctionId>>,
        look_again: impl FnMut(usize, Gather<'_>) -> Stand,
    ) {
        ids.clear();
        self.renew(place);
        let mut looks: SmallVec<[UnreadFunction; FEW]> = SmallVec::new();
        for (index, frame) in frames.iter().enumerate() {
            let trusted = self.trusted(place, frame, index == 0);
            let depth = frames.len() - index;
            let look = looks.iter_mut().find(|look| look.func == frame.func);
            if let Some(look) = look {
                look.depth = depth;
            } else if trusted.is_none() && !self.refused.contains(&frame.func) {
                let entry = place
                    .local
                    .by_func
                    .get(&frame.func)
                    .or_else(|| place.shared.by_func.get(&frame.func));
                let anchors = entry
                    .and_then(|entry| self.get(entry.code))
                    .map_or([0, 0], |code| code.function.key.anchors());
                looks.push(UnreadFunction {
                    func: frame.func,
                    frame: *frame,
                    depth,
                    anchors,
                    key: None,
                    stands: None,
                    code: None,
                });
            }
            ids.push(trusted);
        }
        if !looks.is_empty() {
            self.look(place, &mut looks, look_again);
        }
        let unknown = looks.iter().filter(|look| look.code.is_none());
        self.refused.extend(unknown.map(|look| look.func));
        for (id, frame) in ids.iter_mut().zip(frames) {
            if id.is_none() {
                let look = looks.iter().find(|look| look.func == frame.func);
                *id = look.and_then(|look| look.code);
            }
        }
        for index in 0..frames.len() {
            if ids[index].is_none() {
                ids[index] = self.held(place, frames, ids, index);
            }
        }
        self.settle_closures(place, frames, ids);
    }

    /// How many functions have a name that PHP's hash did not confirm.
    #[must_use]
    pub fn unchecked_names(&self) -> u64 {
        self.unchecked.names
    }

    /// Whether such a name was refused since the last [`Functions::begin`].
    #[must_use]
    pub fn has_refused_name(&self) -> bool {
        self.unchecked.is_refused
    }

    /// Takes room for a new function to be read in this sample: there is none if there are enough
    /// ops of others.
    fn take_room_for(&mut self, layout: &Layout, key: Option<FunctionKey>) -> bool {
        let has_room = self.ops_read < MAX_OPS_READ;
        if has_room {
            self.ops_read += key.and_then(|key| ops_size(layout, &key)).unwrap_or(0);
        }
        has_room
    }

    /// The code of an id.
    #[must_use]
    pub fn get(&self, id: FunctionId) -> Option<&Code> {
        self.arena.get(id.0 as usize)?.as_ref()
    }

    /// The name of a code. As the root of a stack, a script's top level is `{main}`.
    pub fn name(&mut self, id: FunctionId, is_root: bool) -> NameId {
        let Some(code) = self.arena.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return FunctionNames::UNSTABLE;
        };
        if !is_root || !code.function.key.is_top_level() {
            return code.name;
        }
        let names = &mut self.names;
        *code.main.get_or_insert_with(|| {
            let main = names.main(code.name);
            names.of_body(main, code.ops.body(&code.function.key))
        })
    }

    /// The opcode and line of an op.
    pub fn op<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        id: FunctionId,
        index: u32,
    ) -> Option<(u8, u32)> {
        let code = self.arena.get_mut(id.0 as usize)?.as_mut()?;
        let before = code.ops.bytes();
        let op = code.ops.get(memory, layout, &code.function.key, index);
        self.bytes += code.ops.bytes() - before;
        op
    }

    /// Checks functions that outlive requests, in one gather, beginning with those that have not
    /// been checked for longest. If one has changed, opcache has restarted, and all are read anew.
    pub fn check<M: Memory + ?Sized>(&mut self, place: &mut StackPlace<'_, M>) {
        let shared = &place.shared;
        let is_old = (shared.age, shared.restarts) != (self.age, place.restarts);
        if is_old || place.now < shared.next_check {
            return;
        }
        let due = self.due(place.shared, place.now);
        place.shared.next_check = place.now + pause(due.len(), place.shared.order.len());
        if due.is_empty() {
            return;
        }
        let mut heads = [[0_u8; HEAD]; CHECKED_TOGETHER];
        let mut pieces: SmallVec<[Piece<'_>; CHECKED_TOGETHER]> = due
            .iter()
            .zip(&mut heads)
            .map(|(&(address, _), bytes)| Piece { address, bytes })
            .collect();
        let read = place.memory.gather(&mut pieces).is_ok();
        drop(pieces);
        let is_same = |((_, key), head): (&(u64, FunctionKey), &[u8; HEAD])| {
            FunctionKey::parse(place.layout, head).as_ref() == Some(key)
        };
        if !read || !due.iter().zip(&heads).all(is_same) {
            place.shared.forget_addresses();
            return;
        }
        if due.iter().any(|(_, key)| key.is_user()) {
            place.shared.scripts_checked = place.now;
        }
        for (func, _) in due {
            if let Some(entry) = place.shared.by_func.get_mut(&func) {
                entry.checked = place.now;
            }
        }
    }

    /// The next functions that have to be checked.
    fn due(&self, map: &mut Map, now: u64) -> SmallVec<[(u64, FunctionKey); CHECKED_TOGETHER]> {
        let mut due = SmallVec::new();
        for _ in 0..map.order.len().min(SEARCHED_TOGETHER) {
            if due.len() >= CHECKED_TOGETHER {
                break;
            }
            map.next = (map.next + 1) % map.order.len();
            let func = map.order[map.next];
            let entry = map.by_func.get(&func).filter(|entry| {
                now.saturating_sub(entry.checked) >= CHECKED_EVERY
                    && now.saturating_sub(entry.met) < CHECKED_FOR
            });
            due.extend(entry.and_then(|entry| Some((func, self.get(entry.code)?.function.key))));
        }
        due
    }

    /// Drops maps of before opcache restarted, or everything was forgotten. A worker's own has ids
    /// of the shared one: both go before any is used.
    fn renew<M: Memory + ?Sized>(&mut self, place: &mut StackPlace<'_, M>) {
        for map in [&mut *place.shared, &mut *place.local] {
            if (map.age, map.restarts) != (self.age, place.restarts) {
                self.forget(map);
                *map = Map {
                    age: self.age,
                    restarts: place.restarts,
                    ..Map::default()
                };
            }
        }
    }

    /// Forgets the functions in a worker's own memory: its request has ended.
    pub fn forget(&mut self, map: &mut Map) {
        if map.age != self.age {
            *map = Map::default(); // Its ids have been reused.
        }
        for (_, id) in map.by_identity.drain() {
            let slot = self.arena.get_mut(id.0 as usize);
            if let Some(code) = slot.and_then(Option::take) {
                self.bytes -= code.bytes().min(self.bytes);
                self.free.push(id);
                self.closures.forget(id);
            }
        }
        map.known_keys.clear();
        map.forget_addresses();
    }

    /// The known function of a frame, if it can be trusted without a read.
    fn trusted<M: Memory + ?Sized>(
        &self,
        place: &mut StackPlace<'_, M>,
        frame: &Frame,
        is_leaf: bool,
    ) -> Option<FunctionId> {
        if let Some(entry) = place.shared.by_func.get_mut(&frame.func) {
            entry.met = place.now;
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
        // A script's frame is pushed with its opline. For other frames the top one's own opline
        // proves nothing; a caller's is saved before its callee is linked. In the frame of an
        // internal function it is a remainder of an earlier call. So only the oplines of scripts
        // and closures tell which code they run.
        if !frame.is_script(place.layout) && (is_leaf || !is_closure(place.layout, frame)) {
            return None;
        }
        let (_, block) = place.shared.blocks.range(..=frame.opline).next_back()?;
        // A restart of opcache reuses the block of a file or a closure, and no function has to show
        // it.
        let checked = block.checked.max(place.shared.scripts_checked);
        let is_recent = place.now.saturating_sub(checked) < TRUSTED_NANOSECONDS;
        (frame.opline < block.end && !block.is_ambiguous && is_recent).then_some(block.code)
    }
}

impl Code {
    fn identity(&self) -> FunctionIdentity {
        let key = FunctionKey {
            scope: self.scope,
            ..self.function.key
        };
        (key, self.function.fingerprints)
    }

    /// Its approximate memory, with its entries in maps.
    fn bytes(&self) -> usize {
        let in_maps =
            size_of::<(u64, u64, FunctionId)>() + size_of::<(u64, FunctionEntry, u64, CodeBlock)>();
        let function = &self.function;
        let on_heap = function.function_name.bytes_on_heap() + function.class.bytes_on_heap();
        size_of::<Self>() + 2 * in_maps + on_heap + self.ops.bytes()
    }
}

/// How long to wait after a search that found this many functions due, of this many: all are
/// searched twice while one stays checked.
fn pause(due: usize, functions: usize) -> u64 {
    if due >= CHECKED_TOGETHER {
        return BETWEEN_CHECKS;
    }
    let searches = functions.div_ceil(SEARCHED_TOGETHER).max(1) as u64;
    (CHECKED_EVERY / 2 / searches).max(BETWEEN_CHECKS)
}

/// A function that has to be read.
struct UnreadFunction {
    func: u64,
    frame: Frame,
    /// The position of its lowest frame, from the root.
    depth: usize,
    /// The known addresses of the name's strings, 0 if unknown.
    anchors: [u64; 2],
    key: Option<FunctionKey>,
    /// Whether its frame stood after everything was read that is only valid while it stands; `None`
    /// if it was not looked at.
    stands: Option<bool>,
    code: Option<FunctionId>,
}

#[cfg(test)]
mod tests;
