//! An engine that was found before, in another process that runs the same program.
//!
//! To find an engine takes hundreds of reads, and some megabytes while it is still starting. A program that is started for each job would
//! be gone by then. Its engine is at the same places of its image, so a dozen reads tell whether it is the same and whether it has started.
//!
//! Invariant: what is returned has passed the checks of [`find`](crate::engine::find), on an image with the same build id.

use crate::check;
use crate::elf::Image;
use crate::engine::{Engine, Module, Refusal};
use crate::memory::Memory;
use crate::phase::PhaseGlobals;
use crate::text::c_string;

impl Engine {
    /// Whether a process that runs the same executable can be recognised: by a build id, and not where threads have places of their own.
    #[must_use]
    pub fn is_recognisable(&self, executable: &str) -> bool {
        self.threads.is_none() && !self.build_id.is_empty() && self.module.path == executable
    }

    /// The same engine in a process whose executable is mapped at `base`; `None` if that is another program.
    ///
    /// # Errors
    /// A [`Refusal`], usually [`Refusal::Starting`].
    pub fn relocated<M: Memory + ?Sized>(
        &self,
        memory: &M,
        base: u64,
    ) -> Option<Result<Self, Refusal>> {
        let image = Image::read(memory, base)?;
        if image.machine != self.layout.machine
            || image.build_id(memory)? != self.build_id
            || self.build_id.is_empty()
        {
            return None;
        }
        let name = memory.word(image.symbol(memory, "sapi_module")?.address);
        let (moved, extent) = (self.moved(base), image.extent());
        // What another library has is elsewhere in each process.
        if !moved.addresses().all(|address| extent.contains(&address)) {
            return None;
        }
        let sapi = name.ok().and_then(|name| c_string(memory, name, 64));
        Some(moved.checked(memory, sapi))
    }

    fn checked<M: Memory + ?Sized>(
        mut self,
        memory: &M,
        sapi: Option<String>,
    ) -> Result<Self, Refusal> {
        let version = check::version(memory, self.layout, self.module_registry);
        if version.as_ref() != Some(&self.version) {
            return Err(Refusal::Starting);
        }
        check::modules(memory, self.layout, self.module_registry, false)?;
        self.sapi = sapi.ok_or(Refusal::LayoutMismatch("sapi_module has no name"))?;
        let compiler_globals = self.phase_globals.compiler_globals;
        let compiler_globals = compiler_globals.ok_or(Refusal::NoPhpFound)?;
        check::globals(memory, self.layout, self.executor_globals, compiler_globals)?;
        Ok(self)
    }

    fn addresses(&self) -> impl Iterator<Item = u64> {
        let PhaseGlobals {
            compiler_globals,
            core_globals,
            gc_globals,
        } = self.phase_globals;
        let known = [
            self.executor_globals,
            self.fingerprint_at,
            self.module_registry,
        ];
        let others = [
            self.request_time,
            compiler_globals,
            core_globals,
            gc_globals,
            self.frameless_functions,
            self.execute_hook,
        ];
        known.into_iter().chain(others.into_iter().flatten())
    }

    /// All its addresses, with its module at `base`.
    fn moved(&self, base: u64) -> Self {
        let from = self.module.base;
        let moved = |address: u64| address.wrapping_sub(from).wrapping_add(base);
        let PhaseGlobals {
            compiler_globals,
            core_globals,
            gc_globals,
        } = self.phase_globals;
        Self {
            executor_globals: moved(self.executor_globals),
            fingerprint_at: moved(self.fingerprint_at),
            request_time: self.request_time.map(moved),
            phase_globals: PhaseGlobals {
                compiler_globals: compiler_globals.map(moved),
                core_globals: core_globals.map(moved),
                gc_globals: gc_globals.map(moved),
            },
            frameless_functions: self.frameless_functions.map(moved),
            module_registry: moved(self.module_registry),
            execute_hook: self.execute_hook.map(moved),
            module: Module {
                base,
                path: self.module.path.clone(),
            },
            ..self.clone()
        }
    }
}
