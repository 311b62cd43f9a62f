//! The resident sampler: stays next to one container, polls the relay for runs, and starts a
//! process for each.
//!
//! `answer` parses the relay's answers, `state` decides, `call` and `child` run processes, `shed`
//! keeps memory small; this is the loop. It has one thread and no connection: calls of the relay
//! are processes as well, so that the resident one is small, and can handle a signal at any time.
//!
//! Invariant: nothing here waits for anything but an event or a time.

use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::deliver::addresses::ResolvedRelay;
use crate::deliver::put::verdict_of_call;
use crate::deliver::receipt;
use crate::deliver::upload::random_byte;
use crate::failure::{Reason, SamplerFailure};

pub mod answer;
pub mod call;
mod child;
pub mod shed;
pub mod state;

use answer::{LONGEST, PollAccess, heard};
use call::Order;
use child::{Child, words};
use state::{ResidentEvent, ResidentState, ResidentStep};

/// The time limit of a poll, in addition to the time that the relay keeps it open: the name, the
/// connection, the answer.
const ASK_TAKES: Duration = Duration::from_secs(10);
const RECEIPT_TAKES: Duration = Duration::from_secs(4);
/// After its limit and this time a call is killed: resolving a name has no time limit of its own.
const MARGIN: Duration = Duration::from_secs(1);
/// The longest output of a process, in bytes: a receipt, or the line before an answer.
const LONGEST_LINE: usize = 4 << 10;
/// The longest single wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The options of a resident sampler.
pub struct ResidentOptions {
    /// The target: runs for another container are not begun.
    pub container_id: String,
    /// The first poll's URL and grant.
    pub ask: PollAccess,
    /// Addresses of the relay beside its name.
    pub addresses: ResolvedRelay,
    /// The sampler ends if the relay has not answered by then.
    pub first_answer: Duration,
    /// The sampler ends if it has had no run for this long.
    pub idle: Duration,
}

/// Runs until the lease is over, and returns why it ended. The normal end has the reason
/// `LeaseEnded`.
#[must_use]
pub fn reside(options: ResidentOptions) -> SamplerFailure {
    let signals = match signals() {
        Ok(signals) => signals,
        Err(error) => return SamplerFailure::new(Reason::Internal, error.desc(), error.desc()),
    };
    let resident = ResidentSampler {
        state: ResidentState::new(options.ask, options.first_answer, options.idle),
        container_id: options.container_id,
        addresses: options.addresses,
        signals,
        began: Instant::now(),
        jobs: Vec::new(),
    };
    resident.stay()
}

/// SIGCHLD only ends a wait: each child is then asked whether it has ended.
fn signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

struct ResidentSampler {
    state: ResidentState,
    container_id: String,
    addresses: ResolvedRelay,
    signals: SignalFd,
    began: Instant,
    jobs: Vec<ChildJob>,
}

/// A process and its purpose.
struct ChildJob {
    purpose: ChildPurpose,
    child: Child,
    /// When it is killed.
    until: Option<Duration>,
}

enum ChildPurpose {
    Ask,
    Run(String),
    Receipt(String),
}

/// How a process ended, and its output.
struct ChildOutcome {
    ended: std::io::Result<ExitStatus>,
    said: Vec<u8>,
}

impl ResidentSampler {
    fn stay(mut self) -> SamplerFailure {
        loop {
            match self.state.next(self.began.elapsed()) {
                ResidentStep::Say(text) => say(&text),
                ResidentStep::Ask { ask, hold } => {
                    let order = Order::to_ask(ask, hold, ASK_TAKES).at(&self.addresses);
                    let takes = ASK_TAKES + hold.unwrap_or_default();
                    self.call(ChildPurpose::Ask, &order, takes, LONGEST + LONGEST_LINE);
                }
                ResidentStep::Begin { key, work } => {
                    say(&format!("the run {key} begins"));
                    let arguments = work.arguments.iter().map(String::as_str);
                    let input = serde_json::to_string(&work.environment).unwrap_or_default();
                    let child = Child::start(arguments, input, LONGEST_LINE);
                    self.started(ChildPurpose::Run(key), child, None);
                }
                ResidentStep::Deliver { key, grant, line } => {
                    let order = Order::to_put(grant, line, RECEIPT_TAKES).at(&self.addresses);
                    self.call(
                        ChildPurpose::Receipt(key),
                        &order,
                        RECEIPT_TAKES,
                        LONGEST_LINE * 4,
                    );
                }
                ResidentStep::Wait(until) => {
                    shed::shed();
                    self.wait(until);
                }
                ResidentStep::End(failure) => return failure,
            }
        }
    }

    fn call(&mut self, purpose: ChildPurpose, order: &Order, takes: Duration, at_most: usize) {
        let child = Child::start(["call"], order.text(), at_most);
        let until = self.began.elapsed() + takes + MARGIN;
        self.started(purpose, child, Some(until));
    }

    fn started(
        &mut self,
        purpose: ChildPurpose,
        child: std::io::Result<Child>,
        until: Option<Duration>,
    ) {
        match child {
            Ok(child) => self.jobs.push(ChildJob {
                purpose,
                child,
                until,
            }),
            Err(error) => {
                let outcome = ChildOutcome {
                    ended: Err(error),
                    said: Vec::new(),
                };
                self.take(event(purpose, outcome, &self.container_id));
            }
        }
    }

    /// Waits until then, or until an event, and handles that.
    fn wait(&mut self, until: Option<Duration>) {
        let killed_at = self.jobs.iter().filter_map(|job| job.until);
        let until = killed_at.chain(until).min();
        let left = until.map_or(LONGEST_WAIT, |at| at.saturating_sub(self.began.elapsed()));
        // One millisecond more, because the kernel's timeout is in whole milliseconds.
        let left = left.min(LONGEST_WAIT) + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let signals = PollFd::new(self.signals.as_fd(), PollFlags::POLLIN);
        let jobs = self.jobs.iter().flat_map(|job| job.child.interests());
        let mut all: Vec<_> = std::iter::once(signals).chain(jobs).collect();
        // An error is treated like no event: everything is checked anyway.
        let _ = poll(&mut all, timeout);
        drop(all);
        self.take_signals();
        self.take_ends();
    }

    fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let signal = i32::try_from(info.ssi_signo).map(Signal::try_from);
            let Ok(Ok(signal @ (Signal::SIGTERM | Signal::SIGINT))) = signal else {
                continue;
            };
            for job in &self.jobs {
                if let ChildPurpose::Run(_) = job.purpose {
                    job.child.signal(signal);
                }
            }
            self.take(ResidentEvent::Signalled);
        }
    }

    fn take_ends(&mut self) {
        let now = self.began.elapsed();
        for mut job in std::mem::take(&mut self.jobs) {
            if job.until.is_some_and(|until| now >= until) {
                job.child.signal(Signal::SIGKILL);
            }
            match job.child.poll() {
                None => self.jobs.push(job),
                Some((ended, said)) => {
                    let outcome = ChildOutcome { ended, said };
                    self.take(event(job.purpose, outcome, &self.container_id));
                }
            }
        }
    }

    fn take(&mut self, event: ResidentEvent) {
        self.state.take(self.began.elapsed(), event, random_byte());
    }
}

/// Interprets the end of a process.
fn event(purpose: ChildPurpose, outcome: ChildOutcome, container_id: &str) -> ResidentEvent {
    match purpose {
        ChildPurpose::Run(key) => ResidentEvent::Ended {
            key,
            receipt: receipt_of(&outcome),
        },
        ChildPurpose::Ask => ResidentEvent::Heard(heard(call::parse(&outcome.said), container_id)),
        ChildPurpose::Receipt(key) => ResidentEvent::Delivered {
            key,
            verdict: verdict_of_call(call::parse(&outcome.said)),
        },
    }
}

/// The receipt of a run is its process's line; if there is none, a receipt is made that says so.
fn receipt_of(outcome: &ChildOutcome) -> String {
    let line = std::str::from_utf8(&outcome.said).ok();
    let line = line.and_then(|said| Some(said.split_once('\n')?.0));
    match line.filter(|line| receipt::is_receipt(line)) {
        Some(line) => line.to_owned(),
        None => receipt::failed(Reason::Internal, &words(&outcome.ended)),
    }
}

/// Prints a line. An error is ignored.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "phpprof: {text}");
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[track_caller]
    fn check_receipt(said: &str, status: i32, expected: &str) {
        let outcome = ChildOutcome {
            ended: Ok(ExitStatus::from_raw(status)),
            said: said.into(),
        };
        assert_eq!(receipt_of(&outcome), expected);
    }

    #[test]
    fn run_without_receipt_says_how_it_ended() {
        let stored = r#"{"reason":"NotAfterPassed"}"#;
        check_receipt(&format!("{stored}\n"), 0, stored);
        // The profile was stored before the process was killed.
        check_receipt(&format!("{stored}\n"), 9, stored);
        let internal = |detail| format!(r#"{{"reason":"Internal","detail":"{detail}"}}"#);
        check_receipt("", 9, &internal("signal 9"));
        check_receipt("", 2 << 8, &internal("exit code 2"));
        check_receipt("", 0, &internal("exit code 0"));
        check_receipt("no JSON\n", 0, &internal("exit code 0"));
        check_receipt(stored, 9, &internal("signal 9"));
        let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(200));
        check_receipt(&format!("{long}\n"), 0, &internal("exit code 0"));
    }
}
