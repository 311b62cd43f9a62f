//! More workers than the limit of open files has room for: it is raised as far as it may, and those
//! without room are told of.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::scene::{Read, Running, Scene, record, run, said, wait_until};

const WORKERS: usize = 20;

/// A php-fpm with its workers, which wait.
fn php_fpm(scene: &Scene) -> Result<Running> {
    let master = super::scene::php_fpm(scene, &[("www", WORKERS)], "user = www-data\n")?;
    let pid = master.pid();
    let children = format!("/proc/{pid}/task/{pid}/children");
    wait_until("php-fpm", || {
        let list = std::fs::read_to_string(&children)?;
        Ok(list.split_ascii_whitespace().count() == WORKERS)
    })?;
    Ok(master)
}

/// Records with this limit; returns how many processes have samples, how many more the receipt
/// counts, and what was said.
fn recorded(scene: &Scene, master: &Running, limit: &str) -> Result<(usize, usize, String)> {
    let output = scene.path("x.pb.gz");
    let record = record(["-d", "1", "--include-idle", "-o"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")])
        .arg(record.get_program())
        .args(record.get_args())
        .arg(&output)
        .arg(format!("--pid={}", master.pid()));
    let ended = run(command.stdin(Stdio::null()))?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let read = Read::file(&output)?;
    let counted = read.receipt["workersNotSampled"].as_u64();
    let counted = counted.context("no count")?.try_into()?;
    Ok((read.pids().len(), counted, said(&ended)))
}

#[test]
fn soft_file_limit_hides_no_worker() -> Result<()> {
    let scene = Scene::new()?;
    let master = php_fpm(&scene)?;
    let (sampled, counted, told) = recorded(&scene, &master, "-Sn 24")?;
    ensure!(
        sampled == WORKERS + 1 && counted == 0,
        "{sampled}, {counted}: {told}"
    );
    ensure!(!told.contains("not sampled"), "{told}");
    Ok(())
}

#[test]
fn missing_workers_are_counted_without_files() -> Result<()> {
    let scene = Scene::new()?;
    let master = php_fpm(&scene)?;
    let (sampled, counted, told) = recorded(&scene, &master, "-n 90")?;
    let line = told
        .lines()
        .find(|line| line.contains("workers were not sampled"));
    let missing = line.with_context(|| format!("{sampled} sampled: {told}"))?;
    let number = missing.trim_start_matches("phpprof: ").split(' ').next();
    let number: usize = number.context("no number")?.parse()?;
    ensure!(
        sampled > 1 && sampled + number == WORKERS + 1 && counted == number,
        "{sampled}, {counted}: {told}"
    );
    ensure!(missing.contains("(90)"), "{missing}");
    Ok(())
}
