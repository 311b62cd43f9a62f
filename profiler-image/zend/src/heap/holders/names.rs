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
const UNKNOWN: &str = "?";

/// What stands before a step.
pub fn separator(step: HoldingStep, is_first: bool) -> &'static str {
    match step {
        _ if is_first => "",
        HoldingStep::Position | HoldingStep::NumberKey | HoldingStep::TextKey => "",
        _ => " → ",
    }
}

/// The name of a step.
pub fn name_of<M: Memory + ?Sized>(memory: &M, layout: &Layout, step: HoldingStep) -> String {
    match step {
        HoldingStep::StaticProperty { class, number } => {
            property_of(memory, layout, class, PropertyPlace::Static(number))
        }
        HoldingStep::Property { class, offset } => {
            property_of(memory, layout, class, PropertyPlace::InObject(offset))
        }
        HoldingStep::StaticVariable { function } => {
            format!(
                "{} [static variable]",
                function_of(memory, layout, function)
            )
        }
        HoldingStep::Variable { function } => {
            format!("{} [variable]", function_of(memory, layout, function))
        }
        HoldingStep::Global => "[global variable]".to_owned(),
        HoldingStep::Running => "[running closure]".to_owned(),
        HoldingStep::This => "$this".to_owned(),
        HoldingStep::DynamicProperty => "[property]".to_owned(),
        HoldingStep::Bound => "[bound variable]".to_owned(),
        HoldingStep::Position => "[n]".to_owned(),
        HoldingStep::NumberKey => "[int key]".to_owned(),
        HoldingStep::TextKey => "[string key]".to_owned(),
    }
}

fn function_of<M: Memory + ?Sized>(memory: &M, layout: &Layout, function: u64) -> String {
    let mut head = [0; HEAD];
    let read = || {
        memory.read(function, &mut head).ok()?;
        let key = FunctionKey::parse(layout, &head)?;
        if key.is_top_level() {
            return Some("{main}".to_owned());
        }
        let named = NamedFunction::resolve(memory, layout, key)?;
        let name = || format!("{}()", named.name());
        named.function.is_checked.then(name)
    };
    let mut read = read;
    read().unwrap_or_else(|| format!("{UNKNOWN}()"))
}

/// Where a class keeps a property.
#[derive(Debug, Clone, Copy)]
enum PropertyPlace {
    /// Its number among the static ones.
    Static(u32),
    /// Its offset in objects.
    InObject(u32),
}

fn property_of<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    class: u64,
    place: PropertyPlace,
) -> String {
    let mut name = String::new();
    match ClassName::read(memory, layout, class) {
        Some(it) if it.stored.is_checked => it.show(&mut name),
        _ => name += UNKNOWN,
    }
    name += "::$";
    match property_name(memory, layout, class, place) {
        Some(property) => name += &property,
        None => name += UNKNOWN,
    }
    name
}

fn property_name<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    class: u64,
    place: PropertyPlace,
) -> Option<String> {
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
    let stored = ZendString::read(memory, layout, found).filter(|it| it.is_checked)?;
    // "\0Class\0name" of a private one, "\0*\0name" of a protected one
    // (`zend_mangle_property_name`).
    let name = stored.bytes.rsplit(|&byte| byte == 0).next()?;
    let mut text = String::new();
    show(name, name.len() as u64, MAX_NAME, &mut text);
    Some(text)
}
