//! The cost of looking for workers on a machine where nothing starts or ends: 64 workers of php-fpm
//! and 100 sleeping processes, in a PID namespace of their own, so that no other processes count.
//! It requires root, unshare and PHP 8.2.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};
use phpprof::target::Scope;
use phpprof::target::discovery::Discovery;
use phpprof::target::process::calls::SystemCallCounts;
use phpprof_testing::Running;
use phpprof_testing::fpm::{self, Pool};

const WORKERS: usize = 64;
const SLEEPERS: usize = 100;
/// The sampler's own interval.
const EVERY: Duration = Duration::from_millis(100);
/// Set in the second process of this test, inside the namespace.
const INSIDE: &str = "PHPPROF_TEST_INSIDE";
const TEST: &str = "scans::a_scan_opens_files_of_new_processes_only";

#[test]
fn a_scan_opens_files_of_new_processes_only() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let status = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe()?)
        .args(["--exact", TEST, "--nocapture"])
        .env(INSIDE, "1")
        .status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// The namespace ends with this process, and so do all processes in it.
fn inside() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let _fpm = php_fpm(folder.path())?;
    let _sleepers = (0..SLEEPERS)
        .map(|_| Command::new("sleep").arg("600").spawn())
        .collect::<Result<Vec<Child>, _>>()?;
    // All workers exist before the first scan, so their order of start does not matter; and all
    // processes are too old to count as starting.
    std::thread::sleep(Duration::from_secs(3));
    let mut discovery = Discovery::new(Scope::All);
    let found = discovery.scan().new;
    let families: HashSet<usize> = found.iter().map(|process| process.family).collect();
    ensure!(found.len() == WORKERS + 1, "{} workers", found.len());
    let (calls, cpu, began) = (SystemCallCounts::now(), own_cpu()?, Instant::now());
    for _ in 0..50 {
        let changes = discovery.scan();
        ensure!(
            changes.new.is_empty() && changes.gone.is_empty(),
            "{changes:?}"
        );
        std::thread::sleep(EVERY);
    }
    let (calls, seconds) = (
        SystemCallCounts::now().since(calls),
        began.elapsed().as_secs_f64(),
    );
    let per_second = |count: u64| count as f64 / seconds;
    eprintln!(
        "{:.1} opens, {:.1} file reads, {:.1} memory reads and {:.2} ms of CPU a second; {} families",
        per_second(calls.opens),
        per_second(calls.file_reads),
        per_second(calls.memory_reads),
        (own_cpu()? - cpu) as f64 / 1e6 / seconds,
        families.len()
    );
    ensure!(per_second(calls.opens) <= 20.0, "{calls:?}");
    ensure!(families.len() == 1, "{families:?}");
    Ok(())
}

fn php_fpm(folder: &Path) -> Result<Running> {
    let pool = Pool {
        name: "www",
        socket: &folder.join("socket"),
        workers: WORKERS,
        more: "user = www-data\n",
    };
    fpm::start("/usr/sbin/php-fpm8.2", folder, &[pool], &[])
}

/// The CPU time of this process, in nanoseconds.
fn own_cpu() -> Result<i64> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.num_nanoseconds())
}
