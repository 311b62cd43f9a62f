//! `helm test`: it succeeds where the release works, fails where the operator is away, and leaves
//! no right behind.

use anyhow::{Result, ensure};
use e2e::pods::image;
use e2e::{exclusive, kubectl, release, run};

/// What the test leaves only if it has failed, and what it never leaves.
const JOB: &str = "job/phpprof-test";
const RIGHTS: &str = "serviceaccount/phpprof-test,role/phpprof-test,rolebinding/phpprof-test";

async fn helm_test(timeout: &str) -> Result<String> {
    let test = ["test", "phpprof", "--namespace", release::NAMESPACE];
    let said = run("helm", &[&test[..], &["--timeout", timeout]].concat(), &[]).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The names of those of these objects that are there.
async fn left(objects: &str) -> Result<String> {
    let mut get = vec![
        "--namespace",
        release::NAMESPACE,
        "get",
        "--ignore-not-found",
    ];
    get.extend(["--output=name"]);
    get.extend(objects.split(','));
    kubectl(&get).await
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn helm_test_passes_and_leaves_no_right() -> Result<()> {
        exclusive(async |_| {
            let plugin = format!("images.plugin={}", image("kubectl-phpprof"));
            release::install(&[&plugin]).await?;
            let said = helm_test("2m").await?;
            ensure!(said.contains("Phase:          Succeeded"), "{said}");
            let left_behind = left(&format!("{JOB},{RIGHTS}")).await?;
            ensure!(left_behind.is_empty(), "{left_behind}");

            release::scale(0).await?;
            let without = helm_test("25s").await;
            release::scale(1).await?;
            ensure!(without.is_err(), "{}", without.unwrap_or_default());
            // What failed can be looked at; its rights are gone.
            ensure!(left(JOB).await?.contains("phpprof-test"));
            let rights = left(RIGHTS).await?;
            ensure!(rights.is_empty(), "{rights}");
            kubectl(&["--namespace", release::NAMESPACE, "delete", JOB]).await?;
            Ok(())
        })
    }
}
