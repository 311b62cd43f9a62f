//! `list` and `get`: requests, or the stored profiles of a namespace.
//!
//! Invariant: `get` without a name is `list`.

use jiff::Timestamp;

use crate::cli::{Get, ListFlags};
use crate::connect::Cluster;
use crate::failure::Failure;
use crate::global::Global;
use crate::list::{RequestListing, unwritable};
use crate::output::OutputForm;
use crate::screen::Screen;
use crate::stored::{self, AskedName, NamedResult};
use crate::{source, watch};

pub async fn list(
    global: &Global,
    arguments: &ListFlags,
    screen: Screen,
) -> Result<String, Failure> {
    if arguments.watch {
        return watch::run(global, arguments, screen).await;
    }
    let output = arguments.output.read()?;
    let cluster = Cluster::of(global).await?;
    if arguments.stored {
        let listing = of_stored(output, screen);
        return stored::list(&cluster, listing, arguments.sort_by.as_ref()).await;
    }
    let objects = watch::listed(&cluster, arguments).await?;
    if objects.is_empty() && output.is_table() {
        let place = if arguments.all_namespaces {
            "this cluster".to_owned()
        } else {
            format!("namespace {}", cluster.namespace)
        };
        eprintln!("No profile requests in {place}.");
        return Ok(String::new());
    }
    RequestListing::of(arguments, output, screen)
        .text(&objects, false)
        .map_err(unwritable)
}

pub async fn get(global: &Global, arguments: &Get, screen: Screen) -> Result<String, Failure> {
    let Some(name) = &arguments.name else {
        return list(global, &arguments.list, screen).await;
    };
    let output = arguments.list.output.read()?;
    let cluster = Cluster::of(global).await?;
    let name = source::request_name(name);
    match stored::named(&cluster, name).await? {
        NamedResult::Request(object) => RequestListing::of(&arguments.list, output, screen)
            .text(&[*object], true)
            .map_err(unwritable),
        NamedResult::Stored(stored) => {
            let (entry, note) = stored.find(AskedName::of(name))?;
            eprintln!("{note}");
            Ok(of_stored(output, screen).single(entry))
        }
    }
}

fn of_stored(output: OutputForm, screen: Screen) -> stored::StoredListing {
    stored::StoredListing {
        output,
        width: screen.width,
        now: Timestamp::now(),
    }
}
