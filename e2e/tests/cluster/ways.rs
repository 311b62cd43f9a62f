//! Clusters whose parts do not reach each other as usual: a control plane that cannot connect to
//! pods, and pods that know no names of the cluster.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::release::{self, ON_VOLUME};
use e2e::requests::{holds, only_target};
use e2e::users::User;
use e2e::{cut, exclusive, pods, poll, say, shared_on};
use kube::api::Api;
use phpprof_crds::{ProfileRequest, TargetReason, UploadRoute, condition};
use serde_json::{Value, json};

/// A pod with this part of a spec.
fn php_with(name: &str, spec: &Value) -> Value {
    let mut pod = pods::php(name);
    if let (Some(of_pod), Some(more)) = (pod["spec"].as_object_mut(), spec.as_object()) {
        of_pod.extend(more.clone());
    }
    pod
}

/// The addresses of the relay's Service, separated by blanks: one of each family that the cluster
/// has.
async fn relay_addresses() -> Result<String> {
    let namespace = format!("--namespace={}", release::NAMESPACE);
    let addresses = "--output=jsonpath={.spec.clusterIPs[*]}";
    e2e::kubectl(&["get", "service", release::SERVICE, &namespace, addresses]).await
}

async fn check_ways(administrator: &User, developer: &User) -> Result<()> {
    let begin = Instant::now();
    let table = administrator.run("top first").await?.well()?;
    ensure!(table.contains("Demo\\"), "{table}");
    let took = begin.elapsed();
    ensure!(took < Duration::from_secs(15), "{took:?}");
    let doctor = administrator.run("doctor pod/web").await?.well()?;
    ensure!(doctor.contains("a port-forward does"), "{doctor}");
    // Without the right, the user hears soon what to open, and which Role helps.
    let begin = Instant::now();
    let said = developer.run("top first").await?;
    let took = begin.elapsed();
    ensure!(took < Duration::from_secs(15), "{took:?}");
    for part in [
        "does not reach the operator's port results",
        "TCP port 8080",
        "Role phpprof-operator-port-forward",
    ] {
        ensure!(
            said.code == 7 && said.err.contains(part),
            "{part}: {said:?}"
        );
    }
    Ok(())
}

/// On a release that stores on a volume.
mod on_volume {
    use super::*;

    /// `../shared/cases/c-07`: the relay's name is unknown in each of these pods.
    #[test]
    fn a_pod_without_cluster_dns_stores_its_profile() -> Result<()> {
        shared_on(ON_VOLUME, async |fixture| {
            let domains =
                |number| format!("{number}.europe-west.internal.a-long-subsidiary.example.org");
            let searches: Vec<String> = (0..5).map(domains).collect();
            let rows = [
                (
                    "own-dns",
                    json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"]}}),
                ),
                ("node-dns", json!({"dnsPolicy": "Default"})),
                ("long-search", json!({"dnsConfig": {"searches": searches}})),
                // Its port of php-fpm is the node's.
                ("hostnet", json!({"hostNetwork": true})),
            ];
            let all: Vec<Value> = rows
                .iter()
                .map(|(name, spec)| php_with(name, spec))
                .collect();
            fixture.start(&all).await?;
            let administrator = fixture.administrator()?;
            for (name, _) in rows {
                let doctor = administrator
                    .run(&format!("doctor pod/{name} -o json"))
                    .await?;
                let checks: Value = serde_json::from_str(&doctor.out)?;
                let mut rows = checks["checks"].as_array().into_iter().flatten();
                let names = rows.find(|check| check["check"] == "names");
                ensure!(
                    names.is_some_and(|check| check["verdict"] == "unknown"),
                    "{name}: {checks}"
                );
                let spec = json!({"target": {"podName": name}, "durationSeconds": 3});
                let request = fixture.apply(spec).await?;
                let request = fixture.ended(&request).await?;
                holds(&request, condition::COMPLETE).with_context(|| name.to_owned())?;
                let target = only_target(&request)?;
                ensure!(
                    target.upload_mode == Some(UploadRoute::Relay),
                    "{name}: {target:?}"
                );
            }
            Ok(())
        })
    }

    /// With both families, each of the two addresses is enough, with and without the name.
    #[test]
    fn each_relay_address_alone_stores_a_profile() -> Result<()> {
        shared_on(ON_VOLUME, async |fixture| {
            let addresses = relay_addresses().await?;
            let all: BTreeSet<&str> = addresses.split_whitespace().collect();
            for (number, address) in all.iter().enumerate() {
                for (policy, named) in [("ClusterFirst", "named"), ("Default", "unnamed")] {
                    let name = format!("{named}-{number}");
                    let mut pod = php_with(&name, &json!({"dnsPolicy": policy}));
                    let others: Vec<&str> =
                        all.iter().copied().filter(|it| it != address).collect();
                    if !others.is_empty() {
                        pod = pods::cut_off_from(pod, &others.join(" "));
                    }
                    fixture.start(&[pod]).await?;
                    let spec = json!({"target": {"podName": name}, "durationSeconds": 1});
                    let target = only_target(&fixture.completed(spec).await?)?;
                    ensure!(target.upload_mode == Some(UploadRoute::Relay), "{target:?}");
                    let sampler = fixture.sampler(&target).await?;
                    let given = sampler.variable("PHPPROF_RELAY_ADDRESSES");
                    let given: BTreeSet<&str> = given.unwrap_or_default().split(',').collect();
                    ensure!(given == all, "{given:?} instead of {all:?}");
                }
            }
            say(&format!("over {addresses}"));
            Ok(())
        })
    }

    #[test]
    fn an_unreachable_relay_is_reported_after_30_seconds() -> Result<()> {
        shared_on(ON_VOLUME, async |fixture| {
            // Names do not work, and neither do the Service's addresses.
            let addresses = relay_addresses().await?;
            let pod = php_with("web", &json!({"dnsPolicy": "Default"}));
            fixture
                .start(&[pods::cut_off_from(pod, &addresses)])
                .await?;
            let spec = json!({"target": {"podName": "web"}, "durationSeconds": 60});
            let request = fixture.sampled(spec).await?;
            let begin = Instant::now();
            let requests: Api<ProfileRequest> = fixture.api();
            let name = request.metadata.name.clone().unwrap_or_default();
            let told = poll("the silence is told", Duration::from_secs(50), async || {
                let target = only_target(&requests.get(&name).await?)?;
                Ok((target.reason == Some(TargetReason::NotHeardFrom)).then_some(target))
            });
            let target = told.await?;
            ensure!(begin.elapsed() > Duration::from_secs(20), "too early");
            ensure!(
                target.message.contains("dnsPolicy is Default"),
                "{target:?}"
            );
            let logs = fixture
                .administrator()?
                .run(&format!("logs {name}"))
                .await?;
            ensure!(
                logs.out.contains("phpprof-operator.phpprof-system.svc"),
                "{logs:?}"
            );
            Ok(())
        })
    }
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    /// `../shared/cases/c-08`.
    #[test]
    fn results_come_by_port_forward_without_proxy() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            let administrator = fixture.administrator()?;
            let ran = administrator
                .run("run pod/web -c fpm -d 2s --name first")
                .await?;
            ran.well()?;
            let developer = fixture.developer().await?;
            let operator = release::operator(&fixture.client).await?;
            cut::results(&operator.context("no operator")?).await?;
            let checked = check_ways(&administrator, &developer).await;
            cut::end().await?;
            checked
        })
    }
}
