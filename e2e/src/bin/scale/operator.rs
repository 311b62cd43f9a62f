//! The operator, as the chart starts it: its processes, their memory and CPU time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{poll, run};
use tokio::process::Child;

use e2e::toy::control_plane::{ControlPlane, free_port, start};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

const NAMESPACE: &str = "phpprof-system";
const NAME: &str = "phpprof-operator";
const START: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(30);
/// Flags of the Deployment that need other values outside of a cluster.
const REPLACED: [&str; 1] = ["--relay-url="];
/// Values that a large installation sets.
const VALUES: [&str; 6] = [
    "limits.pods=100",
    "limits.requests=500",
    "limits.requestsPerNamespace=100",
    "limits.samplersPerNode=50",
    "relay.verifySource=Enforce",
    "queueTimeoutSeconds=600",
];

pub struct Operator {
    program: PathBuf,
    arguments: Vec<String>,
    kubeconfig: String,
    logs: PathBuf,
    health: u16,
    child: Child,
    lives: usize,
    before: Cost,
}

/// The cost of all processes: the largest memory of one, and the CPU time of all.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    pub peak_mib: f64,
    pub cpu_seconds: f64,
}

/// Installs the chart, and returns the operator's arguments from its Deployment.
pub async fn install(plane: &ControlPlane, store: &Path) -> Result<Vec<String>> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/phpprof");
    let store = format!("store.url=file://{}", store.display());
    let mut install = vec![
        "install",
        "phpprof",
        chart,
        "--create-namespace",
        "--set",
        &store,
    ];
    install.extend(["--namespace", NAMESPACE, "--kubeconfig", &plane.admin]);
    install.extend(VALUES.iter().flat_map(|value| ["--set", value]));
    run("helm", &install, &[]).await?;
    let deployments: Api<Deployment> = Api::namespaced(plane.client.clone(), NAMESPACE);
    let deployment = deployments.get(NAME).await?;
    let template = deployment.spec.and_then(|spec| spec.template.spec);
    let container = template.and_then(|spec| spec.containers.into_iter().next());
    container
        .and_then(|container| container.args)
        .context("the chart's operator has no arguments")
}

/// A kubeconfig of the operator's service account, which has the rights that the chart gives it.
pub async fn kubeconfig(plane: &ControlPlane) -> Result<String> {
    plane.kubeconfig_of(NAMESPACE, NAME, None).await
}

impl Operator {
    pub async fn start(
        program: &Path,
        mut arguments: Vec<String>,
        kubeconfig: String,
        logs: &Path,
    ) -> Result<Self> {
        let (relay, results, health) = (free_port()?, free_port()?, free_port()?);
        arguments.retain(|argument| !REPLACED.iter().any(|flag| argument.starts_with(flag)));
        arguments.extend([
            format!("--relay-address=127.0.0.1:{relay}"),
            format!("--relay-url=https://127.0.0.1:{relay}"),
            format!("--results-address=127.0.0.1:{results}"),
            format!("--health-address=127.0.0.1:{health}"),
        ]);
        let mut operator = Self {
            child: begin(program, &arguments, &kubeconfig, logs, 1)?,
            program: program.to_owned(),
            arguments,
            kubeconfig,
            logs: logs.to_owned(),
            health,
            lives: 1,
            before: Cost::default(),
        };
        operator.wait_until_ready().await?;
        Ok(operator)
    }

    /// Stops it as a node does, and starts it again.
    pub async fn restart(&mut self) -> Result<()> {
        self.before = self.cost()?;
        let pid = self.pid()?.to_string();
        run("kill", &["-TERM", &pid], &[]).await?;
        let ended = tokio::time::timeout(END, self.child.wait()).await;
        let status = ended.context("the operator does not end by SIGTERM")??;
        ensure!(status.success(), "the operator ended with {status}");
        self.lives += 1;
        self.child = begin(
            &self.program,
            &self.arguments,
            &self.kubeconfig,
            &self.logs,
            self.lives,
        )?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let address = format!("http://127.0.0.1:{}/readyz", self.health);
        let ready = async || {
            let answer = reqwest::get(&address).await.ok();
            Ok(answer.filter(|answer| answer.status().is_success()))
        };
        poll("the operator to be ready", START, ready).await?;
        self.runs()
    }

    /// Fails if it has ended by itself.
    pub fn runs(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        let logs = self.logs.display();
        ensure!(
            ended.is_none(),
            "the operator has ended; its log is in {logs}"
        );
        Ok(())
    }

    fn pid(&self) -> Result<u32> {
        self.child.id().context("the operator has ended")
    }

    /// The cost of all processes until now.
    pub fn cost(&self) -> Result<Cost> {
        let process = PathBuf::from(format!("/proc/{}", self.pid()?));
        let status = std::fs::read_to_string(process.join("status"))?;
        let stat = std::fs::read_to_string(process.join("stat"))?;
        Ok(Cost {
            peak_mib: self
                .before
                .peak_mib
                .max(peak_mib(&status).context("no VmHWM")?),
            cpu_seconds: self.before.cpu_seconds + cpu_seconds(&stat).context("no CPU time")?,
        })
    }
}

fn begin(
    program: &Path,
    arguments: &[String],
    kubeconfig: &str,
    logs: &Path,
    life: usize,
) -> Result<Child> {
    let log = logs.join(format!("operator-{life}.log"));
    // HOSTNAME is the operator's identity in the lease's election. In a pod this variable is set.
    let environment = [("KUBECONFIG", kubeconfig), ("HOSTNAME", "scale")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    start(program, &log, arguments, &environment)
}

fn peak_mib(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// User and system time. Linux reports them in hundredths of a second.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name in parentheses may have spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_time_are_read() {
        assert_eq!(peak_mib("VmPeak:\t 9 kB\nVmHWM:\t   2048 kB\n"), Some(2.0));
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 0 0 0 150 25 0 0 20 0";
        assert_eq!(cpu_seconds(stat), Some(1.75));
    }
}
