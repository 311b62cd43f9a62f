//! Finding a PHP engine among a process's mapped images, and refusing what is not known.
//!
//! The version comes from the read-only data, the symbols from `.dynsym`, and the row's offsets are held against live
//! structures before anything is sampled. What this module does not do: guess an address or a version.

use std::fmt;

use crate::elf::{Image, Symbol};
use crate::layouts::{Layout, known_versions, layout_of};
use crate::memory::{Fault, Memory, byte_at, half_at, word_at};
use crate::text::{ZendString, c_string};

/// main/SAPI.h, `SAPI_PHP_VERSION_HEADER`: present in each build since 7.0, and unlike the version alone it is
/// never merged with another string by the linker.
const VERSION_HEADER: &[u8] = b"X-Powered-By: PHP/";

/// A mapped file that may hold an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Where its first page is mapped.
    pub base: u64,
    pub path: String,
}

/// An engine whose layout is known and was seen to hold.
#[derive(Debug, Clone)]
pub struct Engine {
    pub layout: &'static Layout,
    /// As PHP prints it, with the distribution's suffix.
    pub version: String,
    /// `sapi_module.name`: `cli`, `fpm-fcgi`, …
    pub sapi: String,
    /// Address of `executor_globals`.
    pub executor_globals: u64,
    /// Address of `sapi_globals.global_request_time`, where the symbol is there.
    pub request_time: Option<u64>,
    pub module: Module,
    pub build_id: String,
}

impl Engine {
    /// Address of `EG(current_execute_data)`.
    #[must_use]
    pub fn current_execute_data(&self) -> u64 {
        self.executor_globals + self.layout.executor_globals.current_execute_data as u64
    }
}

/// Why a process cannot be sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NoPhpFound,
    UnsupportedVersion(String),
    NoEngineSymbols(String),
    LayoutMismatch(&'static str),
    Unreadable(Fault),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPhpFound => f.write_str("no PHP engine is mapped"),
            Self::UnsupportedVersion(version) => {
                write!(
                    f,
                    "PHP {version} is not known to this version of phpprof (known: {})",
                    known_versions()
                )
            }
            Self::NoEngineSymbols(path) => {
                write!(
                    f,
                    "{path} is PHP, but has no dynamic symbols: it was linked statically or without -export-dynamic"
                )
            }
            Self::LayoutMismatch(what) => write!(
                f,
                "the engine's memory is not laid out as its version says: {what}"
            ),
            Self::Unreadable(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Finds the engine of a process. `modules` is in the loader's order, the main executable first: a data symbol is
/// taken from the first module that defines it, since a copy relocation makes the executable's the live one.
///
/// # Errors
/// A [`Refusal`] that names what is missing.
pub fn find<M: Memory + ?Sized>(memory: &M, modules: &[Module]) -> Result<Engine, Refusal> {
    let images: Vec<(&Module, Image)> = modules
        .iter()
        .filter_map(|module| Some((module, Image::read(memory, module.base)?)))
        .collect();
    if images.is_empty()
        && let Some(module) = modules.first()
        && let Err(fault) = memory.read(module.base, &mut [0])
    {
        return Err(Refusal::Unreadable(fault));
    }
    let lookup = |name: &str| -> Option<Symbol> {
        images
            .iter()
            .find_map(|(_, image)| image.symbol(memory, name))
    };
    // `sapi_module` tells which image the engine's code is in; both thread-safe and other builds define it.
    let Some((module, image)) = images
        .iter()
        .find(|(_, image)| image.symbol(memory, "module_registry").is_some())
    else {
        return Err(without_symbols(memory, &images));
    };
    let version = image
        .text_after(memory, VERSION_HEADER)
        .ok_or(Refusal::LayoutMismatch("no version string"))?;
    let layout = row_for(&version)?;
    if lookup("executor_globals_offset").is_some() || lookup("executor_globals_id").is_some() {
        return Err(Refusal::UnsupportedVersion(format!("{version} ZTS")));
    }
    let symbol =
        |name: &'static str| lookup(name).ok_or(Refusal::NoEngineSymbols(module.path.clone()));
    let executor_globals = symbol("executor_globals")?.address;
    let sapi_module = symbol("sapi_module")?.address;
    check_modules(memory, layout, symbol("module_registry")?.address)?;
    check_function_table(memory, layout, executor_globals)?;
    let sapi = memory
        .word(sapi_module)
        .ok()
        .and_then(|name| c_string(memory, name, 64))
        .ok_or(Refusal::LayoutMismatch("sapi_module has no name"))?;
    Ok(Engine {
        layout,
        version,
        sapi,
        executor_globals,
        request_time: lookup("sapi_globals")
            .map(|globals| globals.address + layout.sapi_globals.global_request_time),
        module: (*module).clone(),
        build_id: image.build_id(memory).unwrap_or_default(),
    })
}

/// Tells a PHP without symbols from what is no PHP at all. Only the main executable's data are searched.
fn without_symbols<M: Memory + ?Sized>(memory: &M, images: &[(&Module, Image)]) -> Refusal {
    match images.first() {
        Some((module, image)) if image.text_after(memory, VERSION_HEADER).is_some() => {
            Refusal::NoEngineSymbols(module.path.clone())
        }
        _ => Refusal::NoPhpFound,
    }
}

fn row_for(version: &str) -> Result<&'static Layout, Refusal> {
    let mut numbers = version.split('.').map(str::parse::<u8>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => {
            layout_of(major, minor).ok_or_else(|| Refusal::UnsupportedVersion(version.to_owned()))
        }
        _ => Err(Refusal::UnsupportedVersion(
            version.chars().take(32).collect(),
        )),
    }
}

/// The registry's modules must state the row's API number and a build without debugging: a version string that says
/// otherwise than the engine behind it is refused here.
fn check_modules<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    registry: u64,
) -> Result<(), Refusal> {
    let mismatch = Refusal::LayoutMismatch;
    let bucket = first_bucket(memory, layout, registry)
        .ok_or(mismatch("module_registry is not a hash table"))?;
    let mut entry = [0_u8; 40];
    memory
        .read(bucket.value, &mut entry)
        .map_err(|_| mismatch("module_registry holds no module"))?;
    let row = &layout.module_entry;
    if half_at(&entry, row.zend_api) != layout.module_api {
        return Err(mismatch(
            "the modules' API number is not that of the version",
        ));
    }
    if byte_at(&entry, row.zts) != 0 {
        return Err(mismatch(
            "the engine is thread-safe, its symbols say otherwise",
        ));
    }
    if byte_at(&entry, row.zend_debug) != 0 {
        return Err(Refusal::UnsupportedVersion("debug build".to_owned()));
    }
    Ok(())
}

/// The first function's own name must be the key that it is filed under: this holds `EG(function_table)`,
/// `zend_array`, `Bucket`, `zend_string` and `zend_function.common` against the live engine at once.
fn check_function_table<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    globals: u64,
) -> Result<(), Refusal> {
    let mismatch = Refusal::LayoutMismatch;
    let table = memory
        .word(globals + layout.executor_globals.function_table as u64)
        .map_err(|_| mismatch("executor_globals is unreadable"))?;
    let bucket = first_bucket(memory, layout, table)
        .ok_or(mismatch("EG(function_table) is not a hash table"))?;
    let key = ZendString::read(memory, layout, bucket.key)
        .ok_or(mismatch("a function's key is not a string"))?;
    let name = memory
        .word(
            bucket
                .value
                .wrapping_add(layout.function.function_name as u64),
        )
        .ok()
        .and_then(|name| ZendString::read(memory, layout, name))
        .ok_or(mismatch("a function has no name"))?;
    if key.bytes.is_empty() || !key.bytes.eq_ignore_ascii_case(&name.bytes) {
        return Err(mismatch("a function is not filed under its name"));
    }
    Ok(())
}

struct Bucket {
    key: u64,
    value: u64,
}

/// The first bucket in use of a hash table whose values are pointers.
fn first_bucket<M: Memory + ?Sized>(memory: &M, layout: &Layout, table: u64) -> Option<Bucket> {
    let row = &layout.zend_array;
    let mut header = vec![0_u8; row.sizeof];
    memory.read(table, &mut header).ok()?;
    let used = half_at(&header, row.n_num_used).min(64);
    if !half_at(&header, row.n_table_size).is_power_of_two() {
        return None;
    }
    let buckets = word_at(&header, row.ar_data);
    let mut bytes = vec![0_u8; row.bucket_sizeof];
    for index in 0..u64::from(used) {
        memory
            .read(
                buckets.checked_add(index * row.bucket_sizeof as u64)?,
                &mut bytes,
            )
            .ok()?;
        let bucket = Bucket {
            key: word_at(&bytes, row.bucket_key),
            value: word_at(&bytes, 0),
        };
        if bucket.key != 0 && bucket.value != 0 {
            return Some(bucket);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_refused_by_its_name() {
        assert_eq!(
            row_for("9.2.29"),
            Err(Refusal::UnsupportedVersion("9.2.29".to_owned()))
        );
        assert_eq!(row_for("8.2.29-1ubuntu1").map(|row| row.minor), Ok(2));
        assert_eq!(
            row_for("eight"),
            Err(Refusal::UnsupportedVersion("eight".to_owned()))
        );
    }
}
