//! `phpprof top`: what PHP on this host does now, as a table that is drawn again each second.
//!
//! Each second gives its samples once ([`phpprof::deliver::deltas`]), and `phpprof_profile::live`
//! draws them with ratatui. The run has its own thread, so that a stopped terminal (Ctrl-S) does
//! not delay samples. Invariant: the run receives all signals; the table restores the terminal when
//! its run has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

use clap::{ArgGroup, Args};
use nix::sys::signal::{SigSet, Signal};
use phpprof::deliver::deltas::Deltas;
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::now;
use phpprof::request::asked::RequestSettings;
use phpprof::run::snapshot::{Keep, Snapshot};
use phpprof::run::stop::{StopSwitch, is_hangup_ignored};
use phpprof::run::{RecordError, RecordingOptions, RunEnd, record};
use phpprof::target::Scope;
use phpprof::target::pattern::Pattern;
use phpprof_profile::live::LiveTop as Table;
use phpprof_profile::live::screen::{self, Update};
use phpprof_profile::{DecodeLimits, decode};

use super::super::requests::LabelArguments;
use super::super::{HOW, WHAT, behave, failure_of, say, tell_without_room};
use super::{Common, none_of, of_masters, with_listing};

const KEYS: &str = "\
Keys:
  1-4, Tab   functions, lines, routes, workers      c         wall time or CPU time
  < >        sort by another column                 i         invert the order
  /          only rows with this text in their name      p, space  freeze the table
  r          reset all sums                         u, F5     update at once
  s          save the profile, as a pprof           q         quit

SELF% and TOTAL% are shares of the last second, SELF and TOTAL are sums since the start or the last reset. An arrow says that the share of self time rose or fell by more than chance, from five seconds to the next five.";

#[derive(Args)]
#[command(group(ArgGroup::new("what")), after_help = KEYS)]
pub struct TopArguments {
    /// Process to sample, with its descendants (a php-fpm master selects its workers). May be
    /// repeated.
    #[arg(short, long, value_name = "PID", group = "what", help_heading = WHAT)]
    pid: Vec<i32>,
    /// Sample every PHP process that this user may read.
    #[arg(short, long, group = "what", help_heading = WHAT)]
    all: bool,
    #[command(flatten)]
    common: Common,
    /// Samples per second for each worker.
    #[arg(short = 'F', long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = HOW)]
    samples_per_second: u32,
    /// Also keep the time between HTTP requests, as `[idle]`.
    #[arg(long, help_heading = HOW)]
    include_idle: bool,
    /// Percent of one core that the sampler may use; 0 means no limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=400), help_heading = HOW)]
    cpu_budget_percent: u32,
    #[command(flatten)]
    requests: LabelArguments,
}

/// Shows the table until the user ends it, or nothing is left to sample.
pub fn run(arguments: &TopArguments) -> Result<String, SamplerFailure> {
    let (scope, title) = chosen(arguments)?;
    if !screen::is_there() {
        let message = "top needs a terminal, and standard output is not one; for a file or a pipe: phpprof record -f folded";
        return Err(SamplerFailure::new(Reason::Usage, "terminal", message));
    }
    let requests = asked(&arguments.requests)?;
    behave();
    leave_signals_to_the_run();
    let (give, updates) = channel();
    let masters = Arc::new(OnceLock::new());
    let deltas = deltas(&scope, &give, &masters)?;
    let wanted = deltas.wanted();
    let options = options(arguments, scope, requests, deltas);
    // After the run no more updates come.
    drop(give);
    let stop = options.stop.clone();
    let run = Builder::new().name("run".to_owned()).spawn(move || {
        let ended =
            record(&options).map(|recording| (recording.ended, recording.facts.without_room));
        ended.map_err(|error| (failure_of(&error, &options), error))
    });
    let run = run.map_err(|error| internal(format!("the run could not be started: {error}")))?;
    let shown = show(title, &updates, &wanted);
    stop.request("drop");
    let ended = run
        .join()
        .map_err(|_| internal("the run ended early".to_owned()))?;
    match ended {
        Err((failure, RecordError::NoPhp(_))) => return Err(with_listing(failure)),
        // The user ended it before its first second.
        Err((_, RecordError::Stopped)) => return Ok(String::new()),
        Err((failure, _)) => return Err(failure),
        Ok((ended, without_room)) => {
            if ended == RunEnd::WorkersGone {
                say("the target has ended");
            }
            if let Some(told) = masters.get().into_iter().flatten().next() {
                say(told);
            }
            tell_without_room(without_room);
        }
    }
    shown.map(|()| String::new())
}

/// Shows the updates. It waits for the first one, because the run may still fail to find PHP.
fn show(
    title: String,
    updates: &Receiver<Update>,
    wanted: &AtomicBool,
) -> Result<(), SamplerFailure> {
    let mut table = Table::new(title);
    let Ok(Update::Tick(first, span)) = updates.recv() else {
        return Ok(());
    };
    let added = table.add(first, span);
    added.map_err(|error| internal(error.to_string()))?;
    let saved = screen::run(&mut table, updates, &|| {
        wanted.store(true, Ordering::Release);
    });
    let saved = saved.map_err(|error| internal(format!("the terminal: {error}")))?;
    for path in saved {
        let path = path.display();
        say(&format!(
            "{path}; look at it with: go tool pprof -http=localhost:8000 {path}"
        ));
    }
    Ok(())
}

/// Gives each second's samples to the table.
fn deltas(
    scope: &Scope,
    give: &Sender<Update>,
    masters: &Arc<OnceLock<Option<String>>>,
) -> Result<Deltas, SamplerFailure> {
    let (give, masters, of_scope) = (give.clone(), Arc::clone(masters), scope.clone());
    let deltas = Deltas::begin(move |delta| {
        // If the table has ended, the run ends, too.
        let _ = give.send(tick(&delta));
        // Once: on the screen until a key is pressed, and after the table.
        if masters.get().is_none() {
            let pids = delta.facts.seen.values().map(|seen| seen.pid);
            if let Some(told) = masters.get_or_init(|| of_masters(&of_scope, pids)) {
                let _ = give.send(Update::Message(told.clone()));
            }
        }
    });
    deltas.map_err(|error| internal(format!("starting a thread for profiles failed: {error}")))
}

fn options(
    arguments: &TopArguments,
    scope: Scope,
    requests: RequestSettings,
    deltas: Deltas,
) -> RecordingOptions {
    RecordingOptions {
        scope,
        samples_per_second: arguments.samples_per_second,
        duration: Duration::MAX,
        max_samples: None,
        unpaced: false,
        heap: false,
        fibers: None,
        include_idle: arguments.include_idle,
        only_running: false,
        of_program: false,
        cpu_budget_percent: (arguments.cpu_budget_percent > 0)
            .then_some(arguments.cpu_budget_percent),
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        checkpoints: Some(Arc::new(deltas) as Arc<dyn Keep>),
        requests,
    }
}

fn tick(delta: &Snapshot) -> Update {
    let made = output(delta, &[], OfSampler::default());
    match decode(&made.bytes, &DecodeLimits::of_own()) {
        Ok(profile) => Update::Tick(vec![profile], delta.facts.took),
        Err(error) => Update::Message(format!("a second is missing: {error}")),
    }
}

/// Requests the labels that tell routes and workers apart, unless others were requested.
fn asked(requests: &LabelArguments) -> Result<RequestSettings, SamplerFailure> {
    let asked = requests.asked()?;
    let labels = if asked.labels.contains(&true) {
        asked.labels
    } else {
        now::LABELS
    };
    Ok(RequestSettings { labels, ..asked })
}

/// What is sampled, and the table's title.
fn chosen(arguments: &TopArguments) -> Result<(Scope, String), SamplerFailure> {
    match arguments.common.pattern() {
        Some(pattern) => {
            let title = match &pattern {
                Pattern::Pool(pool) => format!("pool {pool}"),
                Pattern::Name(part) => format!("processes with {part} in their names"),
                Pattern::Cgroup(path) => format!("control group {path}"),
            };
            Ok((Scope::Fitting(pattern), title))
        }
        None if arguments.all => Ok((Scope::All, "all PHP".to_owned())),
        None if !arguments.pid.is_empty() => {
            let pids: Vec<_> = arguments.pid.iter().map(i32::to_string).collect();
            let title = format!("pid {}", pids.join(", "));
            Ok((Scope::Pids(arguments.pid.clone()), title))
        }
        None => Err(none_of("--pid, --php-fpm, --name, --cgroup or --all")),
    }
}

/// Blocks the signals in this thread and those that it starts; the run reads them.
fn leave_signals_to_the_run() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    if !is_hangup_ignored() {
        set.add(Signal::SIGHUP);
    }
    let _ = set.thread_block();
}

fn internal(message: String) -> SamplerFailure {
    SamplerFailure::new(Reason::Internal, "top", message)
}
