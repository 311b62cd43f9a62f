//! The command line as typed. The module of each verb says what it means.
//!
//! Invariant: usage begins with `kubectl phpprof`, and flags are spelled as kubectl spells them.

mod ask;
mod heap;
mod job;
mod schedule;
mod verdict;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use phpprof_profile::Prefix;

pub use ask::{
    CanaryArguments, DryRun, Dump, LookArguments, ObjectForm, RequestArguments, RunFlags, RunLabel,
};
pub use heap::{HeapFlags, HeapOutput, InUseForm};
pub use job::JobArguments;
pub use schedule::{Schedule, ScheduleCreate, ScheduleDelete, ScheduleVerb};
pub use verdict::{VerdictFlags, VerdictForm, VerdictMeasure, VerdictOutput};

use verdict::points;

use crate::exit::HELP;
use crate::global::Global;
use crate::jsonpath::Path;
use crate::output::{NAMED, NAMELESS, OutputFlag, help};

/// Profile PHP in running pods, and view the profiles.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl phpprof",
    bin_name = "kubectl phpprof",
    version,
    arg_required_else_help = true,
    after_help = HELP
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Profile a workload or pods, wait, and show the top functions.
    Run(RunFlags),
    /// Profile on a schedule, with CronJobs in your namespace. Needs no administrator's rights.
    Schedule(Schedule),
    /// List profile requests.
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Show a profile request, or print it as YAML or JSON. Without a name, list requests.
    Get(Get),
    /// Delete profile requests. Their stored profiles stay until their retention ends.
    Delete(Delete),
    /// Show a profile request with each of its pods, and what to do about failures.
    Describe(NameArgument),
    /// Stop a running profile request early; what was sampled is kept.
    Cancel(Cancel),
    /// Print the logs of a profile request's samplers.
    Logs(Logs),
    /// Explain a reason or a finding, and what to do about it.
    Explain(Explain),
    /// Show the top functions of a request or a profile file.
    Top(TopFlags),
    /// Show known problems in the profile of a request or a file.
    Findings(Findings),
    /// List the slowest HTTP requests that samplers saw, of a profile request or a file.
    Requests(RequestsFlags),
    /// Draw the flame graph page of a request or a profile file.
    Flame(Flame),
    /// Compare two requests or profile files: which functions grew, which shrank.
    Diff(DiffFlags),
    /// Say whether requests got slower between two requests or profile files, by how much, and
    /// which functions did it.
    Verdict(VerdictFlags),
    /// Look at the stored profiles of the namespace in a browser: search, compare two, open.
    Ui(Ui),
    /// Save the profile of a request, or convert a profile file.
    Download(Download),
    /// Check whether you can profile a workload, and how, or why not.
    Doctor(Doctor),
    /// Show where every worker is now, and what it waits for. Stuck workers come first.
    Dump(Dump),
    /// Show what is in the heaps of running workers, and who holds it; with --baseline, what has
    /// grown.
    Heap(HeapFlags),
    /// Answer agents about profiles, as a server of the Model Context Protocol.
    Mcp(McpFlags),
    /// Print the versions of the plugin, the operator and the sampler's image.
    Version(Version),
    /// Print a completion script.
    Completion(Completion),
    /// The reference page of this command line.
    #[command(name = "__reference", hide = true)]
    Reference,
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(Complete),
}

#[derive(Args, Debug, Default)]
pub struct ListFlags {
    /// List requests of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// List the namespace's stored profiles, including those of deleted requests.
    #[arg(long, conflicts_with_all = ["all_namespaces", "selector", "watch"])]
    pub stored: bool,
    /// Requests by their labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    #[arg(short, long, help = help(NAMED), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMED))]
    pub output: OutputFlag,
    /// Sort by the value at this JSONPath, for instance .metadata.creationTimestamp.
    #[arg(long, value_name = "PATH", value_parser = Path::parse)]
    pub sort_by: Option<Path>,
    /// Keep running, and print changes.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Get {
    /// Name of a request, or pprof/NAME. For a deleted request: NAME, or NAME@UID as list --stored
    /// shows it.
    #[arg(value_name = "NAME", conflicts_with_all = ["all_namespaces", "stored", "selector", "sort_by", "watch"])]
    pub name: Option<String>,
    #[command(flatten)]
    pub list: ListFlags,
}

#[derive(Args, Debug)]
pub struct Ui {
    /// Port of 127.0.0.1 to listen on; 0 is any free port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
}

#[derive(Args, Debug)]
pub struct Delete {
    /// Names of requests, or pprof/NAME.
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "selector"], conflicts_with_all = ["all", "selector"])]
    pub names: Vec<String>,
    /// All requests of the namespace.
    #[arg(long, conflicts_with = "selector")]
    pub all: bool,
    /// Requests by their labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Do not fail if a request is already gone.
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Delete nothing: client lists what would be deleted, server lets the API server check it.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    pub dry_run: Option<DryRun>,
}

#[derive(Args, Debug)]
pub struct NameArgument {
    /// Name of a request, or pprof/NAME.
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Args, Debug)]
pub struct Cancel {
    /// Names of requests.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Change nothing.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    pub dry_run: Option<DryRun>,
}

#[derive(Args, Debug)]
pub struct Logs {
    /// Name of a request, or pprof/NAME.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print only the logs of this pod.
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// A reason as the status spells it, or a finding. Default: list all reasons.
    #[arg(value_name = "REASON")]
    pub reason: Option<String>,
}

/// Which part of a profile is shown.
#[derive(Args, Debug, Clone, Default)]
pub struct ViewArguments {
    /// Sample type: wall, cpu or samples; with --heap also heap_growth and heap_change; with
    /// --fibers also fibers and suspended; of what is in heaps, inuse_space or inuse_objects.
    /// Default: the profile's default, which is wall or inuse_space.
    #[arg(short = 't', long, value_name = "TYPE")]
    pub sample_type: Option<String>,
    /// Only samples with this label. May be repeated.
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
}

#[derive(Args, Debug)]
pub struct TopFlags {
    /// Name of a request, or a profile file. With --live, what to profile: deploy/web, pod/web-1,
    /// as for run.
    #[arg(value_name = "NAME|FILE|TYPE/NAME")]
    pub source: String,
    /// Sample these pods now, and update the table each second: functions, lines, routes, workers.
    /// `s` saves the profile, `q` quits.
    #[arg(long, conflicts_with_all = ["sample_type", "labels", "count", "sort", "by", "output"])]
    pub live: bool,
    /// Container that runs PHP. Default: the pod's default container, else its only one, else the
    /// only one whose name or image names PHP.
    #[arg(short, long, value_name = "NAME", requires = "live")]
    pub container: Option<String>,
    /// The most pods to sample.
    #[arg(long, value_name = "COUNT", default_value_t = 5, requires = "live")]
    pub max_pods: i32,
    /// The longest time to sample; the administrator may allow less.
    #[arg(short, long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "5m", requires = "live")]
    pub duration: u64,
    #[command(flatten)]
    pub view: ViewArguments,
    /// How many functions to list.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,
    /// Column to sort by.
    #[arg(long, value_name = "COLUMN", default_value = "self")]
    pub sort: TopSort,
    /// Show a line per value of this label instead of per function; `waiting` is what workers
    /// waited for.
    #[arg(long, value_name = "KEY")]
    pub by: Option<String>,
    #[arg(short, long, help = help(NAMED), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMED))]
    pub output: OutputFlag,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopSort {
    // Users read self and total, as on the page. Code has pprof's words for them, because self is a
    // keyword.
    #[value(name = "self")]
    Flat,
    #[value(name = "total")]
    Cum,
    Name,
}

#[derive(Args, Debug)]
pub struct Findings {
    /// Name of a request, or a profile file.
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    /// Only samples with this label. May be repeated.
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    #[arg(short, long, help = help(NAMED), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMED))]
    pub output: OutputFlag,
}

#[derive(Args, Debug)]
pub struct RequestsFlags {
    /// Name of a profile request with the label Route, or a file of its list (requests.json.gz).
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    /// Only HTTP requests with this value of the label route.
    #[arg(long, value_name = "ROUTE")]
    pub route: Option<String>,
    /// How many HTTP requests to list.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub limit: usize,
    #[arg(short, long, help = help(NAMELESS), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMELESS))]
    pub output: OutputFlag,
}

#[derive(Args, Debug)]
pub struct Flame {
    /// Name of a request, or a profile file.
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    #[command(flatten)]
    pub view: ViewArguments,
    /// Where to write the page (.html) or picture (.svg). Default: open the page in a browser.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// Folder with the source code, which is shown in the page with the time of each line. The
    /// profile's PHP files that are in it become a part of the page, up to 8 MiB.
    #[arg(long = "source", id = "folder", value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct DiffFlags {
    /// The profile before: name of a request, or a profile file.
    #[arg(value_name = "BEFORE")]
    pub before: String,
    /// The profile after: name of a request, or a profile file.
    #[arg(value_name = "AFTER")]
    pub after: String,
    #[command(flatten)]
    pub view: ViewArguments,
    /// What to compare: shares of the total time, or the time per HTTP request, counted from the
    /// requests that samples saw. Sampling sees short requests in proportion to their duration, so
    /// compare runs of the same rate and load. request cannot be used with --label.
    #[arg(long, value_name = "WHAT", default_value = "share")]
    pub per: Per,
    /// End with exit code 9 if the self time of a function has grown by more than this many points,
    /// and by more than chance. Points are percent of the total time; with --per request, percent
    /// of the time that a request took before. Not for what is in heaps.
    #[arg(long, value_name = "POINTS", value_parser = points)]
    pub fail_above: Option<f64>,
    /// Compare profiles that are unlike: of other sample types, of rates that differ by more than a
    /// factor of four, of other labels or filters of requests. What differs is printed.
    #[arg(long)]
    pub force: bool,
    /// Beginning of paths to ignore when comparing, for instance /srv/releases/*. May be repeated.
    #[arg(long, value_name = "FOLDER", value_parser = Prefix::parse)]
    pub trim_path: Vec<Prefix>,
    /// How many functions to list.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,
    /// Where to write the differential flame graph (.html or .svg); or the form of the list: table,
    /// wide, json, yaml, name, jsonpath=TEMPLATE and so on, as for top. Default: the list as a
    /// table.
    #[arg(short, long, value_name = "FILE|FORM")]
    pub output: Option<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Share,
    Request,
}

#[derive(Args, Debug)]
pub struct Download {
    /// Name of a request, or a profile file.
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    /// Where to write it; the file's extension sets the format. NAME.requests.json.gz is the list
    /// of requests, which diff and verdict read next to NAME.pb.gz. Default: NAME.pb.gz.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// Only the profile of this pod.
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
    #[command(flatten)]
    pub view: ViewArguments,
}

#[derive(Args, Debug)]
pub struct Doctor {
    /// What to check: deploy/web, pod/web-1 and so on. Without it, only check whether the release
    /// works: API, operator, store, and the path to results.
    #[arg(value_name = "TYPE/NAME")]
    pub target: Option<String>,
    /// Also fail if a check could not be made, for instance because you may not read the operator's
    /// Deployment.
    #[arg(long)]
    pub strict: bool,
    /// Container that runs PHP. Default: the pod's default container, else its only one, else the
    /// only one whose name or image names PHP.
    #[arg(short, long, value_name = "NAME", requires = "target")]
    pub container: Option<String>,
    /// User id that PHP runs as, if the pod does not name it.
    #[arg(long, value_name = "UID", requires = "target")]
    pub run_as_user: Option<i64>,
    #[arg(short, long, help = help(NAMED), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMED))]
    pub output: OutputFlag,
}

#[derive(Args, Debug)]
pub struct McpFlags {
    /// Profile files, or folders of them, to read instead of a cluster. With these, no cluster is
    /// called.
    #[arg(value_name = "FILE|FOLDER", conflicts_with = "allow_run")]
    pub files: Vec<PathBuf>,
    /// Also let agents take profiles of pods, one call at a time, and cancel those they have taken.
    #[arg(long)]
    pub allow_run: bool,
    /// The longest profile that an agent may take; the administrator may allow less.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "60s", requires = "allow_run")]
    pub max_duration: u64,
    /// The most pods that an agent may profile at once.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 5,
        value_parser = clap::value_parser!(i32).range(1..),
        requires = "allow_run"
    )]
    pub max_pods: i32,
}

#[derive(Args, Debug)]
pub struct Version {
    /// Print only the version of the plugin.
    #[arg(long)]
    pub client: bool,
    #[arg(short, long, help = help(NAMED), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMED))]
    pub output: OutputFlag,
}

#[derive(Args, Debug)]
pub struct Completion {
    /// For kubectl, save the script as kubectl_complete-phpprof in your PATH.
    pub shell: Shell,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Kubectl,
    Bash,
    Zsh,
    Fish,
}

#[derive(Args, Debug)]
pub struct Complete {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

fn label(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "write it as KEY=VALUE, for instance pod=web-1".to_owned())
}
