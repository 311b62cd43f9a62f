//! `version`: the versions of the plugin, the operator and the sampler's image.
//!
//! Invariant: versions that the user may not read are reported as such, and are not a failure.

use serde_json::{Value, json};

use crate::cli::Version;
use crate::connect::Cluster;
use crate::doctor::checks::OperatorFacts;
use crate::doctor::observe::operator;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::ListForm;
use crate::output::OutputForm;

pub async fn run(global: &Global, arguments: &Version) -> Result<String, Failure> {
    let output = arguments.output.read()?;
    let found = if arguments.client {
        None
    } else {
        let facts = match Cluster::of(global).await {
            Ok(cluster) => operator(&cluster).await,
            Err(failure) => Err(failure.message),
        };
        Some(facts)
    };
    Ok(text(found, &output))
}

pub fn text(operator: Option<Result<OperatorFacts, String>>, output: &OutputForm) -> String {
    let client = env!("CARGO_PKG_VERSION");
    let mut data = json!({"client": client});
    let mut text = format!("client    {client}\n");
    match operator {
        None => {}
        Some(Ok(facts)) => {
            let sampler = facts
                .arguments
                .iter()
                .find_map(|argument| argument.strip_prefix("--sampler-image="));
            let sampler = sampler.unwrap_or("unknown");
            data["operator"] = Value::from(facts.image.clone());
            data["sampler"] = Value::from(sampler);
            text.push_str(&format!("operator  {}\nsampler   {sampler}\n", facts.image));
        }
        Some(Err(why)) => {
            data["unknown"] = Value::from(why.clone());
            text.push_str(&format!("operator  unknown: {why}\n"));
        }
    }
    match output {
        OutputForm::Form(ListForm::Name) => format!("{client}\n"),
        output => output.of_data(|| data, "").unwrap_or(text),
    }
}
