//! Values that the chart refuses before anything is installed, and helm's message. These tests need
//! helm, but no cluster.

mod alerts;
mod dashboards;
mod documents;
mod helm_test;
mod notes;
mod presets;
mod schedules;
mod triggers;
mod upgrade;
mod verdicts;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::release;

/// A schedule that is accepted. Each case changes one value of it.
const SCHEDULE: [&str; 4] = [
    "schedules[0].name=web",
    "schedules[0].namespace=shop",
    "schedules[0].schedule=*/10 * * * *",
    "schedules[0].request.target.workloadRef.name=web",
];

fn template(values: &[&str]) -> Result<(bool, String)> {
    template_of(&release::chart(), values)
}

/// Whether helm accepts these values for a chart, and its output.
fn template_of(chart: &str, values: &[&str]) -> Result<(bool, String)> {
    let mut helm = Command::new("helm");
    helm.args(["template", "phpprof", chart])
        .args(["--namespace", release::NAMESPACE])
        .arg(release::KUBE_VERSION);
    for value in values {
        helm.arg("--set").arg(value);
    }
    let output = helm
        .output()
        .context("starting helm; make e2e installs it")?;
    let said = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// Checks that helm refuses the schedule with these values, with this message.
fn check(values: &[&str], message: &str) -> Result<()> {
    let more = [
        "schedules[0].request.target.workloadRef.kind=Deployment",
        "schedules[0].request.target.workloadRef.apiVersion=apps/v1",
    ];
    let (accepted, said) = template(&[&SCHEDULE, &more[..], values].concat())?;
    ensure!(!accepted, "{values:?} was not refused");
    ensure!(said.contains(message), "{values:?}: {said}");
    Ok(())
}

#[test]
fn an_impossible_schedule_is_refused_by_name() -> Result<()> {
    check(
        &["schedules[0].schedule=* * * *"],
        r#"schedules: web: schedule "* * * *" must have the five fields of cron"#,
    )?;
    check(
        &["schedules[0].schedule=TZ=UTC * * * * *"],
        "the time zone goes into timeZone",
    )?;
    check(
        &["schedules[0].name=a-name-that-is-too-long-for-the-name-of-a-cronjob"],
        "a CronJob's name has at most 52 characters",
    )?;
    check(
        &[
            "schedules[1].name=web",
            "schedules[1].namespace=shop",
            "schedules[1].schedule=@daily",
            "schedules[1].request.target.podName=web",
        ],
        "schedules: web: two schedules have this name",
    )?;
    check(&["schedules[0].name=Web"], "/schedules/0/name")?;
    check(&["schedules[0].every=5m"], "'every' not allowed")?;
    check(
        &["schedules[0].concurrencyPolicy=Never"],
        "'Allow', 'Forbid', 'Replace'",
    )
}

#[test]
fn an_invalid_request_is_refused_by_the_chart() -> Result<()> {
    check(
        &["schedules[0].request.target.podName=web"],
        "request.target needs exactly one of podName, selector and workloadRef",
    )?;
    check(
        &["schedules[0].request.target.pod=web"],
        "request.target has no field pod; it may have containerName, ",
    )?;
    check(
        &["schedules[0].request.target.workloadRef.kind=null"],
        "request.target.workloadRef.kind must be a string",
    )?;
    check(
        &[
            "schedules[1].name=api",
            "schedules[1].namespace=shop",
            "schedules[1].schedule=@daily",
            "schedules[1].request.target.workloadRef.name=api",
        ],
        "schedules: api: request.target.workloadRef needs the field apiVersion",
    )?;
    check(
        &["schedules[0].request.durationSeconds=301"],
        "request.durationSeconds is 301, but must be from 1 to 300, the chart's limits.durationSeconds",
    )?;
    check(
        &["schedules[0].request.samplesPerSecond=0"],
        "request.samplesPerSecond is 0, but must be from 1 to 1000",
    )?;
    // Left out, a field has the default of the CRD.
    for (limit, message) in [
        (
            "limits.durationSeconds=20",
            "request.durationSeconds is 30, but must be from 1 to 20",
        ),
        (
            "limits.samplesPerSecond=50",
            "request.samplesPerSecond is 99, but must be from 1 to 50",
        ),
    ] {
        check(&[limit], message)?;
    }
    check(
        &["schedules[0].request.durationSeconds=30s"],
        "request.durationSeconds must be a whole number",
    )?;
    check(
        &["schedules[0].request.mode=Heap"],
        "the account of schedules has no right to look into heaps",
    )?;
    check(
        &["schedules[0].request.uploadMode=Mail"],
        "request.uploadMode must be one of Auto, Direct, Relay",
    )
}

#[test]
fn useless_pyroscope_and_grafana_settings_are_refused() -> Result<()> {
    check(
        &["pyroscope.tenant=shop"],
        "pyroscope: tenant, credentialsSecret, labels and requestLabel need pyroscope.url",
    )?;
    check(&["pyroscope.url=pyroscope:4040"], "/pyroscope/url")?;
    let url = "pyroscope.url=http://pyroscope:4040";
    check(
        &[url, "pyroscope.labels.my-cluster=prod"],
        "'my-cluster' not allowed",
    )?;
    check(
        &[url, "pyroscope.labels.pod=x"],
        "labels.pod: every series has this label already",
    )?;
    check(
        &["grafana.annotations.tokenSecret=grafana"],
        "grafana: pyroscopeDatasource and annotations need grafana.url",
    )?;
    check(
        &[
            "grafana.url=http://grafana",
            "grafana.pyroscopeDatasource=p",
        ],
        "grafana: pyroscopeDatasource needs pyroscope.url",
    )
}

#[test]
fn useless_otlp_settings_are_refused() -> Result<()> {
    check(
        &["export.otlp.headersSecret=of-otlp"],
        "export.otlp: headersSecret and resourceAttributes need export.otlp.endpoint",
    )?;
    check(
        &["export.otlp.endpoint=collector:4317"],
        "/export/otlp/endpoint",
    )?;
    let endpoint = "export.otlp.endpoint=http://collector:4317";
    check(
        &[endpoint, "export.otlp.protocol=http/json"],
        "/export/otlp/protocol",
    )?;
    check(
        &[
            "export.otlp.endpoint=http://collector/otlp",
            "export.otlp.protocol=grpc",
        ],
        "export.otlp: with protocol grpc, endpoint must not have a path",
    )?;
    check(
        &[
            endpoint,
            "export.otlp.resourceAttributes.service\\.name=web",
        ],
        "every resource has the attribute service.name already",
    )
}

#[test]
fn names_of_routes_are_globs_of_paths() -> Result<()> {
    for (value, place) in [
        ("routes[0].path=shop,routes[0].name=shop", "/routes/0/path"),
        (
            "routes[0].path=/shop?x,routes[0].name=shop",
            "/routes/0/path",
        ),
        ("routes[0].path=/shop,routes[0].name=", "/routes/0/name"),
        ("routes[0].path=/shop", "/routes/0"),
    ] {
        check(&[value], place)?;
    }
    let value = "routes[0].path=/shop/*/cart,routes[0].name=/shop/{id}/cart";
    let (accepted, text) = template(&[&value.replace("{id}", "id")])?;
    ensure!(
        accepted && text.contains("\"--route=/shop/*/cart=/shop/id/cart\""),
        "{text}"
    );
    Ok(())
}

#[test]
fn the_samplers_budget_counts_four_cores() -> Result<()> {
    for percent in ["0", "401", "half"] {
        let value = format!("limits.samplerCPUPercent={percent}");
        check(&[&value], "/limits/samplerCPUPercent")?;
    }
    for (value, argument) in [
        ("limits.pods=10", "--sampler-cpu-percent=25"),
        ("limits.samplerCPUPercent=50", "--sampler-cpu-percent=50"),
    ] {
        let (accepted, text) = template(&[value])?;
        ensure!(accepted && text.contains(argument), "{value}: {text}");
    }
    Ok(())
}

#[test]
fn several_replicas_need_a_shared_store() -> Result<()> {
    check(&["replicas=2"], "/store/volume/accessMode")?;
    let shared: [&[&str]; 2] = [
        &["store.url=s3://bucket"],
        &["store.volume.accessMode=ReadWriteMany"],
    ];
    for store in shared {
        let (accepted, text) = template(&[&["replicas=2"], store].concat())?;
        ensure!(accepted, "{store:?}: {text}");
        for line in ["replicas: 2", "RollingUpdate", "PodDisruptionBudget"] {
            ensure!(text.contains(line), "{store:?}: {line} is not in {text}");
        }
    }
    let (_, one) = template(&[])?;
    ensure!(one.contains("type: Recreate") && !one.contains("PodDisruptionBudget"));
    Ok(())
}

#[test]
fn a_network_policy_needs_the_api_servers_addresses() -> Result<()> {
    check(
        &["networkPolicy.enabled=true"],
        "/networkPolicy/apiServerCIDRs",
    )?;
    let (accepted, text) = template(&[
        "networkPolicy.enabled=true",
        "networkPolicy.apiServerCIDRs[0]=10.0.0.1/32",
        "networkPolicy.egress[0].ports[0].port=443",
    ])?;
    ensure!(accepted, "{text}");
    for line in [r#"ipBlock: {cidr: "10.0.0.1/32"}"#, "- port: 443"] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    Ok(())
}

#[test]
fn a_secret_reaches_the_operator_by_reference_only() -> Result<()> {
    let (accepted, text) = template(&[
        "pyroscope.url=http://pyroscope:4040",
        "pyroscope.credentialsSecret=of-pyroscope",
        "pyroscope.labels.cluster=prod",
        "grafana.url=https://grafana.example.org",
        "grafana.pyroscopeDatasource=p",
        "grafana.annotations.tokenSecret=of-grafana",
        "export.otlp.endpoint=https://collector:4317",
        "export.otlp.protocol=grpc",
        "export.otlp.headersSecret=of-otlp",
        "export.otlp.resourceAttributes.k8s\\.cluster\\.name=prod",
    ])?;
    ensure!(accepted, "{text}");
    for line in [
        "--otlp-endpoint=https://collector:4317",
        "--otlp-protocol=grpc",
        "--otlp-attribute=k8s.cluster.name=prod",
        r#"secretKeyRef: {name: "of-otlp", key: headers}"#,
        "--pyroscope-url=http://pyroscope:4040",
        "--pyroscope-label=cluster=prod",
        "--grafana-datasource=p",
        r#"secretKeyRef: {name: "of-pyroscope", key: token, optional: true}"#,
        r#"secretKeyRef: {name: "of-grafana", key: token}"#,
    ] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    let (_, without) = template(&[])?;
    let services = ["pyroscope", "grafana", "otlp"];
    ensure!(services.iter().all(|name| !without.contains(name)));
    Ok(())
}

#[test]
fn an_image_has_a_version_tag_or_digest() -> Result<()> {
    let digest = format!("sha256:{}", "0".repeat(64));
    let by_digest = format!("images.operator.digest={digest}");
    let version = env!("CARGO_PKG_VERSION");
    for (values, name) in [
        (vec![], format!("phpprof.dev/operator:{version}")),
        (
            vec!["images.operator.repository=r.example.org:5000/operator"],
            format!("r.example.org:5000/operator:{version}"),
        ),
        (
            vec!["images.operator.tag=nightly"],
            "phpprof.dev/operator:nightly".to_owned(),
        ),
        (vec![&by_digest], format!("phpprof.dev/operator@{digest}")),
        (
            vec![&by_digest, "images.operator.tag=nightly"],
            format!("phpprof.dev/operator:nightly@{digest}"),
        ),
        // The value of older releases.
        (
            vec!["images.operator=r.example.org/operator:dev"],
            "r.example.org/operator:dev".to_owned(),
        ),
    ] {
        let (accepted, text) = template(&values)?;
        let line = format!("image: \"{name}\"\n");
        ensure!(accepted && text.contains(&line), "{values:?}: {text}");
    }
    let value = format!("images.sampler.digest={digest}");
    let (_, text) = template(&[&value])?;
    for line in [
        format!("--sampler-image=phpprof.dev/phpprof@{digest}\n"),
        format!("the operator may run only phpprof.dev/phpprof@{digest}"),
    ] {
        ensure!(text.contains(&line), "{line} is not in {text}");
    }
    check(&["images.sampler.digest=0123"], "/images/sampler/digest")?;
    check(&["images.sampler.name=x"], "'name' not allowed")
}

#[test]
fn cluster_wide_pod_settings_reach_the_operator() -> Result<()> {
    let (accepted, text) = template(&[
        "podLabels.azure\\.workload\\.identity/use=yes-please",
        "podAnnotations.example\\.org/scrape=x",
        "extraEnv[0].name=HTTPS_PROXY",
        "extraEnv[0].value=http://proxy:3128",
        "extraVolumes[0].name=scratch",
        "extraVolumes[0].emptyDir.medium=Memory",
        "extraVolumeMounts[0].name=scratch",
        "extraVolumeMounts[0].mountPath=/scratch",
        "store.url=az://profiles",
        "store.azureAccount=shopprofiles",
    ])?;
    ensure!(accepted, "{text}");
    for line in [
        "azure.workload.identity/use: yes-please",
        "example.org/scrape: x",
        "name: HTTPS_PROXY",
        "mountPath: /scratch",
        "medium: Memory",
        "value: \"shopprofiles\"",
    ] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    check(
        &["store.azureAccount=shopprofiles"],
        "store: azureAccount needs a store.url that begins with az://",
    )
}

#[test]
fn an_endpoint_that_is_not_encrypted_needs_consent() -> Result<()> {
    let url = ["store.url=s3://bucket", "store.endpoint=http://minio:9000"];
    check(
        &url,
        "store: endpoint http://minio:9000 is not encrypted; use https://, or set store.allowInsecure=true",
    )?;
    check(
        &["store.allowInsecure=true"],
        "store: allowInsecure needs an endpoint that begins with http://",
    )?;
    let (accepted, text) = template(&[&url[..], &["store.allowInsecure=true"]].concat())?;
    ensure!(
        accepted && text.contains("--store-allow-insecure"),
        "{text}"
    );
    Ok(())
}

#[test]
fn a_new_release_asks_consent_for_overwriting() -> Result<()> {
    let allows = |values: &[&str], expected: &str| {
        let (accepted, text) = template(values)?;
        let flag = format!("--store-allow-overwrite={expected}\n");
        ensure!(accepted && text.contains(&flag), "{values:?}: {text}");
        Ok(())
    };
    allows(&[], "false")?;
    allows(&["store.allowOverwrite=true"], "true")?;
    allows(&["store.allowOverwrite=false"], "false")
}

#[test]
fn s3_encryption_and_checksum_reach_the_operator() -> Result<()> {
    let key = "store.encryption.kmsKey=arn:aws:kms:eu-west-1:123456789012:key/1";
    let values = [
        "store.url=s3://bucket",
        "store.encryption.algorithm=aws:kms",
    ];
    let (accepted, text) = template(
        &[
            &values[..],
            &[key, "store.checksum=SHA256", "store.directChecksum=MD5"],
        ]
        .concat(),
    )?;
    ensure!(accepted, "{text}");
    for flag in [
        "--store-encryption=aws:kms\n",
        "\"--store-kms-key=arn:aws:kms:eu-west-1:123456789012:key/1\"",
        "--store-checksum=SHA256\n",
        "--store-direct-checksum=MD5\n",
    ] {
        ensure!(text.contains(flag), "{flag} is not in {text}");
    }
    check(
        &values[1..],
        "store: encryption, checksum and directChecksum need a store.url",
    )?;
    check(
        &["store.checksum=SHA256"],
        "store: encryption, checksum and directChecksum need a store.url",
    )?;
    check(
        &["store.directChecksum=MD5"],
        "store: encryption, checksum and directChecksum need a store.url",
    )?;
    check(
        &["store.url=s3://bucket", "store.directChecksum=SHA256"],
        "directChecksum",
    )?;
    check(
        &["store.url=s3://bucket", key],
        "store: encryption.kmsKey needs encryption.algorithm",
    )?;
    check(&["store.encryption.algorithm=rot13"], "algorithm")
}

#[test]
fn the_chart_has_the_version_of_the_programs() -> Result<()> {
    let chart = std::fs::read_to_string(format!("{}/Chart.yaml", release::chart()))?;
    for field in ["version", "appVersion"] {
        let line = format!("\n{field}: {}\n", env!("CARGO_PKG_VERSION"));
        ensure!(chart.contains(&line), "{field} in {chart}");
    }
    Ok(())
}
