//! The objects of a schedule: the same as the chart's `schedules`, in the user's own namespace.
//!
//! It is pure.
//!
//! Invariant: the pod passes the Pod Security level `restricted`, and its account may create
//! requests in this namespace and nothing else.

use serde_json::{Map, Value, json};

use crate::cli::JobArguments;

/// The account and the binding of all schedules in a namespace.
pub const ACCOUNT: &str = "phpprof-schedules";
/// Requests of a schedule are deleted a day after their end, as in the chart.
const TTL_SECONDS: i64 = 86_400;
/// A CronJob's name has at most 52 characters.
const LONGEST: usize = 52 - PREFIX.len();
pub const PREFIX: &str = "phpprof-";
/// The label of requests, and of a schedule's own objects.
pub const LABEL: &str = "phpprof.dev/schedule";
/// Selects the plugin's own schedules and those of the chart.
pub const SELECTOR: &str = "app.kubernetes.io/name=phpprof,app.kubernetes.io/component=schedule";
pub const MANAGER: &str = "kubectl-phpprof";

pub struct SchedulePlan {
    pub name: String,
    pub namespace: String,
    pub cron: String,
    pub time_zone: Option<String>,
    pub suspend: bool,
    /// Which Jobs the CronJob keeps, and where its pods run.
    pub job: JobArguments,
    pub cluster_role: String,
    /// The spec of each request.
    pub spec: Value,
    /// Whether the spec sets the lifetime of finished requests itself.
    pub keeps_ttl: bool,
}

/// The name of a schedule's objects.
pub fn object_name(schedule: &str) -> String {
    let short = schedule.strip_prefix(PREFIX).unwrap_or(schedule);
    format!("{PREFIX}{short}")
}

/// Why this cannot be a schedule's name.
pub fn wrong_name(name: &str) -> Option<String> {
    let letters = name
        .chars()
        .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-');
    let ends = name.starts_with('-') || name.ends_with('-');
    if name.is_empty() || !letters || ends {
        Some(format!(
            "{name:?} is not a name of a schedule: use lower-case letters, digits and - between them"
        ))
    } else if name.starts_with(PREFIX) {
        Some(format!(
            "{name:?} is not a name of a schedule: its CronJob is called {PREFIX}NAME, so leave {PREFIX} out"
        ))
    } else if name.len() > LONGEST {
        Some(format!(
            "{name:?} is too long for a schedule: its CronJob is called {PREFIX}NAME and has at most 52 characters, so NAME at most {LONGEST}"
        ))
    } else {
        None
    }
}

/// Why this cannot be a cron expression. The API server checks the numbers.
pub fn wrong_cron(cron: &str) -> Option<String> {
    let macros = [
        "@yearly",
        "@annually",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    let field = |text: &str| {
        text.chars()
            .all(|it| it.is_ascii_alphanumeric() || "*,/?-".contains(it))
    };
    let fields: Vec<&str> = cron.split_whitespace().collect();
    let is_one =
        macros.contains(&cron) || (fields.len() == 5 && fields.iter().all(|text| field(text)));
    (!is_one).then(|| {
        format!(
            "{cron:?} is not a schedule: use the five fields of cron, for instance \"*/10 * * * *\", or @hourly; the time zone goes into --time-zone"
        )
    })
}

/// The objects, in the order of their creation.
pub fn objects(plan: &SchedulePlan) -> Vec<Value> {
    vec![account(plan), binding(plan), request(plan), cron_job(plan)]
}

fn metadata(plan: &SchedulePlan, name: &str) -> Value {
    json!({"name": name, "namespace": plan.namespace, "labels": labels()})
}

fn of_schedule(plan: &SchedulePlan) -> Value {
    let mut metadata = metadata(plan, &object_name(&plan.name));
    metadata["labels"][LABEL] = json!(plan.name);
    metadata
}

fn labels() -> Value {
    json!({
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
        "app.kubernetes.io/managed-by": MANAGER,
        "app.kubernetes.io/name": "phpprof",
        "app.kubernetes.io/component": "schedule",
    })
}

fn account(plan: &SchedulePlan) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": metadata(plan, ACCOUNT),
        "automountServiceAccountToken": false,
    })
}

fn binding(plan: &SchedulePlan) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": metadata(plan, ACCOUNT),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": plan.cluster_role},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": plan.namespace}],
    })
}

fn request(plan: &SchedulePlan) -> Value {
    let mut spec = plan.spec.clone();
    if !plan.keeps_ttl {
        spec["ttlSecondsAfterFinished"] = json!(TTL_SECONDS);
    }
    // The schedule's own label is always there, as in the chart.
    let mut labels = map(&plan.job.request_labels);
    labels.insert(LABEL.to_owned(), json!(plan.name));
    let request = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {
            "generateName": format!("{}-", plan.name), "namespace": plan.namespace, "labels": labels,
        },
        "spec": spec,
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": of_schedule(plan),
        "data": {"request.yaml": crate::output::yaml(&request)},
    })
}

fn map(labels: &[(String, String)]) -> Map<String, Value> {
    let label = |(key, value): &(String, String)| (key.clone(), json!(value));
    labels.iter().map(label).collect()
}

fn cron_job(plan: &SchedulePlan) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": of_schedule(plan),
        "spec": {
            "schedule": plan.cron,
            "suspend": plan.suspend,
            "concurrencyPolicy": plan.job.concurrency_policy.name(),
            "startingDeadlineSeconds": plan.job.starting_deadline,
            "successfulJobsHistoryLimit": plan.job.successful_jobs_history_limit,
            "failedJobsHistoryLimit": plan.job.failed_jobs_history_limit,
            "jobTemplate": {"metadata": {"labels": labels()}, "spec": job(plan)},
        },
    });
    if let Some(zone) = &plan.time_zone {
        job["spec"]["timeZone"] = json!(zone);
    }
    job
}

fn job(plan: &SchedulePlan) -> Value {
    json!({
        "backoffLimit": 2,
        "activeDeadlineSeconds": 120,
        // Retries are useless if the API server refuses by its rules (2), because a namespace is
        // missing (3) or because a right is missing (4).
        "podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "request", "operator": "In", "values": [2, 3, 4]}},
        ]},
        "template": {"metadata": {"labels": labels()}, "spec": pod(plan)},
    })
}

fn pod(plan: &SchedulePlan) -> Value {
    let mut pod = json!({
        "restartPolicy": "Never",
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "request",
            "image": plan.job.image,
            "args": ["run", "--filename=/etc/phpprof/request.yaml", "--wait=false", "--output=name"],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
            "securityContext": {
                "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": "request", "mountPath": "/etc/phpprof", "readOnly": true}],
        }],
        "volumes": [{"name": "request", "configMap": {"name": object_name(&plan.name)}}],
    });
    place(&mut pod, &plan.job);
    pod
}

/// Sets where the pod runs. Fields that were not requested are left out.
fn place(pod: &mut Value, job: &JobArguments) {
    if !job.image_pull_secrets.is_empty() {
        let secrets = job.image_pull_secrets.iter();
        pod["imagePullSecrets"] = secrets.map(|name| json!({"name": name})).collect();
    }
    if let Some(policy) = job.image_pull_policy {
        pod["containers"][0]["imagePullPolicy"] = json!(policy.name());
    }
    if !job.node_selector.is_empty() {
        pod["nodeSelector"] = json!(map(&job.node_selector));
    }
    if !job.tolerations.is_empty() {
        pod["tolerations"] = json!(job.tolerations);
    }
    if let Some(class) = &job.priority_class {
        pod["priorityClassName"] = json!(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times_are_checked_before_any_creation() {
        for name in ["web", "web-1", &"a".repeat(44)] {
            assert_eq!(wrong_name(name), None);
        }
        for name in [
            "",
            "Web",
            "web.v2",
            "-web",
            "web-",
            "phpprof-web",
            &"a".repeat(45),
        ] {
            assert!(wrong_name(name).is_some(), "{name}");
        }
        for cron in ["*/10 * * * *", "0 3 * * MON-FRI", "@hourly"] {
            assert_eq!(wrong_cron(cron), None);
        }
        for cron in ["", "* * * *", "CRON_TZ=UTC * * * * *", "hourly", "@reboot"] {
            assert!(wrong_cron(cron).is_some(), "{cron}");
        }
        assert_eq!(object_name("web"), "phpprof-web");
        assert_eq!(object_name("phpprof-web"), "phpprof-web");
    }
}
