//! `cancel`: stops requests early. Their samples so far are kept.
//!
//! Invariant: it reports a request as cancelled only if the API server has accepted `spec.cancel`.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cli::{Cancel, DryRun};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::{RequestView, ShownOutcome};
use crate::source::request_name;
use crate::stdout;

pub async fn run(global: &Global, arguments: &Cancel) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    for name in &arguments.names {
        let name = request_name(name);
        // At once, so that the user knows of it if the next one fails.
        stdout::say(&one(&cluster, name, arguments.dry_run).await?)?;
    }
    Ok(String::new())
}

pub async fn one(
    cluster: &Cluster,
    name: &str,
    dry_run: Option<DryRun>,
) -> Result<String, Failure> {
    let action = format!(
        "patch profilerequests/{name} in namespace {}",
        cluster.namespace
    );
    let object = cluster.request(name).await?;
    if RequestView::of(&object).outcome() != ShownOutcome::InProgress {
        return Ok(format!(
            "profilerequest.phpprof.dev/{name} has already ended\n"
        ));
    }
    if dry_run == Some(DryRun::Client) {
        return Ok(format!(
            "profilerequest.phpprof.dev/{name} cancelled (dry run)\n"
        ));
    }
    let parameters = PatchParams {
        dry_run: dry_run.is_some(),
        field_manager: Some("kubectl-phpprof".to_owned()),
        ..PatchParams::default()
    };
    let patched = cluster
        .requests()
        .patch(
            name,
            &parameters,
            &Patch::Merge(json!({"spec": {"cancel": true}})),
        )
        .await
        .map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))?;
    // An API server silently drops a field that its schema does not have.
    if RequestView::of(&patched).at("/spec/cancel") != &json!(true) {
        return Err(Failure::new(
            Exit::Failed,
            format!("{name} continues: this cluster's ProfileRequest has no spec.cancel"),
            "upgrade the chart and its CRD; deleting the request drops its result",
        ));
    }
    let how = if dry_run.is_some() {
        " (server dry run)"
    } else {
        ""
    };
    Ok(format!(
        "profilerequest.phpprof.dev/{name} cancelled{how}\n"
    ))
}
