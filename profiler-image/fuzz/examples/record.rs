//! record PID stack|engine FILE: writes the memory that a read of a live PHP needs, as a seed for
//! the fuzzer.
//!
//! The process must not move (asleep). Bytes that do not change the result are set to zero, so that
//! a seed has little more than what is read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_fuzz::engine::{FoundEngine, search};
use phpprof_fuzz::image::{WORDS, encode};
use phpprof_fuzz::{engine, stack};
use phpprof_zend::engine::{Module, find};
use phpprof_zend::layouts::ROWS;
use phpprof_zend::memory::{Memory, MemoryFault};

/// The sizes of blocks that are set to zero on trial.
const BLOCKS: [u64; 3] = [4096, 512, 64];

/// Notes the addresses that are read.
struct Noting<'a> {
    memory: &'a ProcessMemory,
    seen: RefCell<BTreeMap<u64, u8>>,
}

impl Memory for Noting<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.memory.read(address, bytes)?;
        let noted = (address..).zip(bytes.iter().copied());
        self.seen.borrow_mut().extend(noted);
        Ok(())
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, target, out] = arguments.as_slice() else {
        bail!("usage: record PID stack|engine FILE");
    };
    let pid: libc::pid_t = pid.parse()?;
    let memory = ProcessMemory::open(pid)?;
    let executable = fs::read_link(format!("/proc/{pid}/exe"))?;
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let modules = maps::parse(&text, &executable.to_string_lossy()).modules;
    let noting = Noting {
        memory: &memory,
        seen: RefCell::default(),
    };
    let bytes = match target.as_str() {
        "stack" => record_stack(&noting, &modules)?,
        "engine" => record_engine(&noting, &modules)?,
        _ => bail!("no target is called {target}"),
    };
    println!("{out}: {} bytes", bytes.len());
    Ok(fs::write(out, bytes)?)
}

fn record_stack(memory: &Noting<'_>, modules: &[Module]) -> Result<Vec<u8>> {
    let found = find(memory.memory, modules)?;
    let engine = match found.threads {
        Some(threads) => {
            let threads = threads
                .list(memory.memory, found.layout)
                .context("no threads")?;
            found.of_thread(threads.first().context("no thread")?)
        }
        None => found,
    };
    let row = ROWS
        .iter()
        .position(|row| row == engine.layout)
        .context("no row")?;
    let compiler_globals = engine.phase_globals.compiler_globals.unwrap_or(0);
    let expected = stack::read(
        memory,
        engine.layout,
        engine.executor_globals,
        compiler_globals,
    );
    println!("{:#?}", expected);
    let words = [row as u64, engine.executor_globals, compiler_globals];
    smallest(words, memory.seen.take(), |bytes| {
        stack::of_image(bytes).is_some_and(|(_, stack)| stack == expected)
    })
}

fn record_engine(memory: &Noting<'_>, modules: &[Module]) -> Result<Vec<u8>> {
    // The main executable, and the library that has the engine.
    let found = find(memory.memory, modules)?;
    let mut bases = [0; WORDS];
    bases[0] = modules.first().context("no modules")?.base;
    if found.module.base != bases[0] {
        bases[1] = found.module.base;
    }
    let of = |found: &FoundEngine| {
        let threads: Vec<u64> = found
            .threads
            .iter()
            .map(|thread| thread.executor_globals)
            .collect();
        let engine = &found.engine;
        (
            engine.version.clone(),
            engine.sapi.clone(),
            engine.executor_globals,
            engine.phase_globals,
            threads,
        )
    };
    let expected = of(&search(memory, bases)?);
    println!("{expected:?}");
    smallest(bases, memory.seen.take(), |bytes| {
        engine::of_image(bytes).is_ok_and(|found| of(&found) == expected)
    })
}

/// The seed, with all that `holds` does not need set to zero.
fn smallest(
    words: [u64; WORDS],
    mut memory: BTreeMap<u64, u8>,
    holds: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>> {
    ensure!(
        holds(&encode(words, &memory)),
        "what was noted does not give the same again"
    );
    for size in BLOCKS {
        let blocks: BTreeSet<u64> = memory
            .iter()
            .filter(|&(_, &byte)| byte != 0)
            .map(|(address, _)| address / size)
            .collect();
        for block in blocks {
            let range = block * size..(block + 1) * size;
            let before: Vec<(u64, u8)> = memory
                .range(range.clone())
                .map(|(&address, &byte)| (address, byte))
                .collect();
            memory.range_mut(range).for_each(|(_, byte)| *byte = 0);
            if !holds(&encode(words, &memory)) {
                memory.extend(before);
            }
        }
    }
    Ok(encode(words, &memory))
}
