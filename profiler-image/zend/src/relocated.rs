//! An engine that was found before, in another process that runs the same program.
//!
//! To find an engine takes hundreds of reads, and some megabytes while it is still starting. A
//! program that is started for each job would be gone by then. Its engine is at the same places of
//! its image, so some dozen reads tell whether it is the same and whether it has started. What a
//! thread-safe engine has elsewhere in each process, the globals of its threads, is found by
//! variables of the image.
//!
//! Invariant: what is returned has passed the checks of [`find`](crate::engine::find), on an image
//! with the same build id, or of the same file.

use crate::check;
use crate::elf::Image;
use crate::engine::{Engine, Module};
use crate::memory::Memory;
use crate::phase::PhaseGlobals;
use crate::refusal::EngineRefusal;
use crate::text::c_string;
use crate::tsrm::{Thread, Threads};

impl Engine {
    /// Whether it can be found again in a process that runs the same executable: not if it is in a
    /// library.
    #[must_use]
    pub fn is_recognisable(&self, executable: &str) -> bool {
        self.module.path == executable
    }

    /// The same engine in a process whose executable is mapped at `base`; `None` if that is another
    /// program. An executable without a build id is the same only if `is_same_file`.
    ///
    /// # Errors
    /// A [`EngineRefusal`], usually [`Refusal::Starting`].
    pub fn relocated<M: Memory + ?Sized>(
        &self,
        memory: &M,
        base: u64,
        is_same_file: bool,
    ) -> Option<Result<Self, EngineRefusal>> {
        let image = Image::read(memory, base)?;
        let build_id = image.build_id(memory).unwrap_or_default();
        if image.machine != self.layout.machine
            || build_id != self.build_id
            || build_id.is_empty() && !is_same_file
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
    ) -> Result<Self, EngineRefusal> {
        let version = check::version(memory, self.layout, self.module_registry);
        if version.as_ref() != Some(&self.version) {
            return Err(EngineRefusal::Starting);
        }
        let is_thread_safe = self.is_thread_safe();
        check::modules(memory, self.layout, self.module_registry, is_thread_safe)?;
        self.sapi = sapi.ok_or(EngineRefusal::LayoutMismatch("sapi_module has no name"))?;
        if let Some(threads) = self.threads {
            let is_whole = |thread: &Thread| check::is_whole(memory, self.layout, thread);
            let threads = threads.again(memory, self.layout, is_whole);
            self.threads = Some(threads.ok_or(EngineRefusal::LayoutMismatch("no tsrm_tls_table"))?);
            return Ok(self);
        }
        let compiler_globals = self.phase_globals.compiler_globals;
        let compiler_globals = compiler_globals.ok_or(EngineRefusal::NoPhpFound)?;
        check::globals(memory, self.layout, self.executor_globals, compiler_globals)?;
        Ok(self)
    }

    fn addresses(&self) -> impl Iterator<Item = u64> {
        let PhaseGlobals {
            compiler_globals,
            core_globals,
            gc_globals,
        } = self.phase_globals;
        let known = [self.fingerprint_at, self.module_registry];
        // Each thread of a thread-safe engine has its own, on the heap.
        let executor_globals = Some(self.executor_globals).filter(|_| self.threads.is_none());
        let others = [
            executor_globals,
            self.request_time,
            compiler_globals,
            core_globals,
            gc_globals,
            self.frameless_functions,
            self.execute_hook,
        ];
        let of_threads = self.threads.iter().flat_map(Threads::addresses);
        let others = others.into_iter().flatten();
        known.into_iter().chain(others).chain(of_threads)
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
            executor_globals: match self.threads {
                Some(_) => self.executor_globals,
                None => moved(self.executor_globals),
            },
            threads: self.threads.map(|threads| threads.moved(moved)),
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

#[cfg(test)]
mod tests;
