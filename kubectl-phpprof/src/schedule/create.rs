//! `schedule create`: the objects of a schedule, printed or created.
//!
//! Invariant: if a schedule cannot be created completely, its created objects are deleted again.

use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::manifest::{self, ACCOUNT, LABEL, MANAGER, SchedulePlan, objects};
use super::{api, named, rights};
use crate::cli::{DryRun, ObjectForm, ScheduleCreate};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::yaml;
use crate::run::request_object;

pub async fn create(global: &Global, arguments: &ScheduleCreate) -> Result<String, Failure> {
    let name = &arguments.schedule_name;
    let wrong = manifest::wrong_name(name).or_else(|| manifest::wrong_cron(&arguments.schedule));
    if let Some(message) = wrong {
        return Err(Failure::new(
            Exit::Usage,
            message,
            "for instance: kubectl phpprof schedule create web deploy/web --schedule '*/10 * * * *' --max-pods 2",
        ));
    }
    let request = request_object(&arguments.request, None)?;
    let spec = &request.data["spec"];
    let is_of_heaps =
        spec["mode"] == "Heap" || (spec["mode"] == "Snapshot" && spec["heap"] == true);
    if is_of_heaps && arguments.cluster_role.is_none() {
        return Err(Failure::new(
            Exit::Usage,
            "a schedule's account has no right to look into heaps, so each of its runs would be refused",
            "name a ClusterRole with the verbs create, profile and heap on profilerequests: --cluster-role",
        ));
    }
    // As with kubectl, objects that are only printed need no cluster. Then the namespace may have
    // to be given.
    let cluster = match (
        Cluster::of(global).await,
        arguments.dry_run,
        &global.namespace,
    ) {
        (Err(_), Some(DryRun::Client), Some(namespace)) => Err(namespace.clone()),
        (cluster, ..) => Ok(cluster?),
    };
    let namespace = match &cluster {
        Ok(cluster) => cluster.namespace.clone(),
        Err(namespace) => namespace.clone(),
    };
    let objects = objects(&plan(global, arguments, &request, namespace));
    let cluster = match (cluster, arguments.dry_run) {
        (Ok(cluster), Some(DryRun::Server) | None) => cluster,
        _ => {
            return Ok(printed(
                &objects,
                arguments.output.unwrap_or(ObjectForm::Yaml),
            ));
        }
    };
    rights::check(&cluster).await?;
    let is_dry = arguments.dry_run.is_some();
    let created = create_all(&cluster, &objects, is_dry).await?;
    if let Some(form) = arguments.output {
        return Ok(printed(&objects, form));
    }
    eprintln!(
        "see its requests: {}; start one now: {}",
        cluster.suggest.phpprof(&format!("list -l {LABEL}={name}")),
        cluster.suggest.phpprof(&format!("schedule run {name}"))
    );
    Ok(created)
}

fn plan(
    global: &Global,
    arguments: &ScheduleCreate,
    request: &DynamicObject,
    namespace: String,
) -> SchedulePlan {
    let operator = &global.operator_name;
    let release = operator.strip_suffix("-operator").unwrap_or(operator);
    let of_chart = || format!("{}-{release}-profile", global.operator_namespace);
    let spec = request.data["spec"].clone();
    // Only a file can have this field.
    let keeps_ttl =
        arguments.request.filename.is_some() && !spec["ttlSecondsAfterFinished"].is_null();
    SchedulePlan {
        name: arguments.schedule_name.clone(),
        namespace,
        cron: arguments.schedule.clone(),
        time_zone: arguments.time_zone.clone(),
        suspend: arguments.suspend,
        job: arguments.job.clone(),
        cluster_role: arguments.cluster_role.clone().unwrap_or_else(of_chart),
        spec,
        keeps_ttl,
    }
}

/// Creates the missing objects. All schedules share account and binding. A request or CronJob of
/// this name belongs to another schedule.
async fn create_all(cluster: &Cluster, objects: &[Value], is_dry: bool) -> Result<String, Failure> {
    let mut said = String::new();
    let mut made: Vec<&Value> = Vec::new();
    for object in objects {
        let created = create_one(cluster, object, is_dry).await;
        match created {
            Ok(()) => {
                let how = if is_dry { " (server dry run)" } else { "" };
                said.push_str(&format!("{} created{how}\n", named(object)));
                made.push(object);
            }
            Err(error) => {
                let failure = if is_shared(object) && is_conflict(&error) {
                    same_role(cluster, object).await.err()
                } else {
                    Some(not_created(cluster, object, &error))
                };
                if let Some(failure) = failure {
                    undo(cluster, &made, is_dry).await;
                    return Err(failure);
                }
            }
        }
    }
    Ok(said)
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Checks that an existing shared object binds the role of the planned one. A role of a binding
/// cannot be changed.
async fn same_role(cluster: &Cluster, planned: &Value) -> Result<(), Failure> {
    let wanted = &planned["roleRef"];
    if wanted.is_null() {
        return Ok(());
    }
    let action = format!("get {} in namespace {}", named(planned), cluster.namespace);
    let kind = planned["kind"].as_str().unwrap_or_default();
    let existing = api(cluster, kind).get(ACCOUNT).await;
    let existing = existing.map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))?;
    let bound = &existing.data["roleRef"];
    if (&bound["kind"], &bound["name"]) == (&wanted["kind"], &wanted["name"]) {
        return Ok(());
    }
    let words = |role: &Value| {
        let word = |field: &str| role[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", word("kind"), word("name"))
    };
    Err(Failure::new(
        Exit::Failed,
        format!(
            "{} in namespace {} is for {}, not for {}",
            named(planned),
            cluster.namespace,
            words(bound),
            words(wanted)
        ),
        format!(
            "all schedules of the namespace share it, and its role cannot be changed: delete it, and create the schedule again: {}; or name its role with --cluster-role",
            cluster
                .suggest
                .kubectl(&format!("delete rolebinding {ACCOUNT}"))
        ),
    ))
}

async fn create_one(cluster: &Cluster, object: &Value, is_dry: bool) -> Result<(), kube::Error> {
    let parameters = PostParams {
        dry_run: is_dry,
        field_manager: Some(MANAGER.to_owned()),
    };
    let typed: DynamicObject =
        serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let kind = object["kind"].as_str().unwrap_or_default();
    let created = api(cluster, kind).create(&parameters, &typed).await;
    created.map(|_| ())
}

/// Deletes the objects that this command has created, because the schedule cannot be completed.
async fn undo(cluster: &Cluster, made: &[&Value], is_dry: bool) {
    for object in made.iter().rev().filter(|_| !is_dry) {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let api = api(cluster, kind.as_str().unwrap_or_default());
        let name = name.as_str().unwrap_or_default();
        if api.delete(name, &DeleteParams::default()).await.is_err() {
            eprintln!(
                "{} was created and could not be deleted again",
                named(object)
            );
        }
    }
}

fn not_created(cluster: &Cluster, object: &Value, error: &kube::Error) -> Failure {
    let action = format!(
        "create {} in namespace {}",
        named(object),
        cluster.namespace
    );
    let failure = Failure::of_api(&cluster.suggest, &action, error);
    let name = object["metadata"]["labels"][LABEL].as_str();
    match (error, name) {
        (_, Some(name)) if is_conflict(error) => Failure {
            message: format!(
                "there is a schedule {name} in namespace {}",
                cluster.namespace
            ),
            hint: format!(
                "choose another name, or delete it first: {}",
                cluster.suggest.phpprof(&format!("schedule delete {name}"))
            ),
            ..failure
        },
        (kube::Error::Api(status), _) if status.code == 403 && object["kind"] == "RoleBinding" => {
            Failure {
                hint: format!(
                    "to bind a role, you need all its rights: ask for ClusterRole {} in this namespace, or ask an administrator to create the schedule",
                    object["roleRef"]["name"].as_str().unwrap_or_default()
                ),
                ..failure
            }
        }
        _ => failure,
    }
}

fn is_shared(object: &Value) -> bool {
    object["metadata"]["name"] == ACCOUNT
}

fn printed(objects: &[Value], form: ObjectForm) -> String {
    match form {
        ObjectForm::Name => objects.iter().map(|it| named(it) + "\n").collect(),
        ObjectForm::Yaml => objects.iter().map(yaml).collect::<Vec<_>>().join("---\n"),
        ObjectForm::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            serde_json::to_string_pretty(&list).unwrap_or_default() + "\n"
        }
    }
}
