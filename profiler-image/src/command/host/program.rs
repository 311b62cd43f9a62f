//! Starts a program in order to sample it. The program has the terminal and gets the signals, and
//! phpprof ends with its exit code.
//!
//! It is not stopped or traced. Invariant: its PID stays reserved until [`StartedProgram::end`] has
//! begun, and no signal is sent to it after that.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::run::stop::{StopSwitch, is_hangup_ignored};

/// asm-generic/siginfo.h: the kernel sent the signal. A terminal's Ctrl-C goes to all its
/// foreground processes, so the program has it already.
const SI_KERNEL: i32 = 0x80;
/// A shell adds this to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// A program that runs.
pub struct StartedProgram {
    child: Child,
    name: String,
    /// The process that signals go to, until it is reaped.
    receiver: Arc<Mutex<Option<Pid>>>,
}

impl StartedProgram {
    /// Starts the program, and requests a stop when it has ended. From here on this process passes
    /// its own signals on.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[OsString], stop: &StopSwitch) -> Result<Self, SamplerFailure> {
        let name = words.first().cloned().unwrap_or_default();
        let mut command = Command::new(&name);
        command.args(words.iter().skip(1));
        let name = name.to_string_lossy().into_owned();
        // The program decides what happens when a terminal closes: if it ignores that, so does this
        // process.
        let is_hangup_ignored = is_hangup_ignored();
        // The program inherits the current signal mask.
        let child = command.spawn().map_err(|error| {
            let message = format!("{name} could not be started: {error}");
            SamplerFailure::new(Reason::Usage, "program", message)
        })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let receiver = Arc::new(Mutex::new(Some(pid)));
        let program = Self {
            child,
            name,
            receiver: Arc::clone(&receiver),
        };
        let stop = stop.clone();
        let begun = signals(is_hangup_ignored).and_then(|signals| {
            spawn("signals", move || pass_on(&signals, &receiver))?;
            spawn("program", move || {
                wait(pid);
                stop.request("keep");
            })
        });
        begun.map_err(|error| {
            let message = format!("the sampler of {} failed: {error}", program.name);
            SamplerFailure::new(Reason::Internal, "program", message)
        })?;
        Ok(program)
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the program has ended, and returns its exit code as a shell does.
    pub fn end(mut self) -> u8 {
        wait(Pid::from_raw(self.pid()));
        *receiver(&self.receiver) = None;
        self.child.wait().map_or(1, exit_code)
    }
}

/// Waits until a child has ended, without reaping it, so that its PID is not reused.
fn wait(pid: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Blocks the signals of this and all later threads, to be read instead.
fn signals(is_hangup_ignored: bool) -> std::io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    if !is_hangup_ignored {
        set.add(Signal::SIGHUP);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?)
}

/// Passes on each signal that the program has not received itself.
fn pass_on(signals: &SignalFd, to: &Mutex<Option<Pid>>) {
    loop {
        match signals.read_signal() {
            Ok(Some(info)) if info.ssi_code != SI_KERNEL => {
                let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                // The lock is held while the signal is sent, so that the PID is not reused
                // meanwhile.
                let to = receiver(to);
                if let (Some(pid), Ok(signal)) = (*to, Signal::try_from(number)) {
                    let _ = kill(pid, signal);
                }
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn receiver(of: &Mutex<Option<Pid>>) -> std::sync::MutexGuard<'_, Option<Pid>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit code as a shell reports it.
fn exit_code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map(|signal| SIGNALLED + signal);
    let code = status.code().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_the_shells() {
        let code = |wait_status| exit_code(ExitStatus::from_raw(wait_status));
        assert_eq!([code(0), code(3 << 8), code(255 << 8)], [0, 3, 255]);
        assert_eq!([code(9), code(15)], [137, 143]);
    }
}
