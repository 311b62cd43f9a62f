//! `logs`: the logs of a request's samplers.
//!
//! Invariant: each line names its pod, and nothing in it moves the cursor.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};

use crate::cli::Logs;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::RequestView;
use crate::source::request_name;
use crate::table::printable;

/// The most bytes of a log. A sampler logs only a few lines.
const MAX_BYTES: i64 = 1 << 20;

pub async fn run(global: &Global, arguments: &Logs) -> Result<String, Failure> {
    let cluster = Cluster::of(global).await?;
    let name = request_name(&arguments.name);
    let object = cluster.request(name).await?;
    let request = RequestView::of(&object);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let wanted = |pod: &str| arguments.pod.as_deref().is_none_or(|only| only == pod);
    let mut said = String::new();
    let mut refused = None;
    let mut asked = 0;
    for target in request.targets().filter(|target| wanted(target.pod())) {
        asked += 1;
        let parameters = LogParams {
            container: Some(target.words("/ephemeralContainerName").to_owned()),
            limit_bytes: Some(MAX_BYTES),
            ..LogParams::default()
        };
        match pods.logs(target.pod(), &parameters).await {
            Ok(log) => log.lines().for_each(|line| {
                said.push_str(&format!(
                    "{}: {}\n",
                    printable(target.pod()),
                    printable(line)
                ))
            }),
            // The other pods' samplers may have logs all the same.
            Err(error) => {
                let action = format!(
                    "get pods/log of pod {} in namespace {}",
                    target.pod(),
                    cluster.namespace
                );
                refused = Some(Failure::of_api(&cluster.suggest, &action, &error));
            }
        }
    }
    match refused {
        Some(failure) if said.is_empty() => Err(failure),
        Some(failure) => {
            eprintln!("{failure}");
            Ok(said)
        }
        None if asked == 0 => Err(Failure::new(
            Exit::NotFound,
            format!("{name} has no such pod"),
            format!(
                "list its pods: {}",
                cluster.suggest.phpprof(&format!("describe {name}"))
            ),
        )),
        None => Ok(said),
    }
}
