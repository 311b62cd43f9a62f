//! The built sampler as a resident one: with this test's relay, and this machine's PHP 8.2 in a
//! container, which is a cgroup here.

mod contract;
mod relay;
mod scene;
mod secrets;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof::deliver::receipt::base64url;
use phpprof_profile::{DecodeLimits, Profile, decode, timeline, total};
use serde_json::{Value, json};

use relay::{Relay, stopped};
use scene::*;

#[test]
fn runs_deliver_their_own_profiles_and_receipts() -> Result<()> {
    let container = Container::start(1)?;
    let id = container.id.clone();
    let relay = Relay::start(move |relay| {
        let run = |name| match name {
            "a" => relay.run(name, &id, 2),
            name => relay.listing_run(name, &id, name == "b"),
        };
        if !relay.has("a.pb.gz.receipt") {
            relay.answer(60, &[run("a")])
        } else if !relay.has("b.pb.gz.receipt") || !relay.has("c.pb.gz.receipt") {
            // Each run is in several answers, the first one even after its end is known.
            relay.answer(60, &[run("a"), run("b"), run("c"), run("b")])
        } else {
            stopped()
        }
    })?;
    let mut resident = Resident::of(&container, &relay)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#)?;
    let [a, b, c] = [
        profile(&relay, "a")?,
        profile(&relay, "b")?,
        profile(&relay, "c")?,
    ];
    let keys = relay.keys();
    ensure!(keys.len() == 7, "{keys:?}");
    // A list of requests is stored before its profile, and a refused list does not prevent the
    // profile.
    let at = |key: &str| keys.iter().position(|it| it == key);
    ensure!(at("b.requests.json.gz") < at("b.pb.gz"), "{keys:?}");
    let list = timeline::decode(&relay.object("b.requests.json.gz")?)?;
    let script = list
        .requests
        .first()
        .context("the script is not a request")?;
    ensure!(list.requests.len() == 1 && !script.moments.is_empty() && script.is_unfinished);
    for (profile, listed) in [(&a, Value::Null), (&b, json!(true)), (&c, json!(false))] {
        let receipt = profile.comments().next().context("no receipt")?;
        let receipt: Value = serde_json::from_str(receipt)?;
        ensure!(receipt["requests"]["listStored"] == listed, "{receipt}");
    }
    ensure!(relay.asked() > 3, "asked {} times", relay.asked());
    let end = |profile: &Profile| profile.time_nanos + profile.duration_nanos;
    ensure!(
        end(&a) <= b.time_nanos.min(c.time_nanos),
        "not one after the other"
    );
    ensure!(
        b.time_nanos.max(c.time_nanos) < end(&b).min(end(&c)),
        "not at once"
    );
    Ok(())
}

/// The second answer is that of a replica that does not lead; the last tells that nobody reads any
/// more.
#[test]
fn live_seconds_are_brought_until_unwatched() -> Result<()> {
    let container = Container::start(9)?;
    let id = container.id.clone();
    let relay = Relay::start(move |relay| {
        if relay.has("a.pb.gz.receipt") {
            stopped()
        } else {
            relay.answer(60, &[relay.live_run("a", &id, 60)])
        }
    })?;
    relay.answer_seconds(&[200, 421, 200, 507, 410]);
    let mut resident = Resident::of(&container, &relay)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#)?;
    let seconds = relay.seconds();
    ensure!(seconds.len() == 2, "{} seconds", seconds.len());
    let whole = profile(&relay, "a")?;
    let (mut samples, mut until) = (0, whole.time_nanos);
    for second in seconds {
        let second = decode(&second, &DecodeLimits::default())?;
        ensure!(second.time_nanos == until, "a gap at {until}");
        until += second.duration_nanos;
        samples += total(&second, "samples");
        ensure!(second.string_table.iter().any(|text| text == "spin"));
    }
    // The run has ended early, and its profile has all samples.
    ensure!(whole.duration_nanos < 10_000_000_000, "it went on");
    ensure!(total(&whole, "samples") > samples && samples > 20);
    Ok(())
}

#[test]
fn a_run_for_another_container_is_refused() -> Result<()> {
    let container = Container::start(2)?;
    let relay = Relay::start(|relay| {
        if relay.has("a.pb.gz.receipt") {
            stopped()
        } else {
            relay.answer(60, &[relay.run("a", &"4f".repeat(32), 1)])
        }
    })?;
    let mut resident = Resident::of(&container, &relay)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#)?;
    let refused = r#"{"reason":"Usage","detail":"it is for another container"}"#;
    ensure!(relay.receipt("a")? == refused, "{}", relay.receipt("a")?);
    ensure!(!relay.has("a.pb.gz"), "{:?}", relay.keys());
    let line = "refused the run a.pb.gz: it is for another container";
    ensure!(
        resident.log()?.matches(line).count() == 1,
        "{}",
        resident.log()?
    );
    Ok(())
}

/// A relay that assigns one run, of this many seconds, until it has its receipt.
fn one_run(container: &Container, seconds: u32) -> Result<Arc<Relay>> {
    let id = container.id.clone();
    Relay::start(move |relay| {
        if relay.has("a.pb.gz.receipt") {
            stopped()
        } else {
            relay.answer(60, &[relay.run("a", &id, seconds)])
        }
    })
}

#[test]
fn killed_run_has_a_receipt() -> Result<()> {
    let container = Container::start(3)?;
    let relay = one_run(&container, 60)?;
    let mut resident = Resident::of(&container, &relay)?;
    kill(Pid::from_raw(resident.child("record")?), Signal::SIGKILL)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#)?;
    let receipt = relay.receipt("a")?;
    ensure!(
        receipt == r#"{"reason":"Internal","detail":"signal 9"}"#,
        "{receipt}"
    );
    Ok(())
}

#[test]
fn signal_ends_runs_with_their_samples() -> Result<()> {
    let container = Container::start(4)?;
    let relay = one_run(&container, 60)?;
    let mut resident = Resident::of(&container, &relay)?;
    resident.sampling_run()?;
    let began = Instant::now();
    kill(Pid::from_raw(resident.pid()?), Signal::SIGTERM)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"signal"}"#)?;
    ensure!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    profile(&relay, "a")?;
    Ok(())
}

#[test]
fn it_ends_where_the_relay_refuses_it() -> Result<()> {
    let container = "4f".repeat(32);
    let words = "192.0.2.7 is not 10.244.0.5";
    let source = Relay::start(move |_| (403, format!("SourceNotPod: {words}\n")))?;
    let mut resident = Resident::start(&container, &source.ask(), 10)?;
    let receipt = format!(r#"{{"reason":"SourceNotPod","detail":"{words}"}}"#);
    resident.check_ends(24, &receipt)?;
    let grant = Relay::start(|_| (403, "the grant has ended\n".to_owned()))?;
    let mut resident = Resident::start(&container, &grant.ask(), 10)?;
    resident.check_ends(21, r#"{"reason":"UploadRefused","detail":"HTTP 403"}"#)?;
    ensure!(source.asked() == 1 && grant.asked() == 1);
    Ok(())
}

#[test]
fn it_ends_where_no_relay_answers_in_time() -> Result<()> {
    let container = "4f".repeat(32);
    let silent = Relay::start(|_| (0, String::new()))?;
    let mut asks = [silent.ask(), silent.ask(), silent.ask()];
    asks[1]["url"] = "https://127.0.0.1:1/v1/runs".into();
    asks[2]["pins"] = serde_json::json!([base64url(&[0; 32])]);
    let began = Instant::now();
    let unreachable = |why| format!(r#"{{"reason":"RelayUnreachable","detail":"{why}"}}"#);
    let ends = [
        (25, unreachable("timeout")),
        (25, unreachable("127.0.0.1:1: connection refused")),
        (22, r#"{"reason":"CertificateUntrusted"}"#.to_owned()),
    ];
    // All three at the same time.
    let started = asks.iter().map(|ask| Resident::start(&container, ask, 2));
    let started = started.collect::<Result<Vec<_>>>()?;
    let asking = started[0].child("call")?;
    for (mut resident, (code, receipt)) in started.into_iter().zip(ends) {
        resident.check_ends(code, &receipt)?;
    }
    let left = Path::new("/proc").join(asking.to_string());
    ensure!(!left.exists(), "its call is still there");
    let took = began.elapsed();
    ensure!(
        took > Duration::from_secs(2) && took < Duration::from_secs(6),
        "{took:?}"
    );
    Ok(())
}

#[test]
fn grants_stand_in_no_environment_or_arguments() -> Result<()> {
    let container = Container::start(6)?;
    let relay = one_run(&container, 60)?;
    let resident = Resident::of(&container, &relay)?;
    let run = resident.sampling_run()?;
    for pid in [resident.pid()?, run] {
        for file in ["environ", "cmdline"] {
            let text = fs::read(format!("/proc/{pid}/{file}"))?;
            let text = String::from_utf8_lossy(&text);
            ensure!(!text.contains("SECRET"), "{file} of {pid}: {text}");
        }
        ensure!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?.trim() == "1000");
        ensure!(fs::read_to_string(format!("/proc/{pid}/comm"))?.trim() == "phpprof");
    }
    // The run has them nevertheless.
    kill(Pid::from_raw(run), Signal::SIGTERM)?;
    wait_for("profile", || Ok(relay.has("a.pb.gz").then_some(())))
}

/// Memory and CPU, including its calls of the relay, of the program in `PHPPROF_IDLE`, as
/// images/build does it, after some runs.
#[test]
#[ignore = "half a minute, and nothing may run beside it"]
fn one_that_waits_takes_next_to_nothing() -> Result<()> {
    let program = std::env::var("PHPPROF_IDLE").context("PHPPROF_IDLE names no program")?;
    let names = ["a", "b", "c", "d", "e", "f"];
    let container = "4f".repeat(32);
    let of_relay = container.clone();
    let relay = Relay::start(move |relay| {
        // There is no such container, so each of them fails.
        let runs = names.map(|name| relay.run(name, &of_relay, 1));
        let (status, body) = relay.answer(900, &runs);
        (
            status,
            body.replace(r#""askAgainSeconds":1"#, r#""askAgainSeconds":5"#),
        )
    })?;
    let mut resident = Resident::start_program(&program, &container, &relay.ask(), 10)?;
    wait_for("receipts", || {
        Ok((relay.keys().len() == names.len()).then_some(()))
    })?;
    let (before, asked) = (ticks(resident.pid()?)?, relay.asked());
    std::thread::sleep(Duration::from_secs(30));
    let used = ticks(resident.pid()?)? - before;
    let asked = relay.asked() - asked;
    let status = fs::read_to_string(format!("/proc/{}/status", resident.pid()?))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = kib
        .context("no VmRSS")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    println!("{kib} KiB resident; {used} ticks of 10 ms in 30 s, asked {asked} times");
    ensure!(asked >= 4 && kib <= 2048 && used <= 3);
    kill(Pid::from_raw(resident.pid()?), Signal::SIGTERM)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"signal"}"#)
}

/// CPU time of a process and of its ended children, in the kernel's ticks.
fn ticks(pid: i32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("no name")?;
    let times = fields.split(' ').skip(11).take(4).map(str::parse::<u64>);
    Ok(times.sum::<Result<_, _>>()?)
}

/// The files in /proc of a process that is not dumpable belong to root, whoever runs it.
#[test]
fn grants_wait_until_nobody_can_look() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("phpprof");
    fs::copy(env!("CARGO_BIN_EXE_phpprof"), &program)?;
    for arguments in [&["record", "--all", "--grants-on-stdin"][..], &["call"]] {
        let mut command = Command::new(&program);
        command.args(arguments).uid(65534).gid(65534);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running(command.spawn()?);
        let environ = format!("/proc/{}/environ", process.0.id());
        wait_for("process that is closed to its user", || {
            Ok((fs::metadata(&environ)?.uid() == 0).then_some(()))
        })?;
        // It still waits for its input.
        ensure!(process.0.try_wait()?.is_none(), "{arguments:?}");
        drop(process.0.stdin.take());
        let status = process.0.wait()?;
        ensure!(status.code() == Some(2), "{arguments:?}: {status}");
    }
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    /// The same of a sampler that is not resident: its container gets the signal itself.
    #[test]
    fn a_signal_lets_an_ephemeral_upload_finish() -> Result<()> {
        let container = Container::start(11)?;
        let relay = Relay::start(|_| stopped())?;
        relay.be_away(true);
        let run = relay.run("a", &container.id, 1);
        let words = run["arguments"].as_array().context("no arguments")?;
        let words = words.iter().filter_map(Value::as_str);
        let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
        command.args(words.filter(|word| *word != "--grants-on-stdin"));
        let grants = run["environment"]["PHPPROF_GRANTS"].as_str();
        command.env("PHPPROF_GRANTS", grants.context("no grants")?);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut sampler = Running(command.stderr(Stdio::null()).spawn()?);
        wait_for("upload", || Ok((relay.refused() > 0).then_some(())))?;
        kill(
            Pid::from_raw(i32::try_from(sampler.0.id())?),
            Signal::SIGTERM,
        )?;
        let before = relay.refused();
        let again = || Ok((relay.refused() > before + 1).then_some(()));
        wait_for("further uploads", again)?;
        relay.be_away(false);
        let ended = wait_for("end", || Ok(sampler.0.try_wait()?))?;
        ensure!(ended.success() && relay.has("a.pb.gz"), "{ended}");
        Ok(())
    }

    #[test]
    fn a_run_outlives_its_lease() -> Result<()> {
        let container = Container::start(5)?;
        let id = container.id.clone();
        let relay = Relay::start(move |relay| match relay.asked() {
            1 => relay.answer(1, &[relay.run("a", &id, 3)]),
            _ => (503, String::new()),
        })?;
        let mut resident = Resident::of(&container, &relay)?;
        resident.check_ends(0, r#"{"reason":"LeaseEnded"}"#)?;
        let profile = profile(&relay, "a")?;
        ensure!(
            profile.duration_nanos > 2_900_000_000,
            "{} ns",
            profile.duration_nanos
        );
        Ok(())
    }

    #[test]
    fn answer_of_ten_mebibytes_is_refused() -> Result<()> {
        let relay = Relay::start(|relay| match relay.asked() {
            // It would be valid if it were shorter.
            1 => {
                let padding = format!(r#"{{"padding":"{}","#, "x".repeat(10 << 20));
                (200, relay.answer(60, &[]).1.replacen('{', &padding, 1))
            }
            _ => stopped(),
        })?;
        let mut resident = Resident::start(&"4f".repeat(32), &relay.ask(), 10)?;
        resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#)?;
        let log = resident.log()?;
        ensure!(
            log.contains(
                "no answer of the relay: the answer is refused: it is longer than 256 KiB"
            ),
            "{log}"
        );
        ensure!(relay.asked() == 2, "asked {} times", relay.asked());
        Ok(())
    }

    /// The run has ended, and its upload is tried again and again, when the kubelet ends the pod.
    #[test]
    fn signal_lets_an_upload_go_on() -> Result<()> {
        let container = Container::start(10)?;
        let relay = one_run(&container, 1)?;
        relay.be_away(true);
        let mut resident = Resident::of(&container, &relay)?;
        let run = resident.child("record")?;
        wait_for("upload", || Ok((relay.refused() > 0).then_some(())))?;
        kill(Pid::from_raw(resident.pid()?), Signal::SIGTERM)?;
        // Each of them has had the signal by the second try from now on.
        let before = relay.refused();
        let again = || Ok((relay.refused() > before + 1).then_some(()));
        wait_for("further uploads", again)?;
        ensure!(
            resident.child("record")? == run && relay.keys().is_empty(),
            "{:?}",
            relay.keys()
        );
        relay.be_away(false);
        resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"signal"}"#)?;
        profile(&relay, "a")?;
        Ok(())
    }
}
