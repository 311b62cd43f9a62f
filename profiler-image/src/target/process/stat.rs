//! `/proc/PID/stat` and `schedstat`: the identity of a process, its CPU, and whether it ran
//! meanwhile. proc(5).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::{calls, proc_path};

/// The longest line of `stat`: some fifty numbers, and the name of a kernel thread.
const MAX_LINE: usize = 1280;

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name, which the target can choose.
    pub comm: SmallVec<[u8; 16]>,
    /// `R` running or runnable, `S` sleeping, `D` waiting for a device, `Z` ended, …
    pub state: char,
    /// PID of its parent.
    pub parent: i32,
    /// Its process group, and its session: the PIDs of those that created them.
    pub group: i32,
    /// See the group.
    pub session: i32,
    /// Its CPU time, in ticks.
    pub ticks: u64,
    /// That of its children that have ended and that it has waited for, and of theirs, in ticks.
    pub children_ticks: u64,
    /// Ticks since boot: with the PID it identifies a process for good.
    pub start_time: u64,
    /// The CPU on which it last ran.
    pub processor: usize,
    /// The number is a thread's and not a process's. The kernel lists such a number as a folder
    /// that no listing of `/proc` shows.
    pub is_thread: bool,
}

impl Stat {
    /// Reads the fields of a process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let mut file = calls::open(proc_path(format_args!("{pid}/stat"))).ok()?;
        // Not by pread: a seccomp filter may refuse that, and such a refusal has to be reported for
        // the target's memory.
        Self::read(|bytes| file.read(bytes))
    }

    /// Reads them again from a file that was kept open.
    #[must_use]
    pub(super) fn at(file: &File) -> Option<Self> {
        Self::read(|bytes| file.read_at(bytes, 0))
    }

    fn read(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> Option<Self> {
        let mut bytes = [0_u8; MAX_LINE];
        calls::count_file_read();
        let length = read(&mut bytes).ok()?;
        Self::parse(bytes.get(..length)?)
    }

    /// Whether it has ended and waits for its parent to reap it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Parses one line. The command may contain spaces and brackets, and need not be UTF-8: the
    /// fields count from the last `)`.
    #[must_use]
    pub fn parse(line: impl AsRef<[u8]>) -> Option<Self> {
        let line = line.as_ref();
        let begin = line.iter().position(|&byte| byte == b'(')? + 1;
        let end = line.iter().rposition(|&byte| byte == b')')?;
        let comm = line.get(begin..end)?.into();
        let tail = std::str::from_utf8(line.get(end + 1..)?).ok()?;
        // The first field after the command is field 3 of proc(5).
        let field = |number: usize| tail.split_ascii_whitespace().nth(number - 3);
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        Some(Self {
            comm,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            ticks: number(14)?.saturating_add(number(15)?),
            children_ticks: number(16)?.saturating_add(number(17)?),
            start_time: field(22)?.parse().ok()?,
            processor: field(39)?.parse().ok()?,
            // A thread sends its parent no signal when it ends: its `exit_signal` is -1
            // (copy_process, kernel/fork.c).
            is_thread: field(38)? == "-1",
        })
    }
}

/// Tells whether a thread ran between two moments, on which CPU, and its total CPU time.
///
/// Both files are kept open: a check takes three short reads. They stay bound to this thread, so a
/// read fails once it has been reaped, even if its id was reused.
#[derive(Debug)]
pub struct Watch {
    schedstat: File,
    stat: File,
    /// Opened when it is first read.
    sched: OnceLock<Option<File>>,
    pid: i32,
    tid: i32,
}

impl Watch {
    /// Opens the files of a thread.
    #[must_use]
    pub fn open(pid: i32, tid: i32) -> Option<Self> {
        let open =
            |name: &str| calls::open(proc_path(format_args!("{pid}/task/{tid}/{name}"))).ok();
        Some(Self {
            schedstat: open("schedstat")?,
            stat: open("stat")?,
            sched: OnceLock::new(),
            pid,
            tid,
        })
    }

    /// The nanoseconds on a CPU: the first field of `schedstat`. It moves at the kernel's ticks and
    /// when the thread stops running.
    #[must_use]
    pub fn cpu_nanoseconds(&self) -> Option<i64> {
        self.schedstat(0)
    }

    /// Whether the thread still exists, or has not been reaped yet. Then an earlier read by its
    /// PID, with `process_vm_readv`, was of this thread and no other. It may have done an `execve`
    /// meanwhile, which a scan notices ([`super::ProcessMemory::bound_word`]). A failed read of a
    /// counter tells a caller the same.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.schedstat::<u64>(0).is_some()
    }

    fn schedstat<T: FromStr>(&self, field: usize) -> Option<T> {
        let mut bytes = [0_u8; 128];
        calls::count_file_read();
        let length = self.schedstat.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
        text.split_ascii_whitespace().nth(field)?.parse().ok()
    }

    /// How often the thread was put on a CPU: the third field of `schedstat`. `None` if the kernel
    /// does not count (it is then always 0).
    #[must_use]
    pub fn timeslices(&self) -> Option<u64> {
        self.schedstat(2).filter(|&count| count > 0)
    }

    /// The three numbers of `schedstat`.
    #[must_use]
    pub fn numbers(&self) -> Option<[u64; 3]> {
        numbers(&self.schedstat)
    }

    /// When the kernel last began to count the thread's CPU time: [`counts_since`].
    #[must_use]
    pub fn counts_since(&self) -> Option<u64> {
        let path = || proc_path(format_args!("{}/task/{}/sched", self.pid, self.tid));
        let file = self.sched.get_or_init(|| calls::open(path()).ok());
        counts_since(file.as_ref()?)
    }

    /// The state and CPU of the thread.
    #[must_use]
    pub fn state(&self) -> Option<(char, usize)> {
        let stat = Stat::at(&self.stat)?;
        Some((stat.state, stat.processor))
    }
}

/// The three numbers of a thread's file `schedstat`.
#[must_use]
pub fn numbers(schedstat: &File) -> Option<[u64; 3]> {
    let mut bytes = [0_u8; 128];
    calls::count_file_read();
    let length = schedstat.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    let mut fields = text
        .split_ascii_whitespace()
        .map(|field| field.parse().ok());
    let mut field = || fields.next()?;
    Some([field()?, field()?, field()?])
}

/// When the kernel last began to count a thread's CPU time, in nanoseconds of its CPU's clock:
/// `se.exec_start` of its file `sched`, which kernels with `CONFIG_SCHED_DEBUG` have, and all since
/// 6.15 (`proc_sched_show_task`, kernel/sched/debug.c).
#[must_use]
pub fn counts_since(sched: &File) -> Option<u64> {
    let mut bytes = [0_u8; 320];
    calls::count_file_read();
    let length = sched.read_at(&mut bytes, 0).ok()?;
    exec_start(std::str::from_utf8(bytes.get(..length)?).ok()?)
}

/// The number of the line `se.exec_start : MILLISECONDS.NANOSECONDS`.
fn exec_start(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    let (milliseconds, rest) = line.rsplit(':').next()?.trim().split_once('.')?;
    let nanoseconds = rest.parse::<u64>().ok().filter(|_| rest.len() == 6)?;
    let milliseconds = milliseconds.parse::<u64>().ok()?;
    milliseconds
        .checked_mul(1_000_000)?
        .checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_is_read_right() {
        let line = "42 (php-fpm: pool) (x)) S 7 42 42 0 -1 4194560 1 0 0 0 3 0 4 0 20 0 1 0 987654 23 24 25 26 27 28 29 \
                    30 31 32 33 34 35 36 37 17 1 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                comm: b"php-fpm: pool) (x)"[..].into(),
                state: 'S',
                parent: 7,
                group: 42,
                session: 42,
                ticks: 3,
                children_ticks: 4,
                start_time: 987_654,
                processor: 1,
                is_thread: false,
            }
        );
    }

    #[test]
    fn a_command_that_is_no_text_hides_nothing() {
        let line = b"42 (\xff\xfe) R 7 42 42 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 9 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 17 1 0";
        assert_eq!(Stat::parse(line).unwrap().state, 'R');
    }

    #[test]
    fn a_thread_is_told_from_a_process() {
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = wait.recv();
        });
        let own = i32::try_from(std::process::id()).unwrap();
        let [of_thread, of_process] = [told.recv().unwrap(), own].map(|id| Stat::of(id).unwrap());
        assert!(of_thread.is_thread && !of_process.is_thread);
        drop(send);
        thread.join().unwrap();
    }

    #[test]
    fn a_cut_line_is_none() {
        assert_eq!(Stat::parse("42 (php"), None);
        assert_eq!(Stat::parse("42 (php) S 7"), None);
    }

    #[test]
    fn begin_of_counting_is_read_to_the_nanosecond() {
        let text = "php (7, #threads: 1)\n-----\nse.exec_start                 :      70975965.328167\nse.vruntime : 1.5\n";
        assert_eq!(exec_start(text), Some(70_975_965_328_167));
        assert_eq!(exec_start("se.exec_start : 7.5\n"), None);
        assert_eq!(exec_start("se.vruntime : 7.500000\n"), None);
    }

    #[test]
    fn this_process_has_a_state() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let watch = Watch::open(pid, pid).unwrap();
        assert!(matches!(watch.state().unwrap().0, 'R' | 'S'));
        assert!(watch.cpu_nanoseconds().unwrap() > 0);
    }
}
