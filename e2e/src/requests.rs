//! Creates ProfileRequests, and waits for their results.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStatus, EphemeralContainer, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, ResourceExt as _};
use phpprof_crds::{
    ProfileRequest, ProfileRequestStatus, REQUESTED_BY, TargetReason, TargetState, TargetStatus,
    UploadRoute, condition,
};
use serde_json::{Value, json};

use crate::store::Call;
use crate::{Fixture, kubectl, poll};

/// Longer than any request of the tests takes.
const END: Duration = Duration::from_secs(90);

/// Built-in kinds of Kubernetes that a `workloadRef` may name.
pub const WORKLOADS: [(&str, &str); 6] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];

impl Fixture {
    /// Applies a request.
    pub async fn apply(&self, spec: Value) -> Result<ProfileRequest> {
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
            "metadata": {"generateName": "r-"}, "spec": spec,
        });
        let request = serde_json::from_value(object)?;
        Ok(self.api().create(&PostParams::default(), &request).await?)
    }

    /// Applies a request as a user, with an annotation that names the user.
    pub async fn apply_as(&self, user: &str, spec: Value) -> Result<ProfileRequest> {
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
            "metadata": {"generateName": "r-", "annotations": {REQUESTED_BY: user}}, "spec": spec,
        });
        let mut config = Config::infer().await?;
        config.auth_info.impersonate = Some(user.to_owned());
        let requests = Api::namespaced(Client::try_from(config)?, &self.namespace);
        let request = serde_json::from_value(object)?;
        Ok(requests.create(&PostParams::default(), &request).await?)
    }

    /// Waits until the request meets a condition, and returns it.
    pub async fn until(
        &self,
        request: &ProfileRequest,
        what: &str,
        holds: impl Fn(&ProfileRequest) -> bool,
    ) -> Result<ProfileRequest> {
        let condition = |now: Option<&ProfileRequest>| now.is_none_or(&holds);
        let found = tokio::time::timeout(
            END,
            await_condition(self.api(), &request.name_any(), condition),
        )
        .await
        .with_context(|| format!("waited {END:?} until request {} {what}", request.name_any()))??;
        found.with_context(|| format!("request {} is gone before it {what}", request.name_any()))
    }

    /// Changes fields of a request's spec, as kubectl patch does.
    pub async fn change(&self, request: &ProfileRequest, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let requests = self.api::<ProfileRequest>();
        requests
            .patch(&request.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Applies a request and waits until its samplers run.
    pub async fn sampled(&self, spec: Value) -> Result<ProfileRequest> {
        let request = self.apply(spec).await?;
        let sampling = |now: &ProfileRequest| {
            let targets = status(now).targets;
            let sampled = |target: &TargetStatus| target.state == TargetState::Sampling;
            !targets.is_empty() && targets.iter().all(sampled)
        };
        self.until(&request, "samples", sampling).await
    }

    /// Waits until the request is complete or failed.
    pub async fn ended(&self, request: &ProfileRequest) -> Result<ProfileRequest> {
        self.until(request, "has ended", |now| {
            status(now).completion_time.is_some()
        })
        .await
    }

    /// Applies a request and waits until it is complete; fails if it does not complete.
    pub async fn completed(&self, spec: Value) -> Result<ProfileRequest> {
        let request = self.ended(&self.apply(spec).await?).await?;
        holds(&request, condition::COMPLETE)?;
        Ok(request)
    }

    /// The sampler of a target: the container that was added to its pod, and how it ended.
    pub async fn sampler(&self, target: &TargetStatus) -> Result<Sampler> {
        let pod: Pod = self.api().get(&target.pod_name).await?;
        let name = &target.ephemeral_container_name;
        let containers = pod.spec.clone().and_then(|spec| spec.ephemeral_containers);
        let statuses = pod
            .status
            .clone()
            .and_then(|status| status.ephemeral_container_statuses);
        let container = containers
            .into_iter()
            .flatten()
            .find(|container| container.name == *name);
        let status = statuses
            .into_iter()
            .flatten()
            .find(|status| status.name == *name);
        Ok(Sampler {
            container: container
                .with_context(|| format!("pod {} has no container {name}", target.pod_name))?,
            status: status.with_context(|| format!("container {name} has no status"))?,
            pod,
        })
    }
}

impl Fixture {
    /// Checks that the request has the profiles of this many pods, with one sampler each, and no
    /// other sampler.
    pub async fn check_each_pod_once(&self, request: &ProfileRequest, pods: i32) -> Result<()> {
        holds(request, condition::COMPLETE)?;
        let status = status(request);
        ensure!(status.succeeded == pods, "{status:?}");
        let name = format!("phpprof-{}-", &request.uid().unwrap_or_default()[..8]);
        for target in &status.targets {
            let pod: Pod = self.api().get(&target.pod_name).await?;
            let containers = pod.spec.and_then(|spec| spec.ephemeral_containers);
            let containers = containers.unwrap_or_default();
            let ours = containers
                .iter()
                .filter(|container| container.name.starts_with(&name));
            ensure!(ours.count() == 1, "pod {}", target.pod_name);
        }
        let samples: i64 = status
            .targets
            .iter()
            .filter_map(|target| target.samples)
            .sum();
        let merged = status.profile.context("no merged profile")?.samples;
        ensure!(merged == samples, "{merged} samples of {samples}");
        Ok(())
    }
}

impl Fixture {
    /// Waits until a sampler has failed to upload and will try again.
    pub async fn wait_for_retry(&self, target: &TargetStatus) -> Result<()> {
        let container = format!("--container={}", target.ephemeral_container_name);
        let logs = [
            "--namespace",
            &self.namespace,
            "logs",
            &target.pod_name,
            &container,
        ];
        let limit = Duration::from_secs(30);
        poll("the sampler tries again", limit, async || {
            Ok(kubectl(&logs).await?.contains("next try in").then_some(()))
        })
        .await
    }
}

/// An ephemeral container and the pod that it is in.
pub struct Sampler {
    /// The pod, as it was when it was read.
    pub pod: Pod,
    /// The sampler's container in the pod's spec.
    pub container: EphemeralContainer,
    /// The status that the kubelet reports.
    pub status: ContainerStatus,
}

impl Sampler {
    fn ended(&self) -> Option<ContainerStateTerminated> {
        self.status.state.clone()?.terminated
    }

    /// The receipt: the line in its termination message.
    pub fn receipt(&self) -> Result<String> {
        let ended = self.ended().context("the sampler has not ended")?;
        Ok(ended.message.unwrap_or_default())
    }

    /// When it started, to the second. It is none before the sampler's end.
    pub fn started_at(&self) -> Option<Timestamp> {
        Some(self.ended()?.started_at?.0)
    }

    /// The value of one of its environment variables.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let variables = self.container.env.as_deref().unwrap_or_default();
        let found = variables.iter().find(|variable| variable.name == name)?;
        found.value.as_deref()
    }

    /// Its grant for an upload route.
    pub fn grant(&self, route: UploadRoute) -> Result<Call> {
        let grants = self.variable("PHPPROF_GRANTS");
        let grants: Value = serde_json::from_str(grants.context("the sampler has no grants")?)?;
        let wanted = json!(route);
        let grants = grants["profile"].as_array().context("no list of grants")?;
        let grant = grants.iter().find(|grant| grant["route"] == wanted);
        let grant = grant.with_context(|| format!("no grant for {wanted}"))?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
        let mut call = Call::new(&text(&grant["method"])?, &text(&grant["url"])?);
        for (name, value) in grant["headers"].as_object().into_iter().flatten() {
            call = call.header(name, &text(value)?);
        }
        Ok(match route {
            UploadRoute::Relay => call.unverified(),
            UploadRoute::Direct => call,
        })
    }

    /// When it ended, to the second.
    pub fn ended_at(&self) -> Option<Timestamp> {
        Some(self.ended()?.finished_at?.0)
    }

    /// The value of one of its flags.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let arguments = self.container.args.as_deref().unwrap_or_default();
        arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The status, which is empty before the operator writes it.
pub fn status(request: &ProfileRequest) -> ProfileRequestStatus {
    request.status.clone().unwrap_or_default()
}

/// The folder of a request's files below the store's prefix.
pub fn folder(request: &ProfileRequest) -> Result<String> {
    let namespace = request.namespace().context("no namespace")?;
    let namespace_uid = status(request).namespace_uid.context("no namespaceUID")?;
    let (name, uid) = (request.name_any(), request.uid().context("no uid")?);
    Ok(format!("{namespace}/{namespace_uid}/{name}-{uid}"))
}

/// The condition of that type; an error if it is not true.
pub fn holds(request: &ProfileRequest, kind: &str) -> Result<Condition> {
    let conditions = status(request).conditions;
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == kind && condition.status == "True");
    found
        .cloned()
        .with_context(|| format!("request {} is not {kind}", request.name_any()))
}

/// The request's only target.
pub fn only_target(request: &ProfileRequest) -> Result<TargetStatus> {
    let targets = status(request).targets;
    ensure!(
        targets.len() == 1,
        "{} targets instead of one",
        targets.len()
    );
    Ok(targets[0].clone())
}

/// The only target of a failed request. Checks that it has that reason and a message, and no
/// profile.
pub fn failed_with(request: &ProfileRequest, reason: TargetReason) -> Result<TargetStatus> {
    let condition = holds(request, condition::FAILED)?;
    let target = only_target(request)?;
    ensure!(target.reason == Some(reason), "{target:?}");
    ensure!(
        !target.message.is_empty() && condition.message.contains(&target.message),
        "{condition:?}"
    );
    ensure!(status(request).profile.is_none(), "a profile is claimed");
    Ok(target)
}
