//! Finds out why no process of the target is sampled: from facts to one reason, and a remedy.
//!
//! [`cause`] follows the kernel's own order of checks (`__ptrace_may_access` in kernel/ptrace.c,
//! then the security modules) and is a pure and total function of [`Facts`]; `gather` collects
//! those, and `words` turns the cause into a message.

mod gather;
#[cfg(test)]
mod tests;
mod words;

use nix::errno::Errno;
use phpprof_zend::engine::EngineRefusal;
use phpprof_zend::memory::MemoryFault;

pub use gather::gather;
pub use words::explain;

/// CAP_SYS_PTRACE of linux/capability.h.
const SYS_PTRACE: u64 = 1 << 19;

/// Why a process of the target is not sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The process.
    pub pid: i32,
    /// Its name, which everybody may read.
    pub comm: String,
    /// Why it is not sampled.
    pub refusal: EngineRefusal,
}

impl Refused {
    /// Whether waiting cannot help: it is PHP, but cannot be sampled.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.rank() >= 3
    }

    /// Whether it is reported when all processes of a machine are sampled. A process that may not
    /// be read is not reported then, unless it has the name of PHP.
    #[must_use]
    pub fn is_news_among_all(&self) -> bool {
        self.refusal != EngineRefusal::Unreadable(MemoryFault::Denied) || self.is_called_php()
    }

    /// Whether it explains the lack of workers better than what is known so far.
    #[must_use]
    pub fn tells_more_than(&self, known: Option<&Self>) -> bool {
        let telling = |refused: &Self| (refused.rank(), refused.is_called_php());
        known.is_none_or(|known| {
            telling(known) < telling(self)
                || telling(known) == telling(self) && self.pid < known.pid
        })
    }

    /// PHP that cannot be read matters more than a process without PHP.
    fn rank(&self) -> u8 {
        match self.refusal {
            EngineRefusal::NoPhpFound => 0,
            EngineRefusal::Starting
            | EngineRefusal::Unreadable(MemoryFault::Gone | MemoryFault::Unmapped) => 1,
            EngineRefusal::Unreadable(MemoryFault::NoFiles) => 2,
            EngineRefusal::Unreadable(MemoryFault::Denied) => 3,
            EngineRefusal::NoEngineSymbols(_)
            | EngineRefusal::Only32Bit(_)
            | EngineRefusal::Emulated(_) => 4,
            EngineRefusal::LayoutMismatch(_) => 5,
            EngineRefusal::UnsupportedVersion(_) => 6,
        }
    }

    fn is_called_php(&self) -> bool {
        ["php", "frankenphp", "apache2", "httpd"]
            .iter()
            .any(|name| self.comm.starts_with(name))
    }
}

/// The result of one way to read the target's memory.
pub type Tried = Result<(), Errno>;

/// The facts about a process that may not be read, and about this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The process.
    pub pid: i32,
    /// Opening `/proc/PID/mem`, for which the kernel makes all its checks.
    pub open: Tried,
    /// Reading from it, for which it makes none.
    pub read: Tried,
    /// `process_vm_readv`, on the target.
    pub call: Tried,
    /// The same on this process itself, which the kernel always allows: only a seccomp filter
    /// refuses it.
    pub call_on_itself: Tried,
    /// Of this process.
    pub own: Option<Identity>,
    /// Of the target; `None` if its `status` cannot be read.
    pub target: Option<Identity>,
    /// The owner of the target's files in `/proc`: its user, or root if it is not dumpable.
    pub owner: Option<u32>,
    /// Of this process.
    pub own_namespace: UserNamespace,
    /// Of the target.
    pub target_namespace: UserNamespace,
    /// `/proc/sys/kernel/yama/ptrace_scope`, if the kernel has Yama.
    pub yama: Option<u8>,
    /// `/proc/version`.
    pub kernel: String,
}

/// The credentials of a process, from `/proc/PID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Real, effective, saved.
    pub uids: [u32; 3],
    /// Real, effective, saved.
    pub gids: [u32; 3],
    /// Capabilities as a set of bits (linux/capability.h).
    pub permitted: u64,
    /// The effective ones.
    pub effective: u64,
    /// Whether a seccomp filter applies to it.
    pub filtered: bool,
}

/// What is visible of a user namespace from this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserNamespace {
    /// The target of `/proc/PID/ns/user`, if it may be read.
    pub link: Option<String>,
    /// `/proc/PID/uid_map`, which everybody may read, as the reader's namespace sees it.
    pub uid_map: Option<String>,
}

impl UserNamespace {
    fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.is_some() && other.is_some() && one != other
        };
        differ(&self.link, &other.link) || differ(&self.uid_map, &other.uid_map)
    }
}

impl Identity {
    /// Parses `/proc/PID/status`.
    #[must_use]
    pub fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let ids = |name: &str| {
            let mut ids = field(name)?.split_ascii_whitespace().map(str::parse);
            let mut next = || ids.next()?.ok();
            Some([next()?, next()?, next()?])
        };
        let capabilities = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            uids: ids("Uid")?,
            gids: ids("Gid")?,
            permitted: capabilities("CapPrm")?,
            effective: capabilities("CapEff")?,
            filtered: field("Seccomp").is_some_and(|mode| mode != "0"),
        })
    }

    fn may_trace(&self) -> bool {
        self.effective & SYS_PTRACE != 0
    }

    /// The kernel's comparison: this process's own ids, with all three of the target.
    fn is_the_user_of(&self, target: &Self) -> bool {
        let ([uid, ..], [gid, ..]) = (self.uids, self.gids);
        target.uids == [uid; 3] && target.gids == [gid; 3]
    }
}

/// Why the kernel refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The kernel is gVisor's.
    GVisor,
    /// The target is in a user namespace in which this process has no rights.
    OtherUserNamespace,
    /// Yama's scope: 1 and 2 require CAP_SYS_PTRACE, 3 allows nothing.
    Yama(u8),
    /// A seccomp filter refuses both ways.
    Seccomp,
    /// The target belongs to another user.
    OtherUser,
    /// The target belongs to an ordinary user, and has capabilities that this process does not
    /// have.
    Capabilities,
    /// The same for a target of root.
    RootWithCapabilities,
    /// For instance a php-fpm worker that has changed its user, if `process.dumpable` is off.
    NotDumpable,
    /// None of the above: AppArmor, SELinux or another security module.
    SecurityModule,
    /// Too few facts are visible.
    Hidden,
}

/// Finds out why a process may not be read.
#[must_use]
pub fn cause(facts: &Facts) -> Cause {
    if is_gvisor(&facts.kernel) {
        return Cause::GVisor;
    }
    let (Some(own), Some(target)) = (&facts.own, &facts.target) else {
        return Cause::Hidden;
    };
    // If the file could be opened, all checks have passed, except for a filter of the calls
    // themselves.
    if facts.open.is_ok() {
        return match facts.read {
            Err(_) if own.filtered => Cause::Seccomp,
            _ => Cause::SecurityModule,
        };
    }
    if facts.own_namespace.differs_from(&facts.target_namespace) {
        return Cause::OtherUserNamespace;
    }
    if facts.yama == Some(3) {
        return Cause::Yama(3);
    }
    if own.may_trace() {
        // Root without CAP_DAC_OVERRIDE cannot open the file, so only the call is left.
        return match facts.call_on_itself {
            Err(_) if own.filtered => Cause::Seccomp,
            _ => Cause::SecurityModule,
        };
    }
    without_ptrace(facts, own, target)
}

/// The same for a process without CAP_SYS_PTRACE.
fn without_ptrace(facts: &Facts, own: &Identity, target: &Identity) -> Cause {
    if !own.is_the_user_of(target) {
        return Cause::OtherUser;
    }
    let is_root = own.uids[0] == 0;
    // A file with capabilities also makes its process not dumpable; capabilities are the more exact
    // cause.
    if target.permitted & !own.permitted != 0 {
        return if is_root {
            Cause::RootWithCapabilities
        } else {
            Cause::Capabilities
        };
    }
    match (facts.owner, facts.yama) {
        (Some(0), _) if !is_root => Cause::NotDumpable,
        (_, Some(scope @ 1..)) => Cause::Yama(scope),
        _ => Cause::SecurityModule,
    }
}

/// gVisor reports Linux 4.4.0, later 4.19.0-gvisor, always with the date of 4.4
/// (pkg/sentry/syscalls/linux).
fn is_gvisor(kernel: &str) -> bool {
    kernel.contains("gvisor") || kernel.contains("Sun Jan 10 15:06:54 PST 2016")
}
