//! Families: processes that were forked from one another since their last `execve`, and so share
//! their engine's addresses and opcache's memory.
//!
//! A fork keeps the 16 random bytes that the kernel puts on each program's stack (AT_RANDOM,
//! getauxval(3)). So relatives are recognised without a readable parent, and in any order. If the
//! bytes cannot be read, or the program has erased them as Go's runtime does, only a child of a
//! known member joins. The engine's fingerprint has to be the same in any case: a process may load
//! its engine after its fork.
//!
//! A program that is started again is a family of its own, but its engine is where it was in the
//! last one that ran the same executable. So the engines of the last few programs are kept, and
//! found again in a dozen reads.
//!
//! Invariant: a number names one family, and is not reused.

use std::collections::{HashMap, VecDeque};
use std::io::Read as _;
use std::ops::Range;
use std::sync::Arc;

use phpprof_zend::engine::{Engine, EngineRefusal, find};
use phpprof_zend::jit::JitBuffer;
use phpprof_zend::memory::{Memory, word_at};
use phpprof_zend::opcache::restarts_at;

use super::file_mark::FileMark;
use super::process::maps::Maps;
use super::process::relay::Relay;
use super::process::stat::Stat;
use super::process::{Process, ProcessMemory, calls, fault, maps, read_text};

/// linux/auxvec.h.
const AT_PHDR: u64 = 3;
const AT_RANDOM: u64 = 25;
/// The programs whose engines are kept; few targets run more.
const MAX_EXAMINED: usize = 8;
/// The size of a page, or a part of one: an image begins at one.
const PAGE: u64 = 4096;
/// The kernel writes some twenty pairs of words.
const MAX_AUXV: u64 = 4096;

/// The address and value of the random bytes, which only a program and its forks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Birthmark {
    address: u64,
    bytes: [u8; 16],
}

/// What the members of a family have in common.
#[derive(Debug)]
pub(super) struct Family {
    pub engine: Arc<Engine>,
    /// The word at the engine's `fingerprint_at`.
    pub fingerprint: u64,
    /// Memory that they share: opcache's.
    pub shared_ranges: Arc<[Range<u64>]>,
    /// Where opcache counts its restarts.
    pub restarts_at: Option<u64>,
    pub jit: Option<JitBuffer>,
    executable: String,
    birthmark: Option<Birthmark>,
    /// Only used while the members are counted.
    has_member: bool,
}

/// The families that have a member.
#[derive(Debug, Default)]
pub(super) struct Families {
    known: HashMap<usize, Family>,
    next: usize,
    /// The last programs whose engine was found; the last one first.
    examined: VecDeque<Examined>,
}

/// A program whose engine was found, to find it again.
#[derive(Debug)]
struct Examined {
    executable: String,
    engine: Arc<Engine>,
    /// Its file, if it has no build id.
    file: Option<FileMark>,
}

impl Families {
    /// The family of a process, and its number: that of its relatives, or a new one. `parent` is
    /// its parent's family.
    ///
    /// # Errors
    /// Why the process has no engine that can be read.
    pub fn of(
        &mut self,
        pid: i32,
        parent: Option<usize>,
        memory: &ProcessMemory,
        executable: &str,
    ) -> Result<(usize, &Family), EngineRefusal> {
        let number = match self.kin(pid, parent, memory, executable) {
            Some(number) => number,
            None => {
                let file = FileMark::of(pid);
                let family = match self.found_again(pid, file, memory, executable) {
                    Some(found) => found?,
                    None => Family::found(pid, memory, executable)?,
                };
                // An `execve` meanwhile gives it another file.
                self.examined(&family, file.filter(|_| FileMark::of(pid) == file));
                let number = self.next;
                self.next += 1;
                self.known.insert(number, family);
                number
            }
        };
        let family = self.known.get(&number);
        // It was found, or has just been inserted.
        family
            .map(|family| (number, family))
            .ok_or(EngineRefusal::NoPhpFound)
    }

    /// The number of the known family of a process.
    pub fn kin(
        &self,
        pid: i32,
        parent: Option<usize>,
        memory: &ProcessMemory,
        executable: &str,
    ) -> Option<usize> {
        let birthmark = if self.has_namesake(executable) {
            Birthmark::of(pid, memory)
        } else {
            None
        };
        let is_of = |number: usize, family: &Family| {
            let is_kin = match (birthmark, family.birthmark) {
                (Some(own), Some(other)) => own == other,
                _ => parent == Some(number),
            };
            is_kin && family.has(memory, executable)
        };
        let mut known = self.known.iter();
        let found = known.find(|(number, family)| is_of(**number, family));
        found.map(|(&number, _)| number)
    }

    /// Whether a family has this executable.
    pub fn has_namesake(&self, executable: &str) -> bool {
        self.known
            .values()
            .any(|family| family.executable == executable)
    }

    /// Whether the engine of this executable was found before, so that it takes little to find it
    /// again.
    pub fn has_examined(&self, executable: &str) -> bool {
        self.examined.iter().any(|it| it.executable == executable)
    }

    /// The family of a process that runs a known executable; `None` if that is another file by now.
    fn found_again(
        &self,
        pid: i32,
        file: Option<FileMark>,
        memory: &ProcessMemory,
        executable: &str,
    ) -> Option<Result<Family, EngineRefusal>> {
        let mut examined = self.examined.iter();
        let known = examined.find(|it| it.executable == executable)?;
        let is_same_file = file.is_some() && file == known.file;
        let base = auxiliary(pid, AT_PHDR)? & !(PAGE - 1);
        let engine = known.engine.relocated(memory, base, is_same_file)?;
        Some(engine.and_then(|engine| {
            Family::of(pid, memory, executable, engine, &maps_of(pid, executable)?)
        }))
    }

    fn examined(&mut self, family: &Family, file: Option<FileMark>) {
        let Family {
            engine, executable, ..
        } = family;
        let is_told_by_file = engine.build_id.is_empty();
        if !engine.is_recognisable(executable) || is_told_by_file && file.is_none() {
            return;
        }
        self.examined.retain(|it| it.executable != *executable);
        self.examined.truncate(MAX_EXAMINED - 1);
        self.examined.push_front(Examined {
            executable: executable.clone(),
            engine: Arc::clone(engine),
            file: file.filter(|_| is_told_by_file),
        });
    }

    /// A known family.
    pub fn get(&self, number: usize) -> Option<&Family> {
        self.known.get(&number)
    }

    /// Forgets the families without a member, and returns their numbers.
    pub fn keep(&mut self, members: impl Iterator<Item = usize>) -> Vec<usize> {
        for number in members {
            if let Some(family) = self.known.get_mut(&number) {
                family.has_member = true;
            }
        }
        let mut gone = Vec::new();
        self.known.retain(|number, family| {
            let has_member = std::mem::take(&mut family.has_member);
            gone.extend((!has_member).then_some(*number));
            has_member
        });
        gone
    }
}

impl Family {
    /// A process of this family, which has this number.
    pub fn process(
        &self,
        number: usize,
        (pid, stat): (i32, &Stat),
        has_parent: bool,
        memory: Arc<ProcessMemory>,
        executable: String,
    ) -> Process {
        Process {
            pid,
            tid: pid,
            start_time: stat.start_time,
            has_parent,
            engine: Arc::clone(&self.engine),
            shared_ranges: Arc::clone(&self.shared_ranges),
            restarts_at: self.restarts_at,
            jit: self.jit,
            memory,
            relay: Relay::of(pid),
            family: number,
            fingerprint: self.fingerprint,
            executable,
        }
    }

    fn found(pid: i32, memory: &ProcessMemory, executable: &str) -> Result<Self, EngineRefusal> {
        let maps = maps_of(pid, executable)?;
        let engine = match find(memory, &maps.modules) {
            Err(EngineRefusal::NoPhpFound) => match find(memory, &maps.unnamed) {
                Err(EngineRefusal::Unreadable(_)) => Err(EngineRefusal::NoPhpFound),
                found => found,
            },
            found => found,
        };
        Self::of(
            pid,
            memory,
            executable,
            emulated(engine, executable)?,
            &maps,
        )
    }

    fn of(
        pid: i32,
        memory: &ProcessMemory,
        executable: &str,
        engine: Engine,
        maps: &Maps,
    ) -> Result<Self, EngineRefusal> {
        let fingerprint = memory
            .word(engine.fingerprint_at)
            .map_err(EngineRefusal::Unreadable)?;
        Ok(Self {
            engine: Arc::new(engine),
            fingerprint,
            restarts_at: restarts_at(memory, &maps.shared),
            shared_ranges: maps.shared.clone().into(),
            jit: maps.jit,
            executable: executable.to_owned(),
            birthmark: Birthmark::of(pid, memory),
            has_member: false,
        })
    }

    /// Whether a process runs this family's engine, at its addresses.
    fn has(&self, memory: &ProcessMemory, executable: &str) -> bool {
        self.executable == executable
            && memory.word(self.engine.fingerprint_at) == Ok(self.fingerprint)
    }
}

fn maps_of(pid: i32, executable: &str) -> Result<Maps, EngineRefusal> {
    let text = read_text(&format!("/proc/{pid}/maps"));
    let text = text.map_err(|error| EngineRefusal::Unreadable(fault(&error)))?;
    Ok(maps::parse(&text, executable))
}

/// Emulators of another machine, by the name of their executable: qemu-user, Rosetta, FEX, box64.
const EMULATORS: [&str; 4] = ["qemu-", "rosetta", "FEX", "box64"];

/// Names the emulator where the PHP that it runs cannot be read. qemu-user keeps the memory of its
/// program where that would be, so most can.
fn emulated(
    found: Result<Engine, EngineRefusal>,
    executable: &str,
) -> Result<Engine, EngineRefusal> {
    let name = executable.rsplit('/').next().unwrap_or_default();
    let is_emulator = EMULATORS.iter().any(|emulator| name.starts_with(emulator));
    match found {
        Ok(engine) => Ok(engine),
        Err(
            other @ (EngineRefusal::NoPhpFound
            | EngineRefusal::Starting
            | EngineRefusal::Unreadable(_)),
        ) => Err(other),
        Err(_) if is_emulator => Err(EngineRefusal::Emulated(executable.to_owned())),
        Err(other) => Err(other),
    }
}

impl Birthmark {
    /// Reads it by the address in `/proc/PID/auxv`.
    fn of(pid: i32, memory: &ProcessMemory) -> Option<Self> {
        let address = auxiliary(pid, AT_RANDOM)?;
        let mut bytes = [0; 16];
        memory.read(address, &mut bytes).ok()?;
        (bytes != [0; 16]).then_some(Self { address, bytes })
    }
}

/// A value of a process's auxiliary vector.
fn auxiliary(pid: i32, key: u64) -> Option<u64> {
    let file = calls::open(format!("/proc/{pid}/auxv")).ok()?;
    calls::count_file_read();
    let mut auxv = Vec::new();
    file.take(MAX_AUXV).read_to_end(&mut auxv).ok()?;
    value(&auxv, key)
}

/// The value of a key in an auxiliary vector.
fn value(auxv: &[u8], key: u64) -> Option<u64> {
    let mut pairs = auxv.chunks_exact(16);
    pairs.find_map(|pair| (word_at(pair, 0) == key).then(|| word_at(pair, 8)))
}

#[cfg(test)]
mod tests {
    use phpprof_testing::wait_for;

    use super::*;

    #[test]
    fn a_value_is_found_by_its_key_alone() {
        let words: [u64; 7] = [6, AT_RANDOM, AT_RANDOM, 0x7fff_0000_1230, 0, 0, 1];
        let auxv: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(value(&auxv, AT_RANDOM), Some(0x7fff_0000_1230));
        assert_eq!(value(&auxv[..24], AT_RANDOM), None);
    }

    #[test]
    fn emulated_php_is_refused_by_name() {
        let check = |refusal: EngineRefusal, executable: &str, expected: &str| {
            let found = emulated(Err(refusal), executable).unwrap_err();
            assert!(found.to_string().contains(expected), "{found}");
        };
        let mismatch = || EngineRefusal::LayoutMismatch("no version string");
        let [qemu, php] = ["/usr/bin/qemu-aarch64-static", "/usr/bin/php8.2"];
        check(
            mismatch(),
            qemu,
            "an emulator runs its PHP (/usr/bin/qemu-aarch64-static)",
        );
        check(mismatch(), "/run/rosetta/rosetta", "an emulator runs");
        check(EngineRefusal::Starting, qemu, "not started yet");
        check(mismatch(), php, "no version string");
        check(EngineRefusal::NoPhpFound, qemu, "no PHP engine");
    }

    #[test]
    fn a_process_and_its_child_have_different_birthmarks() {
        let mark = |pid: u32| {
            let pid = i32::try_from(pid).unwrap();
            Birthmark::of(pid, &ProcessMemory::open(pid).unwrap())
        };
        let own = mark(std::process::id());
        assert!(own.is_some());
        assert_eq!(own, mark(std::process::id()));
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        // `spawn` returns within `execve`, before the kernel has written the new stack.
        let others = wait_for("stack of the child", || Ok(mark(other.id())));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_ne!(others.ok(), own);
    }
}
