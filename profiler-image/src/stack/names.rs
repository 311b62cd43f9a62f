//! The names in samples, each kept once.
//!
//! A name stays the same when a worker compiles a script again or is replaced. So names are the
//! keys of stacks and proofs, and memory grows with the program's functions, not with time. Code
//! that was changed has an id of its own under the same name: its op of the same index can be on
//! another line, and call something else. Users see the name only ([`NameId::shown`]).

use std::hash::{BuildHasher as _, BuildHasherDefault};
use std::num::NonZero;
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

pub use pieces::{MAX_PIECES, MAX_TEXT, PiecedText};
use pieces::{PieceId, TextPieces, pieces_of};

mod pieces;

/// More functions than most programs have; further names become [`Names::OVERFLOW`].
pub const MAX_NAMES: usize = 14_336;
/// How many changed bodies are told apart, of all functions together: further ones count as the
/// first of their name. It is the capacity of a hash table of 2^11.
pub const MAX_CHANGED: usize = 1792;

/// Index into [`FunctionNames`], and the number of a changed body; as large with an `Option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId {
    after: NonZero<u16>,
    body: u16,
}

impl NameId {
    const fn of(index: u16) -> Self {
        Self {
            after: NonZero::<u16>::MIN.saturating_add(index),
            body: 0,
        }
    }

    /// The id of the name for every body.
    #[must_use]
    pub fn shown(self) -> Self {
        Self { body: 0, ..self }
    }

    /// The number of the name, whatever its body.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.after.get() - 1)
    }
}

/// A function's name for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FunctionName<'a> {
    /// `App\Cart::total`, `{main}`, `[gc]`, …
    pub name: &'a str,
    /// The file of its declaration; empty for a phase.
    pub file: &'a str,
    /// The line of its declaration; 0 if there is none.
    pub start_line: u32,
}

/// The same as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptName<'a> {
    /// Its name.
    pub name: PiecedText<'a>,
    /// The file of its declaration.
    pub file: PiecedText<'a>,
    /// The line of its declaration.
    pub start_line: u32,
}

/// All names of a run.
#[derive(Debug)]
pub struct FunctionNames {
    list: Arc<TextList>,
    by_hash: FxHashMap<u64, NameId>,
    by_piece: HashTable<PieceId>,
    /// The first body of each name, 0 for none yet.
    first_bodies: Vec<u32>,
    changed: FxHashMap<(NameId, u32), NameId>,
    /// A bit for each name of a closure for which no function has to be looked up any more.
    settled: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct NameRow {
    name: [PieceId; 3],
    file: [PieceId; 3],
    start_line: u32,
}

#[derive(Debug, Clone, Default)]
struct TextList {
    rows: Vec<NameRow>,
    pieces: TextPieces,
}

/// The names by their ids at a moment. They are copied only if the run meets a new name meanwhile.
#[derive(Debug, Clone, Default)]
pub struct NameList(Arc<TextList>);

impl NameList {
    /// The name of an id.
    #[must_use]
    pub fn get(&self, id: NameId) -> KeptName<'_> {
        self.0.get(id)
    }
}

impl TextList {
    fn get(&self, id: NameId) -> KeptName<'_> {
        let row = self.rows.get(id.index()).unwrap_or(&self.rows[0]);
        KeptName {
            name: self.pieces.text(row.name),
            file: self.pieces.text(row.file),
            start_line: row.start_line,
        }
    }
}

impl KeptName<'_> {
    fn is(&self, name: FunctionName<'_>) -> bool {
        self.start_line == name.start_line && self.name == *name.name && self.file == *name.file
    }
}

impl FunctionNames {
    /// The leaf that represents the unproven part of a stack.
    pub const UNSTABLE: NameId = NameId::of(0);
    /// The root of a stack that is deeper than can be kept.
    pub const TRUNCATED: NameId = NameId::of(1);
    /// Everything beyond the memory limit.
    pub const OVERFLOW: NameId = NameId::of(2);
    /// Waiting for a request.
    pub const IDLE: NameId = NameId::of(3);
    /// Beginning a request.
    pub const STARTUP: NameId = NameId::of(4);
    /// Ending a request.
    pub const SHUTDOWN: NameId = NameId::of(5);
    /// Compiling a script.
    pub const COMPILING: NameId = NameId::of(6);
    /// Finding a script and loading it from opcache.
    pub const LOADING: NameId = NameId::of(7);
    /// Looking up a class through the autoloaders.
    pub const AUTOLOAD: NameId = NameId::of(8);
    /// Collecting cycles.
    pub const COLLECTING: NameId = NameId::of(9);
    /// The engine itself, as the caller of a stack's root; not shown.
    pub const ENGINE: NameId = NameId::of(10);
    /// The root of a suspended fiber's stack.
    pub const SUSPENDED: NameId = NameId::of(11);

    /// The id of a name; a new one at first sight.
    pub fn intern(&mut self, name: FunctionName<'_>) -> NameId {
        let mut hash = HASHER.hash_one(name);
        while let Some(&id) = self.by_hash.get(&hash) {
            if self.is(id, name) {
                return id;
            }
            hash = hash.wrapping_add(1);
        }
        self.add(name, hash).unwrap_or(Self::OVERFLOW)
    }

    fn is(&self, id: NameId, name: FunctionName<'_>) -> bool {
        let kept = self.list.get(id);
        kept.is(name)
            || (self.is_closure_settled(id)
                && is_closure_of_file(name)
                && kept.start_line == name.start_line
                && kept.file == *name.file)
    }

    /// Whether a closure has got the name of the function around it, or has none.
    #[must_use]
    pub fn is_closure_settled(&self, id: NameId) -> bool {
        let byte = self.settled.get(id.index() / 8);
        byte.is_some_and(|byte| byte >> (id.index() % 8) & 1 == 1)
    }

    /// Notes that a closure is in this function, or in none. All samples show its new name, which
    /// [`FunctionNames::intern`] finds by its old one.
    pub fn settle_closure(&mut self, id: NameId, function: Option<&str>) {
        let index = id.index();
        if self.settled.len() <= index / 8 {
            self.settled.resize(index / 8 + 1, 0);
        }
        if let Some(byte) = self.settled.get_mut(index / 8) {
            *byte |= 1 << (index % 8);
        }
        let Some(function) = function else { return };
        let list = Arc::make_mut(&mut self.list);
        let Some(line) = list.rows.get(index).map(|row| row.start_line) else {
            return;
        };
        let name = format!("{CLOSURE}{function}():{line}}}");
        let pieces = list.pieces.keep(pieces_of(&name), &mut self.by_piece);
        if let (Some(pieces), Some(row)) = (pieces, list.rows.get_mut(index)) {
            row.name = pieces;
        }
    }

    /// The id of a name for code with this body, a hash of its ops and lines.
    pub fn of_body(&mut self, name: NameId, body: u32) -> NameId {
        let Some(first) = self.first_bodies.get_mut(name.index()) else {
            return name;
        };
        if *first == 0 {
            *first = body;
        }
        if name == Self::OVERFLOW || *first == body {
            return name;
        }
        let is_full = self.changed.len() >= MAX_CHANGED;
        match self.changed.get(&(name, body)) {
            Some(&id) => id,
            None if is_full => name,
            None => {
                let number = self.changed.len() as u16 + 1;
                let id = NameId {
                    body: number,
                    ..name
                };
                self.changed.insert((name, body), id);
                id
            }
        }
    }

    /// The name of a script's top level as the root of a stack.
    pub fn main(&mut self, script: NameId) -> NameId {
        if script == Self::OVERFLOW {
            return script;
        }
        let file = self.get(script).file.to_string();
        self.intern(FunctionName {
            name: "{main}",
            file: &file,
            start_line: 1,
        })
    }

    fn add(&mut self, name: FunctionName<'_>, hash: u64) -> Option<NameId> {
        if self.list.rows.len() >= MAX_NAMES {
            return None;
        }
        let list = Arc::make_mut(&mut self.list);
        let row = NameRow {
            name: list.pieces.keep(pieces_of(name.name), &mut self.by_piece)?,
            file: list.pieces.keep(pieces_of(name.file), &mut self.by_piece)?,
            start_line: name.start_line,
        };
        let id = NameId::of(u16::try_from(list.rows.len()).ok()?);
        list.rows.push(row);
        self.first_bodies.push(0);
        self.by_hash.insert(hash, id);
        Some(id)
    }

    /// The name of an id.
    #[must_use]
    pub fn get(&self, id: NameId) -> KeptName<'_> {
        self.list.get(id)
    }

    /// All names that are there by now.
    #[must_use]
    pub fn list(&self) -> NameList {
        NameList(Arc::clone(&self.list))
    }
}

/// How the name of a closure begins.
const CLOSURE: &str = "{closure:";

/// Whether this is a closure's name by its file and line.
fn is_closure_of_file(name: FunctionName<'_>) -> bool {
    let line = || {
        let rest = name.name.strip_prefix(CLOSURE)?.strip_prefix(name.file)?;
        rest.strip_prefix(':')?.strip_suffix('}')
    };
    line().is_some_and(|line| line.parse() == Ok(name.start_line))
}

const HASHER: BuildHasherDefault<FxHasher> = BuildHasherDefault::new();

impl Default for FunctionNames {
    fn default() -> Self {
        let mut names = Self {
            list: Arc::default(),
            by_hash: FxHashMap::default(),
            by_piece: HashTable::new(),
            first_bodies: Vec::with_capacity(MAX_NAMES),
            changed: FxHashMap::default(),
            settled: Vec::new(),
        };
        // In the order of the constants.
        for name in [
            "[unstable]",
            phpprof_profile::TRUNCATED,
            phpprof_profile::room::OVER,
            "[idle]",
            "[startup]",
            "[shutdown]",
            "[compiling]",
            "[loading]",
            "[autoload]",
            "[gc]",
            "[engine]",
            "[suspended]",
        ] {
            names.intern(FunctionName {
                name,
                file: "",
                start_line: 0,
            });
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<'a>(name: &'a str, file: &'a str) -> FunctionName<'a> {
        FunctionName {
            name,
            file,
            start_line: 7,
        }
    }

    #[test]
    fn each_name_has_one_lasting_id() {
        let mut names = FunctionNames::default();
        let one = names.intern(name("f", "/a.php"));
        let list = names.list();
        let two = names.intern(name("f", "/b.php"));
        assert!(one != two && one == names.intern(name("f", "/a.php")));
        assert!(names.get(two).is(name("f", "/b.php")));
        assert!(list.get(one).is(name("f", "/a.php")));
        assert_eq!(list.get(two).name, "[unstable]");
        assert_eq!(names.get(FunctionNames::ENGINE).name, "[engine]");
    }

    #[test]
    fn names_beyond_the_caps_are_one() {
        let mut names = FunctionNames::default();
        let many = (0..MAX_NAMES).map(|index| names.intern(name(&format!("f{index}"), "/a.php")));
        assert_eq!(many.last(), Some(FunctionNames::OVERFLOW));
        let mut names = FunctionNames::default();
        let long = "x".repeat(MAX_TEXT / 2);
        assert!(names.intern(name(&long, "/a.php")) != FunctionNames::OVERFLOW);
        // Its text is there.
        assert!(names.intern(name(&long, "/b.php")) != FunctionNames::OVERFLOW);
        let other = "y".repeat(MAX_TEXT / 2);
        assert_eq!(
            names.intern(name(&other, "/b.php")),
            FunctionNames::OVERFLOW
        );
    }

    #[test]
    fn settled_closure_has_one_name() {
        let mut names = FunctionNames::default();
        let by_file = name("{closure:/a.php:7}", "/a.php");
        let [one, other] = [by_file, name("f", "/a.php")].map(|it| names.intern(it));
        let before = names.list();
        assert!(!names.is_closure_settled(one));
        names.settle_closure(one, Some("Cart::total"));
        assert!(names.is_closure_settled(one) && !names.is_closure_settled(other));
        assert_eq!(names.get(one).name, "{closure:Cart::total():7}");
        assert_eq!(before.get(one).name, "{closure:/a.php:7}");
        assert_eq!(names.intern(by_file), one);
        assert_eq!(
            [by_file, name("f", "/a.php")].map(|it| names.intern(it)),
            [one, other]
        );
        let outside = names.intern(name("{closure:/b.php:7}", "/b.php"));
        names.settle_closure(outside, None);
        assert_eq!(names.get(outside).name, "{closure:/b.php:7}");
        assert_eq!(names.intern(name("{closure:/b.php:7}", "/b.php")), outside);
    }

    #[test]
    fn changed_code_has_its_own_bounded_id() {
        let mut names = FunctionNames::default();
        let [one, two] = ["f", "g"].map(|text| names.intern(name(text, "/a.php")));
        assert_eq!(names.of_body(one, 5), one);
        let changed = names.of_body(one, 6);
        assert!(changed != one && changed.shown() == one && changed == names.of_body(one, 6));
        assert_eq!(names.get(changed), names.get(one));
        assert_eq!([names.of_body(one, 5), names.of_body(two, 6)], [one, two]);
        assert!(names.of_body(two, 7) != changed);
        let ids = (8..8 + MAX_CHANGED as u32).map(|body| names.of_body(two, body));
        assert_eq!(ids.last(), Some(two));
        assert_eq!(names.of_body(one, 6), changed);
        assert_eq!(
            names.of_body(FunctionNames::OVERFLOW, 7),
            FunctionNames::OVERFLOW
        );
    }
}
