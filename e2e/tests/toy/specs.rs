//! The API server's exact message for a spec that breaks one rule; and it accepts a similar spec
//! that breaks none.
//!
//! Only two requests that are changed are stored: all others are sent with `dryRun=All`, and
//! validated as strictly as kubectl does. The words of Kubernetes around a rule's message depend on
//! its version, so each version that is tested has a golden.
//!
//! Invariant: a row breaks one rule, so its refusal has one cause.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Fixture, NOT_ENABLED, shared};
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};

mod row;
mod rows;
mod selectors;

/// Parts of a refusal by the schema that repeat it: the API server checks rules only if the schema
/// is satisfied, and since 1.37 it checks the format of numbers for itself.
const REPEATED: [&str; 2] = [
    "some validation rules were not checked",
    "Checked value must be of type",
];

/// The API server's refusal of this object; none if it accepts it.
async fn answer(client: &Client, request: http::Request<Vec<u8>>) -> Result<Option<Status>> {
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(*status)),
        Err(error) => Err(error).context("the API server gave no answer"),
    }
}

fn path(fixture: &Fixture, name: &str) -> String {
    format!(
        "/apis/phpprof.dev/v1alpha1/namespaces/{}/profilerequests{name}?dryRun=All&fieldValidation=Strict",
        fixture.namespace
    )
}

async fn create(fixture: &Fixture, spec: &Value) -> Result<Option<Status>> {
    let mut object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": "new"}, "spec": spec,
    });
    if spec.is_null() {
        object.as_object_mut().context("an object")?.remove("spec");
    }
    let request = http::Request::post(path(fixture, ""))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    answer(&fixture.client, request).await
}

async fn change(fixture: &Fixture, name: &str, spec: &Value) -> Result<Option<Status>> {
    let request = http::Request::patch(path(fixture, &format!("/{name}")))
        .header("content-type", "application/merge-patch+json")
        .body(json!({"spec": spec}).to_string().into_bytes())?;
    answer(&fixture.client, request).await
}

/// A row of the table: the case, and its result.
fn write_row(table: &mut String, case: &str, refused: Option<Status>) -> Result<()> {
    let refused = refused.with_context(|| format!("{case} was taken"))?;
    let causes = refused
        .details
        .into_iter()
        .flat_map(|details| details.causes);
    let broken = causes.filter(|cause| !REPEATED.iter().any(|part| cause.message.contains(part)));
    ensure!(broken.count() <= 1, "{case}: {}", refused.message);
    writeln!(table, "{case}\n    {}\n", refused.message)?;
    Ok(())
}

/// The golden of this version of Kubernetes.
async fn golden(client: &Client) -> Result<&'static str> {
    let version = client.apiserver_version().await?;
    // Some providers write 34+.
    let minor: u32 = version.minor.trim_end_matches('+').parse()?;
    match minor {
        34 => Ok("what_1_34_says"),
        37 => Ok("what_1_37_says"),
        _ => bail!("nobody has looked what 1.{minor} says"),
    }
}

#[test]
fn each_rule_refuses_and_gives_a_hint() -> Result<()> {
    shared(NOT_ENABLED, async |fixture| {
        let mut table = String::new();
        let invalid = rows::invalid();
        for (case, spec) in &invalid {
            write_row(&mut table, case, create(fixture, spec).await?)?;
        }
        let changes = rows::changes();
        for (name, spec) in rows::stored() {
            let object = json!({
                "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": name}, "spec": spec,
            });
            let request = serde_json::from_value(object)?;
            let requests = fixture.api::<phpprof_crds::ProfileRequest>();
            requests.create(&Default::default(), &request).await?;
        }
        for (case, name, spec) in &changes {
            write_row(&mut table, case, change(fixture, name, spec).await?)?;
        }
        ensure!(invalid.len() + changes.len() >= 60, "rows are missing");
        insta::assert_snapshot!(golden(&fixture.client).await?, table);
        Ok(())
    })
}

#[test]
fn what_is_just_within_the_rules_is_taken() -> Result<()> {
    shared(NOT_ENABLED, async |fixture| {
        for (case, spec) in rows::valid() {
            let refused = create(fixture, &spec).await?;
            ensure!(refused.is_none(), "{case}: {refused:?}");
        }
        Ok(())
    })
}
