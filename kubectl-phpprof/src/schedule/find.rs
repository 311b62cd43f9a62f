//! Which CronJob a schedule's name means: one of this plugin, or one of the chart, whose release
//! may have any name.
//!
//! Invariant: a CronJob that is not a schedule is never found; a name that means several is
//! refused.

use kube::api::{DynamicObject, ListParams};

use super::api;
use super::manifest::{LABEL, PREFIX, SELECTOR};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::request::RequestView;

/// All schedules of the namespace.
pub async fn schedules(cluster: &Cluster) -> Result<Vec<DynamicObject>, Failure> {
    let listed = api(cluster, "CronJob")
        .list(&ListParams::default().labels(SELECTOR))
        .await;
    let action = format!("list cronjobs.batch in namespace {}", cluster.namespace);
    Ok(listed
        .map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))?
        .items)
}

/// The schedule with this name.
pub async fn schedule(cluster: &Cluster, name: &str) -> Result<DynamicObject, Failure> {
    let found = chosen(schedules(cluster).await?, name, &cluster.namespace)?;
    found.ok_or_else(|| missing(cluster, name))
}

pub fn missing(cluster: &Cluster, name: &str) -> Failure {
    Failure::new(
        Exit::NotFound,
        format!(
            "there is no schedule {name} in namespace {}",
            cluster.namespace
        ),
        format!(
            "list the schedules: {}",
            cluster.suggest.phpprof("schedule list")
        ),
    )
}

/// The one with this name, or with this name of its CronJob. `None` if there is none.
pub fn chosen(
    all: Vec<DynamicObject>,
    name: &str,
    namespace: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let full_name = |object: &DynamicObject| RequestView::of(object).name();
    if let Some(object) = all.iter().find(|object| full_name(object) == name) {
        return Ok(Some(object.clone()));
    }
    let mut named = all.into_iter().filter(|object| short_name(object) == name);
    let first = named.next();
    let others: Vec<DynamicObject> = named.collect();
    if others.is_empty() {
        return Ok(first);
    }
    let names: Vec<String> = first.iter().chain(&others).map(full_name).collect();
    Err(Failure::new(
        Exit::Usage,
        format!("namespace {namespace} has several schedules {name}"),
        format!("choose one by its CronJob: {}", names.join(", ")),
    ))
}

/// The schedule's name: its requests have it as their label. The chart's CronJobs begin with the
/// release's name.
pub fn short_name(object: &DynamicObject) -> String {
    let full = RequestView::of(object).name();
    let label = |key: &str| object.metadata.labels.as_ref()?.get(key).cloned();
    if let Some(name) = label(LABEL) {
        return name;
    }
    let release = label("app.kubernetes.io/instance").map(|release| format!("{release}-"));
    let prefix = release.as_deref().unwrap_or(PREFIX);
    full.strip_prefix(prefix).unwrap_or(&full).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(name: &str, labels: Value) -> DynamicObject {
        let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name, "labels": labels}});
        serde_json::from_value(object).unwrap()
    }

    fn of_chart(release: &str) -> DynamicObject {
        let name = format!("{release}-web");
        job(&name, json!({"app.kubernetes.io/instance": release}))
    }

    fn of_plugin(name: &str) -> DynamicObject {
        job(&format!("phpprof-{name}"), json!({LABEL: name}))
    }

    #[track_caller]
    fn check(all: Vec<DynamicObject>, name: &str, expected: Result<Option<&str>, &str>) {
        let found = chosen(all, name, "shop");
        let found = found.map(|found| found.map(|it| RequestView::of(&it).name()));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected),
            (Err(failure), Err(part)) => assert!(failure.hint.contains(part), "{}", failure.hint),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn a_schedule_is_found_by_either_name() {
        for name in ["web", "prof-web"] {
            check(vec![of_chart("prof")], name, Ok(Some("prof-web")));
        }
        for name in ["web", "phpprof-web"] {
            check(vec![of_plugin("web")], name, Ok(Some("phpprof-web")));
        }
        check(vec![of_chart("prof")], "phpprof-web", Ok(None));
        assert_eq!(short_name(&job("phpprof-web", json!({}))), "web");
    }

    #[test]
    fn a_name_of_several_schedules_is_refused() {
        let both = || vec![of_plugin("web"), of_chart("prof")];
        check(both(), "web", Err("phpprof-web, prof-web"));
        check(both(), "prof-web", Ok(Some("prof-web")));
    }
}
