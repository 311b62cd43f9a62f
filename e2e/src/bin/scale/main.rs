//! scale OPERATOR FOLDER: the operator with a real API server and etcd, and thousands of pods whose
//! kubelets and samplers this program simulates.
//!
//! It makes one request over 100 pods. Then it makes requests over all pods, in addition to many
//! that are complete and kept, while it replaces every pod and restarts the operator. It prints the
//! cost next to its limits, and writes FOLDER/results.csv and logs. SCALE=smoke is a form that
//! takes seconds.
//!
//! Invariant: all load is bounded in number and time, and stays on loopback.

mod audit;
mod kubelet;
mod operator;
mod report;
mod requests;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::toy::control_plane::ControlPlane;
use e2e::toy::sampler::Canned;
use e2e::{poll, say};
use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::kubelet::Kubelets;
use crate::operator::Operator;
use crate::report::{MEMORY_MIB, ScaleReport};
use crate::requests::{Made, Requests, check};
use crate::workloads::{PHP, PODS, Size, Workload, Workloads, namespace};

/// The pods of the wide request: all pods of the first namespace.
const WIDE: usize = 100;
/// The longest time from the creation of the last request to the end of all, on a busy machine.
const REST: Duration = Duration::from_secs(300);

/// The sizes and times of a run.
struct Form {
    size: Size,
    retained: usize,
    /// The duration of each request.
    sampled: Duration,
    /// The time over which the requests are created, one for each workload.
    spread: Duration,
    longest: Duration,
}

const FULL: Form = Form {
    size: Size {
        nodes: 100,
        namespaces: 50,
        workloads_per_namespace: WIDE / PODS,
    },
    retained: 2000,
    sampled: Duration::from_secs(5),
    spread: Duration::from_secs(300),
    longest: Duration::from_secs(1200),
};

const SMOKE: Form = Form {
    size: Size {
        nodes: 10,
        namespaces: 2,
        workloads_per_namespace: WIDE / PODS,
    },
    retained: 100,
    sampled: Duration::from_secs(2),
    spread: Duration::from_secs(12),
    longest: Duration::from_secs(240),
};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    // Only one provider is compiled in, so the only possible error is that it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (program, folder) = (arguments.next(), arguments.next());
    let (program, folder) = program
        .zip(folder)
        .context("usage: scale OPERATOR FOLDER")?;
    let form = match std::env::var("SCALE").as_deref() {
        Ok("smoke") => SMOKE,
        Err(_) | Ok("" | "full") => FULL,
        Ok(other) => anyhow::bail!("SCALE is smoke or full, not {other}"),
    };
    std::fs::create_dir_all(&folder)?;
    let mut report = ScaleReport::default();
    let run = tokio::time::timeout(form.longest, run(&program, &folder, &form, &mut report));
    let run = run
        .await
        .with_context(|| format!("not over after {:?}", form.longest))
        .flatten();
    report.write(&folder.join("results.csv"))?;
    run.with_context(|| format!("logs are in {}", folder.display()))?;
    Ok(if report.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn run(program: &Path, folder: &Path, form: &Form, report: &mut ScaleReport) -> Result<()> {
    let begin = Instant::now();
    let data = tempfile::tempdir()?;
    let cluster = ControlPlane::start("127.0.0.1", data.path(), folder).await?;
    let store = data.path().join("store");
    std::fs::create_dir(&store)?;
    let flags = operator::install(&cluster, &store).await?;
    let workloads = Workloads::make(cluster.client.clone(), form.size).await?;
    workloads.retain(form.retained).await?;
    let canned = Canned::of(form.sampled.as_secs());
    say(&format!(
        "    {} pods on {} nodes in {} namespaces, {} requests of the past; a profile has {} bytes",
        workloads.count() * PODS,
        form.size.nodes,
        form.size.namespaces,
        form.retained,
        canned.size()
    ));
    let kubelets = Kubelets::start(cluster.client.clone(), workloads.clone(), canned)?;
    let requests = Requests::start(cluster.client.clone(), form.sampled);
    report.time("set up", begin.elapsed());
    let begin = Instant::now();
    let mut operator = Operator::start(
        program,
        flags,
        operator::kubeconfig(&cluster).await?,
        folder,
    )
    .await?;
    report.time("operator: ready after", begin.elapsed());
    let cast = Cast {
        cluster,
        workloads,
        kubelets,
        requests,
    };
    let wide = cast.wide(report).await;
    let many = match &wide {
        Ok(()) => cast.many(form, &mut operator, report).await,
        Err(_) => Ok(()),
    };
    operator.runs()?;
    let cost = operator.cost()?;
    report.add(
        "operator: most memory resident",
        cost.peak_mib,
        "MiB",
        Some(MEMORY_MIB),
    );
    report.add("operator: CPU time", cost.cpu_seconds, "s", None);
    let faults = cast.kubelets.faults();
    wide.and(many)?;
    ensure!(
        faults.is_empty(),
        "{} faults of the kubelets: {}",
        faults.len(),
        faults.join("; ")
    );
    Ok(())
}

/// The parts of the simulation.
struct Cast {
    cluster: ControlPlane,
    workloads: Arc<Workloads>,
    kubelets: Arc<Kubelets>,
    requests: Arc<Requests>,
}

impl Cast {
    /// One request over all pods of a namespace.
    async fn wide(&self, report: &mut ScaleReport) -> Result<()> {
        let begin = Timestamp::now();
        let made = self
            .requests
            .make(&namespace(0), "wide", &format!("{PHP}=true"), WIDE, 0)
            .await?;
        let ended = self.requests.over(&made, REST).await?;
        report.time(
            "wide: all pods started after",
            self.started(&made)? - made.at,
        );
        report.time("wide: complete after", ended.at - made.at);
        self.count("wide", begin, WIDE, report).await?;
        check(&made, &ended.status)
    }

    /// A request for each workload, while pods are replaced and the operator is restarted.
    async fn many(
        &self,
        form: &Form,
        operator: &mut Operator,
        report: &mut ScaleReport,
    ) -> Result<()> {
        let (begin, since) = (Timestamp::now(), Instant::now());
        let restart = async {
            tokio::time::sleep(form.spread / 2).await;
            let begin = Instant::now();
            operator.restart().await?;
            Ok(begin.elapsed())
        };
        let (made, restart) = tokio::try_join!(self.make_all(form), restart)?;
        report.time("many: operator away for", restart);
        let over = async || {
            operator.runs()?;
            Ok(made
                .iter()
                .all(|made| self.requests.end(made).is_some())
                .then_some(()))
        };
        let over = poll("the end of all requests", REST, over).await;
        let (mut starts, mut ends, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        for made in &made {
            match self.requests.end(made) {
                Some(ended) => {
                    wrong.extend(check(made, &ended.status).err());
                    ends.push(ended.at);
                    starts.extend(self.started(made).ok());
                }
                None => wrong.push(anyhow::anyhow!("request {} did not end", made.name)),
            }
        }
        report.time(
            "many: all pods started after",
            starts
                .iter()
                .max()
                .map_or(Duration::ZERO, |last| *last - since),
        );
        report.time(
            "many: all complete after",
            ends.iter()
                .max()
                .map_or(Duration::ZERO, |last| *last - since),
        );
        let from_making = |all: &[Instant]| {
            all.iter()
                .zip(&made)
                .map(|(at, made)| *at - made.at)
                .collect()
        };
        if wrong.is_empty() {
            report.times(
                "many: pods of a request started after",
                from_making(&starts),
            );
            report.times("many: a request complete after", from_making(&ends));
        }
        self.count("many", begin, made.len() * PODS, report).await?;
        for wrong in wrong.iter().take(10) {
            say(&format!("    {wrong:#}"));
        }
        ensure!(
            wrong.is_empty(),
            "{} of {} requests did not end as they should",
            wrong.len(),
            made.len()
        );
        over
    }

    /// Creates the requests one by one. Replaces the pods of workloads whose request is not created
    /// yet, or is complete.
    async fn make_all(&self, form: &Form) -> Result<Vec<Made>> {
        let count = self.workloads.count();
        let pause = form.spread / u32::try_from(count)?;
        let (mut made, mut rolls) = (Vec::<Made>::new(), JoinSet::new());
        let mut clock = tokio::time::interval(pause);
        for number in 0..count {
            clock.tick().await;
            made.push(self.make(self.workloads.workload(number), number).await?);
            let other = (number + count / 2) % count;
            rolls.spawn(roll(
                self.workloads.clone(),
                self.requests.clone(),
                self.workloads.workload(other),
                made.get(other).cloned(),
            ));
            while let Some(rolled) = rolls.try_join_next() {
                rolled??;
            }
        }
        while let Some(rolled) = rolls.join_next().await {
            rolled??;
        }
        Ok(made)
    }

    async fn make(&self, workload: Workload, number: usize) -> Result<Made> {
        let (namespace, label) = (workload.namespace(), workload.label());
        let doomed = usize::from(workload.is_doomed(&self.workloads.size));
        self.requests
            .make(
                &namespace,
                &format!("many-{number}"),
                &format!("app={label}"),
                PODS,
                doomed,
            )
            .await
    }

    /// When the last sampler of a request was started.
    fn started(&self, made: &Made) -> Result<Instant> {
        let (count, last) = self
            .kubelets
            .started(&made.uid)
            .context("no sampler was started")?;
        ensure!(
            count == made.pods,
            "request {} started {count} samplers in {} pods",
            made.name,
            made.pods
        );
        Ok(last)
    }

    async fn count(
        &self,
        phase: &str,
        begin: Timestamp,
        targets: usize,
        report: &mut ScaleReport,
    ) -> Result<()> {
        // The API server writes the last audit events a moment later.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let calls = audit::calls(&self.cluster.audit, begin, Timestamp::now())?;
        report.calls(phase, &calls, targets);
        Ok(())
    }
}

async fn roll(
    workloads: Arc<Workloads>,
    requests: Arc<Requests>,
    workload: Workload,
    made: Option<Made>,
) -> Result<()> {
    if let Some(made) = made {
        requests.over(&made, REST).await?;
    }
    workloads.roll(workload).await
}
