//! `phpprof heap`: what is in the heaps of this host's workers, who holds it, and what has grown
//! since an earlier look.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use phpprof::deliver::pprof::{HeapOfWorker, HeapsProfile};
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::heap::each_heap;
use phpprof::run::record;
use phpprof_profile::in_use::{InUseReport, is_in_use};
use phpprof_profile::{Amount, DecodeLimits, Profile, decode, marked};
use serde_json::json;

use super::super::{
    OUTPUT, WHAT, behave, failure_of, of_sampler, say, tell_unread_memory, tell_without_room,
};
use super::dump::{of_a_moment, scope};
use super::sink::Sink;
use super::{Common, of_masters, with_listing};

const EXAMPLES: &str = "\
Examples:
  phpprof heap --php-fpm www                              what is in the heaps of a pool's workers
  phpprof heap -p 4711 -o heap.html                       the same as a flame graph of what holds it
  phpprof heap -p 4711 -o before.pb.gz                    an early look,
  phpprof heap -p 4711 --baseline before.pb.gz            and what has grown since then";

#[derive(Args)]
#[command(group(ArgGroup::new("what")), after_help = EXAMPLES)]
pub struct HeapArguments {
    /// Process to show, with its descendants (a php-fpm master selects its workers). May be
    /// repeated.
    #[arg(short, long, value_name = "PID", group = "what", help_heading = WHAT)]
    pid: Vec<i32>,
    /// Show every PHP process that this user may read.
    #[arg(short, long, group = "what", help_heading = WHAT)]
    all: bool,
    #[command(flatten)]
    common: Common,
    /// Show what has grown since this profile, which an earlier `phpprof heap -o FILE.pb.gz` has
    /// written: most growth first.
    #[arg(short, long, value_name = "FILE", help_heading = WHAT)]
    baseline: Option<PathBuf>,
    /// Output: text, json or md (Markdown) on the standard output; or a file, whose extension says
    /// the format, as of `record`: .pb.gz, .html, .svg, .folded, .json.
    #[arg(short, long, value_name = "FORM|FILE", default_value = "text", help_heading = OUTPUT)]
    output: String,
}

/// How the result is shown on the standard output.
#[derive(Clone, Copy)]
enum HeapForm {
    Text,
    Json,
    Markdown,
}

/// Reads the heaps, and writes the result.
pub fn run(arguments: &HeapArguments) -> Result<String, SamplerFailure> {
    let scope = scope(&arguments.common, arguments.all, &arguments.pid)?;
    let form = match arguments.output.as_str() {
        "text" => Some(HeapForm::Text),
        "json" => Some(HeapForm::Json),
        "md" => Some(HeapForm::Markdown),
        _ => None,
    };
    let file = Some(Path::new(&arguments.output)).filter(|_| form.is_none());
    let sink = Sink::open(file, None, false)?;
    let baseline = arguments.baseline.as_deref().map(baseline).transpose()?;
    behave();
    let options = of_a_moment(scope);
    let recording = record(&options);
    let recording = recording.map_err(|error| with_listing(failure_of(&error, &options)))?;
    let pids = recording.facts.seen.values().map(|seen| seen.pid);
    if let Some(told) = of_masters(&options.scope, pids) {
        say(&told);
    }
    tell_without_room(recording.facts.without_room);
    let snapshot = recording.snapshot();
    let mut heaps = HeapsProfile::begin(&snapshot, &[]);
    let late = each_heap(&recording.facts.seen, &mut |tid, read| heaps.add(tid, read));
    tell_unread_memory(late);
    let workers = heaps.workers.clone();
    let of_sampler = of_sampler(phpprof::contract::NUMBER);
    let pprof = heaps.finish(late, of_sampler).bytes;
    if let Some(sink) = sink
        && let Some(written) = sink.keep(&pprof, None)?
    {
        say(&written);
    }
    // What has grown is text even if the profile goes to a file.
    let form = form.or(baseline.is_some().then_some(HeapForm::Text));
    let Some(form) = form else {
        return Ok(String::new());
    };
    let profile = decode(&pprof, &DecodeLimits::of_own());
    let profile = profile.map_err(|error| failed(format!("the profile: {error}")))?;
    let report = InUseReport::of(&profile, baseline.as_ref());
    let text = match form {
        HeapForm::Text => text(&report, &workers, arguments),
        HeapForm::Markdown => report.markdown("phpprof heap"),
        HeapForm::Json => {
            let mut document = report.json();
            document["workers"] = json!(workers);
            format!("{document:#}\n")
        }
    };
    let written = std::io::stdout().write_all(text.as_bytes());
    let written = written.map(|()| String::new());
    written.map_err(|error| failed(format!("the standard output: {error}")))
}

/// The workers, what is in their heaps, and what to do next.
fn text(report: &InUseReport, workers: &[HeapOfWorker], arguments: &HeapArguments) -> String {
    let mut text: String = workers.iter().map(worker_line).collect();
    text += &format!("\n{}\nnext\n", report.text(None));
    for line in report.advice().into_iter().chain(next(arguments)) {
        text += &format!("  {line}\n");
    }
    text
}

fn worker_line(worker: &HeapOfWorker) -> String {
    let mut line = format!("pid {}", worker.pid);
    if let Some(thread) = worker.thread {
        line += &format!(" thread {thread}");
    }
    let bytes = |bytes: u64| {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        Amount::of("bytes", bytes).text(bytes)
    };
    if let Some(size) = worker.heap_bytes {
        line += &format!(": {} in use", bytes(size));
        line += &match worker.limit {
            Some(limit) => format!(", memory_limit {}", bytes(limit)),
            None => ", no memory_limit".to_owned(),
        };
        line += match worker.refused {
            None if worker.is_moment => "; a moment",
            None => "; Torn: it ran meanwhile",
            Some(_) => "",
        };
    }
    match &worker.refused {
        Some(why) => line += &format!("; not read: {}", marked(why, char::is_control)),
        None if worker.held_bytes == 0 => line += "; nothing is in it, as between two requests",
        None => {}
    }
    line + "\n"
}

/// What to do next, with the same processes.
fn next(arguments: &HeapArguments) -> Vec<String> {
    let Common {
        php_fpm,
        name,
        cgroup,
    } = &arguments.common;
    let by = |flag: &str, value: &Option<String>| {
        let value = value.as_deref()?;
        Some(format!(" {flag} '{}'", value.replace('\'', r"'\''")))
    };
    let of = by("--php-fpm", php_fpm).or_else(|| by("--name", name));
    let of = of.or_else(|| by("--cgroup", cgroup)).unwrap_or_else(|| {
        let pids = arguments.pid.iter().map(|pid| format!(" -p {pid}"));
        if arguments.all {
            " --all".to_owned()
        } else {
            pids.collect()
        }
    });
    let mut next = vec![format!(
        "all paths as a flame graph:     phpprof heap{of} -o heap.html"
    )];
    if arguments.baseline.is_none() {
        next.extend([
            format!("what grows, first a baseline:   phpprof heap{of} -o before.pb.gz"),
            format!("and some requests later:        phpprof heap{of} --baseline before.pb.gz"),
        ]);
    }
    next
}

/// Reads the profile of an earlier look.
fn baseline(path: &Path) -> Result<Profile, SamplerFailure> {
    let shown = path.display();
    let usage = |what: String| {
        let message =
            format!("--baseline {shown}: {what}; write one with: phpprof heap -o before.pb.gz");
        SamplerFailure::new(Reason::Usage, "baseline", message)
    };
    let bytes = std::fs::read(path).map_err(|error| usage(error.to_string()))?;
    let profile = decode(&bytes, &DecodeLimits::default());
    let profile = profile.map_err(|error| usage(error.to_string()))?;
    if is_in_use(&profile) {
        Ok(profile)
    } else {
        Err(usage("it is not a profile of heaps".to_owned()))
    }
}

fn failed(message: String) -> SamplerFailure {
    SamplerFailure::new(Reason::Internal, "output", message)
}
