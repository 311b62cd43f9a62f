//! A PHP that cannot be sampled, and what a user is told of it.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use phpprof_testing::{Running, wait_until};

use crate::runtime::{Php, Program};

/// Debian's PHP for i386, which this machine's kernel runs if it was built with
/// CONFIG_IA32_EMULATION.
const PHP: Php = Php::Chroot("debian-bookworm-i386", "8.2");
pub const NAME: &str = "cli 8.2 of 32 bits";
/// That of `UnsupportedVersion`.
const UNSUPPORTED: i32 = 11;

/// Whether `record` and `dump` name a 32-bit PHP as such.
pub fn holds() -> bool {
    let refused = run();
    match &refused {
        Ok(()) => println!("{NAME}: refused by name"),
        Err(error) => println!("{NAME}\n    WRONG: {error:#}"),
    }
    refused.is_ok()
}

fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = PHP.path(Program::Cli);
    let mut command = PHP.command(folder.path(), &program);
    command.args(["-n", "-r", "while (true) md5('x');"]);
    let child = command.stdin(Stdio::null()).spawn();
    let mut target = Running(child.with_context(|| program.display().to_string())?);
    let pid = target.0.id();
    wait_for_php(&mut target.0)?;
    let output = folder.path().join("x.pb.gz").display().to_string();
    let pid = format!("--pid={pid}");
    for arguments in [
        ["record", &pid, "-d2", "-o", &output].as_slice(),
        &["dump", &pid],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
        let ended = command.args(arguments).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(
            ended.status.code() == Some(UNSUPPORTED)
                && said
                    .contains("/usr/bin/php8.2 is a 32-bit PHP; 32-bit engines are not supported"),
            "{arguments:?}: {}: {said}",
            ended.status
        );
    }
    Ok(())
}

/// Waits until the process has become PHP: a kernel that runs no 32-bit programs ends it instead.
fn wait_for_php(child: &mut Child) -> Result<()> {
    wait_until("PHP", || {
        if let Some(status) = child.try_wait()? {
            bail!(
                "PHP has ended with {status}: it needs profiler-image/runtimes/build debian-bookworm-i386, and a kernel with CONFIG_IA32_EMULATION"
            );
        }
        let path = fs::read_link(format!("/proc/{}/exe", child.id()));
        Ok(path.is_ok_and(|path| path.ends_with("usr/bin/php8.2")))
    })?;
    // Its engine starts within this time, or another reason would be named.
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}
