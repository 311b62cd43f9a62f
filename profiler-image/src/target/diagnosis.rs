//! Why no process of the target is sampled: from facts to one reason, and what to do about it.
//!
//! [`cause`] follows the kernel's own order of questions (`__ptrace_may_access` in kernel/ptrace.c, then the security
//! modules) and is a pure and total function of [`Facts`]; `gather` collects those, and `words` turns the cause into a message.

mod gather;
#[cfg(test)]
mod tests;
mod words;

use nix::errno::Errno;
use phpprof_zend::engine::Refusal;
use phpprof_zend::memory::Fault;

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
    /// Why it is not taken.
    pub refusal: Refusal,
}

impl Refused {
    /// Whether waiting cannot help: it is PHP, but none that can be sampled.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.rank() >= 2
    }

    /// Whether it is worth telling where nothing but a PID is known of it: a process that may not be read is no news
    /// when all processes of a machine are looked at, but for one that calls itself PHP.
    #[must_use]
    pub fn is_news_among_all(&self) -> bool {
        self.refusal != Refusal::Unreadable(Fault::Denied) || self.is_called_php()
    }

    /// Whether it tells more of why a target has no worker than what is known so far.
    #[must_use]
    pub fn tells_more_than(&self, known: Option<&Self>) -> bool {
        let telling = |refused: &Self| (refused.rank(), refused.is_called_php());
        known.is_none_or(|known| {
            telling(known) < telling(self)
                || telling(known) == telling(self) && self.pid < known.pid
        })
    }

    /// PHP that cannot be read matters more than what is no PHP.
    fn rank(&self) -> u8 {
        match self.refusal {
            Refusal::NoPhpFound => 0,
            Refusal::Starting | Refusal::Unreadable(Fault::Gone | Fault::Unmapped) => 1,
            Refusal::Unreadable(Fault::Denied) => 2,
            Refusal::NoEngineSymbols(_) => 3,
            Refusal::LayoutMismatch(_) => 4,
            Refusal::UnsupportedVersion(_) => 5,
        }
    }

    fn is_called_php(&self) -> bool {
        ["php", "frankenphp", "apache2", "httpd"]
            .iter()
            .any(|name| self.comm.starts_with(name))
    }
}

/// What came of trying one way to the target's memory.
pub type Tried = Result<(), Errno>;

/// What can be known of a process that may not be read, and of who wants to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The process.
    pub pid: i32,
    /// Opening `/proc/PID/mem`, for which the kernel asks all its questions.
    pub open: Tried,
    /// Reading from it, for which it asks none.
    pub read: Tried,
    /// `process_vm_readv`, on the target.
    pub call: Tried,
    /// The same on this process itself, which the kernel always allows: who refuses it is a seccomp filter.
    pub call_on_itself: Tried,
    /// Of this process.
    pub own: Option<Identity>,
    /// Of the target; `None` where its `status` cannot be read.
    pub target: Option<Identity>,
    /// Owner of the target's files in `/proc`: its user, or root where it is not dumpable.
    pub owner: Option<u32>,
    /// Of this process.
    pub own_namespace: UserNamespace,
    /// Of the target.
    pub target_namespace: UserNamespace,
    /// `/proc/sys/kernel/yama/ptrace_scope`, where the kernel has Yama.
    pub yama: Option<u8>,
    /// `/proc/version`.
    pub kernel: String,
}

/// Who a process is to the kernel, from `/proc/PID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Real, effective, saved.
    pub uids: [u32; 3],
    /// Real, effective, saved.
    pub gids: [u32; 3],
    /// Capabilities as a set of bits (linux/capability.h).
    pub permitted: u64,
    /// Those that hold.
    pub effective: u64,
    /// Whether a seccomp filter holds for it.
    pub filtered: bool,
}

/// What is seen of a user namespace from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserNamespace {
    /// Target of `/proc/PID/ns/user`, where it may be read.
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

    /// What the kernel compares: this one's own ids, with all three of the target.
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
    /// The target lives in a user namespace in which this process has no say.
    OtherUserNamespace,
    /// Yama's scope: 1 and 2 want CAP_SYS_PTRACE, 3 nothing.
    Yama(u8),
    /// A seccomp filter refuses both ways.
    Seccomp,
    /// The target runs as somebody else.
    OtherUser,
    /// The target is an ordinary user's, and has capabilities that this process has not.
    Capabilities,
    /// The same, but root's.
    RootWithCapabilities,
    /// As a php-fpm worker that has changed its user, where `process.dumpable` is off.
    NotDumpable,
    /// Nothing of the above: AppArmor, SELinux or another security module.
    SecurityModule,
    /// Too little can be seen to tell.
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
    // Who has the file open has been asked everything, but for what refuses the calls themselves.
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
        // The file is shut to root without CAP_DAC_OVERRIDE, so that the call alone is left.
        return match facts.call_on_itself {
            Err(_) if own.filtered => Cause::Seccomp,
            _ => Cause::SecurityModule,
        };
    }
    without_ptrace(facts, own, target)
}

/// The same for a process that has not CAP_SYS_PTRACE.
fn without_ptrace(facts: &Facts, own: &Identity, target: &Identity) -> Cause {
    if !own.is_the_user_of(target) {
        return Cause::OtherUser;
    }
    let is_root = own.uids[0] == 0;
    // A file that has capabilities makes its process not dumpable as well: this is the more exact of both.
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

/// gVisor says that it is Linux 4.4.0, later 4.19.0-gvisor, always with the date of 4.4 (pkg/sentry/syscalls/linux).
fn is_gvisor(kernel: &str) -> bool {
    kernel.contains("gvisor") || kernel.contains("Sun Jan 10 15:06:54 PST 2016")
}
