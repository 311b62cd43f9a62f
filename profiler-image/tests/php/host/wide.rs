//! Stacks deeper than the sampler reads, more names than it has room for, workers that are stopped,
//! and PHP that is not in a file.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{FPM, PHP, Read, Running, Scene, record, run, said, share, wait_until};

const DEEP: &str = "<?php
ini_set('memory_limit', '-1');
function descend(int $left): int {
    if ($left > 0) {
        return descend($left - 1) + 1;
    }
    $until = microtime(true) + 2;
    for ($n = 0; microtime(true) < $until; $n++) {
        md5(str_repeat('x', 2000));
    }
    return 0;
}
function nested(int $left): int {
    return $left > 0 ? array_sum(array_map('nested', [$left - 1])) + 1 : descend(0);
}
$argv[1]((int) $argv[2]);
";

/// Samples a script from its first line to its end, and returns what phpprof said.
fn sample(scene: &Scene, text: &str, arguments: &[&str], output: &str) -> Result<String> {
    let script = scene.file("script.php", text)?;
    let mut command = record(["-F", "199", "--cpu-budget-percent", "0", "-o"]);
    command.arg(scene.path(output)).args(["--", PHP]);
    let ended = run(command.arg(script).args(arguments))?;
    ensure!(ended.status.success(), "{}", said(&ended));
    Ok(said(&ended))
}

/// A profile of this depth is written, read and drawn.
fn check_deep(function: &str, depth: &str) -> Result<()> {
    let scene = Scene::new()?;
    sample(&scene, DEEP, &[function, depth], "deep.pb.gz")?;
    let read = Read::file(&scene.path("deep.pb.gz"))?;
    let cut = share(&read.folded()?, "[truncated]");
    ensure!(cut > 0.5, "{function} {depth}: {cut}");
    for output in ["deep.html", "deep.svg"] {
        sample(&scene, DEEP, &[function, depth], output)?;
        let size = fs::metadata(scene.path(output))?.len();
        ensure!(size > 1000, "{output}: {size}");
    }
    Ok(())
}

#[test]
fn recursion_deeper_than_is_read_is_profiled() -> Result<()> {
    check_deep("descend", "6000")
}

/// The share of the wall time that has this label.
fn stopped(read: &Read) -> f64 {
    let profile = &read.profile;
    let wall = profile.value_index("wall").unwrap_or(0);
    let of = |is_meant: &dyn Fn(&phpprof_profile::proto::Sample) -> bool| -> i64 {
        let samples = profile.sample.iter().filter(|sample| is_meant(sample));
        samples.map(|sample| sample.value[wall]).sum()
    };
    let is_stopped = |sample: &phpprof_profile::proto::Sample| {
        let mut labels = sample.label.iter();
        labels.any(|it| profile.string(it.key) == "waiting" && profile.string(it.str) == "stopped")
    };
    of(&is_stopped) as f64 / of(&|_| true) as f64
}

/// Stops a script after half of the time, by a way that returns what lets it go on.
fn check_stopped<T>(code: &str, stop: impl FnOnce(&Running) -> Result<T>) -> Result<()> {
    let scene = Scene::new()?;
    let ready = scene.path("ready");
    let code = format!("touch('{}'); {code}", ready.display());
    let mut command = Command::new(PHP);
    let target = Running::start(command.args(["-r", &code]).stdout(Stdio::null()))?;
    wait_until("the script", || Ok(ready.exists()))?;
    let output = scene.path("stopped.pb.gz");
    let mut command = record(["-d", "4", "-o"]);
    command
        .arg(&output)
        .args(["--pid", &target.pid().to_string()]);
    let sampler = command.stderr(Stdio::piped()).spawn()?;
    std::thread::sleep(Duration::from_millis(2200));
    let stopped_by = stop(&target)?;
    std::thread::sleep(Duration::from_millis(300));
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    let dump = run(command.args(["dump", "--pid", &target.pid().to_string()]))?;
    let ended = sampler.wait_with_output()?;
    drop(stopped_by);
    target.signal(Signal::SIGCONT)?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let read = Read::file(&output)?;
    let share = stopped(&read);
    // On a busy machine the sampler may begin late, but not after most of the stop.
    ensure!(share > 0.2, "{code}: {share}");
    ensure!(
        said(&ended).contains("are of workers that were stopped"),
        "{}",
        said(&ended)
    );
    ensure!(read.receipt["quality"]["stopped"].as_i64() > Some(20));
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    ensure!(
        dump.contains(": is stopped") && dump.contains("1 stopped, 0 waiting"),
        "{dump}"
    );
    Ok(())
}

const BUSY: &str = "while (true) { $x = md5('x'); }";
const SLEEPS: &str = "while (true) usleep(1000);";

#[test]
fn stopped_worker_waits_until_it_goes_on() -> Result<()> {
    check_stopped(BUSY, |target| target.signal(Signal::SIGSTOP))
}

/// A control group of version 1 or 2 that freezes its process until it is dropped.
struct Frozen {
    group: String,
    home: String,
    pid: i32,
    thaw: (&'static str, &'static str),
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let (file, value) = self.thaw;
        let _ = fs::write(format!("{}/{file}", self.group), value);
        let _ = fs::write(format!("{}/cgroup.procs", self.home), self.pid.to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

/// `None` where this machine does not have this version, or may not make groups.
fn freeze(home: &str, pid: i32, file: &'static str, values: [&'static str; 2]) -> Option<Frozen> {
    let group = format!("{home}/phpprof-test-{pid}");
    fs::create_dir(&group).ok()?;
    let frozen = Frozen {
        group,
        home: home.to_owned(),
        pid,
        thaw: (file, values[1]),
    };
    fs::write(format!("{}/cgroup.procs", frozen.group), pid.to_string()).ok()?;
    fs::write(format!("{}/{file}", frozen.group), values[0]).ok()?;
    Some(frozen)
}

#[test]
fn a_frozen_worker_is_stopped() -> Result<()> {
    let homes = [
        (
            "/sys/fs/cgroup/freezer",
            "freezer.state",
            ["FROZEN", "THAWED"],
        ),
        ("/sys/fs/cgroup/unified", "cgroup.freeze", ["1", "0"]),
        ("/sys/fs/cgroup", "cgroup.freeze", ["1", "0"]),
    ];
    let is_there = |home: &str, file: &str| match file {
        "cgroup.freeze" => fs::exists(format!("{home}/cgroup.controllers")).unwrap_or(false),
        _ => fs::exists(home).unwrap_or(false),
    };
    let mut tried = 0;
    for (home, file, values) in homes
        .into_iter()
        .filter(|(home, file, _)| is_there(home, file))
    {
        check_stopped(BUSY, |target| {
            freeze(home, target.pid(), file, values).context("no right to freeze")
        })?;
        tried += 1;
    }
    ensure!(tried > 0, "no control groups are mounted");
    Ok(())
}

#[test]
fn php_in_a_memfd_is_sampled() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.file(
        "w.php",
        "<?php function work() { return md5('x'); } touch(__DIR__ . '/ready'); while (true) work();",
    )?;
    let code = format!(
        "import os,sys\nfd=os.memfd_create('phpmem'); os.write(fd,open('{PHP}','rb').read()); os.execve(fd,['php']+sys.argv[1:],os.environ)"
    );
    let mut command = Command::new("python3");
    let target = Running::start(
        command
            .args(["-c", &code])
            .arg(script)
            .stdout(Stdio::null()),
    )?;
    wait_until("PHP", || Ok(scene.path("ready").exists()))?;
    let exe = fs::read_link(format!("/proc/{}/exe", target.pid()))?;
    ensure!(exe.to_string_lossy().starts_with("/memfd:"), "{exe:?}");
    let output = scene.path("memfd.pb.gz");
    let mut command = record(["-d", "2", "-o"]);
    command
        .arg(&output)
        .args(["--pid", &target.pid().to_string()]);
    let ended = run(&mut command)?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let share = share(&Read::file(&output)?.folded()?, "work");
    ensure!(share > 0.5, "{share}");
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn two_masters_with_one_pool_name_are_named() -> Result<()> {
        let scene = Scene::new()?;
        let pool = format!("twice-{}", std::process::id());
        let start = |name: &str| -> Result<Running> {
            let socket = scene.path(&format!("{name}.sock"));
            let text = format!(
                "[global]\nerror_log = /dev/null\n[{pool}]\nuser = www-data\nlisten = {}\npm = static\npm.max_children = 1\n",
                socket.display()
            );
            let path = scene.file(&format!("{name}.conf"), &text)?;
            let mut command = Command::new(FPM);
            command.args(["--nodaemonize", "--fpm-config"]).arg(path);
            let master = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
            wait_until("php-fpm", || Ok(socket.exists()))?;
            Ok(master)
        };
        let [one, other] = [start("one")?, start("other")?];
        std::thread::sleep(Duration::from_millis(300));
        let mut command = record(["-d", "2", "--include-idle", "-o"]);
        command
            .arg(scene.path("x.pb.gz"))
            .args(["--php-fpm", &pool]);
        let mut dump = Command::new(env!("CARGO_BIN_EXE_phpprof"));
        dump.args(["dump", "--php-fpm", &pool]);
        // On a terminal, with a key that ends it after the first seconds.
        let top = format!("{} top --php-fpm {pool}", env!("CARGO_BIN_EXE_phpprof"));
        let mut terminal = Command::new("sh");
        let line = format!(
            "(sleep 4; printf q) | TERM=xterm script --quiet --return --command 'stty rows 24 cols 80; {top}' /dev/null"
        );
        terminal.args(["-c", &line]);
        for command in [&mut command, &mut dump, &mut terminal] {
            let ended = run(command.stdin(Stdio::null()))?;
            // A terminal has both in one.
            let told = said(&ended) + &String::from_utf8_lossy(&ended.stdout);
            ensure!(ended.status.success(), "{told}");
            // `top` shows its beginning in the table, and leaves the whole on the screen.
            let (_, left) = told.rsplit_once("\x1b[?1049l").unwrap_or(("", &told));
            for (master, name) in [(&one, "one.conf"), (&other, "other.conf")] {
                let named = format!("1 of {} (php-fpm: master process ", master.pid());
                ensure!(left.contains(&named) && left.contains(name), "{told:?}");
            }
            let begins = format!("2 masters of php-fpm have a pool {pool}");
            let times = told.matches(&begins).count();
            ensure!(
                times == 1 + usize::from(left.len() < told.len()),
                "{told:?}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_worker_stopped_asleep_waits_until_continued() -> Result<()> {
        for code in [SLEEPS, "sleep(60);"] {
            check_stopped(code, |target| target.signal(Signal::SIGSTOP))?;
        }
        Ok(())
    }

    #[test]
    fn nested_callbacks_deeper_than_are_read_are_profiled() -> Result<()> {
        check_deep("nested", "5000")
    }
}
