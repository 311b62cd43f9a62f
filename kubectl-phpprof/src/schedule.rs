//! `schedule`: profiles on a schedule, with CronJobs in the user's own namespace.
//!
//! Each run is a pod with this plugin, which creates one request and ends. [`manifest`] has the
//! objects, [`rights`] who may create them; [`create`] creates them, [`find`] finds them,
//! [`delete`] removes them.
//!
//! Invariant: nothing is created if a right for one of the objects is missing; objects that this
//! plugin did not create are not deleted.

mod create;
mod delete;
mod find;
mod manifest;
mod rights;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cli::{Schedule, ScheduleVerb};
use crate::connect::Cluster;
use crate::duration::age;
use crate::failure::Failure;
use crate::global::Global;
use crate::list::RequestListing;
use crate::output::ListForm;
use crate::output::OutputForm;
use crate::request::RequestView;
use crate::screen::Screen;
use crate::table::Table;
use find::{schedule, schedules, short_name};
use manifest::{LABEL, MANAGER};

pub async fn run(global: &Global, asked: &Schedule, screen: Screen) -> Result<String, Failure> {
    match &asked.verb {
        ScheduleVerb::Create(arguments) => create::create(global, arguments).await,
        ScheduleVerb::List(arguments) => list(global, &arguments.output.read()?, screen).await,
        ScheduleVerb::Suspend(named) => suspend(global, &named.name, true).await,
        ScheduleVerb::Resume(named) => suspend(global, &named.name, false).await,
        ScheduleVerb::Run(named) => start(global, &named.name).await,
        ScheduleVerb::Delete(arguments) => delete::delete(global, arguments).await,
    }
}

/// `cronjob.batch/phpprof-web`, as kubectl names objects.
fn named(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let group = resource(kind).group;
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{name}", kind.to_lowercase())
}

fn resource(kind: &str) -> ApiResource {
    let (group, plural) = match kind {
        "CronJob" => ("batch", "cronjobs"),
        "Job" => ("batch", "jobs"),
        "RoleBinding" => ("rbac.authorization.k8s.io", "rolebindings"),
        "ServiceAccount" => ("", "serviceaccounts"),
        _ => ("", "configmaps"),
    };
    let kind = kube::core::GroupVersionKind::gvk(group, "v1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

fn api(cluster: &Cluster, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource(kind))
}

/// For completion: the names, each with its cron expression.
pub async fn names(cluster: &Cluster) -> Vec<(String, String)> {
    let found = schedules(cluster).await.unwrap_or_default();
    let cron = |job| RequestView::of(job).words("/spec/schedule").to_owned();
    found
        .iter()
        .map(|job| (short_name(job), cron(job)))
        .collect()
}

async fn list(global: &Global, output: &OutputForm, screen: Screen) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    let found = schedules(&cluster).await?;
    if found.is_empty() && output.is_table() {
        eprintln!(
            "No schedules in namespace {}. Create one: {}",
            cluster.namespace,
            cluster.suggest.phpprof("schedule create --help")
        );
        return Ok(String::new());
    }
    let now = jiff::Timestamp::now();
    match output {
        OutputForm::Form(ListForm::Table) => Ok(table(&found, now).text(screen.width)),
        OutputForm::Form(ListForm::Wide) => Ok(table(&found, now).text(None)),
        OutputForm::Form(ListForm::Name) => {
            let names = found.iter().map(RequestView::of);
            Ok(names
                .map(|it| format!("cronjob.batch/{}\n", it.name()))
                .collect())
        }
        output => RequestListing {
            output: output.clone(),
            namespaces: false,
            width: None,
            now,
        }
        .text(&found, false)
        .map_err(crate::list::unwritable),
    }
}

fn table(found: &[DynamicObject], now: jiff::Timestamp) -> Table {
    let mut table = Table::new(&["NAME", "SCHEDULE", "?ZONE", "SUSPENDED", "LAST", "AGE"]);
    for object in found {
        let job = RequestView::of(object);
        let last: Option<jiff::Timestamp> = job.words("/status/lastScheduleTime").parse().ok();
        let or_dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        table.row(vec![
            short_name(object),
            job.words("/spec/schedule").to_owned(),
            or_dash(job.words("/spec/timeZone")),
            match job.at("/spec/suspend").as_bool() {
                Some(true) => "yes".to_owned(),
                _ => "no".to_owned(),
            },
            last.map_or_else(
                || "never".to_owned(),
                |last| format!("{} ago", age(now.as_second() - last.as_second())),
            ),
            age(job.age(now)),
        ]);
    }
    table
}

async fn suspend(global: &Global, name: &str, suspend: bool) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    let object_name = RequestView::of(&schedule(&cluster, name).await?).name();
    let action = format!(
        "patch cronjobs.batch/{object_name} in namespace {}",
        cluster.namespace
    );
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patched = api(&cluster, "CronJob")
        .patch(&object_name, &parameters, &patch)
        .await;
    patched.map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))?;
    let done = if suspend { "suspended" } else { "resumed" };
    Ok(format!("cronjob.batch/{object_name} {done}\n"))
}

/// Creates a Job from the CronJob, as `kubectl create job --from` does.
async fn start(global: &Global, name: &str) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    let cron_job = schedule(&cluster, name).await?;
    let template = &cron_job.data["spec"]["jobTemplate"];
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "controller": true,
        "name": cron_job.metadata.name, "uid": cron_job.metadata.uid,
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "generateName": format!("{}-", RequestView::of(&cron_job).name()),
            "namespace": cluster.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    });
    let action = format!("create jobs.batch in namespace {}", cluster.namespace);
    let wrong = |error: &kube::Error| Failure::of_api(&cluster.suggest, &action, error);
    let job: DynamicObject =
        serde_json::from_value(job).map_err(|error| wrong(&kube::Error::SerdeError(error)))?;
    let created = api(&cluster, "Job")
        .create(&PostParams::default(), &job)
        .await;
    let job = created.map_err(|error| wrong(&error))?;
    let job = RequestView::of(&job).name();
    eprintln!(
        "see its request: {}; if there is none: {}",
        cluster
            .suggest
            .phpprof(&format!("list -l {LABEL}={}", short_name(&cron_job))),
        cluster.suggest.kubectl(&format!("logs job/{job}"))
    );
    Ok(format!("job.batch/{job} created\n"))
}
