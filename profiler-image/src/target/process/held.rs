//! Why a worker that does not run cannot continue by itself: something has stopped it, or it waits
//! for a device. What waits for a CPU is found elsewhere (`read/on_cpu.rs`).
//!
//! Invariant: the answer holds for as long as the worker does not run. Nothing can stop a worker,
//! freeze it or wake it up for that without letting it run for a moment: it stops itself on its way
//! out of the kernel (`get_signal`, kernel/signal.c; `__refrigerator`, kernel/freezer.c).

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::stat::Stat;
use super::{calls, proc_path, text};

/// Where control groups are mounted, and version 2 next to version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Where the freezer of version 1 is mounted.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// Functions of the kernel in which only a thread sleeps that was stopped or frozen, as `wchan`
/// names them. The compiler may have made a part of the first one of the others.
const STOPPED_IN: [&str; 5] = [
    "get_signal",
    "do_signal_stop",
    "ptrace_stop",
    "do_freezer_trap",
    "__refrigerator",
];

/// Why a worker cannot continue by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Held {
    /// It can, or nobody knows.
    #[default]
    No,
    /// It sleeps and cannot be interrupted: mostly it waits for a disk.
    Disk,
    /// It waits for a CPU.
    Cpu,
    /// It was stopped by a signal or a debugger, or its control group is frozen.
    Stopped,
}

/// The files that tell whether a thread is held. They are kept open, and stay bound to this thread.
#[derive(Debug)]
pub struct HeldFiles {
    pid: i32,
    stat: Option<File>,
    place: Option<File>,
}

impl HeldFiles {
    /// Opens the files of a thread of a process.
    #[must_use]
    pub fn open(pid: i32, tid: i32) -> Self {
        let open =
            |name: &str| calls::open(proc_path(format_args!("{pid}/task/{tid}/{name}"))).ok();
        Self {
            pid,
            stat: open("stat"),
            place: open("wchan"),
        }
    }

    /// Whether and by what the thread is held now.
    #[must_use]
    pub fn held(&self) -> Held {
        let state = self.stat.as_ref().and_then(Stat::at).map(|stat| stat.state);
        let mut bytes = [0_u8; 64];
        let place = self.place_in(&mut bytes).unwrap_or_default();
        let is_frozen = || {
            let groups = text(proc_path(format_args!("{}/cgroup", self.pid)).as_str());
            groups.is_some_and(|groups| is_frozen(&groups, text))
        };
        Held::judge(state, place, is_frozen)
    }

    /// Where in the kernel the thread sleeps.
    fn place_in<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a str> {
        calls::count_file_read();
        let length = self.place.as_ref()?.read_at(bytes, 0).ok()?;
        std::str::from_utf8(bytes.get(..length)?).ok()
    }
}

impl Held {
    /// Asks no more than it needs: `wchan` tells nothing where the kernel refuses, or cannot name
    /// the place.
    fn judge(state: Option<char>, place: &str, is_frozen: impl FnOnce() -> bool) -> Self {
        match state {
            Some('T' | 't') => return Self::Stopped,
            Some('S' | 'D') => {}
            _ => return Self::No,
        }
        let (place, is_disk) = (place.trim(), state == Some('D'));
        let may_be_hidden = is_disk || ["", "0"].contains(&place);
        if STOPPED_IN.contains(&place) || may_be_hidden && is_frozen() {
            return Self::Stopped;
        }
        if is_disk { Self::Disk } else { Self::No }
    }
}

/// Whether one of these control groups (`/proc/PID/cgroup`) is frozen, itself or by one above it.
fn is_frozen(groups: &str, read: impl Fn(&str) -> Option<String>) -> bool {
    groups.lines().any(|line| {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        if number == "0" && controllers.is_empty() {
            let events = MOUNTS.map(|mount| read(&format!("{mount}{path}/cgroup.events")));
            let mut events = events.iter().flatten().flat_map(|text| text.lines());
            return events.any(|event| event == "frozen 1");
        }
        let has_freezer = controllers.split(',').any(|name| name == "freezer");
        has_freezer
            && read(&format!("{FREEZER}{path}/freezer.state"))
                .is_some_and(|state| state.trim() != "THAWED")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(state: char, place: &str, is_frozen: bool, expected: Held) {
        let found = Held::judge(Some(state), place, || is_frozen);
        assert_eq!(found, expected, "{state} {place}");
    }

    #[test]
    fn judge_tells_stopped_from_waiting() {
        // As Linux 6.18 shows them: a signal, gdb, and the freezers of both versions of control
        // groups.
        check('T', "do_signal_stop\n", false, Held::Stopped);
        check('t', "ptrace_stop\n", false, Held::Stopped);
        check('S', "get_signal\n", false, Held::Stopped);
        check('S', "do_freezer_trap", false, Held::Stopped);
        check('D', "do_syscall_64\n", true, Held::Stopped);
        check('D', "do_syscall_64\n", false, Held::Disk);
        check('D', "folio_wait_bit_common", false, Held::Disk);
        check('S', "hrtimer_nanosleep", true, Held::No);
        // Where the kernel hides the place.
        check('S', "0", true, Held::Stopped);
        check('S', "0", false, Held::No);
        check('R', "0", true, Held::No);
        check('Z', "0", true, Held::No);
        assert_eq!(Held::judge(None, "", || true), Held::No);
    }

    #[test]
    fn is_frozen_asks_the_freezer_of_each_version() {
        let of = |file: &'static str, content: &'static str| {
            move |path: &str| (path == file).then(|| content.to_owned())
        };
        let groups = "6:freezer:/pods/web\n4:memory:/m\n0::/pods/web\n";
        let v1 = "/sys/fs/cgroup/freezer/pods/web/freezer.state";
        assert!(is_frozen(groups, of(v1, "FROZEN\n")));
        assert!(is_frozen(groups, of(v1, "FREEZING\n")));
        assert!(!is_frozen(groups, of(v1, "THAWED\n")));
        for mount in MOUNTS {
            let path = format!("{mount}/pods/web/cgroup.events");
            let read = |content: &str| {
                let read = |asked: &str| (asked == path).then(|| content.to_owned());
                is_frozen(groups, read)
            };
            assert!(read("populated 1\nfrozen 1\n"));
            assert!(!read("populated 1\nfrozen 0\n"));
        }
        assert!(!is_frozen("not a line\n", |_| Some("frozen 1".to_owned())));
        assert!(!is_frozen(groups, |_| None));
    }

    #[test]
    fn of_this_thread_is_no() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(HeldFiles::open(pid, pid).held(), Held::No);
    }
}
