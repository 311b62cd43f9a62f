//! The command lines of the verbs that sample pods: `run` and `dump`.

use clap::{Args, ValueEnum};
use phpprof_crds::{RequestLabel, SamplerMode};

use crate::output::{OutputFlag, TEXT, help};

/// Which PHP to sample, and how: for `run`, and for each run of a schedule.
#[derive(Args, Debug, Clone)]
pub struct RequestArguments {
    /// What to profile: deploy/web, sts/db, ds/agent, job/import, pod/web-1, rollout/web, or
    /// Kind.version.group/NAME for another kind with a scale subresource.
    #[arg(value_name = "TYPE/NAME", required_unless_present_any = ["selector", "filename"], conflicts_with_all = ["selector", "filename"])]
    pub target: Option<String>,
    /// Pods by their labels, for instance app=web,tier!=cache.
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        conflicts_with = "filename"
    )]
    pub selector: Option<String>,
    /// A file with a ProfileRequest; - is standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["container", "duration", "samples_per_second", "max_pods", "run_as_user", "run_as_group", "include_idle", "heap", "fibers", "labels", "path_prefix", "method", "script", "min_request_age", "include_young", "sampler_mode"])]
    pub filename: Option<String>,
    /// Container that runs PHP. Default: the pod's default container, else its only one, else the
    /// only one whose name or image names PHP.
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// How long to sample, for instance 30s or 2m.
    #[arg(short, long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "30s")]
    pub duration: u64,
    /// Samples per second for each worker.
    #[arg(short = 'F', long, value_name = "RATE", default_value_t = 99)]
    pub samples_per_second: i32,
    /// The most pods to profile.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub max_pods: i32,
    /// User id that PHP runs as, if the pod does not name it.
    #[arg(long, value_name = "UID")]
    pub run_as_user: Option<i64>,
    /// Group id that PHP runs as.
    #[arg(long, value_name = "GID", requires = "run_as_user")]
    pub run_as_group: Option<i64>,
    /// Also keep the time between HTTP requests.
    #[arg(long)]
    pub include_idle: bool,
    /// Also show which stacks made the heap grow (heap_growth), and how much of it they still hold
    /// (heap_change).
    #[arg(long)]
    pub heap: bool,
    /// Also show where fibers are suspended: how many were seen (fibers), and for how long
    /// (suspended). Needs PHP 8.1.
    #[arg(long, conflicts_with_all = ["path_prefix", "method", "script", "min_request_age"])]
    pub fibers: bool,
    /// Labels of samples that describe their HTTP request.
    #[arg(
        long,
        value_name = "LABEL,...",
        value_delimiter = ',',
        default_value = "script"
    )]
    pub labels: Vec<RunLabel>,
    /// Only HTTP requests whose path begins with this.
    #[arg(long, value_name = "PATH")]
    pub path_prefix: Option<String>,
    /// Only HTTP requests with this method. May be repeated.
    #[arg(long, value_name = "METHOD")]
    pub method: Vec<String>,
    /// Only HTTP requests of this script, written as in the label script. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub script: Vec<String>,
    /// Only HTTP requests that have run for at least this time, for instance 500ms or 2s.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::milliseconds)]
    pub min_request_age: Option<u64>,
    /// Also keep the earlier samples of such requests.
    #[arg(long, requires = "min_request_age")]
    pub include_young: bool,
    /// Which sampler to use: once is a new one; resident is one that stays in the pod, if the
    /// administrator allows it for your account.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub sampler_mode: RunMode,
}

impl RequestArguments {
    /// What a run of this target has if nothing else is said, without labels.
    pub fn of_target(target: &str) -> Self {
        RequestArguments {
            target: Some(target.to_owned()),
            selector: None,
            filename: None,
            container: None,
            duration: 30,
            samples_per_second: 99,
            max_pods: 5,
            run_as_user: None,
            run_as_group: None,
            include_idle: false,
            heap: false,
            fibers: false,
            labels: Vec::new(),
            path_prefix: None,
            method: Vec::new(),
            script: Vec::new(),
            min_request_age: None,
            include_young: false,
            sampler_mode: RunMode::Auto,
        }
    }
}

/// How `verdict --canary` profiles both sides.
#[derive(Args, Debug, Clone)]
pub struct CanaryArguments {
    /// Profile BEFORE, as TYPE/NAME, and this one at the same time, and compare them.
    #[arg(long, value_name = "TYPE/NAME", conflicts_with_all = ["after", "before_requests", "after_requests"])]
    pub canary: Option<String>,
    /// How long to profile both, for instance 30s or 2m. Default: 60s.
    #[arg(short, long, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub duration: Option<u64>,
    /// Container that runs PHP, in both.
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Samples per second for each worker of both. Default: 99.
    #[arg(short = 'F', long, value_name = "RATE")]
    pub samples_per_second: Option<i32>,
    /// The most pods to profile of each. Default: 5.
    #[arg(long, value_name = "COUNT")]
    pub max_pods: Option<i32>,
    /// How long to wait for both profiles. Default: their duration and 20 minutes.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub timeout: Option<u64>,
}

impl CanaryArguments {
    /// The first flag that only profiling needs.
    pub fn flag(&self) -> Option<&'static str> {
        let flags = [
            ("--duration", self.duration.is_some()),
            ("--container", self.container.is_some()),
            ("--samples-per-second", self.samples_per_second.is_some()),
            ("--max-pods", self.max_pods.is_some()),
            ("--timeout", self.timeout.is_some()),
        ];
        let mut given = flags.iter().filter(|(_, is_given)| *is_given);
        given.next().map(|(name, _)| *name)
    }
}

#[derive(Args, Debug, Clone)]
pub struct RunFlags {
    #[command(flatten)]
    pub request: RequestArguments,
    /// Sample type of the final table. Default: wall.
    #[arg(short = 't', long, value_name = "TYPE")]
    pub sample_type: Option<RunType>,
    /// Show a line per value of this label instead of per function, for instance pod, script or
    /// waiting.
    #[arg(long, value_name = "KEY")]
    pub by: Option<String>,
    /// Name of the request. Default: made from the target.
    #[arg(long, value_name = "NAME", conflicts_with = "filename")]
    pub name: Option<String>,
    /// Create nothing: client prints the request, server lets the API server check it.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    pub dry_run: Option<DryRun>,
    /// Print the created request in this form.
    #[arg(short, long, value_name = "FORM")]
    pub output: Option<ObjectForm>,
    /// Wait until the request ends.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub wait: bool,
    /// How long to wait. Default: the duration and 20 minutes.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub timeout: Option<u64>,
    /// End with exit code 0 whatever fails in the cluster, including a missing right or a timeout,
    /// for hooks that must not stop a rollout. A wrong command line still ends with 2, and Ctrl-C
    /// with 130.
    #[arg(long)]
    pub allow_failure: bool,
}

/// Which workers `dump` and `heap` look at.
#[derive(Args, Debug, Clone)]
pub struct LookArguments {
    /// Whose workers to look at: deploy/web, sts/db, ds/agent, job/import, pod/web-1, rollout/web,
    /// or Kind.version.group/NAME for another kind with a scale subresource.
    #[arg(
        value_name = "TYPE/NAME",
        required_unless_present = "selector",
        conflicts_with = "selector"
    )]
    pub target: Option<String>,
    /// Pods by their labels, for instance app=web,tier!=cache.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Container that runs PHP. Default: the pod's default container, else its only one, else the
    /// only one whose name or image names PHP.
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// The most pods to look at.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub max_pods: i32,
    /// User id that PHP runs as, if the pod does not name it.
    #[arg(long, value_name = "UID")]
    pub run_as_user: Option<i64>,
    /// Group id that PHP runs as.
    #[arg(long, value_name = "GID", requires = "run_as_user")]
    pub run_as_group: Option<i64>,
}

#[derive(Args, Debug, Clone)]
pub struct Dump {
    #[command(flatten)]
    pub pods: LookArguments,
    /// Show what each worker's memory is made of, instead of its stack: small, large and huge
    /// blocks, what is free, the classes of its objects, and the memory of the process. It shows
    /// sizes, counts and names of classes, no contents.
    #[arg(short, long)]
    pub memory: bool,
    /// Also show where each worker's fibers are suspended, those with the same stack together.
    #[arg(long, conflicts_with = "memory")]
    pub fibers: bool,
    #[arg(short, long, help = help(TEXT), value_name = "FORM", default_value = "text", value_parser = OutputFlag::parser(TEXT))]
    pub output: OutputFlag,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "2m")]
    pub timeout: u64,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLabel {
    None,
    Method,
    Route,
    Script,
    RequestAge,
    #[value(name = "trace-id")]
    TraceID,
}

impl RunLabel {
    pub fn label(self) -> Option<RequestLabel> {
        Some(match self {
            RunLabel::None => return None,
            RunLabel::Method => RequestLabel::Method,
            RunLabel::Route => RequestLabel::Route,
            RunLabel::Script => RequestLabel::Script,
            RunLabel::RequestAge => RequestLabel::RequestAge,
            RunLabel::TraceID => RequestLabel::TraceID,
        })
    }
}

/// What a sampler measures of each stack.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunType {
    Wall,
    Cpu,
    Samples,
    #[value(name = "heap_growth")]
    HeapGrowth,
    #[value(name = "heap_change")]
    HeapChange,
    Fibers,
    Suspended,
}

impl RunType {
    pub fn name(self) -> &'static str {
        match self {
            RunType::Wall => "wall",
            RunType::Cpu => "cpu",
            RunType::Samples => "samples",
            RunType::HeapGrowth => "heap_growth",
            RunType::HeapChange => "heap_change",
            RunType::Fibers => "fibers",
            RunType::Suspended => "suspended",
        }
    }

    pub fn needs_heap(self) -> bool {
        matches!(self, RunType::HeapGrowth | RunType::HeapChange)
    }

    pub fn needs_fibers(self) -> bool {
        matches!(self, RunType::Fibers | RunType::Suspended)
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    Auto,
    Once,
    Resident,
}

impl From<RunMode> for SamplerMode {
    fn from(mode: RunMode) -> Self {
        match mode {
            RunMode::Auto => SamplerMode::Auto,
            RunMode::Once => SamplerMode::Once,
            RunMode::Resident => SamplerMode::Resident,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    Client,
    Server,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectForm {
    Json,
    Yaml,
    Name,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        request: RequestArguments,
    }

    #[test]
    fn of_target_has_the_flags_defaults() {
        let parsed = Line::parse_from(["run", "deploy/web"]).request;
        let without_labels = RequestArguments {
            labels: Vec::new(),
            ..parsed
        };
        let usual = RequestArguments::of_target("deploy/web");
        assert_eq!(format!("{usual:?}"), format!("{without_labels:?}"));
    }
}
