//! `-d 0`: a run that lasts until the user ends it.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{PHP, Read, Running, Scene, record};

fn busy() -> Result<Running> {
    Running::start(Command::new(PHP).args(["-r", "while (true) md5('x');"]))
}

#[test]
fn ctrl_c_ends_with_a_valid_file() -> Result<()> {
    let (scene, target) = (Scene::new()?, busy()?);
    let output = scene.path("x.pb.gz");
    let mut command = record(["-d", "0", "--pid", &target.pid().to_string(), "-o"]);
    let mut running = Running::start(command.arg(&output).stderr(Stdio::piped()))?;
    std::thread::sleep(Duration::from_millis(1500));
    running.signal(Signal::SIGINT)?;
    ensure!(running.exit_code()? == Some(0));
    let mut said = String::new();
    running
        .0
        .stderr
        .take()
        .context("no stderr")?
        .read_to_string(&mut said)?;
    ensure!(
        said.contains("until Ctrl-C") && said.contains("stopped early"),
        "{said}"
    );
    ensure!(Read::file(&output)?.samples() > 20);
    Ok(())
}

/// On a terminal: a line is drawn again each second, Ctrl-C ends the run, and the path of the
/// written file remains on the screen.
#[test]
fn a_terminal_shows_how_it_goes_on() -> Result<()> {
    let (scene, target) = (Scene::new()?, busy()?);
    let output = scene.path("x.pb.gz");
    // `exec`: otherwise Ctrl-C would end the shell too, and its exit code (130) would be returned.
    let line = format!(
        "exec {} record -d 0 --pid {} -o {}",
        env!("CARGO_BIN_EXE_phpprof"),
        target.pid(),
        output.display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(command.spawn().context("starting script")?);
    std::thread::sleep(Duration::from_millis(2700));
    let mut terminal = running.0.stdin.take().context("no stdin")?;
    terminal.write_all(b"\x03")?;
    ensure!(running.exit_code()? == Some(0));
    let mut shown = String::new();
    running
        .0
        .stdout
        .take()
        .context("no stdout")?
        .read_to_string(&mut shown)?;
    let drawn = shown.matches("1 worker; Ctrl-C ends it").count();
    ensure!(drawn >= 2 && shown.contains(" a second, "), "{shown:?}");
    ensure!(shown.contains("\r\x1b[Kphpprof: PHP 8.2"), "{shown:?}");
    ensure!(Read::file(&output)?.samples() > 20);
    Ok(())
}
