//! From what was observed to a verdict for each thing that a profile needs: pure.
//!
//! Invariant: one check for each need, always in the same order; a check that failed says what to change.

/// Rights that are judged by what others there are.
pub const PATCH_PODS: &str = "patch pods/ephemeralcontainers";
pub const PROFILE: &str = "profile profilerequests";

/// What an authorization review said; None where it could not be asked.
pub type Allowed = Option<bool>;

/// What the API server answered to the sampler's container in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    Accepted,
    Refused(String),
    /// It was not tried, or the answer says nothing of the container; why.
    NotTried(String),
}

/// A pod that would be chosen from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    pub name: String,
    pub ready: bool,
    /// Names of its containers, the one that is profiled by default first.
    pub containers: Vec<String>,
    /// Of the container that would be profiled.
    pub uid: Option<i64>,
    /// Samplers that it has had.
    pub samplers: usize,
    pub runtime_class: Option<String>,
}

/// Why no pods are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// There are none, in the words of the API server.
    Missing(String),
    /// This user may not see them; the operator may.
    Hidden(String),
}

/// What the operator's Deployment says; None where it may not be read or is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorFacts {
    pub ready: i32,
    pub image: String,
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub namespace: String,
    pub target: String,
    /// Whether the cluster has the API phpprof.dev/v1alpha1.
    pub api: Allowed,
    /// Verb and resource, and whether this user may.
    pub rights: Vec<(&'static str, Allowed)>,
    /// The value of the namespace's opt-in label, and its Pod Security level; None where it may not be read.
    pub namespace_labels: Option<(Option<String>, Option<String>)>,
    /// Ok(None): it is there but where it could not be said. Err: why not.
    pub operator: Result<OperatorFacts, String>,
    pub pods: Result<Vec<PodFacts>, Unseen>,
    /// What `--container` named.
    pub container: Option<String>,
    /// What `--run-as-user` named.
    pub run_as_user: Option<i64>,
    pub dry_run: DryRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Bad,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    pub remedy: String,
}

pub fn judge(observed: &Observed) -> Vec<Check> {
    let mut checks = vec![api(observed), operator(observed), namespace(observed)];
    checks.extend(
        observed
            .rights
            .iter()
            .map(|(right, allowed)| self::right(observed, right, *allowed)),
    );
    checks.extend([
        pods(observed),
        container(observed),
        mode(observed),
        admission(observed),
        budget(observed),
        image(observed),
        store(observed),
    ]);
    checks
}

pub fn unfit(checks: &[Check]) -> usize {
    checks
        .iter()
        .filter(|check| check.verdict == Verdict::Bad)
        .count()
}

fn check(
    name: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Check {
    Check {
        name,
        verdict,
        found: found.into(),
        remedy: remedy.into(),
    }
}

fn api(observed: &Observed) -> Check {
    match observed.api {
        Some(true) => check(
            "api",
            Verdict::Good,
            "the cluster has phpprof.dev/v1alpha1",
            "",
        ),
        Some(false) => check(
            "api",
            Verdict::Bad,
            "the cluster has no phpprof.dev/v1alpha1",
            "install the chart: helm install phpprof charts/phpprof",
        ),
        None => check(
            "api",
            Verdict::Unknown,
            "the API groups could not be listed",
            "kubectl api-resources --api-group=phpprof.dev",
        ),
    }
}

fn operator(observed: &Observed) -> Check {
    match &observed.operator {
        Ok(facts) if facts.ready > 0 => check(
            "operator",
            Verdict::Good,
            format!("{} is ready", facts.image),
            "",
        ),
        Ok(facts) => check(
            "operator",
            Verdict::Bad,
            format!("{} is not ready", facts.image),
            "kubectl describe pods of the operator's namespace says why",
        ),
        Err(why) => check(
            "operator",
            Verdict::Unknown,
            why.clone(),
            "name it with --operator-namespace and --operator-name, or ask its administrator",
        ),
    }
}

fn namespace(observed: &Observed) -> Check {
    let command = format!(
        "kubectl label namespace {} phpprof.dev/profiling=enabled",
        observed.namespace
    );
    let open = has_argument(observed, "--all-namespaces");
    match &observed.namespace_labels {
        _ if open => check(
            "namespace",
            Verdict::Good,
            "the operator profiles every namespace",
            "",
        ),
        Some((Some(value), _)) if value == "enabled" => check(
            "namespace",
            Verdict::Good,
            format!(
                "{} is labelled phpprof.dev/profiling=enabled",
                observed.namespace
            ),
            "",
        ),
        Some(_) => check(
            "namespace",
            Verdict::Bad,
            format!("{} is not labelled for profiling", observed.namespace),
            command,
        ),
        None => check(
            "namespace",
            Verdict::Unknown,
            format!("the labels of {} may not be read", observed.namespace),
            command,
        ),
    }
}

fn right(observed: &Observed, right: &'static str, allowed: Allowed) -> Check {
    // The operator's own namespace is another.
    let place = if right.contains("of the operator") {
        String::new()
    } else {
        format!(" in {}", observed.namespace)
    };
    let found = |may: &str| format!("you {may} {right}{place}");
    let optional = right == PATCH_PODS;
    let remedy = "ask for it: the chart's roles for editing and profiling have it for requests, and its reader role for results";
    let instead = observed
        .rights
        .iter()
        .any(|(other, allowed)| *other == PATCH_PODS && *allowed == Some(true));
    match allowed {
        Some(true) => check("right", Verdict::Good, found("may"), ""),
        Some(false) if optional => check(
            "right",
            Verdict::Good,
            format!("{}; only the dry run below needs it", found("may not")),
            "",
        ),
        Some(false) if right == PROFILE && instead => check(
            "right",
            Verdict::Good,
            format!("{}; that you may {PATCH_PODS} is as good", found("may not")),
            "",
        ),
        Some(false) if right == PROFILE => check(
            "right",
            Verdict::Unknown,
            format!(
                "{}; the chart's policies ask for it, if they are on",
                found("may not")
            ),
            remedy,
        ),
        Some(false) => check("right", Verdict::Bad, found("may not"), remedy),
        None => check(
            "right",
            Verdict::Unknown,
            format!("whether you may {right} could not be asked"),
            remedy,
        ),
    }
}

fn pods(observed: &Observed) -> Check {
    match &observed.pods {
        Err(Unseen::Missing(why)) => check(
            "pods",
            Verdict::Bad,
            why.clone(),
            "compare with kubectl get pods --show-labels",
        ),
        Err(Unseen::Hidden(why)) => check(
            "pods",
            Verdict::Unknown,
            why.clone(),
            "the operator sees them; to look here, ask for the rights of the cluster role view",
        ),
        Ok(pods) if pods.is_empty() => check(
            "pods",
            Verdict::Bad,
            format!("{} has no pods", observed.target),
            "scale it up, or name another",
        ),
        Ok(pods) => match pods.iter().filter(|pod| pod.ready).count() {
            0 => check(
                "pods",
                Verdict::Bad,
                format!("none of {} pods is ready", pods.len()),
                "kubectl describe pod says why",
            ),
            ready => check(
                "pods",
                Verdict::Good,
                format!("{ready} of {} pods are ready", pods.len()),
                "",
            ),
        },
    }
}

fn ready(observed: &Observed) -> Vec<&PodFacts> {
    let pods = observed.pods.as_deref().unwrap_or_default();
    pods.iter().filter(|pod| pod.ready).collect()
}

fn container(observed: &Observed) -> Check {
    let pods = ready(observed);
    let Some(first) = pods.first() else {
        return check("container", Verdict::Unknown, "no ready pod to look at", "");
    };
    let all = first.containers.join(", ");
    if let Some(runtime) = first
        .runtime_class
        .as_deref()
        .filter(|class| class.contains("gvisor") || class.contains("runsc"))
    {
        return check(
            "container",
            Verdict::Bad,
            format!(
                "the pod's runtime class is {runtime}, whose kernel does not let PHP's memory be read"
            ),
            "profile the workload where runtimeClassName is another one",
        );
    }
    match &observed.container {
        Some(name) if !first.containers.contains(name) => check(
            "container",
            Verdict::Bad,
            format!("no container {name}; there are {all}"),
            "name one of them with --container",
        ),
        Some(name) => check(
            "container",
            Verdict::Good,
            format!("{name}; whether it runs PHP shows when it is sampled"),
            "",
        ),
        None => check(
            "container",
            Verdict::Good,
            format!(
                "{}, the pod's default{}; whether it runs PHP shows when it is sampled",
                first.containers.first().map_or("", String::as_str),
                if first.containers.len() > 1 {
                    format!(" of {all}")
                } else {
                    String::new()
                }
            ),
            "",
        ),
    }
}

/// The user that the sampler would run as, as the operator decides it.
pub fn sampler_user(observed: &Observed) -> Option<i64> {
    let uid = ready(observed).first().and_then(|pod| pod.uid);
    uid.or(observed.run_as_user).filter(|uid| *uid != 0)
}

fn mode(observed: &Observed) -> Check {
    if ready(observed).is_empty() {
        return check("mode", Verdict::Unknown, "no ready pod to look at", "");
    }
    match (
        sampler_user(observed),
        ready(observed).first().and_then(|pod| pod.uid),
    ) {
        (Some(uid), _) => check(
            "mode",
            Verdict::Good,
            format!("SameUser: as user {uid}, without a capability"),
            "",
        ),
        (None, Some(_)) => check(
            "mode",
            Verdict::Good,
            "Ptrace: PHP's pod runs as root, so the sampler needs SYS_PTRACE",
            "",
        ),
        (None, None) => check(
            "mode",
            Verdict::Good,
            "Ptrace: the pod does not say which user PHP runs as, so the sampler needs SYS_PTRACE",
            "",
        ),
    }
}

fn admission(observed: &Observed) -> Check {
    let known = ready(observed).first().and_then(|pod| pod.uid).is_some();
    let remedy = if known {
        "run PHP as an ordinary user, or profile it in a namespace without that level"
    } else {
        "say which user PHP runs as: --run-as-user UID (kubectl exec POD -- id), or runAsUser in the pod's security context"
    };
    let level = observed
        .namespace_labels
        .as_ref()
        .and_then(|(_, level)| level.as_deref())
        .unwrap_or("");
    let strict = ["baseline", "restricted"].contains(&level);
    match &observed.dry_run {
        DryRun::Accepted => check(
            "admission",
            Verdict::Good,
            "a dry run of the sampler's container is accepted",
            "",
        ),
        DryRun::Refused(message) => check(
            "admission",
            Verdict::Bad,
            format!("a dry run of the sampler's container is refused: {message}"),
            remedy,
        ),
        DryRun::NotTried(_) if strict && sampler_user(observed).is_none() => check(
            "admission",
            Verdict::Bad,
            format!("Pod Security {level} refuses SYS_PTRACE"),
            remedy,
        ),
        DryRun::NotTried(why) => check(
            "admission",
            Verdict::Unknown,
            format!("not tried: {why}"),
            "the operator tries it by a dry run of its own",
        ),
    }
}

fn budget(observed: &Observed) -> Check {
    let limit: usize = argument(observed, "--max-ephemeral-containers=")
        .and_then(|text| text.parse().ok())
        .unwrap_or(64);
    let fewest = ready(observed).iter().map(|pod| pod.samplers).min();
    match fewest {
        None => check("budget", Verdict::Unknown, "no ready pod to look at", ""),
        Some(used) if used >= limit => check(
            "budget",
            Verdict::Bad,
            format!(
                "every ready pod has had {limit} samplers, and ephemeral containers are never removed"
            ),
            "replace the pods: kubectl rollout restart",
        ),
        Some(used) => check(
            "budget",
            Verdict::Good,
            format!("{used} of {limit} samplers used by the pod with the fewest"),
            "",
        ),
    }
}

fn image(observed: &Observed) -> Check {
    match argument(observed, "--sampler-image=") {
        Some(image) => check(
            "image",
            Verdict::Good,
            format!("{image}; whether the nodes can pull it shows when it is started"),
            "",
        ),
        None => check(
            "image",
            Verdict::Unknown,
            "the operator's Deployment says no sampler image that you may read",
            "ask the operator's administrator",
        ),
    }
}

fn store(observed: &Observed) -> Check {
    match argument(observed, "--store-url=") {
        Some(url) => check(
            "store",
            Verdict::Good,
            format!("{url}; whether it answers shows in the operator's logs"),
            "",
        ),
        None => check(
            "store",
            Verdict::Unknown,
            "the operator's Deployment says no store that you may read",
            "ask the operator's administrator",
        ),
    }
}

fn argument<'o>(observed: &'o Observed, prefix: &str) -> Option<&'o str> {
    let facts = observed.operator.as_ref().ok()?;
    facts
        .arguments
        .iter()
        .find_map(|argument| argument.strip_prefix(prefix))
}

fn has_argument(observed: &Observed, wanted: &str) -> bool {
    let facts = observed.operator.as_ref();
    facts.is_ok_and(|facts| facts.arguments.iter().any(|argument| argument == wanted))
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
