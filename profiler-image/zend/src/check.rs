//! Compares a row of offsets with the live engine, before anything is sampled.
//!
//! The structures below exist from the engine's start on, and each check tests several offsets at
//! once: a wrong row fails by its first wrong number. What this module does not do: repair, or try
//! another row.

use crate::hash::{Bucket, find, first};
use crate::layouts::Layout;
use crate::memory::{Memory, byte_at, half_at, word_at};
use crate::refusal::EngineRefusal;
use crate::text::{ZendString, c_string};
use crate::tsrm::Thread;

/// The largest VM stack page: a frame that does not fit gets a page of its own.
const MAX_PAGE: u64 = 1 << 30;

fn mismatch(what: &'static str) -> EngineRefusal {
    EngineRefusal::LayoutMismatch(what)
}

/// `PHP_VERSION` from the module `core` (`php_module_startup`, main/main.c); `None` if there is no
/// such module, as in an engine that is just starting.
pub fn version<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    module_registry: u64,
) -> Option<String> {
    let module = find(memory, layout, module_registry, b"core")?;
    let text = memory
        .word(module.checked_add(layout.module_entry.version as u64)?)
        .ok()?;
    c_string(memory, text, 64)
}

/// The module `core` must have the row's API number and a build without debugging. If the version
/// string contradicts the engine, the engine is refused here.
pub fn modules<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    module_registry: u64,
    is_thread_safe: bool,
) -> Result<(), EngineRefusal> {
    let module = find(memory, layout, module_registry, b"core")
        .ok_or(mismatch("module_registry has no module core"))?;
    let mut entry = [0_u8; 48];
    memory
        .read(module, &mut entry)
        .map_err(|_| mismatch("the module core is unreadable"))?;
    let row = &layout.module_entry;
    if half_at(&entry, row.zend_api) != layout.module_api {
        return Err(mismatch(
            "the modules' API number does not belong to the version",
        ));
    }
    if (byte_at(&entry, row.zts) != 0) != is_thread_safe {
        return Err(mismatch(
            "the engine's modules and its symbols disagree on thread safety",
        ));
    }
    if byte_at(&entry, row.zend_debug) != 0 {
        return Err(EngineRefusal::UnsupportedVersion("debug build".to_owned()));
    }
    Ok(())
}

/// Checks the compiler's tables, and the executor's if a request has begun.
pub fn globals<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    executor_globals: u64,
    compiler_globals: u64,
) -> Result<(), EngineRefusal> {
    let row = &layout.compiler_globals;
    let word = |at: u64, offset: usize| {
        memory
            .word(at.wrapping_add(offset as u64))
            .map_err(|_| mismatch("the globals are unreadable"))
    };
    let functions = word(compiler_globals, row.function_table)?;
    if functions == 0 {
        return Err(EngineRefusal::Starting);
    }
    function_table(memory, layout, functions)?;
    let classes = word(compiler_globals, row.class_table)?;
    class_table(memory, layout, classes)?;
    let row = &layout.executor_globals;
    let executor = (
        word(executor_globals, row.function_table)?,
        word(executor_globals, row.class_table)?,
    );
    if executor != (0, 0) && executor != (functions, classes) {
        return Err(mismatch("the executor's tables are not the compiler's"));
    }
    vm_stack(memory, layout, executor_globals)
}

/// Whether the globals of a thread pass that check.
pub fn is_whole<M: Memory + ?Sized>(memory: &M, layout: &Layout, thread: &Thread) -> bool {
    let Thread {
        executor_globals,
        compiler_globals,
        ..
    } = *thread;
    globals(memory, layout, executor_globals, compiler_globals).is_ok()
}

/// The first function's own name must be its key in the table, and its module one of the engine's:
/// this checks `zend_array`, `Bucket`, `zend_string`, `zend_function.common` and
/// `zend_internal_function` at once.
fn function_table<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
) -> Result<(), EngineRefusal> {
    let bucket =
        first(memory, layout, table).ok_or(mismatch("CG(function_table) is not a hash table"))?;
    named(memory, layout, &bucket, layout.function.function_name)
        .ok_or(mismatch("a function is not filed under its name"))?;
    let row = &layout.function;
    let mut head = [0_u8; 128];
    memory
        .read(bucket.value, &mut head)
        .map_err(|_| mismatch("a function is unreadable"))?;
    let module = word_at(&head, row.module);
    let is_internal = byte_at(&head, row.type_) == 1;
    let api = memory.half(module.wrapping_add(layout.module_entry.zend_api as u64));
    if !is_internal || word_at(&head, row.handler) == 0 || api != Ok(layout.module_api) {
        return Err(mismatch("the first function is not one of a module"));
    }
    Ok(())
}

fn class_table<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
) -> Result<(), EngineRefusal> {
    let bucket =
        first(memory, layout, table).ok_or(mismatch("CG(class_table) is not a hash table"))?;
    named(memory, layout, &bucket, layout.class_entry.name)
        .ok_or(mismatch("a class is not filed under its name"))
}

fn named<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    bucket: &Bucket,
    name: usize,
) -> Option<()> {
    let checked = |address: u64| {
        // Both may be one string: then only its hash says that it is one.
        ZendString::read(memory, layout, address).filter(|text| text.is_checked)
    };
    let key = checked(bucket.key)?;
    let name = memory.word(bucket.value.checked_add(name as u64)?).ok()?;
    let name = checked(name)?;
    (!key.bytes.is_empty() && key.bytes.eq_ignore_ascii_case(&name.bytes)).then_some(())
}

/// The VM stack's words must describe a page, and the current frame, if there is one, be aligned.
fn vm_stack<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    executor_globals: u64,
) -> Result<(), EngineRefusal> {
    let row = &layout.executor_globals;
    let mut bytes = [0_u8; 64];
    let length = (row.current_execute_data + 8 - row.vm_stack_top).min(bytes.len());
    memory
        .read(
            executor_globals.wrapping_add(row.vm_stack_top as u64),
            bytes.get_mut(..length).unwrap_or_default(),
        )
        .map_err(|_| mismatch("executor_globals is unreadable"))?;
    let word = |offset: usize| word_at(&bytes, offset - row.vm_stack_top);
    let (top, end, page) = (
        word(row.vm_stack_top),
        word(row.vm_stack_end),
        word(row.vm_stack),
    );
    // The words are read while the engine runs, so only conditions that hold at each moment are
    // checked; a stack that has been freed leaves its old words.
    let sound = page == 0
        || (page.is_multiple_of(8)
            && end.saturating_sub(page) <= MAX_PAGE
            && (top == 0 || top.is_multiple_of(8))
            && word(row.current_execute_data).is_multiple_of(8));
    if sound {
        Ok(())
    } else {
        Err(mismatch("EG(vm_stack) is not a stack"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;
    use crate::string_hash::hash_of;
    use crate::testing::EngineImage;

    #[test]
    fn function_needs_its_names_hash() {
        let layout = &ROWS[0];
        let mut image = EngineImage::new(layout);
        let (key, function) = (image.string("zend_version"), image.block());
        let offset = layout.function.function_name;
        image.put_word(function, offset, key);
        let bucket = Bucket {
            key,
            value: function,
        };
        let mut check = |hash: u64, expected: Option<()>| {
            image.put_word(key, layout.zend_string.h, hash);
            assert_eq!(named(&image, layout, &bucket, offset), expected);
        };
        check(hash_of(b"zend_version"), Some(()));
        check(hash_of(b"zend_versiom"), None);
    }
}
