//! What the kernel reports of a waiting worker: its system call, what the call waits for, and when
//! its request began.
//!
//! No file tells since when it waits: the scheduler's `exec_start` is by a clock of each CPU, which
//! stops while a hypervisor runs others. Invariants: a system call is only reported if the worker
//! slept in it during the whole run; of a descriptor only its kind and a peer's port are reported,
//! because paths and addresses may be secrets.

use std::collections::HashMap;
use std::fs::read_link;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use phpprof_profile::dump::WaitingCall;
use phpprof_zend::memory::Memory as _;

use crate::run::WorkerLabels;
use crate::run::snapshot::{Keep, Snapshot};
use crate::target::pattern::{pool_of, title};
use crate::target::process::held::{Held, HeldFiles};
use crate::target::process::stat::Watch;
use crate::target::process::{ProcessMemory, proc_path, text};

/// With this count `poll` waits for one `struct pollfd`, to which its first argument points and
/// which begins with the descriptor (poll(2)).
const ONE_DESCRIPTOR: u64 = 1;

/// System calls in which PHP usually waits, and whether their first argument is a descriptor.
const CALLS: &[(libc::c_long, &str, bool)] = &[
    (libc::SYS_read, "read", true),
    (libc::SYS_pread64, "pread64", true),
    (libc::SYS_readv, "readv", true),
    (libc::SYS_write, "write", true),
    (libc::SYS_writev, "writev", true),
    (libc::SYS_recvfrom, "recvfrom", true),
    (libc::SYS_recvmsg, "recvmsg", true),
    (libc::SYS_sendto, "sendto", true),
    (libc::SYS_sendmsg, "sendmsg", true),
    (libc::SYS_connect, "connect", true),
    (libc::SYS_accept4, "accept4", true),
    (libc::SYS_accept, "accept", true),
    (libc::SYS_flock, "flock", true),
    (libc::SYS_fcntl, "fcntl", true),
    (libc::SYS_fsync, "fsync", true),
    (libc::SYS_fdatasync, "fdatasync", true),
    (libc::SYS_openat, "openat", false),
    (libc::SYS_ppoll, "ppoll", false),
    (libc::SYS_pselect6, "pselect6", false),
    (libc::SYS_epoll_pwait, "epoll_pwait", true),
    (libc::SYS_futex, "futex", false),
    (libc::SYS_nanosleep, "nanosleep", false),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", false),
    (libc::SYS_wait4, "wait4", false),
    (libc::SYS_waitid, "waitid", false),
    (libc::SYS_semop, "semop", false),
    (libc::SYS_semtimedop, "semtimedop", false),
    (libc::SYS_msgrcv, "msgrcv", false),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", true),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause", false),
];

/// What the kernel reports of a worker.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KernelReport {
    /// Only if it has not run since the run began.
    pub call: Option<WaitingCall>,
    /// It runs, or waits for a CPU.
    pub is_runnable: bool,
    /// It was stopped, or is frozen.
    pub is_stopped: bool,
    /// The age of its request.
    pub request: Option<Duration>,
    /// The pool of a php-fpm worker.
    pub pool: Option<String>,
}

/// How often each worker had been put on a CPU when a run began, by its thread id.
#[derive(Debug, Default)]
pub struct Begin(Mutex<Option<HashMap<i32, u64>>>);

impl Begin {
    /// The state of each worker after the run.
    pub fn look(&self, seen: &HashMap<i32, WorkerLabels>) -> HashMap<i32, KernelReport> {
        let begin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let look = |(&tid, seen): (&i32, &WorkerLabels)| {
            let begin = begin.as_ref().and_then(|begin| begin.get(&tid).copied());
            (tid, KernelReport::of(tid, seen, begin))
        };
        seen.iter().map(look).collect()
    }
}

impl Keep for Begin {
    /// The loop calls this first after the first turn.
    fn keep(&self, _: Duration, snapshot: &mut dyn FnMut() -> Snapshot) {
        let count = |(tid, seen): (&i32, &WorkerLabels)| Some((*tid, timeslices(seen.pid, *tid)?));
        let mut begin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        begin.get_or_insert_with(|| snapshot().facts.seen.iter().filter_map(count).collect());
    }

    fn have_worked(&self) -> bool {
        false
    }
}

impl KernelReport {
    fn of(tid: i32, seen: &WorkerLabels, begin: Option<u64>) -> Self {
        let pid = seen.pid;
        let state = Watch::open(pid, tid).and_then(|watch| watch.state());
        let memory = ProcessMemory::open(pid).ok();
        let syscall = text(proc_path(format_args!("{pid}/task/{tid}/syscall")).as_str());
        let in_call = syscall.as_deref().and_then(InCall::parse);
        let call = in_call.and_then(|call| call.call(pid, memory.as_ref()));
        let has_slept = begin.is_some() && begin == timeslices(pid, tid);
        let request = seen.engine.request_time.zip(memory.as_ref());
        let request = request.and_then(|(at, memory)| memory.word(at).ok());
        Self {
            call: call.filter(|_| has_slept),
            is_runnable: state.is_some_and(|(state, _)| state == 'R'),
            is_stopped: HeldFiles::open(pid, tid).held() == Held::Stopped,
            request: request.and_then(|word| age(f64::from_bits(word), unix_time())),
            pool: title(pid).and_then(|title| pool_of(&title).map(ToOwned::to_owned)),
        }
    }
}

fn timeslices(pid: i32, tid: i32) -> Option<u64> {
    Watch::open(pid, tid)?.timeslices()
}

/// A system call with its first arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InCall {
    number: libc::c_long,
    arguments: [u64; 2],
}

impl InCall {
    /// Parses `/proc/PID/syscall`: `running`, `-1 SP PC` outside of a call, or `NUMBER ARGUMENTS SP
    /// PC`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let number: libc::c_long = words.next()?.parse().ok()?;
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let arguments = [argument()?, argument()?];
        (number >= 0).then_some(Self { number, arguments })
    }

    fn call(self, pid: i32, memory: Option<&ProcessMemory>) -> Option<WaitingCall> {
        let known = CALLS.iter().find(|(number, ..)| *number == self.number);
        let Some(&(_, name, has_descriptor)) = known else {
            return Some(WaitingCall {
                name: format!("system call {}", self.number),
                on: None,
                peer_port: None,
            });
        };
        let [first, second] = self.arguments;
        let descriptor = match name {
            "poll" | "ppoll" if second == ONE_DESCRIPTOR => memory?.half(first).ok(),
            _ if has_descriptor => u32::try_from(first).ok(),
            _ => None,
        };
        let link = descriptor.and_then(|descriptor| {
            let link = read_link(proc_path(format_args!("{pid}/fd/{descriptor}"))).ok()?;
            Some(link.to_string_lossy().into_owned())
        });
        Some(WaitingCall {
            name: name.to_owned(),
            on: link.as_deref().map(|link| kind(link).to_owned()),
            peer_port: link.as_deref().and_then(|link| {
                let tables = ["tcp", "tcp6"].into_iter();
                let mut tables =
                    tables.filter_map(|table| text(&format!("/proc/{pid}/net/{table}")));
                tables.find_map(|table| peer_port(&table, inode(link)?).map(i64::from))
            }),
        })
    }
}

/// The kind of a link in `/proc/PID/fd` (proc(5)).
fn kind(link: &str) -> &str {
    match link.split_once(':') {
        Some((kind @ ("socket" | "pipe"), _)) => kind,
        Some(("anon_inode", kind)) => kind.trim_matches(['[', ']']),
        _ => "file",
    }
}

fn inode(link: &str) -> Option<u64> {
    let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// The port at the other end of a socket, by `/proc/PID/net/tcp`.
fn peer_port(table: &str, inode: u64) -> Option<u16> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let peer = fields.nth(2)?;
        // The tenth field of the line.
        let is_it = fields.nth(6)?.parse() == Ok(inode);
        let port = u16::from_str_radix(peer.rsplit_once(':')?.1, 16).ok()?;
        (is_it && port != 0).then_some(port)
    })
}

/// The age of a request that began then; 0 means that nothing has set its time.
fn age(began: f64, now: f64) -> Option<Duration> {
    (began > 0.0)
        .then(|| Duration::try_from_secs_f64(now - began).ok())
        .flatten()
}

fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_from_none() {
        let line = format!(
            "{} 0x5 0x2 0x0 0x0 0x0 0x0 0x7ffc 0x7f09\n",
            libc::SYS_flock
        );
        let call = InCall {
            number: libc::SYS_flock,
            arguments: [5, 2],
        };
        assert_eq!(InCall::parse(&line), Some(call));
        assert_eq!(call.call(0, None).unwrap().name, "flock");
        assert_eq!(InCall::parse("running\n"), None);
        assert_eq!(InCall::parse("-1 0x7ffc 0x7f09\n"), None);
        assert_eq!(InCall::parse(""), None);
        let unknown = InCall {
            number: 9999,
            arguments: [0; 2],
        };
        assert_eq!(unknown.call(0, None).unwrap().name, "system call 9999");
    }

    #[test]
    fn a_descriptor_is_told_by_its_kind_alone() {
        assert_eq!(kind("socket:[123]"), "socket");
        assert_eq!(kind("pipe:[123]"), "pipe");
        assert_eq!(kind("anon_inode:[eventpoll]"), "eventpoll");
        assert_eq!(kind("/var/lib/php/sessions/sess_secret"), "file");
        assert_eq!(kind("/a:b"), "file");
    }

    #[test]
    fn a_peer_has_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:C350 0100007F:0CEA 01 00000000:00000000 00:00000000 00000000  33 0 4711 1 0000\n   \
            1: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  33 0 4712 1 0000\n";
        assert_eq!(peer_port(table, 4711), Some(3306));
        assert_eq!(peer_port(table, 4712), None);
        assert_eq!(peer_port("", 4711), None);
        assert_eq!(inode("socket:[4711]"), Some(4711));
    }

    #[test]
    fn a_request_without_a_time_has_no_age() {
        assert_eq!(age(0.0, 5.0), None);
        assert_eq!(age(6.0, 5.0), None);
        assert_eq!(age(f64::NAN, 5.0), None);
        assert_eq!(age(3.5, 5.0), Some(Duration::from_millis(1500)));
    }
}
