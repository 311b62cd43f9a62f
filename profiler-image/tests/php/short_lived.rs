//! Processes that live for milliseconds, on this machine's PHP 8.2: their samples represent their
//! time by the program's own clock, and what nobody saw is a number.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::{Recording, record};
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Lookup, decode};
use phpprof_testing::Running;
use tempfile::TempDir;

use crate::options::options;

const PHP: &str = "/usr/bin/php8.2";

/// A job that is busy for some milliseconds by its own clock, and reports how long it took: on a
/// busy machine it takes longer.
const JOB: &str = r"
function job($ms) { $began = hrtime(true); do { md5('a'); } while (hrtime(true) < $began + $ms * 1000000); return hrtime(true) - $began; }
";

/// A worker of a queue that forks for each job and waits for it.
const FORKS: &str = r"
$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
function runJob($ms) {
    global $pair;
    $pid = pcntl_fork();
    if ($pid == 0) { fwrite($pair[1], job($ms) . PHP_EOL); posix_kill(getmypid(), 9); }
    pcntl_waitpid($pid, $status);
    return (int) fgets($pair[0]);
}
";

/// The same with a second fork, whose parent ends at once, so that the job has left the tree of
/// processes.
const ORPHANS: &str = r"
$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
function runJob($ms) {
    global $pair;
    $pid = pcntl_fork();
    if ($pid == 0) {
        if (pcntl_fork() == 0) { usleep(2000); fwrite($pair[1], job($ms) . PHP_EOL); }
        posix_kill(getmypid(), 9);
    }
    pcntl_waitpid($pid, $status);
    return (int) fgets($pair[0]);
}
";

/// A program that is started for each job.
const PROGRAMS: &str = r"
function runJob($ms) {
    global $job;
    $program = proc_open([PHP_BINARY, '-n', '-r', $job . 'echo job(' . $ms . ');'], [1 => ['pipe', 'w']], $pipes);
    $took = (int) stream_get_contents($pipes[1]);
    proc_close($program);
    return $took;
}
";

/// The same by a shell.
const SHELL: &str = r"
function runJob($ms) {
    global $job;
    return (int) exec(PHP_BINARY . ' -n -r ' . escapeshellarg($job . 'echo job(' . $ms . ');'));
}
";

/// Says that it has begun, runs jobs for four seconds, and prints how many nanoseconds they took,
/// and how many seconds of CPU time its children and it itself used.
const MAIN: &str = r"
function used($whose) {
    $used = getrusage($whose);
    return $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'] + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) / 1e6;
}
echo PHP_EOL; usleep(300000); $end = microtime(true) + 4; $took = 0; $own = used(0);
do { $took += runJob(MS); } while (microtime(true) < $end);
echo json_encode([$took, used(1), used(0) - $own]);
";

/// How long jobs took by the program's own clock, and by the samples; in nanoseconds.
struct Ran {
    truth: f64,
    sampled: f64,
    /// The CPU time of the jobs by the samples, and of all samples.
    cpu: f64,
    all_cpu: f64,
    /// All CPU time of the program and of the children that it has waited for, by its own account.
    true_cpu: f64,
    samples: f64,
    recording: Recording,
}

fn ran(php: &Path, program: &str, milliseconds: u32) -> Result<Ran> {
    let main = MAIN.replace("MS", &milliseconds.to_string());
    let text = format!("$job = <<<'JOB'\n{JOB}\nJOB;\n{JOB}{program}{main}");
    let child = Command::new(php)
        .args(["-r", &text])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting PHP")?;
    let mut target = Running(child);
    let stdout = target.0.stdout.take().context("no output")?;
    // A busy machine may take longer to start PHP than a run waits for it.
    let mut stdout = BufReader::new(stdout);
    stdout.read_line(&mut String::new())?;
    let recording = record(&options(
        Scope::Pids(vec![target.pid()]),
        99,
        Duration::from_secs(20),
    ))?;
    let (truth, of_children, own): (f64, f64, f64) = serde_json::from_reader(stdout)?;
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let (mut samples, mut cpu, mut sampled, mut all_cpu) = (0.0, 0.0, 0.0, 0.0);
    for sample in &profile.sample {
        all_cpu += sample.value[1] as f64;
        if lookup.frames(sample).any(|frame| frame.name == "job") {
            samples += sample.value[0] as f64;
            cpu += sample.value[1] as f64;
            sampled += sample.value[2] as f64;
        }
    }
    Ok(Ran {
        truth,
        sampled,
        cpu,
        all_cpu,
        true_cpu: (of_children + own) * 1e9,
        samples,
        recording,
    })
}

/// Checks that at most this share of the jobs' time is missing, and that none is there twice.
fn check(program: &str, milliseconds: u32, may_miss: f64) -> Result<Ran> {
    check_of(Path::new(PHP), program, milliseconds, may_miss)
}

fn check_of(php: &Path, program: &str, milliseconds: u32, may_miss: f64) -> Result<Ran> {
    let ran = ran(php, program, milliseconds)?;
    let (quality, share) = (ran.recording.sampler.quality, ran.sampled / ran.truth);
    // Turns that the machine had no CPU for.
    let late = quality.late as f64 / quality.due.max(1) as f64;
    // Three standard deviations of the number of samples.
    let chance = 3.0 / (ran.truth / 1e9 * 99.0).sqrt();
    eprintln!(
        "jobs of {milliseconds} ms: {share:.3} of {:.2} s in {} samples, {:.2} s of CPU, {late:.3} late, {:?}, {quality:?}",
        ran.truth / 1e9,
        ran.samples,
        ran.cpu / 1e9,
        ran.recording.facts.missed,
    );
    ensure!(
        share >= 1.0 - may_miss - chance - late,
        "{share:.3} of the time of jobs of {milliseconds} ms; {late:.3} of the turns were missed"
    );
    ensure!(
        share <= 1.0 + chance + late,
        "{share:.3} of the time of jobs of {milliseconds} ms"
    );
    Ok(ran)
}

#[test]
fn forked_50_ms_jobs_have_four_fifths() -> Result<()> {
    check(FORKS, 50, 0.2)?;
    Ok(())
}

/// A copy of PHP whose executable has no build id: the type of that note is another one.
fn without_build_id(folder: &TempDir) -> Result<PathBuf> {
    let mut bytes = fs::read(PHP)?;
    // Sizes of name and id, NT_GNU_BUILD_ID and the name (elf(5)).
    let note = [4, 20, 3, u32::from_le_bytes(*b"GNU\0")].map(u32::to_le_bytes);
    let note = note.concat();
    let mut windows = bytes.windows(note.len());
    let at = windows.position(|it| it == note).context("no build id")?;
    bytes[at + 8] = 0x7f;
    let path = folder.path().join("php");
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Run by `make real`, which builds that PHP.
#[test]
fn thread_safe_jobs_have_nine_tenths() -> Result<()> {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    let cache = PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into()));
    let php = cache.join("runtimes/php-8.2-zts/usr/local/bin/php");
    check_of(&php, PROGRAMS, 100, 0.1)?;
    Ok(())
}

/// Most of such short jobs are in no sample, but their number and their CPU time are known.
#[test]
fn what_nobody_saw_is_a_number() -> Result<()> {
    let ran = ran(Path::new(PHP), FORKS, 2)?;
    let missed = ran.recording.facts.missed.context("nothing is known")?;
    let (unseen, all) = (missed.reaped.as_secs_f64() * 1e9, ran.true_cpu);
    eprintln!("{missed:?}, {} ns sampled, of {all} ns", ran.all_cpu);
    ensure!(missed.processes > 0, "{missed:?}");
    // The kernel reports steps of 10 ms. What children use before a run on a busy machine has begun
    // is in neither.
    let known = ran.all_cpu + unseen;
    ensure!(
        known > 0.8 * all && known < 1.1 * all + 3e7,
        "{known} of {all} ns: {missed:?}"
    );
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn forked_20_ms_jobs_have_half_their_time() -> Result<()> {
        check(FORKS, 20, 0.5)?;
        Ok(())
    }

    #[test]
    fn forked_100_ms_jobs_have_nine_tenths() -> Result<()> {
        check(FORKS, 100, 0.1)?;
        Ok(())
    }

    #[test]
    fn orphaned_jobs_are_of_the_tree() -> Result<()> {
        check(ORPHANS, 100, 0.1)?;
        Ok(())
    }

    #[test]
    fn program_jobs_of_50_ms_have_four_fifths() -> Result<()> {
        check(PROGRAMS, 50, 0.2)?;
        Ok(())
    }

    #[test]
    fn program_jobs_of_100_ms_have_nine_tenths() -> Result<()> {
        check(PROGRAMS, 100, 0.1)?;
        Ok(())
    }

    /// `exec` runs a shell first.
    #[test]
    fn shell_jobs_have_nine_tenths_of_their_time() -> Result<()> {
        check(SHELL, 100, 0.1)?;
        Ok(())
    }

    #[test]
    fn jobs_without_build_id_have_nine_tenths() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let php = without_build_id(&folder)?;
        check_of(&php, PROGRAMS, 100, 0.1)?;
        Ok(())
    }
}
