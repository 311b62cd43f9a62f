//! RoadRunner's workers: command line programs that read one request after the other from a pipe.
//!
//! The engine does not know of it, but the kernel tells when a thread sleeps in `read` of that very
//! pipe: then the worker waits for a request. RoadRunner names the pipe in the environment of its
//! children; a grandchild has that environment too, and its pipe unless a process between them has
//! replaced it. What this module does not do: detect a wait on RoadRunner's sockets, which look
//! like a program's own connections.

use std::fs::read_link;
use std::path::{Path, PathBuf};

use nix::libc::SYS_read;

use super::stat::Stat;
use super::text;

/// The variable in a worker's environment that means pipes.
const BY_PIPES: &str = "RR_RELAY=pipes";
/// The largest number of processes between a worker and RoadRunner, such as shells.
const MAX_BETWEEN: usize = 8;

/// The pipe from which a worker reads its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// `/proc/PID/task/TID` of the thread that reads.
    thread: PathBuf,
    /// As the kernel names it: `pipe:[6558145]`.
    pipe: PathBuf,
}

impl Relay {
    /// The pipe of a process, if RoadRunner has started it.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let pipe = input(pid)?;
        let mut child = pid;
        for _ in 0..MAX_BETWEEN {
            if !has_relay(&environment(child)?) {
                // This process, without the variable, is RoadRunner: it has started the last one.
                return (child != pid).then(|| Self {
                    thread: format!("/proc/{pid}/task/{pid}").into(),
                    pipe,
                });
            }
            if input(child)? != pipe {
                return None;
            }
            child = Stat::of(child)?.parent;
        }
        None
    }

    /// Whether the worker sleeps until there is something on its pipe, or its other end is closed.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let call = text(&self.thread.join("syscall").to_string_lossy());
        call.as_deref()
            .and_then(read_from)
            .and_then(|descriptor| link(&self.thread.join(format!("fd/{descriptor}"))))
            .is_some_and(|awaited| awaited == self.pipe)
    }
}

/// The variables that a process was started with; empty if this user may not read them.
fn environment(pid: i32) -> Option<String> {
    text(&format!("/proc/{pid}/environ"))
}

fn has_relay(environment: &str) -> bool {
    environment.split('\0').any(|variable| variable == BY_PIPES)
}

/// The pipe that is a process's standard input.
fn input(pid: i32) -> Option<PathBuf> {
    link(Path::new(&format!("/proc/{pid}/fd/0")))
}

fn link(path: &Path) -> Option<PathBuf> {
    read_link(path)
        .ok()
        .filter(|target| target.to_string_lossy().starts_with("pipe:["))
}

/// The descriptor of the `read` in which a thread sleeps, from its `/proc/PID/syscall`: the number
/// of the call, and its arguments; `running`, or -1 if it sleeps in none.
fn read_from(call: &str) -> Option<u32> {
    let (number, arguments) = call.split_once(' ')?;
    let descriptor = arguments.split(' ').next()?.strip_prefix("0x")?;
    (number.parse() == Ok(SYS_read)).then_some(())?;
    u32::from_str_radix(descriptor, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_read_shows_its_call_number() {
        let check =
            |call: &str, expected: Option<u32>| assert_eq!(read_from(call), expected, "{call}");
        let arguments = "0x7fb8b5a80000 0x2000 0x2000 0x80 0x2 0x7ffd060988e8 0x7fb8b82232ad\n";
        check(&format!("{SYS_read} 0x0 {arguments}"), Some(0));
        check(&format!("{SYS_read} 0x1f {arguments}"), Some(31));
        check(&format!("{} 0x0 {arguments}", SYS_read + 1), None);
        check(&format!("{SYS_read} 0x100000000 {arguments}"), None);
        check("running\n", None);
        check("-1 0x7ffd060988e8 0x7fb8b82232ad\n", None);
        check("", None);
        check(&format!("{SYS_read}"), None);
    }

    #[test]
    fn only_the_whole_variable_names_the_relay() {
        let check = |environment: &str, expected: bool| {
            assert_eq!(has_relay(environment), expected, "{environment}")
        };
        check("PATH=/bin\0RR_RELAY=pipes\0RR_MODE=http\0", true);
        check("RR_RELAY=pipes", true);
        check("RR_RELAY=tcp://127.0.0.1:7000\0", false);
        check("OTHER_RR_RELAY=pipes\0", false);
        check("RR_RELAY=pipes2\0", false);
        check("", false);
    }

    #[test]
    fn only_roadrunners_processes_have_a_relay() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Relay::of(pid), None);
    }
}
