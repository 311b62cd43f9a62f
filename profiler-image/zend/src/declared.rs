//! Whether the engine's own tables hold a function under the name that was read for it.
//!
//! Names lie in memory that is freed and used again: what was read where a class's name had been is a text all the same.
//! The tables lead the other way, from the name to the function, and a request's end empties them. Invariant: true only
//! where the function, and its class, are found at the addresses that the names were read from.

use crate::function::Function;
use crate::hash::find;
use crate::layouts::Layout;
use crate::memory::Memory;

/// Whether `func` is in the table of functions, or in that of its class, and its class in the table of classes. False
/// also for what no table holds: closures, top-level code, methods that another class has inherited as copies.
pub fn is_declared<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    executor_globals: u64,
    func: u64,
    function: &Function,
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
    use crate::function::Key;
    use crate::layouts::{Machine, layout_of};
    use crate::memory::Recorded;
    use crate::text::hash_of;

    const GLOBALS: u64 = 0x1_0000;
    const FUNCTIONS: u64 = 0x2_0000;
    const CLASSES: u64 = 0x3_0000;
    const CLASS: u64 = 0x4_0000;
    const FUNC: u64 = 0x5_0000;

    /// A table with one entry.
    fn put_table(memory: &mut Recorded, table: u64, data: u64, key: &str, value: u64) {
        let row = &layout_of(Machine::X86_64, 8, 2).unwrap().zend_array;
        let mut header = vec![0_u8; row.sizeof];
        header[row.n_table_mask..][..4].copy_from_slice(&(-2_i32).to_le_bytes());
        header[row.ar_data..][..8].copy_from_slice(&data.to_le_bytes());
        header[row.n_num_used..][..4].copy_from_slice(&1_u32.to_le_bytes());
        header[row.n_table_size..][..4].copy_from_slice(&2_u32.to_le_bytes());
        memory.put(table, header);
        memory.put(data - 8, vec![0; 8 + 64]);
        memory.put_word(data, value);
        memory.put(data + 8, [13, 0, 0, 0].to_vec());
        memory.put(data + 12, u32::MAX.to_le_bytes().to_vec());
        memory.put_word(data + 16, hash_of(key.as_bytes()));
        memory.put_word(data + 24, data + 0x100);
        let mut text = vec![0_u8; 16];
        text[4] = 6;
        text.extend_from_slice(&(key.len() as u64).to_le_bytes());
        text.extend_from_slice(key.as_bytes());
        text.resize(96, 0);
        memory.put(data + 0x100, text);
    }

    fn check(class: &str, name: &str, func: u64, expected: bool) {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let mut memory = Recorded::default();
        let row = &layout.executor_globals;
        memory.put_word(GLOBALS + row.function_table as u64, FUNCTIONS);
        memory.put_word(GLOBALS + row.class_table as u64, CLASSES);
        put_table(&mut memory, FUNCTIONS, 0x6_0000, "append", FUNC);
        put_table(&mut memory, CLASSES, 0x7_0000, "journal", CLASS);
        let methods = CLASS + layout.class_entry.function_table as u64;
        put_table(&mut memory, methods, 0x8_0000, "append", FUNC);
        let function = Function {
            key: Key {
                code: 0x9_0000,
                last: 1,
                kind: 2,
                passing: false,
                name: 8,
                scope: if class.is_empty() { 0 } else { CLASS },
                filename: 8,
                line_start: 1,
                module: 0,
            },
            name: String::new(),
            file: String::new(),
            function_name: name.as_bytes().to_vec(),
            class: class.as_bytes().to_vec(),
            fingerprints: [0, 0],
        };
        assert_eq!(
            is_declared(&memory, layout, GLOBALS, func, &function),
            expected,
            "{class}::{name}"
        );
    }

    #[test]
    fn only_the_function_that_the_tables_hold_under_its_name_is_declared() {
        check("", "Append", FUNC, true);
        check("Journal", "append", FUNC, true);
        check("title", "append", FUNC, false);
        check("Journal", "title", FUNC, false);
        check("Journal", "append", FUNC + 8, false);
        check("", "", FUNC, false);
    }
}
