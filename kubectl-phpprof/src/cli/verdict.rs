//! The arguments of `verdict`.

use clap::{Args, ValueEnum};
use phpprof_profile::Prefix;
use phpprof_profile::change::RouteLimit;

use super::ask::CanaryArguments;

#[derive(Args, Debug)]
pub struct VerdictFlags {
    /// The profile before: name of a request, or a profile file. Record it with the label route.
    /// With --canary: the stable release, as TYPE/NAME.
    #[arg(value_name = "BEFORE")]
    pub before: String,
    /// The profile after: name of a request, or a profile file.
    #[arg(value_name = "AFTER", required_unless_present = "canary")]
    pub after: Option<String>,
    #[command(flatten)]
    pub both: CanaryArguments,
    /// The list of requests of a profile file before. Default: NAME.requests.json.gz next to
    /// NAME.pb.gz. Without a list, the verdict is by samples alone.
    #[arg(long, value_name = "FILE")]
    pub before_requests: Option<String>,
    /// The same for the profile file after.
    #[arg(long, value_name = "FILE")]
    pub after_requests: Option<String>,
    /// The time per request that is compared: wall, with waits, or cpu.
    #[arg(long, value_name = "TYPE", default_value = "wall")]
    pub measure: VerdictMeasure,
    /// Accept changes of a request's time up to this many percent.
    #[arg(long, value_name = "PERCENT", value_parser = points, default_value = "0.5")]
    pub max_increase: f64,
    /// Accept changes of a request's time up to this many milliseconds.
    #[arg(long, value_name = "MILLISECONDS", value_parser = points, default_value = "0")]
    pub min_milliseconds: f64,
    /// A route with limits of its own, for instance /users/{id}=5%,2ms. May be repeated.
    #[arg(long, value_name = "ROUTE=LIMIT", value_parser = crate::route_limits::parse)]
    pub route_limit: Vec<RouteLimit>,
    /// Only say that nothing has changed if a change of this many percent would have been seen;
    /// else the verdict is Inconclusive.
    #[arg(long, value_name = "PERCENT", value_parser = percent_above_0, default_value = "10")]
    pub visible: f64,
    /// Compare profiles that are unlike: see diff.
    #[arg(long)]
    pub force: bool,
    /// Beginning of paths to ignore when comparing, for instance /srv/releases/*. May be repeated.
    #[arg(long, value_name = "FOLDER", value_parser = Prefix::parse)]
    pub trim_path: Vec<Prefix>,
    /// Exit with 0 also if the profiles do not decide it, for a pipeline that stops only for what
    /// is slower.
    #[arg(long)]
    pub allow_inconclusive: bool,
    /// The form of the verdict: text, md, json or yaml. md fits the comment of a pull request. Or
    /// where to write a page (.html) with both flame graphs, on which the functions of the verdict
    /// are marked; the verdict is then also printed as text.
    #[arg(short, long, value_name = "FORM|FILE", default_value = "text", value_parser = VerdictOutput::parse)]
    pub output: VerdictOutput,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictMeasure {
    Wall,
    Cpu,
}

/// How a verdict is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictOutput {
    Form(VerdictForm),
    /// The path of a page.
    Page(String),
}

impl VerdictOutput {
    pub fn parse(text: &str) -> Result<Self, String> {
        match VerdictForm::from_str(text, false) {
            Ok(form) => Ok(Self::Form(form)),
            Err(_) if text.ends_with(".html") => Ok(Self::Page(text.to_owned())),
            Err(_) => Err("text, md, json, yaml, or a file that ends with .html".to_owned()),
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictForm {
    Text,
    Md,
    Json,
    Yaml,
}

pub fn points(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|points: &f64| points.is_finite() && *points >= 0.0)
        .ok_or_else(|| format!("{text:?} is not a number of points; for instance: 5"))
}

/// For what a change is divided by.
fn percent_above_0(text: &str) -> Result<f64, String> {
    points(text)
        .ok()
        .filter(|percent| *percent > 0.0)
        .ok_or_else(|| format!("{text:?} is not a percentage above 0; for instance: 5"))
}
