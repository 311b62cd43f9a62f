//! Each format is chosen by the name of its file or by `-f`, and is valid.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use phpprof_testing::shares::bound;

use super::scene::{PHP, Read, Running, Scene, folded, record, run, said, share};

const SPIN: &str = "function spin() { return md5('x'); } while (true) spin();";

fn php() -> Result<Running> {
    Running::start(Command::new(PHP).args(["-r", SPIN]).stdout(Stdio::null()))
}

/// A file for each format, and the last line of output about it.
type Recorded = BTreeMap<&'static str, (Vec<u8>, String)>;

/// Records a spinning process for a second into files of these names, all at once.
fn all() -> Result<Recorded> {
    const NAMES: [&str; 7] = [
        "x.pb.gz",
        "x.txt",
        "x.speedscope.json",
        "callgrind.out.1",
        "x.json.gz",
        "x.svg",
        "x.html",
    ];
    let (scene, target) = (Scene::new()?, php()?);
    let mut running = Vec::new();
    for name in NAMES {
        let mut command = record(["-d", "1", "--pid", &target.pid().to_string(), "-o"]);
        command.arg(scene.path(name)).stderr(Stdio::piped());
        running.push((name, command.spawn()?));
    }
    let mut all = Recorded::new();
    for (name, child) in running {
        let ended = child.wait_with_output()?;
        ensure!(ended.status.success(), "{}", said(&ended));
        let line = said(&ended).lines().last().unwrap_or_default().to_owned();
        all.insert(name, (fs::read(scene.path(name))?, line));
    }
    let mut names = NAMES;
    names.sort_unstable();
    ensure!(scene.has_only(&names)?, "something else was left");
    Ok(all)
}

/// The text of one of these files.
fn text(all: &Recorded, name: &str) -> Result<String> {
    let (bytes, _) = all.get(name).context("no such file")?;
    Ok(String::from_utf8(bytes.clone())?)
}

#[test]
fn each_format_is_valid_and_has_functions() -> Result<()> {
    let all = all()?;
    for (name, (_, line)) in &all {
        let words = [" samples, ", name, "look at it"];
        ensure!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let read = Read::of(&all.get("x.pb.gz").context("no profile")?.0)?;
    ensure!(read.samples() > 20, "{} samples", read.samples());
    ensure!(share(&read.folded()?, "spin") > 0.8);
    ensure!(read.receipt["quality"].get("notRunning").is_none());

    let stacks = folded(&text(&all, "x.txt")?)?;
    ensure!(stacks.iter().all(|(stack, _)| stack.starts_with("{main}")));
    ensure!(share(&stacks, "spin") > 0.8, "{stacks:?}");

    let file: serde_json::Value = serde_json::from_str(&text(&all, "x.speedscope.json")?)?;
    let schema = file["$schema"].as_str().context("no schema")?;
    ensure!(schema.contains("speedscope.app"), "{schema}");
    let frames = file["shared"]["frames"].as_array().context("no frames")?;
    ensure!(frames.iter().any(|frame| frame["name"] == "spin"));

    let callgrind = text(&all, "callgrind.out.1")?;
    ensure!(callgrind.contains("\nevents: ") && callgrind.contains("spin"));
    let picture = text(&all, "x.svg")?;
    ensure!(picture.contains("<svg") && picture.contains("spin"));
    let page = text(&all, "x.html")?;
    ensure!(page.starts_with("<!DOCTYPE html>") && page.contains("PHP on "));
    Ok(())
}

#[test]
fn format_without_file_goes_to_standard_output() -> Result<()> {
    let target = php()?;
    let start = |arguments: &[&str]| {
        let mut command = record(["-d", "1", "--pid", &target.pid().to_string()]);
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn()
    };
    for child in [
        start(&["-f", "folded"])?,
        start(&["-f", "folded", "-o", "-"])?,
    ] {
        let ended = child.wait_with_output()?;
        ensure!(ended.status.success(), "{}", said(&ended));
        let stacks = folded(&String::from_utf8(ended.stdout)?)?;
        ensure!(share(&stacks, "spin") > 0.8, "{stacks:?}");
    }
    Ok(())
}

#[test]
fn unwritable_file_is_told_before_sampling() -> Result<()> {
    let (scene, target) = (Scene::new()?, php()?);
    fs::create_dir(scene.path("folder"))?;
    for (path, told) in [
        (scene.path("no/x.html"), "create the folder"),
        (scene.path("folder"), "for instance"),
        (scene.path("x.data"), "is not a known format"),
    ] {
        let mut command = record(["-d", "60", "--pid", &target.pid().to_string(), "-o"]);
        // A folder has no format either. If -f gives the format, the message is that it is a
        // folder.
        if path.is_dir() {
            command.args([path.as_os_str(), "-f".as_ref(), "svg".as_ref()]);
        } else {
            command.arg(&path);
        }
        let ended = run(&mut command)?;
        ensure!(ended.status.code() == Some(2), "{}", said(&ended));
        ensure!(said(&ended).contains(told), "{}", said(&ended));
        ensure!(!said(&ended).contains("sampling"), "{}", said(&ended));
    }
    Ok(())
}

#[test]
fn pipe_sees_no_progress() -> Result<()> {
    let (scene, target) = (Scene::new()?, php()?);
    let path = scene.path("x.pb.gz");
    let command = || {
        let mut command = record(["-d", "1s", "--pid", &target.pid().to_string(), "-o"]);
        command
            .arg(&path)
            .stderr(Stdio::piped())
            .stdout(Stdio::piped());
        command
    };
    let piped = Running::start(&mut command())?;
    let quiet = Running::start(command().arg("--quiet"))?;
    let mut said_of = Vec::new();
    for mut running in [piped, quiet] {
        ensure!(running.exit_code()? == Some(0));
        let mut text = String::new();
        let stderr = running.0.stderr.take().context("no stderr")?;
        std::io::Read::read_to_string(&mut { stderr }, &mut text)?;
        said_of.push(text);
    }
    let [piped, quiet] = &said_of[..] else {
        unreachable!("two were started")
    };
    // A busy machine adds lines about its rate, and about waits for a CPU.
    let is_of_machine = |line: &str| line.contains("instead of") || line.contains("for a CPU");
    let lines = piped.lines().filter(|line| !is_of_machine(line));
    ensure!(
        !piped.contains(['\r', '\x1b']) && lines.count() == 3,
        "{piped}"
    );
    ensure!(quiet.is_empty(), "{quiet}");
    Ok(())
}

/// What the kernel says that a process has done: how long it was on a CPU and how long it waited
/// for one, in nanoseconds. proc(5), `schedstat`.
fn on_cpu_and_delayed(target: &Running) -> Result<[f64; 2]> {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", target.pid()))?;
    let mut numbers = text.split_ascii_whitespace();
    let mut next = || anyhow::Ok(numbers.next().context("schedstat is cut")?.parse()?);
    Ok([next()?, next()?])
}

/// On a busy machine, the script works for a smaller part of the time and waits for a CPU after its
/// sleep: so the kernel's account says what the shares are.
#[test]
fn sleeping_samples_are_left_out_and_counted() -> Result<()> {
    let scene = Scene::new()?;
    let path = scene.path("x.pb.gz");
    let script =
        "function work() { $end = hrtime(true) + 5e6; while (hrtime(true) < $end) md5('x'); }
        while (true) { work(); usleep(15000); }";
    let target = Running::start(Command::new(PHP).args(["-r", script]))?;
    let mut command = record([
        "--only-running",
        "-d",
        "2",
        "--pid",
        &target.pid().to_string(),
    ]);
    let (began, before) = (Instant::now(), on_cpu_and_delayed(&target)?);
    let ended = run(command.args(["-F", "200", "-o"]).arg(&path))?;
    let (took, after) = (began.elapsed(), on_cpu_and_delayed(&target)?);
    ensure!(ended.status.success(), "{}", said(&ended));
    let [on_cpu, delayed] = [0, 1].map(|at| (after[at] - before[at]) / took.as_nanos() as f64);
    let read = Read::file(&path)?;
    let left_out = read.receipt["quality"]["notRunning"].as_i64();
    let left_out = left_out.context("nothing says how many were left out")?;
    let stacks = read.folded()?;
    let (kept, all) = (read.samples() as f64, (read.samples() + left_out) as f64);
    ensure!(kept > 0.0 && left_out > 0, "{kept} of {all}");
    // The recording begins after the first look at the account, and ends before the second.
    let part = kept / all;
    let most = |share: f64| bound(share.min(1.0), all) + 0.05;
    let accounts = [on_cpu, on_cpu + delayed];
    ensure!(
        part > accounts[0] - most(accounts[0]) && part < accounts[1] + most(accounts[1]),
        "{kept} of {all}, {accounts:?} by the kernel"
    );
    let asleep = share(&stacks, "usleep");
    let woken = delayed / accounts[1];
    let allowed = woken + bound(woken, kept) + 0.1;
    ensure!(asleep < allowed, "{asleep}, {allowed} allowed: {stacks:?}");
    ensure!(said(&ended).contains(&format!("{left_out} samples of sleeping workers")));
    ensure!(read.receipt["samples"] == read.samples());
    Ok(())
}
