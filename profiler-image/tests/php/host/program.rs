//! `record -- PROGRAM`: the program is sampled from its beginning on, and phpprof ends with it.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{PHP, Read, Running, Scene, record, run, said, share, wait_until};

/// `phpprof record -o FILE -- php …`.
fn recording(output: &Path, arguments: &[&str]) -> Command {
    let mut command = record(["-F", "500", "--cpu-budget-percent", "0", "-o"]);
    command.arg(output).args(["--", PHP]).args(arguments);
    command
}

/// A script that runs for this many milliseconds in each of its functions.
const SHARES: &str = "<?php
function during(int $ms) { $end = hrtime(true) + $ms * 1e6; while (hrtime(true) < $end) md5('x'); }
function early() { during(200); }
function late() { during(600); }
echo \"to standard output\n\";
fwrite(STDERR, 'got ' . fgets(STDIN) . implode(',', array_slice($argv, 1)));
early();
late();
";

#[test]
fn script_is_sampled_from_its_first_function() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.file("shares.php", SHARES)?;
    let output = scene.path("x.pb.gz");
    let script = script.to_string_lossy();
    let mut command = recording(&output, &[&script, "-a", "--", "b c"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = command.spawn()?;
    let mut stdin = running.stdin.take().context("no stdin")?;
    stdin.write_all(b"from standard input\n")?;
    let ended = running.wait_with_output()?;
    ensure!(ended.status.code() == Some(0), "{}", said(&ended));
    ensure!(ended.stdout == b"to standard output\n");
    let is_told = said(&ended).contains("got from standard input\n-a,--,b c");
    ensure!(is_told, "{}", said(&ended));
    let stacks = Read::file(&output)?.folded()?;
    let shares = [share(&stacks, "early"), share(&stacks, "late")];
    ensure!(
        (shares[0] - 0.25).abs() < 0.06 && (shares[1] - 0.75).abs() < 0.06,
        "{shares:?}"
    );
    Ok(())
}

/// Checks the exit code of phpprof for a program with this script.
fn check_exit_code(script: &str, expected: i32) -> Result<()> {
    let scene = Scene::new()?;
    let output = scene.path("x.pb.gz");
    let script = format!("$end = hrtime(true) + 400e6; while (hrtime(true) < $end); {script}");
    let ended = run(&mut recording(&output, &["-r", &script]))?;
    ensure!(
        ended.status.code() == Some(expected),
        "{}: {}",
        ended.status,
        said(&ended)
    );
    ensure!(Read::file(&output)?.samples() > 0);
    Ok(())
}

#[test]
fn the_exit_code_is_the_program_s() -> Result<()> {
    check_exit_code("exit(0);", 0)?;
    check_exit_code("exit(3);", 3)?;
    check_exit_code("posix_kill(getmypid(), 9); sleep(9);", 137)?;
    check_exit_code("posix_kill(getmypid(), 15); sleep(9);", 143)
}

#[test]
fn program_without_php_ends_as_usual() -> Result<()> {
    let scene = Scene::new()?;
    let output = scene.path("x.pb.gz");
    let shell = |script: &str| {
        let mut command = record(["-o"]);
        run(command.arg(&output).args(["--", "sh", "-c", script]))
    };
    let ended = shell("sleep 0.2; exit 7")?;
    ensure!(ended.status.code() == Some(7), "{}", said(&ended));
    ensure!(
        said(&ended).contains("before it ran PHP"),
        "{}",
        said(&ended)
    );
    let ended = shell("exit 0")?;
    ensure!(ended.status.code() == Some(30), "{}", said(&ended));
    let mut command = record(["-o"]);
    let ended = run(command.arg(&output).args(["--", "/no/such/program"]))?;
    ensure!(ended.status.code() == Some(2), "{}", said(&ended));
    ensure!(said(&ended).contains("/no/such/program could not be started"));
    ensure!(scene.has_only(&[])?);
    Ok(())
}

#[test]
fn children_are_sampled_without_php_above() -> Result<()> {
    let scene = Scene::new()?;
    let output = scene.path("x.pb.gz");
    let script = "$child = pcntl_fork(); $end = hrtime(true) + 1500e6;
        while (hrtime(true) < $end) md5('x');
        if ($child) pcntl_wait($status);";
    let mut command = record(["-F", "500", "--cpu-budget-percent", "0", "-o"]);
    command.arg(&output).args(["--", "sh", "-c"]);
    let ended = run(command
        .arg(format!("sleep 0.3; {PHP} -r \"$0\"; exit 5"))
        .arg(script))?;
    ensure!(ended.status.code() == Some(5), "{}", said(&ended));
    let pids = Read::file(&output)?.pids();
    ensure!(pids.len() == 2, "{pids:?}");
    Ok(())
}

/// A program that prints which signals it gets, and continues after them.
const LISTENS: &str = "pcntl_async_signals(true); $seen = $argv[1];
    foreach ([SIGINT, SIGTERM, SIGHUP] as $signal)
        pcntl_signal($signal, fn($number) => file_put_contents($seen, \"$number \", FILE_APPEND));
    file_put_contents($seen, 'begun ');
    $end = time() + 15;
    while (time() < $end && substr_count(file_get_contents($seen), ' ') < 4) usleep(1000);
    usleep(1000000); exit(6);";

#[test]
fn signals_reach_the_program() -> Result<()> {
    let scene = Scene::new()?;
    let (output, seen) = (scene.path("x.pb.gz"), scene.path("seen"));
    let recording = recording(&output, &["-r", LISTENS, &seen.to_string_lossy()]);
    // Who runs the tests may ignore SIGHUP, as nohup does.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(recording.get_program())
        .args(recording.get_args());
    let mut running = Running::start(command.stderr(Stdio::null()))?;
    let mut so_far = "begun ".to_owned();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let has = || Ok(fs::read_to_string(&seen).is_ok_and(|text| text == so_far));
        wait_until("the signal", has)?;
        running.signal(signal)?;
        so_far += &format!("{} ", signal as i32);
    }
    ensure!(running.exit_code()? == Some(6));
    ensure!(fs::read_to_string(&seen)? == so_far);
    ensure!(Read::file(&output)?.samples() > 0);
    Ok(())
}

#[test]
fn a_program_outlives_the_time_that_is_sampled() -> Result<()> {
    let scene = Scene::new()?;
    let output = scene.path("x.pb.gz");
    let script = "$end = time() + 15; while (time() < $end && !file_exists($argv[1])) usleep(1000); exit(4);";
    let end = scene.path("end");
    let mut command = recording(&output, &["-r", script, &end.to_string_lossy()]);
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = Command::new(command.get_program());
    command
        .args(&arguments[..1])
        .args(["-d", "1"])
        .args(&arguments[1..]);
    let mut running = Running::start(command.stderr(Stdio::null()))?;
    wait_until("the profile", || Ok(output.exists()))?;
    ensure!(
        running.0.try_wait()?.is_none(),
        "it has ended before its program"
    );
    fs::write(&end, "")?;
    ensure!(running.exit_code()? == Some(4));
    Ok(())
}

/// The terminal sends SIGINT to all processes in its foreground: the program gets it once, and not
/// again from phpprof.
#[test]
fn ctrl_c_reaches_the_program_once() -> Result<()> {
    let scene = Scene::new()?;
    let (output, seen) = (scene.path("x.pb.gz"), scene.path("seen"));
    let script = "pcntl_async_signals(true); $seen = $argv[1];
        pcntl_signal(SIGINT, fn() => file_put_contents($seen, 'x', FILE_APPEND));
        file_put_contents($seen, 'begun '); $end = 0;
        while (!$end || hrtime(true) < $end) {
            usleep(1000);
            if (!$end && str_contains(file_get_contents($seen), 'x')) $end = hrtime(true) + 1e9;
        } exit(8);";
    let inner = scene.file("inner.php", &format!("<?php {script}"))?;
    // `exec`: otherwise Ctrl-C would end the shell too, and its exit code (130) would be returned.
    let line = format!(
        "exec {} record -o {} -- {PHP} {} {}",
        env!("CARGO_BIN_EXE_phpprof"),
        output.display(),
        inner.display(),
        seen.display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0);
    let mut running = Running(command.spawn().context("starting script")?);
    wait_until("the program", || Ok(fs::read_to_string(&seen).is_ok()))?;
    let mut terminal = running.0.stdin.take().context("no stdin")?;
    terminal.write_all(b"\x03")?;
    ensure!(running.exit_code()? == Some(8));
    ensure!(fs::read_to_string(&seen)? == "begun x");
    ensure!(Read::file(&output)?.samples() > 0);
    Ok(())
}

#[test]
fn phpprof_ends_soon_after_its_program() -> Result<()> {
    let scene = Scene::new()?;
    let began = Instant::now();
    let ended = run(&mut recording(
        &scene.path("x.svg"),
        &["-r", "usleep(300000);"],
    ))?;
    ensure!(
        ended.status.success() && began.elapsed() < Duration::from_secs(5),
        "{}",
        said(&ended)
    );
    Ok(())
}
