//! The command lines of `schedule`.

use clap::{Args, Subcommand};

use super::ask::{DryRun, ObjectForm, RequestArguments};
use super::job::JobArguments;
use crate::output::{NAMED, OutputFlag, help};

#[derive(Args, Debug)]
pub struct Schedule {
    #[command(subcommand)]
    pub verb: ScheduleVerb,
}

#[derive(Subcommand, Debug)]
pub enum ScheduleVerb {
    /// Create a CronJob that creates a profile request at each run, with a service account that can
    /// do only this.
    Create(Box<ScheduleCreate>),
    /// List the schedules of the namespace.
    #[command(visible_alias = "ls")]
    List(ScheduleList),
    /// Start no more runs until resume.
    Suspend(ScheduleNamed),
    /// Start runs again.
    Resume(ScheduleNamed),
    /// Start one run now.
    Run(ScheduleNamed),
    /// Delete schedules. Their requests and profiles stay until their retention ends.
    Delete(ScheduleDelete),
}

#[derive(Args, Debug)]
pub struct ScheduleCreate {
    /// Name of the schedule; its requests are called NAME-x2x4z and have the label
    /// phpprof.dev/schedule=NAME.
    #[arg(value_name = "NAME")]
    pub schedule_name: String,
    #[command(flatten)]
    pub request: RequestArguments,
    /// When to run: the five fields of cron, for instance "*/10 * * * *", or @hourly.
    #[arg(long, value_name = "CRON")]
    pub schedule: String,
    /// Time zone of the schedule, for instance Europe/Berlin. Default: the cluster's.
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// Start no runs until resume.
    #[arg(long)]
    pub suspend: bool,
    #[command(flatten)]
    pub job: JobArguments,
    /// ClusterRole that may create requests and profile. Default: the chart's.
    #[arg(long, value_name = "NAME")]
    pub cluster_role: Option<String>,
    /// Create nothing: client prints the objects, server lets the API server check them.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    pub dry_run: Option<DryRun>,
    /// Print the objects in this form.
    #[arg(short, long, value_name = "FORM")]
    pub output: Option<ObjectForm>,
}

#[derive(Args, Debug)]
pub struct ScheduleList {
    #[arg(short, long, help = help(NAMED), value_name = "FORM", default_value = "table", value_parser = OutputFlag::parser(NAMED))]
    pub output: OutputFlag,
}

#[derive(Args, Debug)]
pub struct ScheduleNamed {
    /// Name of the schedule.
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Args, Debug)]
pub struct ScheduleDelete {
    /// Names of schedules.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}
