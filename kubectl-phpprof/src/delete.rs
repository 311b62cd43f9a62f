//! `delete`: removes requests from the cluster.
//!
//! The stored profiles of a finished request have their own retention; a running request is cut
//! off, and its samplers drop their samples.
//!
//! Invariant: a request is reported as deleted only if the API server has accepted its deletion.

use kube::api::DeleteParams;

use crate::cli::{Delete, DryRun, ListFlags};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::{RequestView, ShownOutcome};
use crate::source::request_name;
use crate::stdout;
use crate::watch::listed;

pub async fn run(global: &Global, arguments: &Delete) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    let names = names(&cluster, arguments).await?;
    if names.is_empty() {
        eprintln!("No profile requests in namespace {}.", cluster.namespace);
    }
    let mut is_kept = false;
    for name in &names {
        match one(&cluster, name, arguments.dry_run).await {
            Ok(has_profile) => {
                // At once, so that the user knows of it if the next one fails.
                stdout::say(&deleted(name, arguments.dry_run))?;
                is_kept |= has_profile;
            }
            Err(failure) if arguments.ignore_not_found && failure.exit == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    if is_kept && arguments.dry_run.is_none() {
        eprintln!(
            "their profiles stay in the store for profileRetentionSeconds: {}",
            cluster.suggest.phpprof("list --stored")
        );
    }
    Ok(String::new())
}

/// The given names, or those of all selected requests.
async fn names(cluster: &Cluster, arguments: &Delete) -> Result<Vec<String>, Failure> {
    if !arguments.names.is_empty() {
        let names = arguments.names.iter();
        return Ok(names.map(|name| request_name(name).to_owned()).collect());
    }
    let all = ListFlags {
        selector: arguments.selector.clone(),
        ..ListFlags::default()
    };
    let objects = listed(cluster, &all).await?;
    Ok(objects
        .iter()
        .map(|it| RequestView::of(it).name())
        .collect())
}

/// Deletes a request. Returns whether a profile of it stays in the store.
async fn one(cluster: &Cluster, name: &str, dry_run: Option<DryRun>) -> Result<bool, Failure> {
    let object = cluster.request(name).await?;
    let request = RequestView::of(&object);
    let has_profile = !request.words("/status/profile/url").is_empty();
    if request.outcome() == ShownOutcome::InProgress && dry_run.is_none() {
        eprintln!(
            "{name} was running: its samplers stop and drop their samples; {} would have kept them",
            cluster.suggest.phpprof(&format!("cancel {name}"))
        );
    }
    if dry_run == Some(DryRun::Client) {
        return Ok(has_profile);
    }
    let action = format!(
        "delete profilerequests/{name} in namespace {}",
        cluster.namespace
    );
    let parameters = DeleteParams {
        dry_run: dry_run.is_some(),
        ..DeleteParams::default()
    };
    let answer = cluster.requests().delete(name, &parameters).await;
    answer.map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))?;
    Ok(has_profile)
}

fn deleted(name: &str, dry_run: Option<DryRun>) -> String {
    let how = match dry_run {
        None => "",
        Some(DryRun::Client) => " (dry run)",
        Some(DryRun::Server) => " (server dry run)",
    };
    format!("profilerequest.phpprof.dev/{name} deleted{how}\n")
}
