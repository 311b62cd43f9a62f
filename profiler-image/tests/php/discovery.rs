//! Finds workers, and notices their end: late `execve`, reused PIDs, families,
//! and targets that end. It requires root, setpriv, and this machine's PHP 8.2.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::programs;
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof::target::Scope;
use phpprof::target::discovery::Discovery;
use phpprof::target::process::Process;
use phpprof::target::process::calls::SystemCallCounts;
use phpprof::target::process::stat::Watch;
use phpprof_testing::Running;
use phpprof_zend::memory::{Memory as _, MemoryFault};

const PHP: &str = "/usr/bin/php8.2";
const FPM: &str = "/usr/sbin/php-fpm8.2";
/// The sampler's own interval.
const EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);

fn started(command: &mut Command) -> Result<Running> {
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn php() -> Result<Running> {
    started(Command::new(PHP).args(["-r", "while (true) usleep(1000);"]))
}

fn scope(target: &Running) -> Scope {
    Scope::Pids(vec![target.pid()])
}

/// Scans until this many workers have been found.
fn find(discovery: &mut Discovery, workers: usize) -> Result<Vec<Arc<Process>>> {
    let began = Instant::now();
    let mut found = Vec::new();
    while found.len() < workers {
        ensure!(
            began.elapsed() < PATIENCE,
            "{} of {workers} workers were found",
            found.len()
        );
        found.extend(discovery.scan().new);
        std::thread::sleep(EVERY);
    }
    Ok(found)
}

/// A program that the discovery knows, started again: its engine is found again with few reads, and
/// is what a complete search finds.
#[test]
fn known_program_is_found_where_it_is() -> Result<()> {
    let (first, second) = (php()?, php()?);
    let mut discovery = Discovery::new(Scope::Pids(vec![first.pid(), second.pid()]));
    let both = find(&mut discovery, 2)?;
    ensure!(both[0].family != both[1].family);
    ensure!(both[0].engine.executor_globals != both[1].engine.executor_globals);
    for process in both {
        let mut alone = Discovery::new(Scope::Pids(vec![process.pid]));
        let complete = find(&mut alone, 1)?;
        let (again, complete) = (
            format!("{:?}", process.engine),
            format!("{:?}", complete[0].engine),
        );
        ensure!(again == complete, "{again}\n{complete}");
    }
    Ok(())
}

/// An update puts another program where the known one was.
#[test]
fn other_program_at_known_path_is_searched() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (path, script) = (folder.path().join("php"), folder.path().join("a.php"));
    fs::write(&script, "<?php while (true) usleep(1000);")?;
    let start = |source: &str| -> Result<Running> {
        // As a package manager does it: the running program keeps its file.
        let new = folder.path().join("new");
        fs::copy(source, &new)?;
        fs::rename(&new, &path)?;
        started(
            Command::new(&path)
                .arg(&script)
                .env("SCRIPT_FILENAME", &script)
                .env("REDIRECT_STATUS", "200"),
        )
    };
    let mut sapis = Vec::new();
    let mut discovery = Discovery::new(Scope::All);
    for source in [PHP, "/usr/bin/php-cgi8.2"] {
        let target = start(source)?;
        let own = |process: &Arc<Process>| process.pid == target.pid();
        let began = Instant::now();
        let process = loop {
            ensure!(began.elapsed() < PATIENCE, "{source} was not found");
            if let Some(process) = discovery.scan().new.into_iter().find(own) {
                break process;
            }
            std::thread::sleep(EVERY);
        };
        ensure!(
            Path::new(&process.executable) == path,
            "{}",
            process.executable
        );
        sapis.push(process.engine.sapi.clone());
    }
    ensure!(sapis == ["cli", "cgi-fcgi"], "{sapis:?}");
    Ok(())
}

/// Scans until a condition on the changes holds.
fn wait(discovery: &mut Discovery, holds: impl Fn(&mut Discovery) -> bool) -> Result<Duration> {
    let began = Instant::now();
    while !holds(discovery) {
        ensure!(began.elapsed() < PATIENCE, "it does not come to that");
        std::thread::sleep(EVERY);
    }
    Ok(began.elapsed())
}

/// Starts php-fpm with lines of its pool's configuration.
fn php_fpm(folder: &Path, pool: &str) -> Result<Running> {
    let (configuration, socket) = (folder.join("fpm.conf"), folder.join("socket"));
    let text = format!(
        "[global]\nerror_log = /dev/null\n[www]\nuser = www-data\nlisten = {}\n{pool}",
        socket.display()
    );
    fs::write(&configuration, text)?;
    started(
        Command::new(FPM)
            .args(["--nodaemonize", "--fpm-config"])
            .arg(configuration),
    )
}

#[test]
fn late_php_under_the_same_name_is_found() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let shell = folder.path().join("php8.2");
    programs::copy("/bin/sh", &shell)?;
    let script = format!("sleep 2; exec {PHP} -r 'while (true) usleep(1000);'");
    let target = started(Command::new(shell).args(["-c", &script]))?;
    let mut discovery = Discovery::new(scope(&target));
    let found = find(&mut discovery, 1)?;
    ensure!(found[0].pid == target.pid(), "{found:?}");
    Ok(())
}

#[test]
fn script_becoming_other_php_is_found_again() -> Result<()> {
    let script =
        format!("usleep(1500000); pcntl_exec({PHP:?}, ['-r', 'while (true) usleep(1000);']);");
    let target = started(Command::new(PHP).args(["-r", &script]))?;
    let mut discovery = Discovery::new(scope(&target));
    let found = find(&mut discovery, 2)?;
    let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
    ensure!(
        pids == [target.pid(); 2] && found[0].family != found[1].family,
        "{found:?}"
    );
    ensure!(found[0].memory.bound_word(found[0].engine.fingerprint_at) == Err(MemoryFault::Gone));
    Ok(())
}

/// A script that has stopped, and is too old to count as starting.
struct Stopped {
    target: Running,
    memory: fs::File,
    /// The pointer to its table of functions, and its value.
    word: (u64, [u8; 8]),
}

impl Stopped {
    fn new() -> Result<Self> {
        let target = php()?;
        let found = find(&mut Discovery::new(scope(&target)), 1)?;
        std::thread::sleep(Duration::from_millis(1100));
        kill(Pid::from_raw(target.pid()), Signal::SIGSTOP)?;
        let memory = fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{}/mem", target.pid()))?;
        let (at, mut word) = (found[0].engine.fingerprint_at, [0; 8]);
        memory.read_exact_at(&mut word, at)?;
        Ok(Self {
            target,
            memory,
            word: (at, word),
        })
    }

    /// Makes the engine look as while its table is moved, or whole again.
    fn tear(&self, is_torn: bool) -> Result<()> {
        let (at, word) = self.word;
        let torn = 8_u64.to_le_bytes();
        Ok(self
            .memory
            .write_all_at(if is_torn { &torn } else { &word }, at)?)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // While it is stopped, it does not take the milder signal.
        let _ = self.target.0.kill();
    }
}

#[test]
fn worker_moving_a_table_is_examined_again() -> Result<()> {
    let stopped = Stopped::new()?;
    stopped.tear(true)?;
    let mut discovery = Discovery::new(scope(&stopped.target));
    ensure!(discovery.scan().new.is_empty());
    let refused = discovery.refused().context("nothing is refused")?;
    ensure!(!refused.is_final(), "{refused:?}");
    ensure!(discovery.rest() == Duration::ZERO);
    stopped.tear(false)?;
    find(&mut discovery, 1)?;
    Ok(())
}

#[test]
fn lasting_unlike_engine_is_refused_in_a_second() -> Result<()> {
    let stopped = Stopped::new()?;
    stopped.tear(true)?;
    let mut discovery = Discovery::new(scope(&stopped.target));
    let took = wait(&mut discovery, |discovery| {
        discovery.scan();
        discovery
            .refused()
            .is_some_and(|refused| refused.is_final())
    })?;
    // Three times the promise.
    ensure!(took < Duration::from_secs(3), "{took:?}");
    // It is not examined forever: only a link tells whether its program is another.
    std::thread::sleep(Duration::from_millis(1100));
    // The counts are those of all tests that run now, so one scan without a read is enough.
    wait(&mut discovery, |discovery| {
        let before = SystemCallCounts::now();
        discovery.scan();
        SystemCallCounts::now().since(before).gathers == 0
    })?;
    Ok(())
}

/// The kernel gives the next PID to the next process on this machine, which may be a foreign one,
/// so this is tried again.
#[test]
fn reused_process_number_is_another_worker() -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let first = php()?;
        let pid = first.pid();
        let mut discovery = Discovery::new(scope(&first));
        let before = find(&mut discovery, 1)?.remove(0);
        let watch = Watch::open(pid, pid).context("there is no schedstat")?;
        ensure!(watch.is_alive());
        drop(first);
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?;
        let second = php()?;
        if second.pid() != pid {
            continue;
        }
        ensure!(!watch.is_alive(), "the number was taken for the process");
        ensure!(before.memory.bound_word(before.engine.fingerprint_at) == Err(MemoryFault::Gone));
        // The first worker's memory is read by its PID, and may be that of the process that has the
        // PID now.
        let _ = before.memory.word(before.engine.fingerprint_at);
        let changes = discovery.scan();
        ensure!(changes.gone == [pid], "{changes:?}");
        let mut found = changes.new;
        if found.is_empty() {
            found = find(&mut discovery, 1)?;
        }
        let after = &found[0];
        ensure!(
            after.pid == pid && after.family != before.family,
            "{after:?}"
        );
        return Ok(());
    }
    bail!("no process was given the number of another")
}

#[test]
fn ended_families_are_forgotten_with_their_numbers() -> Result<()> {
    let script = format!("while true; do {PHP} -r 'usleep(300000);'; done");
    let master = started(Command::new("sh").args(["-c", &script]))?;
    let mut discovery = Discovery::new(scope(&master));
    let (mut begun, mut gone) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while gone.len() < 5 {
        ensure!(began.elapsed() < PATIENCE, "{begun:?} {gone:?}");
        let changes = discovery.scan();
        begun.extend(changes.new.iter().map(|process| process.family));
        gone.extend(changes.families_gone);
        std::thread::sleep(EVERY);
    }
    let different: HashSet<&usize> = begun.iter().collect();
    ensure!(different.len() == begun.len(), "{begun:?}");
    ensure!(
        gone.as_slice() == &begun[..gone.len()],
        "{begun:?} {gone:?}"
    );
    Ok(())
}

/// Set in the second process of this test, which runs as the user of the workers.
const INSIDE: &str = "PHPPROF_TEST_INSIDE";

#[test]
fn unreadable_masters_workers_are_one_family() -> Result<()> {
    const TEST: &str = "discovery::unreadable_masters_workers_are_one_family";
    if let Some(pid) = std::env::var_os(INSIDE) {
        let pid: i32 = pid.to_string_lossy().parse()?;
        let found = find(&mut Discovery::new(Scope::Pids(vec![pid])), 8)?;
        let families: HashSet<usize> = found.iter().map(|process| process.family).collect();
        ensure!(families.len() == 1, "{families:?}");
        ensure!(
            found.iter().all(|process| process.pid != pid),
            "the master was read"
        );
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let itself: PathBuf = folder.path().join("test");
    programs::copy(std::env::current_exe()?, &itself)?;
    let pool = "pm = static\npm.max_children = 8\nprocess.dumpable = yes\n";
    let master = php_fpm(folder.path(), pool)?;
    // Until all workers exist, and have become www-data.
    std::thread::sleep(Duration::from_secs(2));
    let status = Command::new("setpriv")
        .args(["--reuid=33", "--regid=33", "--clear-groups"])
        .arg(itself)
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, master.pid().to_string())
        .status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn target_is_gone_a_second_after_it_ends() -> Result<()> {
    let target = php()?;
    let mut discovery = Discovery::new(scope(&target));
    find(&mut discovery, 1)?;
    ensure!(!discovery.is_target_gone());
    let pid = target.pid();
    drop(target);
    let took = wait(&mut discovery, |discovery| {
        discovery.scan();
        discovery.is_target_gone()
    })?;
    ensure!(
        took >= Duration::from_millis(900),
        "process {pid} was given up after {took:?}"
    );
    Ok(())
}

/// A container is identified by its cgroup, whatever else runs in its PID namespace.
#[test]
fn container_is_gone_with_its_last_process() -> Result<()> {
    let id = "3f".repeat(32);
    let cgroup = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"]
        .iter()
        .map(|root| Path::new(root).join(&id))
        .find(|path| fs::create_dir(path).is_ok())
        .context("no cgroup can be made")?;
    let outcome = follow_container(&id, &cgroup);
    // The kernel releases a group a moment after its last process was reaped.
    let began = Instant::now();
    while fs::remove_dir(&cgroup).is_err() && began.elapsed() < PATIENCE {
        std::thread::sleep(EVERY);
    }
    outcome
}

fn follow_container(id: &str, cgroup: &Path) -> Result<()> {
    let target = php()?;
    fs::write(cgroup.join("cgroup.procs"), target.pid().to_string())?;
    let mut discovery = Discovery::new(Scope::Container(id.to_owned()));
    let found = find(&mut discovery, 1)?;
    ensure!(found[0].pid == target.pid(), "{found:?}");
    drop(target);
    wait(&mut discovery, |discovery| {
        discovery.scan();
        discovery.is_target_gone()
    })?;
    Ok(())
}

#[test]
fn workerless_pool_lives_with_its_master() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let master = php_fpm(folder.path(), "pm = ondemand\npm.max_children = 2\n")?;
    let mut discovery = Discovery::new(scope(&master));
    let found = find(&mut discovery, 1)?;
    ensure!(found[0].pid == master.pid(), "{found:?}");
    for _ in 0..25 {
        discovery.scan();
        ensure!(!discovery.is_target_gone());
        std::thread::sleep(EVERY);
    }
    Ok(())
}
