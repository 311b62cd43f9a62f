//! Prometheus finds the operator's metrics: each query of the chart's dashboards returns data, and
//! each alert is evaluated.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{ENABLED, Fixture, pods, poll, release, run, shared};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const READY: Duration = Duration::from_secs(30);

fn chart() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/phpprof")
}

/// A child process that ends with the test.
fn child(program: &str, arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped());
    let command = command.stderr(Stdio::null()).kill_on_drop(true);
    command
        .spawn()
        .with_context(|| format!("starting {program}"))
}

/// Access to the API server without credentials, for as long as the child lives.
async fn api_proxy() -> Result<(Child, String)> {
    let mut proxy = child("kubectl", &["proxy", "--port=0"])?;
    let out = proxy.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).await?;
    let address = line.trim().rsplit(' ').next().context("no address")?;
    Ok((proxy, address.to_owned()))
}

/// A Prometheus that scrapes the operator each second, with the chart's alerts.
struct Prometheus {
    address: String,
    folder: PathBuf,
    _children: [Child; 2],
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Prometheus {
    async fn start(fixture: &Fixture) -> Result<Self> {
        let operator = release::operator(&fixture.client).await?;
        let pod = operator.context("no operator")?.name_any();
        let (proxy, api) = api_proxy().await?;
        let folder = std::env::temp_dir().join(format!("phpprof-prometheus-{}", fixture.namespace));
        std::fs::create_dir_all(&folder)?;
        // JSON is valid YAML.
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [chart().join("files/rules.yaml")],
            "scrape_configs": [{
                "job_name": "phpprof-system/phpprof-operator",
                "metrics_path": format!("/api/v1/namespaces/{}/pods/{pod}:8081/proxy/metrics", release::NAMESPACE),
                "static_configs": [{"targets": [api]}],
            }],
        });
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config.to_string())?;
        let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let server = child("prometheus", &arguments.each_ref().map(String::as_str))?;
        Ok(Prometheus {
            address,
            folder,
            _children: [proxy, server],
        })
    }

    /// The data of an answer of Prometheus's API.
    async fn get(&self, path: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let body = answer.split_once("\r\n\r\n").context("no body")?.1;
        let answer: Value = serde_json::from_str(body).with_context(|| body.to_owned())?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.get(&format!("/api/v1/query?query={encoded}")).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }
}

/// All queries of the dashboards, by the titles of their panels.
async fn queries() -> Result<Vec<(String, String)>> {
    let chart = chart();
    let chart = chart.to_str().context("a path of UTF-8")?;
    let dashboards = [
        "--set=metrics.dashboards.enabled=true",
        "--show-only=templates/metrics.yaml",
    ];
    let arguments = [
        &["template", "phpprof", chart, release::KUBE_VERSION],
        &dashboards[..],
    ];
    let yaml = String::from_utf8(run("helm", &arguments.concat(), &[]).await?)?;
    let mut queries = Vec::new();
    for line in yaml.lines() {
        let Some((_, text)) = line.split_once(".json: ") else {
            continue;
        };
        let text: String = serde_json::from_str(text)?;
        let dashboard: Value = serde_json::from_str(&text)?;
        for panel in dashboard["panels"].as_array().context("no panels")? {
            let title = panel["title"].as_str().unwrap_or_default();
            for target in panel["targets"].as_array().context("no queries")? {
                let query = target["expr"].as_str().context("no query")?;
                queries.push((title.to_owned(), query.to_owned()));
            }
        }
    }
    Ok(queries)
}

/// The metrics in a query.
fn names(query: &str) -> BTreeSet<&str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = query.split(|letter| !is_of_name(letter));
    words
        .filter(|word| word.starts_with("phpprof_") || word.starts_with("process_"))
        .collect()
}

#[test]
fn prometheus_fills_every_panel_and_judges_alerts() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let prometheus = Prometheus::start(fixture).await?;
        poll("the operator was scraped", READY, async || {
            let up = prometheus.query("up").await.unwrap_or_default();
            Ok(up.iter().any(|it| it["value"][1] == "1").then_some(()))
        })
        .await?;
        fixture.start(&[pods::php("web")]).await?;
        let before = counted(&prometheus).await?;
        fixture
            .completed(json!({"target": {"podName": "web"}, "durationSeconds": 1}))
            .await?;
        poll("the request was counted", READY, async || {
            Ok((counted(&prometheus).await? > before).then_some(()))
        })
        .await?;
        let all = queries().await?;
        ensure!(all.len() >= 15, "{all:?}");
        for (title, query) in &all {
            let data = prometheus.query(query).await?;
            ensure!(!data.is_empty(), "{title} has no data: {query}");
        }
        check_alerts(&prometheus).await
    })
}

async fn counted(prometheus: &Prometheus) -> Result<f64> {
    let ended = prometheus
        .query("sum(phpprof_requests_total{reason=\"Complete\"})")
        .await?;
    let value = ended.first().and_then(|it| it["value"][1].as_str());
    Ok(value.unwrap_or("0").parse()?)
}

/// Checks that each alert is evaluated without an error, over metrics that exist.
async fn check_alerts(prometheus: &Prometheus) -> Result<()> {
    let known = prometheus.get("/api/v1/label/__name__/values").await?;
    let known: BTreeSet<String> = serde_json::from_value(known)?;
    let groups = poll("the alerts were judged", READY, async || {
        let rules = prometheus.get("/api/v1/rules").await?;
        let text = rules.to_string();
        Ok((!text.contains("\"health\":\"unknown\"")).then_some(rules))
    })
    .await?;
    let rules = groups["groups"][0]["rules"]
        .as_array()
        .context("no rules")?;
    ensure!(rules.len() >= 6, "{rules:?}");
    for rule in rules {
        ensure!(rule["health"] == "ok", "{rule}");
        let query = rule["query"].as_str().context("no query")?;
        let missing: Vec<_> = names(query)
            .into_iter()
            .filter(|name| !known.contains(*name))
            .collect();
        ensure!(missing.is_empty(), "{missing:?} of {query}");
    }
    Ok(())
}
