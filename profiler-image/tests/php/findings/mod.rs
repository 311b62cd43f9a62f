//! The findings for programs on this machine's PHP 8.2: for each rule one that has its problem, and
//! a similar one that has not.
//!
//! `programs/` contains them; the environment variable PROBLEM selects one of the two. This test
//! has recorded the profiles in `profile/tests/findings`: PHPPROF_KEEP names a folder for them. A
//! program whose extension PHP does not have here is left out, and its name printed;
//! PHP_INI_SCAN_DIR may add the extension.

#[cfg(test)]
mod scene;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use phpprof_profile::findings::RULES;
use phpprof_profile::{DecodeLimits, View, decode, findings};
use scene::{Problem, Program, Scene, XDEBUG, has_extension};

/// A wait, a phase, and a server without a free process: rules that run without FULL=1. Recorded
/// profiles of all are tested in any case (`profile/tests/findings`).
const SHORT: [&str; 3] = ["all-busy", "compiling", "session-lock"];
/// Runs at once: most of them wait.
const AT_ONCE: usize = 4;
/// On a busy machine, a run may see too little, or waits that other programs cause: it is tried
/// again, for longer.
const DURATIONS: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

const PLAIN: Program = Program {
    id: "",
    needs: None,
    clients: None,
    settings: |_| &[],
    records: &[],
    server: None,
};
/// This many clients leave the one process that serves no time between two requests.
const SERVED: Program = Program {
    clients: Some(|_| 4),
    ..PLAIN
};

const LITTLE_ROOM: [&str; 4] = [
    "opcache.memory_consumption=8",
    "opcache.interned_strings_buffer=1",
    "opcache.max_wasted_percentage=1",
    "opcache.revalidate_freq=0",
];

/// The programs by the ids of the rules.
fn programs() -> Vec<Program> {
    let jit = |_| {
        &[
            "opcache.enable_cli=1",
            "opcache.jit=tracing",
            "opcache.jit_buffer_size=16M",
        ] as &'static [&'static str]
    };
    let is_on = |problem| match problem {
        Problem::Has => &["opcache.enable=0"] as &'static [&'static str],
        Problem::Near => &["opcache.enable=1"],
    };
    // The lowest setting, with room for names.
    let has_room = |problem| match problem {
        Problem::Has => &LITTLE_ROOM as &'static [&'static str],
        Problem::Near => &[
            "opcache.memory_consumption=512",
            "opcache.revalidate_freq=0",
        ],
    };
    let observed = |problem| match problem {
        Problem::Has => &["xdebug.mode=develop"] as &'static [&'static str],
        Problem::Near => &["xdebug.mode=off"],
    };
    let all = [
        ("class-map", SERVED),
        ("preloading", SERVED),
        ("session-lock", PLAIN),
        ("waiting-process", PLAIN),
        ("waiting-lock", PLAIN),
        ("sleep", SERVED),
        ("error-handler", PLAIN),
        ("gc", PLAIN),
        ("output-buffer", PLAIN),
        ("regex", PLAIN),
        ("serialising", PLAIN),
        ("compiling", SERVED),
        (
            "opcache-off",
            Program {
                settings: is_on,
                ..SERVED
            },
        ),
        (
            "opcache-full",
            Program {
                settings: has_room,
                ..SERVED
            },
        ),
        (
            "opcache-restarts",
            Program {
                settings: has_room,
                // Two would write into one file.
                clients: Some(|_| 1),
                ..PLAIN
            },
        ),
        (
            "xdebug",
            Program {
                needs: Some(XDEBUG),
                settings: observed,
                ..PLAIN
            },
        ),
        (
            "jit",
            Program {
                settings: jit,
                ..PLAIN
            },
        ),
        (
            "waiting-database",
            Program {
                needs: Some("pdo_sqlite"),
                ..PLAIN
            },
        ),
        (
            "query-loop",
            Program {
                needs: Some("pdo_sqlite"),
                ..PLAIN
            },
        ),
        (
            "waiting-cache",
            Program {
                needs: Some("redis"),
                server: Some(("2", "redis")),
                ..PLAIN
            },
        ),
        (
            "waiting-http",
            Program {
                needs: Some("curl"),
                server: Some(("20", "http")),
                ..PLAIN
            },
        ),
        (
            "memory-limit",
            Program {
                settings: |_| &["memory_limit=32M"],
                records: &["--heap"],
                ..PLAIN
            },
        ),
        // More clients than the three processes that serve.
        (
            "all-busy",
            Program {
                clients: Some(|problem| if problem == Problem::Has { 10 } else { 1 }),
                ..PLAIN
            },
        ),
    ];
    let named = |(id, program)| Program { id, ..program };
    all.into_iter().map(named).collect()
}

/// The ids of the findings.
fn said(program: &Program, problem: Problem, duration: Duration) -> Result<Vec<&'static str>> {
    let scene = Scene::start(program, problem)?;
    let bytes = scene.record(duration)?;
    if let Some(folder) = std::env::var_os("PHPPROF_KEEP") {
        let file = PathBuf::from(folder).join(format!("{}-{}.pb.gz", program.id, problem.word()));
        fs::write(file, &bytes)?;
    }
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let found = findings(&profile, &View::default());
    Ok(found.iter().map(|finding| finding.id).collect())
}

fn check(program: &Program, problem: Problem) -> Result<()> {
    let mut last = Vec::new();
    for duration in DURATIONS {
        last = said(program, problem, duration)?;
        if last.contains(&program.id) == (problem == Problem::Has) {
            return Ok(());
        }
    }
    ensure!(false, "it was said {last:?}");
    Ok(())
}

#[test]
fn problem_is_told_from_near_ones() -> Result<()> {
    check_all(|id| SHORT.contains(&id))
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn programs_of_other_rules_are_told_apart() -> Result<()> {
        check_all(|id| !SHORT.contains(&id))
    }
}

fn check_all(is_meant: impl Fn(&str) -> bool) -> Result<()> {
    let programs = programs();
    let with = |id| programs.iter().filter(move |program| program.id == id);
    for rule in &RULES {
        ensure!(with(rule.id).count() == 1, "{} has no program", rule.id);
    }
    let needed: BTreeMap<_, _> = programs
        .iter()
        .filter_map(|program| program.needs)
        .map(|name| Ok((name, has_extension(name)?)))
        .collect::<Result<_>>()?;
    let (can, cannot): (Vec<_>, Vec<_>) = programs
        .iter()
        .filter(|program| is_meant(program.id))
        .partition(|program| program.needs.is_none_or(|name| needed[name]));
    for program in cannot {
        eprintln!(
            "{}: PHP has no {}",
            program.id,
            program.needs.unwrap_or_default()
        );
    }
    let both = |program| [(program, Problem::Has), (program, Problem::Near)];
    let runs: Mutex<Vec<(&Program, Problem)>> =
        Mutex::new(can.into_iter().flat_map(both).collect());
    let next = || runs.lock().ok()?.pop();
    let work = || {
        let mut failed = Vec::new();
        while let Some((program, problem)) = next() {
            let outcome = check(program, problem);
            let name = || format!("{}, {}", program.id, problem.word());
            failed.extend(outcome.with_context(name).err());
        }
        failed
    };
    let failed: Vec<anyhow::Error> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| {
            let panicked = |_| vec![anyhow::anyhow!("a thread has panicked")];
            worker.join().unwrap_or_else(panicked)
        });
        ends.flatten().collect()
    });
    ensure!(failed.is_empty(), "{failed:#?}");
    Ok(())
}
