//! Requests in profiles, on this machine's PHP 8.2: the shares of routes, filters, ages, and no
//! secrets.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::options::options;
use crate::requests_server::listed::{check_cells, order};
use crate::requests_server::others::{Kind, Other};
use crate::requests_server::recorded::{Recorded, record, with_shares};
use crate::requests_server::{self, Clients, Fpm, Requested, builtin};
use anyhow::{Context as _, Result, ensure};
use phpprof::request::asked::{RequestSettings, SampleLabels};
use phpprof::run::RecordingOptions;
use phpprof::target::Scope;
use phpprof_profile::timeline::{self, Timeline, TimelineRequest};
use phpprof_testing::shares;

/// The largest number of memory reads for a request.
const READS_OF_A_REQUEST: f64 = 8.0;
/// The largest peak of the sampler's memory in bytes.
const PEAK: u64 = 32 << 20;

/// As long as given; with FULL=1 so long that chance is less than the promised 3 points.
fn seconds(short: u32) -> u32 {
    if std::env::var("FULL").is_ok_and(|value| value == "1") {
        20
    } else {
        short
    }
}

/// Five routes of one front controller, whose ids are secrets: the shares have to be those that the
/// application has measured.
#[test]
fn routes_have_their_shares_and_no_secret() -> Result<()> {
    let fpm = Fpm::start(2)?;
    let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Shop, 2);
    std::thread::sleep(Duration::from_millis(300));
    let recorded = with_shares(|| {
        clients.mark();
        let since = fpm.logged()?;
        let all = "--labels=Method,Route,Script,RequestAge,TraceID";
        let recorded = record(fpm.pid(), seconds(5), &[all, "--route=/own/*/**=own"])?;
        Ok((recorded, vec![clients.shares(), fpm.shares(since)?]))
    })?;
    drop(clients);
    recorded.check_secrets()?;
    check_cells(&recorded, 2)?;
    // Each route's code runs under its own label.
    let mixed: Vec<_> = recorded
        .by("route")
        .into_keys()
        .filter(|(route, function)| {
            let expected = requests_server::function_of(route);
            !route.is_empty() && !function.is_empty() && expected != *function
        })
        .collect();
    ensure!(mixed.is_empty(), "{mixed:?}");
    let methods = recorded.shares("method");
    ensure!(
        methods.contains_key("POST") && methods.contains_key("GET"),
        "{methods:?}"
    );
    ensure!(recorded.shares("script").contains_key("index.php"));
    // Relative to the document root.
    let scripts = recorded.scripts();
    ensure!(
        scripts.iter().eq(["{main} index.php"].iter()),
        "{scripts:?}"
    );
    let traces = recorded.shares("trace_id");
    ensure!(
        traces.keys().all(|id| id == requests_server::TRACE),
        "{traces:?}"
    );
    let spans = recorded.shares("span_id");
    ensure!(
        spans.keys().all(|id| id == requests_server::SPAN),
        "{spans:?}"
    );
    let ages = recorded.shares("request_age");
    ensure!(
        ages.contains_key("<50ms") && ages.contains_key("<200ms"),
        "{ages:?}"
    );
    let unknown = recorded
        .by("route")
        .iter()
        .filter(|((route, _), _)| route.is_empty())
        .map(|(_, sum)| sum)
        .sum::<i64>();
    ensure!(
        unknown * 50 < recorded.samples(),
        "{unknown} of {}",
        recorded.samples()
    );
    Ok(())
}

/// Requests that last 700 ms on one of two workers are listed before all others, each with its
/// moments.
#[test]
fn slow_requests_are_listed_with_their_work() -> Result<()> {
    let fpm = Fpm::start(2)?;
    let _clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Steps, 2);
    std::thread::sleep(Duration::from_millis(300));
    let since = fpm.logged()?;
    let recorded = record(fpm.pid(), 5, &["--labels=Method,Route,TraceID"])?;
    recorded.check_secrets()?;
    let logged = fpm.durations(since, "/steps")?;
    let timeline = recorded.timeline.context("no list")?;
    // Requests at the beginning and end of the run are not complete.
    let whole = |request: &&TimelineRequest| {
        request.begin > 0 && !request.is_unfinished && request.route == "/steps"
    };
    let slow: Vec<&TimelineRequest> = timeline.requests.iter().filter(whole).collect();
    ensure!(slow.len() >= 4, "{} requests", slow.len());
    // A turn that the machine delays spoils the request that it was for.
    let checked = slow.iter().map(|one| check_slow(&timeline, one, &logged));
    let (right, wrong): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
    ensure!(
        right.len() > wrong.len(),
        "{} right, {wrong:?}",
        right.len()
    );
    ensure!(
        timeline
            .requests
            .iter()
            .any(|it| it.route == "/" && it.samples > 0)
    );
    Ok(())
}

/// Checks a request of 700 ms, of which it sleeps 380, by the access log.
fn check_slow(timeline: &Timeline, request: &TimelineRequest, logged: &[i64]) -> Result<()> {
    let duration = request.duration() / 1_000_000;
    let is_logged = logged.iter().any(|it| it.abs_diff(duration) < 20);
    ensure!(is_logged, "{duration} ms, not {logged:?}: {request:?}");
    let wall = request.wall_nanoseconds / 1_000_000;
    ensure!(wall.abs_diff(duration) < 30, "{wall} ms: {request:?}");
    ensure!(request.method == "GET" && request.trace_id == requests_server::TRACE);
    let order = order(timeline, request);
    ensure!(
        order == ["serve_first", "serve_second", "serve_third"],
        "{order:?}"
    );
    let asleep = request.moments.iter().filter(|it| it.waits);
    let asleep = asleep.map(|it| it.duration).sum::<i64>() / 1_000_000;
    ensure!(
        (330..430).contains(&asleep),
        "{asleep} ms asleep: {request:?}"
    );
    Ok(())
}

fn check_filters(fpm: &Fpm, clients: &Clients) -> Result<()> {
    clients.mark();
    let arguments = ["--path-prefix=/shop/", "--labels=Route", "--include-idle"];
    let recorded = record(fpm.pid(), 6, &arguments)?;
    let truth = clients.shares();
    let kept: Vec<_> = recorded.by("route").into_keys().collect();
    ensure!(
        kept.iter().all(|(route, _)| route == "/shop/{id}/cart"),
        "{kept:?}"
    );
    let receipt = recorded.receipt()?;
    let dropped = &receipt["requests"]["dropped"];
    let count = |field: &str| dropped[field].as_f64().unwrap_or(0.0);
    let all = recorded.samples() as f64 + count("filtered") + count("undecided");
    let (kept, expected) = (recorded.samples() as f64, truth["/shop/{id}/cart"] / 100.0);
    shares::check("cart", kept, all, expected, recorded.missed()?)?;
    ensure!(count("undecided") < all / 50.0, "{receipt}");
    let posts = record(fpm.pid(), 3, &["--method=POST", "--labels=Method,Route"])?;
    ensure!(posts.shares("method").keys().all(|method| method == "POST"));
    ensure!(
        posts.shares("route").contains_key("/pay"),
        "{:?}",
        posts.shares("route")
    );
    Ok(())
}

/// Records requests from an age of 300 ms on, and checks that these are the slow ones, and others
/// only where the application was stopped for so long in them.
fn with_minimum_age(fpm: &Fpm, clients: &Clients, arguments: &[&str]) -> Result<Recorded> {
    const AGE: Duration = Duration::from_millis(300);
    const DEFAULT_RATE: f64 = 99.0;
    clients.mark();
    let age = format!("--min-request-age-ms={}", AGE.as_millis());
    let asked = [age.as_str(), "--labels=Route,RequestAge"];
    let arguments = [&asked[..], arguments].concat();
    let recorded = record(fpm.pid(), 8, &arguments)?;
    let stopped = clients.seconds_of_long("/", AGE) * DEFAULT_RATE;
    let samples = recorded.samples();
    ensure!(samples > 30, "{samples} samples: {}", recorded.said);
    let functions = recorded.by("route");
    let is_slow = |function: &str| function == "serve_slow";
    let others = functions
        .iter()
        .filter(|((_, function), _)| !is_slow(function));
    let others: i64 = others.map(|(_, sum)| sum).sum();
    ensure!(
        (others as f64) < samples as f64 / 10.0 + stopped,
        "{others} samples of other requests, of which {stopped:.0} are of long ones: {functions:?}"
    );
    Ok(recorded)
}

/// Routes, their functions and no secret, for another server; with FULL=1 for longer. RoadRunner's
/// worker here only handles GET.
#[track_caller]
fn check_other(kind: Kind) -> Result<()> {
    let Some(server) = Other::start(kind)? else {
        return Ok(());
    };
    let clients = server.clients();
    std::thread::sleep(Duration::from_millis(500));
    let recorded = with_shares(|| {
        clients.mark();
        let all = "--labels=Method,Route,Script,RequestAge,TraceID";
        let arguments = [all, "--route=/own/*/**=own"];
        let recorded = record(server.pid(), seconds(3), &arguments)?;
        recorded.check_secrets()?;
        Ok((recorded, vec![clients.shares()]))
    })?;
    let by_route = recorded.by("route");
    let with = by_route.iter().filter(|((route, _), _)| !route.is_empty());
    let (told, all): (i64, i64) = (with.map(|(_, sum)| sum).sum(), recorded.samples());
    let receipt = recorded.receipt()?;
    let count = |field: &str| receipt["requests"][field].as_i64().unwrap_or(0);
    // Each sample without a route is counted. A read that the kernel interrupts for over a
    // millisecond is refused, which happens often on a machine that has more to do than CPUs.
    let refused = count("changed") + count("unknown");
    ensure!(
        (told + refused) * 100 >= all * 99 && told * 100 > all * 85,
        "{told} of {all} have a route: {receipt}"
    );
    let (Kind::Apache(workers) | Kind::FrankenPhp(workers) | Kind::RoadRunner(workers)) = kind;
    check_cells(&recorded, workers)?;
    let list = recorded.timeline.as_ref().context("no list")?;
    let without = list.requests.iter().filter(|it| it.route.is_empty());
    let without = i64::try_from(without.count())?;
    ensure!(
        list.requests.len() > 20 && without <= refused,
        "{} requests, {without} without a route: {receipt}",
        list.requests.len()
    );
    if !matches!(kind, Kind::RoadRunner(_)) {
        let traces = recorded.shares("trace_id");
        ensure!(traces.keys().eq([requests_server::TRACE]), "{traces:?}");
    }
    Ok(())
}

#[test]
fn apache_routes_and_traces_have_no_secret() -> Result<()> {
    check_other(Kind::Apache(3))
}

#[test]
fn frankenphp_routes_have_no_secret() -> Result<()> {
    check_other(Kind::FrankenPhp(8))
}

#[test]
fn roadrunners_routes_are_told_and_no_secret() -> Result<()> {
    check_other(Kind::RoadRunner(4))
}

/// A profile has no data about requests unless it is requested.
#[test]
fn without_labels_a_profile_says_nothing_of_requests() -> Result<()> {
    let fpm = Fpm::start(1)?;
    let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Shop, 1);
    let recorded = record(fpm.pid(), 1, &[])?;
    drop(clients);
    ensure!(recorded.receipt()?["requests"].is_null());
    // The document root is a property of requests.
    let script = format!("{{main}} {}/index.php", fpm.folder().display());
    let scripts = recorded.scripts();
    ensure!(scripts.iter().eq([script.as_str()].iter()), "{scripts:?}");
    let labels = [
        "method",
        "route",
        "script",
        "request_age",
        "trace_id",
        "span_id",
    ];
    for label in labels {
        ensure!(recorded.shares(label).is_empty(), "{label}");
    }
    recorded.check_secrets()?;
    Ok(())
}

/// Reads of memory per sample, and requests per sample, for a run in this process, which is the
/// only one here.
fn costs(fpm: &Fpm, labels: SampleLabels) -> Result<(f64, f64)> {
    let requests = RequestSettings {
        labels,
        ..RequestSettings::default()
    };
    let recorded = phpprof::run::record(&RecordingOptions {
        requests,
        ..options(
            Scope::Pids(vec![i32::try_from(fpm.pid())?]),
            499,
            Duration::from_secs(3),
        )
    })?;
    let quality = recorded.sampler.quality;
    let samples = (quality.taken - quality.idle) as f64;
    ensure!(samples > 300.0, "{quality:?}");
    let gathers = recorded.calls.gathers - recorded.idle_calls.gathers;
    let told = recorded.facts.requests.map(|told| told.counts);
    let read = told.map_or(0, |counts| counts.requests + counts.changed);
    Ok((gathers as f64 / samples, read as f64 / samples))
}

/// A script of the command line has a label, but no request.
#[test]
fn command_line_has_only_a_script() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let jobs = folder.path().join("jobs");
    std::fs::create_dir(&jobs)?;
    let script = jobs.join("job.php");
    std::fs::write(&script, "<?php while (true) { md5('x'); }")?;
    let mut child = Command::new("php8.2")
        .arg(&script)
        .stdin(Stdio::null())
        .spawn()?;
    let recorded = record(
        child.id(),
        1,
        &["--labels=Method,Route,Script,RequestAge,TraceID"],
    );
    child.kill()?;
    child.wait()?;
    let recorded = recorded?;
    let scripts = recorded.shares("script");
    ensure!(scripts.keys().eq(["jobs/job.php"]), "{scripts:?}");
    for label in ["method", "route", "request_age", "trace_id"] {
        ensure!(recorded.shares(label).is_empty(), "{label}");
    }
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    /// One request of a hundred is slow: a filter by age shows its functions, also those at its
    /// beginning.
    #[test]
    fn minimum_age_finds_the_slow_function() -> Result<()> {
        let fpm = Fpm::start(2)?;
        let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::SlowAtTimes, 2);
        std::thread::sleep(Duration::from_millis(300));
        let old = with_minimum_age(&fpm, &clients, &[])?;
        let all = with_minimum_age(&fpm, &clients, &["--include-young"])?;
        let young = |recorded: &Recorded| -> i64 {
            let ages = recorded.by("request_age");
            ages.iter()
                .filter(|((age, _), _)| age == "<50ms" || age == "<200ms")
                .map(|(_, sum)| sum)
                .sum()
        };
        ensure!(
            young(&all) > 5 && young(&old) == 0,
            "{:?}, {:?}",
            all.by("request_age"),
            old.by("request_age")
        );
        ensure!(old.receipt()?["requests"]["dropped"]["young"].as_u64() > Some(300));
        Ok(())
    }

    #[test]
    fn filters_keep_their_requests_and_count_the_others() -> Result<()> {
        let fpm = Fpm::start(2)?;
        let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Shop, 2);
        std::thread::sleep(Duration::from_millis(300));
        check_filters(&fpm, &clients)
    }

    /// A real framework's frames are between the front controller and the work.
    #[test]
    fn symfony_routes_match_the_access_log() -> Result<()> {
        let Some(fpm) = Fpm::of_symfony(2)? else {
            return Ok(());
        };
        let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Shop, 2);
        std::thread::sleep(Duration::from_millis(500));
        let recorded = with_shares(|| {
            let since = fpm.logged()?;
            let labels = ["--labels=Method,Route,Script", "--route=/own/*/**=own"];
            let recorded = record(fpm.pid(), seconds(6), &labels)?;
            Ok((recorded, vec![fpm.shares(since)?]))
        })?;
        drop(clients);
        recorded.check_secrets()
    }

    #[test]
    fn ten_thousand_paths_are_bounded_and_counted() -> Result<()> {
        let fpm = Fpm::start(4)?;
        let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Any, 4);
        std::thread::sleep(Duration::from_millis(100));
        let recorded = record(
            fpm.pid(),
            6,
            &["--labels=Route", "-F", "1000", "--cpu-budget-percent=0"],
        )?;
        drop(clients);
        let routes = recorded.shares("route");
        let receipt = recorded.receipt()?;
        ensure!(routes.len() <= 1001, "{} routes", routes.len());
        ensure!(routes.contains_key("(other)"), "{receipt}");
        let timeline = recorded.timeline.as_ref().context("no list")?;
        ensure!(
            timeline.routes.len() <= timeline::MAX_ROWS
                && timeline.requests.len() <= timeline::MAX_REQUESTS
        );
        ensure!(
            timeline
                .routes
                .iter()
                .any(|row| row.route == timeline::OTHER)
        );
        ensure!(
            receipt["requests"]["other"]["route"].as_u64() > Some(100),
            "{receipt}"
        );
        let peak = receipt["samplerPeakBytes"].as_u64().unwrap_or(u64::MAX);
        ensure!(peak < PEAK, "{peak} bytes: {receipt}");
        Ok(())
    }

    /// The limits are on counts, not on times: a request is read once, however many samples it has.
    #[test]
    fn labels_cost_eight_reads_at_most() -> Result<()> {
        let fpm = Fpm::start(1)?;
        let clients = Clients::start(&fpm.socket, fpm.folder(), Requested::Shop, 1);
        std::thread::sleep(Duration::from_millis(500));
        let (without, none) = costs(&fpm, SampleLabels::default())?;
        let (with, requests) = costs(&fpm, [true; 5])?;
        drop(clients);
        eprintln!(
            "{without:.2} reads a sample without labels, {with:.2} with {requests:.3} requests"
        );
        ensure!(none == 0.0 && requests > 0.01, "{requests}");
        // The reads of stacks differ by chance.
        let (chance, allowed) = (0.15 * without, READS_OF_A_REQUEST * requests);
        ensure!(
            with - without <= allowed + chance,
            "{without:.2} reads a sample without labels, {with:.2} with {requests:.3} requests"
        );
        Ok(())
    }

    #[test]
    fn the_built_in_servers_routes_are_told() -> Result<()> {
        let (server, clients) = builtin()?;
        std::thread::sleep(Duration::from_millis(500));
        let recorded = with_shares(|| {
            clients.mark();
            let arguments = [
                "--labels=Method,Route,Script,TraceID",
                "--route=/own/*/**=own",
            ];
            let recorded = record(server.pid(), 5, &arguments)?;
            Ok((recorded, vec![clients.shares()]))
        })?;
        drop(clients);
        recorded.check_secrets()?;
        ensure!(
            recorded
                .shares("script")
                .keys()
                .all(|script| script.ends_with("index.php"))
        );
        let traces = recorded.shares("trace_id");
        ensure!(traces.keys().eq([requests_server::TRACE]), "{traces:?}");
        Ok(())
    }
}
