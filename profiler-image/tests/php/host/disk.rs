//! Workers that wait for a disk, in uninterruptible sleep: what a profile and `dump` say of them.
//!
//! The disk is an image on a loop device, which is frozen. Invariant: nothing else is, and it thaws
//! whatever happens to the test (`frozen.sh`).

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::{proto, total, waiting};
use serde_json::Value;

use super::scene::{PHP, Read, Running, Scene, record, run, said, wait_until};

/// Writes for a minute at most, even if its test is killed. The name of `error_log` does not say to
/// what, that of `fwrite` does.
const WRITES: &str = "<?php
[, $function, $path] = $argv;
function logs($path) { error_log('x', 3, $path); }
function writes($path) { static $file; $file ??= fopen($path, 'a'); fwrite($file, 'x'); }
while (time() < $_SERVER['REQUEST_TIME'] + 60) { $function($path); usleep(1000); }
";

/// A disk of this scene.
struct Disk {
    // It ends once its input does: that is dropped first.
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    script: Running,
}

impl Disk {
    fn mount(scene: &Scene) -> Result<Self> {
        let mut command = Command::new("bash");
        command.args(["-c", include_str!("frozen.sh"), "frozen.sh"]);
        command.arg(scene.path(""));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut script = Running(child.context("frozen.sh")?);
        let words = script.0.stdin.take();
        let answers = script.0.stdout.take().context("no stdout")?;
        let mut disk = Self {
            words,
            answers: BufReader::new(answers),
            script,
        };
        disk.answer("mounted")?;
        Ok(disk)
    }

    fn answer(&mut self, expected: &str) -> Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        ensure!(line.trim_end() == expected, "frozen.sh has ended: {line:?}");
        Ok(())
    }

    fn tell(&mut self, word: &str) -> Result<()> {
        writeln!(self.words.as_ref().context("no stdin")?, "{word}")?;
        self.answer(word)
    }

    /// Calls this while the disk stands still. Who waits for it cannot even be killed then, so it
    /// continues before an error is returned.
    fn frozen<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.tell("freeze")?;
        let found = call();
        self.tell("thaw")?;
        found
    }

    fn end(mut self) -> Result<()> {
        self.words = None;
        ensure!(self.script.exit_code()? == Some(0), "frozen.sh has failed");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.words = None;
        let _ = self.script.exit_code();
    }
}

/// The devices of an image.
fn devices(image: &Path) -> Result<String> {
    let found = run(Command::new("losetup").arg("--associated").arg(image))?;
    ensure!(found.status.success(), "{}", said(&found));
    Ok(String::from_utf8(found.stdout)?)
}

fn writer(script: &Path, function: &str, path: &Path) -> Result<Running> {
    Running::start(Command::new(PHP).arg(script).arg(function).arg(path))
}

fn state(target: &Running) -> Result<Option<char>> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", target.pid()))?;
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    Ok(fields.and_then(|fields| fields.chars().next()))
}

/// The share of a second of the process's time that waits for this kind.
fn waited(scene: &Scene, target: &Running, kind: &str) -> Result<f64> {
    let output = scene.path("x.pb.gz");
    let pid = target.pid().to_string();
    let ended = run(record(["-d", "1", "--pid", &pid, "-o"]).arg(&output))?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let profile = waiting::labelled(&Read::file(&output)?.profile);
    let is_so = |label: &proto::Label| {
        profile.string(label.key) == waiting::LABEL && profile.string(label.str) == kind
    };
    let mut part = profile.clone();
    part.sample.retain(|it| it.label.iter().any(is_so));
    Ok(total(&part, "wall") as f64 / total(&profile, "wall") as f64)
}

/// What `dump` says of the process.
fn dumped(target: &Running) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    let pid = target.pid().to_string();
    command.args(["dump", "-o", "json", "--pid", &pid]);
    let ended = run(command.stdin(Stdio::null()))?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let dumped: Value = serde_json::from_slice(&ended.stdout)?;
    Ok(dumped["workers"][0].clone())
}

#[test]
fn uninterruptible_worker_waits_for_a_disk() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.file("writes.php", WRITES)?;
    let mut disk = Disk::mount(&scene)?;
    let start = |function: &str| writer(&script, function, &scene.path("mounted").join(function));
    let (logs, writes) = (start("logs")?, start("writes")?);
    for function in ["logs", "writes"] {
        let path = scene.path("mounted").join(function);
        let has_written = || Ok(fs::metadata(&path).is_ok_and(|file| file.len() > 0));
        wait_until("a written file", has_written)?;
    }
    let free = waited(&scene, &logs, waiting::DISK)?;
    ensure!(free < 0.5, "{free} before the disk stands still");

    let (frozen, of_disk, of_leaf, told) = disk.frozen(|| {
        for target in [&logs, &writes] {
            wait_until("state D", || Ok(state(target)? == Some('D')))?;
        }
        Ok((
            waited(&scene, &logs, waiting::DISK)?,
            waited(&scene, &writes, waiting::DISK)?,
            waited(&scene, &writes, "stream")?,
            dumped(&logs)?,
        ))
    })?;
    ensure!(frozen > 0.9, "{frozen} waits for the disk");
    ensure!(of_disk == 0.0 && of_leaf > 0.9, "{of_disk}, {of_leaf}");
    ensure!(
        told["state"] == "Waiting" && told["stack"][0]["function"] == "error_log",
        "{told:#}"
    );
    ensure!(told["systemCall"].is_object(), "{told:#}");

    drop((logs, writes));
    disk.end()?;
    wait_until("a free loop device", || {
        Ok(devices(&scene.path("image"))?.is_empty())
    })
}
