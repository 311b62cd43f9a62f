//! The search for an engine: ELF images, version, live structures, and the threads of a thread-safe
//! build.

use phpprof_zend::engine::{Engine, EngineRefusal, Module, find};
use phpprof_zend::memory::Memory;
use phpprof_zend::phase::{MomentBytes, autoloads};

use crate::image::{FuzzImage, WORDS};

/// The largest cost of a process that is examined once.
const READS: u64 = 2_000_000;
const BYTES: u64 = 1 << 30;

/// An engine that was found, and its threads.
#[derive(Debug)]
pub struct FoundEngine {
    /// The engine, as a sampler uses it.
    pub engine: Engine,
    /// Those of a thread-safe engine; otherwise empty.
    pub threads: Vec<Engine>,
}

/// Looks for an engine among images at these addresses; 0 means none.
///
/// # Errors
/// As [`find`].
pub fn search<M: Memory + ?Sized>(
    memory: &M,
    bases: [u64; WORDS],
) -> Result<FoundEngine, EngineRefusal> {
    let modules: Vec<Module> = (0..)
        .zip(bases)
        .filter(|&(_, base)| base != 0)
        .map(|(index, base): (u8, u64)| Module {
            base,
            path: format!("/module{index}"),
        })
        .collect();
    let engine = find(memory, &modules)?;
    let listed = engine
        .threads
        .and_then(|threads| threads.list(memory, engine.layout))
        .unwrap_or_default();
    let threads: Vec<Engine> = listed
        .iter()
        .map(|thread| engine.of_thread(thread))
        .collect();
    for engine in threads.iter().chain([&engine]) {
        let globals = engine.executor_globals;
        // Twice, because the second call expects the table where it was.
        let mut known = 0;
        for _ in 0..2 {
            autoloads(memory, engine.layout, globals, &mut known);
        }
        let mut bytes = MomentBytes::default();
        let pieces = bytes.pieces(&engine.phase_globals, engine.layout, globals);
        if memory.gather(&mut pieces.collect::<Vec<_>>()).is_ok() {
            let _ = bytes.phase(&engine.phase_globals, engine.layout);
        }
    }
    Ok(FoundEngine { engine, threads })
}

/// The engine in an image, whose words are the addresses of its ELF images.
///
/// # Errors
/// As [`find`].
pub fn of_image(input: &[u8]) -> Result<FoundEngine, EngineRefusal> {
    let image = FuzzImage::parse(input, READS, BYTES);
    search(&image, image.words)
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    if let Ok(found) = of_image(input) {
        assert!(!found.engine.version.is_empty());
    }
}
