//! `phpprof dump`: where each worker of this host is now, and what it waits for.

use std::io::Write as _;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::heap::add_memory;
use phpprof::now::{self, Begin};
use phpprof::request::asked::RequestSettings;
use phpprof::run::fibers::FiberSchedule;
use phpprof::run::stop::StopSwitch;
use phpprof::run::{RecordingOptions, record};
use phpprof::target::Scope;
use phpprof_profile::dump;

use super::super::{
    OUTPUT, WHAT, behave, failure_of, fibers, say, tell_unread_memory, tell_without_room,
};
use super::{Common, none_of, of_masters, with_listing};

#[derive(Args)]
#[command(group(ArgGroup::new("what")))]
pub struct DumpArguments {
    /// Process to show, with its descendants (a php-fpm master selects its workers). May be
    /// repeated.
    #[arg(short, long, value_name = "PID", group = "what", help_heading = WHAT)]
    pid: Vec<i32>,
    /// Show every PHP process that this user may read.
    #[arg(short, long, group = "what", help_heading = WHAT)]
    all: bool,
    /// Show what each worker's memory is made of, instead of its stack: the sizes of small, large
    /// and huge blocks, what is free in them, the classes of its objects, and the memory of the
    /// process. It shows sizes, counts and names of classes, no contents.
    #[arg(short, long, help_heading = WHAT)]
    memory: bool,
    /// Also show where each worker's fibers are suspended, those with the same stack together.
    #[arg(long, conflicts_with = "memory", help_heading = WHAT)]
    fibers: bool,
    #[command(flatten)]
    common: Common,
    /// Output format: text or json.
    #[arg(short, long, value_name = "FORM", default_value = "text", value_parser = ["text", "json"], help_heading = OUTPUT)]
    output: String,
}

/// Samples for a moment, and writes the result to the standard output.
pub fn run(arguments: &DumpArguments) -> Result<String, SamplerFailure> {
    let scope = scope(&arguments.common, arguments.all, &arguments.pid)?;
    behave();
    let begin = Arc::new(Begin::default());
    let options = RecordingOptions {
        fibers: arguments.fibers.then_some(FiberSchedule::AtEnd),
        checkpoints: Some(Arc::clone(&begin) as _),
        requests: RequestSettings {
            labels: now::LABELS,
            ..RequestSettings::default()
        },
        ..of_a_moment(scope)
    };
    let recording = record(&options);
    let recording = recording.map_err(|error| with_listing(failure_of(&error, &options)))?;
    let mut workers = now::workers(&recording.snapshot(), &begin.look(&recording.facts.seen));
    if arguments.memory {
        tell_unread_memory(add_memory(&mut workers, &recording.facts.seen));
    }
    let workers = dump::ordered(workers);
    let unread = recording.facts.seen.len().saturating_sub(workers.len());
    if unread > 0 {
        say(&format!("{unread} workers ended, or could not be read"));
    }
    let pids = recording.facts.seen.values().map(|seen| seen.pid);
    if let Some(told) = of_masters(&options.scope, pids) {
        say(&told);
    }
    tell_without_room(recording.facts.without_room);
    fibers::summarize(&recording);
    let without_sample = now::without_sample(&recording.facts, &workers);
    let text = match arguments.output.as_str() {
        "json" => dump::json(&workers, without_sample),
        _ if arguments.memory => dump::memory_text(&workers, without_sample),
        _ => dump::text(&workers, without_sample),
    };
    let written = std::io::stdout().write_all(text.as_bytes());
    let failed = |error| {
        let message = format!("the standard output: {error}");
        SamplerFailure::new(Reason::Internal, "output", message)
    };
    written.map(|()| String::new()).map_err(failed)
}

/// The options of a run that only looks at each worker.
pub fn of_a_moment(scope: Scope) -> RecordingOptions {
    RecordingOptions {
        scope,
        samples_per_second: now::SAMPLES_PER_SECOND,
        duration: now::TAKES,
        max_samples: None,
        unpaced: false,
        include_idle: true,
        only_running: false,
        heap: false,
        fibers: None,
        of_program: false,
        cpu_budget_percent: None,
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        checkpoints: None,
        requests: RequestSettings::default(),
    }
}

/// The processes that are chosen by what they have in common, all, or these.
pub fn scope(common: &Common, all: bool, pids: &[i32]) -> Result<Scope, SamplerFailure> {
    match common.pattern() {
        Some(pattern) => Ok(Scope::Fitting(pattern)),
        None if all => Ok(Scope::All),
        None if !pids.is_empty() => Ok(Scope::Pids(pids.to_vec())),
        None => Err(none_of("--pid, --php-fpm, --name, --cgroup or --all")),
    }
}
