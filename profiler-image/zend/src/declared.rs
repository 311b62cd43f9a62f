//! Checks whether the engine's own tables have a function under the name that was read for it.
//!
//! Names are in memory that is freed and reused: a text at the address of a class's name may be
//! another one. The tables lead from the name to the function, and are emptied at a request's end.
//! Invariant: true only if the function, and its class, are found at the addresses from which the
//! names were read.

use crate::function::ZendFunction;
use crate::hash::find;
use crate::layouts::Layout;
use crate::memory::Memory;

/// Whether `func` is in the table of functions, or in that of its class, and its class in the table
/// of classes. Also false for functions in no table: closures, top-level code, methods that another
/// class has inherited as copies.
pub fn is_declared<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    executor_globals: u64,
    func: u64,
    function: &ZendFunction,
) -> bool {
    let row = &layout.executor_globals;
    let table = |offset: usize| {
        let address = executor_globals.checked_add(offset as u64)?;
        memory.word(address).ok()
    };
    let scope = function.key.scope;
    let functions = if scope == 0 {
        table(row.function_table)
    } else {
        let class = function.class.to_ascii_lowercase();
        table(row.class_table)
            .and_then(|classes| find(memory, layout, classes, &class))
            .filter(|&class| class == scope)
            .and_then(|class| class.checked_add(layout.class_entry.function_table as u64))
    };
    let name = function.function_name.to_ascii_lowercase();
    !name.is_empty()
        && functions.and_then(|functions| find(memory, layout, functions, &name)) == Some(func)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::{Machine, layout_of};
    use crate::testing::EngineImage;

    /// The tables have `append` and `Journal::append`; the function at this offset from it was read
    /// under these names.
    fn check(class: &str, name: &str, offset: u64, expected: bool) {
        let mut image = EngineImage::new(layout_of(Machine::X86_64, 8, 2).unwrap());
        let (layout, globals) = (image.layout, image.executor_globals);
        let scope = image.class(class);
        let func = image.user(Some(name), &[1.into()]).func;
        if !class.is_empty() {
            image.put_word(func, layout.function.scope, scope);
        }
        let function = image.function_at(func).unwrap();
        let (functions, classes) = (image.block(), image.block());
        let methods = scope + layout.class_entry.function_table as u64;
        image.put_word(globals, layout.executor_globals.function_table, functions);
        image.put_word(globals, layout.executor_globals.class_table, classes);
        image.put_table(functions, &[("append", func)]);
        image.put_table(classes, &[("journal", scope)]);
        image.put_table(methods, &[("append", func)]);
        assert_eq!(
            is_declared(&image, layout, globals, func + offset, &function),
            expected,
            "{class}::{name}"
        );
    }

    #[test]
    fn function_is_declared_under_its_own_name() {
        check("", "Append", 0, true);
        check("Journal", "append", 0, true);
        check("title", "append", 0, false);
        check("Journal", "title", 0, false);
        check("Journal", "append", 8, false);
        check("", "", 0, false);
    }
}
