//! Finds the function around a closure by its lines, for versions before 8.4, whose closures do not
//! have its name.
//!
//! Invariant: the result is of the closure's own file, its lines contain the closure's first one,
//! and those of each other function that does contain it too. Every count is bounded.

use crate::function::{FunctionKey, HEAD};
use crate::hash::values;
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, half_at, word_at};

/// How many of a table's functions, from the newest on, are considered.
const MAX_FUNCTIONS: usize = 8192;
/// How many of these are read: the nearest to the closure's code. A file's functions are close to
/// each other and to their code, in opcache's memory as in the compiler's.
const MAX_READ: usize = 1024;
/// How many functions may contain a line.
const MAX_AROUND: usize = 8;
/// `op_array.filename`, `line_start` and `line_end`, which follow each other.
const PLACE: usize = 16;

/// The result for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enclosing {
    /// This function, at this address.
    Function(u64, FunctionKey),
    /// None of this table, or several of which none is the innermost.
    NoneHere,
    /// The table could not be read.
    Unknown,
}

/// Looks for the function around a closure in a table of functions.
pub fn enclosing<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
    closure: &FunctionKey,
) -> Enclosing {
    search(memory, layout, table, closure).unwrap_or(Enclosing::Unknown)
}

fn search<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
    closure: &FunctionKey,
) -> Option<Enclosing> {
    let mut functions = values(memory, layout, table, MAX_FUNCTIONS)?;
    if functions.len() > MAX_READ {
        functions.select_nth_unstable_by_key(MAX_READ, |func| func.abs_diff(closure.code));
        functions.truncate(MAX_READ);
    }
    let mut around: Vec<CodeLines> = Vec::new();
    for (func, lines) in places(memory, layout, &functions, closure)? {
        let mut head = [0; HEAD];
        memory.read(func, &mut head).ok()?;
        let key = FunctionKey::parse(layout, &head);
        // Up to 8.0, closures are in the table too.
        let Some(key) = key.filter(|key| key.is_user() && key.is_named()) else {
            continue;
        };
        if !around.iter().any(|other| other.key.code == key.code) {
            around.push(CodeLines { func, key, lines });
        }
        if around.len() > MAX_AROUND {
            return Some(Enclosing::NoneHere);
        }
    }
    let innermost = around
        .iter()
        .find(|one| around.iter().all(|other| one.is_in(other)));
    Some(innermost.map_or(Enclosing::NoneHere, |it| {
        Enclosing::Function(it.func, it.key)
    }))
}

/// A function with its first and last line.
struct CodeLines {
    func: u64,
    key: FunctionKey,
    lines: [u32; 2],
}

impl CodeLines {
    /// Whether this is the other one, or a part of it.
    fn is_in(&self, other: &Self) -> bool {
        let ([begin, end], [other_begin, other_end]) = (self.lines, other.lines);
        self.key.code == other.key.code
            || (other_begin <= begin && end <= other_end && self.lines != other.lines)
    }
}

/// The functions of the closure's file whose lines contain its first one, and these lines.
fn places<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    functions: &[u64],
    closure: &FunctionKey,
) -> Option<Vec<(u64, [u32; 2])>> {
    let row = &layout.function;
    let mut bytes = vec![0; functions.len() * PLACE];
    let mut pieces = Vec::with_capacity(functions.len());
    for (&func, bytes) in functions.iter().zip(bytes.chunks_exact_mut(PLACE)) {
        let address = func.checked_add(row.filename as u64)?;
        pieces.push(Piece { address, bytes });
    }
    memory.gather(&mut pieces).ok()?;
    drop(pieces);
    let at = row.line_start - row.filename;
    let read = functions.iter().zip(bytes.chunks_exact(PLACE));
    let around = read.filter_map(|(&func, place)| {
        let lines = [half_at(place, at), half_at(place, at + 4)];
        let is_around = word_at(place, 0) == closure.filename
            && (lines[0]..=lines[1]).contains(&closure.line_start);
        is_around.then_some((func, lines))
    });
    Some(around.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;
    use crate::testing::EngineImage;

    /// A closure of line 5 in a table of functions with these names and lines.
    #[track_caller]
    fn check(functions: &[(&str, [u32; 2])], expected: Option<&str>) {
        for layout in ROWS {
            let mut image = EngineImage::new(layout);
            let row = &layout.function;
            let closure = image.user(Some("{closure}"), &[1.into()]).func;
            image.put_half(closure, row.line_start, 5);
            let closure = image.function_at(closure).unwrap().key;
            let mut entries = Vec::new();
            for (name, [begin, end]) in functions {
                let func = image.user(Some(name), &[1.into()]).func;
                image.put_word(func, row.filename, closure.filename);
                image.put_half(func, row.line_start, *begin);
                image.put_half(func, row.line_start + 4, *end);
                entries.push((*name, func));
            }
            let table = image.block();
            image.put_table(table, &entries);
            let found = enclosing(&image, layout, table, &closure);
            let func = expected.and_then(|name| entries.iter().find(|it| it.0 == name));
            match (found, func) {
                (Enclosing::Function(at, _), Some((_, func))) => assert_eq!(at, *func),
                (found, _) => assert_eq!((found, func), (Enclosing::NoneHere, None)),
            }
        }
    }

    #[test]
    fn enclosing_is_the_innermost_function_of_the_line() {
        check(
            &[("before", [1, 4]), ("f", [5, 9]), ("after", [10, 12])],
            Some("f"),
        );
        check(&[("outer", [1, 20]), ("f", [4, 9])], Some("f"));
        check(&[("f", [5, 5])], Some("f"));
        check(&[("f", [6, 9])], None);
        check(&[], None);
    }

    #[test]
    fn enclosing_does_not_guess_on_a_shared_line() {
        check(&[("f", [1, 5]), ("g", [5, 9])], None);
        check(&[("f", [5, 5]), ("g", [5, 5])], None);
        check(&[("f", [1, 9]), ("g", [5, 5]), ("h", [5, 5])], None);
    }

    #[test]
    fn enclosing_skips_closures_and_other_files() {
        let layout = &ROWS[0];
        let mut image = EngineImage::new(layout);
        let row = &layout.function;
        let closure = image.user(Some("{closure}"), &[1.into()]).func;
        image.put_half(closure, row.line_start, 5);
        image.put_half(closure, row.line_start + 4, 6);
        image.put_half(closure, row.fn_flags, row.passing_flags);
        let other = image.user(Some("f"), &[1.into()]).func;
        let file = image.string("/other.php");
        image.put_word(other, row.filename, file);
        image.put_half(other, row.line_start, 1);
        image.put_half(other, row.line_start + 4, 9);
        let key = image.function_at(closure).unwrap().key;
        let table = image.block();
        image.put_table(table, &[("{closure}", closure), ("f", other)]);
        assert_eq!(enclosing(&image, layout, table, &key), Enclosing::NoneHere);
        assert_eq!(enclosing(&image, layout, 8, &key), Enclosing::Unknown);
    }
}
