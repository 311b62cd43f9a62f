//! What the kernel's scheduler reports of a worker: how long it has run, whether it sleeps, and
//! whether it still sleeps.
//!
//! | question | answer | a read here |
//! |---|---|---|
//! | does it still sleep? | `schedstat` says the same as when it was seen asleep | 0.8 µs |
//! | | where it counts no slices: its process has the CPU time that it had then, up to the kernel's last tick | 0.3 µs |
//! | does it sleep? | `syscall`, where it may be read: the call that it sleeps in, or `running` | 1.3 µs |
//! | | else `wchan`: where in the kernel it sleeps, or 0; it says 0 as well where the kernel refuses | 1.5 µs |
//! | | else `stat`: the state | 3.9 µs |
//!
//! | is it on a CPU, or does it wait for one? | `schedstat` and `status` ([`super::on_cpu`]) | 9 µs |
//! | for which one? | `stat` | 3.9 µs |
//!
//! The last two are read only where a worker has waited for a CPU lately. The files are kept open:
//! they stay bound to the worker's own process, so a reused PID reads as gone. Invariant: two equal
//! [`Mark`]s say that the worker did not run in between, a [`Mark::Process`] only since the last
//! tick (`schedstat`: proc(5), its third number grows each time the thread is put on a CPU. A
//! process's CPU time is that of all its threads: `thread_group_cputime`, kernel/sched/cputime.c).

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;

use super::departures::Departures;
use crate::target::process::calls;
use crate::target::process::cpu_clock::CpuClock;
use crate::target::process::stat::Stat;
use crate::target::process::{Process, proc_path};

/// The numbers of `schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU, in nanoseconds. It moves at the kernel's ticks, and when the thread leaves
    /// its CPU.
    pub run_nanoseconds: u64,
    /// The time of its waits for a CPU, in nanoseconds. It moves when a wait ends.
    pub delay_nanoseconds: u64,
    /// How often the thread was put on a CPU; 0 if the kernel does not count that.
    pub slices: u64,
}

impl From<[u64; 3]> for SchedStat {
    fn from([run_nanoseconds, delay_nanoseconds, slices]: [u64; 3]) -> Self {
        Self {
            run_nanoseconds,
            delay_nanoseconds,
            slices,
        }
    }
}

/// A value that changes whenever a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The CPU time of its process, where the kernel counts no slices of the thread.
    Process(TimeSpec),
    /// The numbers of the thread.
    Thread(SchedStat),
}

impl Mark {
    /// The numbers of the thread, if it has those.
    #[must_use]
    pub fn of_thread(self) -> Option<SchedStat> {
        match self {
            Self::Thread(look) => Some(look),
            Self::Process(_) => None,
        }
    }
}

/// Why [`Clocks::look`] has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLook {
    /// The thread has ended.
    Gone,
    /// The kernel does not report it.
    Unknown,
}

/// The longest `status` that is read. The kernel writes the counts at its end, after a list of the
/// process's groups: one with some 400 groups has none here.
const MAX_STATUS: usize = 4096;

/// The files of one worker.
#[derive(Debug)]
pub struct Clocks {
    pid: i32,
    tid: i32,
    /// Only for a worker that is a process of its own.
    process: Option<CpuClock>,
    schedstat: Option<File>,
    sleep: Option<SleepFile>,
    status: LazyFile,
    /// Unless it is among those above.
    stat: LazyFile,
}

/// A file that is opened when it is first read, and stays open.
#[derive(Debug, Default)]
enum LazyFile {
    #[default]
    Unopened,
    Open(File),
    /// It could not be opened, or is not read any more.
    Closed,
}

impl LazyFile {
    fn get(&mut self, open: impl FnOnce() -> Option<File>) -> Option<&File> {
        if matches!(self, Self::Unopened) {
            *self = open().map_or(Self::Closed, Self::Open);
        }
        match self {
            Self::Open(file) => Some(file),
            Self::Unopened | Self::Closed => None,
        }
    }
}

/// The file that tells whether the worker sleeps.
#[derive(Debug)]
enum SleepFile {
    Syscall(File),
    /// It is trusted once it has named a place: before that its 0 may be a refusal.
    Wchan {
        file: File,
        stat: File,
        is_believed: bool,
    },
    Stat(File),
}

impl Clocks {
    /// Opens the files of a worker.
    #[must_use]
    pub fn of(process: &Process) -> Self {
        let open = |name: &str| open(process.pid, process.tid, name);
        let by_syscall = || {
            let file = open("syscall")?;
            // Opening it may succeed where reading fails, as without the rights of ptrace.
            is_asleep_by_syscall(&file)?;
            Some(SleepFile::Syscall(file))
        };
        let by_wchan = || {
            Some(SleepFile::Wchan {
                file: open("wchan")?,
                stat: open("stat")?,
                is_believed: false,
            })
        };
        let is_process = process.pid == process.tid;
        let clock = is_process.then(|| CpuClock::of(process.pid));
        Self {
            pid: process.pid,
            tid: process.tid,
            status: LazyFile::default(),
            stat: LazyFile::default(),
            process: clock.flatten(),
            schedstat: open("schedstat"),
            sleep: by_syscall()
                .or_else(by_wchan)
                .or_else(|| open("stat").map(SleepFile::Stat)),
        }
    }

    /// The numbers of `schedstat` now.
    ///
    /// # Errors
    /// [`NoLook::Gone`] once the thread has ended.
    pub fn look(&self) -> Result<SchedStat, NoLook> {
        let file = self.schedstat.as_ref().ok_or(NoLook::Unknown)?;
        let mut bytes = [0_u8; 64];
        let text = read(file, &mut bytes)?;
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut field = || fields.next()?.ok();
        let look = |run_nanoseconds, delay_nanoseconds, slices| SchedStat {
            run_nanoseconds,
            delay_nanoseconds,
            slices,
        };
        match (field(), field(), field()) {
            (Some(run), Some(delay), Some(slices)) => Ok(look(run, delay, slices)),
            _ => Err(NoLook::Unknown),
        }
    }

    /// The worker's mark now; `None` if nothing tells whether it has run.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        // Without the number of slices, one sleep cannot be distinguished from the next. The
        // process's clock alone moves at the kernel's ticks: a worker that woke since the last one
        // would seem to sleep.
        let look = self.look().ok().filter(|look| look.slices > 0);
        let clock = || self.process?.now().map(Mark::Process);
        look.map(Mark::Thread).or_else(clock)
    }

    /// How often the worker has left its CPU by now; `None` if nothing tells.
    pub fn departures(&mut self) -> Option<Departures> {
        let (pid, tid) = (self.pid, self.tid);
        let file = self.status.get(|| open(pid, tid, "status"))?;
        let mut bytes = [0_u8; MAX_STATUS];
        Departures::parse(read_bytes(file, &mut bytes).ok()?)
    }

    /// Stops counting the departures, because they do not belong to the numbers of `schedstat`.
    pub fn ignore_departures(&mut self) {
        self.status = LazyFile::Closed;
    }

    /// The worker's state now, and the CPU on which it last ran.
    pub fn state(&mut self) -> Option<(char, usize)> {
        let (pid, tid) = (self.pid, self.tid);
        let file = match &self.sleep {
            Some(SleepFile::Stat(stat) | SleepFile::Wchan { stat, .. }) => stat,
            Some(SleepFile::Syscall(_)) | None => self.stat.get(|| open(pid, tid, "stat"))?,
        };
        let mut bytes = [0_u8; 512];
        let stat = Stat::parse(read_bytes(file, &mut bytes).ok()?)?;
        Some((stat.state, stat.processor))
    }

    /// Whether the worker sleeps now; `None` if nothing tells.
    pub fn ask_asleep(&mut self) -> Option<bool> {
        match self.sleep.as_mut()? {
            SleepFile::Syscall(file) => is_asleep_by_syscall(file),
            SleepFile::Stat(file) => is_asleep_by_state(file),
            SleepFile::Wchan {
                file,
                stat,
                is_believed,
            } => {
                let mut bytes = [0_u8; 64];
                let names_a_place = read(file, &mut bytes).ok()?.trim() != "0";
                *is_believed |= names_a_place;
                if names_a_place || *is_believed {
                    return Some(names_a_place);
                }
                let is_asleep = is_asleep_by_state(stat)?;
                if is_asleep && let Ok(stat) = stat.try_clone() {
                    // The worker sleeps, but the other file says that it does not.
                    self.sleep = Some(SleepFile::Stat(stat));
                }
                Some(is_asleep)
            }
        }
    }
}

fn is_asleep_by_syscall(file: &File) -> Option<bool> {
    let mut bytes = [0_u8; 192];
    Some(!read(file, &mut bytes).ok()?.starts_with("running"))
}

fn is_asleep_by_state(file: &File) -> Option<bool> {
    let mut bytes = [0_u8; 512];
    let stat = Stat::parse(read(file, &mut bytes).ok()?)?;
    Some(!matches!(stat.state, 'R'))
}

fn open(pid: i32, tid: i32, name: &str) -> Option<File> {
    calls::open(proc_path(format_args!("{pid}/task/{tid}/{name}"))).ok()
}

fn read<'a>(file: &File, bytes: &'a mut [u8]) -> Result<&'a str, NoLook> {
    std::str::from_utf8(read_bytes(file, bytes)?).map_err(|_| NoLook::Unknown)
}

fn read_bytes<'a>(file: &File, bytes: &'a mut [u8]) -> Result<&'a [u8], NoLook> {
    calls::count_file_read();
    let length = file
        .read_at(bytes, 0)
        .map_err(|error| match error.raw_os_error() {
            Some(number) if number == Errno::ESRCH as i32 => NoLook::Gone,
            _ => NoLook::Unknown,
        })?;
    bytes.get(..length).ok_or(NoLook::Unknown)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    use super::*;
    use crate::read::on_cpu::{CountsOfRead, Presence};
    use phpprof_testing::Running;

    /// Opens one of the files, by a function that opens files of the worker.
    type Choose = fn(&dyn Fn(&str) -> File) -> SleepFile;

    fn clocks_of(pid: i32, sleep: Choose) -> Clocks {
        let open = |name: &str| File::open(format!("/proc/{pid}/{name}")).unwrap();
        Clocks {
            pid,
            tid: pid,
            process: None,
            schedstat: Some(open("schedstat")),
            sleep: Some(sleep(&open)),
            status: LazyFile::default(),
            stat: LazyFile::default(),
        }
    }

    /// Waits until a child sleeps in `read`, then asks.
    fn check_sleeper(sleep: Choose) {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut clocks = clocks_of(pid, sleep);
        let sleeps = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let before = clocks.look();
            clocks.ask_asleep() == Some(true) && clocks.look() == before
        });
        let one = clocks.look().unwrap();
        assert!(sleeps && one.run_nanoseconds > 0);
        assert_eq!(clocks.look(), Ok(one));
        assert_eq!(clocks.mark(), Some(Mark::Thread(one)));
        clocks.process = CpuClock::of(pid);
        assert!(clocks.process.is_some());
        assert_eq!(clocks.mark(), Some(Mark::Thread(one)));
        clocks.process = None;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(clocks.look(), Err(NoLook::Gone));
        assert_eq!(clocks.mark(), None);
    }

    #[test]
    fn mark_stays_while_the_process_sleeps() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let clocks = Clocks {
            pid,
            tid: pid,
            process: CpuClock::of(pid),
            schedstat: None,
            sleep: None,
            status: LazyFile::default(),
            stat: LazyFile::default(),
        };
        let answer = &mut [0];
        let mut run = || {
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(answer).unwrap();
        };
        run();
        let mut mark = clocks.mark();
        assert!(matches!(mark, Some(Mark::Process(_))));
        let stays = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            std::mem::replace(&mut mark, clocks.mark()) == mark
        });
        assert!(stays);
        run();
        assert_ne!(clocks.mark(), mark);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(clocks.mark(), None);
    }

    #[test]
    fn waiting_process_sleeps_by_each_file() {
        check_sleeper(|open| SleepFile::Syscall(open("syscall")));
        check_sleeper(|open| SleepFile::Stat(open("stat")));
        check_sleeper(|open| SleepFile::Wchan {
            file: open("wchan"),
            stat: open("stat"),
            is_believed: false,
        });
    }

    #[test]
    fn busy_process_runs_and_its_clock_moves() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut clocks = clocks_of(pid, |open| SleepFile::Syscall(open("syscall")));
        let begin = clocks.look().unwrap().run_nanoseconds;
        let moved = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let look = clocks.look().unwrap();
            look.run_nanoseconds > begin && clocks.ask_asleep() == Some(false)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(moved);
    }

    #[test]
    fn departures_are_at_the_end_of_status() {
        let status = b"Name:\tvoluntary_ctxt_switches:\t9\nState:\tR (running)\n\
            voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n";
        let expected = Departures {
            voluntary: 7,
            involuntary: 5,
        };
        assert_eq!(Departures::parse(status), Some(expected));
        assert_eq!(Departures::parse(&status[..status.len() - 30]), None);
        assert_eq!(Departures::parse(b"Name:\t\xff\n"), None);
    }

    /// Reads a process's counts around nothing, this many times.
    fn presences(clocks: &mut Clocks, count: usize) -> Vec<Presence> {
        let mut read = || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let before = clocks.look().unwrap();
            let counts = CountsOfRead {
                before,
                after: clocks.look().unwrap(),
                departures: clocks.departures().unwrap(),
                last: clocks.look().unwrap(),
            };
            counts.presence()
        };
        (0..count).map(|_| read()).collect()
    }

    #[test]
    fn two_on_one_cpu_take_turns() {
        let busy = [(); 2].map(|()| {
            let mut command = Command::new("sh");
            Running::start(command.args(["-c", "while :; do :; done"])).unwrap()
        });
        let pids = busy.each_ref().map(Running::pid);
        let own = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let is_own = |&cpu: &usize| own.is_set(cpu) == Ok(true);
        let bind = |pid: i32, cpu: Option<usize>| {
            let mut set = CpuSet::new();
            set.set(cpu.unwrap()).unwrap();
            sched_setaffinity(Pid::from_raw(pid), &set).unwrap();
        };
        // Who reads on their CPU sees none of them on it.
        bind(0, (0..CpuSet::count()).find(is_own));
        for pid in pids {
            bind(pid, (0..CpuSet::count()).rfind(is_own));
        }
        let mut clocks = clocks_of(pids[0], |open| SleepFile::Syscall(open("syscall")));
        // Turns last for some milliseconds. Other tests may have the CPU for longer.
        let mut seen = Vec::new();
        let has_both = (0..50).any(|_| {
            seen.extend(presences(&mut clocks, 100));
            [Presence::On, Presence::Off]
                .iter()
                .all(|it| seen.contains(it))
        });
        assert!(has_both);
        assert!(!seen.contains(&Presence::Uncounted));
    }

    #[test]
    fn sleeper_is_off() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut clocks = clocks_of(pid, |open| SleepFile::Stat(open("stat")));
        let is_off = (0..500).any(|_| presences(&mut clocks, 10) == [Presence::Off; 10]);
        assert!(is_off);
        assert_eq!(clocks.state().map(|(state, _)| state), Some('S'));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
