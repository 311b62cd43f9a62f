//! `verdict --canary`: profiles the stable release and the canary at the same time.
//!
//! Invariant: both requests are the same but for their target, and a wrong command line fails
//! before anything is created.

use kube::api::DynamicObject;

use crate::cancel;
use crate::cli::{CanaryArguments, RequestArguments, RunLabel};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::RequestView;
use crate::run::{as_object, create, require_profile, tell_failed};
use crate::{target, wait};

/// How long both are profiled if nothing else is said.
pub const SECONDS: u64 = 60;

/// The names of both requests, stable and canary, once both have a profile.
pub async fn profiled(
    global: &Global,
    stable: &str,
    canary: &str,
    how: &CanaryArguments,
) -> Result<[String; 2], Failure> {
    let objects = objects(stable, canary, how)?;
    // From here on, Ctrl-C asks.
    let mut interrupts = wait::interrupts()?;
    let cluster = Cluster::of(global).await?;
    let created = both(&cluster, objects).await?;
    let names = [&created[0], &created[1]].map(|one| RequestView::of(one).name());
    eprintln!(
        "profilerequest.phpprof.dev/{} and {} created",
        names[0], names[1]
    );
    for (index, one) in created.iter().enumerate() {
        let ended = wait::wait(&cluster, one, how.timeout, &mut interrupts).await;
        let ended = ended.inspect_err(|_| {
            if index == 0 {
                let see = format!("describe {}", names[1]);
                eprintln!("{} continues: {}", names[1], cluster.suggest.phpprof(&see));
            }
        })?;
        let request = RequestView::of(&ended);
        if let Err(failure) = require_profile(&request, &cluster.suggest) {
            // One side alone decides nothing.
            end(&cluster, &names[1 - index]).await;
            return Err(failure);
        }
        tell_failed(&request);
    }
    Ok(names)
}

/// Cancels what would go on for nothing; it may have ended.
async fn end(cluster: &Cluster, name: &str) {
    if let Err(left) = cancel::one(cluster, name, None).await {
        eprintln!("warning: {name} goes on: {left}");
    }
}

/// The requests that profile both.
pub fn objects(
    stable: &str,
    canary: &str,
    how: &CanaryArguments,
) -> Result<[DynamicObject; 2], Failure> {
    let objects = [object(stable, how)?, object(canary, how)?];
    if objects[0].data["spec"]["target"] == objects[1].data["spec"]["target"] {
        return Err(Failure::new(
            Exit::Usage,
            format!("{stable} and {canary} are the same"),
            "name the canary: kubectl phpprof verdict deploy/web --canary deploy/web-canary",
        ));
    }
    Ok(objects)
}

fn object(target: &str, how: &CanaryArguments) -> Result<DynamicObject, Failure> {
    let usual = RequestArguments::of_target(target);
    let arguments = RequestArguments {
        container: how.container.clone(),
        duration: how.duration.unwrap_or(SECONDS),
        samples_per_second: how.samples_per_second.unwrap_or(usual.samples_per_second),
        max_pods: how.max_pods.unwrap_or(usual.max_pods),
        labels: vec![RunLabel::Method, RunLabel::Route],
        ..usual
    };
    let request = target::request(&arguments, None)?;
    as_object(serde_json::to_value(request), "the command line")
}

/// Creates both, or leaves none running.
async fn both(
    cluster: &Cluster,
    [stable, canary]: [DynamicObject; 2],
) -> Result<[DynamicObject; 2], Failure> {
    let stable = create(cluster, stable, false).await?;
    match create(cluster, canary, false).await {
        Ok(canary) => Ok([stable, canary]),
        Err(failure) => {
            end(cluster, &RequestView::of(&stable).name()).await;
            Err(failure)
        }
    }
}
