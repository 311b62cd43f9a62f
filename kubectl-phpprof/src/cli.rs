//! The command line: what was typed. What it means is in the module of each verb.
//!
//! Invariant: usage begins with `kubectl phpprof`, and flags are spelled as kubectl spells them.

mod ask;
mod schedule;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use ask::{DryRun, Dump, DumpForm, ObjectForm, RequestArguments, Run};
pub use schedule::{Schedule, ScheduleCreate, ScheduleDelete, ScheduleVerb};

use crate::jsonpath::Path;
use crate::output::Output;
use crate::release::Prefix;

/// Profile PHP in running pods, and look at the profiles.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl phpprof",
    bin_name = "kubectl phpprof",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 1 failed, 2 usage, 3 not found, 4 forbidden, 5 no profile, 6 timeout, 7 unreachable, 8 unfit (doctor), 9 grew (diff --fail-above), 130 interrupted"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Which cluster, as whom.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// Namespace; that of the context where there is none.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Kubeconfig file; KUBECONFIG and ~/.kube/config where there is none.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub user: Option<String>,
    /// User to impersonate.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to impersonate; may be given several times.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// How long to wait for an answer of the API server, for instance 5s; 0 is without end. 60s where there is none.
    #[arg(long, global = true, value_name = "DURATION", value_parser = crate::duration::parse, hide_short_help = true)]
    pub request_timeout: Option<u64>,
    /// Namespace of the operator.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PHPPROF_OPERATOR_NAMESPACE",
        hide_env_values = true,
        default_value = "phpprof-system",
        hide_short_help = true
    )]
    pub operator_namespace: String,
    /// Name of the operator's Deployment and Service: the chart's release and "-operator".
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PHPPROF_OPERATOR_NAME",
        hide_env_values = true,
        default_value = "phpprof-operator",
        hide_short_help = true
    )]
    pub operator_name: String,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Profile a workload or pods, wait, and show the top functions.
    Run(Run),
    /// Profile again and again: CronJobs in your namespace, without rights of the administrator.
    Schedule(Schedule),
    /// List profile requests.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show a profile request, or print it as YAML or JSON. Without a name: list.
    Get(Get),
    /// Delete profile requests. What is stored of them stays until its time is over.
    Delete(Delete),
    /// Show a profile request with each of its pods, and what to do about failures.
    Describe(Named),
    /// Stop a running profile request early; what was sampled is kept.
    Cancel(Cancel),
    /// Print what the samplers of a profile request said.
    Logs(Logs),
    /// Say what a reason or a finding means and what to do about it.
    Explain(Explain),
    /// Show the functions that take most, of a request or a profile file.
    Top(Top),
    /// Say what an experienced PHP engineer would, of a request or a profile file.
    Findings(Findings),
    /// List the slowest HTTP requests that a request's samplers have seen, or of a file.
    Requests(Requests),
    /// Draw the flame graph page of a request or a profile file.
    Flame(Flame),
    /// Compare two requests or profile files: which functions grew, which shrank.
    Diff(Diff),
    /// Look at the stored profiles of the namespace in a browser: search, compare two, open.
    Ui(Ui),
    /// Save the profile of a request, or convert a profile file.
    Download(Download),
    /// Check whether a workload can be profiled, by whom and how; and if not, why.
    Doctor(Doctor),
    /// Where every worker is now, and what it waits for: stuck ones first.
    Dump(Dump),
    /// Print the versions of the plugin, the operator and the sampler's image.
    Version(Version),
    /// Print a completion script.
    Completion(Completion),
    /// The reference page of all this.
    #[command(name = "__reference", hide = true)]
    Reference,
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(Complete),
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListForm {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Args, Debug, Default)]
pub struct List {
    /// Of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// What is stored of the namespace, also of requests that are gone.
    #[arg(long, conflicts_with_all = ["all_namespaces", "selector", "watch"])]
    pub stored: bool,
    /// Requests by their labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// One of table, wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEAD:PATH,…
    #[arg(short, long, value_name = "FORM", default_value = "table", value_parser = Output::parse)]
    pub output: Output,
    /// Sort by the value at this JSONPath, for instance .metadata.creationTimestamp.
    #[arg(long, value_name = "PATH", value_parser = Path::parse)]
    pub sort_by: Option<Path>,
    /// Go on, and print what changes.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Get {
    /// Name of a request, or pprof/NAME; of one that is gone NAME, or NAME@UID, which list --stored has.
    #[arg(value_name = "NAME", conflicts_with_all = ["all_namespaces", "stored", "selector", "sort_by", "watch"])]
    pub name: Option<String>,
    #[command(flatten)]
    pub list: List,
}

#[derive(Args, Debug)]
pub struct Ui {
    /// Port of 127.0.0.1 to listen on; 0 is any that is free.
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
    /// Do not fail where a request is gone already.
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Delete nothing: client lists what would be, server has the API server check it.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    pub dry_run: Option<DryRun>,
}

#[derive(Args, Debug)]
pub struct Named {
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
    /// Of this pod only.
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// The reason as the status spells it, or a finding; all reasons where there is none.
    #[arg(value_name = "REASON")]
    pub reason: Option<String>,
}

/// What of a profile is shown.
#[derive(Args, Debug, Clone, Default)]
pub struct ViewArguments {
    /// Sample type: wall, cpu or samples; without it the profile's default, which is wall.
    #[arg(short = 't', long, value_name = "TYPE")]
    pub sample_type: Option<String>,
    /// Only samples with this label; may be given several times.
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
}

#[derive(Args, Debug)]
pub struct Top {
    /// Name of a request, or a profile file; with --live whose PHP: deploy/web, pod/web-1, as for run.
    #[arg(value_name = "NAME|FILE|TYPE/NAME")]
    pub source: String,
    /// Sample these pods now, and draw the table again each second: functions, lines, routes, workers. `s` saves the profile, `q` ends it.
    #[arg(long, conflicts_with_all = ["sample_type", "labels", "count", "sort", "by", "output"])]
    pub live: bool,
    /// Container that runs PHP.
    #[arg(short, long, value_name = "NAME", requires = "live")]
    pub container: Option<String>,
    /// Pods to sample, at most.
    #[arg(long, value_name = "COUNT", default_value_t = 5, requires = "live")]
    pub max_pods: i32,
    /// How long at most; the administrator may allow less.
    #[arg(short, long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "5m", requires = "live")]
    pub duration: u64,
    #[command(flatten)]
    pub view: ViewArguments,
    /// How many functions.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,
    /// What comes first.
    #[arg(long, value_name = "COLUMN", default_value = "self")]
    pub sort: TopSort,
    /// A line for each value of this label instead of each function; `waiting` is what was waited for.
    #[arg(long, value_name = "KEY")]
    pub by: Option<String>,
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: TopForm,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopSort {
    #[value(name = "self")]
    Own,
    Total,
    Name,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopForm {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Args, Debug)]
pub struct Findings {
    /// Name of a request, or a profile file.
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    /// Only samples with this label; may be given several times.
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: FindingsForm,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingsForm {
    Table,
    Json,
    Yaml,
    Name,
}

#[derive(Args, Debug)]
pub struct Requests {
    /// Name of a profile request with the label Route, or a file of its list (requests.json.gz).
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    /// Only those of this route, as the label tells it.
    #[arg(long, value_name = "ROUTE")]
    pub route: Option<String>,
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub limit: usize,
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: RequestsForm,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestsForm {
    Table,
    Json,
}

#[derive(Args, Debug)]
pub struct Flame {
    /// Name of a request, or a profile file.
    #[arg(value_name = "NAME|FILE")]
    pub source: String,
    #[command(flatten)]
    pub view: ViewArguments,
    /// Where to write the page (.html) or picture (.svg); without it the page is opened in a browser.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
}

#[derive(Args, Debug)]
pub struct Diff {
    /// What it was: name of a request, or a profile file.
    #[arg(value_name = "BEFORE")]
    pub before: String,
    /// What it is now.
    #[arg(value_name = "AFTER")]
    pub after: String,
    #[command(flatten)]
    pub view: ViewArguments,
    /// What is compared: shares of all time, or the time of one HTTP request, by the requests that samples have shown. Short requests
    /// are seen in proportion to their duration, so compare runs of the same rate and load.
    #[arg(long, value_name = "WHAT", default_value = "share")]
    pub per: Per,
    /// End with exit code 9 where a function's own part has grown by more than so many points: hundredths of all that was before.
    #[arg(long, value_name = "POINTS", value_parser = points)]
    pub fail_above: Option<f64>,
    /// Beginning of paths that is no difference, for instance /srv/releases/*; may be given several times.
    #[arg(long, value_name = "FOLDER", value_parser = Prefix::parse)]
    pub trim_path: Vec<Prefix>,
    /// How many functions.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,
    /// Where to write the differential flame graph (.html or .svg); without it the functions are listed.
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
    /// Where to write it; the end of the name says the format. NAME.pb.gz where there is none.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// The profile of this pod alone.
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
    #[command(flatten)]
    pub view: ViewArguments,
}

#[derive(Args, Debug)]
pub struct Doctor {
    /// What would be profiled: deploy/web, pod/web-1 and so on.
    #[arg(value_name = "TYPE/NAME")]
    pub target: String,
    /// Container that runs PHP.
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// User id that PHP runs as, where the pod does not say it.
    #[arg(long, value_name = "UID")]
    pub run_as_user: Option<i64>,
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: ListForm,
}

#[derive(Args, Debug)]
pub struct Version {
    /// Of the plugin only.
    #[arg(long)]
    pub client: bool,
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: ListForm,
}

#[derive(Args, Debug)]
pub struct Completion {
    /// kubectl prints the script that must be in PATH as kubectl_complete-phpprof.
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

fn points(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|points: &f64| points.is_finite() && *points >= 0.0)
        .ok_or_else(|| format!("{text:?} is no number of points; write for instance 5"))
}

fn label(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "write it as KEY=VALUE, for instance pod=web-1".to_owned())
}
