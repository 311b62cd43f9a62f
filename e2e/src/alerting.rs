//! Prometheus and Alertmanager: Debian's programs as processes of this machine, with rules that
//! fire at once. `tools/build prometheus alertmanager` gets them.
//!
//! Invariant: both end with their test, and reach nothing but each other and the operator.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

use crate::toy::control_plane::{free_port, start};
use crate::{Fixture, examples, toy};

/// Both programs while they run.
pub struct AlertPrograms {
    /// The address of Alertmanager.
    pub alertmanager: String,
    _folder: TempDir,
    _programs: [Child; 2],
}

impl AlertPrograms {
    /// Starts both. Each of `labels` is an alert `PhpRequestsSlow` that fires from the first
    /// evaluation on. Alertmanager sends its alerts to `url` with this token.
    pub async fn start(
        fixture: &Fixture,
        url: &str,
        token: &str,
        labels: &[Value],
    ) -> Result<Self> {
        let logs = toy::logs().context("only a cluster without containers has these programs")?;
        let folder = tempfile::tempdir()?;
        let alertmanager = format!("127.0.0.1:{}", free_port()?);
        let prometheus = format!("127.0.0.1:{}", free_port()?);
        let write = |name: &str, content: &Value| -> Result<String> {
            let file = folder.path().join(name);
            std::fs::write(&file, serde_yaml::to_string(content)?)?;
            Ok(file.display().to_string())
        };
        let secret = folder.path().join("token");
        std::fs::write(&secret, token)?;
        let receiver = write("alertmanager.yml", &receiver(url, &secret)?)?;
        let rules = write("rules.yml", &rules(labels))?;
        let config = write("prometheus.yml", &config(&alertmanager, &rules))?;
        let place = |name: &str| folder.path().join(name).display().to_string();
        let begin = |program: &str, arguments: &[String]| -> Result<Child> {
            let log = logs.join(format!("{program}-{}.log", fixture.namespace));
            start(Path::new(program), &log, arguments, &[])
        };
        let first = begin(
            "alertmanager",
            &[
                format!("--config.file={receiver}"),
                format!("--storage.path={}", place("alertmanager")),
                format!("--web.listen-address={alertmanager}"),
                // One that knows no others.
                "--cluster.listen-address=".to_owned(),
            ],
        )?;
        let second = begin(
            "prometheus",
            &[
                format!("--config.file={config}"),
                format!("--storage.tsdb.path={}", place("prometheus")),
                format!("--web.listen-address={prometheus}"),
                // It drops what fires before it knows of Alertmanager, in its first five seconds.
                "--rules.alert.resend-delay=2s".to_owned(),
            ],
        )?;
        Ok(Self {
            alertmanager,
            _folder: folder,
            _programs: [first, second],
        })
    }

    /// The value of a metric of Alertmanager, with its labels; 0 if there is none.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let url = format!("http://{}/metrics", self.alertmanager);
        let text = match reqwest::get(url).await {
            Ok(answer) => answer.text().await?,
            // It starts.
            Err(_) => return Ok(0.0),
        };
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
        Ok(values
            .next()
            .and_then(|it| it.trim().parse().ok())
            .unwrap_or_default())
    }
}

/// The example, with this address and token, and quicker.
fn receiver(url: &str, token: &Path) -> Result<Value> {
    let mut files = examples::files("alerts")?.into_iter();
    let file = files.find(|it| it.ends_with("alertmanager.yaml"));
    let file = file.context("no alertmanager.yaml among the examples")?;
    let mut receiver: Value = serde_yaml::from_str(&std::fs::read_to_string(file)?)?;
    let route = receiver
        .pointer_mut("/route/routes/0")
        .context("no route")?;
    ensure!(route["group_wait"] == "1s", "the example waits for longer");
    route["matchers"] = json!(["alertname=\"PhpRequestsSlow\""]);
    route["group_interval"] = json!("1s");
    route["repeat_interval"] = json!("2s");
    let webhook = receiver.pointer_mut("/receivers/1/webhook_configs/0");
    let webhook = webhook.context("no webhook")?;
    webhook["url"] = json!(url);
    // All thousand of them.
    webhook["max_alerts"] = json!(0);
    webhook["http_config"]["authorization"]["credentials_file"] = json!(token);
    Ok(receiver)
}

fn config(alertmanager: &str, rules: &str) -> Value {
    json!({
        "global": {"evaluation_interval": "1s"},
        "rule_files": [rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    })
}

fn rules(labels: &[Value]) -> Value {
    let rule = |labels: &Value| {
        json!({
            "alert": "PhpRequestsSlow", "expr": "vector(1)", "labels": labels,
            "annotations": {"summary": "requests of web take long"},
        })
    };
    let rules: Vec<_> = labels.iter().map(rule).collect();
    json!({"groups": [{"name": "php", "rules": rules}]})
}
