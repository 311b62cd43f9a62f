//! Names closures by the function around them, for versions before 8.4, whose closures do not have
//! its name.
//!
//! The engine's tables tell it: those of the closure's class, and of global functions. A table is
//! read while a sample shows the closure, because functions go with their request. Until then, and
//! where no table tells, a closure has its file and line.
//! Invariant: a closure has one name in each profile, because [`super::FunctionNames`] shows the
//! new name for all its samples. At most 33 tables are read in a row, then ten per second, and few
//! in a sample.

use phpprof_zend::enclosing::{Enclosing, enclosing};
use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction, ZendFunction};
use phpprof_zend::memory::Memory;
use phpprof_zend::unwind::Frame;
use rustc_hash::FxHashMap;

use super::lifetime::has_key;
use super::{FunctionId, Functions, StackPlace};
use crate::stack::volume::without_versions;

/// How many closures wait for a look at the tables; further ones keep the names of their files.
const MAX_WAITING: usize = 512;
/// How many tables are read in a row; the last closure may need one more.
const MAX_IN_A_ROW: i64 = 32;
/// The nanoseconds after which one more may be read.
const BETWEEN_TABLES: u64 = 100_000_000;
/// How many closures of one sample are looked up. Each takes up to two tables.
const MAX_IN_A_SAMPLE: usize = 4;
/// How often a closure is looked up without a result: its call has often returned before its
/// tables are read, because the worker runs on.
const MAX_TRIES: u8 = 32;

/// The closures without the name of a function around them.
#[derive(Debug, Default)]
pub(super) struct UnnamedClosures {
    /// With the failed tries.
    waiting: FxHashMap<FunctionId, u8>,
    /// Closures that were looked up since the last [`Functions::begin`].
    looked_up: usize,
    pace: TablePace,
}

impl UnnamedClosures {
    /// Begins another sample.
    pub fn begin(&mut self) {
        self.looked_up = 0;
    }

    pub fn forget(&mut self, id: FunctionId) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&id);
        }
    }

    pub fn forget_all(&mut self) {
        self.waiting.clear();
    }
}

/// When a table may be read.
#[derive(Debug)]
struct TablePace {
    /// Below zero if the last closure took two tables for one: then the next one waits for both.
    left: i64,
    /// When `left` was right, in nanoseconds.
    since: u64,
}

impl Default for TablePace {
    fn default() -> Self {
        Self {
            left: MAX_IN_A_ROW,
            since: 0,
        }
    }
}

impl TablePace {
    fn may_read(&mut self, now: u64) -> bool {
        let more = now.saturating_sub(self.since) / BETWEEN_TABLES;
        if more > 0 {
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            self.left = self.left.saturating_add(more).min(MAX_IN_A_ROW);
            self.since = now;
        }
        self.left > 0
    }

    fn note_read(&mut self) {
        self.left -= 1;
    }
}

impl Functions {
    /// Notes a closure without the name of the function around it, which a later sample looks up.
    pub(super) fn await_name(&mut self, id: FunctionId) {
        let Some(code) = self.get(id) else { return };
        let is_new =
            code.function.is_unnamed_closure() && !self.names.is_closure_settled(code.name);
        if is_new && self.closures.waiting.len() < MAX_WAITING {
            self.closures.waiting.insert(id, 0);
        }
    }

    /// Looks up the functions around closures of this stack, if it is time.
    pub(super) fn settle_closures<M: Memory + ?Sized>(
        &mut self,
        place: &StackPlace<'_, M>,
        frames: &[Frame],
        ids: &[Option<FunctionId>],
    ) {
        if self.closures.waiting.is_empty() || !self.closures.pace.may_read(place.now) {
            return;
        }
        for (frame, id) in frames.iter().zip(ids) {
            let Some(id) = id.filter(|id| self.closures.waiting.contains_key(id)) else {
                continue;
            };
            let has_room = self.closures.looked_up < MAX_IN_A_SAMPLE;
            if !has_room || !self.closures.pace.may_read(place.now) {
                return;
            }
            self.closures.looked_up += 1;
            self.settle(place, frame, id);
        }
    }

    /// Looks one up.
    fn settle<M: Memory + ?Sized>(
        &mut self,
        place: &StackPlace<'_, M>,
        frame: &Frame,
        id: FunctionId,
    ) {
        let Some(code) = self.get(id) else {
            self.closures.forget(id);
            return;
        };
        let name = code.name.shown();
        if self.names.is_closure_settled(name) {
            self.closures.forget(id);
            return;
        }
        let file = self.names.get(name).file.to_string();
        let found = match closure_key(place, frame, &code.function) {
            Some(key) => self
                .function_around(place, &key, &file)
                // Its request may have ended meanwhile, and the tables with it.
                .unless(!has_key(place, frame.func, &key)),
            None => Around::Unknown,
        };
        match found {
            Around::Function(function) => {
                self.names.settle_closure(name, Some(&function));
                self.closures.forget(id);
            }
            Around::None => {
                self.names.settle_closure(name, None);
                self.closures.forget(id);
            }
            Around::Unknown => {
                let tries = self.closures.waiting.entry(id).or_default();
                *tries += 1;
                if *tries >= MAX_TRIES {
                    self.closures.forget(id);
                }
            }
        }
    }

    /// The name of the function around a closure of this file: from its class's table, else from
    /// that of global functions.
    fn function_around<M: Memory + ?Sized>(
        &mut self,
        place: &StackPlace<'_, M>,
        closure: &FunctionKey,
        file: &str,
    ) -> Around {
        let (layout, memory) = (place.layout, place.memory);
        let offset = layout.executor_globals.function_table as u64;
        let of_class = (closure.scope != 0).then(|| {
            closure
                .scope
                .checked_add(layout.class_entry.function_table as u64)
        });
        let global = || {
            memory
                .word(place.executor_globals.checked_add(offset)?)
                .ok()
        };
        let mut tables = [of_class.flatten(), global()];
        for table in tables.iter_mut().filter_map(Option::take) {
            self.closures.pace.note_read();
            match enclosing(memory, layout, table, closure) {
                Enclosing::Function(func, key) => {
                    return name_of_live(place, func, key, file);
                }
                Enclosing::NoneHere => {}
                Enclosing::Unknown => return Around::Unknown,
            }
        }
        Around::None
    }
}

/// What the tables tell of a closure.
enum Around {
    Function(String),
    None,
    Unknown,
}

impl Around {
    fn unless(self, is_too_late: bool) -> Self {
        if is_too_late { Self::Unknown } else { self }
    }
}

/// The closure's key with its class, if the frame still runs it.
fn closure_key<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    frame: &Frame,
    known: &ZendFunction,
) -> Option<FunctionKey> {
    let mut head = [0; HEAD];
    place.memory.read(frame.func, &mut head).ok()?;
    let key = FunctionKey::parse(place.layout, &head)?;
    let is_it = (key.code, key.filename, key.line_start)
        == (known.key.code, known.key.filename, known.key.line_start);
    is_it.then_some(key)
}

/// The name of a function of this file, if all that was read of it agrees.
fn name_of_live<M: Memory + ?Sized>(
    place: &StackPlace<'_, M>,
    func: u64,
    key: FunctionKey,
    file: &str,
) -> Around {
    let named = NamedFunction::resolve(place.memory, place.layout, key)
        .filter(|named| named.function.is_checked && without_versions(named.file()) == file);
    let mut head = [0; HEAD];
    let again = place.memory.read(func, &mut head);
    let is_same = || FunctionKey::parse(place.layout, &head) == Some(key);
    match named {
        Some(named) if again.is_ok() && is_same() => {
            Around::Function(without_versions(named.name()).into_owned())
        }
        _ => Around::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_32_times_then_slowly() {
        let mut pace = TablePace::default();
        let mut reads = |now: u64| {
            let mut count = 0;
            while pace.may_read(now) {
                pace.note_read();
                count += 1;
            }
            count
        };
        let second = 1_000_000_000;
        assert_eq!(reads(50 * second), MAX_IN_A_ROW);
        assert_eq!(reads(50 * second + BETWEEN_TABLES - 1), 0);
        let later = (1..=10).map(|tenth| reads(50 * second + tenth * BETWEEN_TABLES));
        assert_eq!(later.sum::<i64>(), 10);
        assert_eq!(reads(100 * second), MAX_IN_A_ROW);
    }
}
