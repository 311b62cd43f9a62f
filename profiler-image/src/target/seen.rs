//! What is known of a process, and until when that is valid.
//!
//! Invariant: a look-up opens no file.

use std::fs::read_link;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use nix::sys::time::TimeSpec;
use phpprof_zend::engine::EngineRefusal;
use phpprof_zend::memory::MemoryFault;
use rustix::fs::{CWD, readlinkat_raw};

use super::process::cpu_clock::CpuClock;
use super::process::{Process, calls, proc_path};
use super::reaped::ReapedAccount;
use super::threads::KnownThreads;

/// A process younger than this, in milliseconds, may not have loaded or started its engine yet.
const YOUNG: u64 = 1000;
/// Milliseconds between two looks at a process without PHP: a quarter of its age, within these
/// limits.
pub(super) const LOOK_EVERY: (u64, u64) = (100, 1000);
/// The upper limit for a process that no `execve` brings into scope. Its PID could be given to one
/// in scope.
const LOOK_AT_OTHERS: u64 = 10_000;
/// An engine whose memory contradicts its version is looked at this often before that is believed:
/// it may have been about to move one of its tables.
const DOUBTS: u8 = 4;
/// PATH_MAX: the kernel does not report longer paths.
const MAX_PATH: usize = 4096;

/// The result of examining a process.
#[derive(Debug)]
pub(super) enum Verdict {
    Php(Program),
    Other(Other),
}

/// A process with an engine.
#[derive(Debug)]
pub(super) struct Program {
    pub process: Arc<Process>,
    pub threads: KnownThreads,
    /// Its CPU time when it was last seen to be the same.
    pub ran: Option<TimeSpec>,
}

/// A process without an engine, or with one that is not read.
#[derive(Debug)]
pub(super) struct Other {
    /// Identifies its executable. It is read first, so that an `execve` meanwhile is noticed at the
    /// next look.
    pub executable: Option<u64>,
    /// Its engine is being started, or was refused for a reason that may pass.
    pub is_starting: bool,
    /// How often it was refused for such a reason.
    pub doubts: u8,
    /// It was examined and runs no PHP.
    pub is_without_php: bool,
    /// It has an engine, but there is no room for its files.
    pub lacks_room: bool,
    /// It is in scope, or an `execve` may bring it there.
    pub may_count: bool,
    /// When to look again, in milliseconds since boot.
    pub look_at: u64,
}

/// A process that was examined.
#[derive(Debug)]
pub(super) struct Seen {
    pub start_time: u64,
    /// The PID of its parent when it was examined.
    pub parent: i32,
    /// The CPU time of its children.
    pub account: ReapedAccount,
    pub in_scope: bool,
    /// When it started, or was seen to have done an `execve`; milliseconds since boot.
    pub born: u64,
    pub verdict: Verdict,
}

impl Seen {
    pub fn process(&self) -> Option<&Process> {
        match &self.verdict {
            Verdict::Php(program) => Some(&program.process),
            Verdict::Other(_) => None,
        }
    }

    /// Whether it is known to run no PHP.
    pub fn is_without_php(&self) -> bool {
        match &self.verdict {
            Verdict::Php(_) => false,
            Verdict::Other(other) => other.is_without_php,
        }
    }

    /// As [`Other::doubts`], of the program that it has run since this time of birth.
    pub fn doubts_since(&self, born: u64) -> u8 {
        match &self.verdict {
            Verdict::Other(other) if born == self.born => other.doubts,
            _ => 0,
        }
    }

    /// For how many workers of it there is to be room.
    pub fn with_room(&self) -> usize {
        match &self.verdict {
            Verdict::Php(program) => 1 + program.threads.count(&program.process),
            Verdict::Other(_) => 0,
        }
    }

    /// How many workers of it are not sampled for want of room.
    pub fn without_room(&self) -> usize {
        match &self.verdict {
            Verdict::Php(program) => program.threads.without_room,
            Verdict::Other(other) => usize::from(other.lacks_room),
        }
    }

    /// Whether the known facts of a process no longer hold, or were never final: then its time of
    /// birth. `has_room` for a worker.
    pub fn look_again(
        &mut self,
        pid: i32,
        is_listed: bool,
        has_room: bool,
        now: u64,
    ) -> Option<u64> {
        let born = self.born;
        match &mut self.verdict {
            _ if !is_listed => Some(now),
            Verdict::Php(program) => (!program.stays()).then_some(now),
            Verdict::Other(other) if now < other.look_at => None,
            Verdict::Other(other) if executable_hash(pid) != other.executable => Some(now),
            Verdict::Other(other) => {
                other.look_at = look_at(born, now, other.may_count);
                let is_open = if other.lacks_room {
                    has_room
                } else {
                    is_young(born, now) || other.is_starting
                };
                is_open.then_some(born)
            }
        }
    }
}

impl Other {
    /// One that has to be examined.
    pub fn unexamined(now: u64) -> Self {
        Self {
            executable: None,
            is_starting: false,
            doubts: 0,
            is_without_php: false,
            lacks_room: false,
            may_count: true,
            look_at: now,
        }
    }

    /// Whether it is looked at more often than once a second, by its time of birth.
    pub fn changes_soon(&self, born: u64, now: u64) -> bool {
        let is_soon = look_at(born, now, self.may_count) < now + LOOK_EVERY.1;
        self.may_count && (self.is_starting || is_soon)
    }
}

impl Program {
    pub fn new(process: Process) -> Self {
        Self {
            ran: None,
            process: Arc::new(process),
            threads: KnownThreads::default(),
        }
    }

    /// Checks that the process is still the one that was examined: `execve` may start the same
    /// program anew.
    pub fn stays(&mut self) -> bool {
        let process = &self.process;
        let ran = CpuClock::of(process.pid).and_then(CpuClock::now);
        if ran.is_some() && ran == self.ran {
            // A process that has not run has not done an `execve`.
            return true;
        }
        self.ran = ran;
        process.memory.bound_word(process.engine.fingerprint_at) == Ok(process.fingerprint)
    }
}

/// Whether a refusal may pass: what a young process lacks, or has only in part, may come later, and
/// an older one may have been about to change what was read.
pub(super) fn may_pass(refusal: &EngineRefusal, is_young: bool, doubts: u8) -> bool {
    let is_torn = matches!(
        refusal,
        EngineRefusal::LayoutMismatch(_) | EngineRefusal::Unreadable(MemoryFault::Unmapped)
    );
    is_torn && (is_young || doubts < DOUBTS)
}

/// Whether an engine may still be loaded or started.
pub(super) fn is_young(born: u64, now: u64) -> bool {
    born.saturating_add(YOUNG) > now
}

/// When to look again at a process without PHP.
pub(super) fn look_at(born: u64, now: u64, may_count: bool) -> u64 {
    let (least, most) = if may_count {
        LOOK_EVERY
    } else {
        (LOOK_EVERY.0, LOOK_AT_OTHERS)
    };
    now + (now.saturating_sub(born) / 4).clamp(least, most)
}

/// The executable of a process; `None` if it may not be read, or the process has ended. It opens no
/// file.
pub(super) fn executable(pid: i32) -> Option<String> {
    calls::count_file_read();
    let link = read_link(proc_path(format_args!("{pid}/exe"))).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The hash of the executable, for many processes that are only checked for a change.
pub(super) fn executable_hash(pid: i32) -> Option<u64> {
    calls::count_file_read();
    let mut link = [0_u8; MAX_PATH];
    let path = proc_path(format_args!("{pid}/exe"));
    let length = readlinkat_raw(CWD, path.as_str(), &mut link).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(link.get(..length)?);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_possible_changes_are_doubted_a_few_times() {
        let torn = EngineRefusal::LayoutMismatch("a function is not filed under its name");
        let check = |refusal: &EngineRefusal, is_young: bool, doubts: u8, expected: bool| {
            assert_eq!(may_pass(refusal, is_young, doubts), expected, "{refusal:?}");
        };
        check(&torn, true, 0, true);
        check(&torn, false, 0, true);
        check(&torn, false, DOUBTS - 1, true);
        check(&torn, false, DOUBTS, false);
        check(
            &EngineRefusal::Unreadable(MemoryFault::Unmapped),
            false,
            1,
            true,
        );
        for lasting in [
            EngineRefusal::NoPhpFound,
            EngineRefusal::UnsupportedVersion("9.0".to_owned()),
            EngineRefusal::NoEngineSymbols("/usr/bin/php".to_owned()),
            EngineRefusal::Only32Bit("/usr/bin/php".to_owned()),
            EngineRefusal::Emulated("/usr/bin/qemu-arm".to_owned()),
            EngineRefusal::Unreadable(MemoryFault::Denied),
        ] {
            check(&lasting, true, 0, false);
            check(&lasting, false, 0, false);
        }
    }

    #[test]
    fn an_older_process_without_php_is_checked_less() {
        let check = |age: u64, expected: u64, of_others: u64| {
            assert_eq!(look_at(5, 5 + age, true), 5 + age + expected);
            assert_eq!(look_at(5, 5 + age, false), 5 + age + of_others);
        };
        check(0, 100, 100);
        check(400, 100, 100);
        check(1000, 250, 250);
        check(4000, 1000, 1000);
        check(20_000, 1000, 5000);
        check(1 << 40, 1000, 10_000);
    }
}
