//! The program that a target waits for: it answers each request after the time in the request.
//!
//! A request is that time in microseconds, four bytes in network order; an answer is one byte. A
//! partner's threads end with their target.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

/// How a target waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Usleep,
    /// Reading a pipe whose other end is slow.
    Pipe,
    /// Reading a socket to a slow server.
    Socket,
    /// A lock that another process holds.
    Flock,
    /// Two threads that wait for one another: one of them always works.
    Turns,
}

impl Wait {
    pub fn name(self) -> &'static str {
        match self {
            Self::Usleep => "usleep",
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::Flock => "flock",
            Self::Turns => "turns",
        }
    }
}

/// A running partner.
pub struct Partner {
    /// The path by which targets find it.
    pub path: String,
    _folder: TempDir,
}

impl Partner {
    pub fn start(wait: Wait) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("phpprof-cpu-").tempdir()?;
        let path = folder.path().join("partner");
        let path = match wait {
            Wait::Usleep => String::new(),
            Wait::Pipe | Wait::Flock => {
                answer_in_pipes(&path, wait == Wait::Flock)?;
                path.display().to_string()
            }
            Wait::Socket | Wait::Turns => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let address = listener.local_addr()?.to_string();
                std::thread::spawn(move || serve(&listener, wait == Wait::Turns));
                address
            }
        };
        Ok(Self {
            path,
            _folder: folder,
        })
    }
}

fn answer_in_pipes(path: &Path, has_lock: bool) -> Result<()> {
    let [to, from, lock] = ["to", "from", "lock"].map(|end| path.with_extension(end));
    for pipe in [&to, &from] {
        mkfifo(pipe, Mode::S_IRWXU).with_context(|| format!("making {}", pipe.display()))?;
    }
    let lock = File::create(lock)?;
    std::thread::spawn(move || -> std::io::Result<()> {
        // Each waits until the target has opened the other end.
        let requests = File::open(to)?;
        let answers = OpenOptions::new().write(true).open(from)?;
        if has_lock {
            hold(&lock, requests, answers)
        } else {
            answer(requests, answers)
        }
    });
    Ok(())
}

fn serve(listener: &TcpListener, take_turns: bool) -> std::io::Result<()> {
    let (one, _) = listener.accept()?;
    if !take_turns {
        return answer(&one, &one);
    }
    let (other, _) = listener.accept()?;
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(&one, &other));
        pass_on(&other, &one)
    })
}

/// The time in the next request.
fn asked(mut requests: impl Read) -> std::io::Result<Duration> {
    let mut microseconds = [0; 4];
    requests.read_exact(&mut microseconds)?;
    Ok(Duration::from_micros(u64::from(u32::from_be_bytes(
        microseconds,
    ))))
}

fn answer(mut requests: impl Read, mut answers: impl Write) -> std::io::Result<()> {
    loop {
        std::thread::sleep(asked(&mut requests)?);
        answers.write_all(b".")?;
    }
}

/// Answers at once, and holds the lock for the requested time.
fn hold(lock: &File, mut requests: impl Read, mut answers: impl Write) -> std::io::Result<()> {
    loop {
        let time = asked(&mut requests)?;
        lock.lock()?;
        answers.write_all(b".")?;
        std::thread::sleep(time);
        lock.unlock()?;
    }
}

/// A request of one thread is the answer to the other.
fn pass_on(mut one: &TcpStream, mut other: &TcpStream) -> std::io::Result<()> {
    while asked(&mut one).is_ok() {
        other.write_all(b".")?;
    }
    other.shutdown(std::net::Shutdown::Both)
}
