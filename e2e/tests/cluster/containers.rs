//! Which container of a pod is profiled if nobody names it, and PHP in native sidecars.

use anyhow::{Result, ensure};
use e2e::requests::{holds, only_target, status};
use e2e::samples::samples_of;
use e2e::{ENABLED, Fixture, pods, shared};
use k8s_openapi::api::core::v1::Pod;
use phpprof_crds::{ContainerChoice, RequestReason, condition};
use serde_json::json;

/// The container that the sampler was added for.
async fn target_container(fixture: &Fixture, pod: &str) -> Result<Vec<String>> {
    let pod: Pod = fixture.api().get(pod).await?;
    let added = pod.spec.and_then(|spec| spec.ephemeral_containers);
    let added = added.into_iter().flatten();
    Ok(added.filter_map(|it| it.target_container_name).collect())
}

#[test]
fn php_behind_nginx_is_found_by_its_name() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php_second("two", "php-fpm")]).await?;
        let administrator = fixture.administrator()?;
        let report = administrator.run("doctor pod/two -o json").await?.well()?;
        ensure!(
            report.contains("php-fpm, chosen by its name; the others are nginx"),
            "{report}"
        );
        let ran = administrator.run("run pod/two -d 3s --name two").await?;
        let by_name = "profiled 1 pod (container php-fpm, chosen by its name)";
        ensure!(ran.err.contains(by_name), "{ran:?}");
        let table = ran.well()?;
        ensure!(table.contains("work"), "{table}");
        ensure!(target_container(fixture, "two").await? == ["php-fpm"]);
        let described = administrator.run("describe two").await?.well()?;
        ensure!(
            described.contains("container php-fpm, by its name"),
            "{described}"
        );
        Ok(())
    })
}

#[test]
fn an_ambiguous_pod_is_refused_with_container_names() -> Result<()> {
    shared(ENABLED, async |fixture| {
        // Both images are the project's own, whose names say nothing of PHP.
        fixture.start(&[pods::php_second("unclear", "app")]).await?;
        let unclear = json!({"podName": "unclear"});
        let request = fixture.apply(json!({"target": unclear})).await?;
        let request = fixture.ended(&request).await?;
        let failed = holds(&request, condition::FAILED)?;
        ensure!(
            failed.reason == RequestReason::ContainerAmbiguous.to_string(),
            "{failed:?}"
        );
        let names = "pod unclear has the containers nginx, app";
        ensure!(failed.message.contains(names), "{failed:?}");
        ensure!(status(&request).targets.is_empty());
        ensure!(target_container(fixture, "unclear").await?.is_empty());
        let named = json!({"podName": "unclear", "containerName": "app"});
        let spec = json!({"target": named, "durationSeconds": 2});
        let target = only_target(&fixture.completed(spec).await?)?;
        ensure!(
            target.container_choice == Some(ContainerChoice::Request),
            "{target:?}"
        );
        Ok(())
    })
}

#[test]
fn php_in_a_native_sidecar_is_profiled() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php_in_sidecar("sidecar")]).await?;
        for (container, choice) in [
            (None, ContainerChoice::Name),
            (Some("php"), ContainerChoice::Request),
        ] {
            let target = json!({"podName": "sidecar", "containerName": container});
            let spec = json!({"target": target, "durationSeconds": 3});
            let request = fixture.completed(spec).await?;
            let target = only_target(&request)?;
            ensure!(target.container_choice == Some(choice), "{target:?}");
            let profile = fixture.profile(&target.object_key).await?;
            let samples = samples_of(&profile, r"Sidecar\work");
            ensure!(samples > 0, "{:?}", profile.string_table);
        }
        let user = fixture.administrator()?;
        let proposed = user.proposals("run pod/sidecar -c p").await?;
        ensure!(proposed.starts_with("php\n"), "{proposed}");
        let report = user.run("doctor pod/sidecar -o json").await?.well()?;
        ensure!(report.contains("SameUser: as user 33"), "{report}");
        Ok(())
    })
}
