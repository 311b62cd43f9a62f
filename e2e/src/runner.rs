//! How a test runs: it waits for its hold on the cluster, gets a fixture, and leaves the cluster as
//! it was.

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};

use crate::fixture::{ENABLED, Fixture, Labels, NOT_ENABLED, OURS};
use crate::hold::{Hold, Sharing};
use crate::release::{self, Values};

/// Runs a test that does not disturb others, at the same time as other such tests.
pub fn shared(labels: Labels, test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    on_cluster(async || play(labels, Sharing::Shared, &[], test).await)
}

/// Like [`shared`], with a release that differs by these `--set` values.
pub fn shared_on(values: Values, test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    on_cluster(async || play(ENABLED, Sharing::Shared, values, test).await)
}

/// Runs a test while no other test runs on its cluster, and restores what it stopped or changed.
/// Such a test is in a module `alone`, by which nextest runs it on a second cluster. One whose
/// times others would change is in a module `quiet`, by which nextest runs it when all others on
/// the first cluster are over.
pub fn exclusive(test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    exclusive_on(&[], test)
}

/// Like [`exclusive`], with a release that differs by these `--set` values.
pub fn exclusive_on(values: Values, test: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    let is_of = |argument: &str| {
        ["alone::", "quiet::"]
            .iter()
            .any(|name| argument.contains(name))
    };
    let named = std::env::args().any(|argument| is_of(&argument));
    ensure!(
        named || std::env::var_os("NEXTEST").is_none(),
        "an exclusive test is in a module `alone` or `quiet` (.config/nextest.toml)"
    );
    on_cluster(async || play(ENABLED, Sharing::Exclusive, values, test).await)
}

/// Prepares the cluster for a run of the tests: removes what a killed run left, and installs the
/// tested release.
pub fn prepare() -> Result<()> {
    on_cluster(async || {
        let client = connect().await?;
        let _hold = Hold::anew(&client).await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let left = namespaces.list(&ListParams::default().labels(OURS)).await?;
        let stays = |namespace: &&Namespace| namespace.metadata.deletion_timestamp.is_none();
        for left in left.iter().filter(stays) {
            namespaces
                .delete(&left.name_any(), &DeleteParams::background())
                .await?;
        }
        let fixture = Fixture::create(client, NOT_ENABLED).await?;
        tokio::try_join!(release::renew(), fixture.clear_all())?;
        fixture.remove().await
    })
}

fn on_cluster(act: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    // Only one provider is compiled in, so the only possible error is that it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(act())
}

async fn connect() -> Result<Client> {
    Client::try_default()
        .await
        .context("no cluster; make e2e starts one")
}

async fn play(
    labels: Labels,
    sharing: Sharing,
    values: Values,
    test: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    let client = connect().await?;
    let hold = Hold::take(&client, sharing, values).await?;
    let fixture = Fixture::create(client, labels).await?;
    let result = match test(&fixture).await {
        Ok(()) => fixture.clear_store().await,
        Err(error) => Err(anyhow!("{error:?}\n{}", fixture.evidence().await)),
    };
    result.and(fixture.remove().await).and(hold.end().await)
}
