//! Tests the chart's alerts, as it renders them, against series that fire each of them and series
//! that do not (alerts.yaml).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::template;

const TESTS: &str = include_str!("alerts.yaml");

/// The groups of the rendered PrometheusRule, as a Prometheus reads them from a file.
fn rendered() -> Result<String> {
    let (accepted, text) = template(&["metrics.rules.enabled=true"])?;
    ensure!(accepted, "{text}");
    let mut resources = text.split("\n---\n");
    let rule = resources.find(|it| it.contains("kind: PrometheusRule"));
    let spec = rule.and_then(|it| it.split_once("\nspec:")?.1.strip_prefix('\n'));
    let lines = spec.context("no spec")?.lines();
    let lines = lines.map(|line| line.strip_prefix("  ").unwrap_or(line));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Whether a test expects its alert to fire, by the test's name.
fn expected(name: &str) -> Result<bool> {
    let mut tests = TESTS.split("  - name: ");
    let test = tests.find(|it| it.lines().next() == Some(name));
    let test = test.with_context(|| format!("alerts.yaml has no test {name:?}"))?;
    Ok(test.contains("exp_samples: [{") && test.contains("alertname="))
}

#[test]
fn each_alert_fires_on_its_cause_only() -> Result<()> {
    let rules = rendered()?;
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    ensure!(alerts.len() >= 9, "{rules}");
    for alert in alerts {
        ensure!(expected(&format!("{alert} fires"))?, "{alert}");
        ensure!(!expected(&format!("{alert} does not fire"))?, "{alert}");
    }
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("rules.yaml"), rules)?;
    std::fs::write(folder.path().join("alerts.yaml"), TESTS)?;
    let (passed, said) = promtool(folder.path())?;
    ensure!(passed, "{said}");
    Ok(())
}

fn promtool(folder: &Path) -> Result<(bool, String)> {
    let output = Command::new("promtool")
        .args(["test", "rules", "alerts.yaml"])
        .current_dir(folder)
        .output()
        .context("starting promtool; make e2e installs it")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok((output.status.success(), said))
}
