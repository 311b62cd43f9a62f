//! Selects processes by their name, or by their control group.
//!
//! Invariant: nothing of a process is read but its command line and its control groups, which `ps`
//! shows as well.

use std::fmt;

use phpprof_zend::shown::show_whole;

use super::process::{bytes, proc_path, text};

/// The beginning of a php-fpm worker's title (`fpm_env.c`).
const POOL: &str = "php-fpm: pool ";
/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// A property that processes have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Workers of php-fpm's pool of this name.
    Pool(String),
    /// Those whose command line or name contains this.
    Name(String),
    /// Those in this control group, or below it.
    Cgroup(String),
}

impl Pattern {
    /// Whether a process fits. It is not noticed if a process takes the title later than a second
    /// after its start.
    pub(super) fn fits(&self, pid: i32, comm: &[u8]) -> bool {
        match self {
            Self::Pool(pool) => title(pid).is_some_and(|title| pool_of(&title) == Some(pool)),
            Self::Name(part) => {
                String::from_utf8_lossy(comm).contains(part.as_str())
                    || title(pid).is_some_and(|title| title.contains(part.as_str()))
            }
            Self::Cgroup(path) => text(proc_path(format_args!("{pid}/cgroup")).as_str())
                .is_some_and(|groups| is_in(&groups, path)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => write!(f, "a worker of php-fpm's pool {pool}"),
            Self::Name(part) => write!(f, "a process whose command line contains {part}"),
            Self::Cgroup(path) => write!(f, "a process in the control group {path}"),
        }
    }
}

/// The command line of a process, or the title that it has set instead; words are separated by one
/// space. A byte that is not UTF-8 is shown as in the names of functions.
#[must_use]
pub fn title(pid: i32) -> Option<String> {
    let title = bytes(proc_path(format_args!("{pid}/cmdline")).as_str())?;
    Some(one_line(&title))
}

/// The pool in the title of a php-fpm worker.
#[must_use]
pub fn pool_of(title: &str) -> Option<&str> {
    title.strip_prefix(POOL)
}

/// Replaces characters that end a word or pad a title.
fn one_line(text: &[u8]) -> String {
    let words = text.split(|byte| byte.is_ascii_control() || *byte == b' ');
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        show_whole(word, &mut line);
    }
    line
}

/// Whether `/proc/PID/cgroup` has this group, or one below it.
fn is_in(groups: &str, path: &str) -> bool {
    let path = path.strip_prefix(MOUNT).unwrap_or(path);
    let path = path.trim_matches('/');
    let mut groups = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    groups.any(|group| {
        let rest = group.trim_start_matches('/').strip_prefix(path);
        rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_without_its_padding() {
        let check = |text: &[u8], expected: &str| assert_eq!(one_line(text), expected);
        check(b"php\0work.php\0a b\0", "php work.php a b");
        check(b"php-fpm: pool www\0\0\0  \0", "php-fpm: pool www");
        check(b"php\0\x1b[2Jx\n", "php [2Jx");
        check(b"php-fpm: pool m\xfcller\0", "php-fpm: pool m<fc>ller");
    }

    #[test]
    fn a_pool_is_named_by_its_workers_alone() {
        assert_eq!(pool_of("php-fpm: pool www"), Some("www"));
        assert_eq!(pool_of("php-fpm: master process (/etc/fpm.conf)"), None);
    }

    #[test]
    fn a_process_is_in_its_groups_parents_too() {
        let groups = "12:cpu,cpuacct:/\n0::/system.slice/php8.2-fpm.service/worker\n";
        for path in [
            "/system.slice/php8.2-fpm.service",
            "system.slice/php8.2-fpm.service/",
            "/sys/fs/cgroup/system.slice/php8.2-fpm.service/worker",
            "/system.slice",
        ] {
            assert!(is_in(groups, path), "{path}");
        }
        assert!(!is_in(groups, "/system.slice/php8.2-fpm"));
        assert!(!is_in(groups, "/php8.2-fpm.service"));
        assert!(is_in("0::/\n", "/"));
        assert!(!is_in("", "/"));
    }
}
