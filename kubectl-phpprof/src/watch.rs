//! `list`, once or continuously.
//!
//! Invariant: while watching, a request is printed when it is first seen and whenever its status
//! changes, always in the requested output form.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};

use crate::cli::ListFlags;
use crate::connect::Cluster;
use crate::failure::Failure;
use crate::global::Global;
use crate::list::{RequestListing, plain, unwritable};
use crate::output::sort;
use crate::screen::Screen;

const POLL: Duration = Duration::from_secs(1);

pub async fn listed(
    cluster: &Cluster,
    arguments: &ListFlags,
) -> Result<Vec<DynamicObject>, Failure> {
    let parameters = ListParams {
        label_selector: arguments.selector.clone(),
        ..ListParams::default()
    };
    let (api, place) = if arguments.all_namespaces {
        (cluster.all_requests(), "all namespaces".to_owned())
    } else {
        (
            cluster.requests(),
            format!("namespace {}", cluster.namespace),
        )
    };
    let action = format!("list profilerequests in {place}");
    let list = api.list(&parameters).await;
    let mut objects = list
        .map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))?
        .items;
    sort(&mut objects, arguments.sort_by.as_ref(), |object| {
        plain(object).unwrap_or_default()
    })?;
    Ok(objects)
}

pub async fn run(
    global: &Global,
    arguments: &ListFlags,
    screen: Screen,
) -> Result<String, Failure> {
    let output = arguments.output.read()?;
    let cluster = Cluster::of(global).await?;
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut widths = Vec::new();
    loop {
        let objects = listed(&cluster, arguments).await?;
        let changed: Vec<_> = objects
            .into_iter()
            .filter(|object| {
                let uid = object.uid().unwrap_or_default();
                let version = object.data["status"].to_string();
                seen.insert(uid, version.clone()) != Some(version)
            })
            .collect();
        let listing = RequestListing::of(arguments, output.clone(), screen);
        let text = listing.watched(&changed, &mut widths).map_err(unwritable)?;
        // The reader may have closed the pipe.
        let mut out = std::io::stdout().lock();
        if out
            .write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return Ok(String::new());
        }
        drop(out);
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(String::new()),
        }
    }
}
