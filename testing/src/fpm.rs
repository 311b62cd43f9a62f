//! php-fpm with pools of a test, and requests that it is asked by FastCGI.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::address::wait_for_socket;
use crate::process::Running;

/// Longer than a request takes on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// A pool: its name, its number of workers, and further lines of its configuration.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    /// In brackets, and in the titles of its workers.
    pub name: &'a str,
    /// Where it listens.
    pub socket: &'a Path,
    /// All of them are there from the beginning (`pm = static`).
    pub workers: usize,
    /// As it is: `user = www-data\n`.
    pub more: &'a str,
}

/// The configuration of a php-fpm with these pools.
#[must_use]
pub fn configuration(pools: &[Pool<'_>]) -> String {
    let mut text = "[global]\nerror_log = /dev/null\n".to_owned();
    for pool in pools {
        let Pool {
            name,
            socket,
            workers,
            more,
        } = pool;
        // A String takes all of it.
        let _ = write!(
            text,
            "[{name}]\nlisten = {}\npm = static\npm.max_children = {workers}\n{more}",
            socket.display()
        );
    }
    text
}

/// Starts php-fpm, in the foreground and as root, with these further arguments; waits until all its
/// pools listen.
///
/// # Errors
/// If it does not start.
pub fn start(
    program: &str,
    folder: &Path,
    pools: &[Pool<'_>],
    arguments: &[&str],
) -> Result<Running> {
    let path = folder.join("fpm.conf");
    fs::write(&path, configuration(pools))?;
    let mut command = Command::new(program);
    command
        .args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"])
        .arg(&path)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let running = Running::start(&mut command)?;
    for pool in pools {
        wait_for_socket(pool.socket)?;
    }
    Ok(running)
}

/// The parameters of a request for a script.
#[must_use]
pub fn of_script(script: &Path) -> [(&'static str, &[u8]); 3] {
    [
        ("REQUEST_METHOD", b"GET"),
        ("SCRIPT_FILENAME", script.as_os_str().as_bytes()),
        ("REQUEST_URI", b"/"),
    ]
}

/// Sends a request with these parameters, and returns where its answer comes.
///
/// # Errors
/// Those of the socket.
pub fn send(socket: &Path, parameters: &[(&str, &[u8])]) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.write_all(&request(parameters)?)?;
    Ok(stream)
}

/// The same, and its answer.
///
/// # Errors
/// As [`send`].
pub fn ask(socket: &Path, parameters: &[(&str, &[u8])]) -> Result<String> {
    let mut answer = Vec::new();
    send(socket, parameters)?.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The records of a request without a body: the begin as a responder, the parameters, and the ends
/// of these and of the body.
fn request(parameters: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    for (name, value) in parameters {
        for length in [name.len(), value.len()] {
            content.extend((u32::try_from(length)? | 1 << 31).to_be_bytes());
        }
        content.extend(name.bytes().chain(value.iter().copied()));
    }
    let mut records = Vec::new();
    let begin: &[u8] = &[0, 1, 0, 0, 0, 0, 0, 0];
    for (kind, content) in [(1, begin), (4, &content), (4, &[]), (5, &[])] {
        let [high, low] = u16::try_from(content.len())?.to_be_bytes();
        records.extend([1, kind, 0, 1, high, low, 0, 0]);
        records.extend(content);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_a_section_for_each_pool() {
        let pool = |name, socket, more| Pool {
            name,
            socket: Path::new(socket),
            workers: 3,
            more,
        };
        let pools = [
            pool("a", "/t/a", "user = www-data\n"),
            pool("b", "/t/b", ""),
        ];
        assert_eq!(
            configuration(&pools),
            "[global]\nerror_log = /dev/null\n\
             [a]\nlisten = /t/a\npm = static\npm.max_children = 3\nuser = www-data\n\
             [b]\nlisten = /t/b\npm = static\npm.max_children = 3\n"
        );
    }

    /// By the FastCGI specification, version 1.0: 3.3 (records) and 3.4 (lengths).
    #[test]
    fn request_has_its_records_in_order() -> Result<()> {
        let parameters = [0x80, 0, 0, 1, 0x80, 0, 0, 2, b'A', b'b', b'c'];
        let expected = [
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
            &[1, 4, 0, 1, 0, 11, 0, 0],
            &parameters,
            &[1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(request(&[("A", b"bc")])?, expected.concat());
        Ok(())
    }
}
