//! What the chart refuses before anything is installed, in helm's words. No cluster is needed, only helm.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// One schedule that is accepted; each case changes one value of it.
const SCHEDULE: [&str; 4] = [
    "schedules[0].name=web",
    "schedules[0].namespace=shop",
    "schedules[0].schedule=*/10 * * * *",
    "schedules[0].request.target.workloadRef.name=web",
];

fn template(values: &[&str]) -> Result<(bool, String)> {
    let chart = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/phpprof");
    let mut helm = Command::new("helm");
    helm.args(["template", "phpprof"])
        .arg(chart)
        .arg("--kube-version=1.34.0");
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

/// Helm's answer to the schedule with these values beside: refused, in these words.
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
fn a_schedule_that_could_never_make_a_request_is_refused_by_its_name() -> Result<()> {
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
        "schedules: web is there twice",
    )?;
    check(&["schedules[0].name=Web"], "/schedules/0/name")?;
    check(&["schedules[0].every=5m"], "'every' not allowed")?;
    check(
        &["schedules[0].concurrencyPolicy=Never"],
        "'Allow', 'Forbid', 'Replace'",
    )
}

#[test]
fn a_request_that_the_api_server_would_refuse_is_refused_before() -> Result<()> {
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
        "request.durationSeconds is 301, and must be from 1 to 300, the chart's limits.durationSeconds",
    )?;
    check(
        &["schedules[0].request.samplesPerSecond=0"],
        "request.samplesPerSecond is 0, and must be from 1 to 1000",
    )?;
    check(
        &["schedules[0].request.durationSeconds=30s"],
        "request.durationSeconds must be a whole number",
    )?;
    check(
        &["schedules[0].request.uploadMode=Mail"],
        "request.uploadMode must be one of Auto, Direct, Relay",
    )
}

#[test]
fn settings_of_pyroscope_and_grafana_that_would_do_nothing_are_refused() -> Result<()> {
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
fn the_samplers_budget_is_a_share_of_up_to_four_cores() -> Result<()> {
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
fn more_than_one_replica_needs_a_store_that_they_share() -> Result<()> {
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
    ])?;
    ensure!(accepted, "{text}");
    for line in [
        "--pyroscope-url=http://pyroscope:4040",
        "--pyroscope-label=cluster=prod",
        "--grafana-datasource=p",
        r#"secretKeyRef: {name: "of-pyroscope", key: token, optional: true}"#,
        r#"secretKeyRef: {name: "of-grafana", key: token}"#,
    ] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    let (_, without) = template(&[])?;
    ensure!(!without.contains("pyroscope") && !without.contains("grafana"));
    Ok(())
}

#[test]
fn what_was_left_out_of_a_schedule_has_sensible_values() -> Result<()> {
    let more = [
        "schedules[0].request.target.workloadRef.kind=Deployment",
        "schedules[0].request.target.workloadRef.apiVersion=apps/v1",
    ];
    let (accepted, text) = template(&[&SCHEDULE, &more[..]].concat())?;
    ensure!(accepted, "{text}");
    for line in [
        "generateName: web-",
        "phpprof.dev/schedule: web",
        "ttlSecondsAfterFinished: 86400",
        "concurrencyPolicy: Forbid",
        "successfulJobsHistoryLimit: 1",
        "automountServiceAccountToken: false",
        "verbs: [create, profile]",
    ] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    let zero = ["schedules[0].request.ttlSecondsAfterFinished=0"];
    let (_, text) = template(&[&SCHEDULE, &more[..], &zero].concat())?;
    ensure!(text.contains("ttlSecondsAfterFinished: 0"), "{text}");
    let (_, without) = template(&[])?;
    ensure!(!without.contains("CronJob") && !without.contains("-schedules"));
    Ok(())
}
