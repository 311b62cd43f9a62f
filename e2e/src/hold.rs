//! A test's hold on the cluster. Each test is a process of its own: those on one release share the
//! cluster, and one that stops parts of it or needs another release has it alone. nextest runs most
//! of these on a second cluster, and begins the others in an order in which few of them wait here
//! (.config/nextest.toml).
//!
//! A lock on this machine says who holds the cluster. An annotation in the cluster says which
//! release it has; a test that may change something removes it, and writes it again when all is
//! restored. So whoever finds none restores all first.
//!
//! Invariant: a test runs on the release that it wants, with nothing stopped by a test before it.

use std::fs::File;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::release::{self, NAMESPACE, Values};
use crate::{line, outage, test_cluster, toy};

/// The annotation of the release's namespace. Its value is a list in JSON.
const INSTALLED: &str = "phpprof.dev/e2e-installed";

/// Whether other tests run beside a test.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Sharing {
    Shared,
    Exclusive,
}

/// A hold, until it is dropped.
pub(crate) struct Hold {
    sharing: Sharing,
    installed: Installed,
    _lock: File,
}

impl Hold {
    /// Waits for the cluster, with this release.
    pub(crate) async fn take(client: &Client, sharing: Sharing, values: Values) -> Result<Self> {
        let (lock, installed) = (lock_file()?, Installed::of(client));
        loop {
            match sharing {
                Sharing::Shared => lock.lock_shared()?,
                Sharing::Exclusive => lock.lock()?,
            }
            let found = installed.read().await?;
            if found.as_deref().is_some_and(|found| found == values) {
                break;
            }
            // A shared lock does not become an exclusive one at once: another test may have the
            // cluster in between.
            lock.unlock()?;
            lock.lock()?;
            match installed.read().await? {
                Some(other) => {
                    release::remember(Some(other)).await;
                    installed.forget().await?;
                    release::install(values).await?;
                }
                None => renew(values).await?,
            }
            installed.keep().await?;
            lock.unlock()?;
        }
        release::remember(Some(words(values))).await;
        if sharing == Sharing::Exclusive {
            installed.forget().await?;
        }
        Ok(Self {
            sharing,
            installed,
            _lock: lock,
        })
    }

    /// Waits for the cluster, restores all of it, and installs the release of most tests.
    pub(crate) async fn anew(client: &Client) -> Result<Self> {
        let (lock, installed) = (lock_file()?, Installed::of(client));
        lock.lock()?;
        installed.forget().await?;
        renew(&[]).await?;
        installed.keep().await?;
        Ok(Self {
            sharing: Sharing::Shared,
            installed,
            _lock: lock,
        })
    }

    /// Restores what the test may have changed.
    pub(crate) async fn end(self) -> Result<()> {
        if self.sharing == Sharing::Exclusive {
            tokio::try_join!(outage::restore(), line::restore(), release::scale(1))?;
            self.installed.keep().await?;
        }
        Ok(())
    }
}

/// Restores what a test that was killed may have changed, and installs this release.
async fn renew(values: Values) -> Result<()> {
    outage::distrust();
    line::distrust();
    outage::restore().await?;
    release::remember(None).await;
    release::forget_halted().await?;
    release::install(values).await?;
    tokio::try_join!(line::restore(), release::scale(1)).map(drop)
}

fn words(values: Values) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn lock_file() -> Result<File> {
    // The clusters are tested at the same time.
    let name = if toy::is_used() {
        "phpprof-toy"
    } else {
        test_cluster::here().name()
    };
    let path = std::env::temp_dir().join(format!("{name}.lock"));
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path);
    file.with_context(|| format!("opening {}", path.display()))
}

/// What the tests before this one have left, as the annotation says.
struct Installed(Api<Namespace>);

impl Installed {
    fn of(client: &Client) -> Self {
        Self(Api::all(client.clone()))
    }

    /// The release's values; none if a test has not restored what it changed.
    async fn read(&self) -> Result<Option<Vec<String>>> {
        let namespace = self.0.get_opt(NAMESPACE).await?;
        let values = namespace.and_then(|it| it.annotations().get(INSTALLED).cloned());
        let values = values.as_deref().map(serde_json::from_str);
        values.transpose().context("the annotation is no list")
    }

    async fn forget(&self) -> Result<()> {
        match self.write(Value::Null).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => Ok(other?),
        }
    }

    /// Writes down what is installed, if this process knows it.
    async fn keep(&self) -> Result<()> {
        match release::installed().await {
            Some(values) => Ok(self.write(json!(json!(values).to_string())).await?),
            None => Ok(()),
        }
    }

    async fn write(&self, value: Value) -> kube::Result<()> {
        let patch = json!({"metadata": {"annotations": {INSTALLED: value}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.0.patch(NAMESPACE, &params, &patch).await.map(drop)
    }
}
