//! Finds a PHP engine among a process's mapped images, and refuses an unknown one.
//!
//! The version comes from the module `core`, the symbols from `.dynsym`, and the row's offsets are
//! checked against live structures before anything is sampled. What this module does not do: guess
//! an address or a version.

use crate::check;
use crate::elf::{self, Image};
use crate::layouts::{Layout, Machine, ROWS, layout_of};
use crate::memory::{END_OF_USER_SPACE, Memory};
use crate::phase::{PhaseGlobals, returned_byte};
pub use crate::refusal::EngineRefusal;
use crate::text::c_string;
use crate::tsrm::{IdsAt, Thread, Threads};

/// main/SAPI.h, `SAPI_PHP_VERSION_HEADER`: each build since 7.0 has it, and unlike the version
/// alone the linker never merges it with another string.
const VERSION_HEADER: &[u8] = b"X-Powered-By: PHP/";

/// A mapped file that may hold an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The address of its first page.
    pub base: u64,
    /// The path in the target's own mount namespace.
    pub path: String,
}

/// An engine with a known layout, which was checked: a process's, or one thread's of a thread-safe
/// build.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The layout row of its version and machine.
    pub layout: &'static Layout,
    /// The version as PHP prints it, with the distribution's suffix.
    pub version: String,
    /// `sapi_module.name`: `cli`, `fpm-fcgi`, …
    pub sapi: String,
    /// The address of `executor_globals`; 0 if each thread has its own.
    pub executor_globals: u64,
    /// The address of a pointer that differs between two engines and is the same in a fork:
    /// `CG(function_table)`, or `tsrm_tls_table`.
    pub fingerprint_at: u64,
    /// The address of `sapi_globals.global_request_time`, if the symbol exists.
    pub request_time: Option<u64>,
    /// The words that tell phases: compiling, collecting garbage, starting, shutting down.
    pub phase_globals: PhaseGlobals,
    /// The address of the pointer `zend_flf_functions`: the functions that are called without a
    /// frame, from 8.4 on.
    pub frameless_functions: Option<u64>,
    /// The address of `module_registry`: the extensions by their names.
    pub module_registry: u64,
    /// The address of the pointer `zend_execute_ex`, which runs functions.
    pub execute_hook: Option<u64>,
    /// The threads of a thread-safe build.
    pub threads: Option<Threads>,
    /// The module that defines the engine's symbols.
    pub module: Module,
    /// Its build id in hexadecimal digits; empty if it has none.
    pub build_id: String,
}

impl Engine {
    /// The address of `EG(current_execute_data)`.
    #[must_use]
    pub fn current_execute_data(&self) -> u64 {
        self.executor_globals + self.layout.executor_globals.current_execute_data as u64
    }

    /// Whether the engine is a thread-safe build (ZTS).
    #[must_use]
    pub fn is_thread_safe(&self) -> bool {
        self.threads.is_some()
    }

    /// The engine as one of its threads sees it.
    #[must_use]
    pub fn of_thread(&self, thread: &Thread) -> Self {
        let time = self.layout.sapi_globals.global_request_time;
        Self {
            executor_globals: thread.executor_globals,
            request_time: thread.sapi_globals.map(|globals| globals + time),
            phase_globals: PhaseGlobals {
                compiler_globals: Some(thread.compiler_globals),
                core_globals: thread.core_globals,
                gc_globals: thread.gc_globals,
            },
            ..self.clone()
        }
    }
}

/// Finds the engine of a process. `modules` is in the loader's order, the main executable first: a
/// data symbol is taken from the first module that defines it, because after a copy relocation the
/// executable's one is used.
///
/// # Errors
/// A [`EngineRefusal`] that names what is missing.
pub fn find<M: Memory + ?Sized>(memory: &M, modules: &[Module]) -> Result<Engine, EngineRefusal> {
    let images: Vec<(&Module, Image)> = modules
        .iter()
        .filter_map(|module| Some((module, Image::read(memory, module.base)?)))
        .collect();
    if images.is_empty()
        && let Some(module) = modules.first()
        && let Err(fault) = memory.read(module.base, &mut [0])
    {
        return Err(EngineRefusal::Unreadable(fault));
    }
    // Code is never copied: the image that defines this function is the engine itself.
    let Some((module, image)) = images
        .iter()
        .find(|(_, image)| image.symbol(memory, "execute_ex").is_some())
    else {
        let refusal = without_symbols(memory, &images);
        return Err(match only_32_bit(memory, modules) {
            Some(path) if refusal == EngineRefusal::NoPhpFound => EngineRefusal::Only32Bit(path),
            _ => refusal,
        });
    };
    let found = FoundImage {
        memory,
        images: &images,
        module,
        image,
    };
    found.engine()
}

/// The engine's image, with the others.
struct FoundImage<'a, M: Memory + ?Sized> {
    memory: &'a M,
    images: &'a [(&'a Module, Image)],
    module: &'a Module,
    image: &'a Image,
}

impl<M: Memory + ?Sized> FoundImage<'_, M> {
    fn engine(&self) -> Result<Engine, EngineRefusal> {
        let memory = self.memory;
        let module_registry = self.needed("module_registry")?;
        let version = self.version(module_registry)?;
        let layout = row_for(self.image.machine, &version)?;
        let is_thread_safe = self.symbol("executor_globals_id").is_some();
        check::modules(memory, layout, module_registry, is_thread_safe)?;
        let sapi = memory
            .word(self.needed("sapi_module")?)
            .ok()
            .and_then(|name| c_string(memory, name, 64))
            .ok_or(EngineRefusal::LayoutMismatch("sapi_module has no name"))?;
        let mut engine = Engine {
            layout,
            version,
            sapi,
            executor_globals: 0,
            fingerprint_at: 0,
            request_time: None,
            frameless_functions: self.symbol("zend_flf_functions"),
            phase_globals: PhaseGlobals::default(),
            module_registry,
            execute_hook: self.symbol("zend_execute_ex"),
            threads: None,
            module: self.module.clone(),
            build_id: self.image.build_id(memory).unwrap_or_default(),
        };
        if is_thread_safe {
            let threads = self.threads(layout, &engine.version)?;
            engine.fingerprint_at = threads.table_at;
            engine.threads = Some(threads);
            return Ok(engine);
        }
        let compiler_globals = self.needed("compiler_globals")?;
        engine.executor_globals = self.needed("executor_globals")?;
        engine.fingerprint_at = compiler_globals + layout.compiler_globals.function_table as u64;
        engine.request_time = self
            .symbol("sapi_globals")
            .map(|globals| globals + layout.sapi_globals.global_request_time);
        engine.phase_globals = PhaseGlobals {
            compiler_globals: Some(compiler_globals),
            core_globals: self.symbol("core_globals"),
            gc_globals: self.gc_globals(layout),
        };
        check::globals(memory, layout, engine.executor_globals, compiler_globals)?;
        Ok(engine)
    }

    /// Up to 7.2 it is a symbol; from 7.3 on a static variable, one field of which the function
    /// `gc_enabled()` returns.
    fn gc_globals(&self, layout: &Layout) -> Option<u64> {
        self.symbol("gc_globals").or_else(|| {
            let gc_enabled =
                returned_byte(self.memory, self.image.machine, self.symbol("gc_enabled")?)?;
            gc_enabled.checked_sub(layout.gc_globals.gc_enabled as u64)
        })
    }

    /// The address of a symbol, as the loader resolves it.
    fn symbol(&self, name: &str) -> Option<u64> {
        self.images
            .iter()
            .find_map(|(_, image)| image.symbol(self.memory, name))
            .map(|symbol| symbol.address)
            .filter(|address| *address < END_OF_USER_SPACE)
    }

    fn needed(&self, name: &str) -> Result<u64, EngineRefusal> {
        self.symbol(name)
            .ok_or_else(|| EngineRefusal::NoEngineSymbols(self.module.path.clone()))
    }

    /// The version from the module `core`, which is at the same place in every version. While the
    /// engine starts, that module does not exist, or has the version of Zend (`4.2.29`).
    fn version(&self, module_registry: u64) -> Result<String, EngineRefusal> {
        let any = ROWS.first().ok_or(EngineRefusal::NoPhpFound)?;
        if let Some(version) = check::version(self.memory, any, module_registry)
            && row_for(self.image.machine, &version).is_ok()
        {
            return Ok(version);
        }
        let version = self
            .image
            .text_after(self.memory, VERSION_HEADER)
            .ok_or(EngineRefusal::LayoutMismatch("no version string"))?;
        row_for(self.image.machine, &version).and(Err(EngineRefusal::Starting))
    }

    fn threads(&self, layout: &'static Layout, version: &str) -> Result<Threads, EngineRefusal> {
        if layout.tsrm_tls_entry.is_none() {
            return Err(EngineRefusal::UnsupportedVersion(format!("{version} ZTS")));
        }
        let at = |name: &str| self.symbol(name);
        let (Some(executor), Some(compiler)) =
            (at("executor_globals_id"), at("compiler_globals_id"))
        else {
            return Err(EngineRefusal::Starting);
        };
        let ids_at = IdsAt {
            executor,
            compiler,
            sapi: at("sapi_globals_id"),
            core: at("core_globals_id"),
            executor_offset: at("executor_globals_offset")
                .filter(|_| layout.rules.fast_tsrm_offsets),
        };
        if ids_at.read(self.memory).is_none() {
            return Err(EngineRefusal::Starting);
        }
        let is_whole = |thread: &Thread| check::is_whole(self.memory, layout, thread);
        Threads::find(self.memory, layout, self.image, ids_at, is_whole)
            .ok_or(EngineRefusal::LayoutMismatch("no tsrm_tls_table"))
    }
}

/// Distinguishes a PHP without symbols from a program without PHP. Only the main executable's data
/// are searched.
fn without_symbols<M: Memory + ?Sized>(memory: &M, images: &[(&Module, Image)]) -> EngineRefusal {
    match images.first() {
        Some((module, image)) if image.text_after(memory, VERSION_HEADER).is_some() => {
            EngineRefusal::NoEngineSymbols(module.path.clone())
        }
        _ => EngineRefusal::NoPhpFound,
    }
}

/// The module of a 32-bit process that is PHP: its main executable, or a library that is called so,
/// as Apache's is.
fn only_32_bit<M: Memory + ?Sized>(memory: &M, modules: &[Module]) -> Option<String> {
    let is_called_php = |module: &Module| {
        let name = module.path.rsplit('/').next().unwrap_or_default();
        name.contains("php")
    };
    let mut candidates = modules.iter().enumerate();
    let found = candidates.find(|(index, module)| {
        (*index == 0 || is_called_php(module))
            && elf::has_text_in_32_bit(memory, module.base, VERSION_HEADER)
    });
    found.map(|(_, module)| module.path.clone())
}

fn row_for(machine: Machine, version: &str) -> Result<&'static Layout, EngineRefusal> {
    let mut numbers = version.split('.').map(str::parse::<u8>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => layout_of(machine, major, minor)
            .ok_or_else(|| EngineRefusal::UnsupportedVersion(version.to_owned())),
        _ => Err(EngineRefusal::UnsupportedVersion(
            version.chars().take(32).collect(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::image_of_32_bit;

    #[test]
    fn a_32_bit_engine_is_refused_as_such() {
        let php = image_of_32_bit(b"X-Powered-By: PHP/7.4.33\0");
        let module = |path: &str| Module {
            base: 0x0804_8000,
            path: path.to_owned(),
        };
        let refusal = |modules: &[Module]| find(&php, modules).unwrap_err();
        let expected = EngineRefusal::Only32Bit("/usr/bin/php".to_owned());
        assert_eq!(refusal(&[module("/usr/bin/php")]), expected);
        assert!(
            expected
                .to_string()
                .contains("32-bit engines are not supported")
        );
        // Apache's main executable is none, but its module is.
        let apache = Module {
            base: 0x0804_9000,
            path: "/usr/sbin/apache2".to_owned(),
        };
        let libphp = module("/usr/lib/apache2/modules/libphp7.4.so");
        assert!(matches!(
            refusal(&[apache.clone(), libphp]),
            EngineRefusal::Only32Bit(_)
        ));
        assert_eq!(
            refusal(&[apache, module("/usr/lib/libfoo.so")]),
            EngineRefusal::NoPhpFound
        );
        let other = image_of_32_bit(b"X-Powered-By: \0");
        assert_eq!(
            find(&other, &[module("/usr/bin/php")]).unwrap_err(),
            EngineRefusal::NoPhpFound
        );
    }

    #[test]
    fn an_unknown_version_is_refused_by_its_name() {
        assert_eq!(
            row_for(Machine::X86_64, "9.2.29"),
            Err(EngineRefusal::UnsupportedVersion("9.2.29".to_owned()))
        );
        assert_eq!(
            row_for(Machine::X86_64, "8.2.29-1ubuntu1").map(|row| row.minor),
            Ok(2)
        );
        assert_eq!(
            row_for(Machine::X86_64, "eight"),
            Err(EngineRefusal::UnsupportedVersion("eight".to_owned()))
        );
    }
}
