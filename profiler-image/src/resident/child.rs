//! A child process of this program: its input, its output, and how it ended.
//!
//! Invariant: nothing here waits for the child, and its output is bounded. Dropping the value ends
//! the child.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{OFlags, fcntl_setfl};

/// A child process.
pub struct Child {
    process: process::Child,
    /// The input that it has not read yet.
    input: Option<(ChildStdin, Vec<u8>)>,
    output: Option<ChildStdout>,
    said: Vec<u8>,
    /// The limit of `said`, in bytes.
    at_most: usize,
}

impl Child {
    /// Starts this program with an empty environment and this standard input; its standard error is
    /// the same as this process's.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn start<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
        input: String,
        at_most: usize,
    ) -> io::Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .arg0("phpprof")
            .args(arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Only its parent passes a terminal's signals on to it.
            .process_group(0)
            .spawn()?;
        let (stdin, output) = (process.stdin.take(), process.stdout.take());
        let mut child = Self {
            process,
            input: stdin.map(|stdin| (stdin, input.into_bytes())),
            output,
            said: Vec::new(),
            at_most,
        };
        // For this end of each pipe.
        if let Some((stdin, _)) = &child.input {
            fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        }
        if let Some(output) = &child.output {
            fcntl_setfl(output, OFlags::NONBLOCK)?;
        }
        child.write();
        Ok(child)
    }

    /// The descriptors to wait for.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let input = self.input.as_ref().map(|(stdin, _)| stdin.as_fd());
        let output = self.output.as_ref().map(AsFd::as_fd);
        let input = input.map(|fd| PollFd::new(fd, PollFlags::POLLOUT));
        let output = output.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        input.into_iter().chain(output)
    }

    /// Continues its input and its output. Once it has ended, returns how, and its output.
    pub fn poll(&mut self) -> Option<(io::Result<ExitStatus>, Vec<u8>)> {
        let ended = self.process.try_wait().transpose();
        self.write();
        self.read();
        Some((ended?, std::mem::take(&mut self.said)))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn write(&mut self) {
        while let Some((stdin, left)) = &mut self.input {
            match stdin.write(left) {
                Ok(count) if count < left.len() => drop(left.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // All is written, or the child has closed its input.
                Ok(_) | Err(_) => self.input = None,
            }
        }
    }

    fn read(&mut self) {
        let mut chunk = [0; 4096];
        while let Some(output) = &mut self.output {
            match output.read(&mut chunk) {
                Ok(0) => self.output = None,
                Ok(count) => {
                    let room = self.at_most - self.said.len();
                    self.said.extend_from_slice(&chunk[..count.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.output = None,
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail without effect if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a process ended, in a few words.
#[must_use]
pub fn words(ended: &io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, code) => format!("exit code {}", code.unwrap_or(-1)),
        },
        Err(error) => error.kind().to_string(),
    }
}
