//! Waits of event loops, in which a worker has nothing to do: the time between its requests.
//!
//! One rule for the sampler, which leaves out such samples as idle, and for findings, which see
//! profiles of older samplers. A loop waits in an internal function that is the loop ([`LOOPS`]),
//! or in one that the loop's own method calls ([`POLLS`]). If code of the program waits for one
//! result ([`AWAITS`]), the loop runs inside of that, and its wait belongs to the program.
//!
//! The names are those of the projects' sources: ReactPHP's event-loop 1.x and async 4.x, Revolt
//! 1.x, AMPHP 2 and 3, Workerman 4 and 5, and the stubs of the extensions ev, event, uv, swoole and
//! openswoole. Outside the command line, a server has begun the request before the loop, so the
//! wait is the request's.
//!
//! Invariant: the result depends on the names alone, so sampler and findings always agree.

use std::borrow::Cow;

/// The SAPIs in which programs serve with their own loop.
const SAPIS: [&str; 2] = ["cli", "micro"];

/// Internal functions that wait for events and call PHP code for each. They are a kind of waiting
/// (`kinds`), too.
pub(super) const LOOPS: [&str; 21] = [
    "EvLoop::run",
    "Ev::run",
    "EventBase::loop",
    "EventBase::dispatch",
    "event_base_loop",
    "uv_run",
    "Swoole\\Event::wait",
    "swoole_event_wait",
    "Swoole\\Server::start",
    "Swoole\\Http\\Server::start",
    "Swoole\\WebSocket\\Server::start",
    "Swoole\\Redis\\Server::start",
    "Swoole\\Process\\Pool::start",
    "Swoole\\Coroutine\\Scheduler::start",
    "OpenSwoole\\Event::wait",
    "OpenSwoole\\Server::start",
    "OpenSwoole\\Http\\Server::start",
    "OpenSwoole\\WebSocket\\Server::start",
    "OpenSwoole\\Process\\Pool::start",
    "OpenSwoole\\Coroutine\\Scheduler::start",
    "openswoole_event_wait",
];

/// Methods of loops that are written in PHP, with the internal functions in which they wait.
const POLLS: [(&str, &[&str]); 10] = [
    ("React\\EventLoop\\StreamSelectLoop::streamSelect", SELECTS),
    ("React\\EventLoop\\StreamSelectLoop::run", SELECTS),
    (
        "Revolt\\EventLoop\\Driver\\StreamSelectDriver::selectStreams",
        SELECTS,
    ),
    (
        "Revolt\\EventLoop\\Driver\\StreamSelectDriver::dispatch",
        SELECTS,
    ),
    ("Amp\\Loop\\NativeDriver::selectStreams", SELECTS),
    ("Amp\\Loop\\NativeDriver::dispatch", SELECTS),
    ("Workerman\\Events\\Select::loop", SELECTS),
    ("Workerman\\Events\\Select::run", SELECTS),
    ("Workerman\\Worker::monitorWorkersForLinux", WAITS_FOR_CHILD),
    ("Workerman\\Worker::monitorWorkers", WAITS_FOR_CHILD),
];

/// Without streams, such a loop sleeps until its next timer.
const SELECTS: &[&str] = &[
    "stream_select",
    "socket_select",
    "usleep",
    "sleep",
    "time_nanosleep",
];
/// The first process waits for those that serve.
const WAITS_FOR_CHILD: &[&str] = &["pcntl_wait", "pcntl_waitpid"];

/// Functions with which a program waits for one result, while the loop runs inside.
const AWAITS: [&str; 6] = [
    "Revolt\\EventLoop\\Internal\\DriverSuspension::suspend",
    "React\\Async\\await",
    "React\\Async\\SimpleFiber::suspend",
    "Clue\\React\\Block\\await",
    "Amp\\Promise\\wait",
    "Amp\\Future::await",
];

/// Functions with which a server waits for its end: they do not await a result.
const UNTIL_END: [&str; 2] = ["Amp\\trapSignal", "Amp\\Cluster\\Cluster::awaitTermination"];

/// Whether a worker of this SAPI that waits in a stack, leaf first, waits for events: it has
/// nothing to do. Callers are only asked for if the leaf can be such a wait.
pub fn waits_for_events<'a>(sapi: &str, mut stack: impl Iterator<Item = Cow<'a, str>>) -> bool {
    if !SAPIS.contains(&sapi) {
        return false;
    }
    let Some(leaf) = stack.next() else {
        return false;
    };
    let is_loop = LOOPS.contains(&&*leaf);
    let methods = || POLLS.iter().filter(|(_, waits)| waits.contains(&&*leaf));
    if !is_loop && methods().next().is_none() {
        return false;
    }
    let mut is_wait = is_loop;
    let mut awaits = false;
    for (above, function) in stack.enumerate() {
        is_wait |= above == 0 && methods().any(|(method, _)| *method == function);
        if !is_wait {
            return false;
        }
        if UNTIL_END.contains(&&*function) {
            return true;
        }
        awaits |= AWAITS.contains(&&*function);
    }
    is_wait && !awaits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::kind;

    /// Otherwise findings could not tell the waiting part of its time.
    #[test]
    fn each_loop_waits_for_something() {
        for function in POLLS.iter().flat_map(|(_, waits)| waits.iter()) {
            assert!(kind(function).is_some(), "{function}");
        }
    }

    #[test]
    fn callers_of_other_leaves_are_not_asked() {
        let stack = ["md5", "{main}"].into_iter().enumerate();
        let stack = stack.map(|(index, name)| {
            assert_eq!(index, 0, "{name}");
            Cow::Borrowed(name)
        });
        assert!(!waits_for_events("cli", stack));
        let stack = std::iter::once_with(|| panic!("a server's request is never idle here"));
        assert!(!waits_for_events("fpm-fcgi", stack));
    }
}
