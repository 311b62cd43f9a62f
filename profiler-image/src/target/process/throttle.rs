//! How long the control group of a process was kept from its CPUs by its limit, as the kernel
//! counts it in `cpu.stat`.
//!
//! A container has its own group at the place where it mounts control groups. The files there are
//! the target's, so they are believed only on a file system of control groups, whose files nobody
//! but the kernel writes. Invariant: an open waits for nothing, and a read is bounded.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};

use super::{calls, proc_path, text};

/// The longest `cpu.stat` that is read; it has a dozen short lines.
const MAX_TEXT: usize = 2048;
/// The longest path of a group that is used.
const MAX_PATH: usize = 1024;
/// Where control groups of version 2 are mounted, and below which the CPU's of version 1 are.
const MOUNT: &str = "sys/fs/cgroup";

/// What the limit has cost a group so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleCounts {
    /// Periods in which the group had used up its quota.
    pub periods: u64,
    /// How long its CPUs did not run it then: the sum over the CPUs that it wanted.
    pub time: Duration,
}

impl ThrottleCounts {
    /// What came after an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            time: self.time.saturating_sub(earlier.time),
        }
    }

    /// The numbers of a `cpu.stat`: of version 2 in microseconds, of version 1 in nanoseconds
    /// (`cpu_cfs_stat_show` and `cpu_extra_stat_show`, kernel/sched/core.c). `None` without them,
    /// as where no controller counts.
    #[must_use]
    fn parse(text: &str) -> Option<Self> {
        let number = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let value = lines.find_map(|(name, value)| (name == key).then_some(value))?;
            value.trim().parse::<u64>().ok()
        };
        let time = number("throttled_usec").map(Duration::from_micros);
        let time = time.or_else(|| number("throttled_time").map(Duration::from_nanos));
        Some(Self {
            periods: number("nr_throttled")?,
            time: time?,
        })
    }
}

/// The `cpu.stat` of a group. It is kept open, and stays that of the same group.
#[derive(Debug)]
pub struct ThrottleFile(File);

impl ThrottleFile {
    /// Opens that of a process.
    #[must_use]
    pub fn open(pid: i32) -> Option<Self> {
        let groups = text(proc_path(format_args!("{pid}/cgroup")).as_str())?;
        let open = |place: &String| open_in_group(&format!("/proc/{pid}/root/{MOUNT}{place}"));
        let opened = places(&groups).iter().find_map(open).map(Self)?;
        opened.now().is_some().then_some(opened)
    }

    /// The numbers now; `None` once the group has been removed.
    #[must_use]
    pub fn now(&self) -> Option<ThrottleCounts> {
        let mut bytes = [0_u8; MAX_TEXT];
        calls::count_file_read();
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        ThrottleCounts::parse(std::str::from_utf8(bytes.get(..length)?).ok()?)
    }
}

/// Where the `cpu.stat` of a process may be, by its `/proc/PID/cgroup`: in its group as the host
/// names it, then where a container has its own group.
fn places(groups: &str) -> Vec<String> {
    let mut places = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let has_cpu = controllers.split(',').any(|name| name == "cpu");
        let mounts: &[&str] = match (number, controllers) {
            ("0", "") => &["", "/unified"],
            // The folder has the names of all controllers that are mounted there.
            _ if has_cpu => &["/cpu,cpuacct", "/cpu"],
            _ => continue,
        };
        // Outside of the reader's own group, a path is relative to that.
        let is_named = path.len() <= MAX_PATH && !path.split('/').any(|part| part == "..");
        let path = path.trim_end_matches('/');
        let named = mounts.iter().map(|mount| format!("{mount}{path}/cpu.stat"));
        places.extend(named.filter(|_| is_named));
        places.extend(mounts.iter().map(|mount| format!("{mount}/cpu.stat")));
    }
    places
}

/// Opens a file if it is one of a control group.
fn open_in_group(path: &str) -> Option<File> {
    calls::count_open();
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(io::Error::from);
    let file = File::from(file.ok()?);
    let kind = fstatfs(file.as_fd()).ok()?.filesystem_type();
    [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC]
        .contains(&kind)
        .then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_understood() {
        let v1 =
            "nr_periods 50\nnr_throttled 7\nthrottled_time 1500000000\nnr_bursts 0\nburst_time 0\n";
        let v2 = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 50\nnr_throttled 7\nthrottled_usec 1500000\n";
        let expected = ThrottleCounts {
            periods: 7,
            time: Duration::from_millis(1500),
        };
        assert_eq!(ThrottleCounts::parse(v1), Some(expected));
        assert_eq!(ThrottleCounts::parse(v2), Some(expected));
        // The group at the top, and text that is none.
        assert_eq!(ThrottleCounts::parse("usage_usec 9\nuser_usec 5\n"), None);
        assert_eq!(
            ThrottleCounts::parse("nr_throttled -7\nthrottled_time 1\n"),
            None
        );
        assert_eq!(ThrottleCounts::parse(""), None);
    }

    #[test]
    fn since_is_the_difference() {
        let of = |periods, milliseconds| ThrottleCounts {
            periods,
            time: Duration::from_millis(milliseconds),
        };
        assert_eq!(of(9, 50).since(of(7, 20)), of(2, 30));
        // Another group has the same name.
        assert_eq!(of(1, 5).since(of(7, 20)), of(0, 0));
    }

    #[test]
    fn places_are_the_groups_own_and_the_containers() {
        let v2 = "0::/kubepods/pod1\n";
        assert_eq!(
            places(v2),
            [
                "/kubepods/pod1/cpu.stat",
                "/unified/kubepods/pod1/cpu.stat",
                "/cpu.stat",
                "/unified/cpu.stat"
            ]
        );
        assert_eq!(places("0::/../b\n"), ["/cpu.stat", "/unified/cpu.stat"]);
        let v1 = "9:name=systemd:/\n2:cpu,cpuacct:/a\n3:cpuset:/a\n";
        assert_eq!(
            places(v1),
            [
                "/cpu,cpuacct/a/cpu.stat",
                "/cpu/a/cpu.stat",
                "/cpu,cpuacct/cpu.stat",
                "/cpu/cpu.stat"
            ]
        );
        assert_eq!(places("not a line\n"), Vec::<String>::new());
    }

    #[test]
    fn files_elsewhere_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpu.stat");
        std::fs::write(&file, "nr_throttled 7\nthrottled_time 7\n").unwrap();
        assert!(open_in_group(file.to_str().unwrap()).is_none());
        // An open of a pipe would wait for a writer.
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(open_in_group(pipe.to_str().unwrap()).is_none());
    }
}
