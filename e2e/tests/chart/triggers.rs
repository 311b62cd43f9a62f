//! What the chart renders for alerts, which are off by default.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::template;

#[test]
fn alerts_bring_their_rights_only_when_on() -> Result<()> {
    let policy = [
        "networkPolicy.enabled=true",
        "networkPolicy.apiServerCIDRs[0]=10.0.0.1/32",
        "networkPolicy.alertmanagers[0].podSelector.matchLabels.app=alertmanager",
    ];
    let lines = [
        "--alert-tokens=/etc/phpprof-alerts",
        "secretName: \"of-alerts\"",
        "resources: [profiletriggers]\n    verbs: [get, list]",
        "resources: [profiletriggers/status]\n    verbs: [patch]",
        "app: alertmanager",
    ];
    let on = [&policy[..], &["alerts.tokensSecret=of-alerts"]].concat();
    for (values, is_on) in [(&policy[..], false), (&on[..], true)] {
        let (accepted, text) = template(values)?;
        ensure!(accepted, "{text}");
        for line in lines {
            ensure!(text.contains(line) == is_on, "{line}: {is_on}, in {text}");
        }
    }
    Ok(())
}

#[test]
fn prometheus_takes_the_examples_rules() -> Result<()> {
    let root = env!("CARGO_MANIFEST_DIR");
    let output = Command::new("promtool")
        .args(["check", "rules"])
        .arg(format!("{root}/../examples/alerts/rules.yaml"))
        .output()
        .context("starting promtool; make e2e installs it")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said.contains("1 rules found"),
        "{said}"
    );
    Ok(())
}
