//! `top` on a terminal: what it shows, saves and leaves on the screen.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{PHP, Running, Scene, run, said, wait_until};
use phpprof_profile::{DecodeLimits, decode, total};

const SPIN: &str = "function spin() { return md5('x'); } while (true) spin();";

fn busy() -> Result<Running> {
    Running::start(Command::new(PHP).args(["-r", SPIN]))
}

/// `top` of a process, on a terminal of its own.
fn top(scene: &Scene, target: &Running) -> Result<Running> {
    // Its own terminal has no size.
    let line = format!(
        "stty rows 24 cols 80; exec {} top --pid {}",
        env!("CARGO_BIN_EXE_phpprof"),
        target.pid()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("TERM", "xterm").current_dir(scene.path(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(Running(command.spawn().context("starting script")?))
}

/// What a terminal shows, which a thread reads.
struct Shown {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Shown {
    fn of(mut stdout: ChildStdout) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                read.extend(buffer.iter().take(length));
            }
        });
        Self { bytes, reader }
    }

    /// What was shown until now.
    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// All of it, once the terminal has ended.
    fn whole(self) -> Result<String> {
        let Self { bytes, reader } = self;
        ensure!(reader.join().is_ok(), "the reader has failed");
        let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(String::from_utf8(bytes.clone())?)
    }
}

/// The processes that `script` has started.
fn children(of: &Running) -> Result<Vec<i32>> {
    let pid = of.pid();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let pids = list.split_ascii_whitespace().map(|pid| Ok(pid.parse()?));
    pids.collect()
}

#[test]
fn terminal_shows_saves_and_is_restored() -> Result<()> {
    let (scene, target) = (Scene::new()?, busy()?);
    let mut running = top(&scene, &target)?;
    // A busy machine may take a second to start it, and what it saves is as long as it has run.
    let shown = Shown::of(running.0.stdout.take().context("no stdout")?);
    wait_until("the first screen", || Ok(shown.text().contains("SELF%")))?;
    std::thread::sleep(Duration::from_millis(2200));
    let mut terminal = running.0.stdin.take().context("no stdin")?;
    terminal.write_all(b"s")?;
    let has_saved = || Ok(fs::read_dir(scene.path(""))?.next().is_some());
    wait_until("the saved profile", has_saved)?;
    // The key for lines, then the one to end.
    terminal.write_all(b"2")?;
    std::thread::sleep(Duration::from_millis(300));
    terminal.write_all(b"q")?;
    ensure!(running.exit_code()? == Some(0));
    let shown = shown.whole()?;
    // The terminal discards what is drawn between the alternate screen's beginning and end.
    let (_, drawn) = shown.split_once("\x1b[?1049h").context("not drawn")?;
    let (drawn, left) = drawn.split_once("\x1b[?1049l").context("not restored")?;
    ensure!(
        drawn.contains("SELF%") && drawn.contains("spin"),
        "{drawn:?}"
    );
    ensure!(drawn.contains("saved phpprof-top-"), "{drawn:?}");
    ensure!(left.contains("look at it with"), "{left:?}");
    let saved = fs::read_dir(scene.path(""))?.next().context("no file")??;
    let profile = decode(&fs::read(saved.path())?, &DecodeLimits::default())?;
    ensure!(total(&profile, "samples") > 50 && total(&profile, "cpu") > 0);
    ensure!(profile.duration_nanos >= 2_000_000_000);
    Ok(())
}

#[test]
fn a_terminal_that_is_gone_ends_it() -> Result<()> {
    let (scene, target) = (Scene::new()?, busy()?);
    let running = top(&scene, &target)?;
    std::thread::sleep(Duration::from_millis(1700));
    let [pid] = children(&running)?[..] else {
        anyhow::bail!("script has not started one process");
    };
    running.signal(Signal::SIGKILL)?;
    let is_there = || fs::exists(format!("/proc/{pid}/cmdline"));
    wait_until("end without a terminal", || Ok(!is_there()?))
}

#[test]
fn where_no_terminal_is_another_way_is_named() -> Result<()> {
    let target = busy()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    command.args(["top", "--pid", &target.pid().to_string()]);
    let ended = run(command.stdin(Stdio::null()))?;
    ensure!(ended.status.code() == Some(2), "{:?}", ended.status);
    ensure!(
        said(&ended).contains("record -f folded"),
        "{}",
        said(&ended)
    );
    Ok(())
}
