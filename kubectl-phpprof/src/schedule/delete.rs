//! `schedule delete`: removes the objects of schedules, and with the last one the account and
//! binding that they share.
//!
//! Invariant: objects that this plugin did not create are not deleted; what is left of a schedule
//! whose CronJob is gone is.

use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;

use super::manifest::{ACCOUNT, MANAGER, object_name};
use super::{api, find, named};
use crate::cli::ScheduleDelete;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::RequestView;
use crate::stdout;

pub async fn delete(global: &Global, arguments: &ScheduleDelete) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    let (mut said, mut missing) = (String::new(), None);
    for name in &arguments.names {
        let removed = match one(&cluster, name).await {
            Ok(removed) => removed,
            Err(failure) => {
                // The schedules before this one were deleted, and the user should know.
                stdout::say(&said)?;
                return Err(failure);
            }
        };
        if removed.is_empty() {
            missing.get_or_insert(name);
        }
        said.push_str(&removed);
    }
    let mut shared = String::new();
    if !find::schedules(&cluster).await?.iter().any(uses_account) {
        shared.push_str(&remove(&cluster, "RoleBinding", ACCOUNT).await?);
        shared.push_str(&remove(&cluster, "ServiceAccount", ACCOUNT).await?);
    }
    match missing {
        // Perhaps account and binding were all that was left of it.
        Some(name) if shared.is_empty() || !said.is_empty() => {
            stdout::say(&(said + &shared))?;
            Err(find::missing(&cluster, name))
        }
        _ => Ok(said + &shared),
    }
}

/// Deletes the objects of one schedule. The text is empty if there are none.
async fn one(cluster: &Cluster, name: &str) -> Result<String, Failure> {
    let all = find::schedules(cluster).await?;
    let Some(object) = find::chosen(all, name, &cluster.namespace)? else {
        return left(cluster, name).await;
    };
    check_manager(&object, name)?;
    let full_name = RequestView::of(&object).name();
    let said = remove(cluster, "CronJob", &full_name).await?;
    Ok(said + &remove(cluster, "ConfigMap", &full_name).await?)
}

/// Deletes the ConfigMap of a schedule whose CronJob is gone: nothing owns it.
async fn left(cluster: &Cluster, name: &str) -> Result<String, Failure> {
    let full_name = object_name(name);
    let action = format!(
        "get configmaps/{full_name} in namespace {}",
        cluster.namespace
    );
    match api(cluster, "ConfigMap").get(&full_name).await {
        Ok(object) => {
            check_manager(&object, name)?;
            remove(cluster, "ConfigMap", &full_name).await
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(String::new()),
        Err(error) => Err(Failure::of_api(&cluster.suggest, &action, &error)),
    }
}

fn check_manager(object: &DynamicObject, name: &str) -> Result<(), Failure> {
    let labels = object.metadata.labels.as_ref();
    let manager = labels.and_then(|labels| labels.get("app.kubernetes.io/managed-by"));
    if manager.map(String::as_str) == Some(MANAGER) {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failed,
        format!(
            "schedule {name} is managed by {}, not by this plugin",
            manager.map_or("something else", String::as_str)
        ),
        "remove it where it was created: the chart's schedules are in its value schedules",
    ))
}

fn uses_account(object: &DynamicObject) -> bool {
    let account = "/spec/jobTemplate/spec/template/spec/serviceAccountName";
    object.metadata.deletion_timestamp.is_none()
        && RequestView::of(object).words(account) == ACCOUNT
}

/// Deletes an object. If it does not exist, this is not an error.
async fn remove(cluster: &Cluster, kind: &str, name: &str) -> Result<String, Failure> {
    let object = named(&json!({"kind": kind, "metadata": {"name": name}}));
    let action = format!("delete {object} in namespace {}", cluster.namespace);
    let deleted = api(cluster, kind)
        .delete(name, &DeleteParams::background())
        .await;
    match deleted {
        Ok(_) => Ok(format!("{object} deleted\n")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(String::new()),
        Err(error) => Err(Failure::of_api(&cluster.suggest, &action, &error)),
    }
}
