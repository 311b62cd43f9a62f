//! Heaps of PHP in common runtimes: functions that keep memory have the shares of
//! `profiler-image/runtimes/truth/Memory.php`, over several requests too, and functions that free
//! it have almost none.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use phpprof_profile::Lookup;
use phpprof_profile::proto::Profile;

use crate::kinds::{BULLSEYE, File, SID_8_5, SID_8_6, TRIXIE, ZTS};
use crate::place::Server;
use crate::profiler::Recorder;
use crate::runtime::Php;
use crate::server::Running;

const SECONDS: u32 = 4;
/// In percentage points.
const TOLERANCE: f64 = 5.0;
const KEPT: [(&str, f64); 3] = [
    ("Memory::half", 50.0),
    ("Memory::third", 30.0),
    ("Memory::fifth", 20.0),
];
const GIVEN_BACK: &str = "Memory::temporary";

/// A server whose heap is sampled.
pub struct Kind {
    pub name: &'static str,
    /// Not in the short form.
    pub full: bool,
    php: Php,
    server: Server,
    workers: usize,
}

const SCRIPT: Server = Server::Script { opcache: true };
const FPM: Server = Server::Fpm {
    manager: "static",
    requests: 0,
};

const fn kind(name: &'static str, full: bool, php: Php, server: Server, workers: usize) -> Kind {
    Kind {
        name,
        full,
        php,
        server,
        workers,
    }
}

const fn frankenphp(worker: bool) -> Server {
    Server::FrankenPhp {
        name: "frankenphp-8.2",
        worker,
    }
}

pub const KINDS: &[Kind] = &[
    kind(
        "heap, RoadRunner 8.2",
        false,
        Php::Host,
        Server::RoadRunner,
        2,
    ),
    kind(
        "heap, FrankenPHP 8.2 ZTS, worker mode",
        false,
        ZTS,
        frankenphp(true),
        4,
    ),
    kind("heap, FrankenPHP 8.2 ZTS", true, ZTS, frankenphp(false), 4),
    kind("heap, fpm 8.2", true, Php::Host, FPM, 2),
    kind("heap, fpm 7.4", true, BULLSEYE, FPM, 2),
    kind("heap, cli 7.4", true, BULLSEYE, SCRIPT, 1),
    kind("heap, cli 8.4", true, TRIXIE, SCRIPT, 1),
    kind("heap, cli 8.5", true, SID_8_5, SCRIPT, 1),
    kind("heap, cli 8.6", true, SID_8_6, SCRIPT, 1),
    kind("heap, cli 8.2 ZTS", true, ZTS, SCRIPT, 1),
    kind(
        "heap, cli 8.2 musl",
        true,
        Php::Built("php-8.2-musl"),
        SCRIPT,
        1,
    ),
];

/// Whether a kind agrees with the truth. If not, it is measured once more, because a busy machine
/// may be the cause.
pub fn holds(kind: &Kind) -> bool {
    let faults = match measured(kind) {
        Ok(faults) if faults.is_empty() => Ok(faults),
        _ => measured(kind),
    };
    let faults = faults.unwrap_or_else(|error| vec![format!("{}: {error:#}", kind.name)]);
    for fault in &faults {
        println!("    WRONG: {fault}");
    }
    faults.is_empty()
}

fn measured(kind: &Kind) -> Result<Vec<String>> {
    let server = Running::start_with(kind.php, kind.server, kind.workers, File::Stays, "heap.php")?;
    let asking = server.ask(kind.workers);
    std::thread::sleep(Duration::from_millis(500));
    let recorder = Recorder::start_with(&[server.pid()], 499, SECONDS, &["--heap"])?;
    let profile = recorder.finish();
    asking.stop().with_context(|| server.log())?;
    let profile = profile?;
    let sums = by_function(&profile)?;
    let of = |name: &str| sums.get(name).copied().unwrap_or(0) as f64;
    let all: f64 = KEPT.iter().map(|(name, _)| of(name)).sum();
    let share = |name: &str| 100.0 * of(name) / all.max(1.0);
    let shares = KEPT.map(|(name, _)| format!("{:>6.1}", share(name)));
    println!(
        "{:<36} {:>7} {:>9.1} MiB kept{} % given back {:>5.1} %",
        kind.name,
        kind.workers,
        all / f64::from(1 << 20),
        shares.concat(),
        share(GIVEN_BACK)
    );
    let mut faults = Vec::new();
    for (name, expected) in KEPT {
        if (share(name) - expected).abs() > TOLERANCE {
            faults.push(format!("{name}: {:.1} % of {expected:.1} %", share(name)));
        }
    }
    // A megabyte of each worker may be held at the end.
    if of(GIVEN_BACK) > of(KEPT[2].0) + kind.workers as f64 * f64::from(1 << 20) {
        faults.push(format!("{GIVEN_BACK} has {:.0} bytes", of(GIVEN_BACK)));
    }
    Ok(faults)
}

/// The memory that functions hold, with their callees.
fn by_function(profile: &Profile) -> Result<HashMap<&str, i64>> {
    let index = profile
        .value_index("heap_change")
        .context("no heap_change")?;
    let lookup = Lookup::new(profile);
    let mut sums = HashMap::new();
    for sample in &profile.sample {
        let mut names: Vec<&str> = lookup.frames(sample).map(|frame| frame.name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            *sums.entry(name).or_default() += sample.value[index];
        }
    }
    Ok(sums)
}
