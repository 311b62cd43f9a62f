//! `dump`: where every worker of the pods is now, or what its memory is made of, by a request for a
//! snapshot.
//!
//! Invariant: it shows the result of the request that this command created, never of an earlier
//! one.

use phpprof_profile::dump::{json as to_json, memory_text, text, without_sample, workers};
use serde_json::json;

use crate::cli::Dump;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::ListForm;
use crate::output::OutputForm;
use crate::run::{as_object, looked};
use crate::{source, target, wait};

pub async fn run(global: &Global, arguments: &Dump) -> Result<String, Failure> {
    let output = arguments.output.read()?;
    let request = target::snapshot(arguments)?;
    let object = as_object(serde_json::to_value(request), "the command line")?;
    // From here on, Ctrl-C asks. It must not end the program between the creation and the waiting.
    let mut interrupts = wait::interrupts()?;
    let cluster = Cluster::of(global).await?;
    let name = looked(&cluster, object, arguments.timeout, &mut interrupts).await?;
    let source = source::of_request(&cluster, &name, None).await?;
    let workers = workers(&source.profile);
    let further = without_sample(&source.profile);
    let document = || json!({ "workers": workers, "withoutSample": further });
    match output.of_data(document, "/workers") {
        // A document has the fields of a worker in their own order.
        _ if output == OutputForm::Form(ListForm::Json) => Ok(to_json(&workers, further)),
        Some(text) => Ok(text),
        None if workers.is_empty() => Err(Failure::new(
            Exit::NoProfile,
            saw_none(&name, further),
            format!(
                "{} shows what the samplers saw",
                cluster.suggest.phpprof(&format!("describe {name}"))
            ),
        )),
        None if arguments.memory => Ok(memory_text(&workers, further)),
        None => Ok(text(&workers, further)),
    }
}

/// Of a snapshot without any sample.
fn saw_none(name: &str, without_sample: usize) -> String {
    match without_sample {
        0 => format!("{name} saw no PHP worker"),
        count => format!("{name} has no sample of the PHP workers that it saw ({count})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_without_sample_are_in_the_failure() {
        assert_eq!(saw_none("a", 0), "a saw no PHP worker");
        let expected = "a has no sample of the PHP workers that it saw (3)";
        assert_eq!(saw_none("a", 3), expected);
    }
}
