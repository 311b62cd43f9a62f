//! Extensions that change the cost of PHP: whether Xdebug runs each call, and the state of
//! opcache's memory.
//!
//! The kernel's list of mappings has the addresses of images and shared memory; the engine's memory
//! has the rest. Invariant: a state is only reported if its structures are consistent; otherwise it
//! is `None`.

use std::ops::Range;

use crate::elf::Image;
use crate::engine::{Engine, Module};
use crate::hash::find;
use crate::memory::Memory;
use crate::opcache::{Accelerator, Restarts};

/// The end of Xdebug's path, wherever it is installed.
const XDEBUG: &str = "/xdebug.so";
/// Key of opcache's module in `module_registry`.
const OPCACHE: &[u8] = b"zend opcache";
/// The lowest `opcache.memory_consumption` (ext/opcache/zend_accelerator_module.c).
const LEAST_OPCACHE: u64 = 8 << 20;

/// The state of the engine's extensions, in a process that has begun its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extensions {
    /// Each function call goes through Xdebug: it is loaded, and its mode is not `off`.
    pub xdebug: bool,
    /// `None` if it is not known.
    pub opcache: Option<OpcacheState>,
}

/// Whether opcache keeps compiled scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpcacheState {
    /// It is not loaded, or has no memory.
    Off,
    /// It keeps them, in memory that all workers share.
    On {
        /// It accepts no more scripts until it restarts (`cache_full` of `opcache_get_status()`).
        is_full: bool,
        /// How often it restarted, because it was full or was told to (`oom_restarts`,
        /// `hash_restarts` and `manual_restarts`).
        restarts: u64,
    },
}

impl Extensions {
    /// Reads the state; `None` if the engine has not begun a request, because extensions may still
    /// be missing. `modules` are the mapped files, and `shared` is the memory that is shared with
    /// other processes.
    pub fn read<M: Memory + ?Sized>(
        memory: &M,
        engine: &Engine,
        modules: &[Module],
        shared: &[Range<u64>],
    ) -> Option<Self> {
        let functions = engine.layout.executor_globals.function_table as u64;
        let functions = engine.executor_globals.checked_add(functions)?;
        memory.word(functions).ok().filter(|table| *table != 0)?;
        Some(Self {
            xdebug: runs_calls(memory, engine, modules),
            opcache: opcache(memory, engine, shared),
        })
    }
}

/// Whether `zend_execute_ex` is Xdebug's. In mode `off` Xdebug does not replace it (observed with
/// Xdebug 3.0 to 3.4 in each mode).
fn runs_calls<M: Memory + ?Sized>(memory: &M, engine: &Engine, modules: &[Module]) -> bool {
    let hook = engine.execute_hook.and_then(|at| memory.word(at).ok());
    let mut named = modules.iter().filter(|it| it.path.ends_with(XDEBUG));
    named.any(|module| {
        let image = Image::read(memory, module.base);
        image.is_some_and(|image| hook.is_some_and(|hook| image.extent().contains(&hook)))
    })
}

fn opcache<M: Memory + ?Sized>(
    memory: &M,
    engine: &Engine,
    shared: &[Range<u64>],
) -> Option<OpcacheState> {
    let is_large = |range: &&Range<u64>| range.end.saturating_sub(range.start) >= LEAST_OPCACHE;
    let mut large = shared.iter().filter(is_large).peekable();
    let has_large = large.peek().is_some();
    if let Some(state) = large.find_map(|range| state(memory, range)) {
        return Some(state);
    }
    let is_loaded = find(memory, engine.layout, engine.module_registry, OPCACHE).is_some();
    (!is_loaded || !has_large).then_some(OpcacheState::Off)
}

/// The state in opcache's memory.
fn state<M: Memory + ?Sized>(memory: &M, range: &Range<u64>) -> Option<OpcacheState> {
    let Accelerator {
        restarts, is_full, ..
    } = Accelerator::read(memory, range)?;
    let mut counts = Restarts::default();
    memory.read(restarts, &mut counts.0).ok()?;
    counts
        .count()
        .map(|restarts| OpcacheState::On { is_full, restarts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::{Machine, layout_of};
    use crate::phase::PhaseGlobals;
    use crate::testing::EngineImage;

    const SHARED: u64 = 0x7e00_0000_0000;
    const LENGTH: u64 = 16 << 20;
    const LIBRARY: u64 = 0x7d00_0000_0000;

    struct Scene {
        image: EngineImage,
        engine: Engine,
        hook: u64,
    }

    impl Scene {
        /// An engine that has begun a request, with these modules.
        fn new(modules: &[(&str, u64)]) -> Self {
            let mut image = EngineImage::new(layout_of(Machine::X86_64, 8, 2).unwrap());
            let (module_registry, hook) = (image.block(), image.block());
            image.put_table(module_registry, modules);
            let row = &image.layout.executor_globals;
            image.put_word(image.executor_globals, row.function_table, 1);
            // Code of 64 KiB.
            image.put_elf(LIBRARY, &[(1, 5, 0, 0x1_0000)]);
            let engine = Engine {
                layout: image.layout,
                version: "8.2.29".to_owned(),
                sapi: "fpm-fcgi".to_owned(),
                executor_globals: image.executor_globals,
                fingerprint_at: 0,
                request_time: None,
                phase_globals: PhaseGlobals::default(),
                frameless_functions: None,
                module_registry,
                execute_hook: Some(hook),
                threads: None,
                module: module("/usr/sbin/php-fpm8.2"),
                build_id: String::new(),
            };
            Self {
                image,
                engine,
                hook,
            }
        }

        /// opcache's memory, full or not, after this many restarts of each kind.
        fn with_memory(mut self, is_full: bool, restarts: [u64; 3]) -> Self {
            let words = [
                (0, SHARED + 0x50),
                (8, 1),
                (32, u64::from(is_full)),
                (56, SHARED + 0x80),
                (0x50, SHARED + 0x58),
                (0x58, LENGTH),
                (0x70, SHARED),
                (0x98, restarts[0]),
                (0xa0, restarts[1]),
                (0xa8, restarts[2]),
            ];
            self.image.room(SHARED, 0x1000);
            for (at, word) in words {
                self.image.put_word(SHARED, at, word);
            }
            self
        }

        fn read(&self, path: &str, shared: &[Range<u64>]) -> Option<Extensions> {
            Extensions::read(&self.image, &self.engine, &[module(path)], shared)
        }

        fn opcache(&self, length: u64) -> Option<OpcacheState> {
            let shared = SHARED..SHARED + length;
            let read = self.read("", std::slice::from_ref(&shared));
            read.unwrap().opcache
        }
    }

    fn module(path: &str) -> Module {
        Module {
            base: LIBRARY,
            path: path.to_owned(),
        }
    }

    fn on(is_full: bool, restarts: u64) -> Option<OpcacheState> {
        Some(OpcacheState::On { is_full, restarts })
    }

    #[test]
    fn opcaches_memory_says_full_and_restarts() {
        let loaded = || Scene::new(&[("zend opcache", 1)]);
        assert_eq!(
            loaded().with_memory(false, [0, 0, 0]).opcache(LENGTH),
            on(false, 0)
        );
        assert_eq!(
            loaded().with_memory(true, [2, 1, 4]).opcache(LENGTH),
            on(true, 7)
        );
        // Other shared memory is small.
        assert_eq!(loaded().opcache(1 << 16), Some(OpcacheState::Off));
    }

    #[test]
    fn memory_that_does_not_hold_together_says_nothing() {
        let spoilt = |at: usize, word: u64| {
            let mut scene = Scene::new(&[("zend opcache", 1)]).with_memory(false, [0, 0, 0]);
            scene.image.put_word(SHARED, at, word);
            scene.opcache(LENGTH)
        };
        for (at, word) in [
            (0, 0),
            (8, 0),
            (8, 1 << 20),
            (32, 2),
            (56, 1),
            (0x50, SHARED - 8),
            (0x58, 4096),
            (0x70, SHARED + 8),
            (0x98, u64::MAX),
        ] {
            assert_eq!(spoilt(at, word), None, "{at:x}");
        }
        assert_eq!(spoilt(0x48, 1), on(false, 0), "nothing of it lies there");
    }

    #[test]
    fn opcache_without_module_is_off() {
        assert_eq!(
            Scene::new(&[("core", 1)]).opcache(LENGTH),
            Some(OpcacheState::Off)
        );
    }

    #[test]
    fn xdebug_is_on_where_it_runs_the_calls() {
        let mut scene = Scene::new(&[("xdebug", 1)]);
        let mut is_on = |path: &str, hook: u64| {
            scene.image.put_word(scene.hook, 0, hook);
            scene.read(path, &[]).unwrap().xdebug
        };
        assert!(is_on("/usr/lib/php/20220829/xdebug.so", LIBRARY + 0x100));
        assert!(!is_on(
            "/usr/lib/php/20220829/xdebug.so",
            LIBRARY + 0x2_0000
        ));
        assert!(!is_on("/usr/lib/php/20220829/apm.so", LIBRARY + 0x100));
    }

    #[test]
    fn engine_without_request_says_nothing() {
        let mut scene = Scene::new(&[]);
        let row = &scene.image.layout.executor_globals;
        let globals = scene.image.executor_globals;
        scene.image.put_word(globals, row.function_table, 0);
        assert_eq!(scene.read("", &[]), None);
    }
}
