//! Messages for a target that cannot be sampled: the object, what failed, and what to do next.

use phpprof_zend::engine::EngineRefusal;
use phpprof_zend::memory::MemoryFault;

use super::{Cause, Facts, Identity, Refused, cause};
use crate::failure::{Reason, SamplerFailure};
use crate::target::Scope;

/// The failure that tells why no process of the target is sampled. `gather` is only called if the
/// kernel refused.
pub fn explain(
    scope: &Scope,
    refused: Option<&Refused>,
    gather: impl FnOnce(i32) -> Facts,
) -> SamplerFailure {
    let Some(refused) = refused else {
        return SamplerFailure::new(Reason::NoPhpFound, "no process", nothing_there(scope));
    };
    let who = format!("process {} ({})", refused.pid, refused.comm);
    let failure = |reason, detail: &str, hint: &str| {
        SamplerFailure::new(
            reason,
            detail,
            format!("{who}: {}; {hint}", refused.refusal),
        )
    };
    match &refused.refusal {
        EngineRefusal::NoPhpFound
        | EngineRefusal::Unreadable(MemoryFault::Gone | MemoryFault::Unmapped) => {
            SamplerFailure::new(Reason::NoPhpFound, "", no_php(scope))
        }
        EngineRefusal::Starting => failure(
            Reason::NoPhpFound,
            "PHP has not started",
            "try again once it runs",
        ),
        EngineRefusal::UnsupportedVersion(version) => failure(
            Reason::UnsupportedVersion,
            version,
            "a newer phpprof may know it; `phpprof --version` shows your version",
        ),
        EngineRefusal::Only32Bit(_) => failure(
            Reason::UnsupportedVersion,
            "32-bit engines are not supported",
            "run a 64-bit PHP",
        ),
        EngineRefusal::Emulated(emulator) => failure(
            Reason::UnsupportedVersion,
            &format!("emulated by {emulator}"),
            "run an image for this machine's architecture",
        ),
        EngineRefusal::NoEngineSymbols(path) => failure(
            Reason::NoEngineSymbols,
            path,
            "use a PHP that exports its symbols, as packaged ones do",
        ),
        EngineRefusal::LayoutMismatch(what) => failure(
            Reason::LayoutMismatch,
            what,
            "please report it with the output of `php -v` and `php -i`",
        ),
        EngineRefusal::Unreadable(MemoryFault::NoFiles) => failure(
            Reason::Internal,
            "open files",
            "raise the limit that is reached (ulimit -n, or fs.file-max), or sample fewer processes",
        ),
        EngineRefusal::Unreadable(MemoryFault::Denied) => denied(&who, &gather(refused.pid)),
    }
}

fn nothing_there(scope: &Scope) -> String {
    match scope {
        Scope::Pids(pids) => format!(
            "no process {} was found; list PHP's with: pgrep --list-full php",
            pids.iter()
                .map(i32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Scope::All => {
            "no process was found; is /proc mounted, and does it show other users' processes?"
                .to_owned()
        }
        Scope::Container(id) => format!(
            "no process of container {id} was found; does it run, and is this its PID namespace?"
        ),
        Scope::Fitting(pattern) => format!("{pattern} was not found"),
    }
}

fn no_php(scope: &Scope) -> String {
    match scope {
        Scope::Pids(pids) => format!(
            "process {} and its children do not run PHP; list the processes that do with: pgrep --list-full php",
            pids.iter()
                .map(i32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Scope::All => {
            "no process that this user may read runs PHP; root can look at all processes".to_owned()
        }
        Scope::Container(id) => {
            format!("no process of container {id} runs PHP; choose the container that does")
        }
        Scope::Fitting(pattern) => format!("{pattern} was found, but it does not run PHP"),
    }
}

/// The failure for each cause. The hints name the remedies on a host and in a pod.
fn denied(who: &str, facts: &Facts) -> SamplerFailure {
    let pid = facts.pid;
    let (own, target) = (ids(facts.own.as_ref()), ids(facts.target.as_ref()));
    let root = "run phpprof as root with CAP_SYS_PTRACE (in a pod: mode Ptrace)";
    let (reason, detail, what, hint) = match cause(facts) {
        Cause::OtherUser => (
            Reason::PermissionDenied,
            format!("pid {pid} is {target}, phpprof is {own}"),
            format!("runs as user and group {target}, and phpprof as {own}"),
            format!("run phpprof as {target} (in a pod: target.runAsUser and runAsGroup), or {root}"),
        ),
        Cause::RootWithCapabilities => (
            Reason::PermissionDenied,
            format!("pid {pid} is root's, CAP_SYS_PTRACE is missing"),
            "is root's and has capabilities that phpprof does not have".to_owned(),
            root.to_owned(),
        ),
        Cause::SecurityModule => (
            Reason::PermissionDenied,
            format!("pid {pid}: security module ({})", errors(facts)),
            format!("may not be read ({}), though user, capabilities and namespaces allow it", errors(facts)),
            "look for a denial of AppArmor, SELinux or another security module in the kernel's log (dmesg), and run phpprof under the target's profile".to_owned(),
        ),
        Cause::Hidden => (
            Reason::PermissionDenied,
            format!("pid {pid} ({})", errors(facts)),
            format!("may not be read ({}), and /proc hides its owner", errors(facts)),
            "run phpprof as root; is /proc mounted with hidepid, or has the process ended?".to_owned(),
        ),
        Cause::Capabilities => (
            Reason::FileCapabilities,
            format!("pid {pid}"),
            "has capabilities of its own, from its file (setcap) or its parent, so its own user cannot read it".to_owned(),
            format!("remove them (getcap shows them, setcap -r removes them from a file), or {root}"),
        ),
        Cause::NotDumpable => (
            Reason::NotDumpable,
            format!("pid {pid}"),
            "is not dumpable, for instance a php-fpm worker that has changed its user, so its own user cannot read it".to_owned(),
            format!("set process.dumpable = yes in the pool of php-fpm, start PHP as its user, or {root}"),
        ),
        Cause::Yama(3) => (
            Reason::YamaRestricted,
            "kernel.yama.ptrace_scope=3".to_owned(),
            "cannot be read by any user: kernel.yama.ptrace_scope is 3".to_owned(),
            "set it to 2 or less in /etc/sysctl.d and reboot: only a reboot can lower it".to_owned(),
        ),
        Cause::Yama(scope) => (
            Reason::YamaRestricted,
            format!("kernel.yama.ptrace_scope={scope}"),
            format!("may not be read by its own user: kernel.yama.ptrace_scope is {scope}"),
            format!("{root}, or set it to 0 on the machine: sysctl kernel.yama.ptrace_scope=0"),
        ),
        Cause::Seccomp => (
            Reason::SeccompRestricted,
            format!("process_vm_readv and /proc/{pid}/mem"),
            format!("cannot be read: a seccomp filter on phpprof refuses both process_vm_readv and /proc/{pid}/mem"),
            "run phpprof with a filter that allows one of them, for instance the runtime's default".to_owned(),
        ),
        Cause::OtherUserNamespace => (
            Reason::OtherUserNamespace,
            format!("pid {pid}"),
            "is in another user namespace, where phpprof has no rights".to_owned(),
            format!("run phpprof in that namespace (nsenter --user --target {pid}), or as root of the machine"),
        ),
        Cause::GVisor => (
            Reason::GVisor,
            format!("pid {pid} ({})", errors(facts)),
            format!("runs on gVisor, whose kernel does not let phpprof read it ({})", errors(facts)),
            "profile it on Linux's own kernel (in a pod: with another runtimeClassName)".to_owned(),
        ),
    };
    SamplerFailure::new(reason, detail, format!("{who} {what}; {hint}"))
}

fn ids(identity: Option<&Identity>) -> String {
    identity.map_or("unknown".to_owned(), |identity| {
        format!("{}:{}", identity.uids[1], identity.gids[1])
    })
}

/// How each way failed, by the names of errno.
fn errors(facts: &Facts) -> String {
    let told = |tried: &super::Tried| match tried {
        Ok(()) => "ok".to_owned(),
        Err(errno) => format!("{errno:?}"),
    };
    format!(
        "call: {}, file: {}",
        told(&facts.call),
        told(&facts.open.and(facts.read))
    )
}
