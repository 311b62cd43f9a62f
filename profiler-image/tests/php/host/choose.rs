//! Processes that are selected by their pool, name or control group; and the message if none fits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::scene::{FPM, PHP, Read, Running, Scene, record, run, said, wait_until};

/// A php-fpm with the pools `web` and `api`, of this scene; its name is in their titles.
fn php_fpm(scene: &Scene, tag: &str) -> Result<Running> {
    let [web, api] = ["web", "api"].map(|name| format!("{tag}-{name}"));
    let pools = [(web.as_str(), 2), (api.as_str(), 1)];
    let master = super::scene::php_fpm(scene, &pools, "user = www-data\n")?;
    let all_there = || Ok(children(&master, tag)?.len() == 3);
    wait_until("php-fpm", all_there)?;
    Ok(master)
}

/// The workers whose title contains this, in order.
fn children(master: &Running, part: &str) -> Result<Vec<i32>> {
    let pid = master.pid();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut pids = Vec::new();
    for pid in list.split_ascii_whitespace() {
        let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&title).contains(&format!("pool {part}")) {
            pids.push(pid.parse()?);
        }
    }
    pids.sort_unstable();
    Ok(pids)
}

fn check(arguments: &[&str], expected: &[i32]) -> Result<()> {
    let scene = Scene::new()?;
    let output = scene.path("x.pb.gz");
    let mut command = record(["-d", "1", "--include-idle", "-o"]);
    let ended = run(command.arg(&output).args(arguments))?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let pids = Read::file(&output)?.pids();
    ensure!(
        pids == expected,
        "{arguments:?}: {pids:?}, not {expected:?}"
    );
    Ok(())
}

#[test]
fn pool_stands_for_its_workers_alone() -> Result<()> {
    let scene = Scene::new()?;
    let master = php_fpm(&scene, "chosen")?;
    let web = children(&master, "chosen-web")?;
    ensure!(web.len() == 2);
    check(&["--php-fpm", "chosen-web"], &web)?;
    check(
        &["--php-fpm", "chosen-api"],
        &children(&master, "chosen-api")?,
    )
}

#[test]
fn later_worker_is_of_its_pool() -> Result<()> {
    let scene = Scene::new()?;
    let master = php_fpm(&scene, "later")?;
    let before = children(&master, "later-web")?;
    let output = scene.path("x.pb.gz");
    let mut command = record(["-d", "2", "--include-idle", "--php-fpm", "later-web", "-o"]);
    let mut running = Running::start(command.arg(&output).stderr(Stdio::null()))?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = nix::unistd::Pid::from_raw(before[0]);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    ensure!(running.exit_code()? == Some(0));
    let after = children(&master, "later-web")?;
    let pids = Read::file(&output)?.pids();
    ensure!(
        pids.len() == 3 && after.iter().all(|pid| pids.contains(pid)),
        "{pids:?} {after:?}"
    );
    Ok(())
}

fn sleeper(script: &Path) -> Result<Running> {
    let mut command = Command::new(PHP);
    let target = Running::start(command.arg(script).arg("argument-of-a-test"))?;
    // Before its engine has started it does not count as PHP.
    std::thread::sleep(std::time::Duration::from_millis(300));
    Ok(target)
}

#[test]
fn a_name_is_looked_for_in_command_lines() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.file("named.php", "<?php while (true) usleep(1000);")?;
    let other = scene.file("other.php", "<?php while (true) usleep(1000);")?;
    let (target, _other) = (sleeper(&script)?, sleeper(&other)?);
    let name = script.to_string_lossy().into_owned();
    check(&["--name", &name], &[target.pid()])
}

/// The folder of control groups, if groups can be made: version 2, or any hierarchy of version 1.
fn hierarchy() -> Option<PathBuf> {
    let roots = [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/pids",
        "/sys/fs/cgroup/freezer",
    ];
    let mut roots = roots.into_iter().map(PathBuf::from);
    roots.find(|root| root.join("cgroup.procs").exists())
}

/// A control group that is removed with its test.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn control_group_stands_for_its_processes() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.file("grouped.php", "<?php while (true) usleep(1000);")?;
    let name = format!("phpprof-test-{}", std::process::id());
    let root = hierarchy().context("no control groups are mounted")?;
    let group = Group(root.join(&name));
    fs::create_dir(&group.0)?;
    let (target, _other) = (sleeper(&script)?, sleeper(&script)?);
    fs::write(group.0.join("cgroup.procs"), target.pid().to_string())?;
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", target.pid()))?;
    let line = groups.lines().find(|line| line.ends_with(&name));
    let path = line
        .and_then(|line| line.splitn(3, ':').nth(2))
        .context("it is not there")?;
    check(&["--cgroup", path], &[target.pid()])?;
    drop(target);
    drop(group);
    Ok(())
}

#[test]
fn missing_choice_says_what_there_is() -> Result<()> {
    let scene = Scene::new()?;
    let master = php_fpm(&scene, "there")?;
    let tries = [
        (&[][..], 2, "choose what to sample"),
        (
            &["-d", "2", "--php-fpm", "nosuch"],
            10,
            "a worker of php-fpm's pool nosuch was not found",
        ),
        (
            &["--name", "no such name"],
            10,
            "command line contains no such name",
        ),
        (
            &["--cgroup", "/no/such"],
            10,
            "in the control group /no/such",
        ),
        (&["--pid", "4194304"], 10, "no process 4194304 was found"),
    ];
    let start = |arguments: &[&str]| {
        let mut command = record(["-o"]);
        command
            .arg(scene.path("x.pb.gz"))
            .args(arguments)
            .stderr(Stdio::piped());
        command.spawn()
    };
    let started = tries.map(|(arguments, ..)| start(arguments));
    for ((arguments, code, told), child) in tries.into_iter().zip(started) {
        let ended = child?.wait_with_output()?;
        ensure!(
            ended.status.code() == Some(code),
            "{arguments:?}: {}",
            said(&ended)
        );
        ensure!(said(&ended).contains(told), "{}", said(&ended));
        ensure!(
            said(&ended).contains("--php-fpm there-web: 2 workers (PHP 8.2"),
            "{}",
            said(&ended)
        );
        let master = format!("--pid {}: php-fpm: master process", master.pid());
        ensure!(said(&ended).contains(&master), "{}", said(&ended));
    }
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    /// A pool whose workers php-fpm starts for a request, and ends a second after it.
    #[test]
    fn waits_for_the_first_worker_of_a_pool() -> Result<()> {
        let scene = Scene::new()?;
        let (configuration, socket) = (scene.path("ondemand.conf"), scene.path("ondemand.socket"));
        fs::write(
            &configuration,
            format!(
                "[global]\nerror_log = /dev/null\n[first-web]\nuser = www-data\nlisten = {}\nlisten.mode = 0666\npm = ondemand\n\
                 pm.max_children = 2\npm.process_idle_timeout = 1s\n",
                socket.display()
            ),
        )?;
        let mut fpm = Command::new(FPM);
        fpm.args(["--nodaemonize", "-n", "--fpm-config"])
            .arg(&configuration);
        let _master = Running::start(&mut fpm)?;
        wait_until("php-fpm", || Ok(socket.exists()))?;
        let output = scene.path("x.pb.gz");
        let mut command = record(["-d", "20", "--include-idle", "--php-fpm", "first-web", "-o"]);
        let mut running = Running::start(command.arg(&output).stderr(Stdio::null()))?;
        // Longer than a run without a worker waits otherwise.
        std::thread::sleep(std::time::Duration::from_secs(3));
        ensure!(running.0.try_wait()?.is_none(), "it did not wait");
        // A connection without a request starts a worker.
        let connection = std::os::unix::net::UnixStream::connect(&socket)?;
        std::thread::sleep(std::time::Duration::from_secs(2));
        let pid = nix::unistd::Pid::from_raw(running.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        ensure!(running.exit_code()? == Some(0));
        drop(connection);
        ensure!(Read::file(&output)?.pids().len() == 1);
        Ok(())
    }
}
