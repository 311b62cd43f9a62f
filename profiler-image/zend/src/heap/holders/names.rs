//! What a step of a path is called.
//!
//! Invariant: the only text from the target is names of classes, functions and declared properties;
//! each has the hash that the engine stored with it, or is `?`.

use crate::function::{FunctionKey, HEAD, NamedFunction};
use crate::hash::values;
use crate::layouts::Layout;
use crate::memory::{Memory, half_at, word_at};
use crate::shown::{MAX_NAME, show};
use crate::text::{ClassName, ZendString};

use super::steps::HoldingStep;

/// How many properties of a class are looked at for one.
const MAX_PROPERTIES: usize = 4096;
/// The beginning of a `zend_property_info` (Zend/zend_compile.h): its offset, its flags, and its
/// name's address, in all versions.
const PROPERTY: usize = 16;
/// What cannot be named.
pub(super) const UNKNOWN: &str = "?";

/// What stands before a step.
pub fn separator(step: HoldingStep, is_first: bool) -> &'static str {
    match step {
        _ if is_first => "",
        _ if step.is_key() => "",
        _ => " → ",
    }
}

/// Appends the name of a step.
pub fn show_step<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    step: HoldingStep,
    text: &mut String,
) {
    let words = match step {
        HoldingStep::StaticProperty { class, number } => {
            show_property(memory, layout, class, PropertyPlace::Static(number), text);
            ""
        }
        HoldingStep::Property { class, offset } => {
            show_property(memory, layout, class, PropertyPlace::InObject(offset), text);
            ""
        }
        HoldingStep::StaticVariable { function } => {
            show_function(memory, layout, function, text);
            "() [static variable]"
        }
        HoldingStep::Variable { function } => {
            show_function(memory, layout, function, text);
            "() [variable]"
        }
        HoldingStep::Global => "[global variable]",
        HoldingStep::Running => "[running closure]",
        HoldingStep::This => "$this",
        HoldingStep::DynamicProperty => "[property]",
        HoldingStep::Bound => "[bound variable]",
        HoldingStep::Position => "[n]",
        HoldingStep::NumberKey => "[int key]",
        HoldingStep::TextKey => "[string key]",
    };
    text.push_str(words);
}

fn show_function<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    function: u64,
    text: &mut String,
) {
    let mut head = [0; HEAD];
    let read = memory.read(function, &mut head).ok();
    let key = read.and_then(|()| FunctionKey::parse(layout, &head));
    // A script's file is not part of a path.
    let is_script = key.as_ref().is_some_and(FunctionKey::is_top_level);
    let key = key.filter(|_| !is_script);
    let named = key.and_then(|key| NamedFunction::resolve(memory, layout, key));
    match named.filter(|named| named.function.is_checked) {
        Some(named) => text.push_str(named.name()),
        None if is_script => text.push_str("{main}"),
        None => text.push_str(UNKNOWN),
    }
}

/// Where a class keeps a property.
#[derive(Debug, Clone, Copy)]
enum PropertyPlace {
    /// Its number among the static ones.
    Static(u32),
    /// Its offset in objects.
    InObject(u32),
}

fn show_property<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    class: u64,
    place: PropertyPlace,
    text: &mut String,
) {
    match ClassName::read(memory, layout, class) {
        Some(it) if it.stored.is_checked => it.show(text),
        _ => text.push_str(UNKNOWN),
    }
    text.push_str("::$");
    match property_name(memory, layout, class, place) {
        // "\0Class\0name" of a private one, "\0*\0name" of a protected one
        // (`zend_mangle_property_name`).
        Some(stored) => {
            let name = stored.bytes.rsplit(|&byte| byte == 0).next();
            let name = name.unwrap_or_default();
            show(name, name.len() as u64, MAX_NAME, text);
        }
        None => text.push_str(UNKNOWN),
    }
}

fn property_name<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    class: u64,
    place: PropertyPlace,
) -> Option<ZendString> {
    let row = &layout.class_entry;
    let table = class.checked_add(row.properties_info as u64)?;
    let properties = values(memory, layout, table, MAX_PROPERTIES)?;
    let (wanted, is_static) = match place {
        PropertyPlace::Static(number) => (number, true),
        PropertyPlace::InObject(offset) => (offset, false),
    };
    let found = properties.into_iter().find_map(|property| {
        let mut bytes = [0; PROPERTY];
        memory.read(property, &mut bytes).ok()?;
        let is_of_class = half_at(&bytes, 4) & row.static_member != 0;
        let is_it = half_at(&bytes, 0) == wanted && is_of_class == is_static;
        is_it.then(|| word_at(&bytes, 8))
    })?;
    ZendString::read(memory, layout, found).filter(|it| it.is_checked)
}
